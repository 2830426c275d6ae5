//! Times of steps, those inside of control flow too: the host walks while they are taken. And where runs wait for the host
//! while none are taken.

use super::context::CudaContext;
use super::flow::{Bodies, Body};
use super::run::Stamps;
use kiln_backend::assisted::Reason;
use kiln_backend::{BackendError, HostStep, StepTime};

impl CudaContext {
    /// Times steps from the next run on.
    pub(super) fn set_timing(&mut self) {
        self.stamps.get_or_insert_with(|| Stamps::new(&self.loaded.program));
        let bodies = self.bodies.iter_mut().flatten().flat_map(|b| &mut b.bodies);
        bodies.for_each(|b| b.context.set_timing());
    }

    /// Times of the last run's steps, which is done; those inside of control flow behind its own.
    pub(super) fn times(&self) -> Result<Vec<StepTime>, BackendError> {
        let own = self.stamps.as_ref().map_or(Ok(Vec::new()), Stamps::read)?;
        Ok(self.with_inner(own))
    }

    /// Times of steps with those inside of them. Of control flow the former are the latter's sum: between its bodies the
    /// device waits for the host.
    fn with_inner(&self, own: Vec<StepTime>) -> Vec<StepTime> {
        let mut all = own;
        for (step, b) in self.bodies.iter().enumerate() {
            let Some(inside) = b.as_ref().map(|b| b.times(step)).filter(|t| !t.is_empty()) else { continue };
            let ns = inside.iter().filter(|t| t.inside.len() == 1).map(|t| t.ns).sum();
            match all.iter_mut().find(|t| t.step == step && t.inside.is_empty()) {
                Some(t) => t.ns = ns,
                None => all.push(StepTime::new(step, ns)),
            }
            all.extend(inside);
        }
        all.sort_by_key(|t| t.step);
        all
    }

    pub(super) fn forget_inner_times(&mut self) {
        self.bodies.iter_mut().flatten().flat_map(|b| &mut b.bodies).for_each(Body::forget_times);
    }
}

impl CudaContext {
    /// Notes that the run waits for the host at a step.
    pub(super) fn note_host(&mut self, step: usize, why: Reason) {
        if self.stamps.is_none() {
            HostStep::add(&mut self.assisted, step, why);
        }
    }

    /// Begins to note anew, unless steps are timed.
    pub(super) fn forget_host(&mut self) {
        if self.stamps.is_none() {
            self.assisted.clear();
        }
    }

    /// The steps that were noted, those in bodies that the host walked behind their own.
    pub(super) fn all_host_steps(&self) -> Vec<HostStep> {
        let mut all = Vec::new();
        for s in &self.assisted {
            all.push(s.clone());
            let bodies = self.bodies.get(s.step).and_then(Option::as_ref);
            for (i, b) in bodies.into_iter().flat_map(|b| b.bodies.iter().enumerate()) {
                all.extend(b.context.all_host_steps().into_iter().map(|inner| inner.within(s.step, i)));
            }
        }
        all
    }
}

impl Bodies {
    /// Times of the steps inside of step `step`.
    fn times(&self, step: usize) -> Vec<StepTime> {
        let each = self.bodies.iter().enumerate();
        each.flat_map(|(i, b)| StepTime::within(b.context.with_inner(b.times.clone()), step, i)).collect()
    }
}

impl Body {
    fn forget_times(&mut self) {
        self.times.clear();
        self.context.forget_inner_times();
    }
}
