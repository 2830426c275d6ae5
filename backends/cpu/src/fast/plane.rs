//! Planes with their padding around them, so that all taps of all windows are elements, and those of neighbouring windows are neighbours:
//! every second column comes first where windows are two apart, and so on.

use super::simd::vectorized;
use super::windows::Spatial;
use kiln_ops::conv::window::Axis;

/// Neighbouring windows whose results are made at once, in rows of so many or more, and in others.
const WIDE: usize = 16;
const NARROW: usize = 8;

/// Places in a plane that has its padding around it, and room behind, so that all taps of [`WIDE`] neighbouring windows are elements.
pub struct Plane<'a> {
    pub axes: &'a Spatial,
    /// Elements of each dimension with padding, and of the whole.
    sizes: [usize; 3],
    pub size: usize,
    /// Places of taps from the first element of a window on, and of the first windows of all rows.
    pub taps: Vec<usize>,
    rows: Vec<usize>,
    /// The farthest tap.
    reach: usize,
}

/// An element that planes of floats are made of.
pub trait Real: Copy + Send + Sync {
    /// The element as a float, exact up to 2²⁴.
    fn real(self) -> f32;
}

macro_rules! real {
    ($($t:ty),*) => {$(
        impl Real for $t {
            #[inline(always)]
            fn real(self) -> f32 {
                self as f32
            }
        }
    )*};
}
real!(f32, i8, u8, i32);

/// A number made of the elements under a window, tap by tap.
pub trait Fold<T> {
    /// The number before the first element.
    fn start(&self) -> T;
    /// The number with one element more, that of a tap.
    fn step<const FMA: bool>(&self, made: T, x: T, tap: usize) -> T;
}

impl<'a> Plane<'a> {
    /// The places for windows along these axes.
    pub fn new(axes: &'a Spatial) -> Plane<'a> {
        let mut sizes =
            axes.each_ref().map(|a| ((a.output - 1) * a.stride + (a.kernel - 1) * a.dilation + 1) as usize);
        sizes[2] = sizes[2].next_multiple_of(axes[2].stride as usize);
        let [_, high, wide] = sizes;
        let along = |n: i64, step: i64| (0..n).map(move |i| (i * step) as usize).collect::<Vec<_>>();
        let places = |n: fn(&Axis<i64>) -> i64, step: fn(&Axis<i64>) -> i64, last: &[usize]| {
            let [d, h, _] = axes.each_ref().map(|a| along(n(a), step(a)));
            let rows = d.iter().flat_map(|z| h.iter().map(move |y| (z * high + y) * wide));
            rows.flat_map(|row| last.iter().map(move |x| row + x)).collect::<Vec<_>>()
        };
        let w = &axes[2];
        let (step, part) = (w.stride as usize, wide / w.stride as usize);
        let columns: Vec<usize> =
            along(w.kernel, w.dilation).into_iter().map(|x| x % step * part + x / step).collect();
        let taps = places(|a| a.kernel, |a| a.dilation, &columns);
        let rows = places(|a| a.output, |a| a.stride, &[0]);
        let size = sizes.iter().product::<usize>() + WIDE;
        let reach = taps.iter().copied().max().unwrap_or_default();
        Plane { axes, sizes, size, taps, rows, reach }
    }

    /// Writes the numbers of all windows of a plane with its padding. Vectors and blocks of rows are whole: the last ones overlap with
    /// those before them.
    #[inline(always)]
    pub fn fold<T: Copy, F: Fold<T>, const FMA: bool>(&self, x: &[T], f: &F, y: &mut [T]) {
        let width = self.axes[2].output as usize;
        let high = self.rows.len();
        let block = if width < WIDE && high >= 8 { 8 } else { 4.min(high) };
        let mut row = 0;
        while row < high {
            let at = if high < 4 { row } else { row.min(high - block) };
            let y = &mut y[at * width..];
            match (width >= WIDE, high) {
                (true, 4..) => self.block::<T, F, 4, WIDE, FMA>(x, at, f, &mut y[..4 * width]),
                (true, _) => self.block::<T, F, 1, WIDE, FMA>(x, at, f, &mut y[..width]),
                (false, 8..) => self.block::<T, F, 8, NARROW, FMA>(x, at, f, &mut y[..8 * width]),
                (false, 4..) => self.block::<T, F, 4, NARROW, FMA>(x, at, f, &mut y[..4 * width]),
                (false, _) => self.block::<T, F, 1, NARROW, FMA>(x, at, f, &mut y[..width]),
            }
            row = at + if high < 4 { 1 } else { block };
        }
    }

    /// Writes the numbers of `R` rows of windows, from one on.
    #[inline(always)]
    fn block<T: Copy, F: Fold<T>, const R: usize, const L: usize, const FMA: bool>(
        &self,
        x: &[T],
        row: usize,
        f: &F,
        y: &mut [T],
    ) {
        let width = self.axes[2].output as usize;
        let Some(rows) = self.rows[row..].first_chunk::<R>() else { return };
        let far = rows.iter().copied().max().unwrap_or_default() + self.reach;
        let mut next = 0;
        while next < width {
            let o = next.min(width.saturating_sub(L));
            next = o + L;
            assert!(far + o + L <= x.len(), "a plane has room behind it");
            let mut made = [[f.start(); L]; R];
            for (tap, &place) in self.taps.iter().enumerate() {
                for r in 0..R {
                    // SAFETY: no row and tap lie farther than those that are checked above.
                    let x: &[T; L] = unsafe { &*x.as_ptr().add(rows[r] + place + o).cast() };
                    for l in 0..L {
                        made[r][l] = f.step::<FMA>(made[r][l], x[l], tap);
                    }
                }
            }
            for r in 0..R {
                let to = &mut y[r * width + o..];
                // Elements behind a short row are those of the next, which is written later.
                match to.first_chunk_mut::<L>() {
                    Some(to) => *to = made[r],
                    None => to.iter_mut().zip(made[r]).for_each(|(to, x)| *to = x),
                }
            }
        }
    }
}

/// Writes elements as floats, `N` at a time; the last ones overlap with those before them.
#[inline(always)]
fn copy<T: Real, const N: usize>(from: &[T], to: &mut [f32]) {
    let mut next = 0;
    while next < to.len() {
        let at = next.min(to.len() - N);
        next = at + N;
        if let (Some(from), Some(to)) = (from[at..].first_chunk::<N>(), to[at..].first_chunk_mut::<N>()) {
            for l in 0..N {
                to[l] = from[l].real();
            }
        }
    }
}

/// Writes the first of each pair, as [`copy`] does.
#[inline(always)]
fn firsts<T: Real, const N: usize>(pairs: &[[T; 2]], to: &mut [f32]) {
    let mut next = 0;
    while next < to.len() {
        let at = next.min(to.len() - N);
        next = at + N;
        if let (Some(pairs), Some(to)) = (pairs[at..].first_chunk::<N>(), to[at..].first_chunk_mut::<N>()) {
            for l in 0..N {
                to[l] = pairs[l][0].real();
            }
        }
    }
}

/// Writes elements of a row from its place `at` on, in a row where every `step`-th element comes first, then those after them.
#[inline(always)]
fn apart<T: Real>(line: &[T], to: &mut [f32], at: usize, step: usize) {
    let part = to.len() / step;
    for phase in 0..step {
        // The first element of the phase.
        let skipped = (phase + step - at % step) % step;
        let from = line.get(skipped..).unwrap_or_default();
        let to = &mut to[phase * part + (at + skipped) / step..];
        match step {
            1 => {
                let n = from.len().min(to.len());
                let (from, to) = (&from[..n], &mut to[..n]);
                match n {
                    WIDE.. => copy::<T, WIDE>(from, to),
                    NARROW.. => copy::<T, NARROW>(from, to),
                    _ => copy::<T, 1>(from, to),
                }
            }
            2 => {
                let (pairs, last) = from.as_chunks::<2>();
                let n = pairs.len().min(to.len());
                let (pairs, whole) = (&pairs[..n], &mut to[..n]);
                match n {
                    WIDE.. => firsts::<T, WIDE>(pairs, whole),
                    NARROW.. => firsts::<T, NARROW>(pairs, whole),
                    _ => firsts::<T, 1>(pairs, whole),
                }
                if let ([x], Some(to)) = (last, to.get_mut(n)) {
                    *to = x.real();
                }
            }
            _ => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, x)| *to = x.real()),
        }
    }
}

vectorized! {
    /// Writes elements of a row from its place `at` on, in a row where every `step`-th element comes first, then those after them.
    pub fn spread(line: &[f32], to: &mut [f32], at: usize, step: usize) {
        apart(line, to, at, step);
    }
}

vectorized! {
    /// Writes a plane of x into one with padding; what is padding stays as it is.
    pub fn pad<T: Real>(x: &[T], plane: &Plane<'_>, to: &mut [f32]) {
        let [d, h, w] = plane.axes;
        let [deep, high, wide] = plane.sizes;
        // Columns of x that lie inside.
        let first = (-w.begin).clamp(0, w.input);
        let end = (wide as i64 - w.begin).clamp(first, w.input);
        let at = (first + w.begin) as usize;
        let inside = |a: &Axis<i64>, i: usize| Some(i as i64 - a.begin).filter(|p| (0..a.input).contains(p));
        for (z, to) in to.chunks_exact_mut(high * wide).take(deep).enumerate() {
            let Some(z) = inside(d, z) else { continue };
            for (y, to) in to.chunks_exact_mut(wide).enumerate() {
                let Some(y) = inside(h, y) else { continue };
                let line = &x[((z * h.input + y) * w.input) as usize..][..w.input as usize];
                let line = &line[first as usize..end as usize];
                // Steps that are known need no divisions.
                match w.stride {
                    1 => apart(line, to, at, 1),
                    2 => apart(line, to, at, 2),
                    step => apart(line, to, at, step as usize),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_of_windows_are_elements_or_padding() {
        let one = || Axis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, begin: 0, end: 0 };
        for (input, kernel, stride, dilation, begin, end) in [
            (9, 3, 1, 1, 1, 1),
            (9, 3, 2, 1, 1, 0),
            (7, 3, 3, 2, 4, 4),
            (8, 2, 2, 1, 0, 0),
            (9, 3, 1, 1, -1, 0),
            (37, 3, 1, 1, 1, 1),
            (45, 5, 2, 1, 2, 2),
            (50, 3, 3, 2, 1, 4),
        ] {
            let output = (input + begin + end - (kernel - 1) * dilation - 1) / stride + 1;
            let a = Axis { input, output, kernel, stride, dilation, begin, end };
            let axes = [one(), a.clone(), a.clone()];
            let plane = Plane::new(&axes);
            let x: Vec<i32> = (0..(input * input) as i32).collect();
            let mut padded = vec![-1.0; plane.size];
            pad(&x, &plane, &mut padded);
            for (row, o) in (0..output).flat_map(|r| (0..output).map(move |o| (r, o))) {
                let first = plane.rows[row as usize] + o as usize;
                let found: Vec<i64> = plane.taps.iter().map(|t| padded[first + t] as i64).collect();
                let place = |o: i64, k: i64| {
                    Some(o * stride + k * dilation - begin).filter(|p| (0..input).contains(p))
                };
                let taps = (0..kernel).flat_map(|kh| (0..kernel).map(move |kw| (kh, kw)));
                let at = |(kh, kw)| place(row, kh).zip(place(o, kw)).map_or(-1, |(y, x)| y * input + x);
                assert_eq!(found, taps.map(at).collect::<Vec<_>>(), "row {row}, window {o} of {a:?}");
            }
        }
    }
}
