//! Coordinate arithmetic of `grid_sample`, `deform_conv` and `roi_align`, for backends to mirror.
//!
//! Coordinates are computed in f32, one rounding an operation and none contracted, so that every backend chooses the
//! same elements; weights and sums follow in the precision of the operator.

pub mod grid_sample;
pub mod resize;
pub mod roi_align;

/// Nearest elements are copied as they are; the other modes interpolate.
pub fn tolerance(attrs: &kiln_ir::Attrs) -> kiln_ir::op::Tolerance {
    use kiln_ir::op::Tolerance;
    if attrs.str("mode").is_ok_and(|m| m == "nearest") { Tolerance::Exact } else { Tolerance::Sampled }
}

/// Elements outside of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Padding {
    /// Zero.
    Zeros,
    /// The nearest element of the border.
    Border,
    /// The input, mirrored at its border as often as needed.
    Reflection,
}

/// Interpolation between elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// Linear between the two neighbours of each dimension.
    Linear,
    /// The nearest element, ties to the even one.
    Nearest,
    /// Cubic convolution (a = −0.75) of four elements of each dimension.
    Cubic,
}

/// A normalized coordinate (−1 and 1 are the centres of the first and last element with `align_corners`, else their
/// outer edges) in elements. NaN counts as −1.
pub fn unnormalize(n: f32, size: i64, align_corners: bool) -> f32 {
    let (n, size) = (if n.is_nan() { -1.0 } else { n }, size as f32);
    if align_corners { (n + 1.0) / 2.0 * (size - 1.0) } else { ((n + 1.0) * size - 1.0) / 2.0 }
}

/// The least and greatest coordinate of the input: centres of its outer elements with `align_corners`, else edges.
fn border(size: i64, align_corners: bool) -> (f32, f32) {
    if align_corners { (0.0, size as f32 - 1.0) } else { (-0.5, size as f32 - 0.5) }
}

/// A coordinate mirrored at `lo` and `hi` until it is between them; `lo` if they are equal or it is not
/// finite.
pub fn reflect(x: f32, lo: f32, hi: f32) -> f32 {
    let range = hi - lo;
    if range <= 0.0 || !x.is_finite() {
        return lo;
    }
    let (beyond, from, back) = match x {
        x if x < lo => (lo - x, lo, hi),
        x if x > hi => (x - hi, hi, lo),
        x => return x,
    };
    let times = (beyond / range).trunc();
    let rest = beyond - times * range;
    let toward = if back > from { 1.0 } else { -1.0 };
    if times % 2.0 == 0.0 { from + toward * rest } else { back - toward * rest }
}

/// A coordinate outside the border brought inside, where the padding says so.
pub fn bring_inside(x: f32, size: i64, padding: Padding, align_corners: bool) -> f32 {
    let (lo, hi) = border(size, align_corners);
    match padding {
        _ if x >= lo && x <= hi => x,
        Padding::Zeros => x,
        Padding::Border => x.clamp(0.0, (size as f32 - 1.0).max(0.0)),
        Padding::Reflection => reflect(x, lo, hi),
    }
}

/// The element that index `i` reads; `None` for zero.
pub fn element(i: i64, size: i64, padding: Padding, align_corners: bool) -> Option<i64> {
    match padding {
        _ if (0..size).contains(&i) => Some(i),
        _ if size == 0 => None,
        Padding::Zeros => None,
        Padding::Border => Some(i.clamp(0, size - 1)),
        Padding::Reflection => {
            let (lo, hi) = border(size, align_corners);
            Some((reflect(i as f32, lo, hi) as i64).clamp(0, size - 1))
        }
    }
}

/// Indices (perhaps outside the input) and weights that make the value at a coordinate of one dimension.
pub fn taps(how: Interpolation, x: f32) -> Vec<(i64, f64)> {
    let floor = x.floor();
    let (i, f) = (floor as i64, f64::from(x - floor));
    match how {
        Interpolation::Nearest => vec![(x.round_ties_even() as i64, 1.0)],
        Interpolation::Linear => vec![(i, 1.0 - f), (i.saturating_add(1), f)],
        Interpolation::Cubic => {
            let weights = cubic(f, -0.75);
            (0..4).map(|k| (i.saturating_add(k - 1), weights[k as usize])).collect()
        }
    }
}

/// Weights of cubic convolution for the elements at −1, 0, 1 and 2 and a coordinate `f` in 0..=1.
pub fn cubic(f: f64, a: f64) -> [f64; 4] {
    [cubic_kernel(f + 1.0, a), cubic_kernel(f, a), cubic_kernel(1.0 - f, a), cubic_kernel(2.0 - f, a)]
}

/// The kernel of cubic convolution (Keys 1981, equation 4) at a distance.
pub fn cubic_kernel(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

/// Calls `f(position, weight)` for all combinations of one tap a dimension; taps are (index or `None` for zero,
/// weight), positions row-major in a tensor of shape `size`. Combinations with a zero are left out.
pub fn for_each_combination(
    taps: &[impl AsRef<[(Option<i64>, f64)]>],
    size: &[usize],
    mut f: impl FnMut(usize, f64),
) {
    let counts: Vec<usize> = taps.iter().map(|t| t.as_ref().len()).collect();
    crate::util::for_each_index(&counts, |which| {
        let (mut position, mut weight) = (0, 1.0);
        for ((taps, &i), &n) in taps.iter().zip(which).zip(size) {
            let (Some(index), w) = taps.as_ref()[i] else { return };
            position = position * n + index as usize;
            weight *= w;
        }
        f(position, weight);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_of_normalized_coordinates() {
        for (n, size, aligned, edges) in [(-1.0, 5, 0.0, -0.5), (1.0, 5, 4.0, 4.5), (0.0, 4, 1.5, 1.5)] {
            assert_eq!((unnormalize(n, size, true), unnormalize(n, size, false)), (aligned, edges));
        }
        assert_eq!(unnormalize(f32::NAN, 5, true), 0.0);
    }

    /// The examples of the ONNX documentation: −3.5 reflected by −1 and 1.
    #[test]
    fn reflection_goes_back_and_forth() {
        assert_eq!(reflect(-3.5, -1.0, 1.0), 0.5);
        assert_eq!(reflect(1.25, -1.0, 1.0), 0.75);
        assert_eq!(reflect(5.0, 0.0, 4.0), 3.0);
        assert_eq!(reflect(9.0, 0.0, 4.0), 1.0);
        assert_eq!(reflect(3.0, 0.0, 0.0), 0.0);
        assert_eq!(reflect(f32::INFINITY, 0.0, 4.0), 0.0);
    }

    #[test]
    fn indices_outside() {
        let all = |p, align| (-3..7).map(|i| element(i, 4, p, align)).collect::<Vec<_>>();
        let some = |v: [i64; 10]| v.map(Some).to_vec();
        assert_eq!(all(Padding::Border, true), some([0, 0, 0, 0, 1, 2, 3, 3, 3, 3]));
        assert_eq!(all(Padding::Reflection, true), some([3, 2, 1, 0, 1, 2, 3, 2, 1, 0]));
        assert_eq!(all(Padding::Reflection, false), some([2, 1, 0, 0, 1, 2, 3, 3, 2, 1]));
        assert_eq!(all(Padding::Zeros, false)[2..5], [None, Some(0), Some(1)]);
    }

    #[test]
    fn weights_of_the_cubic_kernel() {
        assert_eq!(cubic(0.0, -0.75), [0.0, 1.0, 0.0, 0.0]);
        assert_eq!(cubic(0.5, -0.5), [-0.0625, 0.5625, 0.5625, -0.0625]);
        assert_eq!(cubic(0.5, -0.75), [-0.09375, 0.59375, 0.59375, -0.09375]);
    }
}
