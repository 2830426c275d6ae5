//! Reports of a context on the layers that it ran.

use super::ExecutionContext;
use super::cost::LayerCost;
use crate::RuntimeError;
use kiln_backend::{Program, Shapes, StepTime};
use kiln_ir::graph::Uses;
use kiln_plan::host::{HostLayer, step_at};

/// Time of one step of the last run.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerTime {
    /// Names of its layers, joined with " + "; of a step in a body of control flow behind the names of the steps around it,
    /// with " / " between them, as the inspector has it.
    pub name: String,
    /// The tactic with its parameters.
    pub tactic: String,
    /// Times that it ran: in a loop once an iteration.
    pub runs: u64,
    /// Whether the layer is in a body of control flow, so that the time of that step includes its own.
    pub inside: bool,
    /// Nanoseconds on the device, of all runs.
    pub ns: f64,
    /// Least work of one run, of layers outside of bodies whose shapes are known before it.
    pub cost: Option<LayerCost>,
}

impl LayerTime {
    fn of(program: &Program, uses: &Uses, shapes: Option<&Shapes>, t: &StepTime) -> Option<LayerTime> {
        let (name, step) = step_at(program, t.step, &t.inside)?;
        let case = shapes.map_or(0, Shapes::case);
        Some(LayerTime {
            name,
            tactic: step.tactic_in(case).id(),
            runs: t.runs,
            inside: !t.inside.is_empty(),
            ns: t.ns,
            cost: shapes
                .filter(|_| t.inside.is_empty())
                .and_then(|shapes| LayerCost::of(program, uses, shapes, step)),
        })
    }
}

impl ExecutionContext {
    /// Times of the steps of the last run, those in bodies of control flow behind the step around them; asks the backend to take times from then on.
    pub fn layer_times(&mut self) -> Result<Vec<LayerTime>, RuntimeError> {
        let result = self.try_layer_times();
        self.recorder.note(result)
    }

    fn try_layer_times(&mut self) -> Result<Vec<LayerTime>, RuntimeError> {
        let times = self.context.step_times().map_err(|e| self.engine.backend_error(e))?;
        let shapes = self.shapes().ok();
        let program = &self.loaded.program;
        let uses = program.graph.uses();
        Ok(times.iter().filter_map(|t| LayerTime::of(program, &uses, shapes.as_deref(), t)).collect())
    }

    /// The layers at which the last run waited for the host, and why; none where it did not. While layers are
    /// timed, CUDA reports the last run before. Refused by backends that don't report it.
    pub fn host_layers(&mut self) -> Result<Vec<HostLayer>, RuntimeError> {
        let result = self.try_host_layers();
        self.recorder.note(result)
    }

    fn try_host_layers(&mut self) -> Result<Vec<HostLayer>, RuntimeError> {
        let steps = self.context.host_steps().map_err(|e| self.engine.backend_error(e))?;
        let program = &self.loaded.program;
        Ok(steps.into_iter().filter_map(|s| HostLayer::of(program, s)).collect())
    }
}
