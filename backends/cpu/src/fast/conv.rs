//! `conv` of floats: windows packed on the fly into a matrix product, or, where every channel is alone, tap by tap.

use super::gemm::{Bias, Right, Size, Strided, gemm};
use super::windows::{Conv, Spatial, spatial, volume};
use super::{NodeCx, Types, conv_integer, conv_last};
use crate::buffer::Pool;
use crate::threads;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::conv::geometry;
use kiln_ops::conv::window::{self, Axis};
use kiln_ops::layout::Layout;
use std::ops::Range;
use std::sync::Arc;

/// The windows of some channels of one image as a matrix: a row for each channel and tap, a column for each window.
struct Windows<'a> {
    x: &'a [f32],
    axes: &'a Spatial,
}

/// Consecutive windows in one row of the output.
struct Segment {
    d: i64,
    h: i64,
    w: i64,
    len: usize,
}

impl Windows<'_> {
    fn segments(&self, cols: Range<usize>) -> Vec<Segment> {
        let [_, h, w] = self.axes;
        let (oh, ow) = (h.output as usize, w.output as usize);
        let mut out = Vec::new();
        let mut at = cols.start;
        while at < cols.end {
            let (row, x) = (at / ow, at % ow);
            let len = (ow - x).min(cols.end - at);
            out.push(Segment { d: (row / oh) as i64, h: (row % oh) as i64, w: x as i64, len });
            at += len;
        }
        out
    }

    /// The elements under one tap of the windows of a segment.
    fn segment(&self, s: &Segment, channel: usize, tap: [i64; 3], out: &mut [f32]) {
        let at = |axis: usize, o: i64| {
            let a = &self.axes[axis];
            let p = o * a.stride + tap[axis] * a.dilation - a.begin;
            (0..a.input).contains(&p).then_some(p as usize)
        };
        let [d, h, w] = self.axes;
        let (Some(z), Some(y)) = (at(0, s.d), at(1, s.h)) else { return out.fill(0.0) };
        let row = ((channel * d.input as usize + z) * h.input as usize + y) * w.input as usize;
        let row = &self.x[row..row + w.input as usize];
        let first = s.w * w.stride + tap[2] * w.dilation - w.begin;
        if w.stride == 1 {
            let lead = (-first).clamp(0, s.len as i64) as usize;
            let end = (w.input - first).clamp(lead as i64, s.len as i64) as usize;
            out[..lead].fill(0.0);
            out[end..].fill(0.0);
            if lead < end {
                let from = (first + lead as i64) as usize;
                out[lead..end].copy_from_slice(&row[from..from + end - lead]);
            }
            return;
        }
        for (j, o) in out.iter_mut().enumerate() {
            let p = first + j as i64 * w.stride;
            *o = if (0..w.input).contains(&p) { row[p as usize] } else { 0.0 };
        }
    }
}

impl Right for Windows<'_> {
    fn pack(&self, k: Range<usize>, cols: Range<usize>, nr: usize, out: &mut [f32]) {
        let kernel = [0, 1, 2].map(|i| self.axes[i].kernel as usize);
        let segments = self.segments(cols.clone());
        for (p, line) in k.zip(out.chunks_exact_mut(nr)) {
            let (rest, kw) = (p / kernel[2], p % kernel[2]);
            let (rest, kh) = (rest / kernel[1], rest % kernel[1]);
            let (channel, kd) = (rest / kernel[0], rest % kernel[0]);
            let tap = [kd as i64, kh as i64, kw as i64];
            let mut at = 0;
            for s in &segments {
                self.segment(s, channel, tap, &mut line[at..at + s.len]);
                at += s.len;
            }
            line[at..].fill(0.0);
        }
    }
}

/// Whether the kernel covers a node: floats, or integers of 8 bits.
pub fn covers(t: &Types<'_>) -> bool {
    let narrow = |i: usize| t.input(i).is_some_and(|t| matches!(t.dtype, DType::I8 | DType::U8));
    t.all_real() || (narrow(0) && narrow(1))
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let layout = Layout::of(attrs);
    let (Some(x), Some(w)) = (cx.floats(0), cx.floats(1)) else { return conv_integer::run(cx) };
    let bias = match cx.has(2) {
        true => match cx.floats(2) {
            Some(b) => Some(b),
            None => return Ok(false),
        },
        false => None,
    };
    let (sx, sw) = (cx.shape(0).to_vec(), cx.shape(1).to_vec());
    let axes = geometry(attrs, &window::dims(&sx), &window::dims(&sw)).ok();
    let Some(axes) = axes.and_then(|a| window::numbers(&a)).and_then(spatial) else { return Ok(false) };
    let (Some(out), Ok(groups)) = (cx.out_shape(0), attrs.int("groups")) else { return Ok(false) };
    let pool = cx.pool.clone();
    let how = (cx.depth, &pool);
    if out.contains(&0) {
        return cx.write_floats(0, &out, |_| Ok(()));
    }
    let channels = sx[layout.channel_axis(sx.len())];
    let (groups, m, depth) = (groups as usize, sw[0], sw[layout.channel_axis(sw.len())]);
    let conv = Conv { x: &x, w: &w, bias: bias.as_deref(), axes, groups, channels, m, depth };
    cx.write_floats(0, &out, |y| match layout {
        Layout::ChannelsLast if depth > 0 => conv_last::run(&conv, y, how),
        // Without input channels there is only the bias.
        Layout::ChannelsLast => {
            y.chunks_exact_mut(m).for_each(|y| match conv.bias {
                Some(b) => y.copy_from_slice(b),
                None => y.fill(0.0),
            });
            Ok(())
        }
        Layout::Linear => linear(&conv, y, how),
    })
}

fn linear(c: &Conv<'_>, y: &mut [f32], how: (usize, &Arc<Pool>)) -> Result<(), BackendError> {
    let Conv { x, w, axes, groups, channels, m, depth, .. } = c;
    let (inputs, windows) = (volume(axes, |a| a.input), volume(axes, |a| a.output));
    let taps = volume(axes, |a| a.kernel);
    let s = Size { m: m / (*groups).max(1), n: windows, k: depth * taps };
    if *depth == 1 && *groups > 1 {
        let points = Checkpoints::here();
        threads::chunks(y, windows, 1, |i, y| {
            points.pass();
            let (image, o) = (i / m, i % m);
            let start = (image * channels + o / s.m) * inputs;
            y.fill(c.bias.map_or(0.0, |b| b[o]));
            plane(axes, &x[start..start + inputs], &w[o * taps..(o + 1) * taps], y);
        });
        return Ok(());
    }
    let pointwise = taps == 1 && axes.iter().all(|a| a.stride == 1 && a.begin == 0 && a.end == 0);
    for (i, y) in y.chunks_exact_mut(s.m * windows).enumerate() {
        let (image, g) = (i / groups, i % groups);
        let start = (image * channels + g * depth) * inputs;
        let x = &x[start..start + depth * inputs];
        let left = Strided { data: &w[g * s.m * s.k..], row: s.k, col: 1 };
        let bias = c.bias.map_or(Bias::None, |b| Bias::Rows(&b[g * s.m..(g + 1) * s.m]));
        match pointwise {
            true => gemm(s, &left, &Strided { data: x, row: inputs, col: 1 }, bias, y, how)?,
            false => gemm(s, &left, &Windows { x, axes }, bias, y, how)?,
        }
    }
    Ok(())
}

/// Adds the correlation of one plane with one kernel.
fn plane(axes: &Spatial, x: &[f32], w: &[f32], y: &mut [f32]) {
    let [d, h, wd] = axes;
    let (iw, ow) = (wd.input as usize, wd.output as usize);
    for (row, y) in y.chunks_exact_mut(ow).enumerate() {
        let (od, oh) = (row as i64 / h.output, row as i64 % h.output);
        for (kd, z) in d.taps(od) {
            for (kh, yy) in h.taps(oh) {
                let x = &x[(z * h.input + yy) as usize * iw..][..iw];
                let w = &w[((kd * h.kernel + kh) * wd.kernel) as usize..][..wd.kernel as usize];
                w.iter().enumerate().for_each(|(kw, &w)| line(wd, kw as i64, w, x, y));
            }
        }
    }
}

/// Adds one tap's products to a row of the output.
fn line(a: &Axis<i64>, tap: i64, w: f32, x: &[f32], y: &mut [f32]) {
    let first = tap * a.dilation - a.begin;
    // Windows whose tap lies on elements: 0 ≤ first + o·stride < input.
    let from = if first < 0 { (-first + a.stride - 1) / a.stride } else { 0 };
    let to = if a.input > first { (a.input - first + a.stride - 1) / a.stride } else { 0 };
    let (from, to) = (from.min(a.output) as usize, to.clamp(0, a.output) as usize);
    if from >= to {
        return;
    }
    let start = (first + from as i64 * a.stride) as usize;
    match a.stride {
        1 => y[from..to].iter_mut().zip(&x[start..]).for_each(|(y, x)| *y += w * x),
        s => y[from..to].iter_mut().zip(x[start..].iter().step_by(s as usize)).for_each(|(y, x)| *y += w * x),
    }
}
