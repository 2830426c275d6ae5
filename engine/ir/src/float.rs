//! Conversions between `f64` and the storage of each float type, rounding to nearest even once.

use half::{bf16, f16};

/// Rounds to the nearest f16 (ties to even); values out of range become infinite.
pub fn f16_bits(x: f64) -> u16 {
    f16::from_f32(to_odd(x)).to_bits()
}

/// Rounds to the nearest bf16 (ties to even).
pub fn bf16_bits(x: f64) -> u16 {
    bf16::from_f32(to_odd(x)).to_bits()
}

/// The nearest f32 of `x` toward zero, its last bit set if `x` is not exactly that. Rounding it to a narrower
/// type equals rounding `x` once.
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) == x || x.is_nan() {
        return near;
    }
    let outward = f64::from(near).abs() > x.abs();
    f32::from_bits((near.to_bits() - u32::from(outward)) | 1)
}

/// Decodes FP8 E4M3 (bias 7, no infinities, NaN is S.1111.111).
pub fn f8e4m3_to_f64(b: u8) -> f64 {
    let sign = if b & 0x80 != 0 { -1.0 } else { 1.0 };
    let (e, m) = (i32::from(b >> 3 & 0xf), f64::from(b & 7));
    match (e, b & 7) {
        (15, 7) => f64::NAN,
        (0, _) => sign * m / 8.0 * 2f64.powi(-6),
        _ => sign * (1.0 + m / 8.0) * 2f64.powi(e - 7),
    }
}

/// Rounds to the nearest FP8 E4M3, ties to even. Values beyond the largest finite one, and infinities, saturate
/// to ±448; NaN stays NaN.
pub fn f8e4m3_bits(x: f64) -> u8 {
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    if x.is_nan() {
        return sign | 0x7f;
    }
    let a = x.abs();
    if a >= 448.0 {
        return sign | 0x7e;
    }
    let exp = if a < 2f64.powi(-6) { -6 } else { (a.to_bits() >> 52) as i32 - 1023 };
    let units = (a / 2f64.powi(exp - 3)).round_ties_even() as u32;
    // A carry out of the mantissa runs into the exponent, as it should.
    let code = if a < 2f64.powi(-6) { units } else { ((exp + 7) as u32) * 8 + (units - 8) };
    sign | code.min(0x7e) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_just_off_a_tie_rounds_to_its_side() {
        let tiny = 2f64.powi(-45);
        for (x, bits) in [(1.0 + 2f64.powi(-11), 0x3c00), (1.0 + 2f64.powi(-11) + tiny, 0x3c01)] {
            assert_eq!((f16_bits(x), f16_bits(-x)), (bits, bits | 0x8000));
        }
        for (x, bits) in [(1.0 + 2f64.powi(-8), 0x3f80), (1.0 + 2f64.powi(-8) + tiny, 0x3f81)] {
            assert_eq!((bf16_bits(x), bf16_bits(-x)), (bits, bits | 0x8000));
        }
        assert_eq!((f16_bits(1e300), f16_bits(f64::NEG_INFINITY), f16_bits(1e-300)), (0x7c00, 0xfc00, 0));
        assert_eq!((f16_bits(65519.99), f16_bits(65520.0), bf16_bits(3.4e38)), (0x7bff, 0x7c00, 0x7f80));
    }

    #[test]
    fn every_f8_code_survives_a_round_trip() {
        for b in 0..=255u8 {
            let x = f8e4m3_to_f64(b);
            if x.is_nan() {
                assert!(f8e4m3_to_f64(f8e4m3_bits(x)).is_nan());
            } else {
                assert_eq!(f8e4m3_bits(x), b, "{x}");
            }
        }
    }

    #[test]
    fn f8_ties_go_to_even_and_large_values_saturate() {
        assert_eq!(f8e4m3_to_f64(f8e4m3_bits(17.0)), 16.0);
        assert_eq!(f8e4m3_to_f64(f8e4m3_bits(19.0)), 20.0);
        assert_eq!(f8e4m3_to_f64(f8e4m3_bits(1e9)), 448.0);
    }
}
