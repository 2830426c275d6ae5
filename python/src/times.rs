//! Timing caches in memory: their entries, union of two, and tactics that are pinned.

use crate::errors::argument;
use kiln::cache::TimingCache;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The key of an entry, and its tactics with their times in nanoseconds.
type Entry = (String, Vec<(String, f64)>);

fn read(data: &[u8]) -> PyResult<TimingCache> {
    if data.is_empty() { Ok(TimingCache::new()) } else { TimingCache::from_bytes(data).map_err(argument) }
}

/// The entries of a timing cache: key, and tactics with their median time in nanoseconds.
#[pyfunction]
fn timing_cache_entries(data: &[u8]) -> PyResult<Vec<Entry>> {
    let cache = read(data)?;
    let times = |(key, entry): (&str, &kiln::cache::Entry)| {
        let candidates = entry.candidates.iter().map(|(name, c)| (name.clone(), c.median())).collect();
        (key.to_owned(), candidates)
    };
    Ok(cache.iter().map(times).collect())
}

/// The union of two timing caches; of samples of the same tactic all count.
#[pyfunction]
fn merge_timing_caches<'py>(py: Python<'py>, one: &[u8], other: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let mut cache = read(one)?;
    cache.merge(&read(other)?);
    Ok(PyBytes::new(py, &cache.to_bytes()))
}

/// The cache with a tactic pinned for a key; `None`: the fastest again.
#[pyfunction]
#[pyo3(signature = (data, key, tactic))]
fn pin_tactic<'py>(
    py: Python<'py>,
    data: &[u8],
    key: &str,
    tactic: Option<&str>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut cache = read(data)?;
    cache.pin(key, tactic).map_err(argument)?;
    Ok(PyBytes::new(py, &cache.to_bytes()))
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(timing_cache_entries, m)?)?;
    m.add_function(wrap_pyfunction!(merge_timing_caches, m)?)?;
    m.add_function(wrap_pyfunction!(pin_tactic, m)?)
}
