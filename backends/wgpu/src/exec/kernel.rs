//! Loading the kernels of a program.

use super::memory::{Buffer, Range};
use super::queue::WgpuQueue;
use crate::adapter::ALIGNMENT;
use crate::dialect::WGSL;
use crate::gpu::{Gpu, Module};
use crate::wgsl::{Head, Slot};
use kiln_backend::flow::Decisions;
use kiln_backend::launch::{NativeKernel, PlanLaunches, PluginKernel};
use kiln_backend::{BackendError, CompiledKernel, Region, Step, Target};
use kiln_codegen::planner::HostPlanner;
use kiln_codegen::site::Site;
use kiln_gpu::native::SharedState;
use kiln_gpu::{Compiled, Device, Kernels, SharedBuffers};
use kiln_ops::plugin::kernel::Language;
use kiln_ops::plugin::native::NativeDevice;
use std::collections::HashMap;
use std::sync::Arc;

impl Device for Gpu {
    type Buffer = Buffer;
    type Range = Range;
    type Notes = HashMap<usize, SharedState>;
    type HostCopy = ();
    type Queue = WgpuQueue;

    const KEEPS_REPLACED: bool = false;
    const BINDS_RANGES: bool = true;
    const ARENA_TAIL: u64 = ALIGNMENT;
    const WEIGHTS_CHUNK: u64 = 256 << 20;

    fn target(&self) -> &Target {
        &self.target
    }

    fn shared_weights(&self) -> &SharedBuffers<Buffer> {
        &self.weights
    }
}

/// Number of bindings that a module's text declares.
fn bindings(text: &str) -> Option<usize> {
    Some(Head::parse(text)?.bindings as usize)
}

/// The pipelines of a step and their bindings.
pub struct Code {
    /// None of a step that a plug-in's library runs.
    pub module: Option<Arc<Module>>,
    pub slots: Vec<Slot>,
    /// Runs the step in the place of kernels.
    pub native: Option<Arc<NativeKernel>>,
}

impl Code {
    /// Number of pieces in which the tensor of a slot is bound.
    pub fn pieces(&self, slot: Slot) -> usize {
        let same = |s: &&Slot| match (slot, **s) {
            (Slot::Input(a, _), Slot::Input(b, _))
            | (Slot::Extra(a, _), Slot::Extra(b, _))
            | (Slot::Output(a, _), Slot::Output(b, _)) => a == b,
            (a, b) => a == b,
        };
        self.slots.iter().filter(same).count()
    }
}

impl Kernels for Gpu {
    type Code = Code;

    const DECISIONS: Decisions = Decisions::All;

    fn load(&self, region: &Region, step: &Step) -> Result<Compiled<Code>, BackendError> {
        if let Some(native) = NativeKernel::find(&region.graph, &step.tactic, NativeDevice::Wgpu)? {
            let code = Code { module: None, slots: Vec::new(), native: Some(Arc::new(native)) };
            return Ok(Compiled { stored: NativeKernel::store(), code, planner: None });
        }
        let stored = CompiledKernel::from_blob(step.blob.as_slice())?;
        let text = std::str::from_utf8(&stored.code).map_err(|_| {
            BackendError::Incompatible(format!("step \"{}\": the blob has no text", step.name))
        })?;
        let module = self.module(text)?;
        let slots: Vec<Slot> = stored.bindings.iter().map(Slot::of).collect();
        if module.pipelines.len() != stored.entries.len() || Some(slots.len()) != bindings(text) {
            return Err(BackendError::Incompatible(format!(
                "step \"{}\": its blob is of another version of \"{}\"; build the plan again",
                step.name, step.tactic.name
            )));
        }
        let planner = planner(self, region, step, &stored)?;
        Ok(Compiled { stored, code: Code { module: Some(module), slots, native: None }, planner })
    }
}

/// The planner of launches that are not data.
fn planner(
    gpu: &Gpu,
    region: &Region,
    step: &Step,
    stored: &CompiledKernel,
) -> Result<Option<Box<dyn PlanLaunches>>, BackendError> {
    if stored.launches.as_ref().is_some_and(|p| p.fits(gpu.rounds)) {
        return Ok(None);
    }
    if let Some(kernel) = PluginKernel::find(&region.graph, &step.tactic, Language::Wgsl)? {
        return Ok(Some(Box::new(kernel)));
    }
    let site = Site::of(&region.graph, &gpu.target, &WGSL)?;
    let planner = HostPlanner::stored(stored, &step.tactic.name, &site).map_err(|e| match e {
        BackendError::Incompatible(why) => {
            BackendError::Incompatible(format!("layer \"{}\": {why}", step.name))
        }
        other => other,
    });
    Ok(Some(Box::new(planner?)))
}
