//! `pool`: the rows of a window are combined side by side first, then the elements of the combined row that windows hold.

use super::element::{has, with_element};
use super::pool_planes::{Join, Rows, divide};
use super::short;
use super::simd::vectorized;
use super::windows::{Spatial, spatial};
use super::{NodeCx, Types};
use crate::threads::{self, Parts};
use crate::value::Out;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::conv::window::{self, Axis};
use kiln_ops::layout::Layout;
use kiln_ops::pool::{PoolOp, geometry};
use kiln_ops::util::is_real;

/// Taps that one task visits at least.
const TASK: usize = 16 << 10;

/// Whether the kernel covers a node: floats, or the greatest of integers.
pub fn covers(t: &Types<'_>) -> bool {
    t.all_real() || PoolOp::of(t.node.op.attrs()) == PoolOp::Max && t.input(0).is_some_and(|x| has(x.dtype))
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let op = PoolOp::of(attrs);
    let shape = cx.shape(0).to_vec();
    let axes = geometry(attrs, &window::dims(&shape)).ok();
    let axes = axes.and_then(|a| window::numbers(&a)).and_then(spatial);
    let (Some(axes), Some(out), Some(dtype)) = (axes, cx.out_shape(0), cx.out_dtype(0)) else {
        return Ok(false);
    };
    let Ok(p) = attrs.int("p").map(|p| if op == PoolOp::Lp { p } else { 1 }) else { return Ok(false) };
    if out.contains(&0) || shape.contains(&0) {
        return Ok(false);
    }
    let include_pad = attrs.bool("count_include_pad").unwrap_or(false);
    let channels = match Layout::of(attrs) {
        Layout::ChannelsLast => shape[shape.len() - 1],
        _ => 1,
    };
    let job = Job { axes: &axes, channels, include_pad, p: i32::try_from(p).unwrap_or(i32::MAX) };
    if !is_real(dtype) {
        let Some(x) = cx.args[0].clone() else { return Ok(false) };
        let mut y = Out::new(cx.pool, dtype, &out, &cx.node.name)?;
        with_element!(dtype, T => job.greatest::<T>(x.view().unwrap_or_default(), y.elems_mut()), else return Ok(false));
        cx.push(y.done());
        return Ok(true);
    }
    let Some(x) = cx.floats(0) else { return Ok(false) };
    cx.write_floats(0, &out, |y| {
        match op {
            PoolOp::Max => job.greatest::<f32>(&x, y),
            _ => job.sums(&x, y, op),
        }
        Ok(())
    })
}

/// Element of which windows have a greatest one.
trait Top: Copy + Send + Sync {
    /// The result of a window without elements.
    const LEAST: Self;
    /// The greater, or a NaN.
    fn top(self, x: Self) -> Self;
}

macro_rules! top {
    ($($t:ty: $least:expr, |$a:ident, $b:ident| $above:expr;)*) => {$(
        impl Top for $t {
            const LEAST: $t = $least;
            #[inline(always)]
            fn top(self, x: $t) -> $t {
                let ($a, $b) = (self, x);
                if $above { x } else { self }
            }
        }
    )*};
}
top! {
    f32: f32::NEG_INFINITY, |a, b| (b > a) | b.is_nan();
    half::f16: half::f16::NEG_INFINITY, |a, b| b > a || b.is_nan();
    half::bf16: half::bf16::NEG_INFINITY, |a, b| b > a || b.is_nan();
    i8: i8::MIN, |a, b| b > a;
    u8: u8::MIN, |a, b| b > a;
    i32: i32::MIN, |a, b| b > a;
    i64: i64::MIN, |a, b| b > a;
}

/// A number that elements of windows are added in.
trait Sum: Copy + Default + Send + Sync {
    /// An element.
    fn of(x: f32) -> Self;
    /// A sum.
    fn plus(self, x: Self) -> Self;
    /// A product.
    fn times(self, x: Self) -> Self;
    /// The quotient by a number of elements.
    fn over(self, count: Self) -> f32;
}

macro_rules! sum {
    ($($t:ty),*) => {$(
        impl Sum for $t {
            #[inline(always)]
            fn of(x: f32) -> $t {
                x.into()
            }
            #[inline(always)]
            fn plus(self, x: $t) -> $t {
                self + x
            }
            #[inline(always)]
            fn times(self, x: $t) -> $t {
                self * x
            }
            #[inline(always)]
            fn over(self, count: $t) -> f32 {
                let mean = (self / count) as f32;
                if count == 0.0 { 0.0 } else { mean }
            }
        }
    )*};
}
sum!(f32, f64);

/// Sums of so many terms one after the other have errors of few units in the last place of f32.
const SHORT: i64 = 16;

/// A pooling of images whose sizes are known.
struct Job<'a> {
    axes: &'a Spatial,
    /// Elements side by side that are pooled alike: the channels where they are last, else 1.
    channels: usize,
    include_pad: bool,
    /// Power of a norm.
    p: i32,
}

impl Job<'_> {
    /// Calls `line(image, [d, h], room, y)` for each row of the output; there is room for a row of x, and `more` elements.
    fn rows<A: Copy + Default, T: Send>(
        &self,
        y: &mut [T],
        more: usize,
        line: impl Fn(usize, [i64; 2], &mut [A], &mut [T]) + Sync,
    ) {
        let [d, h, w] = self.axes;
        let width = w.output as usize * self.channels;
        let taps = (d.kernel * h.kernel + w.kernel) as usize * width;
        let (rows, parts, points) = (y.len() / width, Parts::new(y), Checkpoints::here());
        threads::ranges(rows, TASK.div_ceil(taps.max(1)), |range| {
            let mut room = vec![A::default(); w.input as usize * self.channels + more];
            for row in range {
                points.pass();
                let (image, at) = (row as i64 / (d.output * h.output), row as i64 % (d.output * h.output));
                // SAFETY: each row belongs to one range.
                let y = unsafe { parts.part(row * width, (row + 1) * width) };
                line(image as usize, [at / h.output, at % h.output], &mut room, y);
            }
        });
    }

    /// Calls `f` with the rows of x under windows at rows `at` of the output.
    fn under<T>(&self, x: &[T], image: usize, at: [i64; 2], mut f: impl FnMut(&[T])) {
        let [d, h, w] = self.axes;
        let width = w.input as usize * self.channels;
        for (_, z) in d.taps(at[0]) {
            for (_, y) in h.taps(at[1]) {
                let row = (image as i64 * d.input + z) * h.input + y;
                f(&x[row as usize * width..][..width]);
            }
        }
    }

    fn greatest<T: Top + Default>(&self, x: &[T], y: &mut [T]) {
        let [d, h, w] = self.axes;
        match self.channels {
            1 => return self.planes(x, y),
            _ if d.kernel * h.kernel * w.kernel <= SHORT => return self.tops(x, y),
            _ => {}
        }
        self.rows(y, 0, |image, at, combined: &mut [T], y| {
            combined.fill(T::LEAST);
            self.under(x, image, at, |row| highest(row, 1, combined));
            y.fill(T::LEAST);
            self.along(|from, to, n, stride| {
                self.apart(&combined[from..], stride, &mut y[to..to + n], highest)
            });
        });
    }

    /// The greatest, plane by plane.
    fn planes<T: Top>(&self, x: &[T], y: &mut [T]) {
        if self.halves() {
            return self.tops_of_pairs(x, y);
        }
        Rows::new(self.axes).planes(Highest, x, y, |_| {});
    }

    /// Whether windows along rows and columns are two elements each, one behind the other.
    fn halves(&self) -> bool {
        let half = |a: &Axis<i64>| (a.kernel, a.stride, a.dilation, a.begin) == (2, 2, 1, 0);
        let [d, h, w] = self.axes;
        (d.kernel, d.stride, d.begin, d.output) == (1, 1, 0, d.input)
            && [h, w].iter().all(|a| half(a) && 2 * a.output <= a.input)
    }

    /// The greatest of windows of two by two elements, row by row.
    fn tops_of_pairs<T: Top>(&self, x: &[T], y: &mut [T]) {
        let [_, h, w] = self.axes;
        let (high, wide, rows) = (h.input as usize, w.input as usize, h.output as usize);
        let width = w.output as usize;
        let (parts, points) = (Parts::new(y), Checkpoints::here());
        threads::ranges(x.len() / (high * wide), TASK.div_ceil(rows * width * 4), |planes| {
            for i in planes {
                points.pass();
                // SAFETY: each plane belongs to one range.
                let y = unsafe { parts.part(i * rows * width, (i + 1) * rows * width) };
                pair_tops(&x[i * high * wide..(i + 1) * high * wide], wide, width, y);
            }
        });
    }

    /// The greatest of few taps, all channels of a window after the other.
    fn tops<T: Top + Default>(&self, x: &[T], y: &mut [T]) {
        self.rows(y, 0, |image, at, _: &mut [T], y| {
            let mut rows = Vec::new();
            let [d, h, w] = self.axes;
            let width = w.input as usize * self.channels;
            for (_, z) in d.taps(at[0]) {
                for (_, line) in h.taps(at[1]) {
                    let row = (image as i64 * d.input + z) * h.input + line;
                    rows.push(&x[row as usize * width..][..width]);
                }
            }
            top_channels(&rows, w, self.channels, y);
        });
    }

    /// Sums and means of windows, or norms, whose sums are made in f64.
    fn sums(&self, x: &[f32], y: &mut [f32], op: PoolOp) {
        let [d, h, w] = self.axes;
        if op == PoolOp::Lp {
            return self.added(x, y, self.p, |_, sums: &[f64], y| roots(sums, self.p, y));
        }
        match d.kernel * h.kernel + w.kernel <= SHORT {
            true => self.means::<f32>(x, y),
            false => self.means::<f64>(x, y),
        }
    }

    fn means<T: Sum>(&self, x: &[f32], y: &mut [f32]) {
        let [d, h, w] = self.axes;
        let count = |a: &Axis<i64>, o: i64| match self.include_pad {
            true => a.padded_taps(o),
            false => a.taps(o).count() as i64,
        };
        if self.channels == 1 && d.kernel * h.kernel * w.kernel <= SHORT {
            return self.plane_means(x, y, count);
        }
        let counts: Vec<T> = (0..w.output).map(|o| T::of(count(w, o) as f32)).collect();
        self.added(x, y, 0, |at, sums: &[T], y| {
            let rows = T::of((count(d, at[0]) * count(h, at[1])) as f32);
            means(sums, rows, &counts, self.channels, y);
        });
    }

    /// Means of few taps, plane by plane.
    fn plane_means(&self, x: &[f32], y: &mut [f32], count: impl Fn(&Axis<i64>, i64) -> i64) {
        let [d, h, w] = self.axes;
        let counts = |a: &Axis<i64>| (0..a.output).map(|o| count(a, o)).collect::<Vec<_>>();
        let [deep, high, wide] = [d, h, w].map(counts);
        let lines = deep.iter().flat_map(|z| high.iter().map(move |y| z * y));
        let counts: Vec<f32> = lines.flat_map(|l| wide.iter().map(move |x| (l * x).max(1) as f32)).collect();
        Rows::new(self.axes).planes(Added, x, y, |y| divide(&counts, y));
    }

    /// Calls `done` with the sums of the windows of each row of the output.
    fn added<T: Sum>(
        &self,
        x: &[f32],
        y: &mut [f32],
        power: i32,
        done: impl Fn([i64; 2], &[T], &mut [f32]) + Sync,
    ) {
        let w = &self.axes[2];
        let width = w.output as usize * self.channels;
        self.rows(y, width, |image, at, room: &mut [T], y| {
            room.fill(T::default());
            let (combined, all) = room.split_at_mut(w.input as usize * self.channels);
            self.under(x, image, at, |row| powers(row, power, combined));
            self.along(|from, to, n, stride| {
                self.apart(&combined[from..], stride, &mut all[to..to + n], add)
            });
            done(at, all, y);
        });
    }

    /// Combines positions of y with those of x that are `stride` apart.
    fn apart<T>(&self, x: &[T], stride: usize, y: &mut [T], f: fn(&[T], usize, &mut [T])) {
        let c = self.channels;
        match (stride, c) {
            (1, _) | (_, 1) => f(x, stride, y),
            _ => y.chunks_exact_mut(c).enumerate().for_each(|(i, y)| f(&x[i * stride * c..][..c], 1, y)),
        }
    }

    /// Calls `f(from, to, n, stride)` for each tap along a row: elements `to..to + n` of the output have it `stride` positions
    /// apart from element `from` of the row on.
    fn along(&self, mut f: impl FnMut(usize, usize, usize, usize)) {
        let w = &self.axes[2];
        let round_up = |x: i64| (x + w.stride - 1).div_euclid(w.stride);
        for k in 0..w.kernel {
            let shift = k * w.dilation - w.begin;
            let first = round_up(-shift).max(0);
            let after = round_up(w.input - shift).min(w.output);
            if first < after {
                let [from, to, n] = [first * w.stride + shift, first, after - first];
                f(
                    from as usize * self.channels,
                    to as usize * self.channels,
                    n as usize * self.channels,
                    w.stride as usize,
                );
            }
        }
    }
}

/// The greatest element.
#[derive(Clone, Copy)]
struct Highest;

impl<T: Top> Join<T> for Highest {
    #[inline(always)]
    fn start(self) -> T {
        T::LEAST
    }

    #[inline(always)]
    fn join(self, a: T, b: T) -> T {
        a.top(b)
    }
}

/// The sum of elements.
#[derive(Clone, Copy)]
struct Added;

impl Join<f32> for Added {
    #[inline(always)]
    fn start(self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn join(self, a: f32, b: f32) -> f32 {
        a + b
    }
}

vectorized! {
    /// The greatest of two neighbours in two rows each, for the rows of a plane that are `wide` elements apart.
    fn pair_tops<T: Top>(x: &[T], wide: usize, width: usize, y: &mut [T]) {
        for (y, rows) in y.chunks_exact_mut(width).zip(x.chunks_exact(2 * wide)) {
            let (upper, lower) = rows.split_at(wide);
            match width {
                8.. => pairs::<T, 8>(upper, lower, y),
                4.. => pairs::<T, 4>(upper, lower, y),
                _ => pairs::<T, 1>(upper, lower, y),
            }
        }
    }
}

/// The greatest of two neighbours in two rows, `L` results at a time; the last ones may be made twice.
#[inline(always)]
fn pairs<T: Top, const L: usize>(upper: &[T], lower: &[T], y: &mut [T]) {
    let mut next = 0;
    while next < y.len() {
        let at = next.min(y.len() - L);
        next = at + L;
        let (a, b) = (
            &upper[2 * at..2 * next].as_chunks::<2>().0[..L],
            &lower[2 * at..2 * next].as_chunks::<2>().0[..L],
        );
        let mut tops = [T::LEAST; L];
        for i in 0..L {
            tops[i] = a[i][0].top(a[i][1]).top(b[i][0]).top(b[i][1]);
        }
        y[at..next].copy_from_slice(&tops);
    }
}

vectorized! {
    /// The greatest elements of all channels under the windows of a row, from rows of x.
    fn top_channels<T: Top>(rows: &[&[T]], w: &Axis<i64>, channels: usize, y: &mut [T]) {
        for (o, y) in y.chunks_exact_mut(channels).enumerate() {
            let start = o as i64 * w.stride - w.begin;
            let from = if start < 0 { (-start + w.dilation - 1) / w.dilation } else { 0 };
            let to = if start < w.input { (w.input - start + w.dilation - 1) / w.dilation } else { 0 };
            let to = to.min(w.kernel);
            let first = (start + from * w.dilation) as usize * channels;
            let taps = (to - from).max(0) as usize;
            let step = w.dilation as usize * channels;
            let mut c = 0;
            while channels - c >= 32 {
                top_window::<T, 32>(rows, (first + c, taps, step), &mut y[c..]);
                c += 32;
            }
            // The last ones are made with some that are there already.
            while channels >= 8 && c < channels {
                let at = c.min(channels - 8);
                top_window::<T, 8>(rows, (first + at, taps, step), &mut y[at..]);
                c = at + 8;
            }
            while channels - c >= 4 {
                top_window::<T, 4>(rows, (first + c, taps, step), &mut y[c..]);
                c += 4;
            }
            while c < channels {
                top_window::<T, 1>(rows, (first + c, taps, step), &mut y[c..]);
                c += 1;
            }
        }
    }
}

/// Some channels of one window.
#[inline(always)]
fn top_window<T: Top, const L: usize>(
    rows: &[&[T]],
    (first, taps, step): (usize, usize, usize),
    y: &mut [T],
) {
    let mut tops = [T::LEAST; L];
    for row in rows {
        for k in 0..taps {
            let Some(x) = row[first + k * step..].first_chunk::<L>() else { continue };
            for l in 0..L {
                tops[l] = tops[l].top(x[l]);
            }
        }
    }
    y[..L].copy_from_slice(&tops);
}

vectorized! {
    /// The greater of each element and every `stride`-th one of x.
    fn highest<T: Top>(x: &[T], stride: usize, y: &mut [T]) {
        let n = y.len().min(x.len().div_ceil(stride));
        let y = &mut y[..n];
        match stride {
            1 => short::replace(y, x, T::top),
            2 => {
                for (y, x) in y.iter_mut().zip(x.as_chunks::<2>().0) {
                    *y = y.top(x[0]);
                }
                odd_end(x, y, T::top);
            }
            _ => {
                for i in 0..n {
                    y[i] = y[i].top(x[i * stride]);
                }
            }
        }
    }
}

vectorized! {
    /// Adds every `stride`-th element of x.
    fn add<T: Sum>(x: &[T], stride: usize, y: &mut [T]) {
        let n = y.len().min(x.len().div_ceil(stride));
        let y = &mut y[..n];
        match stride {
            1 => {
                let x = &x[..n];
                for i in 0..n {
                    y[i] = y[i].plus(x[i]);
                }
            }
            2 => {
                for (y, x) in y.iter_mut().zip(x.as_chunks::<2>().0) {
                    *y = y.plus(x[0]);
                }
                odd_end(x, y, T::plus);
            }
            _ => {
                for i in 0..n {
                    y[i] = y[i].plus(x[i * stride]);
                }
            }
        }
    }
}

/// The element of the last pair, where it has no second one.
#[inline(always)]
fn odd_end<T: Copy>(x: &[T], y: &mut [T], f: impl Fn(T, T) -> T) {
    if y.len() * 2 > x.len()
        && let (Some(y), Some(&x)) = (y.last_mut(), x.last())
    {
        *y = f(*y, x);
    }
}

vectorized! {
    /// Adds the elements themselves by power 0, or else powers of their magnitudes.
    fn powers<T: Sum>(x: &[f32], p: i32, y: &mut [T]) {
        let n = y.len().min(x.len());
        let (x, y) = (&x[..n], &mut y[..n]);
        match p {
            0 => {
                for i in 0..n {
                    y[i] = y[i].plus(T::of(x[i]));
                }
            }
            1 => {
                for i in 0..n {
                    y[i] = y[i].plus(T::of(x[i].abs()));
                }
            }
            2 => {
                for i in 0..n {
                    y[i] = y[i].plus(T::of(x[i]).times(T::of(x[i])));
                }
            }
            p => {
                for i in 0..n {
                    let (mut power, mut square, mut rest) = (T::of(1.0), T::of(x[i].abs()), p.max(0));
                    while rest > 0 {
                        if rest & 1 == 1 {
                            power = power.times(square);
                        }
                        square = square.times(square);
                        rest >>= 1;
                    }
                    y[i] = y[i].plus(power);
                }
            }
        }
    }
}

vectorized! {
    /// Sums by the number of their elements: so many rows, and the columns of each window. Of none the mean is 0.
    fn means<T: Sum>(sums: &[T], rows: T, columns: &[T], channels: usize, y: &mut [f32]) {
        if channels == 1 {
            let n = y.len().min(sums.len()).min(columns.len());
            let (sums, columns, y) = (&sums[..n], &columns[..n], &mut y[..n]);
            for i in 0..n {
                y[i] = sums[i].over(rows.times(columns[i]));
            }
            return;
        }
        for ((y, sums), &columns) in y.chunks_exact_mut(channels).zip(sums.chunks_exact(channels)).zip(columns) {
            let count = rows.times(columns);
            for (y, s) in y.iter_mut().zip(sums) {
                *y = s.over(count);
            }
        }
    }
}

/// Norms of sums of powers.
fn roots(sums: &[f64], p: i32, y: &mut [f32]) {
    for (y, &s) in y.iter_mut().zip(sums) {
        *y = match p {
            1 => s,
            2 => s.sqrt(),
            p => libm::pow(s, 1.0 / f64::from(p)),
        } as f32;
    }
}
