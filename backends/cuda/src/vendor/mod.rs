//! Tactics by libraries of the vendor, where they are there and asked for ("--tactic-sources cublaslt,cudnn").
//!
//! A plan with such a tactic names the library's version and the algorithm; it runs where that very version is. All
//! shapes are fixed when it is built.

mod convolution;
mod cublaslt;
mod cudnn;
mod library;
mod product;
mod tail;

use crate::driver::Gpu;
use crate::exec::{Library, Places};
use crate::refusals::Refusals;
use crate::target::{library, opened};
use kiln_backend::{BackendError, Tactic, Target, source_feature};
use kiln_codegen::site::Site;
use std::sync::Arc;

/// A library that offers tactics.
struct Source {
    /// Its name, with which its tactics begin; one of [`crate::target::LIBRARIES`].
    name: &'static str,
    tactics: fn(&Site<'_>) -> Result<Vec<Tactic>, BackendError>,
    /// The blob of a tactic, chosen on a device.
    compile: fn(&Site<'_>, &Tactic, &Arc<Gpu>) -> Result<Vec<u8>, BackendError>,
    load: fn(&Site<'_>, &[u8], &Arc<Gpu>) -> Result<Arc<dyn Library>, BackendError>,
}

const SOURCES: [Source; 2] = [
    Source { name: "cublaslt", tactics: product::tactics, compile: product::compile, load: product::load },
    Source {
        name: "cudnn",
        tactics: convolution::tactics,
        compile: convolution::compile,
        load: convolution::load,
    },
];

/// Number of algorithms that each library proposes for a region.
const RANKS: i64 = 3;

/// Scratch memory that a library may use, in bytes.
const WORKSPACE: usize = 32 << 20;

/// Tactics of the libraries that were asked for, and why others are not there. They are expected to take a little longer
/// than the best of this backend's own: worth timing, never taken untimed, as a library may refuse what it is to compile.
pub fn tactics(site: &Site<'_>, own: &[Tactic], why: &mut Refusals) -> Result<Vec<Tactic>, BackendError> {
    if site.side.is_some() {
        return Ok(Vec::new());
    }
    let best = own.iter().filter_map(|t| t.estimate_ns).min_by(f64::total_cmp);
    let mut found = Vec::new();
    for s in SOURCES.iter().filter(|s| site.target.has(&source_feature(s.name))) {
        match (s.tactics)(site) {
            Ok(t) => found.extend(t),
            Err(BackendError::Unsupported(reason)) => why.add(s.name, reason),
            Err(e) => return Err(e),
        }
    }
    for t in &mut found {
        t.estimate_ns = best.map(|ns| ns * (1.01 + 0.01 * rank(t) as f64));
    }
    Ok(found)
}

fn of(tactic: &Tactic) -> Option<&'static Source> {
    let name = library(tactic)?;
    SOURCES.iter().find(|s| s.name == name)
}

/// Compiles a library's tactic to its blob; `None` if the tactic belongs to no library.
pub fn compile(site: &Site<'_>, tactic: &Tactic, target: &Target) -> Option<Result<Vec<u8>, BackendError>> {
    let source = of(tactic)?;
    Some(opened(target).and_then(|(gpu, _)| (source.compile)(site, tactic, &gpu)))
}

/// Loads a library's step.
pub fn load(
    site: &Site<'_>,
    tactic: &Tactic,
    blob: &[u8],
    gpu: &Arc<Gpu>,
) -> Result<Arc<dyn Library>, BackendError> {
    let none = || BackendError::Internal(format!("\"{}\" is no tactic of a library", tactic.name));
    (of(tactic).ok_or_else(none)?.load)(site, blob, gpu)
}

/// A library's tactics for a region, one for each algorithm that it may propose.
fn ranked(name: &str, version: &str) -> Vec<Tactic> {
    let one =
        |rank: i64| Tactic { source_hash: version.to_owned(), ..Tactic::plain(name).with("rank", rank) };
    (0..RANKS).map(one).collect()
}

/// Index of the tactic's proposal among those of the library.
fn rank(tactic: &Tactic) -> usize {
    tactic.params.get("rank").copied().unwrap_or(0).clamp(0, RANKS) as usize
}

/// An anchor's inputs that must be there.
fn given(places: &Places, i: usize) -> Result<u64, BackendError> {
    let at = places.inputs.get(i).copied().flatten();
    at.ok_or_else(|| BackendError::Internal(format!("input {i} of a library's step has no place")))
}
