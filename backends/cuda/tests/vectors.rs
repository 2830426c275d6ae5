//! Kernels by vectors: every one compiles without spills (needs NVRTC), and agrees with the oracle (needs a device).

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod common;
#[path = "common/vectors.rs"]
mod problems;

use common::device::device;
use common::nvrtc::nvrtc;
use common::{Case, report};
use kiln_backend::{Backend, Program, Tactic, Target};
use kiln_backend_cuda::Cuda;
use problems::{OWN, cases};
use std::sync::Arc;

/// Tactics of a case that only this backend has.
fn tactics(case: &Case, target: &Target) -> Vec<Tactic> {
    case.tactics(target, |t| OWN.iter().any(|end| t.name.ends_with(end)))
}

/// Sources of all cases, each once, with what they are for.
fn sources(target: &Target) -> report::Sources {
    let all = cases().into_iter();
    report::written_for(target, all.map(|c| (c.label.clone(), c.region(), tactics(&c, target))))
}

/// Bytes that a thread may keep outside of registers. Transposes of four channels with two operands behind them have the most; the others
/// keep barriers that they come back to, 16 bytes.
const MAX_SPILL: u32 = 56;

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
    let taken = report::sampled(cases(), &target, Case::region, |case| tactics(case, &target));
    let wanted = report::parallel(&taken, |(case, _)| case.graph.eval(&case.inputs).unwrap().remove(0));
    let (mut failed, mut runs) = (Vec::new(), 0);
    for ((case, tactics), wanted) in taken.into_iter().zip(&wanted) {
        for t in tactics {
            let blob = Cuda.compile(&case.region(), &t, &target).unwrap();
            let program = Arc::new(Program::single_step(case.graph.clone(), t.clone(), blob));
            let mut cx = device.load(program.clone()).unwrap().context().unwrap();
            let shapes = Arc::new(program.shapes(&case.inputs).unwrap());
            cx.enqueue(&case.inputs, &shapes).unwrap_or_else(|e| panic!("{} by {}: {e}", case.label, t.id()));
            let found =
                cx.outputs().unwrap_or_else(|e| panic!("{} by {}: {e}", case.label, t.id())).remove(0);
            failed.extend(case.differs(&found, wanted).map(|e| format!("{} by {}: {e}", case.label, t.id())));
            runs += 1;
        }
    }
    println!("{runs} runs, {} failed", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
