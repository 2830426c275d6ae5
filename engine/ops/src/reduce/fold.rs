//! The ten reductions on a list of numbers.

use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;

/// Operation of a `reduce`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Σx
    Sum,
    /// Πx
    Prod,
    /// The greatest.
    Max,
    /// The least.
    Min,
    /// Σx/n
    Mean,
    /// Σ|x|
    L1,
    /// √Σx²
    L2,
    /// ln Σx
    LogSum,
    /// ln Σeˣ
    LogSumExp,
    /// Σx²
    SumSquare,
}

impl ReduceOp {
    /// Names of the operations in attributes, in the order of [`ReduceOp::ALL`].
    pub const NAMES: &[&str] =
        &["sum", "prod", "max", "min", "mean", "l1", "l2", "log_sum", "log_sum_exp", "sum_square"];

    /// All operations.
    pub const ALL: [ReduceOp; 10] = [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Mean,
        ReduceOp::L1,
        ReduceOp::L2,
        ReduceOp::LogSum,
        ReduceOp::LogSumExp,
        ReduceOp::SumSquare,
    ];

    /// The attribute "op" of a `reduce`.
    pub fn of(attrs: &Attrs) -> Result<ReduceOp, OpError> {
        let name = attrs.str("op")?;
        let found = Self::NAMES.iter().zip(Self::ALL).find(|(n, _)| **n == name);
        found.map(|(_, op)| op).ok_or_else(|| OpError::Attr {
            name: "op".into(),
            found: format!("\"{name}\""),
            wanted: format!("one of {}", Self::NAMES.join(", ")),
        })
    }

    /// On floats, in order.
    pub fn of_floats(self, v: &[f64]) -> f64 {
        let sum = |f: fn(f64) -> f64| v.iter().map(|&x| f(x)).fold(0.0, |a, b| a + b);
        match self {
            ReduceOp::Sum => sum(|x| x),
            ReduceOp::Prod => v.iter().product(),
            ReduceOp::Max => v.iter().copied().fold(f64::NEG_INFINITY, max),
            ReduceOp::Min => -v.iter().map(|&x| -x).fold(f64::NEG_INFINITY, max),
            ReduceOp::Mean => sum(|x| x) / v.len() as f64,
            ReduceOp::L1 => sum(f64::abs),
            ReduceOp::L2 => sum(|x| x * x).sqrt(),
            ReduceOp::LogSum => libm::log(sum(|x| x)),
            ReduceOp::LogSumExp => log_sum_exp(v),
            ReduceOp::SumSquare => sum(|x| x * x),
        }
    }

    /// On integers of a type; the result may still have to wrap to it.
    pub fn of_ints(self, v: &[i64], dtype: DType) -> i64 {
        let (least, greatest) = dtype.int_range().unwrap_or((0, 1));
        let sum = |f: fn(i64) -> i64| v.iter().fold(0i64, |a, &x| a.wrapping_add(f(x)));
        match self {
            ReduceOp::Sum => sum(|x| x),
            ReduceOp::Prod => v.iter().fold(1i64, |a, &x| a.wrapping_mul(x)),
            ReduceOp::Max => v.iter().copied().fold(least, i64::max),
            ReduceOp::Min => v.iter().copied().fold(greatest, i64::min),
            ReduceOp::Mean => sum(|x| x).checked_div(v.len() as i64).unwrap_or(0),
            ReduceOp::L1 => sum(i64::wrapping_abs),
            ReduceOp::SumSquare => sum(|x| x.wrapping_mul(x)),
            ReduceOp::L2 | ReduceOp::LogSum | ReduceOp::LogSumExp => {
                let wide: Vec<f64> = v.iter().map(|&x| x as f64).collect();
                (self.of_floats(&wide) as i64).clamp(least, greatest)
            }
        }
    }

    /// On dimensions, where the result is one.
    pub fn of_dims(self, v: &[Dim]) -> Option<Dim> {
        match self {
            ReduceOp::Sum => Some(v.iter().cloned().sum()),
            ReduceOp::Prod => Some(v.iter().cloned().product()),
            ReduceOp::Max => v.iter().cloned().reduce(|a, b| a.max_with(&b)),
            ReduceOp::Min => v.iter().cloned().reduce(|a, b| a.min_with(&b)),
            _ => None,
        }
    }
}

/// The greater of two; NaN if either is.
pub(crate) fn max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// ln Σeˣ, shifted by the greatest so that nothing overflows.
fn log_sum_exp(v: &[f64]) -> f64 {
    let top = v.iter().copied().fold(f64::NEG_INFINITY, max);
    if !top.is_finite() {
        return top;
    }
    top + libm::log(v.iter().map(|&x| libm::exp(x - top)).fold(0.0, |a, b| a + b))
}
