//! `conv` of integers of 8 bits with channels second: rows of weights are multiplied with windows as columns, so that both x and the results
//! are read and written as they are stored.

use super::kept::{Kept, Panels};
use super::micro::{MAX_ROWS, Micro, Panel, Place, Start};
use super::micro_integer::{self, Four, Pair};
use super::pointwise::tail::Results;
use super::short;
use super::simd::vectorized;
use super::windows::{Spatial, volume};
use super::words::Narrow;
use crate::threads;
use bytemuck::Pod;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::conv::window::Axis;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of windows that a task packs at most.
const PACKED: usize = 128 << 10;
/// Windows that a task multiplies at least, where there are so many: results are made of whole rows of them.
const WIDE: usize = 256;
/// Multiplications of a task at least.
const TASK: usize = 256 << 10;

/// Sizes of a convolution and its sides.
pub struct Job<'a> {
    pub x: Narrow<'a>,
    pub w: Narrow<'a>,
    /// A number for each output channel.
    pub bias: Option<&'a [i32]>,
    pub axes: &'a Spatial,
    pub images: usize,
    pub groups: usize,
    /// Output channels and channels of x in a group.
    pub n: usize,
    pub depth: usize,
}

/// Neighbouring elements of a row of weights, or of lines of x, that are multiplied at once.
trait Group: Pod + Send + Sync {
    /// Elements of a group.
    const MANY: usize;
    /// Place of the rows of weights among what an operation keeps.
    const KEPT: usize;
    /// Bits of the elements of x that are turned: the sign, which adds 128 and leaves no sign.
    fn turned(x: Narrow<'_>) -> u8;
    /// Writes so many weights, from one on, zeros behind them, and returns their sum.
    fn row(w: Narrow<'_>, from: usize, count: usize, to: &mut [Self]) -> i32;
    /// Writes as many lines of x as a group has elements, the first ones of these, as groups.
    fn join(x: Narrow<'_>, lines: [&[u8]; 4], to: &mut [Self]);
}

impl Group for Four {
    const MANY: usize = 4;
    const KEPT: usize = 1;

    fn turned(x: Narrow<'_>) -> u8 {
        if x.is_signed() { 0x80 } else { 0 }
    }

    fn row(w: Narrow<'_>, from: usize, count: usize, to: &mut [Four]) -> i32 {
        let bytes: &mut [u8] = &mut to.as_flattened_mut()[..count];
        w.copy(from, bytes);
        bytes.iter().map(|&w| i32::from(w as i8)).sum()
    }

    fn join(x: Narrow<'_>, lines: [&[u8]; 4], to: &mut [Four]) {
        fours(lines, Four::turned(x), to);
    }
}

impl Group for Pair {
    const MANY: usize = 2;
    const KEPT: usize = 0;

    fn turned(_: Narrow<'_>) -> u8 {
        0
    }

    fn row(w: Narrow<'_>, from: usize, count: usize, to: &mut [Pair]) -> i32 {
        let words: &mut [i16] = &mut to.as_flattened_mut()[..count];
        w.widen(from, words);
        words.iter().map(|&w| i32::from(w)).sum()
    }

    fn join(x: Narrow<'_>, [a, b, ..]: [&[u8]; 4], to: &mut [Pair]) {
        match x.is_signed() {
            true => signed_pairs(bytemuck::cast_slice(a), bytemuck::cast_slice(b), to),
            false => pairs(a, b, to),
        }
    }
}

/// Rows of weights in groups, and behind them the sums of the rows.
struct Weights {
    all: Arc<Panels>,
    rows: usize,
    groups: usize,
}

impl Weights {
    fn new<T: Group>(job: &Job<'_>, k: usize, kept: Option<&Kept>) -> Result<Weights, BackendError> {
        let (rows, groups) = (job.n * job.groups, k.div_ceil(T::MANY));
        let all = Kept::of(kept.map(|kept| (kept, T::KEPT)), rows * (groups + 1), |to: &mut [T]| {
            let (to, sums) = to.split_at_mut(rows * groups);
            for (row, (to, sum)) in to.chunks_exact_mut(groups).zip(sums).enumerate() {
                *sum = bytemuck::cast(T::row(job.w, row * k, k, to));
            }
        })?;
        Ok(Weights { all, rows, groups })
    }

    fn row<T: Group>(&self, row: usize) -> &[T] {
        &self.all.data()[row * self.groups..(row + 1) * self.groups]
    }

    fn sum(&self, row: usize) -> i32 {
        self.all.data::<i32>()[self.rows * self.groups + row]
    }
}

/// Whether an operation keeps its weights for these kernels, so that it need not read them again.
pub fn keeps(kept: &Kept) -> bool {
    [Four::KEPT, Pair::KEPT].into_iter().any(|i| kept.get(i).is_some())
}

/// Whether x may be multiplied here.
pub fn takes(x: Narrow<'_>) -> bool {
    !matches!(x, Narrow::Words(_))
}

impl Job<'_> {
    /// Length of the sums.
    fn k(&self) -> usize {
        self.depth * volume(self.axes, |a| a.kernel)
    }

    /// The kernels of bytes, if the processor has some that are exact with these weights.
    fn bytes(&self, kept: Option<&Kept>) -> Option<Micro<Four, i32>> {
        let k = self.k();
        let micro = micro_integer::columns_of_bytes(k)?;
        let there = |i: usize| kept.is_some_and(|kept| kept.get(i).is_some());
        // Whether weights are small is asked once.
        let small = || (0..self.n * self.groups).all(|row| is_small(self.w, row * k..(row + 1) * k));
        let exact = || self.w.is_signed() && (!micro_integer::saturates() || small());
        (there(Four::KEPT) || !there(Pair::KEPT) && exact()).then_some(micro)
    }
}

/// Whether two neighbouring products with bytes have a sum of 16 bits.
fn is_small(w: Narrow<'_>, row: Range<usize>) -> bool {
    let end = row.end;
    let at = |i: usize| if i < end { w.at(i).unsigned_abs() } else { 0 };
    row.step_by(2).all(|i| at(i) + at(i + 1) <= 128)
}

/// Computes a convolution of x that is taken: by bytes where those are exact, else by words.
pub fn run(job: &Job<'_>, kept: Option<&Kept>, to: &Results<'_>) -> Result<(), BackendError> {
    match job.bytes(kept) {
        Some(micro) => multiply(job, &micro, kept, to),
        None => multiply(job, &micro_integer::words(), kept, to),
    }
}

fn multiply<T: Group>(
    job: &Job<'_>,
    micro: &Micro<T, i32>,
    kept: Option<&Kept>,
    to: &Results<'_>,
) -> Result<(), BackendError> {
    let (windows, taps, k) = (volume(job.axes, |a| a.output), volume(job.axes, |a| a.kernel), job.k());
    let weights = Weights::new::<T>(job, k, kept)?;
    // A sum begins with the bias, less what the turned signs add to it.
    let more = i32::from(T::turned(job.x));
    let start = |row: usize| job.bias.map_or(0, |b| b[row]).wrapping_sub(more.wrapping_mul(weights.sum(row)));
    let starts: Vec<i32> = (0..weights.rows).map(start).collect();
    let (nr, products) = (micro.nr, job.images * job.groups);
    let wanted = (4 * threads::count()).min((products * windows * k * job.n).div_ceil(TASK)).max(1);
    let most = (PACKED / (4 * weights.groups)).max(nr);
    let wide = windows.div_ceil(wanted.div_ceil(products)).max(WIDE.min(most)).min(windows).min(most);
    let wide = wide.next_multiple_of(nr);
    let across = windows.div_ceil(wide);
    // Few windows divide the rows as well.
    let high = micro.strip(job.n);
    let down = wanted.div_ceil(products * across).clamp(1, job.n.div_ceil(high));
    let rows = job.n.div_ceil(down).next_multiple_of(high);
    let down = job.n.div_ceil(rows);
    let points = Checkpoints::here();
    threads::each(products * across * down, |task| {
        let (product, across_at, down_at) = (task / down / across, task / down % across, task % down);
        let (image, group) = (product / job.groups, product % job.groups);
        let cols = across_at * wide..windows.min((across_at + 1) * wide);
        let lines =
            Lines { x: job.x, axes: job.axes, first: (image * job.groups + group) * job.depth, taps, k };
        let panels: Vec<T> = lines.pack(&cols, nr);
        let width = cols.len().next_multiple_of((nr / 2).max(1));
        let mut sums = vec![0i32; high * width];
        let mut room = to.room();
        for row in (down_at * rows..job.n.min((down_at + 1) * rows)).step_by(high) {
            points.pass();
            let count = high.min(job.n - row);
            let first = group * job.n + row;
            let mut left = [&[][..]; MAX_ROWS];
            left.iter_mut().take(count).enumerate().for_each(|(i, to)| *to = weights.row(first + i));
            for (at, data) in (0..width).step_by(nr).zip(panels.chunks_exact(nr * weights.groups)) {
                let panel = Panel { data, pitch: nr, depth: weights.groups };
                let now = nr.min(width - at);
                let tile = &mut sums[at..(count - 1) * width + at + now];
                let place = Place { first: tile.as_mut_ptr(), stride: width };
                // SAFETY: the slice ends with the last element of the tile.
                unsafe {
                    micro.tile((count, now), &left, panel, Start::Rows(&starts[first..first + count]), place)
                };
            }
            for (i, sums) in sums.chunks_exact(width).take(count).enumerate() {
                let at = (image * weights.rows + first + i) * windows + cols.start;
                // SAFETY: each row of these windows belongs to one task.
                unsafe { to.write(at, &sums[..cols.len()], &mut room) };
            }
        }
    });
    Ok(())
}

/// Neighbouring windows of a row.
struct Stretch {
    /// Number of the first one among those of a task, and of the one behind the last.
    windows: Range<usize>,
    /// Place of the first tap of the first one in a plane of x, along each axis. It may be padding.
    at: [i64; 3],
}

/// The stretches of some windows.
fn stretches(axes: &Spatial, cols: &Range<usize>) -> Vec<Stretch> {
    let [_, h, w] = axes;
    let (high, wide) = (h.output as usize, w.output as usize);
    let mut all = Vec::with_capacity(cols.len() / wide + 2);
    let mut from = cols.start;
    while from < cols.end {
        let end = cols.end.min((from / wide + 1) * wide);
        let window = [from / wide / high, from / wide % high, from % wide];
        let at = [0, 1, 2].map(|i| window[i] as i64 * axes[i].stride - axes[i].begin);
        all.push(Stretch { windows: from - cols.start..end - cols.start, at });
        from = end;
    }
    all
}

/// The elements under the windows of a group of an image: a line for each channel and tap, an element for each window.
struct Lines<'a> {
    x: Narrow<'a>,
    axes: &'a Spatial,
    /// The first plane of x.
    first: usize,
    taps: usize,
    k: usize,
}

impl Lines<'_> {
    /// Panels of `nr` windows, as many lines at a time as a group has elements.
    fn pack<T: Group>(&self, cols: &Range<usize>, nr: usize) -> Vec<T> {
        let (groups, wide) = (self.k.div_ceil(T::MANY), cols.len().next_multiple_of(nr));
        let bytes = self.x.bytes();
        let plane = volume(self.axes, |a| a.input);
        let single = |a: &Axis<i64>| (a.kernel, a.stride, a.begin) == (1, 1, 0) && a.input == a.output;
        let single = self.axes.iter().all(single);
        let stretches = if single { Vec::new() } else { stretches(self.axes, cols) };
        let mut all = vec![T::zeroed(); groups * wide];
        let mut room = vec![0; T::MANY * wide];
        for group in 0..groups {
            for (i, line) in room.chunks_exact_mut(wide).enumerate() {
                let (k, line) = (T::MANY * group + i, &mut line[..cols.len()]);
                let from = (self.first + k / self.taps) * plane;
                match k < self.k {
                    true if single => line.copy_from_slice(&bytes[from + cols.start..from + cols.end]),
                    true => self.line(&bytes[from..from + plane], k % self.taps, &stretches, line),
                    // Weights are 0 there.
                    false => {}
                }
            }
            let mut lines = room.chunks_exact(wide);
            let mut next = || lines.next().unwrap_or_default();
            let lines = [next(), next(), next(), next()];
            for (i, to) in all[group * nr..].chunks_mut(groups * nr).enumerate() {
                let part = lines.map(|l| l.get(i * nr..(i + 1) * nr).unwrap_or_default());
                T::join(self.x, part, &mut to[..nr]);
            }
        }
        all
    }

    /// The elements under one tap of windows, which are 0 where they are padding.
    fn line(&self, plane: &[u8], tap: usize, stretches: &[Stretch], to: &mut [u8]) {
        let [d, h, w] = self.axes;
        let tap = tap as i64;
        let tap = [tap / w.kernel / h.kernel, tap / w.kernel % h.kernel, tap % w.kernel];
        let away = [0, 1, 2].map(|i| tap[i] * self.axes[i].dilation);
        for stretch in stretches {
            let to = &mut to[stretch.windows.clone()];
            let [z, y, x] = [0, 1, 2].map(|i| stretch.at[i] + away[i]);
            if !(0..d.input).contains(&z) || !(0..h.input).contains(&y) {
                to.fill(0);
                continue;
            }
            let row = &plane[((z * h.input + y) * w.input) as usize..][..w.input as usize];
            let last = x + (to.len() as i64 - 1) * w.stride;
            if x >= 0 && last < w.input {
                apart(&row[x as usize..], w.stride, to);
                continue;
            }
            // Windows in front of the row, and behind its end.
            let before =
                |place: i64| ((place - x + w.stride - 1).div_euclid(w.stride)).clamp(0, to.len() as i64);
            let (low, end) = (before(0) as usize, before(w.input) as usize);
            to[..low].fill(0);
            to[end..].fill(0);
            if low < end {
                apart(&row[(x + low as i64 * w.stride) as usize..], w.stride, &mut to[low..end]);
            }
        }
    }
}

/// Copies elements, some apart.
#[inline(always)]
fn apart(from: &[u8], stride: i64, to: &mut [u8]) {
    match (stride, to.len()) {
        (1, 4..8) => short::copy::<u8, 4>(from, to),
        (1, 8..16) => short::copy::<u8, 8>(from, to),
        (1, _) => short::copy::<u8, 16>(from, to),
        (2, _) => to.iter_mut().zip(from.iter().step_by(2)).for_each(|(to, x)| *to = *x),
        _ => to.iter_mut().zip(from.iter().step_by(stride as usize)).for_each(|(to, x)| *to = *x),
    }
}

vectorized! {
    /// Writes four lines as groups of four, some bits turned.
    fn fours(lines: [&[u8]; 4], turn: u8, to: &mut [Four]) {
        let [a, b, c, d] = lines;
        for ((((to, a), b), c), d) in to.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *to = [a ^ turn, b ^ turn, c ^ turn, d ^ turn];
        }
    }
}

vectorized! {
    /// Writes two lines of bytes without sign as pairs of words.
    fn pairs(a: &[u8], b: &[u8], to: &mut [Pair]) {
        for ((to, &a), &b) in to.iter_mut().zip(a).zip(b) {
            *to = [i16::from(a), i16::from(b)];
        }
    }
}

vectorized! {
    /// Writes two lines of bytes with sign as pairs of words.
    fn signed_pairs(a: &[i8], b: &[i8], to: &mut [Pair]) {
        for ((to, &a), &b) in to.iter_mut().zip(a).zip(b) {
            *to = [i16::from(a), i16::from(b)];
        }
    }
}
