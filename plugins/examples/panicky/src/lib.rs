//! A backend that panics where the names of its arguments ask it to, and else runs graphs on the oracle.
//!
//! The name of the slot is looked for in the target's device, in the name of the tactic, or in the name of
//! the graph. The constructor panics the first time. Each panic reports how many there have been.
#![allow(clippy::panic, reason = "panics are the purpose of this backend")]

use kiln_backend::{
    Backend, BackendError, Context, Counters, Device, Executable, HostStep, Program, Region, Shapes,
    StepTime, Tactic, Target, TimeRequest, assisted,
};
use kiln_ir::{Tensor, ValueId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

kiln_backend::export_backend!(Panicky::new, "panicky", vendor = "Kiln");

static PANICS: AtomicU32 = AtomicU32::new(0);

/// Panics if `wish` names the slot.
fn maybe(slot: &str, wish: &str) {
    if wish == slot {
        let n = PANICS.fetch_add(1, Ordering::Relaxed) + 1;
        if slot == "payload" {
            std::panic::panic_any(Grenade);
        }
        panic!("panic {n} in {slot}");
    }
}

/// A panic's payload that panics when it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        panic!("in the payload of a panic");
    }
}

struct Panicky;

impl Panicky {
    fn new() -> Result<Panicky, BackendError> {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        if CALLS.fetch_add(1, Ordering::Relaxed) == 0 {
            maybe("create", "create");
        }
        Ok(Panicky)
    }
}

impl Backend for Panicky {
    fn name(&self) -> &str {
        "panicky"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        maybe("targets", "targets");
        Ok(Vec::new())
    }

    fn tactics(&self, _: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        maybe("tactics", &target.device);
        maybe("payload", &target.device);
        Ok(vec![Tactic::plain("oracle")])
    }

    fn compile(&self, _: &Region, tactic: &Tactic, _: &Target) -> Result<Vec<u8>, BackendError> {
        maybe("compile", &tactic.name);
        Ok(Vec::new())
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        maybe("open", &target.device);
        Ok(Arc::new(Machine { wish: target.device.clone() }))
    }
}

struct Machine {
    wish: String,
}

impl Drop for Machine {
    fn drop(&mut self) {
        maybe("drop", &self.wish);
    }
}

impl Device for Machine {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        maybe("time", &request.tactic.name);
        Ok(vec![1.0; request.samples as usize])
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        maybe("load", &program.graph.name);
        Ok(Arc::new(Loaded { program }))
    }
}

struct Loaded {
    program: Arc<Program>,
}

impl Executable for Loaded {
    fn context(&self) -> Result<Box<dyn Context>, BackendError> {
        maybe("context", &self.program.graph.name);
        Ok(Box::new(Run { program: self.program.clone(), outputs: Vec::new(), runs: 0 }))
    }
}

struct Run {
    program: Arc<Program>,
    outputs: Vec<Tensor>,
    runs: u64,
}

impl Run {
    fn maybe(&self, slot: &str) {
        maybe(slot, &self.program.graph.name);
    }
}

impl Context for Run {
    fn enqueue(&mut self, inputs: &[Tensor], _: &Arc<Shapes>) -> Result<(), BackendError> {
        self.maybe("enqueue");
        self.outputs = self.program.graph.eval(inputs)?;
        self.runs += 1;
        Ok(())
    }

    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        self.maybe("outputs");
        Ok(self.outputs.clone())
    }

    fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError> {
        self.maybe("observe");
        let at = self.program.graph.outputs.iter().position(|v| *v == value);
        let found = at.and_then(|i| self.outputs.get(i)).cloned();
        found.ok_or_else(|| BackendError::Unsupported(format!("{value:?} is no output")))
    }

    fn set_observable(&mut self, _: bool) {
        self.maybe("set_observable");
    }

    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        self.maybe("step_times");
        Ok(vec![StepTime::new(0, 2.5)])
    }

    fn host_steps(&mut self) -> Result<Vec<HostStep>, BackendError> {
        self.maybe("host_steps");
        Ok(vec![HostStep::new(0, assisted::SIZES).within(0, 1)])
    }

    fn counters(&self) -> Counters {
        self.maybe("counters");
        Counters { runs: self.runs, host_syncs: 7, ..Counters::default() }
    }
}
