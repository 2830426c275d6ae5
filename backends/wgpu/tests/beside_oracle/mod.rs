//! Operators by chosen tactics on the first device, beside the oracle.

use kiln_backend::compare::{Latitude, check};
use kiln_backend::{Backend, BackendError, Device, Program};
use kiln_backend_wgpu::Wgpu;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op, Tensor};
use std::sync::Arc;

pub type Inputs = Vec<Option<Tensor>>;

fn run(device: &dyn Device, program: Program, given: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
    let program = Arc::new(program);
    let shapes = Arc::new(program.shapes(given)?);
    let mut cx = device.load(program)?.context()?;
    cx.enqueue(given, &shapes)?;
    cx.outputs()
}

/// Runs an operator on the first device by the tactics of these names, and compares with the oracle.
pub fn agree(name: &str, attrs: Attrs, inputs: &Inputs, by: &str) {
    let target = match Wgpu.targets() {
        Ok(mut targets) => targets.remove(0),
        Err(e) => {
            println!("skipped: {e}");
            return;
        }
    };
    let device = Wgpu.open(&target).expect("the target opens");
    let op = Op::new(name, attrs).expect("an operator");
    let (program, given) = Program::single(&op, inputs).expect(name);
    let region = program.region(&program.steps[0]).expect("a region");
    let mut tactics = Wgpu.tactics(&region, &target).expect("tactics");
    tactics.retain(|t| t.name == by);
    assert!(!tactics.is_empty(), "{name}: no tactic {by}");
    for tactic in &tactics {
        let mut program = program.clone();
        program.steps[0].blob = Wgpu.compile(&region, tactic, &target).expect("a text").into();
        program.steps[0].tactic = tactic.clone();
        let what = format!("{name} {:?}, {}", given[0].shape(), tactic.id());
        let found = run(device.as_ref(), program, &given).unwrap_or_else(|e| panic!("{what}: {e}"));
        let verdict = check(&op, inputs, &found, Latitude { flush: true, ..Latitude::default() });
        assert!(verdict.is_ok(), "{what}: {}", verdict.expect_err("it differs"));
    }
}

/// Random elements.
pub fn f(t: DType, seed: u64, shape: &[usize]) -> Option<Tensor> {
    Some(Rng::new(seed).tensor(t, shape))
}
