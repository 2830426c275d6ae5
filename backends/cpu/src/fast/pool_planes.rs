//! Pools with channels second, plane by plane: the rows under a window are joined first, then their elements side by side.

use super::short;
use super::simd::vectorized;
use super::windows::Spatial;
use crate::threads::{self, Parts};
use kiln_backend::stop::Checkpoints;
use kiln_ops::conv::window::Axis;

/// Elements that are joined at once at most.
const WIDE: usize = 16;
/// Elements of lines that are in the first-level cache together.
const LINES: usize = 4 << 10;
/// Taps that one task visits at least.
const TASK: usize = 16 << 10;

/// A number made of elements in any order.
pub trait Join<T: Copy>: Copy + Sync {
    /// The number of no elements.
    fn start(self) -> T;
    /// The number of the elements of both.
    fn join(self, a: T, b: T) -> T;
}

/// Places in a plane and in a line of it that has the row's padding around it.
pub struct Rows<'a> {
    w: &'a Axis<i64>,
    /// Places where the rows of x under windows begin, those of each row of the output one after the other.
    under: Vec<usize>,
    /// Ends of the rows of each row of the output.
    ends: Vec<usize>,
    /// The first element of a row that the line has, their number, and the place of the first.
    first: usize,
    len: usize,
    lead: usize,
    /// Elements of the line, with room behind.
    line: usize,
    inputs: usize,
}

impl<'a> Rows<'a> {
    pub fn new(axes: &'a Spatial) -> Rows<'a> {
        let [d, h, w] = axes;
        let (mut under, mut ends) = (Vec::new(), Vec::new());
        for (z, y) in (0..d.output).flat_map(|z| (0..h.output).map(move |y| (z, y))) {
            for (_, z) in d.taps(z) {
                under.extend(h.taps(y).map(|(_, y)| ((z * h.input + y) * w.input) as usize));
            }
            ends.push(under.len());
        }
        let reach = (w.output - 1) * w.stride + (w.kernel - 1) * w.dilation + 1;
        let first = (-w.begin).clamp(0, w.input);
        let end = (reach - w.begin).clamp(first, w.input);
        Rows {
            w,
            under,
            ends,
            first: first as usize,
            len: (end - first) as usize,
            lead: (first + w.begin).clamp(0, reach) as usize,
            line: reach as usize + WIDE * w.stride as usize,
            inputs: (d.input * h.input * w.input) as usize,
        }
    }

    /// Elements of a plane of the output.
    pub fn windows(&self) -> usize {
        self.ends.len() * self.w.output as usize
    }

    /// Writes the numbers of all planes, and calls `done` with each.
    pub fn planes<T: Copy + Send + Sync, J: Join<T>>(
        &self,
        join: J,
        x: &[T],
        y: &mut [T],
        done: impl Fn(&mut [T]) + Sync,
    ) {
        let windows = self.windows();
        let taps = self.under.len() * self.w.input as usize + windows * self.w.kernel as usize;
        let (parts, points) = (Parts::new(y), Checkpoints::here());
        threads::ranges(x.len() / self.inputs, TASK.div_ceil(taps.max(1)), |planes| {
            let mut lines = vec![join.start(); self.line * (LINES / self.line).clamp(1, self.ends.len())];
            for i in planes {
                points.pass();
                // SAFETY: each plane belongs to one range.
                let y = unsafe { parts.part(i * windows, (i + 1) * windows) };
                plane(join, &x[i * self.inputs..(i + 1) * self.inputs], self, &mut lines, y);
                done(y);
            }
        });
    }
}

/// Calls a function with the width of the vectors that a row of so many elements is made of.
macro_rules! by_width {
    ($n:expr, $f:ident::<$($t:ident),*>($($a:expr),*)) => {
        match $n {
            WIDE.. => $f::<$($t,)* WIDE>($($a),*),
            8.. => $f::<$($t,)* 8>($($a),*),
            4.. => $f::<$($t,)* 4>($($a),*),
            _ => $f::<$($t,)* 1>($($a),*),
        }
    };
}

vectorized! {
    /// The numbers of all windows of a plane. The lines hold the start where they are padding.
    fn plane<T: Copy, J: Join<T>>(join: J, x: &[T], rows: &Rows<'_>, lines: &mut [T], y: &mut [T]) {
        let width = rows.w.output as usize;
        let some = lines.len() / rows.line;
        let mut from = 0;
        // Vectors that lie across those that were just written wait for them: several lines are made before the first is read.
        for (y, ends) in y.chunks_mut(some * width).zip(rows.ends.chunks(some)) {
            for (&end, line) in ends.iter().zip(lines.chunks_exact_mut(rows.line)) {
                let under = &rows.under[from..end];
                from = end;
                let now = &mut line[rows.lead..rows.lead + rows.len];
                by_width!(now.len(), upright::<T, J>(join, x, (under, rows.first), now));
            }
            for (y, line) in y.chunks_exact_mut(width).zip(lines.chunks_exact(rows.line)) {
                match rows.w.stride {
                    1 => by_width!(y.len(), along::<T, J>(join, line, rows.w, y)),
                    2 => by_width!(y.len(), by_twos::<T, J>(join, line, rows.w, y)),
                    _ => by_width!(y.len(), apart::<T, J>(join, line, rows.w, y)),
                }
            }
        }
    }
}

/// Joins rows of x, from their element `first` on, `L` elements at a time; the last ones overlap with those before them.
#[inline(always)]
fn upright<T: Copy, J: Join<T>, const L: usize>(
    join: J,
    x: &[T],
    (under, first): (&[usize], usize),
    line: &mut [T],
) {
    let mut next = 0;
    while next < line.len() {
        let at = next.min(line.len() - L);
        next = at + L;
        let mut made = [join.start(); L];
        for row in under {
            let Some(x) = x[row + first + at..].first_chunk::<L>() else { continue };
            for l in 0..L {
                made[l] = join.join(made[l], x[l]);
            }
        }
        line[at..next].copy_from_slice(&made);
    }
}

/// Joins neighbours of a line for windows that are one element apart.
#[inline(always)]
fn along<T: Copy, J: Join<T>, const L: usize>(join: J, line: &[T], w: &Axis<i64>, y: &mut [T]) {
    let mut next = 0;
    while next < y.len() {
        let at = next.min(y.len() - L);
        next = at + L;
        let mut made = [join.start(); L];
        for tap in 0..w.kernel as usize {
            let Some(x) = line[at + tap * w.dilation as usize..].first_chunk::<L>() else { continue };
            for l in 0..L {
                made[l] = join.join(made[l], x[l]);
            }
        }
        y[at..next].copy_from_slice(&made);
    }
}

/// As [`along`], for windows that are two elements apart.
#[inline(always)]
fn by_twos<T: Copy, J: Join<T>, const L: usize>(join: J, line: &[T], w: &Axis<i64>, y: &mut [T]) {
    let mut next = 0;
    while next < y.len() {
        let at = next.min(y.len() - L);
        next = at + L;
        let mut made = [join.start(); L];
        for tap in 0..w.kernel as usize {
            let pairs = line[2 * at + tap * w.dilation as usize..].as_chunks::<2>().0;
            let Some(x) = pairs.first_chunk::<L>() else { continue };
            for l in 0..L {
                made[l] = join.join(made[l], x[l][0]);
            }
        }
        y[at..next].copy_from_slice(&made);
    }
}

/// As [`along`], for windows that are farther apart.
#[inline(always)]
fn apart<T: Copy, J: Join<T>, const L: usize>(join: J, line: &[T], w: &Axis<i64>, y: &mut [T]) {
    let stride = w.stride as usize;
    let mut next = 0;
    while next < y.len() {
        let at = next.min(y.len() - L);
        next = at + L;
        let mut made = [join.start(); L];
        for tap in 0..w.kernel as usize {
            let x = &line[at * stride + tap * w.dilation as usize..][..(L - 1) * stride + 1];
            for l in 0..L {
                made[l] = join.join(made[l], x[l * stride]);
            }
        }
        y[at..next].copy_from_slice(&made);
    }
}

vectorized! {
    /// Sums by the numbers of their elements.
    pub fn divide(counts: &[f32], y: &mut [f32]) {
        let (blocks, rest) = y.as_chunks_mut::<{ short::BLOCK }>();
        let (divisors, last) = counts.as_chunks::<{ short::BLOCK }>();
        for (y, n) in blocks.iter_mut().zip(divisors) {
            let sums = short::old(y);
            for l in 0..short::BLOCK {
                y[l] = sums[l] / n[l];
            }
        }
        rest.iter_mut().zip(last).for_each(|(y, n)| *y /= n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Greatest;
    impl Join<i64> for Greatest {
        fn start(self) -> i64 {
            i64::MIN
        }
        fn join(self, a: i64, b: i64) -> i64 {
            a.max(b)
        }
    }

    #[test]
    fn windows_of_any_size_are_joined_from_their_elements() {
        for input in [1, 3, 5, 9, 20, 41] {
            for (kernel, stride, dilation, begin, end) in [
                (1, 1, 1, 0, 0),
                (3, 1, 1, 1, 1),
                (3, 2, 1, 0, 1),
                (2, 3, 2, 1, 1),
                (3, 2, 2, 2, 2),
                (2, 1, 1, -1, 1),
            ] {
                let room: i64 = input + begin + end - (kernel - 1) * dilation - 1;
                if room < 0 {
                    continue;
                }
                let a = Axis { input, output: room / stride + 1, kernel, stride, dilation, begin, end };
                let one = Axis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, begin: 0, end: 0 };
                let axes = [one, a.clone(), a.clone()];
                let x: Vec<i64> = (0..2 * input * input).map(|i| i * 7919 % 1009).collect();
                let mut y = vec![0; (2 * a.output * a.output) as usize];
                Rows::new(&axes).planes(Greatest, &x, &mut y, |_| {});
                let top = |i: i64| {
                    let (plane, row, o) = (i / (a.output * a.output), i / a.output % a.output, i % a.output);
                    let at = |y: i64, x: i64| ((plane * input + y) * input + x) as usize;
                    let all = a.taps(row).flat_map(|(_, y)| a.taps(o).map(move |(_, x)| (y, x)));
                    all.map(|(y, c)| x[at(y, c)]).max().unwrap_or(i64::MIN)
                };
                assert_eq!(y, (0..y.len() as i64).map(top).collect::<Vec<_>>(), "{a:?}");
            }
        }
    }
}
