//! Runs in graphs of the caller's: their launches are recorded, and nothing is put into the queue.

use crate::device::Queue;
use crate::launches::{Key, Prepared};
use crate::run::{Executor, Run};
use kiln_backend::{BackendError, HostStep, Shapes};
use std::sync::Arc;

/// Layers that an error lists.
const LISTED: usize = 4;

impl<D: Executor> Run<D> {
    /// Keeps all memory of the run and of its bodies from now on, as graphs of the caller's name it.
    fn keep_memory(&mut self) {
        self.memory.recorded = true;
        let bodies = self.bodies.iter_mut().flatten().flat_map(|b| &mut b.list);
        bodies.for_each(|b| b.run.keep_memory());
    }

    /// Hands the launches of a run to `record`, for a graph of the caller's: those that were prepared for these inputs and this memory, or
    /// new ones after a run of equal shapes. Nothing is put into the queue. Replaced buffers stay from now on. Returns the shapes.
    pub fn record(
        &mut self,
        queue: &mut D::Queue,
        key: Vec<Key<D::Range>>,
        record: impl FnOnce(&mut D::Batch) -> Result<(), BackendError>,
    ) -> Result<Arc<Shapes>, BackendError> {
        self.keep_memory();
        let mut prepared = match self.launches.take(&key) {
            Some(p) => p,
            None => self.prepare(queue, key)?,
        };
        let (recorded, shapes) = (record(&mut prepared.batch), prepared.shapes.clone());
        self.launches.keep(prepared);
        recorded.map(|()| shapes)
    }

    /// Prepares a run in memory that no run was prepared for, after one of equal shapes, without any new memory.
    fn prepare(
        &mut self,
        queue: &mut D::Queue,
        key: Vec<Key<D::Range>>,
    ) -> Result<Prepared<D::Range, D::Batch>, BackendError> {
        let Some(shapes) = self.launches.shapes_like(&key) else {
            return Err(self.not_prepared());
        };
        let allocations = queue.allocations();
        self.open.clear();
        let launches = self.plan_all(queue, &shapes)?;
        let old = self.launches.give_up().map(|p| p.batch);
        let batch = D::batch(&self.loaded.clone(), queue, launches, old)?;
        if queue.allocations() != allocations {
            return Err(BackendError::InvalidArgument(
                "the stream records a graph, and the run needs more memory for its arguments: run it once with the same bound memory \
                 before the capture"
                    .into(),
            ));
        }
        Ok(Prepared { key, batch, shapes, open: self.open.clone() })
    }

    /// The error of a run of which no equal one was prepared.
    fn not_prepared(&self) -> BackendError {
        let mut steps = self.loaded.program.steps.iter().zip(&self.loaded.steps);
        if let Some((step, _)) = steps.find(|(_, kernel)| kernel.random) {
            return BackendError::Unsupported(format!(
                "the stream records a graph, and layer \"{}\" draws other random numbers in each run, which a graph would repeat: give it \
                 a seed, or run the engine outside of the capture",
                step.name
            ));
        }
        match self.all_host_steps().as_slice() {
            [] => BackendError::InvalidArgument(
                "the stream records a graph, and this context has not run with these shapes: run it once with the same shapes and bound \
                 memory before the capture"
                    .into(),
            ),
            steps => self.on_host(steps),
        }
    }

    /// The error of a step that needs the host where all launches are planned at once; the step was noted.
    pub(crate) fn needs_host(&self, step: usize) -> BackendError {
        let noted: Vec<HostStep> = self.host_steps.iter().filter(|s| s.step == step).cloned().collect();
        self.on_host(&noted)
    }

    fn on_host(&self, steps: &[HostStep]) -> BackendError {
        let one = |s: &HostStep| {
            let layer = self.loaded.program.steps.get(s.step).map_or("", |s| s.name.as_str());
            let advice = if s.advice.is_empty() { String::new() } else { format!(" ({})", s.advice) };
            format!("layer \"{layer}\", as {}{advice}", s.why)
        };
        let mut all: Vec<String> = steps.iter().take(LISTED).map(one).collect();
        if let Some(more) = steps.len().checked_sub(LISTED).filter(|&n| n > 0) {
            all.push(format!("{more} more"));
        }
        BackendError::Unsupported(format!(
            "a graph cannot hold a run that needs the host, which this one does for {}; change these layers, or run the engine outside of \
             the capture",
            all.join("; ")
        ))
    }
}
