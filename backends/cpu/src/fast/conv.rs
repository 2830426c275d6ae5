//! `conv` of floats: windows packed on the fly into a matrix product, or, where every channel is alone, tap by tap.

use super::gemm::{
    Bias, Group, How, Right, Size, Strided, Target, alone_and_finished, floats_mut, gemm_into, scratch,
};
use super::plane::spread;
use super::windows::{Conv, Spatial, spatial, volume};
use super::{NodeCx, Types, conv_integer, conv_last, depthwise};
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_ir::DType;
use kiln_ops::conv::geometry;
use kiln_ops::conv::window::{self, Axis};
use kiln_ops::layout::Layout;
use std::ops::Range;

/// The windows of some channels of one image as a matrix: a row for each channel and tap, a column for each window. The image has its
/// padding around it. Where windows are `s` elements apart, every `s`-th element of a row comes first, then those after them.
struct Windows<'a> {
    x: &'a [f32],
    axes: &'a Spatial,
    /// Place of each channel and tap, from the first element of a window on.
    taps: &'a [usize],
}

/// Length of an axis with the padding that windows reach, and no more.
fn padded(a: &Axis<i64>) -> usize {
    ((a.output - 1) * a.stride + (a.kernel - 1) * a.dilation + 1) as usize
}

/// Length of the rows of images with padding.
fn wide(w: &Axis<i64>) -> usize {
    padded(w).next_multiple_of(w.stride as usize)
}

/// Places of the taps of `depth` channels in images with padding.
fn places(axes: &Spatial, depth: usize) -> Vec<usize> {
    let [d, h, w] = axes;
    let ([pd, ph, _], pw, step) = (axes.each_ref().map(padded), wide(w), w.stride as usize);
    let column = |x: usize| x % step * (pw / step) + x / step;
    let mut all = Vec::with_capacity(depth * volume(axes, |a| a.kernel));
    for channel in 0..depth {
        for (z, y) in (0..d.kernel * d.dilation).step_by(d.dilation as usize).flat_map(|z| {
            (0..h.kernel * h.dilation).step_by(h.dilation as usize).map(move |y| (z as usize, y as usize))
        }) {
            let row = ((channel * pd + z) * ph + y) * pw;
            all.extend((0..w.kernel as usize).map(|k| row + column(k * w.dilation as usize)));
        }
    }
    all
}

/// Copies channels into images with padding.
fn pad(axes: &Spatial, x: &[f32], to: &mut [f32]) {
    let [d, h, w] = axes;
    let ([pd, ph, _], pw, step) = (axes.each_ref().map(padded), wide(w), w.stride as usize);
    let inside = |a: &Axis<i64>, i: usize| {
        let p = i as i64 - a.begin;
        (0..a.input).contains(&p).then_some(p)
    };
    let lead = w.begin.clamp(0, pw as i64) as usize;
    let skipped = (-w.begin).max(0).min(w.input);
    let len = (w.input - skipped).clamp(0, (pw - lead) as i64) as usize;
    threads::chunks(to, pw, COPIED.div_ceil(pw), |row, to| {
        let (channel, z, y) = (row / (pd * ph), row / ph % pd, row % ph);
        let (Some(z), Some(y)) = (inside(d, z), inside(h, y)) else { return to.fill(0.0) };
        let from = ((channel as i64 * d.input + z) * h.input + y) * w.input + skipped;
        let from = &x[from as usize..][..len];
        if step > 1 {
            to.fill(0.0);
            return spread(from, to, lead, step);
        }
        to[..lead].fill(0.0);
        to[lead..lead + len].copy_from_slice(from);
        to[lead + len..].fill(0.0);
    });
}

/// Copies the elements under windows of one element.
fn sample(axes: &Spatial, x: &[f32], to: &mut [f32]) {
    let [d, h, w] = axes;
    let [rows, width] = [h.output as usize, w.output as usize];
    threads::chunks(to, width, COPIED.div_ceil(width), |row, to| {
        let (channel, z, y) = (row / rows / d.output as usize, row / rows % d.output as usize, row % rows);
        let line =
            (channel * d.input as usize + z * d.stride as usize) * h.input as usize + y * h.stride as usize;
        let from = &x[line * w.input as usize..];
        to.iter_mut().zip(from.iter().step_by(w.stride as usize)).for_each(|(to, x)| *to = *x);
    });
}

/// Elements that a task copies at least.
const COPIED: usize = 16 << 10;
/// Multiplications of a group's product, and elements of its image with padding, up to which one thread makes all of it.
const SMALL: usize = 4 << 20;
/// Multiplications that a task makes at least.
const TASK: usize = 64 << 10;

/// Copies `N` to `2·N` elements: the first `N` and the last.
#[inline(always)]
fn ends<const N: usize>(from: &[f32], to: &mut [f32]) {
    if let (Some(x), Some(to)) = (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
        *to = *x;
    }
    if let (Some(x), Some(to)) = (from.last_chunk::<N>(), to.last_chunk_mut::<N>()) {
        *to = *x;
    }
}

impl Right for Windows<'_> {
    fn pack(&self, k: Range<usize>, cols: Range<usize>, nr: usize, out: &mut [f32]) {
        let [d, h, w] = self.axes;
        let (ph, pw) = (padded(h), wide(w));
        let (oh, ow) = (h.output as usize, w.output as usize);
        let mut at = cols.start;
        while at < cols.end {
            // Windows of one row of the output.
            let (row, x) = (at / ow, at % ow);
            let len = (ow - x).min(cols.end - at);
            let line = row / oh * d.stride as usize * ph + row % oh * h.stride as usize;
            let from = &self.x[line * pw + x..];
            let first = at - cols.start;
            let lines = out.chunks_exact_mut(nr).zip(&self.taps[k.clone()]);
            let parts = lines.map(|(to, &tap)| (&mut to[first..first + len], &from[tap..tap + len]));
            match len {
                16..=32 => parts.for_each(|(to, from)| ends::<16>(from, to)),
                8..16 => parts.for_each(|(to, from)| ends::<8>(from, to)),
                4..8 => parts.for_each(|(to, from)| ends::<4>(from, to)),
                2..4 => parts.for_each(|(to, from)| ends::<2>(from, to)),
                _ => parts.for_each(|(to, from)| to.iter_mut().zip(from).for_each(|(to, x)| *to = *x)),
            }
            at += len;
        }
        if cols.len() < nr {
            out.chunks_exact_mut(nr).for_each(|to| to[cols.len()..].fill(0.0));
        }
    }
}

/// Whether the kernel covers a node: floats, or integers of 8 bits.
pub fn covers(t: &Types<'_>) -> bool {
    let narrow = |i: usize| t.input(i).is_some_and(|t| matches!(t.dtype, DType::I8 | DType::U8 | DType::I32));
    t.all_real() || (narrow(0) && narrow(1))
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let layout = Layout::of(attrs);
    let (Some(x), Some(w)) = (cx.floats(0), cx.weights(0)) else { return conv_integer::run(cx) };
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
    if out.contains(&0) {
        return cx.write_floats(0, &out, |_| Ok(()));
    }
    let channels = sx[layout.channel_axis(sx.len())];
    let (groups, m, depth) = (groups as usize, sw[0], sw[layout.channel_axis(sw.len())]);
    let tail = if depth > 0 { cx.take_tail(DType::F32) } else { None };
    let how = How { pool: &pool, tail, ..cx.how(0) };
    let conv = Conv { x: &x, w: &w, bias: bias.as_deref(), axes, groups, channels, m, depth };
    cx.write_floats(0, &out, |y| floats(&conv, layout, y, how))
}

/// A convolution of floats.
pub fn floats(c: &Conv<'_>, layout: Layout, y: &mut [f32], how: How<'_>) -> Result<(), BackendError> {
    match layout {
        Layout::ChannelsLast if c.depth > 0 => conv_last::run(c, y, how),
        // Without input channels there is only the bias.
        Layout::ChannelsLast => {
            y.chunks_exact_mut(c.m).for_each(|y| match c.bias {
                Some(b) => y.copy_from_slice(b),
                None => y.fill(0.0),
            });
            Ok(())
        }
        Layout::Linear => linear(c, y, how),
    }
}

fn linear(c: &Conv<'_>, y: &mut [f32], how: How<'_>) -> Result<(), BackendError> {
    let Conv { x, w, axes, groups, channels, m, depth, .. } = c;
    let (inputs, windows) = (volume(axes, |a| a.input), volume(axes, |a| a.output));
    let taps = volume(axes, |a| a.kernel);
    let s = Size { m: m / (*groups).max(1), n: windows, k: depth * taps };
    if *depth == 1 && *groups > 1 {
        depthwise::planes(c, how.tail, y);
        return Ok(());
    }
    let pointwise = taps == 1 && axes.iter().all(|a| a.stride == 1 && a.begin == 0 && a.end == 0);
    // Windows of one element each, some apart.
    let inside = |a: &Axis<i64>| a.begin == 0 && (a.output - 1) * a.stride < a.input;
    let sampled = taps == 1 && !pointwise && axes.iter().all(inside);
    let whole = axes[2].stride == 1 && axes.iter().all(|a| a.begin == 0 && padded(a) == a.input as usize);
    let [pd, ph, _] = axes.each_ref().map(padded);
    let room = [pd, ph, wide(&axes[2])].into_iter().fold(*depth, usize::saturating_mul);
    let room = match () {
        _ if sampled => depth * windows,
        _ if pointwise || whole => 0,
        _ => room,
    };
    let places = if pointwise || sampled { Vec::new() } else { places(axes, *depth) };
    // Calls `f` with the sides of the product of an image's group, and its summand.
    let product = |i: usize, room: &mut [f32], f: &mut dyn FnMut(Group<'_>)| {
        let (image, g) = (i / groups, i % groups);
        let start = (image * channels + g * depth) * inputs;
        let x = &x[start..start + depth * inputs];
        let left = Strided { data: &w[g * s.m * s.k..], row: s.k, col: 1 };
        let bias = c.bias.map_or(Bias::None, |b| Bias::Rows(&b[g * s.m..(g + 1) * s.m]));
        match (pointwise, sampled) {
            (true, _) => f((&left, &Strided { data: x, row: inputs, col: 1 }, bias)),
            (_, true) => {
                sample(axes, x, room);
                f((&left, &Strided { data: room, row: windows, col: 1 }, bias));
            }
            _ => {
                if !whole {
                    pad(axes, x, room);
                }
                let x = if whole { x } else { room };
                f((&left, &Windows { x, axes, taps: &places }, bias));
            }
        }
    };
    let size = s.m * windows;
    if *groups > 1 && (1..=SMALL).contains(&(s.m * s.n * s.k)) && room <= SMALL {
        let (count, parts) = (y.len() / size, Parts::new(y));
        threads::ranges(count, TASK.div_ceil(s.m * s.n * s.k), |products| {
            let (mut image, mut panels) = (vec![0f32; room], Vec::new());
            for i in products {
                product(i, &mut image, &mut |sides| {
                    let to = Target::new(&parts, windows, i * size);
                    // SAFETY: the rows of each product belong to one range.
                    unsafe { alone_and_finished(s, sides, to, (how.depth, how.tail), &mut panels) };
                });
            }
        });
        return Ok(());
    }
    let mut room = scratch(how.pool, room, "an image with its padding")?;
    for (i, y) in y.chunks_exact_mut(size).enumerate() {
        let how = How { kept: None, tail: how.tail.map(|t| t.from(i * size)), ..how };
        let mut done = Ok(());
        product(i, floats_mut(&mut room), &mut |sides| done = gemm_into(s, sides, y, (windows, 0), how));
        done?;
    }
    Ok(())
}
