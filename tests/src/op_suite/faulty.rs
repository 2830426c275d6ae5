//! A backend with faults, to show that the suite finds them.

use super::run::{Mode, Subject};
use super::table::Table;
use kiln_backend::compare::Latitude;
use kiln_backend::{
    Backend, BackendError, Context, Counters, Device, Executable, Program, Region, Shapes, StepTime, Tactic,
    Target, TimeRequest,
};
use kiln_backend_cpu::Cpu;
use kiln_ir::{Tensor, ValueId};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The first output has another last bit.
    Value,
    /// The first output has another last bit from the second run on.
    SecondRun,
    /// An input is written.
    Input,
    /// A byte of the arena that is nobody's is written.
    Arena,
    /// Tactics are refused.
    Refusal,
}

struct Faulty<T>(T, Fault);

impl Backend for Faulty<Cpu> {
    fn name(&self) -> &str {
        "faulty"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        self.0.targets()
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        match self.1 {
            Fault::Refusal => Err(BackendError::Unsupported("today".into())),
            _ => self.0.tactics(region, target),
        }
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        self.0.compile(region, tactic, target)
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        Ok(Arc::new(Faulty(self.0.open(target)?, self.1)))
    }
}

impl Device for Faulty<Arc<dyn Device>> {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        self.0.time(request)
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(Faulty(self.0.load(program)?, self.1)))
    }
}

impl Executable for Faulty<Arc<dyn Executable>> {
    fn context(&self) -> Result<Box<dyn Context>, BackendError> {
        Ok(Box::new(Faulty(self.0.context()?, self.1)))
    }
}

impl Context for Faulty<Box<dyn Context>> {
    fn enqueue(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        self.0.enqueue(inputs, shapes)
    }

    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        let mut out = self.0.outputs()?;
        let runs = self.0.counters().runs;
        let which = match self.1 {
            Fault::Value => 0,
            Fault::SecondRun if runs > 1 => 0,
            Fault::Input => 1,
            Fault::Arena => out.len() - 1,
            _ => return Ok(out),
        };
        let t = &out[which];
        let mut bytes = t.bytes().to_vec();
        if let Some(first) = bytes.first_mut() {
            *first ^= 1;
        }
        out[which] = Tensor::from_bytes(t.dtype(), t.shape(), bytes).unwrap();
        Ok(out)
    }

    fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError> {
        self.0.observe(value)
    }

    fn set_observable(&mut self, on: bool) {
        self.0.set_observable(on);
    }

    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        self.0.step_times()
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }
}

fn table(fault: Fault, op: &str) -> Table {
    let backend = Arc::new(Faulty(Cpu::default(), fault));
    Subject::new(backend, Mode::Test, Latitude::default()).unwrap().run(Some(op), 1)
}

#[test]
fn a_sound_backend_passes() {
    let (passed, refused, failed) = table(Fault::None, "transpose").totals();
    assert!(passed > 0 && refused == 0 && failed == 0);
}

#[test]
fn every_fault_is_found() {
    // A last bit is within the tolerance of tanh, but no second run may differ in it.
    let cases = [
        (Fault::Value, "transpose", "wants"),
        (Fault::SecondRun, "transpose", "second run"),
        (Fault::SecondRun, "tanh", "other bits"),
        (Fault::Input, "transpose", "input 0 was written"),
        (Fault::Arena, "transpose", "byte 0 of the arena"),
    ];
    for (fault, op, what) in cases {
        let t = table(fault, op);
        assert!(t.totals().2 > 0 && t.to_string().contains(what), "\"{what}\" is not in\n{t}");
    }
}

#[test]
fn refusals_carry_their_reason() {
    let t = table(Fault::Refusal, "transpose");
    assert_eq!((t.totals().0, t.totals().2), (0, 0));
    assert!(t.refusals().iter().all(|r| r.why == "today" && !r.some && r.op == "transpose"));
}
