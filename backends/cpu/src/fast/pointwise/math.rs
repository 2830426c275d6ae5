//! Scalar functions of f32 that compile to vector code.

/// eˣ within 2 units in the last place, by the Cephes polynomial: x = n·ln 2 + r, eˣ = 2ⁿ·eʳ.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-104.0, 89.0);
    let n = (clamped * std::f32::consts::LOG2_E).round_ties_even();
    let r = clamped - n * LN2_HI - n * LN2_LO;
    let p = 1.987_569_1e-4f32;
    let p = p * r + 1.398_2e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let y = p * r * r + r + 1.0;
    // In two steps, so that neither factor overflows or underflows before the product does.
    let half = (n as i32) >> 1;
    let pow2 = |e: i32| f32::from_bits(((e + 127) as u32) << 23);
    let y = y * pow2(half) * pow2(n as i32 - half);
    if x.is_nan() {
        x
    } else if x > 88.722_84 {
        f32::INFINITY
    } else {
        y
    }
}

/// tanh within a few units in the last place.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let s = x * x;
    let p = -5.704_988_7e-3f32;
    let p = p * s + 2.063_908_7e-2;
    let p = p * s - 5.373_971_6e-2;
    let p = p * s + 1.333_144_2e-1;
    let p = p * s - 3.333_328_2e-1;
    let small = p * s * x + x;
    let large = 1.0 - 2.0 / (exp(2.0 * a) + 1.0);
    if a < 0.625 { small } else { large.copysign(x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ulps(found: f32, wanted: f64) -> f64 {
        let unit = f64::from(f32::EPSILON) * wanted.abs().max(f64::from(f32::MIN_POSITIVE));
        (f64::from(found) - wanted).abs() / unit
    }

    #[test]
    fn exp_and_tanh_are_close_everywhere() {
        let mut x = -100.0f32;
        while x < 88.7 {
            assert!(ulps(exp(x), f64::from(x).exp()) < 2.0, "exp {x}");
            assert!(ulps(tanh(x), f64::from(x).tanh()) < 4.0, "tanh {x}");
            x += 0.0137;
        }
        assert_eq!((exp(200.0), exp(-200.0), exp(0.0)), (f32::INFINITY, 0.0, 1.0));
        assert_eq!((exp(f32::NEG_INFINITY), exp(f32::INFINITY)), (0.0, f32::INFINITY));
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
        assert_eq!((tanh(50.0), tanh(-50.0), tanh(f32::INFINITY)), (1.0, -1.0, 1.0));
    }
}
