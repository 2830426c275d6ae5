//! Least, greatest, mean, median and percentiles of times, as text.

use std::fmt;

/// Statistics of some times.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub median: f64,
    /// Percentiles by nearest rank, with their number.
    pub percentiles: Vec<(f64, f64)>,
    /// Standard deviation over mean.
    pub variation: f64,
}

impl Summary {
    /// Statistics of times in any order; `None` of none.
    pub fn of(times: &[f64], percentiles: &[f64]) -> Option<Summary> {
        let mut s = times.to_vec();
        s.sort_by(f64::total_cmp);
        let (min, max) = (*s.first()?, *s.last()?);
        let n = s.len();
        let at = |i: usize| s.get(i).copied().unwrap_or(max);
        let mean = s.iter().sum::<f64>() / n as f64;
        let variance = s.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
        let variation = if mean > 0.0 { variance.sqrt() / mean } else { 0.0 };
        let rank = |p: f64| at(((n as f64 * p / 100.0).ceil() as usize).max(1) - 1);
        let percentiles = percentiles.iter().map(|&p| (p, rank(p))).collect();
        Some(Summary { min, max, mean, median: (at((n - 1) / 2) + at(n / 2)) / 2.0, percentiles, variation })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [min, max, mean, median] = [self.min, self.max, self.mean, self.median].map(decimal);
        write!(f, "min = {min} ms, max = {max} ms, mean = {mean} ms, median = {median} ms")?;
        self.percentiles
            .iter()
            .try_for_each(|(p, x)| write!(f, ", percentile({}%) = {} ms", decimal(*p), decimal(*x)))
    }
}

/// Six digits that count, without an exponent, which parsers of these lines do not read.
pub fn decimal(x: f64) -> String {
    if !x.is_finite() || x == 0.0 {
        return "0".into();
    }
    let whole = x.abs().log10().floor() as i32 + 1;
    let digits = usize::try_from((6 - whole).clamp(0, 12)).unwrap_or(0);
    let text = format!("{x:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_digits_and_no_exponent() {
        let of = [0.0, 1.0, 0.1, 1234.5678, 0.000_012_345_678, 123_456_789.0, 2.5].map(decimal);
        assert_eq!(of, ["0", "1", "0.1", "1234.57", "0.0000123457", "123456789", "2.5"]);
    }

    #[test]
    fn percentiles_are_nearest_ranks_and_the_median_is_between_the_middle_two() {
        let s = Summary::of(&[4.0, 1.0, 3.0, 2.0], &[50.0, 99.9, 0.0]).unwrap();
        assert_eq!((s.min, s.max, s.mean, s.median), (1.0, 4.0, 2.5, 2.5));
        assert_eq!(s.percentiles, [(50.0, 2.0), (99.9, 4.0), (0.0, 1.0)]);
        assert!(
            s.to_string()
                .ends_with("percentile(50%) = 2 ms, percentile(99.9%) = 4 ms, percentile(0%) = 1 ms")
        );
        assert_eq!(Summary::of(&[], &[]), None);
    }
}
