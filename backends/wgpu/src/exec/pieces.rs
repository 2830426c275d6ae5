//! The dispatches of a run that may be stopped, cut into pieces that the device does in a short time.

use std::ops::Range;
use std::time::Duration;

/// A piece takes no longer, as far as that is known.
const MOST: Duration = Duration::from_millis(10);
/// Dispatches of a piece that was never timed.
const UNKNOWN: usize = 4;

/// Times of dispatches, as far as they are known.
#[derive(Default)]
pub struct Pieces(Vec<Duration>);

impl Pieces {
    /// The end of the piece that begins with dispatch `from` of `count`.
    pub fn end(&self, from: usize, count: usize) -> usize {
        let mut sum = Duration::ZERO;
        let known = self.0.get(from..).unwrap_or_default().iter();
        let fits = known.take_while(|t| {
            sum += **t;
            sum <= MOST
        });
        let end = match from + fits.count() {
            // One dispatch is not cut.
            end if end < self.0.len() => end.max(from + 1),
            end => end + UNKNOWN,
        };
        end.min(count)
    }

    /// A piece took this long.
    pub fn took(&mut self, piece: Range<usize>, all: Duration) {
        let each = all / piece.len().max(1) as u32;
        self.0.resize(self.0.len().max(piece.end), each);
        self.0[piece].fill(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn all(p: &Pieces, count: usize) -> Vec<usize> {
        let mut ends = vec![0];
        while ends[ends.len() - 1] < count {
            ends.push(p.end(ends[ends.len() - 1], count));
        }
        ends
    }

    #[test]
    fn pieces_are_as_long_as_they_may_be() {
        let mut p = Pieces::default();
        assert_eq!(all(&p, 10), [0, 4, 8, 10]);
        p.took(0..4, 4 * MS);
        p.took(4..8, 120 * MS);
        assert_eq!(all(&p, 10), [0, 4, 5, 6, 7, 8, 10]);
        p.took(8..10, 50 * MS);
        assert_eq!(all(&p, 10), [0, 4, 5, 6, 7, 8, 9, 10]);
        let mut short = Pieces::default();
        short.took(0..100, 30 * MS);
        assert_eq!(all(&short, 100), [0, 33, 66, 99, 100]);
    }
}
