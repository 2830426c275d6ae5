//! Small engines on the reference backend.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]
#![allow(dead_code, reason = "each test file uses some of them")]

use kiln_backend::{Program, Tactic};
use kiln_backend_cpu::{Cpu, Options};
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::Network;
use kiln_runtime::{Engine, Profile};
use std::sync::Arc;

pub fn backend() -> Arc<Cpu> {
    Arc::new(Cpu::with_options(Options { poison: true, ..Options::default() }))
}

pub fn f32_ty(dims: &[Dim]) -> TensorType {
    TensorType { dtype: DType::F32, dims: dims.to_vec() }
}

pub fn program(n: &Network) -> Program {
    Program::step_per_node(n.lower().unwrap(), &Tactic::plain("oracle"))
}

/// y = a·w + b of [n, 2] inputs; the inner value is called "h".
pub fn linear() -> Network {
    let mut n = Network::new("linear");
    let ty = f32_ty(&[Dim::host("n"), Dim::new(2)]);
    let a = n.add_input("a", ty.clone()).unwrap();
    let b = n.add_input("b", ty).unwrap();
    let w = n.add_weights(Some("w"), Tensor::f32(&[2], &[10.0, 100.0]).unwrap()).unwrap();
    let h = n.add_layer("h", "mul", Attrs::new(), &[Some(a), Some(w)]).unwrap()[0];
    let y = n.add_layer("sum", "add", Attrs::new(), &[Some(h), Some(b)]).unwrap()[0];
    n.mark_output(y, "y").unwrap();
    n
}

pub fn rows(max: i64) -> Profile {
    let mut p = Profile::new();
    for name in ["a", "b"] {
        p.set_shape(name, &[0, 2], &[1, 2], &[max, 2]).unwrap();
    }
    p
}

pub fn engine(n: &Network, profiles: Vec<Profile>) -> Engine {
    Engine::from_program(program(n), profiles, backend()).unwrap()
}

pub fn t(shape: &[usize], v: &[f32]) -> Tensor {
    Tensor::f32(shape, v).unwrap()
}
