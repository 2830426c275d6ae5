//! Single operators and graphs on the backend.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]
#![allow(dead_code, reason = "each test file uses some of them")]

use kiln_backend::{Backend, BackendError, Program, Step, Tactic};
use kiln_backend_cpu::{Cpu, Options};
use kiln_ir::{Bytes, Fact, Graph, Op, Tensor};
use std::sync::Arc;

/// A graph of one node; what host ports read is constant.
pub fn single(op: &Op, inputs: &[Option<Tensor>]) -> (Graph, Vec<Tensor>) {
    let mut g = Graph::new("single");
    let mut given = Vec::new();
    let ids: Vec<_> = inputs
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let t = t.as_ref()?;
            if op.port(i).is_some_and(|p| p.host) {
                return Some(g.add_constant(&format!("c{i}"), t.clone()));
            }
            given.push(t.clone());
            Some(g.add_input(&format!("x{i}"), Fact::of(t.ty())))
        })
        .collect();
    g.outputs = g.add_node("node", op.clone(), &ids).unwrap();
    (g, given)
}

/// A graph of one node whose second operand is a weight, and its inputs.
pub fn weighed(op: &Op, x: Tensor, w: Tensor) -> (Graph, Vec<Tensor>) {
    let mut g = Graph::new("weighed");
    let a = g.add_input("x", Fact::of(x.ty()));
    let b = g.add_constant("w", w);
    g.outputs = g.add_node("node", op.clone(), &[Some(a), Some(b)]).unwrap();
    (g, vec![x])
}

/// Runs a graph as one step (or a step for each node) by a tactic, twice, memory poisoned.
pub fn run(g: &Graph, tactic: &str, inputs: &[Tensor], whole: bool) -> Result<Vec<Tensor>, BackendError> {
    let tactic = Tactic::plain(tactic);
    let mut program = Program::step_per_node(g.clone(), &tactic);
    if whole {
        let nodes = g.order().to_vec();
        program.steps = vec![Step::new("all", nodes, tactic, Bytes::from(Vec::new()))];
    }
    let program = Arc::new(program);
    let backend = Cpu::with_options(Options { poison: true, ..Options::default() });
    let device = backend.open(&Cpu::target())?;
    let mut cx = device.load(program.clone())?.context()?;
    let shapes = Arc::new(program.shapes(inputs)?);
    cx.enqueue(inputs, &shapes)?;
    let first = cx.outputs()?;
    cx.enqueue(inputs, &shapes)?;
    let second = cx.outputs()?;
    for (a, b) in first.iter().zip(&second) {
        assert_eq!(a.bytes(), b.bytes(), "two runs differ");
    }
    Ok(second)
}

/// Elements must agree to `rel` of the oracle's greatest (finite) magnitude; NaN and infinities exactly.
pub fn assert_close(what: &str, found: &[Tensor], wanted: &[Tensor], rel: f64) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (a, b) in found.iter().zip(wanted) {
        assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()), "{what}");
        let (x, y) = (a.to_f64(), b.to_f64());
        let scale = y.iter().filter(|v| v.is_finite()).fold(1e-30f64, |m, v| m.max(v.abs()));
        for (i, (&x, &y)) in x.iter().zip(&y).enumerate() {
            let same = x == y || (x.is_nan() && y.is_nan());
            let near = y.is_finite() && (x - y).abs() <= rel * scale;
            assert!(same || near, "{what}: element {i} is {x}, the oracle says {y}");
        }
    }
}
