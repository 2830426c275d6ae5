//! Running out of device memory is an error that says how much was wanted, and the next run works. Skipped without a device,
//! unless `KILN_REQUIRE_CUDA=1`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

#[path = "common/device.rs"]
mod device;

use device::device;
use kiln_backend::{BackendError, Context, Program, Tactic};
use kiln_backend_cuda::Cuda;
use kiln_ir::{Attrs, DType, Fact, Graph, Op, Tensor, TensorType};
use std::sync::Arc;

/// Tensors of 16 GB each, as many as no GPU holds.
const COPIES: usize = 24;
const HUGE: i64 = 4_000_000_000;

/// `COPIES` times x stretched to n elements, then the first element of each.
fn program() -> Program {
    let mut g = Graph::new("huge");
    let x = g.add_input("x", Fact::of(TensorType::new(DType::F32, [1])));
    let n = g.add_input("n", Fact::of(TensorType::new(DType::I64, [1])));
    let op = |name: &str, attrs: Attrs| Op::new(name, attrs).unwrap();
    let mut wide = Vec::new();
    for i in 0..COPIES {
        let name = format!("wide{i}");
        wide.push(g.add_node(&name, op("expand", Attrs::new()), &[Some(x), Some(n)]).unwrap()[0]);
    }
    let at = g.add_constant("at", Tensor::i64(&[1], &[0]).unwrap());
    for (i, v) in wide.into_iter().enumerate() {
        let first = op("gather", Attrs::new().with("axis", 0i64));
        let y = g.add_node(&format!("first{i}"), first, &[Some(v), Some(at)]).unwrap()[0];
        g.outputs.push(y);
    }
    Program::step_per_node(g, &Tactic::plain(""))
}

#[test]
fn running_out_of_memory_is_an_error_and_the_next_run_works() {
    let Some((device, target)) = device() else { return };
    let mut program = program();
    program.choose(&Cuda, &target).unwrap();
    let program = Arc::new(program);
    let mut context = device.load(program.clone()).unwrap().context().unwrap();
    let run = |context: &mut Box<dyn Context>, n: i64| {
        let inputs = [Tensor::f32(&[1], &[2.5]).unwrap(), Tensor::i64(&[1], &[n]).unwrap()];
        let shapes = Arc::new(program.shapes(&inputs)?);
        context.enqueue(&inputs, &shapes)?;
        context.outputs()
    };
    for _ in 0..2 {
        assert!(run(&mut context, 1000).unwrap().iter().all(|t| t.to_f64() == [2.5]));
        match run(&mut context, HUGE) {
            Err(BackendError::OutOfMemory { what, bytes }) => {
                assert!(what.starts_with("tensor \"wide"), "{what}");
                assert_eq!(bytes, 4 * HUGE as u64);
            }
            other => panic!("{:?}", other.map(|t| t.len())),
        }
    }
    assert!(run(&mut context, 1001).unwrap().iter().all(|t| t.to_f64() == [2.5]));
}
