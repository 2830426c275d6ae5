//! Kernels of plug-in layers in WGSL.

use crate::gpu::rounds;
use crate::wgsl::HEADER_WORDS;
use kiln_backend::launch::{NativeKernel, PluginKernel};
use kiln_backend::{BackendError, Binding, Region, Tactic, Target, host_layer};
use kiln_codegen::plugin;
use kiln_ir::DType;
use kiln_ops::plugin::kernel::Language;
use kiln_ops::plugin::native::NativeDevice;

/// Names of the words in front of a kernel's parameters.
const HEAD: [&str; HEADER_WORDS] = ["kiln_count", "kiln_extra", "kiln_first", "kiln_end", "kiln_step"];

/// The tactics of a plug-in layer: its kernels, else the host; none of other regions.
pub fn tactics(region: &Region, target: &Target) -> Result<Option<Vec<Tactic>>, BackendError> {
    let Some(mut on_host) = host_layer::tactic(region) else { return Ok(None) };
    let refuses = |k: &PluginKernel| refusal(region, k, target);
    let (found, refused) = PluginKernel::tactics(region, Language::Wgsl, refuses)?;
    let (natives, more) = NativeKernel::tactics(region, NativeDevice::Wgpu)?;
    let (found, refused) = ([found, natives].concat(), [refused, more].concat());
    if !found.is_empty() {
        return Ok(Some(found));
    }
    if !refused.is_empty() {
        on_host.note = format!("{}; {}", on_host.note, refused.join("; "));
    }
    Ok(Some(vec![on_host]))
}

/// Why a device does not run a kernel.
fn refusal(region: &Region, kernel: &PluginKernel, target: &Target) -> Option<String> {
    let g = &region.graph;
    let count = plugin::bindings(g, kernel).len() as u64 + 1;
    let limit = target.numbers.get("storage_buffers").copied().unwrap_or(8);
    if count > limit {
        return Some(format!("{count} bindings of one kernel, the device has {limit}"));
    }
    let node = host_layer::layer(g)?;
    for &v in node.inputs.iter().flatten().chain(&node.outputs) {
        let ty = g.ty(v);
        if ty.dtype == DType::I64 && !target.has("i64") {
            return Some(format!("i64: {} has no 64-bit integers (SHADER_INT64)", target.device));
        }
        let bytes = ty.static_volume().and_then(|n| ty.dtype.bytes_for(n as u64)).unwrap_or(0);
        if bytes > target.memory.max_binding {
            return Some(format!(
                "a tensor {ty} of more bytes than one binding spans, {}",
                target.memory.max_binding
            ));
        }
    }
    None
}

/// The blob of a kernel of a plug-in layer; none of other tactics.
pub fn compile(region: &Region, tactic: &Tactic, target: &Target) -> Result<Option<Vec<u8>>, BackendError> {
    let g = &region.graph;
    if NativeKernel::find(g, tactic, NativeDevice::Wgpu)?.is_some() {
        return NativeKernel::store().to_blob().map(Some);
    }
    let Some(kernel) = PluginKernel::find(g, tactic, Language::Wgsl)? else { return Ok(None) };
    let mut bindings = vec![Binding::Arguments];
    bindings.extend(plugin::bindings(g, &kernel));
    let entries = plugin::wgsl_entries(&kernel);
    let names: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
    let text = plugin::wgsl(g, &kernel, &HEAD)?;
    check(&text, &names).map_err(|why| {
        BackendError::InvalidArgument(format!("kernel \"{}\" of the plug-in is no WGSL: {why}", tactic.name))
    })?;
    let text = format!("// kiln {} {}\n{text}", bindings.len(), names.join(" "));
    kernel.store(g, tactic, rounds(target), entries, bindings, text.into_bytes()).to_blob().map(Some)
}

/// Checks a module and that it has the entry points.
fn check(text: &str, entries: &[&str]) -> Result<(), String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string(text))?;
    if let Some(entry) = entries.iter().find(|e| module.entry_points.iter().all(|m| m.name != **e)) {
        return Err(format!("it has no function \"{entry}\" with @compute"));
    }
    let (flags, all) = (naga::valid::ValidationFlags::all(), naga::valid::Capabilities::all());
    let checked = naga::valid::Validator::new(flags, all).validate(&module);
    checked.map(drop).map_err(|e| e.emit_to_string(text))
}
