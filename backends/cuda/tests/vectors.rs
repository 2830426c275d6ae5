//! Kernels by vectors: every one compiles without spills (needs NVRTC), and agrees with the oracle (needs a device).

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod common;
#[path = "common/vectors.rs"]
mod problems;

use common::nvrtc::nvrtc;
use common::{Case, parallel};
use kiln_backend::{Backend, Program, Tactic, Target};
use kiln_backend_cuda::compile::{cubin, explain};
use kiln_backend_cuda::{Cuda, target, written};
use problems::{OWN, cases};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tactics of a case that only this backend has.
fn tactics(case: &Case, target: &Target) -> Vec<Tactic> {
    let all = Cuda.tactics(&case.region(), target).unwrap_or_else(|e| panic!("{}: {e}", case.label));
    let found: Vec<_> = all.into_iter().filter(|t| OWN.iter().any(|end| t.name.ends_with(end))).collect();
    assert!(!found.is_empty(), "{}: nothing by vectors", case.label);
    found
}

/// Sources of all cases, each once, with what they are for.
fn sources(target: &Target) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for case in cases() {
        for t in tactics(&case, target) {
            let (text, _) = written(&case.region(), &t, target).unwrap();
            found.entry(text).or_insert_with(|| format!("{} by {}", case.label, t.id()));
        }
    }
    found
}

/// Bytes that a thread may keep outside of registers: barriers that it comes back to.
const MAX_SPILL: u32 = 16;

/// Bytes of spill stores that a line of the compiler's log tells.
fn spilled(line: &str) -> u32 {
    let before = line.split_once(" bytes spill stores").and_then(|(before, _)| before.rsplit(' ').next());
    before.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// By default one of seven sources; `KILN_KERNELS=all` takes all.
#[test]
fn kernels_by_vectors_compile_and_do_not_spill() {
    if !nvrtc() {
        return;
    }
    let step = if std::env::var_os("KILN_KERNELS").is_some_and(|v| v == "all") { 1 } else { 7 };
    for name in ["h200", "a100"] {
        let target = target::known(name).unwrap();
        let some: Vec<_> = sources(&target).into_iter().step_by(step).collect();
        let failed = parallel(&some, |(text, what)| match explain(text, &target.arch) {
            Ok(c) => {
                let spills = c.log.lines().find(|l| spilled(l) > MAX_SPILL);
                spills.map(|l| format!("{what} for {name}: {l}"))
            }
            Err(e) => Some(format!("{what} for {name}: {e}")),
        });
        println!("{} sources for {name}", some.len());
        assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), some.len(), failed.join("\n"));
    }
}

#[test]
fn kernels_by_vectors_agree_with_the_oracle() {
    let target = match Cuda.targets() {
        Ok(mut t) => t.remove(0),
        Err(e) if std::env::var_os("KILN_REQUIRE_CUDA").is_some_and(|v| v == "1") => panic!("{e}"),
        Err(e) => return println!("skipped: {e}"),
    };
    let device = Cuda.open(&target).unwrap();
    let all = sources(&target).into_keys().collect::<Vec<_>>();
    let refused = parallel(&all, |text| cubin(text, &target.arch).err().map(|e| e.to_string()));
    assert!(refused.is_empty(), "{refused:?}");
    let (mut failed, mut runs) = (Vec::new(), 0);
    for case in cases() {
        let wanted = case.graph.eval(&case.inputs).unwrap().remove(0);
        for t in tactics(&case, &target) {
            let blob = Cuda.compile(&case.region(), &t, &target).unwrap();
            let program = Arc::new(Program::single_step(case.graph.clone(), t.clone(), blob));
            let mut cx = device.load(program.clone()).unwrap().context().unwrap();
            let shapes = Arc::new(program.shapes(&case.inputs).unwrap());
            cx.enqueue(&case.inputs, &shapes).unwrap_or_else(|e| panic!("{} by {}: {e}", case.label, t.id()));
            let found =
                cx.outputs().unwrap_or_else(|e| panic!("{} by {}: {e}", case.label, t.id())).remove(0);
            failed
                .extend(case.differs(&found, &wanted).map(|e| format!("{} by {}: {e}", case.label, t.id())));
            runs += 1;
        }
    }
    println!("{runs} runs, {} failed", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
