//! Traces of runs and builds, as Perfetto reads them.

pub mod builds;
mod proto;
pub mod runs;
mod writer;

/// Reads a name of a file for a trace.
pub fn path(text: &str) -> Result<std::path::PathBuf, String> {
    if text.is_empty() { Err("wanted the name of a file".into()) } else { Ok(text.into()) }
}
