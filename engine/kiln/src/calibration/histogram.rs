//! Histograms of absolute values, and thresholds by them.

use kiln_ir::Tensor;

/// Bins that values are counted in.
const BINS: usize = 1 << 15;

/// Bins of the distributions that are compared, from 0 to the greatest value.
const COMPARED: usize = 2048;

/// Levels of codes of 8 bits on one side of 0.
const LEVELS: usize = 128;

/// Rule for the greatest absolute value that codes stand for; greater ones are cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Algorithm {
    /// The threshold whose codes lose the least information (the relative entropy between both distributions): for images.
    #[default]
    Entropy,
    /// The greatest value: for networks of language.
    MinMax,
    /// The value that this part of all elements does not exceed, such as 0.9999.
    Percentile(f64),
    /// A percentile, lowered to this part of the greatest value if it exceeds that: the first calibrator of TensorRT.
    Legacy {
        /// Part of all elements.
        quantile: f64,
        /// Part of the greatest value.
        cutoff: f64,
    },
}

impl Algorithm {
    /// The name in the first line of a calibration table.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Entropy => "EntropyCalibration2",
            Algorithm::MinMax => "MinMaxCalibration",
            Algorithm::Percentile(_) => "PercentileCalibration",
            Algorithm::Legacy { .. } => "LegacyCalibration",
        }
    }
}

/// Counts of absolute values in bins of equal width, which grow as greater values come.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    /// Upper end of the last bin; 0 before the first value.
    end: f64,
    greatest: f64,
}

impl Histogram {
    /// No values.
    pub fn new() -> Histogram {
        Histogram { counts: vec![0; BINS], end: 0.0, greatest: 0.0 }
    }

    /// Adds all finite elements.
    pub fn add(&mut self, t: &Tensor) {
        let values: Vec<f64> = t.to_f64().into_iter().map(f64::abs).filter(|x| x.is_finite()).collect();
        let greatest = values.iter().copied().fold(0.0, f64::max);
        self.greatest = self.greatest.max(greatest);
        if self.end == 0.0 {
            self.end = greatest;
        }
        while self.end < greatest {
            self.end *= 2.0;
            for i in 0..BINS {
                let pair = |i: usize| self.counts.get(i).copied().unwrap_or(0);
                self.counts[i] = pair(2 * i) + pair(2 * i + 1);
            }
        }
        for x in values {
            let bin = if self.end > 0.0 { (x / self.end * BINS as f64) as usize } else { 0 };
            self.counts[bin.min(BINS - 1)] += 1;
        }
    }

    /// The greatest value that codes stand for; `None` where nothing was seen.
    pub fn threshold(&self, algorithm: Algorithm) -> Option<f64> {
        let total: u64 = self.counts.iter().sum();
        (total > 0).then(|| match algorithm {
            _ if self.greatest == 0.0 => 0.0,
            Algorithm::MinMax => self.greatest,
            Algorithm::Entropy => self.greatest * self.entropy_bins() as f64 / COMPARED as f64,
            Algorithm::Percentile(part) => self.percentile(part),
            Algorithm::Legacy { quantile, cutoff } => {
                self.percentile(quantile).min(cutoff * self.greatest).max(self.upper(1))
            }
        })
    }

    /// Upper end of the first so many bins.
    fn upper(&self, bins: usize) -> f64 {
        self.end * bins as f64 / BINS as f64
    }

    fn percentile(&self, part: f64) -> f64 {
        let total: u64 = self.counts.iter().sum();
        let wanted = part.clamp(0.0, 1.0) * total as f64;
        let mut sum = 0;
        let bin = self.counts.iter().position(|&n| {
            sum += n;
            sum as f64 >= wanted
        });
        self.upper(bin.map_or(BINS, |b| b + 1)).min(self.greatest)
    }

    /// The number of bins whose distribution codes of 8 bits keep best.
    fn entropy_bins(&self) -> usize {
        let mut counts = vec![0; COMPARED];
        for (i, n) in self.counts.iter().enumerate() {
            let middle = (i as f64 + 0.5) * self.end / BINS as f64;
            let at = (middle / self.greatest * COMPARED as f64) as usize;
            counts[at.min(COMPARED - 1)] += n;
        }
        // Zeros, which activations have many of, have a code of their own.
        counts[0] = counts[1];
        let mut best = (f64::INFINITY, COMPARED);
        for bins in LEVELS..=COMPARED {
            let loss = divergence(&counts, bins);
            if loss < best.0 {
                best = (loss, bins);
            }
        }
        best.1
    }
}

/// Relative entropy of counted values, cut off behind so many bins, and of what their codes stand for.
fn divergence(counts: &[u64], bins: usize) -> f64 {
    let (kept, beyond) = counts.split_at(bins);
    let beyond: u64 = beyond.iter().sum();
    let mut q = vec![0.0; bins];
    for level in 0..LEVELS {
        let (from, to) = (level * bins / LEVELS, (level + 1) * bins / LEVELS);
        let filled = kept[from..to].iter().filter(|&&n| n > 0).count();
        let count: u64 = kept[from..to].iter().sum();
        (from..to).filter(|&i| kept[i] > 0).for_each(|i| q[i] = count as f64 / filled as f64);
    }
    let p = |i: usize| kept[i] as f64 + if i + 1 == bins { beyond as f64 } else { 0.0 };
    let (sum_p, sum_q) = ((0..bins).map(p).sum::<f64>(), q.iter().sum::<f64>());
    if sum_p == 0.0 || sum_q == 0.0 {
        return f64::INFINITY;
    }
    let term = |i: usize| {
        let (p, q) = (p(i) / sum_p, q[i] / sum_q);
        match (p > 0.0, q > 0.0) {
            (false, _) => 0.0,
            (true, true) => p * (p / q).ln(),
            // A value that no code stands for.
            (true, false) => f64::INFINITY,
        }
    };
    (0..bins).map(term).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use kiln_ir::problem::Rng;

    fn of(values: &[f32]) -> Histogram {
        let mut h = Histogram::new();
        values.chunks(100).for_each(|v| h.add(&Tensor::f32(&[v.len()], v).unwrap()));
        h
    }

    #[test]
    fn the_greatest_value_is_kept_as_bins_grow() {
        let h = of(&[0.5, -3.0, 2.0, f32::NAN, f32::INFINITY]);
        assert_eq!(h.threshold(Algorithm::MinMax), Some(3.0));
        let many: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        assert_eq!(of(&many).threshold(Algorithm::MinMax), Some(999.0));
        assert_eq!(of(&[]).threshold(Algorithm::MinMax), None);
        assert_eq!(of(&[0.0, 0.0]).threshold(Algorithm::Entropy), Some(0.0));
    }

    #[test]
    fn percentiles_leave_rare_values_out() {
        let mut values: Vec<f32> = (0..10_000).map(|i| i as f32 / 10_000.0).collect();
        values.push(100.0);
        let h = of(&values);
        let at = |a| h.threshold(a).unwrap();
        assert!(at(Algorithm::Percentile(0.99)) < 1.1, "{}", at(Algorithm::Percentile(0.99)));
        assert!(at(Algorithm::Percentile(1.0)) >= 99.9);
        assert!(at(Algorithm::Legacy { quantile: 1.0, cutoff: 0.5 }) <= 50.0);
    }

    #[test]
    fn entropy_cuts_single_great_values_off_and_keeps_even_ones() {
        let mut rng = Rng::new(1);
        let normal = |rng: &mut Rng| (0..12).map(|_| rng.float(-0.5, 0.5)).sum::<f64>() as f32;
        let mut values: Vec<f32> = (0..50_000).map(|_| normal(&mut rng)).collect();
        values.push(40.0);
        let cut = of(&values).threshold(Algorithm::Entropy).unwrap();
        assert!(cut > 2.0 && cut < 10.0, "{cut}");
        let even: Vec<f32> = (0..50_000).map(|_| rng.float(-1.0, 1.0) as f32).collect();
        let whole = of(&even).threshold(Algorithm::Entropy).unwrap();
        assert!(whole > 0.9, "{whole}");
    }
}
