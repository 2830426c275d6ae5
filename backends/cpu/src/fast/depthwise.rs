//! Convolutions of floats whose channels are all alone, with channels last or second: sums of several windows are kept in registers
//! over all taps.

use super::plane::{Fold, Plane, Real, pad};
use super::pointwise::math::muladd;
use super::pointwise::tail::At;
use super::simd::vectorized;
use super::windows::{Conv, volume};
use crate::threads::{self, Parts};
use kiln_backend::stop::Checkpoints;
use kiln_ops::conv::window::Axis;

/// Channels, or windows of a row, whose sums are made at once.
const LANES: usize = 16;
/// Windows side by side that share loads of weights.
const BESIDE: usize = 4;
/// Products that a task makes at least.
const TASK: usize = 16 << 10;

/// Channels last: [N, windows.., M], with as many channels as x has.
pub fn last(c: &Conv<'_>, tail: Option<At<'_>>, y: &mut [f32]) {
    let taps = volume(&c.axes, |a| a.kernel);
    let mut weights = vec![0f32; taps * c.m];
    // One channel a group: each output channel has its taps side by side.
    for (tap, to) in weights.chunks_exact_mut(c.m).enumerate() {
        to.iter_mut().zip(c.w[tap..].iter().step_by(taps)).for_each(|(to, &w)| *to = w);
    }
    let [d, h, w] = &c.axes;
    let points = Checkpoints::here();
    let (width, high) = (w.input as usize * c.m, (d.output * h.output) as usize);
    let size = w.output as usize * c.m;
    let (count, parts) = (y.len() / size.max(1), Parts::new(y));
    threads::ranges(count, TASK.div_ceil(size * taps), |rows| {
        let mut room = tail.map(|t| t.room());
        let mut under = Vec::with_capacity((d.kernel * h.kernel) as usize);
        for row in rows {
            points.pass();
            let (image, at) = ((row / high) as i64, (row % high) as i64);
            under.clear();
            for (kd, z) in d.taps(at / h.output) {
                for (kh, line) in h.taps(at % h.output) {
                    let from = ((image * d.input + z) * h.input + line) as usize * width;
                    let tap = ((kd * h.kernel + kh) * w.kernel) as usize * c.m;
                    under.push((&c.x[from..from + width], &weights[tap..tap + w.kernel as usize * c.m]));
                }
            }
            // SAFETY: each row belongs to one range.
            let y = unsafe { parts.part(row * size, (row + 1) * size) };
            row_last(&under, w, c.bias, c.m, y);
            if let (Some(tail), Some(room)) = (tail, &mut room) {
                tail.apply(room, row * size, y);
            }
        }
    });
}

/// Windows all of whose taps along an axis are elements: from the first one to the one behind the last.
fn interior(a: &Axis<i64>) -> (usize, usize) {
    let reach = (a.kernel - 1) * a.dilation - a.begin;
    let first = ((a.begin + a.stride - 1).div_euclid(a.stride)).clamp(0, a.output);
    let end = match a.input - reach {
        left if left > 0 => ((left + a.stride - 1) / a.stride).clamp(first, a.output),
        _ => first,
    };
    (first as usize, end as usize)
}

vectorized! {
    /// A row of the output with channels last, from rows of x and their weights.
    fn row_last(under: &[(&[f32], &[f32])], w: &Axis<i64>, bias: Option<&[f32]>, m: usize, y: &mut [f32]) {
        let mut c = 0;
        while m - c >= LANES {
            columns::<LANES, FMA>(under, w, bias, (m, c), y);
            c += LANES;
        }
        while m - c >= 4 {
            columns::<4, FMA>(under, w, bias, (m, c), y);
            c += 4;
        }
        while c < m {
            columns::<1, FMA>(under, w, bias, (m, c), y);
            c += 1;
        }
    }
}

/// Some channels of a row.
#[inline(always)]
fn columns<const L: usize, const FMA: bool>(
    under: &[(&[f32], &[f32])],
    w: &Axis<i64>,
    bias: Option<&[f32]>,
    (m, c): (usize, usize),
    y: &mut [f32],
) {
    let mut initial = [0f32; L];
    if let Some(b) = bias {
        initial.copy_from_slice(&b[c..c + L]);
    }
    let (first, end) = interior(w);
    let mut o = 0;
    let all = w.output as usize;
    while o < all {
        if o >= first && o < end && first + BESIDE <= end {
            // The last ones are computed with some that are there already.
            let at = o.min(end - BESIDE);
            windows::<BESIDE, L, FMA>(under, w, (0, w.kernel as usize), &initial, (m, c, at), y);
            o = at + BESIDE;
            continue;
        }
        // Taps of this window that are elements; none is between others that are not.
        let start = o as i64 * w.stride - w.begin;
        let from = if start < 0 { (-start + w.dilation - 1) / w.dilation } else { 0 };
        let to = if start < w.input { (w.input - start + w.dilation - 1) / w.dilation } else { 0 };
        let (from, to) = (from.min(w.kernel), to.min(w.kernel));
        windows::<1, L, FMA>(under, w, (from as usize, to.max(from) as usize), &initial, (m, c, o), y);
        o += 1;
    }
}

/// Windows side by side whose taps `from..to` are elements.
#[inline(always)]
fn windows<const P: usize, const L: usize, const FMA: bool>(
    under: &[(&[f32], &[f32])],
    w: &Axis<i64>,
    (from, to): (usize, usize),
    initial: &[f32; L],
    (m, c, o): (usize, usize, usize),
    y: &mut [f32],
) {
    let mut sums = [*initial; P];
    let (stride, step) = (w.stride as usize * m, w.dilation as usize * m);
    let start = (o as i64 * w.stride + from as i64 * w.dilation - w.begin) as usize * m + c;
    for &(x, weights) in under {
        let mut at = start;
        for line in weights.chunks_exact(m).take(to).skip(from) {
            let Some(weight) = line[c..].first_chunk::<L>() else { continue };
            // All windows of the tap are checked at once: a check in the loop would keep the sums out of registers.
            let Some(x) = x.get(at..at + (P - 1) * stride + L) else { continue };
            // One loop a window: a loop over windows would keep the sums in memory.
            macro_rules! each {
                ($($p:literal)*) => {$(
                    if $p < P {
                        // SAFETY: so many elements from there on are inside of the slice.
                        let x: &[f32; L] = unsafe { &*x.as_ptr().add($p * stride).cast() };
                        for l in 0..L {
                            sums[$p][l] = muladd::<FMA>(x[l], weight[l], sums[$p][l]);
                        }
                    }
                )*};
            }
            each!(0 1 2 3);
            at += step;
        }
    }
    for (p, sums) in sums.iter().enumerate() {
        y[(o + p) * m + c..(o + p) * m + c + L].copy_from_slice(sums);
    }
}

/// Channels second: one plane after the other, with as many planes of the output for each one of x.
pub fn planes(c: &Conv<'_>, tail: Option<At<'_>>, y: &mut [f32]) {
    let windows = volume(&c.axes, |a| a.output);
    let (count, parts) = (y.len() / windows.max(1), Parts::new(y));
    let room = || tail.map(|t| t.room());
    each_plane(c, c.x, count, room, |room, i, write| {
        // SAFETY: each plane is taken once.
        let y = unsafe { parts.part(i * windows, (i + 1) * windows) };
        write(y);
        if let (Some(tail), Some(room)) = (tail, room) {
            tail.apply(room, i * windows, y);
        }
    });
}

/// Calls `take` with the number of each plane of the output, a function that writes it, and memory of a task. `room` makes that memory.
/// Elements of x are those given here, of any type.
pub fn each_plane<T: Real, R>(
    c: &Conv<'_>,
    x: &[T],
    count: usize,
    room: impl Fn() -> R + Sync,
    take: impl Fn(&mut R, usize, &dyn Fn(&mut [f32])) + Sync,
) {
    let (inputs, windows) = (volume(&c.axes, |a| a.input), volume(&c.axes, |a| a.output));
    let per_channel = c.m / c.channels.max(1);
    let points = Checkpoints::here();
    let plane = Plane::new(&c.axes);
    let taps = plane.taps.len();
    threads::ranges(count, TASK.div_ceil(windows * taps), |planes| {
        let mut room = room();
        let mut padded = vec![0f32; plane.size];
        let mut last = None;
        for i in planes {
            points.pass();
            let (image, o) = (i / c.m, i % c.m);
            let from = image * c.channels + o / per_channel;
            if last != Some(from) {
                pad(&x[from * inputs..(from + 1) * inputs], &plane, &mut padded);
                last = Some(from);
            }
            let weights = &c.w[o * taps..(o + 1) * taps];
            let initial = c.bias.map_or(0.0, |b| b[o]);
            take(&mut room, i, &|y| rows(&padded, &plane, weights, initial, y));
        }
    });
}

/// Weights of taps, and the number that sums begin with.
struct Weighted<'a>(&'a [f32], f32);

impl Fold<f32> for Weighted<'_> {
    #[inline(always)]
    fn start(&self) -> f32 {
        self.1
    }

    #[inline(always)]
    fn step<const FMA: bool>(&self, made: f32, x: f32, tap: usize) -> f32 {
        muladd::<FMA>(x, self.0[tap], made)
    }
}

vectorized! {
    /// All rows of the output of one plane.
    fn rows(x: &[f32], plane: &Plane<'_>, weights: &[f32], initial: f32, y: &mut [f32]) {
        plane.fold::<f32, Weighted<'_>, FMA>(x, &Weighted(&weights[..plane.taps.len()], initial), y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_inside_have_all_taps() {
        for (input, kernel, stride, dilation, begin, end) in [
            (9, 3, 1, 1, 1, 1),
            (9, 3, 2, 1, 1, 1),
            (7, 5, 3, 2, 4, 4),
            (2, 5, 1, 1, 4, 4),
            (5, 1, 1, 1, 0, 0),
            (4, 3, 1, 1, 5, 6),
        ] {
            let output = (input + begin + end - (kernel - 1) * dilation - 1) / stride + 1;
            let a = Axis { input, output, kernel, stride, dilation, begin, end };
            let whole =
                |o: i64| (0..kernel).all(|k| (0..input).contains(&(o * stride + k * dilation - begin)));
            let (first, after) = interior(&a);
            for o in 0..output {
                assert_eq!((first..after).contains(&(o as usize)), whole(o), "{o} of {a:?}");
            }
        }
    }
}
