//! Tiles of products of f32: plain loops, which the compiler turns into vectors.

use super::micro::{MAX_ROWS, Micro, Panel, Place, Run, Start, begin, end, kernels};
use super::simd::{Level, level};

/// The kernels of the level.
pub fn best() -> Micro<f32, f32> {
    of(level())
}

fn of(level: Level) -> Micro<f32, f32> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => Micro { mr: 12, nr: 32, run: x86::AVX512, half: x86::HALF_AVX512 },
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => Micro { mr: 6, nr: 16, run: x86::AVX2, half: x86::HALF_AVX2 },
        _ => Micro { mr: 4, nr: 8, run: BASE, half: HALF },
    }
}

const BASE: &[Run<f32, f32>] = kernels!(base, 8; 1 2 3 4);
const HALF: &[Run<f32, f32>] = kernels!(base, 4; 1 2 3 4);

/// # Safety
/// As of [`Run`].
unsafe fn base<const MR: usize, const W: usize>(
    rows: &[&[f32]; MAX_ROWS],
    b: Panel<'_, f32>,
    start: Start<'_, f32>,
    to: Place<f32>,
) {
    // SAFETY: as the contract says.
    unsafe { sums::<MR, W, false>(rows, b, start, to) }
}

/// # Safety
/// As of [`Run`].
#[inline(always)]
unsafe fn sums<const MR: usize, const W: usize, const FMA: bool>(
    rows: &[&[f32]; MAX_ROWS],
    b: Panel<'_, f32>,
    start: Start<'_, f32>,
    to: Place<f32>,
) {
    let rows: [&[f32]; MR] = std::array::from_fn(|i| &rows[i][..b.depth]);
    // SAFETY: as the contract says.
    let mut c = unsafe { begin::<f32, MR, W>(0.0, start, to) };
    let mut line = b.data.as_ptr();
    for k in 0..b.depth {
        // SAFETY: the panel has so many columns in each row; elements need no alignment beyond their own.
        let y: [f32; W] = unsafe { line.cast::<[f32; W]>().read() };
        line = line.wrapping_add(b.pitch);
        for i in 0..MR {
            // SAFETY: rows are as long as the panel is deep, as was checked.
            let x = unsafe { *rows[i].get_unchecked(k) };
            for j in 0..W {
                c[i][j] = if FMA { x.mul_add(y[j], c[i][j]) } else { x * y[j] + c[i][j] };
            }
        }
    }
    // SAFETY: as the contract says.
    unsafe { end(&c, to) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;

    pub const AVX512: &[Run<f32, f32>] = kernels!(avx512, 32; 1 2 3 4 5 6 7 8 9 10 11 12);
    pub const HALF_AVX512: &[Run<f32, f32>] = kernels!(avx512, 16; 1 2 3 4 5 6 7 8 9 10 11 12);
    pub const AVX2: &[Run<f32, f32>] = kernels!(avx2, 16; 1 2 3 4 5 6);
    pub const HALF_AVX2: &[Run<f32, f32>] = kernels!(avx2, 8; 1 2 3 4 5 6);

    /// # Safety
    /// As of [`Run`].
    #[target_feature(enable = "avx512f,avx2,fma")]
    unsafe fn avx512<const MR: usize, const W: usize>(
        rows: &[&[f32]; MAX_ROWS],
        b: Panel<'_, f32>,
        start: Start<'_, f32>,
        to: Place<f32>,
    ) {
        // SAFETY: as the contract says.
        unsafe { sums::<MR, W, true>(rows, b, start, to) }
    }

    /// # Safety
    /// As of [`Run`].
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<const MR: usize, const W: usize>(
        rows: &[&[f32]; MAX_ROWS],
        b: Panel<'_, f32>,
        start: Start<'_, f32>,
        to: Place<f32>,
    ) {
        // SAFETY: as the contract says.
        unsafe { sums::<MR, W, true>(rows, b, start, to) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast::micro::tests::check;

    #[test]
    fn tiles_of_any_size_are_products_at_every_level() {
        let small = |i: usize| (i % 11) as f32 - 5.0;
        for level in Level::all() {
            check(&of(level), (small, small, |i| i as f32), |sum, x, y| sum + x * y);
        }
        assert_eq!([1, 4, 6, 7, 8, 49].map(|m| of(Level::Base).strip(m)), [1, 4, 3, 4, 4, 4]);
    }
}
