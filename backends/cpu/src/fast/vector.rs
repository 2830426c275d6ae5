//! Products of a matrix by a few vectors, which read the matrix once, where it is stored.

use super::pointwise::math::muladd;
use super::pointwise::tail::At;
use super::sides::{Bias, Size, Strided};
use super::simd::vectorized;
use crate::threads::{self, Parts};
use kiln_backend::stop::Checkpoints;

/// Products that one task makes at least.
const TASK: usize = 32 << 10;
/// Columns of a task that adds rows: their sums stay in the first-level cache.
const COLUMNS: usize = 1024;
/// Accumulators of a sum.
const LANES: usize = 16;
/// Rows of a matrix that are multiplied with a vector at once.
const ROWS: usize = 4;
/// Vectors that are multiplied one by one; more of them are packed.
const FEW: usize = 4;

/// Whether a product is of a few vectors with a matrix whose rows or columns are dense.
pub fn fits(s: Size, a: &Strided<'_>, b: &Strided<'_>) -> bool {
    s.m <= FEW && s.k > 1 && s.n > 1 && a.col == 1 && (b.col == 1 || b.row == 1)
}

/// c = a·b + bias and what layers after it make of that, of sizes that [`fits`] accepts; sums depend on sizes alone.
pub fn product(
    s: Size,
    a: &Strided<'_>,
    b: &Strided<'_>,
    bias: Bias<'_>,
    tail: Option<At<'_>>,
    c: &mut [f32],
) {
    let points = Checkpoints::here();
    let parts = Parts::new(c);
    let width =
        if b.col == 1 { COLUMNS.min(s.n.div_ceil(threads::count()).next_multiple_of(LANES)) } else { ROWS };
    let least = TASK.div_ceil(width * s.k * s.m);
    threads::ranges(s.n.div_ceil(width), least, |blocks| {
        points.pass();
        let cols = blocks.start * width..s.n.min(blocks.end * width);
        for i in 0..s.m {
            let row = &a.data[i * a.row..i * a.row + s.k];
            // SAFETY: each column belongs to one range.
            let c = unsafe { parts.part(i * s.n + cols.start, i * s.n + cols.end) };
            if b.col == 1 {
                for (block, c) in c.chunks_mut(width).enumerate() {
                    let from = cols.start + block * width;
                    c.fill(0.0);
                    add_rows(row, &b.data[from..], b.row, c);
                }
            } else {
                rows_by_vector(&b.data[cols.start * b.col..], b.col, row, c);
            }
            bias.add(i, cols.start, c);
            if let Some(tail) = tail {
                tail.apply(&mut tail.room(), i * s.n + cols.start, c);
            }
        }
    });
}

/// Panels that are multiplied with a vector at once.
const SIDE: usize = 4;

/// c = v·b + bias and what layers after it make of that, by all panels of b, `nr` columns each.
pub fn by_panels(
    v: &[f32],
    (panels, nr): (&[f32], usize),
    bias: Bias<'_>,
    tail: Option<At<'_>>,
    c: &mut [f32],
) {
    let points = Checkpoints::here();
    let (n, one) = (c.len(), v.len() * nr);
    let parts = Parts::new(c);
    threads::ranges(n.div_ceil(SIDE * nr), TASK.div_ceil(SIDE * one), |blocks| {
        points.pass();
        let cols = blocks.start * SIDE * nr..n.min(blocks.end * SIDE * nr);
        // SAFETY: each column belongs to one range.
        let c = unsafe { parts.part(cols.start, cols.end) };
        let panels = &panels[cols.start / nr * one..cols.end.div_ceil(nr) * one];
        panels_by_vector(v, panels, nr, c);
        bias.add(0, cols.start, c);
        if let Some(tail) = tail {
            tail.apply(&mut tail.room(), cols.start, c);
        }
    });
}

vectorized! {
    /// Multiplies a vector with panels of `nr` columns.
    fn panels_by_vector(v: &[f32], panels: &[f32], nr: usize, y: &mut [f32]) {
        match nr {
            32 => panels_of::<FMA, 32>(v, panels, y),
            16 => panels_of::<FMA, 16>(v, panels, y),
            _ => panels_of::<FMA, 8>(v, panels, y),
        }
    }
}

/// Multiplies a vector with panels of `NR` columns, [`SIDE`] of them at once.
#[inline(always)]
fn panels_of<const FMA: bool, const NR: usize>(v: &[f32], panels: &[f32], y: &mut [f32]) {
    let one = v.len() * NR;
    for (y, panels) in y.chunks_mut(SIDE * NR).zip(panels.chunks(SIDE * one)) {
        if panels.len() == SIDE * one {
            let sums = sums_of::<FMA, NR, SIDE>(v, panels);
            y.copy_from_slice(&sums.as_flattened()[..y.len()]);
            continue;
        }
        for (y, panel) in y.chunks_mut(NR).zip(panels.chunks(one)) {
            y.copy_from_slice(&sums_of::<FMA, NR, 1>(v, panel)[0][..y.len()]);
        }
    }
}

/// Sums of products of a vector with the columns of `N` panels.
#[inline(always)]
fn sums_of<const FMA: bool, const NR: usize, const N: usize>(v: &[f32], panels: &[f32]) -> [[f32; NR]; N] {
    let k = v.len();
    let rows: [&[[f32; NR]]; N] =
        std::array::from_fn(|i| &panels[i * k * NR..(i + 1) * k * NR].as_chunks().0[..k]);
    let mut sums = [[0f32; NR]; N];
    for (p, &x) in v.iter().enumerate() {
        for i in 0..N {
            for l in 0..NR {
                sums[i][l] = muladd::<FMA>(x, rows[i][p][l], sums[i][l]);
            }
        }
    }
    sums
}

vectorized! {
    /// Adds rows of a matrix, `pitch` elements apart, times the numbers of a vector.
    fn add_rows(v: &[f32], x: &[f32], pitch: usize, y: &mut [f32]) {
        let n = y.len();
        let (fours, rest) = v.as_chunks::<4>();
        for (k, f) in fours.iter().enumerate() {
            let at = 4 * k * pitch;
            let (a, b) = (&x[at..at + n], &x[at + pitch..at + pitch + n]);
            let (c, d) = (&x[at + 2 * pitch..at + 2 * pitch + n], &x[at + 3 * pitch..at + 3 * pitch + n]);
            for i in 0..n {
                let first = muladd::<FMA>(f[0], a[i], f[1] * b[i]);
                y[i] += muladd::<FMA>(f[2], c[i], muladd::<FMA>(f[3], d[i], first));
            }
        }
        for (k, f) in rest.iter().enumerate() {
            let at = (4 * fours.len() + k) * pitch;
            let a = &x[at..at + n];
            for i in 0..n {
                y[i] = muladd::<FMA>(*f, a[i], y[i]);
            }
        }
    }
}

vectorized! {
    /// `y[j]` = the product of row j of a matrix, whose rows begin `pitch` elements apart, with a vector.
    pub fn rows_by_vector(x: &[f32], pitch: usize, v: &[f32], y: &mut [f32]) {
        let n = v.len();
        let (whole, rest) = v.as_chunks::<LANES>();
        let (fours, last) = y.as_chunks_mut::<ROWS>();
        let done = fours.len() * ROWS;
        for (j, out) in fours.iter_mut().enumerate() {
            let at = j * ROWS * pitch;
            let (a, b) = (x[at..at + n].as_chunks::<LANES>(), x[at + pitch..at + pitch + n].as_chunks::<LANES>());
            let (c, d) = (
                x[at + 2 * pitch..at + 2 * pitch + n].as_chunks::<LANES>(),
                x[at + 3 * pitch..at + 3 * pitch + n].as_chunks::<LANES>(),
            );
            let mut sums = [[0f32; LANES]; ROWS];
            for (k, v) in whole.iter().enumerate() {
                for l in 0..LANES {
                    sums[0][l] = muladd::<FMA>(a.0[k][l], v[l], sums[0][l]);
                }
                for l in 0..LANES {
                    sums[1][l] = muladd::<FMA>(b.0[k][l], v[l], sums[1][l]);
                }
                for l in 0..LANES {
                    sums[2][l] = muladd::<FMA>(c.0[k][l], v[l], sums[2][l]);
                }
                for l in 0..LANES {
                    sums[3][l] = muladd::<FMA>(d.0[k][l], v[l], sums[3][l]);
                }
            }
            let tails = [a.1, b.1, c.1, d.1];
            for r in 0..ROWS {
                out[r] = joined(sums[r]);
                for (a, b) in tails[r].iter().zip(rest) {
                    out[r] += a * b;
                }
            }
        }
        for (j, out) in last.iter_mut().enumerate() {
            let at = (done + j) * pitch;
            let (a, tail) = x[at..at + n].as_chunks::<LANES>();
            let mut sums = [0f32; LANES];
            for k in 0..whole.len() {
                for l in 0..LANES {
                    sums[l] = muladd::<FMA>(a[k][l], whole[k][l], sums[l]);
                }
            }
            *out = joined(sums);
            for (a, b) in tail.iter().zip(rest) {
                *out += a * b;
            }
        }
    }
}

/// The sum of accumulators, by halves.
#[inline(always)]
fn joined(mut sums: [f32; LANES]) -> f32 {
    for l in 0..8 {
        sums[l] += sums[l + 8];
    }
    for l in 0..4 {
        sums[l] += sums[l + 4];
    }
    (sums[0] + sums[2]) + (sums[1] + sums[3])
}
