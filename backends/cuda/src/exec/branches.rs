//! Control flow on the device: steps of loops and conditionals as nodes of a graph, where all sizes are known before the
//! run. Everything else the host walks.

use super::conditional::{Choice, planned};
use super::fallback::{Fallback, OnDevice, on_host};
use super::flow::{Flow, Site};
use super::launch::Planned;
use super::loops::{Loop, outputs};
use super::planning::{CudaBodies, Planning};
use super::reasons;
use kiln_backend::launch::splits_graphs;
use kiln_backend::{BackendError, Shapes, flow};
use kiln_ir::Node;

/// The commands of a step of control flow, if the host is not needed in it; else notes why.
pub fn on_device(
    mut all: Planning<'_>,
    shapes: &Shapes,
    step: usize,
) -> Result<Option<Vec<Planned>>, BackendError> {
    match all.branches(shapes, step) {
        Ok(planned) => Ok(Some(planned)),
        Err(Fallback::Failed(e)) => Err(e),
        Err(Fallback::Host(why)) => {
            let run = all.run;
            let loaded = run.loaded.clone();
            let walked = loaded.program.steps.get(step);
            let node = walked.and_then(|s| flow::node(&loaded.program.graph, s));
            node.map_or(&[][..], |n| &n.outputs).iter().for_each(|&v| run.open.remove(v));
            let name = walked.map_or("", |s| s.name.as_str());
            tracing::debug!("\"{name}\" is walked by the host: {}", why.why);
            run.note_host(step, why);
            Ok(None)
        }
    }
}

impl Planning<'_> {
    fn branches(&mut self, shapes: &Shapes, step: usize) -> OnDevice<Vec<Planned>> {
        let loaded = self.run.loaded.clone();
        let Some(module) = loaded.device.modules.loaded_moves() else { return on_host(reasons::NO_NODES) };
        let (node, inputs) = flow::walked(&loaded.program, step)?;
        let tactic = loaded.program.steps[step].tactic.clone();
        let inputs = inputs.into_iter().map(|v| self.operand(shapes, v)).collect::<OnDevice<Vec<_>>>()?;
        let bodies = self.run.bodies.get_mut(step).and_then(Option::take);
        let mut bodies = bodies.ok_or_else(|| flow::lost(step))?;
        bodies.set_case(shapes.case());
        let site = Site { step, tactic, inputs, outputs: Vec::new(), module };
        let made = self.decided(shapes, node, site, &mut bodies);
        if let Some(place) = self.run.bodies.get_mut(step) {
            *place = Some(bodies);
        }
        made
    }

    fn decided(
        &mut self,
        shapes: &Shapes,
        node: &Node,
        site: Site,
        bodies: &mut CudaBodies,
    ) -> OnDevice<Vec<Planned>> {
        if let Some(captures) = node.branches(site.inputs.len())? {
            return planned(self, shapes, bodies, &Choice::new(site, &node.outputs, captures));
        }
        let shape = node.loop_shape(site.inputs.len())?;
        let outputs = outputs(self, shapes, node, &site, &shape, bodies)?;
        let site = Site { outputs, ..site };
        Loop::new(&site, &shape)?.planned(&mut Flow { bodies, queue: self.queue })
    }

    /// The commands of all steps, if the host is needed in none.
    pub fn all_steps(&mut self, shapes: &mut Shapes) -> OnDevice<Vec<Planned>> {
        let loaded = self.run.loaded.clone();
        let mut all = Vec::new();
        self.run.open.clear();
        for (i, step) in loaded.program.steps.iter().enumerate() {
            shapes.update(&loaded.program, step)?;
            if loaded.is_flow(i) {
                all.extend(self.branches(shapes, i)?);
                continue;
            }
            let k = loaded
                .steps
                .get(i)
                .filter(|k| !k.data_dependent && k.assertion.is_none() && !k.random && k.on_host.is_none());
            if k.is_none() || !shapes.ready(&loaded.program, step) {
                return on_host(reasons::LAYER_INSIDE);
            }
            if splits_graphs(step) {
                return on_host(reasons::CALLED_INSIDE);
            }
            all.extend(self.run.plan(self.queue, shapes, i, false)?);
        }
        Ok(all)
    }
}
