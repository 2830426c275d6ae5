//! The backend object.

use crate::blob::Head;
use crate::dialect::CUDA;
use crate::exec::{CudaDevice, choices};
use crate::frame::{Source, cells, source};
use crate::kernels::generic_ns;
use crate::refusals::Refusals;
use crate::{compile, target, vendor};
use kiln_backend::{Backend, BackendError, Device, Region, Tactic, Target, flow};
use kiln_families::expression::slots;
use kiln_families::limits::fitting;
use kiln_families::site::{Site, unsupported};
use kiln_families::{Body, Kernel};
use std::sync::Arc;

/// The CUDA backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cuda;

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

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        if let Some(ways) = choices(region) {
            return Ok(ways);
        }
        let site = Site::of(&region.graph, target, &CUDA)?;
        let mut found = Vec::new();
        let mut why = Refusals::default();
        for k in site.kernels() {
            match (k.tactics)(&site).and_then(|t| fitting(&site, t)).and_then(|t| hashed(k, &site, t)) {
                Ok(t) => found.extend(t),
                Err(BackendError::Unsupported(reason)) => why.add(k.name, reason),
                Err(e) => return Err(e),
            }
        }
        let libraries = vendor::tactics(&site, &found, &mut why)?;
        found.extend(fitting(&site, libraries).unwrap_or_default());
        tell(region, &mut found, &why);
        match (found.is_empty(), why.is_empty()) {
            (false, _) => Ok(found),
            (true, false) => unsupported(why.to_string()),
            _ => unsupported(format!("no kernel for {}", region.label())),
        }
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        if tactic.name == flow::INTERPRETED {
            return Ok(Vec::new());
        }
        let site = Site::of(&region.graph, target, &CUDA)?;
        if let Some(blob) = vendor::compile(&site, tactic, target) {
            return blob;
        }
        let kernel = find(&tactic.name, &site)?;
        let source = text(&site, &kernel.body(&site, tactic)?, tactic)?;
        let cubin = compile::cubin(&source.text, &target.arch)?;
        Ok(source.head.blob(&cubin))
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        let (gpu, own) = target::opened(target)?;
        Ok(Arc::new(CudaDevice::new(gpu, own)?))
    }
}

/// The kernel of a tactic's name.
pub fn find(name: &str, site: &Site<'_>) -> Result<&'static Kernel, BackendError> {
    site.kernels().find(|k| k.name == name).ok_or_else(|| {
        BackendError::Incompatible(format!(
            "this backend has no tactic \"{name}\" for the region; build the plan again"
        ))
    })
}

/// The source of a kernel's text by a tactic.
fn text(site: &Site<'_>, body: &Body, tactic: &Tactic) -> Result<Source, BackendError> {
    source(site, body, cells(site, &slots(site, body), tactic))
}

/// Tactics whose source can be written, with the hash of it.
fn hashed(k: &Kernel, site: &Site<'_>, mut tactics: Vec<Tactic>) -> Result<Vec<Tactic>, BackendError> {
    for t in &mut tactics {
        let text = text(site, &k.body(site, t)?, t)?.text;
        t.estimate_ns = t.estimate_ns.or_else(|| generic_ns(site, k.name, site.target));
        t.source_hash = Tactic::hash_of(&text);
    }
    Ok(tactics)
}

/// The source of a region by a tactic, and its head: for tools and tests.
pub fn written(region: &Region, tactic: &Tactic, target: &Target) -> Result<(String, Head), BackendError> {
    let site = Site::of(&region.graph, target, &CUDA)?;
    let kernel = find(&tactic.name, &site)?;
    let source = text(&site, &kernel.body(&site, tactic)?, tactic)?;
    Ok((source.text, source.head))
}
