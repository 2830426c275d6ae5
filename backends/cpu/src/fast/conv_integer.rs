//! `conv` of integers of 8 bits: windows as vectors of words, multiplied with those of the weights.

use super::NodeCx;
use super::integer::{Vectors, Word, multiply};
use super::windows::{Spatial, spatial, volume};
use crate::threads::{self, Parts};
use crate::value::Out;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::conv::geometry;
use kiln_ops::conv::window::{self, Axis};
use kiln_ops::layout::Layout;

/// Windows that one task takes.
const BLOCK: usize = 64;

/// A convolution of one group after the other.
struct Job<'a> {
    x: &'a [i16],
    /// Weights by group.
    w: Vec<Vectors<i16>>,
    bias: Option<&'a [i32]>,
    axes: Spatial,
    layout: Layout,
    channels: usize,
    /// Channels of x and of the result in a group.
    depth: usize,
    per_group: usize,
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let layout = Layout::of(attrs);
    let (Some(vx), Some(vw)) = (cx.args[0].clone(), cx.args[1].clone()) else { return Ok(false) };
    let (Some(x), Some(w)) = (<i16 as Word>::read(&vx), <i16 as Word>::read(&vw)) else { return Ok(false) };
    let vb = cx.args.get(2).cloned().flatten();
    let bias = match &vb {
        Some(v) => match v.view::<i32>().filter(|_| v.dtype() == DType::I32) {
            Some(b) => Some(b),
            None => return Ok(false),
        },
        None => None,
    };
    let (sx, sw) = (vx.shape(), vw.shape());
    let axes = geometry(attrs, &window::dims(sx), &window::dims(sw)).ok();
    let Some(axes) = axes.and_then(|a| window::numbers(&a)).and_then(spatial) else { return Ok(false) };
    let (Some(shape), Ok(groups)) = (cx.out_shape(0), attrs.int("groups")) else { return Ok(false) };
    if cx.out_dtype(0) != Some(DType::I32) || shape.contains(&0) {
        return Ok(false);
    }
    let groups = groups as usize;
    let per_group = sw[0] / groups.max(1);
    let terms = w.len() / sw[0].max(1);
    let mut weights = Vec::with_capacity(groups);
    for g in 0..groups {
        let mut all = Vectors::zeros(per_group, terms);
        for m in 0..per_group {
            all.vector_mut(m)[..terms].copy_from_slice(&w[(g * per_group + m) * terms..][..terms]);
        }
        weights.push(all);
    }
    let depth = sw[layout.channel_axis(sw.len())];
    let channels = sx[layout.channel_axis(sx.len())];
    let job = Job { x: &x, w: weights, bias, axes, layout, channels, depth, per_group };
    let mut out = Out::new(cx.pool, DType::I32, &shape, &cx.node.name)?;
    job.run(sx[0], out.elems_mut());
    cx.push(out.done());
    Ok(true)
}

/// Index of the element under a tap of a window, unless it is padding.
fn place(a: &Axis<i64>, o: usize, tap: usize) -> Option<usize> {
    let p = o as i64 * a.stride + tap as i64 * a.dilation - a.begin;
    (0..a.input).contains(&p).then_some(p as usize)
}

impl Job<'_> {
    fn run(&self, images: usize, y: &mut [i32]) {
        let windows = volume(&self.axes, |a| a.output);
        let terms = self.depth * volume(&self.axes, |a| a.kernel);
        let groups = self.w.len();
        let outputs = groups * self.per_group;
        let blocks = windows.div_ceil(BLOCK);
        let points = Checkpoints::here();
        let parts = Parts::new(y);
        threads::each(images * groups * blocks, |task| {
            points.pass();
            let (image, rest) = (task / (groups * blocks), task % (groups * blocks));
            let (g, first) = (rest / blocks, rest % blocks * BLOCK);
            let end = windows.min(first + BLOCK);
            let mut under = Vectors::zeros(end - first, terms);
            (first..end).for_each(|p| self.gather(image, g, p, under.vector_mut(p - first)));
            multiply(&self.w[g], &under, |m, p, sum| {
                let m = g * self.per_group + m;
                let at = match self.layout {
                    Layout::ChannelsLast => (image * windows + first + p) * outputs + m,
                    Layout::Linear => (image * outputs + m) * windows + first + p,
                };
                // SAFETY: each window of each group belongs to one task.
                unsafe { parts.part(at, at + 1)[0] = sum.wrapping_add(self.bias.map_or(0, |b| b[m])) };
            });
        });
    }

    /// The elements under one window, in the order of the weights; padding stays zero.
    fn gather(&self, image: usize, g: usize, window: usize, to: &mut [i16]) {
        let [d, h, w] = &self.axes;
        let (oh, ow) = (h.output as usize, w.output as usize);
        let at = [window / (oh * ow), window / ow % oh, window % ow];
        let [kd, kh, kw] = self.axes.each_ref().map(|a| a.kernel as usize);
        let (inputs, depth) = (volume(&self.axes, |a| a.input), self.depth);
        for z in 0..kd {
            let Some(pz) = place(d, at[0], z) else { continue };
            for y in 0..kh {
                let Some(py) = place(h, at[1], y) else { continue };
                for x in 0..kw {
                    let Some(px) = place(w, at[2], x) else { continue };
                    let tap = (z * kh + y) * kw + x;
                    let position = (pz * h.input as usize + py) * w.input as usize + px;
                    match self.layout {
                        Layout::ChannelsLast => {
                            let from = (image * inputs + position) * self.channels + g * depth;
                            to[tap * depth..(tap + 1) * depth].copy_from_slice(&self.x[from..from + depth]);
                        }
                        Layout::Linear => {
                            let taps = kd * kh * kw;
                            let from = (image * self.channels + g * depth) * inputs + position;
                            for c in 0..depth {
                                to[c * taps + tap] = self.x[from + c * inputs];
                            }
                        }
                    }
                }
            }
        }
    }
}
