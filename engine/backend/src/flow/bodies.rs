//! Bodies as programs of a backend of their own, values on the host between them.

use super::checked;
use super::walk::{Machine, walk};
use crate::{BackendError, Context, Counters, Executable, Program, Shapes, Step, StepTime};
use kiln_ir::{Fact, LoopOutputKind, Tensor, TensorType, element, stack};
use std::sync::Arc;

/// The bodies of one step, loaded on a device and shared by all contexts.
pub struct LoadedBodies(Vec<(Arc<Program>, Arc<dyn Executable>)>);

impl LoadedBodies {
    /// Loads the bodies of a step by `load`; nothing for steps that are not interpreted.
    pub fn of(
        program: &Program,
        step: &Step,
        mut load: impl FnMut(Arc<Program>) -> Result<Arc<dyn Executable>, BackendError>,
    ) -> Result<Option<LoadedBodies>, BackendError> {
        let Some(node) = checked(&program.graph, step)? else { return Ok(None) };
        step.check_bodies(node)?;
        let one = |p: &Program| {
            let p = Arc::new(p.clone());
            Ok((p.clone(), load(p)?))
        };
        Ok(Some(LoadedBodies(step.bodies.iter().map(one).collect::<Result<_, BackendError>>()?)))
    }

    /// Contexts for the bodies.
    pub fn context(&self) -> Result<Bodies, BackendError> {
        let one = |(program, executable): &(Arc<Program>, Arc<dyn Executable>)| {
            let host = program.shape_inputs();
            let context = executable.context()?;
            Ok(Body { program: program.clone(), context, host, last: None, timing: false, times: Vec::new() })
        };
        Ok(Bodies { list: self.0.iter().map(one).collect::<Result<_, BackendError>>()?, case: 0 })
    }
}

/// Contexts of the bodies of one step.
pub struct Bodies {
    list: Vec<Body>,
    /// The case of the run around them.
    case: u32,
}

struct Body {
    program: Arc<Program>,
    context: Box<dyn Context>,
    /// Positions of shape inputs.
    host: Vec<usize>,
    /// The shapes of the last run with what they were made for.
    last: Option<(Vec<(TensorType, Option<Tensor>)>, u32, Arc<Shapes>)>,
    timing: bool,
    /// Times of all runs since they were forgotten.
    times: Vec<StepTime>,
}

impl Body {
    fn run(&mut self, inputs: &[Tensor], case: u32) -> Result<Vec<Tensor>, BackendError> {
        let content = |i: usize, t: &Tensor| self.host.contains(&i).then(|| t.clone());
        let key: Vec<_> = inputs.iter().enumerate().map(|(i, t)| (t.ty(), content(i, t))).collect();
        let shapes = match &self.last {
            Some((made_for, at, shapes)) if *made_for == key && *at == case => shapes.clone(),
            _ => {
                let shapes = Arc::new(self.program.shapes(inputs)?.in_case(case));
                self.last = Some((key, case, shapes.clone()));
                shapes
            }
        };
        self.context.enqueue(inputs, &shapes)?;
        let outputs = self.context.outputs()?;
        if self.timing {
            let times = self.context.step_times()?;
            StepTime::add(&mut self.times, times);
        }
        Ok(outputs)
    }
}

impl Bodies {
    /// Runs the node of the step in a case of the program around it. Errors name the layer inside that failed.
    pub fn walk(
        &mut self,
        node: &kiln_ir::Node,
        inputs: &[Tensor],
        outputs: &[Fact],
        case: u32,
    ) -> Result<Vec<Tensor>, BackendError> {
        self.case = case;
        walk(node, inputs, outputs, self)
    }

    /// Lets the times of the steps inside be taken from now on.
    pub fn set_timing(&mut self) -> Result<(), BackendError> {
        for b in self.list.iter_mut().filter(|b| !b.timing) {
            b.context.step_times()?;
            b.timing = true;
        }
        Ok(())
    }

    /// Forgets the times of the steps inside.
    pub fn forget_times(&mut self) {
        self.list.iter_mut().for_each(|b| b.times.clear());
    }

    /// Times of the steps inside, since they were forgotten; the node is step `step` of its program.
    pub fn times(&self, step: usize) -> Vec<StepTime> {
        let each = self.list.iter().enumerate();
        each.flat_map(|(i, b)| StepTime::within(b.times.clone(), step, i)).collect()
    }

    /// Work of the bodies' contexts, their runs left out.
    pub fn counters(&self) -> Counters {
        self.list.iter().fold(Counters::default(), |a, b| {
            let c = b.context.counters();
            Counters {
                runs: 0,
                allocations: a.allocations + c.allocations,
                compilations: a.compilations + c.compilations,
                pipelines: a.pipelines + c.pipelines,
                host_syncs: a.host_syncs + c.host_syncs,
            }
        })
    }
}

impl Machine for Bodies {
    type Value = Tensor;
    type Elements = (Tensor, usize);
    type Stack = Vec<Tensor>;

    fn run(&mut self, body: usize, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, BackendError> {
        let case = self.case;
        let body = self.list.get_mut(body).ok_or_else(|| {
            BackendError::InvalidArgument(format!("an interpreted step has no body {body}"))
        })?;
        body.run(&inputs, case)
    }

    fn number(&mut self, v: &Tensor) -> Result<i64, BackendError> {
        v.scalar_i64().ok_or_else(|| {
            BackendError::InvalidArgument(format!("{} decides on control flow, wants one element", v.ty()))
        })
    }

    fn bytes(&self, v: &Tensor) -> u64 {
        v.bytes().len() as u64
    }

    fn fact(&mut self, v: &Tensor) -> Result<Option<Fact>, BackendError> {
        let small = v.len() <= kiln_ir::infer::MAX_CONTENT;
        Ok(Some(if small { Fact::constant(v.clone()) } else { Fact::of(v.ty()) }))
    }

    fn elements(&mut self, v: &Tensor, axis: usize) -> Result<(Tensor, usize), BackendError> {
        Ok((v.clone(), axis))
    }

    fn element(&mut self, all: &mut (Tensor, usize), at: i64) -> Result<Tensor, BackendError> {
        element(&all.0, all.1, at).map_err(refused)
    }

    fn stack(&mut self, _count: Option<i64>) -> Vec<Tensor> {
        Vec::new()
    }

    fn push(&mut self, all: &mut Vec<Tensor>, v: Tensor) -> Result<(), BackendError> {
        all.push(v);
        Ok(())
    }

    fn stacked(
        &mut self,
        all: &Vec<Tensor>,
        kind: LoopOutputKind,
        axis: usize,
        length: Option<usize>,
        empty: &TensorType,
    ) -> Result<Tensor, BackendError> {
        stack(kind, axis, all, length, empty).map_err(refused)
    }
}

fn refused(e: kiln_ir::OpError) -> BackendError {
    BackendError::InvalidArgument(e.to_string())
}
