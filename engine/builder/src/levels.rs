//! Optimization levels: how long a build may search for faster kernels.

use crate::BuildConfig;

/// Settings of a level.
struct Level {
    /// Take what the backend expects to be best, without timing.
    estimates: bool,
    /// Share times with other layers and builds.
    share_times: bool,
    /// Try formats of values and cuts of regions.
    search: bool,
    max_tactics: usize,
    estimate_limit: f64,
    samples: u32,
}

/// The levels, from 0 on.
const LEVELS: [Level; 6] = [
    Level {
        estimates: true,
        share_times: false,
        search: false,
        max_tactics: 1,
        estimate_limit: 1.0,
        samples: 1,
    },
    Level {
        estimates: true,
        share_times: true,
        search: true,
        max_tactics: 1,
        estimate_limit: 8.0,
        samples: 1,
    },
    Level {
        estimates: false,
        share_times: true,
        search: true,
        max_tactics: 2,
        estimate_limit: 2.0,
        samples: 3,
    },
    Level {
        estimates: false,
        share_times: true,
        search: true,
        max_tactics: 6,
        estimate_limit: 8.0,
        samples: 5,
    },
    Level {
        estimates: false,
        share_times: true,
        search: true,
        max_tactics: 16,
        estimate_limit: 32.0,
        samples: 5,
    },
    Level {
        estimates: false,
        share_times: true,
        search: true,
        max_tactics: usize::MAX,
        estimate_limit: f64::INFINITY,
        samples: 10,
    },
];

impl BuildConfig {
    /// The level that settings start with.
    pub const DEFAULT_LEVEL: usize = 3;

    /// Sets how much the build tries, from 0 (the fastest build) to 5 (the fastest engine). Levels above 5 count as 5.
    ///
    /// | level | choice of kernels | formats and cuts |
    /// |---|---|---|
    /// | 0 | the one that the backend expects to be best; no timing, and the timing cache is ignored | as formed |
    /// | 1 | as 0, but times of the timing cache count | chosen by expected times |
    /// | 2 | the faster of the two most promising, up to twice as long as the best | chosen by times |
    /// | 3 | the fastest of 6 that are expected to take at most 8 times as long as the best | chosen by times |
    /// | 4 | the fastest of 16, up to 32 times | chosen by times |
    /// | 5 | the fastest of all, by twice as many samples | chosen by times |
    ///
    /// It sets `estimates`, `share_times`, `search`, `max_tactics`, `estimate_limit` and `samples`.
    pub fn set_optimization_level(&mut self, level: usize) {
        let Some(l) = LEVELS.get(level.min(LEVELS.len() - 1)) else { return };
        self.estimates = l.estimates;
        self.share_times = l.share_times;
        self.search = l.search;
        self.max_tactics = l.max_tactics;
        self.estimate_limit = l.estimate_limit;
        self.samples = l.samples;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_level_is_that_of_default_settings() {
        let mut config = BuildConfig::default();
        config.set_optimization_level(0);
        assert!(config.estimates && !config.search && !config.share_times);
        config.set_optimization_level(BuildConfig::DEFAULT_LEVEL);
        assert_eq!(format!("{config:?}"), format!("{:?}", BuildConfig::default()));
        config.set_optimization_level(9);
        assert!(config.max_tactics == usize::MAX && config.samples == 10);
    }

    #[test]
    fn a_level_times_more_than_those_below() {
        for pair in LEVELS.windows(2).skip(1) {
            assert!(pair[0].max_tactics < pair[1].max_tactics && pair[0].samples <= pair[1].samples);
            assert!(pair[1].search && pair[0].search, "formats are tried from level 1 on");
        }
    }
}
