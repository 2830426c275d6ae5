//! The device and what is loaded on it.

use crate::buffer::{Options, afford};
use crate::context::{CpuContext, Loaded};
use crate::kernel::Schedule;
use crate::tactics::check_tactic;
use crate::threads::Threads;
use crate::value::Val;
use kiln_backend::flow::LoadedBodies;
use kiln_backend::{BackendError, Context, Device, Executable, LoadedProgram, Program, TimeRequest};
use kiln_ir::ValueId;
use std::collections::HashSet;
use std::sync::Arc;

/// The processor.
pub(crate) struct Processor {
    options: Options,
    threads: Arc<Threads>,
}

impl Processor {
    pub(crate) fn new(options: Options) -> Processor {
        Processor { options, threads: Threads::new(options.thread_count()) }
    }

    /// Loads a program. `fixed` says that inputs are the same in every run: what is timed takes weights as inputs.
    fn loaded(&self, program: Arc<Program>, fixed: bool) -> Result<Arc<dyn Executable>, BackendError> {
        let schedule = Schedule::new(&program, fixed)?;
        self.scheduled(program, schedule, &HashSet::new())
    }

    /// Loads a program whose operations have these weights as panels.
    fn scheduled(
        &self,
        program: Arc<Program>,
        schedule: Schedule,
        packed: &HashSet<ValueId>,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        let mut bodies = Vec::with_capacity(program.steps.len());
        for step in &program.steps {
            step.tactics().try_for_each(|t| check_tactic(&t.name))?;
            bodies.push(LoadedBodies::of(&program, step, |body| self.load(body))?);
        }
        let mut weights = vec![None; program.graph.value_ids().count()];
        for (v, t) in program.weights() {
            let t = t.clone();
            weights[v.0 as usize] = Some(if packed.contains(&v) { Val::Shared(t) } else { Val::shared(t) });
        }
        let (options, threads) = (self.options, self.threads.clone());
        Ok(Arc::new(CpuExecutable(Arc::new(Loaded { program, schedule, bodies, weights, options, threads }))))
    }
}

/// Loaded program that contexts are made from.
struct CpuExecutable(Arc<Loaded>);

impl Device for Processor {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        let program = Arc::new(Program::single_step(
            request.graph.clone(),
            request.tactic.clone(),
            request.blob.to_vec(),
        ));
        let shapes = Arc::new(program.shapes(request.inputs)?);
        let mut context = self.loaded(program, true)?.context()?;
        let mut samples = Vec::new();
        // The first run warms the caches and the buffer pool.
        for i in 0..=request.samples {
            context.enqueue(request.inputs, &shapes)?;
            context.outputs()?;
            if i > 0 {
                let times = context.step_times()?;
                samples.push(times.iter().filter(|t| t.inside.is_empty()).map(|t| t.ns).sum());
            }
        }
        Ok(samples)
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        self.loaded(program, false)
    }

    fn load_owned(&self, mut program: Program) -> Result<LoadedProgram, BackendError> {
        let mut schedule = Schedule::new(&program, false)?;
        let packed = self.threads.enter(|| schedule.pack(&mut program))?;
        let program = Arc::new(program);
        Ok((program.clone(), self.scheduled(program, schedule, &packed)?))
    }
}

impl Executable for CpuExecutable {
    fn context(&self) -> Result<Box<dyn Context>, BackendError> {
        afford(self.0.program.memory.arena, "the activations of a context")?;
        Ok(Box::new(CpuContext::new(self.0.clone())?))
    }
}
