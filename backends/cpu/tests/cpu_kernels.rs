//! Layers that the oracle computes: every problem of every operator has a kernel, and no kernel leaves its layer to the oracle.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod common;

use common::single;
use kiln_backend::{Backend, Context, Program, Tactic};
use kiln_backend_cpu::{Cpu, Options};
use kiln_ir::problem::Rng;
use kiln_ir::{Graph, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Operators without a kernel, and why.
const LEFT: &[(&str, &str)] = &[];

/// Who computes the only layer of a graph: nothing where it is a kernel.
fn by_oracle(backend: &Cpu, graph: &Graph, inputs: &[Tensor]) -> Option<&'static str> {
    let target = backend.targets().unwrap().remove(0);
    let program = Program::step_per_node(graph.clone(), &Tactic::plain(""));
    let region = program.region(&program.steps[0]).unwrap();
    let tactics = backend.tactics(&region, &target).unwrap();
    if tactics.iter().all(|t| t.name == "oracle") {
        return Some("has no kernel");
    }
    let program = Arc::new(Program::step_per_node(graph.clone(), &tactics[0]));
    let device = backend.open(&target).unwrap();
    let mut cx: Box<dyn Context> = device.load(program.clone()).unwrap().context().unwrap();
    let Ok(shapes) = program.shapes(inputs) else { return None };
    cx.enqueue(inputs, &Arc::new(shapes)).unwrap();
    (!cx.host_steps().unwrap().is_empty()).then_some("has a kernel that leaves it to the oracle")
}

#[test]
fn every_problem_is_computed_by_a_kernel() {
    let backend = Cpu::with_options(Options { poison: true, ..Options::default() });
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for def in kiln_ops::all() {
        if LEFT.iter().any(|(op, _)| *op == def.name.as_ref()) {
            continue;
        }
        for p in (def.problems)(&mut Rng::new(11)) {
            let (g, inputs) = single(&p.op, &p.inputs);
            if let Some(why) = by_oracle(&backend, &g, &inputs) {
                found.entry(format!("{} {why}", def.name)).or_default().push(p.label.clone());
            }
        }
    }
    let lines = found.iter().map(|(what, labels)| format!("{what}: {}", labels.join("; ")));
    assert!(found.is_empty(), "{}", lines.collect::<Vec<_>>().join("\n"));
}
