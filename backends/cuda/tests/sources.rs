//! Tactic sources: cuBLASLt and cuDNN agree with the oracle (needs a device and the libraries). Missing
//! libraries are an error that says what to install (needs none of them).

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod common;

use common::device::device;
use common::{Case, cases};
use kiln_backend::{Backend, BackendError, Program, Tactic, Target, source_feature};
use kiln_backend_cuda::{Cuda, target};
use std::sync::Arc;

/// Sources, how their tactics begin, and how many of the cases they must take.
const SOURCES: [(&str, &str, usize); 2] = [("cublaslt", "cublaslt.", 20), ("cudnn", "cudnn.", 12)];

fn with(source: &str, mut target: Target) -> Target {
    target.features.push(source_feature(source));
    target
}

/// Without the library of a source that was asked for, building says what to install.
#[test]
fn a_library_that_is_missing_is_an_error() {
    for (source, prefix, _) in SOURCES {
        let target = with(source, target::known("h200").unwrap());
        let mut asked = 0;
        for case in cases() {
            match Cuda.tactics(&case.region(), &target) {
                Ok(found) if found.iter().any(|t| t.name.starts_with(prefix)) => {
                    return println!("skipped: {source} is here");
                }
                Ok(_) => {}
                Err(BackendError::Io(why)) => {
                    assert!(why.contains("pip install nvidia-"), "{why}");
                    asked += 1;
                }
                Err(e) => panic!("{}: {e}", case.label),
            }
        }
        assert!(asked > 0, "{source} was never asked");
    }
}

/// Without being asked for, no library is touched.
#[test]
fn libraries_are_used_only_when_asked_for() {
    let target = target::known("h200").unwrap();
    for case in cases() {
        let found = Cuda.tactics(&case.region(), &target).unwrap();
        assert!(!found.iter().any(|t| SOURCES.iter().any(|s| t.name.starts_with(s.1))), "{}", case.label);
    }
}

/// Fault of a tactic, run twice; `None` if it is right.
fn wrong(case: &Case, t: &Tactic, target: &Target) -> Option<String> {
    let run = || -> Result<Option<String>, BackendError> {
        let blob = Cuda.compile(&case.region(), t, target)?;
        let program = Arc::new(Program::single_step(case.graph.clone(), t.clone(), blob));
        let mut cx = Cuda.open(target)?.load(program.clone())?.context()?;
        let shapes = Arc::new(program.shapes(&case.inputs)?);
        let wanted = case.graph.eval(&case.inputs).unwrap().remove(0);
        for _ in 0..2 {
            cx.enqueue(&case.inputs, &shapes)?;
            if let Some(e) = case.differs(&cx.outputs()?.remove(0), &wanted) {
                return Ok(Some(e));
            }
        }
        Ok(None)
    };
    run().unwrap_or_else(|e| Some(e.to_string()))
}

#[test]
fn sources_agree_with_the_oracle() {
    let Some((_, here)) = device() else { return };
    for (source, prefix, least) in SOURCES {
        let target = with(source, here.clone());
        let (mut taken, mut failed) = (0, Vec::new());
        for case in cases() {
            let all = match Cuda.tactics(&case.region(), &target) {
                Ok(t) => t,
                Err(BackendError::Io(why)) => return println!("skipped: {why}"),
                Err(e) => panic!("{}: {e}", case.label),
            };
            let own: Vec<&Tactic> = all.iter().filter(|t| t.name.starts_with(prefix)).collect();
            taken += usize::from(!own.is_empty());
            for t in own {
                failed.extend(wrong(&case, t, &target).map(|e| format!("{} by {}: {e}", case.label, t.id())));
            }
        }
        println!("{source}: {taken} cases, {} failed", failed.len());
        assert!(failed.is_empty() && taken >= least, "{taken} cases; failed:\n{}", failed.join("\n"));
    }
}
