//! From CUDA C++ to cubins, or to PTX for all later architectures: NVRTC, behind a cache in memory and on disk.

mod cache;
mod nvrtc;
mod resources;

pub use nvrtc::{CompileError, Nvrtc};
pub use resources::{Resources, resources};

use std::sync::Arc;

/// Options of every compilation. Products and sums are fused only where the source says so, so that every
/// backend computes the same.
const OPTIONS: [&str; 2] = ["--std=c++20", "--fmad=false"];

/// Options for an architecture ("sm_90a", "sm_80+"), and those of KILN_NVRTC_OPTIONS: `-lineinfo` for profilers, `-DWATCHED` for racecheck.
fn options(arch: &str) -> Vec<String> {
    let architecture = match arch.strip_prefix("sm_").and_then(|a| a.strip_suffix('+')) {
        Some(least) => format!("compute_{least}"),
        None => arch.to_owned(),
    };
    let mut all = vec![format!("--gpu-architecture={architecture}")];
    all.extend(OPTIONS.map(str::to_owned));
    all.extend(
        std::env::var("KILN_NVRTC_OPTIONS").iter().flat_map(|v| v.split_whitespace()).map(str::to_owned),
    );
    all
}

/// The cubin of a source for an architecture, or its PTX if later architectures run it, too. Equal arguments give equal bytes.
pub fn cubin(source: &str, arch: &str) -> Result<Arc<[u8]>, CompileError> {
    let options = options(arch);
    let key = |version| cache::key(version, &options, source);
    match Nvrtc::get() {
        Ok(nvrtc) => cache::get(&key(nvrtc.version()), || Ok(nvrtc.compile(source, &options)?.code)),
        // Where there is no compiler, what another machine compiled is as good.
        Err(missing) => VERSIONS.into_iter().find_map(|v| cache::known(&key(v))).ok_or(missing),
    }
}

/// Compilers whose cubins may lie in the cache of a machine without one, the latest first.
const VERSIONS: [(i32, i32); 13] = [
    (13, 3),
    (13, 2),
    (13, 1),
    (13, 0),
    (12, 9),
    (12, 8),
    (12, 6),
    (12, 5),
    (12, 4),
    (12, 3),
    (12, 2),
    (12, 1),
    (12, 0),
];

/// From this version on NVRTC has a cache of its own, where there is a driver; what it takes from there comes without words.
const KEEPS_CUBINS: (i32, i32) = (12, 9);

/// The cubin, compiled anew, with the compiler's words about registers, shared memory and spills.
pub fn explain(source: &str, arch: &str) -> Result<nvrtc::Compiled, CompileError> {
    let nvrtc = Nvrtc::get()?;
    let mut options = options(arch);
    options.push("--ptxas-options=-v".into());
    if nvrtc.version() >= KEEPS_CUBINS {
        options.push("--no-cache".into());
    }
    nvrtc.compile(source, &options)
}
