//! Attention on tensor cores: every tile compiles without spilling (needs NVRTC), agrees with the oracle (needs a device), and
//! how fast it is.
//!
//! Speeds: `KILN_REQUIRE_CUDA=1 flash_attention --ignored --nocapture speed`; `KILN_CASES=long` times workloads of that name alone.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

#[path = "common/attention.rs"]
mod attention;
mod common;

use attention::{Case, WORKLOADS, cases, hidden, region};
use common::device::device;
use common::nvrtc::nvrtc;
use common::{parallel, report};
use kiln_backend::{Backend, Device, Program, Tactic, Target};
use kiln_backend_cuda::Cuda;
use kiln_backend_cuda::compile::cubin;
use kiln_ir::{Graph, Tensor};
use std::sync::Arc;

/// Tactics of a case that use tensor cores.
fn tactics(label: &str, graph: &Graph, target: &Target) -> Vec<Tactic> {
    let all = Cuda.tactics(&region(graph), target).unwrap_or_else(|e| panic!("{label}: {e}"));
    let found: Vec<_> = all.into_iter().filter(|t| t.name.contains("ma_")).collect();
    assert!(!found.is_empty(), "{label}: nothing on tensor cores");
    found
}

/// Sources of all cases, each once, with what they are for.
fn sources(target: &Target, cases: &[Case]) -> report::Sources {
    let of = |c: &Case| (c.label.clone(), region(&c.graph), tactics(&c.label, &c.graph, target));
    report::written_for(target, cases.iter().map(of))
}

/// Bytes that a thread may keep outside of registers: some numbers that the loop over keys does not use.
const MAX_SPILL: u32 = 32;

/// By default one of 41 sources; `KILN_KERNELS=all` takes all, another text those whose name has it.
#[test]
fn tiles_compile_and_do_not_spill() {
    if !nvrtc() {
        return;
    }
    let cases = cases();
    report::compile_without_spills("attention", 41, MAX_SPILL, |target| sources(target, &cases));
}

/// Runs a case twice by a tactic; what is wrong, if anything is.
fn run(
    device: &Arc<dyn Device>,
    target: &Target,
    case: &Case,
    t: &Tactic,
    wanted: &[Tensor],
) -> Option<String> {
    let blob = Cuda.compile(&region(&case.graph), t, target).unwrap();
    let program = Arc::new(Program::single_step(case.graph.clone(), t.clone(), blob));
    let mut cx = device.load(program.clone()).unwrap().context().unwrap();
    let shapes = Arc::new(program.shapes(&case.inputs).unwrap());
    let mut first: Option<Vec<Tensor>> = None;
    for _ in 0..2 {
        let found = match cx.enqueue(&case.inputs, &shapes).and_then(|()| cx.outputs()) {
            Ok(found) => found,
            Err(e) => return Some(e.to_string()),
        };
        let wrong = found.iter().zip(wanted).enumerate();
        if let Some(e) = wrong.filter_map(|(j, (x, y))| Some((j, case.differs(x, y)?))).next() {
            return Some(format!("output {}: {}", e.0, e.1));
        }
        let same = |f: &Vec<Tensor>| f.iter().zip(&found).all(|(a, b)| a.bytes() == b.bytes());
        if !first.as_ref().is_none_or(same) {
            return Some("two runs differ".into());
        }
        first = Some(found);
    }
    None
}

#[test]
fn tiles_agree_with_the_oracle() {
    let Some((device, target)) = device() else { return };
    let all = |case: &Case| {
        let generic = Cuda.tactics(&region(&case.graph), &target).unwrap();
        let generic = generic.into_iter().filter(|t| t.name == "attention");
        tactics(&case.label, &case.graph, &target).into_iter().chain(generic).collect()
    };
    let taken = report::sampled(
        cases().into_iter().chain(hidden()).collect(),
        &target,
        |case| region(&case.graph),
        all,
    );
    let wanted = report::parallel(&taken, |(case, _)| case.graph.eval(&case.inputs).unwrap());
    let mut failed = Vec::new();
    let mut runs = 0;
    for ((case, tactics), wanted) in taken.iter().zip(&wanted) {
        for t in tactics {
            if let Some(e) = run(&device, &target, case, t, wanted) {
                failed.push(format!("{} by {}: {e}", case.label, t.id()));
            }
            runs += 1;
        }
    }
    println!("{runs} runs, {} failed", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Launches of a graph, one behind the other.
const CHAIN: usize = 10;

/// Microseconds of one of several launches in a graph.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let Some((device, target)) = device() else { return };
    let part = std::env::var("KILN_CASES").unwrap_or_default();
    let workloads: Vec<_> = WORKLOADS.iter().filter(|w| w.label.contains(&part)).collect();
    let cases = parallel(&workloads, |w| Some(w.case()));
    let all = sources(&target, &cases).into_keys().collect::<Vec<_>>();
    parallel(&all, |text| cubin(text, &target.arch).err().map(|e| panic!("{e}")));
    for w in workloads {
        let case = cases
            .iter()
            .find(|c| c.label.starts_with(w.label) && c.label.len() == w.label.len() + 4)
            .unwrap();
        let region = region(&case.graph);
        let mut found = tactics(&case.label, &case.graph, &target);
        found.sort_by(|a, b| a.estimate_ns.unwrap_or(0.0).total_cmp(&b.estimate_ns.unwrap_or(0.0)));
        let blobs = found.iter().map(|t| Cuda.compile(&region, t, &target).unwrap()).collect::<Vec<_>>();
        println!("{}", case.label);
        let mut lines = Vec::new();
        for (t, blob) in found.iter().zip(&blobs) {
            let mut program = Program::single_step(case.graph.clone(), t.clone(), blob.clone());
            program.steps = vec![program.steps.remove(0); CHAIN];
            let program = Arc::new(program);
            let mut cx = device.load(program.clone()).unwrap().context().unwrap();
            cx.enqueue(&case.inputs, &Arc::new(program.shapes(&case.inputs).unwrap())).unwrap();
            let mut times: Vec<f64> = cx.time_runs(12).unwrap().iter().map(|t| t / CHAIN as f64).collect();
            times.remove(0);
            times.sort_by(f64::total_cmp);
            lines.push((times[times.len() / 2] / 1e3, t.estimate_ns.unwrap_or(0.0) / 1e3, &t.name));
        }
        lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        let preferred = &found[0].name;
        for (i, (us, expected, name)) in lines.into_iter().enumerate() {
            if i < 4 || name == preferred || name.contains("tma") {
                println!("  {name:<30} {us:>8.2} us  (expected {expected:.1} us)");
            }
        }
    }
}
