//! `conv` of floats with channels last: all windows of the batch are the rows of a product with the weights.

use super::Types;
use super::depthwise;
use super::few::Few;
use super::form::Form;
use super::gemm::{Bias, Group, How, Left, Size, Strided, gemm_into, side_by_side, slices};
use super::micro::MAX_ROWS;
use super::windows::{Conv, Spatial, volume};
use kiln_backend::BackendError;
use kiln_ops::conv::window::Axis;
use kiln_ops::layout::Layout;
use std::ops::Range;

/// The right matrices of a convolution: outputs of each group, a row of the weights for each.
pub fn form(t: &Types<'_>) -> Option<Form> {
    let attrs = t.node.op.attrs();
    let layout = Layout::of(attrs);
    let (x, w) = (t.input(0)?, t.input(1)?.static_dims()?);
    let groups = usize::try_from(attrs.int("groups").ok()?).ok()?;
    let channels = x.dims.get(layout.channel_axis(x.dims.len()))?.as_const()?;
    let (m, depth) = (*w.first()?, *w.get(layout.channel_axis(w.len()))?);
    let alone = depth == 1 && groups > 1 && m as i64 == channels;
    if layout != Layout::ChannelsLast || alone || groups == 0 || !m.is_multiple_of(groups) {
        return None;
    }
    let k = w.iter().skip(1).product();
    Some(Form { k, n: m / groups, row: 1, col: k, groups })
}

/// Writes y, which has all elements: [N, windows.., M].
pub fn run(c: &Conv<'_>, y: &mut [f32], how: How<'_>) -> Result<(), BackendError> {
    if c.depth == 1 && c.groups > 1 && c.m == c.channels {
        depthwise::last(c, how.tail, y);
        return Ok(());
    }
    let n = c.m / c.groups.max(1);
    // Windows of one element, one for each: rows of x are those of the product.
    let single = c.axes.iter().all(|a| (a.kernel, a.stride, a.begin) == (1, 1, 0) && a.input == a.output);
    let k = c.depth * volume(&c.axes, |a| a.kernel);
    let s = Size { m: y.len() / c.m, n, k };
    let windows: Vec<_> = (0..c.groups).map(|g| Windows::new(c, g * c.depth)).collect();
    let elements: Vec<_> = (0..c.groups)
        .map(|g| Strided { data: c.x.get(g * c.depth..).unwrap_or_default(), row: c.channels, col: 1 })
        .collect();
    // A row for each output channel.
    let right: Vec<_> = (0..c.groups)
        .map(|g| Strided { data: c.w.get(g * n * k..).unwrap_or_default(), row: 1, col: k })
        .collect();
    let group = |g: usize| -> Group<'_> {
        let left: &dyn Left = if single { &elements[g] } else { &windows[g] };
        let bias = c.bias.map_or(Bias::None, |b| Bias::Columns(&b[g * n..(g + 1) * n]));
        (left, &right[g], bias)
    };
    if let (1, Some(few)) = (c.groups, Few::new(c, how.pool)?) {
        let bias = c.bias.map_or(Bias::None, Bias::Columns);
        return gemm_into(s, (&few, &right[0], bias), y, (c.m, 0), How { depth: how.depth.max(k), ..how });
    }
    let how = How { depth: if single { how.depth } else { depth(c, how.depth) }, ..how };
    if c.groups == 1 {
        return gemm_into(s, group(0), y, (c.m, 0), how);
    }
    let groups: Vec<_> = (0..c.groups).map(group).collect();
    side_by_side(s, &groups, y, how)
}

/// Depth of blocks, at most about `most`, that ends where runs of neighbouring elements end: rows of blocks are read where they are then.
fn depth(c: &Conv<'_>, most: usize) -> usize {
    let run = c.depth * if along(c) { c.axes[2].kernel as usize } else { 1 };
    let parts = run.div_ceil(most.max(1)).max(1);
    if run >= SHORT && run.is_multiple_of(parts) { run / parts } else { most }
}

/// Whether the elements under neighbouring taps of a row are neighbours.
fn along(c: &Conv<'_>) -> bool {
    c.axes[2].dilation == 1 && c.depth == c.channels
}

/// Neighbouring elements of windows from which on they are not copied.
const SHORT: usize = 64;

/// The elements under windows as a matrix: a row for each window, a column for each tap and channel.
struct Windows<'a> {
    x: &'a [f32],
    axes: &'a Spatial,
    /// Channels of x, of the group, and the first one of the group.
    channels: usize,
    depth: usize,
    first: usize,
    /// Neighbouring taps whose elements lie one after another.
    run: usize,
    zeros: Vec<f32>,
}

impl<'a> Windows<'a> {
    fn new(c: &'a Conv<'_>, first: usize) -> Windows<'a> {
        let run = if along(c) { c.axes[2].kernel as usize } else { 1 };
        let zeros = vec![0.0; run * c.depth];
        Windows { x: c.x, axes: &c.axes, channels: c.channels, depth: c.depth, first, run, zeros }
    }

    /// The row of x under a run of taps of a window, and the position in it where the run begins, which may be outside; `None` if
    /// the whole row is padding.
    fn under(&self, window: &At, run: usize) -> Option<(&'a [f32], i64)> {
        let [d, h, w] = self.axes;
        let per_row = w.kernel as usize / self.run;
        let (rest, kw) = (run / per_row, run % per_row * self.run);
        let (kd, kh) = (rest / h.kernel as usize, rest % h.kernel as usize);
        let (z, y) = (place(d, window.at[0], kd)?, place(h, window.at[1], kh)?);
        let row = ((window.image * d.input as usize + z) * h.input as usize + y) * w.input as usize;
        let start = window.at[2] * w.stride + kw as i64 * w.dilation - w.begin;
        Some((&self.x[row * self.channels..(row + w.input as usize) * self.channels], start))
    }

    /// A part of the elements under a run of taps where they lie, by what [`Windows::under`] found; `None` if some are padding, but not
    /// all.
    fn whole(&self, under: Option<(&'a [f32], i64)>, part: &Range<usize>) -> Option<&[f32]> {
        let Some((row, start)) = under else { return Some(&self.zeros[part.clone()]) };
        let width = self.axes[2].input;
        if start + self.run as i64 <= 0 || start >= width {
            return Some(&self.zeros[part.clone()]);
        }
        let inside = start >= 0 && start + self.run as i64 <= width;
        inside.then(|| &row[start as usize * self.channels + self.first..][part.clone()])
    }

    /// Copies a part of the elements under a run of taps; padding is zero.
    fn copy(&self, window: &At, run: usize, part: Range<usize>, to: &mut [f32]) {
        let Some((row, start)) = self.under(window, run) else { return to.fill(0.0) };
        let (width, depth) = (self.axes[2].input, self.depth as i64);
        let inside = |p: i64| ((p - start) * depth).clamp(part.start as i64, part.end as i64) as usize;
        let (from, end) = (inside(0), inside(width));
        to[..from - part.start].fill(0.0);
        to[end.max(from) - part.start..].fill(0.0);
        if from < end {
            // Runs of several taps have all channels, and so no gaps.
            let at = start * self.channels as i64 + (self.first + from) as i64;
            to[from - part.start..end - part.start].copy_from_slice(&row[at as usize..][..end - from]);
        }
    }
}

/// Index of the element under the tap of a window, unless it is padding.
fn place(a: &Axis<i64>, o: i64, tap: usize) -> Option<usize> {
    let p = o * a.stride + tap as i64 * a.dilation - a.begin;
    (0..a.input).contains(&p).then_some(p as usize)
}

/// A window: its image and coordinates.
#[derive(Clone, Copy)]
pub struct At {
    pub image: usize,
    pub at: [i64; 3],
}

impl At {
    /// A window by its number.
    pub fn of(axes: &Spatial, row: usize) -> At {
        let [d, h, w] = axes.each_ref().map(|a| a.output as usize);
        let at = [row / (w * h) % d, row / w % h, row % w].map(|o| o as i64);
        At { image: row / (w * h * d), at }
    }

    /// The next window.
    pub fn next(mut self, axes: &Spatial) -> At {
        for (at, a) in self.at.iter_mut().zip(axes).rev() {
            *at += 1;
            if *at < a.output {
                return self;
            }
            *at = 0;
        }
        self.image += 1;
        self
    }
}

impl Left for Windows<'_> {
    fn rows<'r>(
        &'r self,
        rows: Range<usize>,
        depth: Range<usize>,
        room: &'r mut [f32],
    ) -> [&'r [f32]; MAX_ROWS] {
        let len = self.run * self.depth;
        let (count, first) = (rows.len(), depth.start / len);
        if depth.end <= (first + 1) * len {
            let part = depth.start - first * len..depth.end - first * len;
            let mut all = [&[][..]; MAX_ROWS];
            let (mut rest, size) = (room, part.len());
            let mut at = At::of(self.axes, rows.start);
            let mut under = self.under(&at, first);
            for (i, to) in all.iter_mut().enumerate().take(count) {
                // Neighbouring windows of a row are over the same rows of x.
                under = match under {
                    _ if i > 0 && at.at[2] == 0 => self.under(&at, first),
                    Some((row, start)) if i > 0 => Some((row, start + self.axes[2].stride)),
                    under => under,
                };
                *to = match self.whole(under, &part) {
                    Some(there) => there,
                    None => {
                        let (now, later) = rest.split_at_mut(size);
                        rest = later;
                        self.copy(&at, first, part.clone(), now);
                        now
                    }
                };
                at = at.next(self.axes);
            }
            return all;
        }
        let mut at = [At::of(self.axes, rows.start); MAX_ROWS];
        for i in 1..count {
            at[i] = at[i - 1].next(self.axes);
        }
        for (at, to) in at.iter().zip(room.chunks_exact_mut(depth.len())).take(count) {
            let mut to = to;
            for run in first..depth.end.div_ceil(len) {
                let part = depth.start.max(run * len) - run * len..depth.end.min((run + 1) * len) - run * len;
                let (now, later) = to.split_at_mut(part.len());
                to = later;
                self.copy(at, run, part, now);
            }
        }
        slices(room, depth.len(), count)
    }
}
