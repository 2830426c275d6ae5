//! Kernels by vectors: every one compiles without spills (needs NVRTC), and agrees with the oracle (needs a device).

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod common;
#[path = "common/vectors.rs"]
mod problems;

use common::device::device;
use common::nvrtc::nvrtc;
use common::{Case, parallel, report};
use kiln_backend::{Backend, Program, Tactic, Target};
use kiln_backend_cuda::compile::cubin;
use kiln_backend_cuda::{Cuda, written};
use problems::{OWN, cases};
use std::sync::Arc;

/// Tactics of a case that only this backend has.
fn tactics(case: &Case, target: &Target) -> Vec<Tactic> {
    let all = Cuda.tactics(&case.region(), target).unwrap_or_else(|e| panic!("{}: {e}", case.label));
    let found: Vec<_> = all.into_iter().filter(|t| OWN.iter().any(|end| t.name.ends_with(end))).collect();
    assert!(!found.is_empty(), "{}: nothing by vectors", case.label);
    found
}

/// Sources of all cases, each once, with what they are for.
fn sources(target: &Target) -> report::Sources {
    let mut found = report::Sources::new();
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

/// By default one of seven sources; `KILN_KERNELS=all` takes all.
#[test]
fn kernels_by_vectors_compile_and_do_not_spill() {
    if !nvrtc() {
        return;
    }
    report::compile_without_spills("vectors", 7, MAX_SPILL, sources);
}

#[test]
fn kernels_by_vectors_agree_with_the_oracle() {
    let Some((device, target)) = device() else { return };
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
