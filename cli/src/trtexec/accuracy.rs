//! Difference of outputs from those that are wanted, by five measures.

use kiln::Tensor;
use std::fmt;
use std::str::FromStr;

/// Measure of the difference of a tensor; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Part of the elements beyond the tolerances.
    L0,
    /// Mean of absolute differences.
    L1,
    /// Mean of squared differences.
    L2,
    /// Greatest absolute difference.
    LInf,
    /// One minus the cosine of the angle between both.
    Cos,
}

/// Names of the measures in options.
const NAMES: [(&str, Algorithm); 5] = [
    ("l0", Algorithm::L0),
    ("l1", Algorithm::L1),
    ("l2", Algorithm::L2),
    ("lInf", Algorithm::LInf),
    ("cos", Algorithm::Cos),
];

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Algorithm, String> {
        let found = NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(text));
        found.map(|f| f.1).ok_or_else(|| "wanted l0, l1, l2, lInf or cos".to_owned())
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, a)| a == self).map_or("", |n| n.0);
        f.write_str(name)
    }
}

/// Measure with its tolerances and the greatest difference that passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    pub algorithm: Algorithm,
    pub atol: f64,
    pub rtol: f64,
    pub threshold: Option<f64>,
}

impl Default for Tolerance {
    fn default() -> Tolerance {
        Tolerance { algorithm: Algorithm::L0, atol: 1e-5, rtol: 1e-5, threshold: None }
    }
}

impl Tolerance {
    /// The difference of two tensors of one shape; infinite where one is not a number and the other is.
    pub fn loss(&self, found: &Tensor, wanted: &Tensor) -> f64 {
        let (f, w) = (found.to_f64(), wanted.to_f64());
        let pairs = || f.iter().copied().zip(w.iter().copied());
        let n = f.len().max(1) as f64;
        let gap = |(f, w): (f64, f64)| match f == w || (f.is_nan() && w.is_nan()) {
            true => 0.0,
            false if (f - w).is_nan() => f64::INFINITY,
            false => (f - w).abs(),
        };
        match self.algorithm {
            Algorithm::L0 => {
                let beyond = |p: &(f64, f64)| gap(*p) > self.atol + self.rtol * p.1.abs();
                pairs().filter(beyond).count() as f64 / n
            }
            Algorithm::L1 => pairs().map(gap).sum::<f64>() / n,
            Algorithm::L2 => pairs().map(gap).map(|g| g * g).sum::<f64>() / n,
            Algorithm::LInf => pairs().map(gap).fold(0.0, f64::max),
            Algorithm::Cos => cosine_gap(&f, &w),
        }
    }
}

/// One minus the cosine; 0 of two tensors of zeros, 1 of one.
fn cosine_gap(f: &[f64], w: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let norm = (dot(f, f) * dot(w, w)).sqrt();
    match norm {
        n if n > 0.0 && n.is_finite() => (1.0 - dot(f, w) / n).max(0.0),
        0.0 => f64::from(f.iter().chain(w).any(|x| *x != 0.0)),
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(name: &str, f: &[f32], w: &[f32]) -> f64 {
        let t = |v: &[f32]| Tensor::f32(&[v.len()], v).unwrap();
        let tolerance = Tolerance { algorithm: name.parse().unwrap(), atol: 0.1, rtol: 0.1, threshold: None };
        tolerance.loss(&t(f), &t(w))
    }

    #[test]
    fn each_measure_is_what_its_definition_says() {
        let (f, w) = ([1.0, 2.0, 3.0, 6.0], [1.0, 2.125, 3.0, 4.0]);
        assert_eq!(loss("l0", &f, &w), 0.25);
        assert_eq!(loss("l1", &f, &w), (0.125 + 2.0) / 4.0);
        assert_eq!(loss("l2", &f, &w), (0.015625 + 4.0) / 4.0);
        assert_eq!(loss("linf", &f, &w), 2.0);
        let cos = (1.0 + 4.25 + 9.0 + 24.0) / (50.0f64 * (1.0 + 4.515625 + 9.0 + 16.0)).sqrt();
        assert!((loss("cos", &f, &w) - (1.0 - cos)).abs() < 1e-12);
    }

    #[test]
    fn what_is_not_a_number_differs_from_what_is() {
        let n = f32::NAN;
        for name in ["l1", "l2", "lInf", "cos"] {
            assert_eq!(loss(name, &[n], &[1.0]), f64::INFINITY, "{name}");
        }
        assert_eq!((loss("l0", &[n, n], &[1.0, n]), loss("lInf", &[n], &[n])), (0.5, 0.0));
        assert_eq!((loss("cos", &[0.0], &[0.0]), loss("cos", &[0.0], &[1.0])), (0.0, 1.0));
    }
}
