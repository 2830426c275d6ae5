//! Times of the phases of a refit.

use std::fmt;
use std::time::{Duration, Instant};

/// The time that each phase of a refit took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefitTimes {
    /// Waiting for other refits, checks of completeness, and reading what is on the device.
    pub read: Duration,
    /// Recipes of derived weights.
    pub derived: Duration,
    /// Checks of the new weights, and of shapes and types that follow from them.
    pub checked: Duration,
    /// Loading on the device, for refits of engines.
    pub loaded: Duration,
}

impl RefitTimes {
    /// The time of all phases.
    pub fn total(&self) -> Duration {
        self.read + self.derived + self.checked + self.loaded
    }
}

impl fmt::Display for RefitTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |t: Duration| t.as_secs_f64() * 1e3;
        write!(
            f,
            "read {:.1} ms, derived {:.1} ms, checked {:.1} ms, loaded {:.1} ms",
            ms(self.read),
            ms(self.derived),
            ms(self.checked),
            ms(self.loaded)
        )
    }
}

/// Time since the last lap.
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(super) fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.0, now))
    }
}
