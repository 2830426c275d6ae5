//! Units in the last place of the float types.

use kiln_ir::DType;

/// The relative spacing of a float type: one unit in the last place of 1.
pub fn eps(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F8E4M3 => 2f64.powi(-3),
        _ => 2f64.powi(-23),
    }
}

/// The least normal magnitude of a float type.
fn least_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-14),
        DType::F8E4M3 => 2f64.powi(-6),
        _ => 2f64.powi(-126),
    }
}

/// One unit in the last place of `x` in a float type.
pub fn ulp(x: f64, dtype: DType) -> f64 {
    let a = x.abs().max(least_normal(dtype));
    if a.is_finite() { 2f64.powi(a.log2().floor() as i32) * eps(dtype) } else { 0.0 }
}

/// `|a − b|` in units in the last place of the greater; 0 for equal infinities and two NaNs, infinite where only one
/// of them is NaN.
pub fn ulp_distance(a: f64, b: f64, dtype: DType) -> f64 {
    if a == b || (a.is_nan() && b.is_nan()) {
        return 0.0;
    }
    let d = (a - b).abs() / ulp(a.abs().max(b.abs()), dtype);
    if d.is_nan() { f64::INFINITY } else { d }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_in_units_of_the_type() {
        assert_eq!(ulp_distance(1.0, 1.0 + 2f64.powi(-23), DType::F32), 1.0);
        assert_eq!(ulp_distance(1.0, 1.0 + 2f64.powi(-9), DType::F16), 2.0);
        assert_eq!(ulp_distance(f64::NAN, f64::NAN, DType::F32), 0.0);
        assert!(ulp_distance(f64::NAN, 1.0, DType::F32).is_infinite());
    }
}
