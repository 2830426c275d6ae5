//! Kernels of every operator compile by NVRTC. Needs no device.
//!
//! By default one problem of each operator and tactic, for sm_90a, and some of them for sm_80; `KILN_KERNELS=all` takes
//! every problem for both. Without NVRTC the tests are skipped, unless `KILN_REQUIRE_NVRTC=1`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

#[path = "common/nvrtc.rs"]
mod nvrtc;

use kiln_backend::{Backend, BackendError, Program, Target};
use kiln_backend_cuda::compile::{cubin, explain};
use kiln_backend_cuda::{Cuda, target, written};
use kiln_ir::problem::Rng;
use nvrtc::nvrtc;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sources with what they are for, each once.
fn sources(target: &Target, all: bool) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for def in kiln_ir::ops::all() {
        for p in (def.problems)(&mut Rng::new(3)) {
            let Ok((program, _)) = Program::single(&p.op, &p.inputs) else { continue };
            let region = program.region(&program.steps[0]).unwrap();
            let tactics = match Cuda.tactics(&region, target) {
                Ok(t) => t,
                Err(BackendError::Unsupported(_)) => continue,
                Err(e) => panic!("{} ({}): {e}", def.name, p.label),
            };
            for t in tactics {
                if all || seen.insert((def.name, t.id())) {
                    let (text, _) = written(&region, &t, target).unwrap();
                    found.entry(text).or_insert_with(|| format!("{} ({}) by {}", def.name, p.label, t.id()));
                }
            }
        }
    }
    found
}

/// Compiles on all cores; what fails, with the compiler's words.
fn compile(sources: &BTreeMap<String, String>, arch: &str) -> Vec<String> {
    let list: Vec<_> = sources.iter().collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|s| {
        let work = || {
            let mut failed = Vec::new();
            while let Some((text, what)) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(e) = cubin(text, arch) {
                    let log = e.to_string();
                    let error =
                        log.lines().filter(|l| l.contains("error")).take(3).collect::<Vec<_>>().join("\n");
                    failed.push(format!("{what} for {arch}: {error}"));
                }
            }
            failed
        };
        let running: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        running.into_iter().flat_map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn kernels_of_every_operator_compile() {
    if !nvrtc() {
        return;
    }
    let all = std::env::var_os("KILN_KERNELS").is_some_and(|v| v == "all");
    for (name, share) in [("h200", 1), ("a100", if all { 1 } else { 4 })] {
        let target = target::known(name).unwrap();
        let mut sources = sources(&target, all);
        assert!(sources.len() > 100, "only {} sources", sources.len());
        let mut k = 0;
        sources.retain(|_, _| {
            k += 1;
            k % share == 0
        });
        let start = std::time::Instant::now();
        let failed = compile(&sources, &target.arch);
        println!("{} kernels for {} in {:.1?}", sources.len(), target.arch, start.elapsed());
        assert!(failed.is_empty(), "{} of {} fail:\n{}", failed.len(), sources.len(), failed.join("\n"));
    }
}

/// The compiler's words on what a kernel takes, for generic tactics that keep sums in registers.
#[test]
fn tiled_kernels_do_not_spill() {
    if !nvrtc() {
        return;
    }
    let target = target::known("h200").unwrap();
    let tiled: Vec<_> =
        sources(&target, false).into_iter().filter(|(_, what)| what.contains(".tiled")).collect();
    assert!(!tiled.is_empty());
    for (text, what) in tiled {
        let log = explain(&text, &target.arch).unwrap().log;
        let spills: Vec<&str> = log.lines().filter(|l| l.contains("spill")).collect();
        assert!(!spills.is_empty(), "{what}: {log}");
        assert!(spills.iter().all(|l| l.contains(" 0 bytes spill stores")), "{what}: {spills:?}");
    }
}
