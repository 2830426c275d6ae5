//! Random operators with random attributes, types and shapes, against ONNX Runtime's answers.
//!
//! `scripts/setup.sh` writes a few cases of each operator by `tests/oracle/make.py`. More of them, with other seeds:
//! `tests/oracle/make.py FOLDER --count 70 --seed 5`, then `KILN_ORACLE=FOLDER`. `KILN_OPS=Conv,Resize` picks operators.
//! Cases that ONNX Runtime and Kiln disagree on stand in `tests/oracle/differences.txt`, with the reason.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_ir::{Elems, Tensor};
use kiln_tests::backends;
use kiln_tests::suite::{Setting, root, run_case_by};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

#[test]
fn reference_agrees_with_onnx_runtime() {
    run("reference", Setting::of(backends::reference(), true).unwrap(), 1);
}

#[test]
fn cpu_agrees_with_onnx_runtime() {
    run("cpu", Setting::of(backends::cpu(), true).unwrap(), 1);
}

#[test]
fn wgpu_agrees_with_onnx_runtime() {
    let every = if std::env::var_os("KILN_ORACLE").is_some() { 1 } else { 4 };
    backends::wgpu().unwrap().into_iter().for_each(|b| run("wgpu", Setting::of(b, true).unwrap(), every));
}

#[test]
fn cuda_agrees_with_onnx_runtime() {
    backends::cuda().unwrap().into_iter().for_each(|b| run("cuda", Setting::of(b, true).unwrap(), 1));
}

fn folder() -> PathBuf {
    std::env::var_os("KILN_ORACLE").map_or_else(|| root().join(".cache/oracle"), PathBuf::from)
}

/// Runs the cases on a backend; differences that are not listed fail.
fn run(name: &str, setting: Setting, every: usize) {
    let pick = std::env::var("KILN_OPS").ok();
    let listed = differences();
    let mut cases: Vec<String> = std::fs::read_dir(folder())
        .unwrap_or_else(|e| panic!("{}: {e}; scripts/setup.sh makes it", folder().display()))
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|c| pick.as_deref().is_none_or(|p| p.split(',').any(|op| op == operator(c))))
        .filter(|c| c.contains('_'))
        .collect();
    cases.sort();
    let cases: Vec<String> = cases.into_iter().step_by(every).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let setting = Arc::new(setting);
    let work = || {
        let take = || cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let outcome = |case: &String| {
            let folder = folder().join(case);
            let run = || run_case_by(&setting, &folder, compare);
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            let about = std::fs::read_to_string(folder.join("about.txt")).unwrap_or_default();
            (
                case.clone(),
                ran.unwrap_or_else(|_| Err("panicked".into())).map_err(|e| format!("{e} | {about}")),
            )
        };
        std::iter::from_fn(take).map(outcome).collect::<Vec<_>>()
    };
    let mut all: Vec<(String, Result<(), String>)> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..2).map(|_| s.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    all.sort_by(|a, b| a.0.cmp(&b.0));
    let failed: Vec<_> = all.iter().filter_map(|(c, r)| r.as_ref().err().map(|e| (c, e))).collect();
    let operators: BTreeSet<&str> = all.iter().map(|(c, _)| operator(c)).collect();
    println!("{name}: {} cases of {} operators, {} differ", all.len(), operators.len(), failed.len());
    let unexplained: Vec<String> = failed
        .iter()
        .filter(|(case, error)| {
            !listed.get(operator(case)).is_some_and(|known| known.iter().any(|k| explains(k, error)))
        })
        .map(|(case, error)| format!("{case}: {error}"))
        .collect();
    assert!(!all.is_empty(), "no case ran");
    assert!(unexplained.is_empty(), "{} unexplained:\n{}", unexplained.len(), unexplained.join("\n"));
}

fn operator(case: &str) -> &str {
    case.split('_').next().unwrap_or(case)
}

/// Whether all parts of a line, separated by ` & `, stand in a message.
fn explains(parts: &str, error: &str) -> bool {
    parts.split(" & ").all(|part| error.contains(part))
}

/// Explained parts of messages by operator: lines `Operator -- parts -- reason`.
fn differences() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(root().join("tests/oracle/differences.txt")).unwrap();
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
        let [op, parts, _reason] = line.splitn(3, " -- ").collect::<Vec<_>>()[..] else {
            panic!("a line of differences.txt has no three parts: {line}");
        };
        all.entry(op.into()).or_default().push(parts.into());
    }
    all
}

/// Integers are equal, floats within 1e-4 of the value and 1e-5 of the greatest (2e-3 in f16): both sides round. Zero is
/// anything below 1e-12.
fn compare(found: &Tensor, wanted: &Tensor) -> Result<(), String> {
    if found.dtype() != wanted.dtype() || found.shape() != wanted.shape() {
        return Err(format!("is {}, wants {}", found.ty(), wanted.ty()));
    }
    let (relative, absolute) = if found.dtype() == kiln_ir::DType::F32 { (1e-4, 1e-5) } else { (2e-3, 2e-3) };
    let off = match (found.elems(), wanted.elems()) {
        (Elems::F(a), Elems::F(b)) => {
            let greatest = b.iter().filter(|x| x.is_finite()).fold(0.0, |m: f64, x| m.max(x.abs())).min(1e3);
            let same = |x: f64, y: f64| {
                x == y
                    || (x.is_nan() && y.is_nan())
                    || (y.is_finite() && (x - y).abs() <= relative * y.abs() + absolute * greatest + 1e-12)
            };
            (0..a.len()).find(|&i| !same(a[i], b[i])).map(|i| format!("[{i}] is {}, wants {}", a[i], b[i]))
        }
        (Elems::I(a), Elems::I(b)) => {
            (0..a.len()).find(|&i| a[i] != b[i]).map(|i| format!("[{i}] is {}, wants {}", a[i], b[i]))
        }
        _ => Some("kinds differ".into()),
    };
    off.map_or(Ok(()), |e| Err(format!("{}: {e}", wanted.ty())))
}
