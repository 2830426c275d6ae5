//! Intervals of allowed values.

use super::units::ulp;
use kiln_ir::DType;
use kiln_ir::expr::Num;
use std::fmt;

/// The values that one element may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// NaN.
    Nan,
    /// Floats between two, both included.
    Float(f64, f64),
    /// Integers between two, both included.
    Int(i64, i64),
}

impl Interval {
    /// One value alone.
    pub fn exactly(x: Num) -> Interval {
        match x {
            Num::F(x) if x.is_nan() => Interval::Nan,
            Num::F(x) => Interval::Float(x, x),
            Num::I(x) => Interval::Int(x, x),
        }
    }

    /// All values that are at most `error` away from `x`, in a tensor of this type. Integers must be equal. Results
    /// that are subnormal in f32 may be zero, and overflow may come a few units early or late.
    pub fn around(x: Num, error: f64, dtype: DType) -> Interval {
        match x {
            Num::F(x) if !x.is_nan() && error > 0.0 => {
                let error = error + 2f64.powi(-126);
                overflowing(x - error, x + error, dtype)
            }
            x => Interval::exactly(x),
        }
    }

    /// Whether the value is allowed.
    pub fn holds(self, x: Num) -> bool {
        match (self, x) {
            (Interval::Nan, Num::F(x)) => x.is_nan(),
            (Interval::Float(lo, hi), Num::F(x)) => lo <= x && x <= hi,
            (Interval::Int(lo, hi), Num::I(x)) => lo <= x && x <= hi,
            _ => false,
        }
    }

    /// The interval widened by the rounding to a narrower type than f32, which may go either way.
    pub fn stored_as(self, dtype: DType) -> Interval {
        match self {
            Interval::Float(lo, hi) if dtype != DType::F32 && lo < hi => {
                overflowing(lo - 1.01 * ulp(lo, dtype), hi + 1.01 * ulp(hi, dtype), dtype)
            }
            other => other,
        }
    }
}

/// An interval whose ends may be infinite, or the greatest finite value in place of an infinity.
pub fn overflowing(lo: f64, hi: f64, dtype: DType) -> Interval {
    let most = greatest(dtype);
    let low = if lo <= -most { f64::NEG_INFINITY } else { lo.min(most) };
    let high = if hi >= most { f64::INFINITY } else { hi.max(-most) };
    Interval::Float(low, high)
}

/// The greatest finite value of a float type.
fn greatest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.3895313892515355e38,
        DType::F8E4M3 => 448.0,
        _ => f64::from(f32::MAX),
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interval::Nan => write!(f, "NaN"),
            Interval::Float(lo, hi) => write!(f, "{lo:e} to {hi:e}"),
            Interval::Int(lo, hi) if lo == hi => write!(f, "{lo}"),
            Interval::Int(lo, hi) => write!(f, "{lo} to {hi}"),
        }
    }
}
