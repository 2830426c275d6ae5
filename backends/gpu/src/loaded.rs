//! Loaded programs.

use crate::checks::recorded;
use crate::memory::RECORD_BYTES;
use crate::step::{Kernels, StepKernel};
use crate::weights::{Residency, Weights};
use kiln_backend::{BackendError, Program, Step, flow};
use std::collections::HashMap;
use std::sync::Arc;

/// A loaded program: code and weights, shared by all contexts.
pub struct Loaded<D: Kernels> {
    /// The device.
    pub device: Arc<D>,
    /// The program.
    pub program: Arc<Program>,
    /// The code of each step, and behind them that of their alternatives.
    pub steps: Vec<StepKernel<D::Code>>,
    /// Positions in `steps` of alternatives, by step and case of the program.
    alternatives: HashMap<(usize, u32), usize>,
    /// The bodies of each step of control flow; none of other steps.
    pub bodies: Vec<Option<Vec<Arc<Loaded<D>>>>>,
    /// The weights.
    pub weights: Weights<D>,
    /// Whether it is a body of control flow, whose inputs kernels around it may write.
    pub is_body: bool,
    /// Positions of the inputs whose contents the host needs before a run.
    pub shape_inputs: Vec<usize>,
    /// Positions of further inputs whose contents the host plans by where it knows them, by [`flow::deciding_inputs`].
    pub deciding: Vec<usize>,
}

impl<D: Kernels> Loaded<D> {
    /// Loads a program and the bodies in it.
    pub fn new(
        device: &Arc<D>,
        queue: &mut D::Queue,
        program: Arc<Program>,
        residency: Residency,
    ) -> Result<Loaded<D>, BackendError> {
        let steps = program.steps.iter().map(|s| StepKernel::load(&**device, &program, s));
        let mut steps = steps.collect::<Result<Vec<_>, _>>()?;
        let mut alternatives = HashMap::new();
        for (i, step) in program.steps.iter().enumerate() {
            for a in &step.alternatives {
                alternatives.extend(a.cases.iter().map(|&case| ((i, case), steps.len())));
                steps.push(StepKernel::load(&**device, &program, &step.by(a))?);
            }
        }
        let bodies =
            program.steps.iter().map(|s| Loaded::bodies(device, queue, (&program, s), residency.of_bodies()));
        let bodies = bodies.collect::<Result<_, _>>()?;
        let weights = Weights::upload(&**device, queue, &program, residency)?;
        let shape_inputs = program.shape_inputs();
        let deciding = flow::deciding_inputs(&program, D::DECISIONS);
        Ok(Loaded {
            device: device.clone(),
            program,
            steps,
            alternatives,
            bodies,
            weights,
            is_body: false,
            shape_inputs,
            deciding,
        })
    }

    fn bodies(
        device: &Arc<D>,
        queue: &mut D::Queue,
        (program, step): (&Program, &Step),
        residency: Residency,
    ) -> Result<Option<Vec<Arc<Loaded<D>>>>, BackendError> {
        let Some(node) = flow::checked(&program.graph, step)? else { return Ok(None) };
        step.check_bodies(node)?;
        let load = |p: &Program| {
            let body = Loaded::new(device, queue, Arc::new(p.clone()), residency)?;
            Ok(Arc::new(Loaded { is_body: true, ..body }))
        };
        step.bodies.iter().map(load).collect::<Result<_, _>>().map(Some)
    }

    /// The position in `steps` of the kernel that a step runs by in a case of the program.
    pub fn kernel(&self, step: usize, case: u32) -> usize {
        self.alternatives.get(&(step, case)).copied().unwrap_or(step)
    }

    /// Whether launches may depend on the elements of this input.
    pub fn plans_by(&self, input: usize) -> bool {
        self.shape_inputs.contains(&input) || self.deciding.contains(&input)
    }

    /// Whether it has control flow.
    pub fn has_flow(&self) -> bool {
        self.bodies.iter().any(Option::is_some)
    }

    /// Whether a step is control flow.
    pub fn is_flow(&self, step: usize) -> bool {
        self.bodies.get(step).is_some_and(Option::is_some)
    }

    /// Bytes of the records of its steps.
    pub fn record_bytes(&self) -> usize {
        self.program.steps.len() * RECORD_BYTES
    }

    /// The error of the first step that recorded an index out of range.
    pub fn check_records(&self, records: &[u8]) -> Result<(), BackendError> {
        let all = self.steps.iter().zip(records.chunks(RECORD_BYTES)).enumerate();
        all.into_iter().try_for_each(|(i, (step, record))| {
            let anchor = step.anchor.and_then(|n| self.program.graph.get(n));
            recorded(record, anchor.map(|n| &n.op), step.layer(&self.program, i))
        })
    }
}
