//! From CUDA C++ to cubins: NVRTC, behind a cache in memory and on disk.

mod cache;
mod nvrtc;
mod resources;

pub use nvrtc::{CompileError, Nvrtc};
pub use resources::{Resources, resources};

use std::sync::Arc;

/// What every kernel is compiled with. Products and sums are fused only where the source says so, so that every backend
/// computes the same.
const OPTIONS: [&str; 2] = ["--std=c++20", "--fmad=false"];

/// Options for an architecture ("sm_90a").
fn options(arch: &str) -> Vec<String> {
    let mut all = vec![format!("--gpu-architecture={arch}")];
    all.extend(OPTIONS.map(str::to_owned));
    all
}

/// The cubin of a source for an architecture. Equal arguments give equal bytes.
pub fn cubin(source: &str, arch: &str) -> Result<Arc<[u8]>, CompileError> {
    let nvrtc = Nvrtc::get()?;
    let options = options(arch);
    let key = cache::key(nvrtc.version(), &options, source);
    cache::get(&key, || Ok(nvrtc.compile(source, &options)?.cubin))
}

/// The cubin, compiled anew, with the compiler's words about registers, shared memory and spills.
pub fn explain(source: &str, arch: &str) -> Result<nvrtc::Compiled, CompileError> {
    let mut options = options(arch);
    options.push("--ptxas-options=-v".into());
    Nvrtc::get()?.compile(source, &options)
}
