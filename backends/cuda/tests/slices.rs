//! Kernels that look up the addresses of their inputs and outputs, which change with each iteration of a
//! loop. They compile by NVRTC and keep the addresses in registers. Needs no device; `KILN_KERNELS=all` takes
//! all.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod common;

use common::nvrtc::nvrtc;
use common::{cases, report};
use kiln_backend::flow::sliced;
use kiln_backend::{Backend, Program, Region, Tactic, Target};
use kiln_backend_cuda::compile::Resources;
use kiln_backend_cuda::{Cuda, target, written};
use kiln_ir::problem::Rng;
use std::collections::BTreeMap;

/// The tactic, told that all inputs and outputs of its region are slices.
fn told(region: &Region, t: Tactic) -> Tactic {
    let all: Vec<_> = region.inputs.iter().chain(&region.outputs).copied().collect();
    sliced(t, region, &all)
}

/// Regions of one operator each, and those for tensor cores, with what they are.
fn regions() -> Vec<(String, Region)> {
    let mut all = Vec::new();
    for def in kiln_ops::all() {
        let Some(p) = (def.problems)(&mut Rng::new(3)).into_iter().next() else { continue };
        let Ok((program, _)) = Program::single(&p.op, &p.inputs) else { continue };
        all.push((def.name.to_string(), program.region(&program.steps[0]).unwrap()));
    }
    all.extend(cases().into_iter().map(|c| (c.label.clone(), c.region())));
    all
}

/// Sources by the operator or tactic that they are the first of: without slices, and with them.
fn sources(target: &Target) -> BTreeMap<String, [String; 2]> {
    let mut found = BTreeMap::new();
    for (what, region) in regions() {
        for t in Cuda.tactics(&region, target).unwrap_or_default() {
            let source = |t: &Tactic| written(&region, t, target).unwrap().0;
            let name = if t.name == "pointwise" { what.clone() } else { t.name.clone() };
            found.entry(name).or_insert_with(|| [source(&t), source(&told(&region, t.clone()))]);
        }
    }
    found
}

/// Bytes that a thread may keep outside of registers: what tiles on tensor cores may without slices.
const MAX_SPILL: u32 = 160;

#[test]
fn kernels_that_look_up_where_slices_lie_compile() {
    if !nvrtc() {
        return;
    }
    for (name, share) in [("h200", 6), ("a100", 12)] {
        let target = target::known(name).unwrap();
        let all = sources(&target);
        assert!(all.len() > 100, "{} tactics", all.len());
        let (plain, found): (Vec<_>, Vec<_>) =
            all.into_iter().map(|(what, [plain, told])| (plain, (told, what))).unzip();
        for (without, (with, what)) in plain.iter().zip(&found) {
            assert!(!without.contains("struct Parameter"), "{what} pays for what it does not do");
            assert!(with.contains("struct Parameter"), "{what} knows of no slices");
        }
        let some = report::some(found.into_iter().collect(), share);
        let spills =
            |r: &Resources| (r.spilled > MAX_SPILL).then(|| format!("{} bytes are spilled", r.spilled));
        let failed = report::compile(&some, &target.arch, "slices", spills);
        assert!(failed.is_empty(), "{} of {} fail:\n{}", failed.len(), some.len(), failed.join("\n"));
    }
}
