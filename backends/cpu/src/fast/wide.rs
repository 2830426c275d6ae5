//! Products of integers of 32 or 64 bits, whose sums wrap.
//!
//! Each element of the result is a sum along a row and a column, whose elements are side by side. Factors of 64 bits that fit 32 are
//! multiplied as such.

use super::copy::{self, Map};
use super::operand::Operand;
use super::reduce_folds::Whole;
use super::simd::vectorized;
use super::words::Size;
use crate::threads::{self, Parts};
use kiln_backend::stop::Checkpoints;

/// Products that a task makes at least.
const TASK: usize = 32 << 10;
/// Columns of the result that are summed together where columns are short.
const COLUMNS: usize = 256;
/// Length of columns up to which rows of the right matrix are added instead.
const SHORT: usize = 24;
/// Rows or columns up to which magnitudes of the others are not worth a look.
const FEW: usize = 4;
/// Rows and columns of a block, which the cache holds.
const ROWS: usize = 32;
const SIDE: usize = 16;
/// Neighbouring elements that are multiplied at once.
const LANES: usize = 16;

/// An integer type, and its elements that fit 32 bits.
pub trait Wide: Whole {
    /// Whether factors of fewer bits are multiplied faster.
    const NARROWS: bool;
    /// The element of the lower 32 bits, with their sign.
    fn low(self) -> Self;
}

impl Wide for i32 {
    const NARROWS: bool = false;
    #[inline(always)]
    fn low(self) -> i32 {
        self
    }
}

impl Wide for i64 {
    const NARROWS: bool = true;
    #[inline(always)]
    fn low(self) -> i64 {
        i64::from(self as i32)
    }
}

/// c = a by b, of integers that wrap.
pub fn product<T: Wide>(s: Size, (x, l): (&[T], &Operand), (y, r): (&[T], &Operand), c: &mut [T]) {
    let Size { m, n, k } = s;
    if k == 0 || m == 0 || n == 0 {
        return c.fill(T::ZERO);
    }
    // Few rows read each column so seldom that copies of columns are not worth it.
    if r.col == 1 && n > 1 && (m < FEW || k <= SHORT && n >= LANES) {
        return by_rows(s, (x, l), (y, r.row), c);
    }
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    let x = turned(x, [m, k], [l.row, l.col], &mut rows);
    let y = turned(y, [n, k], [r.col, r.row], &mut columns);
    by_columns(s, x, y, c);
}

/// Lines of elements side by side, `k` apart: those of a matrix by strides where they are stored so, or copies.
fn turned<'a, T: Wide>(
    x: &'a [T],
    [n, k]: [usize; 2],
    [line, step]: [usize; 2],
    room: &'a mut Vec<T>,
) -> &'a [T] {
    if (step == 1 || k == 1) && (line == k || n == 1) {
        return x;
    }
    *room = vec![T::ZERO; n * k];
    let maps = vec![Map::all(n, line), Map::all(k, step)];
    copy::bytes(size_of::<T>(), bytemuck::cast_slice(x), bytemuck::cast_slice_mut(room), 0, maps, &[]);
    room
}

/// Sums of products of lines, all of which have `k` elements side by side.
fn by_columns<T: Wide>(s: Size, x: &[T], y: &[T], c: &mut [T]) {
    let Size { m, n, k } = s;
    let narrows = T::NARROWS && n > FEW && m > FEW;
    let fits = |lines: &[T], count: usize| -> Vec<bool> {
        let mut all = vec![false; if narrows { count } else { 0 }];
        threads::chunks(&mut all, 1, TASK.div_ceil(k), |i, fits| fits[0] = is_low(&lines[i * k..][..k]));
        all
    };
    let (rows, columns) = (fits(x, m), fits(y, n));
    let low = |all: &[bool], i: usize| all.get(i) == Some(&true);
    let (bands, blocks) = (m.div_ceil(ROWS), n.div_ceil(SIDE));
    let work = ROWS.min(m).saturating_mul(SIDE.min(n)).saturating_mul(k);
    let points = Checkpoints::here();
    let parts = Parts::new(c);
    threads::ranges(bands * blocks, TASK.div_ceil(work), |tasks| {
        for task in tasks {
            points.pass();
            let (band, first) = (task / blocks * ROWS, task % blocks * SIDE);
            for i in band..m.min(band + ROWS) {
                // SAFETY: each block of rows and columns belongs to one task.
                let c = unsafe { parts.part(i * n + first, i * n + n.min(first + SIDE)) };
                let row = &x[i * k..][..k];
                for (j, c) in (first..).zip(c) {
                    let column = &y[j * k..][..k];
                    *c = match low(&rows, i) && low(&columns, j) {
                        true => dot_of_low(row, column),
                        false => dot(row, column),
                    };
                }
            }
        }
    });
}

vectorized! {
    /// Whether all elements fit 32 bits.
    fn is_low<T: Wide>(x: &[T]) -> bool {
        let mut all = true;
        for x in x {
            all &= *x == x.low();
        }
        all
    }
}

vectorized! {
    /// The sum of products of elements of both.
    fn dot<T: Wide>(x: &[T], y: &[T]) -> T {
        sum_of(x, y, |x| x)
    }
}

vectorized! {
    /// The sum of products of elements of both, which fit 32 bits.
    fn dot_of_low<T: Wide>(x: &[T], y: &[T]) -> T {
        sum_of(x, y, T::low)
    }
}

#[inline(always)]
fn sum_of<T: Wide>(x: &[T], y: &[T], part: impl Fn(T) -> T) -> T {
    let mut sums = [T::ZERO; LANES];
    let ((xs, x), (ys, y)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in xs.iter().zip(ys) {
        for i in 0..LANES {
            sums[i] = sums[i].plus(part(x[i]).times(part(y[i])));
        }
    }
    let rest = x.iter().zip(y).fold(T::ZERO, |sum, (x, y)| sum.plus(x.times(*y)));
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] = sums[i].plus(sums[i + width]);
        }
        width /= 2;
    }
    rest.plus(sums[0])
}

/// Sums of the right matrix's rows, `pitch` apart, each times an element.
fn by_rows<T: Wide>(s: Size, (x, l): (&[T], &Operand), (y, pitch): (&[T], usize), c: &mut [T]) {
    let Size { m, n, k } = s;
    let blocks = n.div_ceil(COLUMNS);
    let points = Checkpoints::here();
    let parts = Parts::new(c);
    threads::ranges(m * blocks, TASK.div_ceil(COLUMNS.min(n).saturating_mul(k)), |tasks| {
        for task in tasks {
            points.pass();
            let (i, first) = (task / blocks, task % blocks * COLUMNS);
            // SAFETY: each block of a row belongs to one range.
            let c = unsafe { parts.part(i * n + first, i * n + n.min(first + COLUMNS)) };
            c.fill(T::ZERO);
            for p in 0..k {
                add_products(x[i * l.row + p * l.col], &y[p * pitch + first..], c);
            }
        }
    });
}

vectorized! {
    /// Adds the products of a factor by elements.
    fn add_products<T: Wide>(f: T, y: &[T], c: &mut [T]) {
        for (c, &y) in c.iter_mut().zip(y) {
            *c = c.plus(f.times(y));
        }
    }
}
