//! What a context does about the bodies of its steps of control flow: walks them, and asks them for faults and times.

use super::context::WgpuContext;
use super::device::Loaded;
use super::flow::{Bodies, Value};
use super::memory::Range;
use super::record::Stamps;
use kiln_backend::assisted::DECISIONS;
use kiln_backend::{BackendError, HostStep, Shapes, StepTime, flow};
use kiln_ir::ValueId;
use std::sync::Arc;

impl WgpuContext {
    /// Where the steps of this program, and of the bodies in it, tell of their faults.
    pub(super) fn faults(&mut self) -> Result<Vec<(Range, Arc<Loaded>)>, BackendError> {
        let mut all = Vec::new();
        let loaded = self.loaded.clone();
        if loaded.steps.iter().any(|s| !s.checks.is_empty()) {
            all.push((self.memory.faults(&loaded.gpu, loaded.steps.len())?, loaded));
        }
        for b in self.bodies.iter_mut().flatten() {
            all.extend(b.faults()?);
        }
        Ok(all)
    }

    /// Walks a step of control flow, its values on the device.
    pub(super) fn walk(&mut self, shapes: &mut Shapes, step: usize) -> Result<(), BackendError> {
        let loaded = self.loaded.clone();
        let (node, ids) = flow::walked(&loaded.program, step)?;
        let mut inputs = Vec::with_capacity(ids.len());
        for v in ids {
            let known = shapes.content(&loaded.program.graph, v);
            inputs.push(Value { ty: shapes.fact(v).ty.clone(), at: self.place(shapes, v)?.0, known });
        }
        let mut bodies = self.bodies.get_mut(step).and_then(Option::take).ok_or_else(|| flow::lost(step))?;
        let before = bodies.counters().host_syncs;
        let done = bodies.walk(self, shapes, node, &inputs);
        if bodies.counters().host_syncs > before {
            HostStep::add(&mut self.assisted, step, DECISIONS);
        }
        if let Some(slot) = self.bodies.get_mut(step) {
            *slot = Some(bodies);
        }
        done.map_err(|e| e.inside(&loaded.program.steps[step].name))
    }

    /// Where an output of control flow goes that came out in this shape.
    pub(super) fn place_as(
        &mut self,
        shapes: &mut Shapes,
        v: ValueId,
        shape: &[usize],
    ) -> Result<Range, BackendError> {
        shapes.came_out(&self.loaded.program.graph, v, shape)?;
        Ok(self.place(shapes, v)?.0)
    }

    /// Makes the timestamps, if they are asked for.
    pub(super) fn prepare_stamps(&mut self) -> Result<(), BackendError> {
        if self.timing && self.stamps.is_none() && !self.loaded.steps.is_empty() {
            self.stamps = Some(Stamps::new(&self.loaded.gpu, self.loaded.steps.len())?);
        }
        Ok(())
    }

    /// Times of the steps of the last run, those of bodies left out.
    pub(super) fn own_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        let loaded = self.loaded.clone();
        match &self.stamps {
            Some(s) => s.read(&loaded.gpu, &mut self.memory),
            None if loaded.gpu.timestamps => Ok(Vec::new()),
            None => Err(BackendError::Unsupported(format!("{} has no timestamps", loaded.gpu.target.device))),
        }
    }

    /// Times of the steps inside of this program's steps of control flow.
    pub(super) fn inner_times(&self) -> Vec<StepTime> {
        let all = self.bodies.iter().enumerate();
        all.filter_map(|(step, b)| Some(b.as_ref()?.times(step))).flatten().collect()
    }

    /// Forgets the times of the steps inside of this program's steps of control flow.
    pub(super) fn forget_inner_times(&mut self) {
        self.bodies.iter_mut().flatten().for_each(Bodies::forget_times);
    }

    /// The timestamps, if steps are timed.
    pub(super) fn stamps(&self) -> Option<&Stamps> {
        self.stamps.as_ref()
    }
}
