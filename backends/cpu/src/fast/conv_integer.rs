//! `conv` of integers of 8 bits, and of 32 that fit 16: windows are rows of words, multiplied with those of the weights.

use super::NodeCx;
use super::conv_last::At;
use super::conv_second::{self, Job};
use super::copy::{self, Map};
use super::pointwise::tail::Results;
use super::windows::{Spatial, spatial, volume};
use super::words::{self, Columns, Narrow, Rows, Size, Stored, Target};
use crate::value::Out;
use kiln_backend::BackendError;
use kiln_ir::DType;
use kiln_ops::conv::geometry;
use kiln_ops::conv::window::{self, Axis};
use kiln_ops::layout::Layout;
use kiln_ops::util::strides;
use std::ops::Range;

/// Channels of a group below which its product is too small for panels: rows of windows are added up tap by tap instead.
const ALONE: usize = 4;

/// The windows of one group of channels as rows: words of one tap after the other, the channels of each side by side.
struct Windows<'a> {
    /// Channels last.
    x: Narrow<'a>,
    axes: &'a Spatial,
    channels: usize,
    /// First channel of the group, and their number.
    first: usize,
    depth: usize,
}

/// The weights of one group as columns, in the order of the rows of [`Windows`].
struct Weights<'a> {
    w: Narrow<'a>,
    layout: Layout,
    depth: usize,
    taps: usize,
}

impl Columns for Weights<'_> {
    fn at(&self, k: usize, j: usize) -> i16 {
        let at = match self.layout {
            Layout::ChannelsLast => k,
            Layout::Linear => k % self.depth * self.taps + k / self.depth,
        };
        self.w.at(j * self.depth * self.taps + at)
    }

    fn signed(&self) -> bool {
        self.w.is_signed()
    }
}

/// A tensor with channels last.
fn channels_last(x: &[i16], shape: &[usize]) -> Vec<i16> {
    let own = strides(shape);
    let order = [0].into_iter().chain(2..shape.len()).chain([1]);
    let maps = order.map(|d| Map::all(shape[d], own[d])).collect();
    let mut y = vec![0; x.len()];
    copy::bytes(size_of::<i16>(), bytemuck::cast_slice(x), bytemuck::cast_slice_mut(&mut y), 0, maps, &[]);
    y
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let layout = Layout::of(attrs);
    let (Some(vx), Some(vw)) = (cx.args[0].clone(), cx.args[1].clone()) else { return Ok(false) };
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
    let depth = sw[layout.channel_axis(sw.len())];
    let taps = volume(&axes, |a| a.kernel);
    if cx.out_dtype(0) != Some(DType::I32) || shape.contains(&0) || depth * taps == 0 {
        return Ok(false);
    }
    let (groups, outputs) = (groups as usize, sw[0]);
    let n = outputs / groups.max(1);
    if n < ALONE && depth < ALONE {
        return Ok(false);
    }
    let channels = sx[layout.channel_axis(sx.len())];
    let Some(stored) = Stored::of(&vx) else { return Ok(false) };
    let second = layout == Layout::Linear && conv_second::takes(stored.narrow());
    // Weights of 32 bits are only read until they are packed.
    let kept = if second { cx.kept.is_some_and(conv_second::keeps) } else { words::kept(cx.kept, groups) };
    let packed = vw.dtype() == DType::I32 && kept;
    let Some(weights) = (if packed { Some(Stored::Words(Vec::new())) } else { Stored::of(&vw) }) else {
        return Ok(false);
    };
    let w = weights.narrow();
    if second {
        let job = Job { x: stored.narrow(), w, bias, axes: &axes, images: sx[0], groups, n, depth };
        let tail = cx.take_tail(DType::I32);
        let made = tail.map_or(DType::I32, |t| t.result());
        let mut out = Out::new(cx.pool, made, &shape, &cx.node.name)?;
        conv_second::run(&job, cx.kept, &Results::of(&mut out, tail))?;
        cx.push(out.done());
        return Ok(true);
    }
    let words;
    let x = match (stored.narrow(), layout) {
        (Narrow::Words(x), Layout::Linear) => {
            words = channels_last(x, sx);
            Narrow::Words(&words)
        }
        (x, _) => x,
    };
    let windows = volume(&axes, |a| a.output);
    let s = Size { m: sx[0] * windows, n, k: depth * taps };
    let tail = cx.take_tail(DType::I32);
    let mut out = Out::new(cx.pool, tail.map_or(DType::I32, |t| t.result()), &shape, &cx.node.name)?;
    for g in 0..groups {
        let weights = Weights { w: w.from(g * n * s.k), layout, depth, taps };
        let rows = Windows { x, axes: &axes, channels, first: g * depth, depth };
        let panels = words::panels(s, (&rows, &weights), cx.kept.map(|k| (k, g)))?;
        let mut target = Target::of(&mut out, tail, outputs);
        target.first = g * n;
        if layout == Layout::Linear {
            target.first = g * n * windows;
            (target.column, target.rows) = (windows, [windows, 1, outputs * windows]);
        }
        words::product(s, &rows, &panels, bias.map(|b| &b[g * n..(g + 1) * n]), &target);
    }
    cx.push(out.done());
    Ok(true)
}

/// Index of the element under a tap of a window, unless it is padding.
fn place(a: &Axis<i64>, o: i64, tap: usize) -> Option<usize> {
    let p = o * a.stride + tap as i64 * a.dilation - a.begin;
    (0..a.input).contains(&p).then_some(p as usize)
}

impl Rows for Windows<'_> {
    fn words(&self, rows: Range<usize>, k: usize, pitch: usize, to: &mut [i16]) {
        let mut at = At::of(self.axes, rows.start);
        for to in to.chunks_exact_mut(pitch).take(rows.len()) {
            self.gather(&at, &mut to[..k], |from, to| self.x.widen(from, to));
            at = at.next(self.axes);
        }
    }

    fn bytes(&self, rows: Range<usize>, k: usize, pitch: usize, to: &mut [u8]) {
        let mut at = At::of(self.axes, rows.start);
        for to in to.chunks_exact_mut(pitch).take(rows.len()) {
            self.gather(&at, &mut to[..k], |from, to| self.x.copy(from, to));
            at = at.next(self.axes);
        }
    }

    fn unsigned(&self) -> bool {
        self.x.is_unsigned()
    }
}

impl Windows<'_> {
    /// Writes the elements under a window, neighbours by `put`; padding is zero.
    #[inline(always)]
    fn gather<T: Copy + Default>(&self, window: &At, to: &mut [T], put: impl Fn(usize, &mut [T])) {
        let [d, h, w] = self.axes;
        let [kd, kh, kw] = self.axes.each_ref().map(|a| a.kernel as usize);
        let image = window.image * d.input as usize;
        let line = kw * self.depth;
        let start = window.at[2] * w.stride - w.begin;
        let whole =
            self.depth == self.channels && w.dilation == 1 && start >= 0 && start + w.kernel <= w.input;
        let mut lines = to.chunks_exact_mut(line);
        for z in (0..kd).map(|k| place(d, window.at[0], k)) {
            for (y, to) in (0..kh).map(|k| place(h, window.at[1], k)).zip(&mut lines) {
                let (Some(z), Some(y)) = (z, y) else {
                    to.fill(T::default());
                    continue;
                };
                let row = ((image + z) * h.input as usize + y) * w.input as usize;
                if whole {
                    put((row + start as usize) * self.channels, to);
                    continue;
                }
                for (k, to) in to.chunks_exact_mut(self.depth).enumerate() {
                    match place(w, window.at[2], k) {
                        Some(x) => put((row + x) * self.channels + self.first, to),
                        None => to.fill(T::default()),
                    }
                }
            }
        }
    }
}
