//! The innermost loop of products of 16-bit words, whose sums wrap in 32 bits: pairs of words are multiplied and added at once.

use super::micro::MAX_ROWS;
use super::simd::{Level, level};

/// Room for a tile of any kernel.
pub const TILE: usize = MAX_ROWS * 32;

/// Multiplies rows of words with a panel of pairs: `out[i·nr + j] = Σₖ rows[i][2k]·b[k·nr + j].0 + rows[i][2k + 1]·b[k·nr + j].1`.
type Run = fn(&[&[[i16; 2]]; MAX_ROWS], &[[i16; 2]], &mut [i32]);

/// Kernels that multiply rows of pairs with panels of `nr` columns.
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
            Level::Avx512 if std::is_x86_feature_detected!("avx512vnni") => {
                Micro { mr: 12, nr: 32, run: &x86::VNNI }
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx2 => Micro { mr: 6, nr: 16, run: &x86::AVX2 },
            _ => Micro { mr: 4, nr: 4, run: &BASE },
        }
    }

    /// The products of the first `count` rows with a panel; `count` is at least 1 and at most `mr`.
    pub fn run(&self, count: usize, rows: &[&[[i16; 2]]; MAX_ROWS], b: &[[i16; 2]], out: &mut [i32]) {
        (self.run[count - 1])(rows, b, out);
    }

    /// Rows of the strips that `m` rows are divided into: all strips have about the same.
    pub fn strip(&self, m: usize) -> usize {
        m.div_ceil(m.div_ceil(self.mr).max(1)).max(1)
    }
}

const BASE: [Run; 4] = [base::<1>, base::<2>, base::<3>, base::<4>];

fn base<const MR: usize>(rows: &[&[[i16; 2]]; MAX_ROWS], b: &[[i16; 2]], out: &mut [i32]) {
    const NR: usize = 4;
    let b = b.as_chunks::<NR>().0;
    let rows: [&[[i16; 2]]; MR] = std::array::from_fn(|i| &rows[i][..b.len()]);
    let mut c = [[0i32; NR]; MR];
    for (k, y) in b.iter().enumerate() {
        for i in 0..MR {
            let x = rows[i][k].map(i32::from);
            for j in 0..NR {
                // Products of words are below 2³⁰ but for one, so that only sums wrap.
                let pair = (x[0] * i32::from(y[j][0])).wrapping_add(x[1] * i32::from(y[j][1]));
                c[i][j] = c[i][j].wrapping_add(pair);
            }
        }
    }
    for (row, c) in out.as_chunks_mut::<NR>().0.iter_mut().zip(&c) {
        *row = *c;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{MAX_ROWS, Run};
    use std::arch::x86_64::*;

    pub const AVX2: [Run; 6] = [avx2::<1>, avx2::<2>, avx2::<3>, avx2::<4>, avx2::<5>, avx2::<6>];
    pub const VNNI: [Run; 12] = [
        vnni::<1>, vnni::<2>, vnni::<3>, vnni::<4>, vnni::<5>, vnni::<6>, vnni::<7>, vnni::<8>, vnni::<9>,
        vnni::<10>, vnni::<11>, vnni::<12>,
    ];

    /// A pair of words as one number of 32 bits.
    #[inline(always)]
    fn pair(x: [i16; 2]) -> i32 {
        bytemuck::cast(x)
    }

    fn avx2<const MR: usize>(rows: &[&[[i16; 2]]; MAX_ROWS], b: &[[i16; 2]], out: &mut [i32]) {
        #[target_feature(enable = "avx2")]
        fn run<const MR: usize>(rows: &[&[[i16; 2]]; MAX_ROWS], b: &[[i16; 2]], out: &mut [i32]) {
            let b = b.as_chunks::<16>().0;
            let rows: [&[[i16; 2]]; MR] = std::array::from_fn(|i| &rows[i][..b.len()]);
            let mut c = [[_mm256_setzero_si256(); 2]; MR];
            for (k, y) in b.iter().enumerate() {
                let at = y.as_ptr();
                // SAFETY: a chunk has 16 pairs, two registers; loads need no alignment.
                let y = unsafe { [_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(8).cast())] };
                for i in 0..MR {
                    let x = _mm256_set1_epi32(pair(rows[i][k]));
                    c[i][0] = _mm256_add_epi32(c[i][0], _mm256_madd_epi16(x, y[0]));
                    c[i][1] = _mm256_add_epi32(c[i][1], _mm256_madd_epi16(x, y[1]));
                }
            }
            for (to, c) in out.as_chunks_mut::<16>().0.iter_mut().zip(&c) {
                let to = to.as_mut_ptr();
                // SAFETY: a chunk has 16 numbers, two registers; stores need no alignment.
                unsafe {
                    _mm256_storeu_si256(to.cast(), c[0]);
                    _mm256_storeu_si256(to.add(8).cast(), c[1]);
                }
            }
        }
        // SAFETY: these kernels are chosen only at a level with AVX2.
        unsafe { run::<MR>(rows, b, out) }
    }

    fn vnni<const MR: usize>(rows: &[&[[i16; 2]]; MAX_ROWS], b: &[[i16; 2]], out: &mut [i32]) {
        #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
        fn run<const MR: usize>(rows: &[&[[i16; 2]]; MAX_ROWS], b: &[[i16; 2]], out: &mut [i32]) {
            let b = b.as_chunks::<32>().0;
            let rows: [&[[i16; 2]]; MR] = std::array::from_fn(|i| &rows[i][..b.len()]);
            let mut c = [[_mm512_setzero_si512(); 2]; MR];
            for (k, y) in b.iter().enumerate() {
                let at = y.as_ptr();
                // SAFETY: a chunk has 32 pairs, two registers; loads need no alignment.
                let y = unsafe { [_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(16).cast())] };
                for i in 0..MR {
                    let x = _mm512_set1_epi32(pair(rows[i][k]));
                    c[i][0] = _mm512_dpwssd_epi32(c[i][0], x, y[0]);
                    c[i][1] = _mm512_dpwssd_epi32(c[i][1], x, y[1]);
                }
            }
            for (to, c) in out.as_chunks_mut::<32>().0.iter_mut().zip(&c) {
                let to = to.as_mut_ptr();
                // SAFETY: a chunk has 32 numbers, two registers; stores need no alignment.
                unsafe {
                    _mm512_storeu_si512(to.cast(), c[0]);
                    _mm512_storeu_si512(to.add(16).cast(), c[1]);
                }
            }
        }
        // SAFETY: these kernels are chosen only at a level with AVX-512 of a processor with VNNI.
        unsafe { run::<MR>(rows, b, out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_any_height_are_exact_at_every_level() {
        for level in Level::all() {
            let micro = Micro::of(level);
            let k = 13;
            let word = |i: usize| [(i * 37 % 511) as i16 - 255, (i * 91 % 511) as i16 - 255];
            let a: Vec<[i16; 2]> = (0..micro.mr * k).map(word).collect();
            let b: Vec<[i16; 2]> = (7..micro.nr * k + 7).map(word).collect();
            for count in 1..=micro.mr {
                let mut rows = [&[][..]; MAX_ROWS];
                (0..count).for_each(|i| rows[i] = &a[i * k..(i + 1) * k]);
                let mut out = [0i32; TILE];
                micro.run(count, &rows, &b, &mut out);
                for (i, j) in (0..count).flat_map(|i| (0..micro.nr).map(move |j| (i, j))) {
                    let pair = |p: usize| (a[i * k + p].map(i32::from), b[p * micro.nr + j].map(i32::from));
                    let wanted: i32 = (0..k).map(pair).map(|(x, y)| x[0] * y[0] + x[1] * y[1]).sum();
                    assert_eq!(out[i * micro.nr + j], wanted, "{level:?}, row {i} of {count}, column {j}");
                }
            }
        }
    }
}
