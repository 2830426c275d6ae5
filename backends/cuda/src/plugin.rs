//! Kernels of plug-in layers in CUDA C++.

use crate::compile;
use crate::exec::ROUNDS;
use crate::frame::launch_prelude;
use kiln_backend::launch::{NativeKernel, PluginKernel};
use kiln_backend::{BackendError, CompiledKernel, Region, Tactic, Target, host_layer};
use kiln_codegen::plugin;
use kiln_ops::plugin::kernel::Language;
use kiln_ops::plugin::native::NativeDevice;

/// Bindings whose addresses find room in a parameter.
const MOST_BINDINGS: usize = 256;

/// The tactics of a plug-in layer: its kernels, else the host; none of other regions.
pub fn tactics(region: &Region) -> Result<Option<Vec<Tactic>>, BackendError> {
    let Some(mut on_host) = host_layer::tactic(region) else { return Ok(None) };
    let g = &region.graph;
    let refuses = |k: &PluginKernel| {
        let count = plugin::bindings(g, k).len();
        let many =
            (count > MOST_BINDINGS).then(|| format!("{count} tensors, at most {MOST_BINDINGS} are possible"));
        many.or_else(|| k.block(g).err().map(|e| e.to_string()))
    };
    let (found, refused) = PluginKernel::tactics(region, Language::Cuda, refuses)?;
    let (natives, more) = NativeKernel::tactics(region, NativeDevice::Cuda)?;
    let found = [found, natives].concat();
    let refused = [refused, more].concat();
    if !found.is_empty() {
        return Ok(Some(found));
    }
    if !refused.is_empty() {
        on_host.note = format!("{}; {}", on_host.note, refused.join("; "));
    }
    Ok(Some(vec![on_host]))
}

/// The blob of a kernel of a plug-in layer; none of other tactics.
pub fn compile(region: &Region, tactic: &Tactic, target: &Target) -> Result<Option<Vec<u8>>, BackendError> {
    let g = &region.graph;
    if NativeKernel::find(g, tactic, NativeDevice::Cuda)?.is_some() {
        return NativeKernel::store().to_blob().map(Some);
    }
    let Some((text, kernel)) = text(region, tactic)? else { return Ok(None) };
    let block = kernel.block(g)?;
    let cubin = compile::cubin(&text, &target.arch)?;
    let entries = plugin::cuda_entries(&kernel, &block);
    let stored = kernel.store(g, tactic, ROUNDS, entries, plugin::bindings(g, &kernel), cubin.to_vec());
    CompiledKernel { arch: target.arch.clone(), shared: block.shared, ..stored }.to_blob().map(Some)
}

/// The text of a kernel of a plug-in layer; none of other tactics.
pub fn text(region: &Region, tactic: &Tactic) -> Result<Option<(String, PluginKernel)>, BackendError> {
    let g = &region.graph;
    let Some(kernel) = PluginKernel::find(g, tactic, Language::Cuda)? else { return Ok(None) };
    let block = kernel.block(g)?;
    let (prelude, head) = launch_prelude();
    Ok(Some((plugin::cuda(g, &kernel, &block, &prelude, &head), kernel)))
}
