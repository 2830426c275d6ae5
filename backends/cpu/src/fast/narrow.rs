//! Conversions between f32 and the narrower floats.

use super::simd::{Level, level, vectorized};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Rounds to the nearest f16, ties to even.
pub fn to_f16(x: &[f32], y: &mut [f16]) {
    let whole = wide(x.len().min(y.len()));
    #[cfg(target_arch = "x86_64")]
    match level() {
        // SAFETY: the processor has the level's instructions.
        Level::Avx512 => unsafe { x86::to_f16_wide(&x[..whole], &mut y[..whole]) },
        // SAFETY: as above.
        Level::Avx2 => unsafe { x86::to_f16(&x[..whole], &mut y[..whole]) },
        Level::Base => {}
    }
    y[whole..].convert_from_f32_slice(&x[whole..]);
}

/// Widens f16, which is exact.
pub fn of_f16(x: &[f16], y: &mut [f32]) {
    let whole = wide(x.len().min(y.len()));
    #[cfg(target_arch = "x86_64")]
    match level() {
        // SAFETY: the processor has the level's instructions.
        Level::Avx512 => unsafe { x86::of_f16_wide(&x[..whole], &mut y[..whole]) },
        // SAFETY: as above.
        Level::Avx2 => unsafe { x86::of_f16(&x[..whole], &mut y[..whole]) },
        Level::Base => {}
    }
    x[whole..].convert_to_f32_slice(&mut y[whole..]);
}

/// Elements that are converted in whole registers of the level.
fn wide(count: usize) -> usize {
    match cfg!(target_arch = "x86_64") && level() > Level::Base {
        true => count / 16 * 16,
        false => 0,
    }
}

/// Rounds to the nearest bf16, ties to even.
pub fn to_bf16(x: &[f32], y: &mut [bf16]) {
    bits_of(x, bytemuck::cast_slice_mut(y));
}

/// Widens bf16, which is exact.
pub fn of_bf16(x: &[bf16], y: &mut [f32]) {
    floats_of(bytemuck::cast_slice(x), y);
}

vectorized! {
    fn bits_of(x: &[f32], y: &mut [u16]) {
        for (y, x) in y.iter_mut().zip(x) {
            let bits = x.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            // A NaN stays one whatever bits of it are kept.
            *y = if x.is_nan() { bits >> 16 | 0x40 } else { rounded } as u16;
        }
    }
}

vectorized! {
    fn floats_of(x: &[u16], y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = f32::from_bits(u32::from(x) << 16);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use half::f16;
    use std::arch::x86_64::*;

    /// Defines conversions of whole registers, of so many elements, for one instruction set. Lengths are equal and multiples of 16.
    macro_rules! conversions {
        ($to:ident, $of:ident, $features:literal, $lanes:literal, $load:ident, $store:ident, $narrow:ident, $widen:ident,
         $load_narrow:ident, $store_narrow:ident) => {
            #[target_feature(enable = $features)]
            pub fn $to(x: &[f32], y: &mut [f16]) {
                for (x, y) in x.as_chunks::<$lanes>().0.iter().zip(y.as_chunks_mut::<$lanes>().0) {
                    // SAFETY: the chunks are as long as the registers; neither access needs alignment.
                    unsafe {
                        let narrow = $narrow::<_MM_FROUND_TO_NEAREST_INT>($load(x.as_ptr()));
                        $store_narrow(y.as_mut_ptr().cast(), narrow);
                    }
                }
            }

            #[target_feature(enable = $features)]
            pub fn $of(x: &[f16], y: &mut [f32]) {
                for (x, y) in x.as_chunks::<$lanes>().0.iter().zip(y.as_chunks_mut::<$lanes>().0) {
                    // SAFETY: the chunks are as long as the registers; neither access needs alignment.
                    unsafe { $store(y.as_mut_ptr(), $widen($load_narrow(x.as_ptr().cast()))) };
                }
            }
        };
    }
    conversions!(
        to_f16,
        of_f16,
        "avx2,f16c",
        8,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_cvtps_ph,
        _mm256_cvtph_ps,
        _mm_loadu_si128,
        _mm_storeu_si128
    );
    conversions!(
        to_f16_wide,
        of_f16_wide,
        "avx512f",
        16,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_cvtps_ph,
        _mm512_cvtph_ps,
        _mm256_loadu_si256,
        _mm256_storeu_si256
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_narrow_float_survives_and_others_round() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let (mut wide, mut back) = (vec![0f32; all.len()], vec![f16::ZERO; all.len()]);
        of_f16(&all, &mut wide);
        to_f16(&wide, &mut back);
        assert!(all.iter().zip(&back).all(|(a, b)| a == b || a.is_nan() && b.is_nan()));
        let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        let mut back = vec![bf16::ZERO; all.len()];
        of_bf16(&all, &mut wide);
        to_bf16(&wide, &mut back);
        assert!(all.iter().zip(&back).all(|(a, b)| a == b || a.is_nan() && b.is_nan()));
        let floats: Vec<f32> = (0..=u32::MAX).step_by(65_521).map(f32::from_bits).collect();
        let (mut a, mut b) = (vec![f16::ZERO; floats.len()], vec![bf16::ZERO; floats.len()]);
        to_f16(&floats, &mut a);
        to_bf16(&floats, &mut b);
        for ((&x, a), b) in floats.iter().zip(a).zip(b) {
            assert!(a == f16::from_f32(x) || x.is_nan() && a.is_nan(), "{x:e}");
            assert!(b == bf16::from_f32(x) || x.is_nan() && b.is_nan(), "{x:e}");
        }
    }
}
