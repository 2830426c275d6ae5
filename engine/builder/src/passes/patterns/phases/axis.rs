//! Arithmetic of one spatial axis: which taps make the results of a phase, and which padding and size the convolution of a phase has.
//!
//! Before padding is cut off, element i of x reaches position `i * stride + t * dilation` through tap t. Taps reach the same
//! phase if their numbers are equal modulo `step = stride / gcd(stride, dilation)`.

use kiln_ops::conv::window;

/// Phases with taps that an axis has at most.
pub const MOST: i64 = 64;

/// The results at positions `q * stride + at` that have taps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Position within a stride.
    pub at: i64,
    /// The first of its taps, less than the step.
    pub tap: i64,
    /// Number of its taps, 1 or more.
    pub taps: i64,
    /// Padding of x before and after, 0 or more.
    pub pads: [i64; 2],
}

impl Phase {
    /// Number of taps and padding. Phases in which both are equal have equal windows on x.
    pub fn windows(&self) -> (i64, [i64; 2]) {
        (self.taps, self.pads)
    }
}

/// A spatial axis as phases, each of which is a convolution with `count` results.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Taps of the kernel.
    pub kernel: i64,
    /// Positions of the result from one element of x to the next.
    pub stride: i64,
    /// Distance of the taps of a phase in the kernel.
    pub step: i64,
    /// Distance of the taps of a phase on x.
    pub dilation: i64,
    /// Phases with taps, in the order of their positions.
    pub phases: Vec<Phase>,
    /// Results of each phase.
    pub count: i64,
    /// Elements in front of the result, once phases are put between each other.
    pub start: i64,
    /// Size of the result.
    pub size: i64,
}

impl Axis {
    /// The phases of an axis; none if it is empty, or numbers become too large for a convolution.
    pub fn of(axis: &window::Axis<i64>) -> Option<Axis> {
        let &window::Axis { input: size, output: n, kernel, stride, dilation, begin: cut, .. } = axis;
        if [size, n, kernel, stride, dilation].iter().any(|&v| v < 1) || cut < 0 {
            return None;
        }
        let common = gcd(stride, dilation);
        let step = stride / common;
        let live = kernel.min(step);
        // No tap reaches further.
        kernel.checked_mul(dilation)?;
        if live > MOST {
            return None;
        }
        let ahead = |tap: i64| tap * dilation / stride;
        let more = |tap: i64| (kernel - 1 - tap) / step;
        let span = |tap: i64| ahead(tap + more(tap) * step);
        // All phases compute the same q, so that padding of none is negative.
        let first = (0..live).map(span).min()?.min(cut / stride);
        let wanted = cut.checked_add(size)?.checked_add(stride - 1)? / stride;
        let end = wanted.max(n.checked_add(ahead(live - 1))?);
        let phase = |tap: i64| Phase {
            at: tap * dilation % stride,
            tap,
            taps: more(tap) + 1,
            pads: [span(tap) - first, end - n - ahead(tap)],
        };
        let mut phases: Vec<Phase> = (0..live).map(phase).collect();
        phases.sort_by_key(|p| p.at);
        let count = end - first;
        count.checked_mul(stride)?;
        let fits = phases.iter().flat_map(|p| p.pads).all(|p| p <= i64::from(i32::MAX));
        fits.then_some(Axis {
            kernel,
            stride,
            step,
            dilation: dilation / common,
            phases,
            count,
            start: cut - first * stride,
            size,
        })
    }

    /// Whether there are positions that no tap reaches.
    pub fn has_gaps(&self) -> bool {
        (self.phases.len() as i64) < self.stride
    }

    /// Whether all gaps are behind the phases with taps.
    pub fn gaps_behind(&self) -> bool {
        self.phases.iter().zip(0..).all(|(p, at)| p.at == at)
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn axis([n, kernel, stride, dilation]: [i64; 4], [begin, size]: [i64; 2]) -> window::Axis<i64> {
        window::Axis { input: size, output: n, kernel, stride, dilation, begin, end: 0 }
    }

    /// Weight of tap t is a power of two for each element of x, so that no two sums of products are equal.
    fn product(i: i64, t: i64) -> i64 {
        1 << (i * 6 + t)
    }

    fn direct(a: &window::Axis<i64>) -> Vec<i64> {
        let mut y = vec![0; a.input as usize];
        for (i, t) in (0..a.output).flat_map(|i| (0..a.kernel).map(move |t| (i, t))) {
            let at = i * a.stride + t * a.dilation - a.begin;
            if (0..a.input).contains(&at) {
                y[at as usize] += product(i, t);
            }
        }
        y
    }

    fn by_phases(a: &Axis, n: i64) -> Vec<i64> {
        let mut y = vec![0; (a.count * a.stride) as usize];
        for p in &a.phases {
            assert!(p.pads.iter().all(|&v| v >= 0));
            assert_eq!(n + p.pads[0] + p.pads[1] - (p.taps - 1) * a.dilation, a.count);
            for (q, j) in (0..a.count).flat_map(|q| (0..p.taps).map(move |j| (q, j))) {
                let i = q - p.pads[0] + j * a.dilation;
                if (0..n).contains(&i) {
                    y[(q * a.stride + p.at) as usize] += product(i, p.tap + (p.taps - 1 - j) * a.step);
                }
            }
        }
        y[a.start as usize..][..a.size as usize].to_vec()
    }

    #[test]
    fn phases_make_the_sums_of_all_small_axes() {
        let mut checked = 0;
        for code in 0..4 * 6 * 6 * 5 {
            let given = [1 + code % 4, 1 + code / 4 % 6, 1 + code / 24 % 6, 1 + code / 144];
            let [n, kernel, stride, dilation] = given;
            let full = (n - 1) * stride + (kernel - 1) * dilation + 1;
            let cuts = [[0, full], [1, full], [0, full + 7], [full / 2, 3], [full, 2], [full + 5, 1]];
            for cut in cuts {
                let a = axis(given, cut);
                let phases = Axis::of(&a).unwrap();
                assert_eq!(by_phases(&phases, n), direct(&a), "{a:?} {phases:?}");
                checked += 1;
            }
        }
        assert_eq!(checked, 720 * 6);
    }

    #[test]
    fn short_kernels_leave_gaps_behind_and_dilated_ones_between() {
        let of = |given| Axis::of(&axis(given, [0, 9])).unwrap();
        let short = of([3, 2, 5, 1]);
        assert!(short.has_gaps() && short.gaps_behind());
        assert_eq!(short.phases.iter().map(|p| p.taps).collect::<Vec<_>>(), [1, 1]);
        let even = of([3, 4, 4, 2]);
        assert!(even.has_gaps() && !even.gaps_behind());
        assert_eq!(even.phases.iter().map(|p| (p.at, p.taps)).collect::<Vec<_>>(), [(0, 2), (2, 2)]);
        let full = of([3, 4, 3, 2]);
        assert!(!full.has_gaps() && full.gaps_behind());
        assert_eq!(full.phases.iter().map(|p| p.tap).collect::<Vec<_>>(), [0, 2, 1]);
    }

    #[test]
    fn empty_and_huge_axes_are_refused() {
        let most = i64::from(i32::MAX);
        assert!(Axis::of(&axis([0, 1, 1, 1], [0, 1])).is_none());
        assert!(Axis::of(&axis([1, 1, 1, 1], [0, 0])).is_none());
        assert!(Axis::of(&axis([1, 1, 1, 1], [-1, 1])).is_none());
        assert!(Axis::of(&axis([3, 200, 65, 1], [0, 9])).is_none());
        assert!(Axis::of(&axis([i64::MAX, 3, 2, 1], [0, i64::MAX])).is_none());
        assert!(Axis::of(&axis([1, most, 1, most], [i64::MAX / 2, i64::MAX / 2])).is_none());
        assert!(Axis::of(&axis([1, 1, most, most], [0, 1])).is_some());
    }
}
