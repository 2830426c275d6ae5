//! The backend object.

use crate::dialect::CUDA;
use crate::exec::{CudaDevice, ROUNDS, choices};
use crate::frame::{Source, cells, source};
use crate::kernels::generic_ns;
use crate::refusals::Refusals;
use crate::written::{Families, all_lanes};
use crate::{compile, plugin, target, vendor};
use kiln_backend::{Backend, BackendError, CompiledKernel, Device, Region, Tactic, Target, flow, host_layer};
use kiln_codegen::compiled::{binding, compiled};
use kiln_codegen::expression::slots;
use kiln_codegen::limits::fitting;
use kiln_codegen::planned::Planned;
use kiln_codegen::planner::find;
use kiln_codegen::site::{Site, unsupported};
use std::sync::Arc;

/// The CUDA backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cuda;

/// Identifies the kernel files and the code that kernels' texts are written from; their times are those of these sources.
const SOURCES: &str = env!("KILN_KERNEL_SOURCES");

/// Names a known GPU to build for instead of those that are here.
const TARGET: &str = "KILN_CUDA_TARGET";

impl Cuda {
    /// The backend; driver and compiler are looked for when they are needed.
    pub fn new() -> Result<Cuda, BackendError> {
        Ok(Cuda)
    }
}

/// Says which kernels were refused: in the report, where a recurrence is left with the one that reads its weights at each
/// step.
fn tell(region: &Region, found: &mut [Tactic], why: &Refusals) {
    if why.is_empty() {
        return;
    }
    tracing::debug!("{}: {why}", region.label());
    if let [only] = found
        && only.name == "recurrent"
    {
        only.note = format!("reads its recurrent weights at each step, not once, which is slower: {why}");
    }
}

impl Backend for Cuda {
    fn name(&self) -> &str {
        "cuda"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        if let Some(name) = std::env::var_os(TARGET).filter(|n| !n.is_empty()) {
            return Ok(vec![target::known(&name.to_string_lossy())?]);
        }
        Ok(target::found()?.into_iter().map(|(_, t)| t).collect())
    }

    fn supports(&self, region: &Region, target: &Target) -> Result<(), BackendError> {
        if choices(region).is_some() || host_layer::layer(&region.graph).is_some() {
            return Ok(());
        }
        let site = Site::of(&region.graph, target, &CUDA)?;
        let mut why = Refusals::default();
        for k in site.kernels() {
            match k.offers(&site) {
                Ok(t) if t.is_empty() => {}
                Ok(_) => return Ok(()),
                Err(BackendError::Unsupported(reason)) => why.add(k.name, reason),
                Err(e) => return Err(e),
            }
        }
        match of_libraries(&site, &[], &mut why)?.is_empty() {
            true => none(region, &why),
            false => Ok(()),
        }
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        if let Some(ways) = choices(region) {
            return Ok(ways);
        }
        if let Some(found) = plugin::tactics(region)? {
            return Ok(found);
        }
        let site = Site::of(&region.graph, target, &CUDA)?;
        let mut found = Vec::new();
        let mut why = Refusals::default();
        for k in site.kernels() {
            match k.offers(&site) {
                Ok(mut tactics) => {
                    for t in &mut tactics {
                        t.estimate_ns = t.estimate_ns.or_else(|| generic_ns(&site, k.name, site.target));
                        t.source_hash = SOURCES.to_owned();
                    }
                    found.append(&mut tactics);
                }
                Err(BackendError::Unsupported(reason)) => why.add(k.name, reason),
                Err(e) => return Err(e),
            }
        }
        let libraries = of_libraries(&site, &found, &mut why)?;
        found.extend(libraries);
        tell(region, &mut found, &why);
        match found.is_empty() {
            true => none(region, &why),
            false => Ok(found),
        }
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        if [flow::INTERPRETED, host_layer::ON_HOST].contains(&&*tactic.name) {
            return Ok(Vec::new());
        }
        if let Some(blob) = plugin::compile(region, tactic, target)? {
            return Ok(blob);
        }
        let site = Site::of(&region.graph, target, &CUDA)?;
        if let Some(blob) = vendor::compile(&site, tactic, target) {
            return blob;
        }
        let kernel = find(&tactic.name, &site)?;
        let body = kernel.body(&site, tactic)?;
        let cells = cells(&site, &slots(&site, &body), tactic);
        let Source { text, entries, slots } = source(&site, &body, cells)?;
        let cubin = compile::cubin(&text, &target.arch)?;
        let bindings = slots.iter().map(binding).collect();
        let compiled = CompiledKernel {
            arch: target.arch.clone(),
            ..compiled(&body, entries, bindings, cells, cubin.to_vec())
        };
        let ranges = region.ranges.as_deref();
        Planned::of(kernel, &site, tactic, all_lanes(&site), ROUNDS, ranges)?.store(compiled).to_blob()
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        let (gpu, own) = target::opened(target)?;
        Ok(Arc::new(CudaDevice::new(gpu, own, Some(&Families))?))
    }
}

/// Tactics of the libraries that were asked for, beside those of own kernels.
fn of_libraries(site: &Site<'_>, own: &[Tactic], why: &mut Refusals) -> Result<Vec<Tactic>, BackendError> {
    Ok(fitting(site, vendor::tactics(site, own, why)?).unwrap_or_default())
}

/// The refusal of a region that nothing runs.
fn none<T>(region: &Region, why: &Refusals) -> Result<T, BackendError> {
    match why.is_empty() {
        true => unsupported(format!("no kernel for {}", region.label())),
        false => unsupported(why.to_string()),
    }
}

/// Plans the launches of a region's kernel: for tools and tests.
pub fn planned(region: &Region, tactic: &Tactic, target: &Target) -> Result<Planned, BackendError> {
    let site = Site::of(&region.graph, target, &CUDA)?;
    Planned::of(find(&tactic.name, &site)?, &site, tactic, all_lanes(&site), ROUNDS, region.ranges.as_deref())
}

/// The source of a region by a tactic, and its entry points with the threads of their blocks: for tools and tests.
pub fn written(
    region: &Region,
    tactic: &Tactic,
    target: &Target,
) -> Result<(String, Vec<(String, u32)>), BackendError> {
    if let Some((text, kernel)) = plugin::text(region, tactic)? {
        let entries = kiln_codegen::plugin::cuda_entries(&kernel, &kernel.block(&region.graph)?);
        return Ok((text, entries.into_iter().map(|e| (e.name, e.threads)).collect()));
    }
    let site = Site::of(&region.graph, target, &CUDA)?;
    let body = find(&tactic.name, &site)?.body(&site, tactic)?;
    let source = source(&site, &body, cells(&site, &slots(&site, &body), tactic))?;
    Ok((source.text, source.entries))
}
