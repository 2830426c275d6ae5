//! `conv` of floats with channels last: all windows of the batch are the rows of a product with the weights.

use super::gemm::{Bias, Left, Right, Size, floats_mut, gemm, scratch};
use super::windows::{Conv, Spatial, volume};
use crate::buffer::Pool;
use crate::threads;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::conv::window::Axis;
use std::ops::Range;
use std::sync::Arc;

/// Elements of the left matrix that are packed at once.
const PACKED: usize = 1 << 19;
/// Rows of a part of the product at least, so that the weights are not packed for too few.
const LEAST_ROWS: usize = 384;
/// Rows of a strip of the left matrix at most.
const MAX_MR: usize = 16;

/// Writes y, which has all elements: [N, windows.., M]. `how` is the depth of a block, and where memory comes from.
pub fn run(c: &Conv<'_>, y: &mut [f32], how: (usize, &Arc<Pool>)) -> Result<(), BackendError> {
    if c.depth == 1 && c.groups > 1 && c.m == c.channels {
        depthwise(c, y);
        return Ok(());
    }
    let per_group = c.m / c.groups.max(1);
    let rows = y.len() / c.m;
    let k = c.depth * volume(&c.axes, |a| a.kernel);
    let step = (PACKED / k.max(1)).max(LEAST_ROWS);
    for g in 0..c.groups {
        let windows = Windows::new(c, g * c.depth);
        let right = Weights { w: &c.w[g * per_group * k..], k };
        let bias = c.bias.map_or(Bias::None, |b| Bias::Columns(&b[g * per_group..(g + 1) * per_group]));
        for first in (0..rows).step_by(step) {
            let s = Size { m: step.min(rows - first), n: per_group, k };
            let left = From { windows: &windows, first };
            if c.groups == 1 {
                gemm(s, &left, &right, bias, &mut y[first * c.m..][..s.m * s.n], how)?;
                continue;
            }
            let mut part = scratch(how.1, s.m * s.n, "a group of a convolution")?;
            let part = floats_mut(&mut part);
            gemm(s, &left, &right, bias, part, how)?;
            let all = y[first * c.m..].chunks_exact_mut(c.m);
            all.zip(part.chunks_exact(s.n)).for_each(|(y, p)| y[g * s.n..][..s.n].copy_from_slice(p));
        }
    }
    Ok(())
}

/// The weights of a group as a matrix: a row for each tap and channel, a column for each output channel.
struct Weights<'a> {
    w: &'a [f32],
    k: usize,
}

impl Right for Weights<'_> {
    fn pack(&self, k: Range<usize>, cols: Range<usize>, nr: usize, out: &mut [f32]) {
        for (p, line) in k.zip(out.chunks_exact_mut(nr)) {
            let (now, rest) = line.split_at_mut(cols.len());
            now.iter_mut().zip(cols.clone()).for_each(|(x, j)| *x = self.w[j * self.k + p]);
            rest.fill(0.0);
        }
    }
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

    /// The elements of channel `first` on at a position of an image.
    fn at(&self, image: usize, [z, y, x]: [usize; 3]) -> &'a [f32] {
        let [d, h, w] = self.axes;
        let position = ((image * d.input as usize + z) * h.input as usize + y) * w.input as usize + x;
        &self.x[position * self.channels + self.first..]
    }

    /// Elements under a run of taps of one window; in `room` where a part is padding.
    fn under<'r>(&'r self, window: &At, [kd, kh, kw]: [usize; 3], room: &'r mut [f32]) -> &'r [f32] {
        let [d, h, w] = self.axes;
        let (Some(z), Some(y)) = (place(d, window.at[0], kd), place(h, window.at[1], kh)) else {
            return &self.zeros;
        };
        let start = window.at[2] * w.stride + kw as i64 * w.dilation - w.begin;
        let (from, to) = (start.clamp(0, w.input), (start + self.run as i64).clamp(0, w.input));
        if from >= to {
            return &self.zeros;
        }
        let now = self.at(window.image, [z, y, from as usize]);
        if (to - from) as usize == self.run {
            return &now[..room.len()];
        }
        let (lead, len) = ((from - start) as usize * self.depth, (to - from) as usize * self.depth);
        room.fill(0.0);
        room[lead..lead + len].copy_from_slice(&now[..len]);
        room
    }
}

/// Index of the element under the tap of a window, unless it is padding.
fn place(a: &Axis<i64>, o: i64, tap: usize) -> Option<usize> {
    let p = o * a.stride + tap as i64 * a.dilation - a.begin;
    (0..a.input).contains(&p).then_some(p as usize)
}

/// A window: its image and coordinates.
#[derive(Clone, Copy, Default)]
struct At {
    image: usize,
    at: [i64; 3],
}

impl At {
    fn of(axes: &Spatial, row: usize) -> At {
        let [d, h, w] = axes.each_ref().map(|a| a.output as usize);
        let at = [row / (w * h) % d, row / w % h, row % w].map(|o| o as i64);
        At { image: row / (w * h * d), at }
    }
}

/// The windows from one on.
struct From<'a> {
    windows: &'a Windows<'a>,
    first: usize,
}

impl Left for From<'_> {
    fn pack(&self, rows: Range<usize>, _: usize, mr: usize, out: &mut [f32]) {
        let all = self.windows;
        let mut at = [At::default(); MAX_MR];
        rows.clone().zip(&mut at).for_each(|(r, at)| *at = At::of(all.axes, self.first + r));
        let len = all.run * all.depth;
        let mut room = vec![0f32; mr * len];
        let kernel = all.axes.each_ref().map(|a| a.kernel as usize);
        let per_row = kernel[2] / all.run;
        for (i, out) in out.chunks_exact_mut(mr * len).enumerate() {
            let tap = [i / per_row / kernel[1], i / per_row % kernel[1], i % per_row * all.run];
            let mut sources = [&all.zeros[..]; MAX_MR];
            let windows = at.iter().zip(room.chunks_exact_mut(len)).take(rows.len());
            sources.iter_mut().zip(windows).for_each(|(s, (at, room))| *s = all.under(at, tap, room));
            match mr {
                12 => interleave::<12>(&sources, out),
                6 => interleave::<6>(&sources, out),
                4 => interleave::<4>(&sources, out),
                _ => out.chunks_exact_mut(mr).enumerate().for_each(|(p, line)| {
                    line.iter_mut().zip(&sources).for_each(|(x, s)| *x = s[p]);
                }),
            }
        }
    }
}

/// Element by element, one of each source.
fn interleave<const MR: usize>(sources: &[&[f32]; MAX_MR], out: &mut [f32]) {
    let lines = out.as_chunks_mut::<MR>().0;
    let n = lines.len();
    let sources: [&[f32]; MR] = std::array::from_fn(|r| &sources[r][..n]);
    for (p, line) in lines.iter_mut().enumerate() {
        for r in 0..MR {
            line[r] = sources[r][p];
        }
    }
}

/// Every channel by itself: the channels of a window side by side.
fn depthwise(c: &Conv<'_>, y: &mut [f32]) {
    let taps = volume(&c.axes, |a| a.kernel);
    let mut weights = vec![0f32; taps * c.m];
    // One channel a group: each output channel has its taps side by side.
    for (o, w) in c.w.chunks_exact(taps).enumerate() {
        w.iter().enumerate().for_each(|(tap, &w)| weights[tap * c.m + o] = w);
    }
    let windows = Windows::new(c, 0);
    let [d, h, w] = &c.axes;
    let wide = w.output as usize;
    let points = Checkpoints::here();
    threads::chunks(y, wide * c.m, 1, |row, y| {
        points.pass();
        for (i, y) in y.chunks_exact_mut(c.m).enumerate() {
            let At { image, at } = At::of(&c.axes, row * wide + i);
            match c.bias {
                Some(b) => y.copy_from_slice(b),
                None => y.fill(0.0),
            }
            for ((kd, z), (kh, yy)) in d.taps(at[0]).flat_map(|z| h.taps(at[1]).map(move |y| (z, y))) {
                for (kw, xx) in w.taps(at[2]) {
                    let x = windows.at(image, [z as usize, yy as usize, xx as usize]);
                    let tap = ((kd * h.kernel + kh) * w.kernel + kw) as usize;
                    let w = &weights[tap * c.m..(tap + 1) * c.m];
                    y.iter_mut().zip(x.iter().zip(w)).for_each(|(y, (x, w))| *y += x * w);
                }
            }
        }
    });
}
