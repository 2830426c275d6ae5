//! The executor with the tactic "oracle".
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

use kiln_backend::{Backend, BackendError, Context, Program, Tactic};
use kiln_backend_cpu::{Cpu, Options};
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::Network;
use std::sync::Arc;

fn context(program: &Arc<Program>) -> Box<dyn Context> {
    let backend = Cpu::with_options(Options { poison: true, ..Options::default() });
    let target = backend.targets().unwrap().remove(0);
    backend.open(&target).unwrap().load(program.clone()).unwrap().context().unwrap()
}

fn run(cx: &mut dyn Context, p: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
    cx.enqueue(inputs, &Arc::new(p.shapes(inputs)?))?;
    cx.outputs()
}

/// y = (x + w)·(x + w), h = x + w, with a dynamic number of rows.
fn square() -> Arc<Program> {
    let mut n = Network::new("square");
    let x =
        n.add_input("x", TensorType { dtype: DType::F32, dims: vec![Dim::host("n"), Dim::new(2)] }).unwrap();
    let w = n.add_weights(Some("w"), Tensor::f32(&[2], &[10.0, 20.0]).unwrap()).unwrap();
    let h = n.add_layer("h", "add", Attrs::new(), &[Some(x), Some(w)]).unwrap()[0];
    let y = n.add_layer("y", "mul", Attrs::new(), &[Some(h), Some(h)]).unwrap()[0];
    n.mark_output(y, "y").unwrap();
    Arc::new(Program::step_per_node(n.lower().unwrap(), &Tactic::plain("oracle")))
}

#[test]
fn values_flow_from_step_to_step_at_any_shape() {
    let p = square();
    let mut cx = context(&p);
    let out = run(&mut *cx, &p, &[Tensor::f32(&[1, 2], &[1.0, 2.0]).unwrap()]).unwrap();
    assert_eq!(out[0], Tensor::f32(&[1, 2], &[121.0, 484.0]).unwrap());
    let out = run(&mut *cx, &p, &[Tensor::f32(&[0, 2], &[]).unwrap()]).unwrap();
    assert_eq!(out[0].shape(), [0, 2]);
    assert_eq!(cx.counters().runs, 2);
    assert_eq!(cx.step_times().unwrap().len(), 2);
}

#[test]
fn border_values_are_observed_on_demand() {
    let p = square();
    let h = p.graph.find("h").unwrap();
    let mut cx = context(&p);
    let x = Tensor::f32(&[1, 2], &[1.0, 2.0]).unwrap();
    run(&mut *cx, &p, std::slice::from_ref(&x)).unwrap();
    assert!(matches!(cx.observe(h), Err(BackendError::Unsupported(_))));
    cx.set_observable(true);
    run(&mut *cx, &p, &[x]).unwrap();
    assert_eq!(cx.observe(h).unwrap(), Tensor::f32(&[1, 2], &[11.0, 22.0]).unwrap());
}

#[test]
fn wrong_inputs_and_tactics_are_refused_by_name() {
    let p = square();
    let mut cx = context(&p);
    let good = Tensor::f32(&[1, 2], &[1.0, 2.0]).unwrap();
    let shapes = Arc::new(p.shapes(std::slice::from_ref(&good)).unwrap());
    let bad = Tensor::f32(&[2, 2], &[0.0; 4]).unwrap();
    let error = cx.enqueue(&[bad], &shapes).unwrap_err().to_string();
    assert!(error.contains("\"x\"") && error.contains("[2,2]"), "{error}");
    assert!(matches!(cx.enqueue(&[], &shapes), Err(BackendError::InvalidArgument(_))));
    assert!(cx.outputs().is_err());

    let mut other = (*p).clone();
    other.steps[0].tactic = Tactic::plain("magic");
    let backend = Cpu::new();
    let device = backend.open(&Cpu::target()).unwrap();
    assert!(
        matches!(device.load(Arc::new(other)), Err(BackendError::Incompatible(m)) if m.contains("magic"))
    );
}
