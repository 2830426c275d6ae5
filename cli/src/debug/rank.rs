//! Layers by the error that each adds, and the least number of them that must stay wide.

/// A layer with the error of what it makes, and of what it reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    pub layer: String,
    /// Root of the mean squared difference, relative to that of the wanted values.
    pub error: f64,
    /// The error beyond that of what it reads.
    pub added: f64,
}

/// Relative error of values that were found.
pub fn error(found: &[f64], wanted: &[f64]) -> f64 {
    let square = |x: f64| x * x;
    let both = found.iter().zip(wanted);
    let off: f64 =
        both.map(|(f, w)| if f == w || (f.is_nan() && w.is_nan()) { 0.0 } else { square(f - w) }).sum();
    let size: f64 = wanted.iter().filter(|w| w.is_finite()).map(|w| square(*w)).sum();
    match off {
        0.0 => 0.0,
        o if o.is_finite() && size > 0.0 => (o / size).sqrt(),
        _ => f64::INFINITY,
    }
}

/// Puts the layers that add most first; of equal ones the earlier.
pub fn sort(layers: &mut [Ranked]) {
    layers.sort_by(|a, b| b.added.total_cmp(&a.added));
}

/// The least number of layers from the front whose set is good, by halves; `None` if even all are not. The set of none is asked
/// about first.
pub fn least<E>(count: usize, mut is_good: impl FnMut(usize) -> Result<bool, E>) -> Result<Option<usize>, E> {
    if is_good(0)? {
        return Ok(Some(0));
    }
    if count == 0 || !is_good(count)? {
        return Ok(None);
    }
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if is_good(middle)? { high = middle } else { low = middle }
    }
    Ok(Some(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_and_layers_that_add_most_come_first() {
        assert_eq!(error(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        assert_eq!(error(&[3.0, 5.0], &[3.0, 4.0]), 0.2);
        assert_eq!(error(&[f64::NAN], &[1.0]), f64::INFINITY);
        assert_eq!(error(&[1.0], &[0.0]), f64::INFINITY);
        let one = |layer: &str, added: f64| Ranked { layer: layer.into(), error: added, added };
        let mut all = [one("a", 0.1), one("b", 0.5), one("c", f64::INFINITY), one("d", 0.5)];
        sort(&mut all);
        assert_eq!(all.map(|r| r.layer), ["c", "b", "d", "a"]);
    }

    #[test]
    fn the_least_number_is_found_by_few_questions() {
        let mut asked = 0;
        let mut least_of = |count: usize, from: usize| {
            least(count, |n| {
                asked += 1;
                Ok::<_, ()>(n >= from)
            })
            .unwrap()
        };
        assert_eq!(
            [least_of(9, 0), least_of(9, 5), least_of(9, 9), least_of(9, 10), least_of(0, 1)],
            [Some(0), Some(5), Some(9), None, None]
        );
        assert!(asked <= 1 + 6 + 6 + 2 + 1, "{asked}");
    }
}
