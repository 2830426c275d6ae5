//! Programs that the tests of the plug-in ABI run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use kiln_backend::{MemoryRules, Program, Tactic, Target};
use kiln_ir::{Attrs, DType, Dim, Fact, Graph, Op, Tensor, TensorType, ValueId};
use std::collections::BTreeMap;
use std::sync::Arc;

pub fn op(name: &str, attrs: Attrs) -> Op {
    Op::new(name, attrs).unwrap()
}

pub fn target(device: &str) -> Target {
    Target {
        backend: "test".into(),
        version: "1".into(),
        arch: "any".into(),
        device: device.into(),
        driver: String::new(),
        features: vec![],
        numbers: BTreeMap::new(),
        memory: MemoryRules { alignment: 64, max_binding: 1 << 40, in_place: false, total: 0 },
        uuid: String::new(),
        traits: BTreeMap::new(),
    }
}

/// y = x·wᵀ + b with x [n, 3], w [20, 3], b [1]; z = y + y. Values are numbered in an order that no payload
/// has: the weight before the input, a removed node between, and a weight that nobody reads. Returns the ids
/// of y and of x.
pub fn affine(name: &str) -> (Arc<Program>, ValueId, ValueId) {
    let mut g = Graph::new(name);
    let w: Vec<f32> = (0..60).map(|i| i as f32).collect();
    let w = g.add_constant("w", Tensor::f32(&[20, 3], &w).unwrap());
    let x = TensorType { dtype: DType::F32, dims: vec![Dim::host("n"), Dim::new(3)] };
    let x = g.add_input("x", Fact::of(x));
    let dead = g.add("dead", op("neg", Attrs::new()), &[x]).unwrap();
    g.add_constant("source", Tensor::i64(&[40], &[7; 40]).unwrap());
    let b = g.add_constant("b", Tensor::f32(&[1], &[0.5]).unwrap());
    let p = g.add("p", op("matmul", Attrs::new().with("trans_b", true)), &[x, w]).unwrap();
    let y = g.add("y", op("add", Attrs::new()), &[p, b]).unwrap();
    let z = g.add("z", op("add", Attrs::new()), &[y, y]).unwrap();
    g.remove_node(g.producer(dead).unwrap().0);
    g.outputs = vec![z];
    (Arc::new(Program::step_per_node(g, &Tactic::plain("plain"))), y, x)
}

/// Result of [`affine`] for x[r][k] = r + k, computed by formula: y = Σₖ (r+k)(3c+k) + ½.
pub fn expected_y(rows: usize) -> Vec<f32> {
    let at = |r: usize, c: usize| (0..3).map(|k| ((r + k) * (3 * c + k)) as f32).sum::<f32>() + 0.5;
    (0..rows * 20).map(|i| at(i / 20, i % 20)).collect()
}

/// The input of [`affine`].
pub fn input(rows: usize) -> Tensor {
    let x: Vec<f32> = (0..rows * 3).map(|i| (i / 3 + i % 3) as f32).collect();
    Tensor::f32(&[rows, 3], &x).unwrap()
}

/// A program of one node.
pub fn single(name: &str, op: Op, inputs: &[TensorType]) -> Arc<Program> {
    let mut g = Graph::new(name);
    let ins: Vec<_> = inputs
        .iter()
        .enumerate()
        .map(|(i, ty)| Some(g.add_input(&format!("x{i}"), Fact::of(ty.clone()))))
        .collect();
    g.outputs = g.add_node("y", op, &ins).unwrap();
    Arc::new(Program::step_per_node(g, &Tactic::plain("plain")))
}
