//! Pace of the work that the host puts in front of a device: as little as a run may be stopped within, as
//! much as keeps it busy.

use crate::BackendError;
use std::time::{Duration, Instant};

/// A batch that takes less is doubled, one that takes more than [`LONG`] is halved. Two batches are under way at most.
const SHORT: Duration = Duration::from_millis(4);
/// See [`SHORT`].
const LONG: Duration = Duration::from_millis(10);
/// Pieces of work in one batch at most, and in the first.
const MOST: usize = 1 << 12;
const FIRST: usize = 16;

/// Counts pieces of work and says when the host has to wait: for the batch before the last one. `T` is the device's mark
/// behind a batch.
#[derive(Debug)]
pub struct Pace<T> {
    at_once: usize,
    pending: usize,
    last: Option<T>,
    since: Option<Instant>,
}

impl<T> Default for Pace<T> {
    fn default() -> Pace<T> {
        Pace { at_once: FIRST, pending: 0, last: None, since: None }
    }
}

impl<T> Pace<T> {
    /// Forgets what is under way, as a run begins; batches stay as large as they are.
    pub fn restart(&mut self) {
        (self.pending, self.last, self.since) = (0, None, None);
    }

    /// Counts pieces of work; whether the batch is full, so that [`Pace::passed`] is due.
    pub fn is_due(&mut self, pieces: usize) -> bool {
        self.pending += pieces;
        self.pending >= self.at_once
    }

    /// Ends a batch: `mark` is behind it. Waits for the batch before it.
    pub fn passed(
        &mut self,
        mark: T,
        wait: impl FnOnce(T) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let pieces = std::mem::take(&mut self.pending);
        if let Some(before) = self.last.replace(mark) {
            wait(before)?;
        }
        let now = Instant::now();
        if let Some(since) = self.since.replace(now) {
            self.adjust(pieces, now - since);
        }
        Ok(())
    }

    /// The size of batches, after one of so many pieces took this time.
    fn adjust(&mut self, pieces: usize, took: Duration) {
        if took < SHORT && pieces >= self.at_once {
            self.at_once = (self.at_once * 2).min(MOST);
        } else if took > LONG {
            let fits = pieces as f64 * LONG.as_secs_f64() / (2.0 * took.as_secs_f64());
            self.at_once = (fits as usize).clamp(1, MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that takes this long for a piece: how much is under way once the batches have settled.
    fn settled(piece: Duration, batches: usize) -> (usize, Duration) {
        let mut pace = Pace::<()>::default();
        for _ in 0..batches {
            pace.adjust(pace.at_once, piece * pace.at_once as u32);
        }
        (pace.at_once, 2 * piece * pace.at_once as u32)
    }

    #[test]
    fn what_is_under_way_ends_within_25_ms() {
        for us in [1, 3, 10, 50, 77, 400, 1_000, 9_000, 12_000] {
            let (at_once, all) = settled(Duration::from_micros(us), 20);
            assert!(all <= Duration::from_millis(25), "{us} µs: {at_once} pieces take {all:?}");
            let busy = at_once == MOST || all >= Duration::from_millis(5);
            assert!(busy, "{us} µs: {at_once} pieces take {all:?}, too few to keep the device busy");
        }
        assert_eq!(settled(Duration::from_millis(300), 3).0, 1, "pieces are not cut");
    }

    #[test]
    fn the_batch_before_the_last_is_waited_for() {
        let (mut pace, mut waited) = (Pace::default(), Vec::new());
        for batch in 0..4 {
            assert!(pace.is_due(MOST));
            pace.passed(batch, |b| {
                waited.push(b);
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(waited, [0, 1, 2]);
        pace.restart();
        pace.passed(9, |b| {
            waited.push(b);
            Ok(())
        })
        .unwrap();
        assert_eq!(waited, [0, 1, 2]);
    }
}
