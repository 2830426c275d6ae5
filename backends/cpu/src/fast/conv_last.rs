//! `conv` of floats with channels last: all windows of the batch are the rows of a product with the weights.

use super::depthwise;
use super::few::Few;
use super::gemm::{Bias, Group, How, Left, Size, Strided, gemm_into, side_by_side, slices};
use super::micro::MAX_ROWS;
use super::windows::{Conv, Spatial, volume};
use kiln_backend::BackendError;
use kiln_ops::conv::window::Axis;
use std::ops::Range;

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
    let right: Vec<_> = (0..c.groups).map(|g| Strided { data: &c.w[g * n * k..], row: 1, col: k }).collect();
    let group = |g: usize| -> Group<'_> {
        let left: &dyn Left = if single { &elements[g] } else { &windows[g] };
        let bias = c.bias.map_or(Bias::None, |b| Bias::Columns(&b[g * n..(g + 1) * n]));
        (left, &right[g], bias)
    };
    if let (1, Some(few)) = (c.groups, Few::new(c, how.pool)?) {
        let bias = c.bias.map_or(Bias::None, Bias::Columns);
        return gemm_into(s, (&few, &right[0], bias), y, (c.m, 0), How { depth: how.depth.max(k), ..how });
    }
    if c.groups == 1 {
        return gemm_into(s, group(0), y, (c.m, 0), how);
    }
    let groups: Vec<_> = (0..c.groups).map(group).collect();
    side_by_side(s, &groups, y, how)
}

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
        let w = &c.axes[2];
        let run = if w.dilation == 1 && c.depth == c.channels { w.kernel as usize } else { 1 };
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

    /// A part of the elements under a run of taps where they lie; `None` if some are padding, but not all.
    fn whole(&self, window: &At, run: usize, part: &Range<usize>) -> Option<&[f32]> {
        let Some((row, start)) = self.under(window, run) else { return Some(&self.zeros[part.clone()]) };
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
        let mut at = [At::of(self.axes, rows.start); MAX_ROWS];
        for i in 1..count {
            at[i] = at[i - 1].next(self.axes);
        }
        if depth.end <= (first + 1) * len {
            let part = depth.start - first * len..depth.end - first * len;
            let mut all = [&[][..]; MAX_ROWS];
            let (mut rest, size) = (room, part.len());
            for (to, at) in all.iter_mut().zip(&at).take(count) {
                *to = match self.whole(at, first, &part) {
                    Some(there) => there,
                    None => {
                        let (now, later) = rest.split_at_mut(size);
                        rest = later;
                        self.copy(at, first, part.clone(), now);
                        now
                    }
                };
            }
            return all;
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
