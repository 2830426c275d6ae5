//! Reading a broadcast input in the order of the output.

use kiln_ops::util::broadcast_strides;

/// Dimensions of the output, merged where the input allows, with the input's strides.
pub struct Walk {
    /// (size, stride), outermost first; never empty. The last stride is 0 or 1.
    dims: Vec<(usize, usize)>,
}

impl Walk {
    /// Walk over `shape` when it is broadcast to `to`.
    pub fn new(shape: &[usize], to: &[usize]) -> Walk {
        let mut dims: Vec<(usize, usize)> = Vec::new();
        for (&n, s) in to.iter().zip(broadcast_strides(shape, to)) {
            match dims.last_mut() {
                _ if n == 1 => {}
                Some(last) if last.1 == s * n => *last = (last.0 * n, s),
                _ => dims.push((n, s)),
            }
        }
        // A dimension of size one, or none at all, is read by filling.
        match dims.last() {
            Some(&(_, 0 | 1)) => {}
            _ => dims.push((1, 0)),
        }
        Walk { dims }
    }

    /// Whether the input has all elements of the output in their order.
    pub fn is_whole(&self) -> bool {
        matches!(self.dims[..], [(_, 1)])
    }

    /// The number of elements after which all of them come again, if they do.
    pub fn period(&self) -> Option<usize> {
        let again = self.dims.iter().take_while(|(_, stride)| *stride == 0).count();
        let rest = self.dims[again..].iter().map(|(n, _)| n).product();
        (again > 0 || self.dims.len() == 1).then_some(rest)
    }

    /// Elements that follow each other, or are one, before others come.
    pub fn stretch(&self) -> usize {
        self.dims.last().map_or(1, |(n, _)| *n)
    }

    /// Whether the neighbours of a stretch are one element.
    pub fn is_constant(&self) -> bool {
        matches!(self.dims.last(), Some((_, 0)))
    }

    /// Calls `f(at, from, len, step)` for each run of output elements `start + at ..+ len` that is the input's elements
    /// from `from` on, `step` (0 or 1) apart.
    pub fn segments(&self, start: usize, n: usize, mut f: impl FnMut(usize, usize, usize, usize)) {
        let Some((&(inner, step), outer)) = self.dims.split_last() else { return };
        let mut at = 0;
        while at < n {
            let (mut row, x) = ((start + at) / inner, (start + at) % inner);
            let mut from = x * step;
            for &(size, stride) in outer.iter().rev() {
                from += row % size * stride;
                row /= size;
            }
            let len = (inner - x).min(n - at);
            f(at, from, len, step);
            at += len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_all_elements_are_whole() {
        let whole = |shape: &[usize], to: &[usize]| Walk::new(shape, to).is_whole();
        assert!(whole(&[2, 3], &[2, 3]) && whole(&[3], &[1, 3]));
        assert!(!whole(&[3], &[2, 3]) && !whole(&[2, 1], &[2, 3]) && !whole(&[1], &[1]));
    }

    #[test]
    fn lines_come_again() {
        let period = |shape: &[usize], to: &[usize]| Walk::new(shape, to).period();
        assert_eq!(period(&[5], &[2, 3, 5]), Some(5));
        assert_eq!(period(&[1, 1], &[4, 6]), Some(1));
        assert_eq!(period(&[2, 3], &[2, 3]), Some(6));
        assert_eq!(period(&[3, 1], &[2, 3, 4]), Some(12));
        assert_eq!(period(&[3, 1], &[3, 4]), None);
        assert_eq!(period(&[2, 1, 5], &[2, 3, 5]), None);
    }
    use kiln_ops::util::{for_each_index, offset};

    #[test]
    fn every_element_is_read_once_from_the_right_place() {
        for (shape, to) in [
            (&[3usize, 1, 5][..], &[2usize, 3, 4, 5][..]),
            (&[1, 4, 1], &[2, 4, 3]),
            (&[], &[2, 3]),
            (&[2, 3, 4], &[2, 3, 4]),
            (&[7], &[3, 7]),
            (&[2, 1], &[2, 6]),
            (&[1], &[1]),
        ] {
            let strides = broadcast_strides(shape, to);
            let mut wanted = Vec::new();
            for_each_index(to, |at| wanted.push(offset(at, &strides)));
            let walk = Walk::new(shape, to);
            for chunk in [1, 4, 7] {
                let mut found = Vec::new();
                for start in (0..wanted.len()).step_by(chunk) {
                    walk.segments(start, chunk.min(wanted.len() - start), |_, from, len, step| {
                        found.extend((0..len).map(|i| from + i * step));
                    });
                }
                assert_eq!(found, wanted, "{shape:?} to {to:?}");
            }
        }
    }
}
