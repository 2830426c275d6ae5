//! The backend object.

use crate::adapter::probe;
use crate::dialect::WGSL;
use crate::exec::WgpuDevice;
use crate::gpu::{Gpu, rounds};
use crate::plugin;
use crate::wgsl::{Head, Slot, check_bindings, lanes, module, slots};
use kiln_backend::{Backend, BackendError, CompiledKernel, Device, Region, Tactic, Target, flow, host_layer};
use kiln_codegen::Kernel;
use kiln_codegen::compiled::compiled;
use kiln_codegen::planned::Planned;
use kiln_codegen::planner::find;
use kiln_codegen::site::{Site, unsupported};
use kiln_ir::DType;
use std::sync::Arc;

/// Identifies the kernel files and the code that kernels' texts are written from; their times are those of these sources.
const SOURCES: &str = env!("KILN_KERNEL_SOURCES");

/// The WGSL backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wgpu;

impl Wgpu {
    /// The backend; devices are looked for when they are asked for.
    pub fn new() -> Result<Wgpu, BackendError> {
        Ok(Wgpu)
    }
}

impl Backend for Wgpu {
    fn name(&self) -> &str {
        "wgpu"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        Ok(probe()?.into_iter().map(|(_, t)| t).collect())
    }

    fn supports(&self, region: &Region, target: &Target) -> Result<(), BackendError> {
        if flow::tactic(region).is_some() || host_layer::layer(&region.graph).is_some() {
            return Ok(());
        }
        let site = Site::of(&region.graph, target, &WGSL)?;
        check_types(&site)?;
        let mut why = Vec::new();
        for k in site.kernels() {
            match offers(k, &site) {
                Ok(t) if t.is_empty() => {}
                Ok(_) => return Ok(()),
                Err(BackendError::Unsupported(reason)) => why.push(format!("{}: {reason}", k.name)),
                Err(e) => return Err(e),
            }
        }
        none(region, &why)
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        if let Some(walked) = flow::tactic(region) {
            return Ok(vec![walked]);
        }
        if let Some(found) = plugin::tactics(region, target)? {
            return Ok(found);
        }
        let site = Site::of(&region.graph, target, &WGSL)?;
        check_types(&site)?;
        let mut found = Vec::new();
        let mut why = Vec::new();
        for k in site.kernels() {
            match offers(k, &site) {
                Ok(t) => found.extend(t),
                Err(BackendError::Unsupported(reason)) => why.push(format!("{}: {reason}", k.name)),
                Err(e) => return Err(e),
            }
        }
        if found.is_empty() {
            return none(region, &why);
        }
        let cost = |t: &Tactic| t.estimate_ns.unwrap_or(f64::INFINITY);
        found.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        found.iter_mut().for_each(|t| t.source_hash = SOURCES.to_owned());
        Ok(found)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        if [flow::INTERPRETED, host_layer::ON_HOST].contains(&&*tactic.name) {
            return Ok(Vec::new());
        }
        if let Some(blob) = plugin::compile(region, tactic, target)? {
            return Ok(blob);
        }
        let site = Site::of(&region.graph, target, &WGSL)?;
        let kernel = find(&tactic.name, &site)?;
        let body = kernel.body(&site, tactic)?;
        let text = module(&site, &body)?;
        let bindings = slots(&site, &body).iter().map(Slot::binding).collect();
        let named = Head::parse(&text).map(|h| h.entries).unwrap_or_default();
        // A workgroup's threads are in the text.
        let entries = named.into_iter().map(|name| (name, 0)).collect();
        let compiled = compiled(&body, entries, bindings, 0, text.into_bytes());
        let (lanes, ranges) = (lanes(&site, &body), region.ranges.as_deref());
        Planned::of(kernel, &site, tactic, lanes, rounds(target), ranges)?.store(compiled).to_blob()
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        let found = probe()?.into_iter().find(|(_, t)| target.is_device(t));
        let (adapter, own) = found.ok_or_else(|| {
            BackendError::Incompatible(format!(
                "no adapter here is the target {} ({})",
                target.device, target.arch
            ))
        })?;
        Ok(Arc::new(WgpuDevice::new(Gpu::open(&adapter, own)?)))
    }
}

/// The text of a kernel's blob: for tools and tests.
pub fn text_of(blob: &[u8]) -> Result<String, BackendError> {
    String::from_utf8(CompiledKernel::from_blob(blob)?.code)
        .map_err(|_| BackendError::Incompatible("a blob without text; build the plan again".into()))
}

/// Plans the launches of a region's kernel: for tools and tests.
pub fn planned(region: &Region, tactic: &Tactic, target: &Target) -> Result<Planned, BackendError> {
    let site = Site::of(&region.graph, target, &WGSL)?;
    let (kernel, ranges) = (find(&tactic.name, &site)?, region.ranges.as_deref());
    let lanes = lanes(&site, &kernel.outline(&site, tactic)?);
    Planned::of(kernel, &site, tactic, lanes, rounds(target), ranges)
}

/// Every type that a kernel of it touches must be one that the device can hold.
fn check_types(site: &Site<'_>) -> Result<(), BackendError> {
    let (graph, target) = (site.graph, site.target);
    let inputs = graph.inputs.iter().copied();
    let results = graph.nodes().flat_map(|(_, n)| n.outputs.clone());
    let wide = inputs.chain(results).any(|v| graph.ty(v).dtype == DType::I64);
    if wide && !target.has("i64") {
        return unsupported(format!("i64: {} has no 64-bit integers (SHADER_INT64)", target.device));
    }
    Ok(())
}

/// A kernel's tactics whose bindings the device has.
fn offers(k: &Kernel, site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let found = k.offers(site)?;
    for t in &found {
        check_bindings(k, site, t)?;
    }
    Ok(found)
}

/// The refusal of a region that no kernel runs.
fn none<T>(region: &Region, why: &[String]) -> Result<T, BackendError> {
    match why.is_empty() {
        true => unsupported(format!("no kernel for {}", region.label())),
        false => unsupported(why.join("; ")),
    }
}
