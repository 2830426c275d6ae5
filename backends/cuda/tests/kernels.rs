//! Kernels of every operator compile by NVRTC. Needs no device.
//!
//! By default one problem of each operator and tactic, for sm_90a and sm_80, and some of them for other architectures;
//! `KILN_KERNELS=all` takes every problem for all, `KILN_OPS=add,conv` picks operators. What kernels take is listed in target/kernels. Without NVRTC the tests are skipped, unless `KILN_REQUIRE_NVRTC=1`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

#[path = "common/nvrtc.rs"]
mod nvrtc;
#[path = "common/report.rs"]
mod report;

use kiln_backend::{Backend, BackendError, Program, Target};
use kiln_backend_cuda::compile::Resources;
use kiln_backend_cuda::{Cuda, target, written};
use kiln_ir::problem::Rng;
use nvrtc::nvrtc;
use std::collections::{BTreeMap, BTreeSet};

/// Sources with what they are for, each once.
fn sources(target: &Target, all: bool) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let pick = std::env::var("KILN_OPS").unwrap_or_default();
    for def in kiln_ops::all().filter(|d| pick.is_empty() || pick.split(',').any(|n| n == d.name.as_str())) {
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

/// Targets, and one of how many sources is compiled for each: the generic path alone where there are no kernels of its own.
const SHARES: [(&str, usize); 6] =
    [("h200", 1), ("a100", 1), ("a10", 8), ("l4", 8), ("b200", 8), ("rtx5090", 8)];

/// Compilations of a run at most, without KILN_KERNELS=all.
const MOST: usize = 1500;

#[test]
fn kernels_of_every_operator_compile() {
    if !nvrtc() {
        return;
    }
    let all = std::env::var_os("KILN_KERNELS").is_some_and(|v| v == "all");
    let mut compiled = 0;
    for (name, share) in SHARES {
        let target = target::known(name).unwrap();
        let sources = sources(&target, all);
        let picked = std::env::var_os("KILN_OPS").is_some();
        assert!(picked || sources.len() > 100, "only {} sources", sources.len());
        let some: Vec<_> = sources.into_iter().step_by(if all { 1 } else { share }).collect();
        compiled += some.len();
        let failed = report::compile(&some, &target.arch, "operators", |_| None);
        assert!(failed.is_empty(), "{} of {} fail:\n{}", failed.len(), some.len(), failed.join("\n"));
    }
    assert!(all || compiled <= MOST, "{compiled} compilations, {MOST} are allowed");
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
    let spills = |r: &Resources| (r.spilled > 0).then(|| format!("{} bytes are spilled", r.spilled));
    let failed = report::compile(&tiled, &target.arch, "tiled", spills);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Kernels that store their results as parts of larger tensors, in runs of eight and others.
#[test]
fn kernels_that_store_parts_compile() {
    if !nvrtc() {
        return;
    }
    let target = target::known("h200").unwrap();
    let layers = [
        "input %a: T[2,16,32] input %b: T[32,24] input %c: T[24] %z = matmul(%a, %b) %y = add(%z, %c)",
        "input %a: T[2,8,8,32] input %w: T[64,32] %z = matmul(%a, %w) {trans_b=true} %y = relu(%z)",
        "input %a: T[2,16,8,32] input %w: T[16,32,3,3] %y = conv(%a, %w) {layout=\"channels_last\", pads=[1,1,1,1]}",
        "input %a: T[2,16,24] %y = softmax(%a)",
        "input %a: T[2,16,24] %y = transpose(%a) {perm=[0,2,1]}",
        "input %a: T[2,16,24] input %b: T[24] %y = mul(%a, %b)",
    ];
    let mut sources = BTreeMap::new();
    for (dtype, start) in [("f16", 8), ("f32", 3)] {
        for layer in &layers {
            let layer = layer.replace("T[", &format!("{dtype}["));
            let text = format!(
                "graph \"g\" {{ {layer} %out = insert_slice(_, %y) {{axis=1, start={start}, size=64, unset=true}} output %out }}"
            );
            add_sources(&text, &target, &mut sources);
        }
    }
    compile_all(sources, &target, "parts");
}

/// The sources of a region, by all tactics; none of a graph that is none, or of integers that no kernel takes.
fn add_sources(text: &str, target: &Target, sources: &mut BTreeMap<String, String>) {
    let Ok(g) = kiln_ir::Graph::from_text(text) else { return };
    let program = Program::single_step(g, kiln_backend::Tactic::plain(""), Vec::new());
    let region = program.region(&program.steps[0]).unwrap();
    let tactics = match Cuda.tactics(&region, target) {
        Err(BackendError::Unsupported(_)) if text.contains("%given: i64") => return,
        t => t.unwrap_or_else(|e| panic!("{text}: {e}")),
    };
    for t in tactics {
        let (source, _) = written(&region, &t, target).unwrap();
        sources.insert(source, format!("{text} by {}", t.id()));
    }
}

fn compile_all(sources: BTreeMap<String, String>, target: &Target, name: &str) {
    assert!(sources.len() > 15, "only {} sources", sources.len());
    let sources: Vec<_> = sources.into_iter().collect();
    let failed = report::compile(&sources, &target.arch, name, |_| None);
    assert!(failed.is_empty(), "{} fail:\n{}", failed.len(), failed.join("\n"));
}

/// Kernels that read inputs through a slice and a transpose in front of them.
#[test]
fn kernels_behind_moves_compile() {
    if !nvrtc() {
        return;
    }
    let target = target::known("h200").unwrap();
    let layers = [
        ("2,8,6", "input %w: T[6,5] input %b: T[5] %z = matmul(%x, %w) %y = add(%z, %b)"),
        ("2,8,6", "weight %at: i64[1] = [1] %y = reduce(%x, %at) {op=\"sum\"}"),
        ("2,8,6", "%y = softmax(%x) {axis=1}"),
        ("2,8,6", "%y = lp_norm(%x)"),
        ("2,8,6", "%y = argmax(%x) {axis=2}"),
        ("2,4,8,6", "input %w: T[3,4,3,3] %y = conv(%x, %w)"),
        ("2,4,8,6", "%y = pool(%x) {kernel=[2,2]}"),
        ("2,4,8,6", "input %k: T[2,4,5,6] input %v: T[2,4,5,6] %y, %a, %b, %c = attention(%x, %k, %v)"),
    ];
    let mut sources = BTreeMap::new();
    for dtype in ["f32", "f16", "i64"] {
        for (dims, layer) in &layers {
            // The last dimensions stay where they are only for the attention.
            let mut perm: Vec<usize> = (0..dims.split(',').count()).collect();
            if layer.contains("attention") {
                perm.swap(1, 2)
            } else {
                perm.reverse()
            }
            let mut from: Vec<&str> = vec![""; perm.len()];
            dims.split(',').zip(&perm).for_each(|(d, &p)| from[p] = d);
            let (layer, from) = (layer.replace("T[", &format!("{dtype}[")), from.join(","));
            let text = format!(
                "graph \"g\" {{ input %given: {dtype}[{from}] weight %first: i64[1] = [0] weight %end: i64[1] = [100] \
                 %part = slice(%given, %first, %end) %x = transpose(%part) {{perm={perm:?}}} {layer} output %y }}"
            );
            add_sources(&text, &target, &mut sources);
        }
    }
    compile_all(sources, &target, "views");
}

/// Kernels that reduce the rows of their result to a second output.
#[test]
fn kernels_with_side_results_compile() {
    if !nvrtc() {
        return;
    }
    let target = target::known("h200").unwrap();
    let regions = [
        ("", "matmul(%a, %b)"),
        ("%z = matmul(%a, %b) %t = add(%z, %c)", "relu(%t)"),
        ("%l = transpose(%a) {perm=[0,2,1]}", "matmul(%l, %b) {trans_a=true}"),
        ("%z = matmul(%a, %b)", "cast(%z) {to=f16}"),
        ("", "mul(%d, %c)"),
    ];
    let ops = ["sum", "mean", "max", "min", "l1", "l2", "prod", "sum_square", "log_sum", "log_sum_exp"];
    let all = std::env::var_os("KILN_KERNELS").is_some_and(|v| v == "all");
    let mut seen = BTreeSet::new();
    let mut sources = BTreeMap::new();
    for (i, dtype) in ["f32", "f16", "bf16", "i64", "i32", "i8"].into_iter().enumerate() {
        let pairs = (0..ops.len()).flat_map(|j| (0..regions.len()).map(move |k| (j, k)));
        for (j, k) in pairs.filter(|(j, k)| all || (i + j + k) % 6 == 0) {
            let (op, (before, y)) = (ops[j], regions[k]);
            // The type of the product, which the last region reads too.
            let wide = if dtype == "i8" && k < 4 { "i32" } else { dtype };
            let text = format!(
                "graph \"g\" {{ input %a: {dtype}[2,8,6] input %b: {dtype}[6,5] input %c: {wide}[5] input %d: {wide}[2,8,5] \
                 weight %at: i64[1] = [-1] {before} %y = {y} %s = reduce(%y, %at) {{op=\"{op}\"}} output %y output %s }}"
            );
            let g = kiln_ir::Graph::from_text(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            let program = Program::single_step(g, kiln_backend::Tactic::plain(""), Vec::new());
            let region = program.region(&program.steps[0]).unwrap();
            let tactics = Cuda.tactics(&region, &target).unwrap_or_else(|e| panic!("{text}: {e}"));
            for t in tactics {
                // Every operation and type by the simplest kernels; others for floats and for bytes.
                let simple = ["matmul.naive", "pointwise"].contains(&&*t.name);
                let key = if simple { (i, j) } else { (usize::from(dtype == "i8"), 0) };
                if all || seen.insert((t.id(), key)) {
                    let (source, _) = written(&region, &t, &target).unwrap();
                    sources.insert(source, format!("{text} by {}", t.id()));
                }
            }
        }
    }
    assert!(sources.len() > 50, "only {} sources", sources.len());
    let sources: Vec<_> = sources.into_iter().collect();
    let failed = report::compile(&sources, &target.arch, "side results", |_| None);
    assert!(failed.is_empty(), "{} fail:\n{}", failed.len(), failed.join("\n"));
}

/// Gathers and slices have texts for positions of 32 and of 64 bits.
#[test]
fn positions_of_both_widths_compile() {
    if !nvrtc() {
        return;
    }
    let target = target::known("h200").unwrap();
    let layers = [
        ("i64[6]", "gather(%x, %at) {axis=0}"),
        ("i32[6]", "gather(%x, %at) {axis=1}"),
        ("i64[3,2]", "gather_elements(%x, %at) {axis=0}"),
        ("i32[3,1]", "gather_nd(%x, %at)"),
        ("i64[1]", "slice(%x, %from, %to)"),
    ];
    let mut sources = BTreeMap::new();
    for dtype in ["f16", "f32", "i64", "u8", "i4"] {
        for (rows, far) in [(1000u64, false), (140_000, true)] {
            for (at, layer) in &layers {
                let text = format!(
                    "graph \"g\" {{ input %x: {dtype}[{rows},32768] input %at: {at} weight %from: i64[1] = [5] \
                     weight %to: i64[1] = [9] %y = {layer} output %y }}"
                );
                let g = kiln_ir::Graph::from_text(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
                let program = Program::step_per_node(g, &kiln_backend::Tactic::plain(""));
                let region = program.region(&program.steps[0]).unwrap();
                let tactics = Cuda.tactics(&region, &target).unwrap();
                assert!(!tactics.is_empty());
                for t in tactics {
                    assert_eq!(t.params.contains_key("far"), far, "{text}: {}", t.id());
                    let (source, _) = written(&region, &t, &target).unwrap();
                    sources.insert(source, format!("{text} by {}", t.id()));
                }
            }
        }
    }
    let sources: Vec<_> = sources.into_iter().collect();
    let failed = report::compile(&sources, &target.arch, "widths", |_| None);
    assert!(failed.is_empty(), "{} of {} fail:\n{}", failed.len(), sources.len(), failed.join("\n"));
}

/// Assertions have no result, and therefore no problem.
#[test]
fn the_kernel_of_assertions_compiles() {
    if !nvrtc() {
        return;
    }
    let target = target::known("h200").unwrap();
    let g = kiln_ir::Graph::from_text(
        "graph \"g\" { input %holds: bool[3] do assertion(%holds) {message=\"no\"} @a }",
    );
    let program = Program::step_per_node(g.unwrap(), &kiln_backend::Tactic::plain(""));
    let region = program.region(&program.steps[0]).unwrap();
    let tactics = Cuda.tactics(&region, &target).unwrap();
    assert_eq!(tactics.len(), 1);
    let sources = vec![(written(&region, &tactics[0], &target).unwrap().0, "assertion".to_owned())];
    let failed = report::compile(&sources, &target.arch, "assertion", |_| None);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
