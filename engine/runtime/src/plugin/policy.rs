//! Rules for which libraries may be opened.

/// Rules for which libraries may be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Check of a library before it is opened.
    pub level: Level,
    /// Allow libraries in which a panic ends the process.
    pub allow_abort: bool,
    /// Allow libraries that need the CUDA driver.
    pub allow_cuda: bool,
}

/// Check of a library before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// None is opened.
    Off,
    /// A manifest beside it with its BLAKE3 hash.
    Manifest,
    /// A manifest, if it has one, fits.
    Any,
}

impl Default for Policy {
    /// Any library, unless its panics end the process.
    fn default() -> Policy {
        Policy { level: Level::Any, allow_abort: false, allow_cuda: true }
    }
}
