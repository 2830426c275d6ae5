//! The innermost loop of matrix products, for the widest vectors of the level.

use super::simd::{Level, level};

/// Rows of a tile of any kernel at most.
pub const MAX_ROWS: usize = 12;
/// Room for a tile of any kernel.
pub const TILE: usize = MAX_ROWS * 32;

/// Multiplies rows, as many as the kernel is for, with a panel: `out[i·nr + j] = Σₖ rows[i][k] · b[k·nr + j]`, k in order.
type Run = fn(&[&[f32]; MAX_ROWS], &[f32], &mut [f32]);

/// Kernels that multiply rows of the left matrix, which lie as they are, with packed panels of `nr` columns.
#[derive(Clone, Copy)]
pub struct Micro {
    /// Rows of a tile at most.
    pub mr: usize,
    /// Columns of a tile.
    pub nr: usize,
    /// Kernels by number of rows, from one on.
    run: &'static [Run],
}

impl Micro {
    /// The kernels of the level.
    pub fn best() -> Micro {
        Micro::of(level())
    }

    fn of(level: Level) -> Micro {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => Micro { mr: 12, nr: 32, run: &x86::AVX512 },
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Micro { mr: 6, nr: 16, run: &x86::AVX2 },
            _ => Micro { mr: 4, nr: 8, run: &BASE },
        }
    }

    /// The products of the first `count` rows with a panel; `count` is at least 1 and at most `mr`.
    pub fn run(&self, count: usize, rows: &[&[f32]; MAX_ROWS], b: &[f32], out: &mut [f32]) {
        (self.run[count - 1])(rows, b, out);
    }

    /// Rows of the strips that `m` rows are divided into: all strips have about the same.
    pub fn strip(&self, m: usize) -> usize {
        m.div_ceil(m.div_ceil(self.mr).max(1)).max(1)
    }
}

const BASE: [Run; 4] = [base::<1>, base::<2>, base::<3>, base::<4>];

fn base<const MR: usize>(rows: &[&[f32]; MAX_ROWS], b: &[f32], out: &mut [f32]) {
    tile::<MR, 8, false>(rows, b, out);
}

#[inline(always)]
fn tile<const MR: usize, const NR: usize, const FMA: bool>(
    rows: &[&[f32]; MAX_ROWS],
    b: &[f32],
    out: &mut [f32],
) {
    let b = b.as_chunks::<NR>().0;
    let rows: [&[f32]; MR] = std::array::from_fn(|i| &rows[i][..b.len()]);
    let mut c = [[0f32; NR]; MR];
    for (k, y) in b.iter().enumerate() {
        for i in 0..MR {
            let x = rows[i][k];
            for j in 0..NR {
                c[i][j] = if FMA { x.mul_add(y[j], c[i][j]) } else { x * y[j] + c[i][j] };
            }
        }
    }
    for (row, c) in out.as_chunks_mut::<NR>().0.iter_mut().zip(&c) {
        *row = *c;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{MAX_ROWS, Run, tile};

    pub const AVX512: [Run; 12] = [
        avx512::<1>,
        avx512::<2>,
        avx512::<3>,
        avx512::<4>,
        avx512::<5>,
        avx512::<6>,
        avx512::<7>,
        avx512::<8>,
        avx512::<9>,
        avx512::<10>,
        avx512::<11>,
        avx512::<12>,
    ];
    pub const AVX2: [Run; 6] = [avx2::<1>, avx2::<2>, avx2::<3>, avx2::<4>, avx2::<5>, avx2::<6>];

    fn avx512<const MR: usize>(rows: &[&[f32]; MAX_ROWS], b: &[f32], out: &mut [f32]) {
        #[target_feature(enable = "avx512f,avx2,fma")]
        fn run<const MR: usize>(rows: &[&[f32]; MAX_ROWS], b: &[f32], out: &mut [f32]) {
            tile::<MR, 32, true>(rows, b, out);
        }
        // SAFETY: these kernels are chosen only at a level with AVX-512, which contains AVX2 and FMA.
        unsafe { run::<MR>(rows, b, out) }
    }

    fn avx2<const MR: usize>(rows: &[&[f32]; MAX_ROWS], b: &[f32], out: &mut [f32]) {
        #[target_feature(enable = "avx2,fma")]
        fn run<const MR: usize>(rows: &[&[f32]; MAX_ROWS], b: &[f32], out: &mut [f32]) {
            tile::<MR, 16, true>(rows, b, out);
        }
        // SAFETY: these kernels are chosen only at a level with AVX2 and FMA.
        unsafe { run::<MR>(rows, b, out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_any_height_are_products_at_every_level() {
        for level in Level::all() {
            let micro = Micro::of(level);
            let k = 37;
            let a: Vec<f32> = (0..micro.mr * k).map(|i| (i % 11) as f32 - 5.0).collect();
            let b: Vec<f32> = (0..micro.nr * k).map(|i| (i % 7) as f32 - 3.0).collect();
            for count in 1..=micro.mr {
                let mut rows = [&[][..]; MAX_ROWS];
                (0..count).for_each(|i| rows[i] = &a[i * k..(i + 1) * k]);
                let mut out = [0f32; TILE];
                micro.run(count, &rows, &b, &mut out);
                for (i, j) in (0..count).flat_map(|i| (0..micro.nr).map(move |j| (i, j))) {
                    let wanted: f32 = (0..k).map(|p| a[i * k + p] * b[p * micro.nr + j]).sum();
                    assert_eq!(out[i * micro.nr + j], wanted, "{level:?}, row {i} of {count}, column {j}");
                }
            }
        }
        assert_eq!([1, 4, 6, 7, 8, 49].map(|m| Micro::of(Level::Base).strip(m)), [1, 4, 3, 4, 4, 4]);
    }
}
