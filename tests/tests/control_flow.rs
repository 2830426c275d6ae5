//! Models with loops, conditionals and scans give what was expected, on every backend, and broken ones are refused.
//! `KILN_CASE=text` runs only the models whose name contains the text.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, flow};
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::{Graph, Tensor};
use kiln_onnx::{ImportOptions, parse_file};
use kiln_plan::Plan;
use kiln_runtime::{Engine, IoMode, Profile, graph_io};
use kiln_tests::backends::{cpu, cuda, wgpu};
use kiln_tests::models::{archive, argmax, data, difference, engine};
use kiln_tests::suite::{Setting, run_graph};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Models, and how many cases each has.
const MODELS: &[(&str, usize)] = &[
    ("sum_even", 5),
    ("counted_loop_scan_outputs", 2),
    ("counted_loop_then_reverse", 1),
    ("scan_forward", 2),
    ("scan_reverse", 1),
    ("scan_reverse_input", 1),
    ("scan_axis1_reverse_output", 1),
    ("while_collatz", 4),
    ("while_newton_bounded", 2),
    ("nested_loops", 3),
    ("loop_inside_if", 2),
    ("if_inside_loop", 2),
    ("if_empty_else", 2),
    ("if_different_dims", 2),
    ("if_different_ranks", 2),
    ("if_two_outputs_constants", 2),
    ("loop_invariant_capture", 1),
    ("zero_trip_loop", 3),
    ("loop_swap", 2),
];

fn graph(path: &str) -> Result<Graph, String> {
    let imported = parse_file(data(path), &ImportOptions::default()).map_err(|e| e.to_string())?;
    imported.network.lower().map_err(|e| e.to_string())
}

/// Arrays of an archive by case, then by name.
fn cases(path: &str, part: &str) -> BTreeMap<String, BTreeMap<String, Tensor>> {
    let mut cases: BTreeMap<String, BTreeMap<String, Tensor>> = BTreeMap::new();
    for (key, t) in archive(path).unwrap() {
        let [case, kind, name] = key.split('/').collect::<Vec<_>>()[..] else { panic!("{key}") };
        if kind == part {
            cases.entry(case.into()).or_default().insert(name.into(), t);
        }
    }
    cases
}

fn run_all(backend: Arc<dyn Backend>, fold: bool) {
    let s = Setting::of(backend, fold).unwrap();
    let mut wrong = Vec::new();
    let only = std::env::var("KILN_CASE").ok();
    for &(model, count) in MODELS.iter().filter(|(m, _)| only.as_ref().is_none_or(|o| m.contains(o.as_str())))
    {
        let file = format!("control_flow/{model}.npz");
        let (ins, outs) = (cases(&file, "in"), cases(&file, "out"));
        assert_eq!(outs.len(), count, "{model}");
        for (case, wanted) in outs {
            let outcome = graph(&format!("control_flow/{model}.onnx")).and_then(|g| {
                let given = |v: &kiln_ir::ValueId| ins[&case][&g.value(*v).name].clone();
                let inputs: Vec<Tensor> = g.inputs.iter().map(given).collect();
                let names: Vec<String> = g.outputs.iter().map(|&v| g.value(v).name.clone()).collect();
                check(&names, &run_graph(&s, g, &inputs)?, &wanted)
            });
            wrong.extend(outcome.err().map(|e| format!("{model} {case}: {e}")));
        }
    }
    assert!(wrong.is_empty(), "{} of 40 cases fail:\n{}", wrong.len(), wrong.join("\n"));
}

fn check(names: &[String], found: &[Tensor], wanted: &BTreeMap<String, Tensor>) -> Result<(), String> {
    assert_eq!(names.iter().collect::<BTreeSet<_>>(), wanted.keys().collect());
    for (name, found) in names.iter().zip(found) {
        let want = &wanted[name];
        if found.ty() != want.ty() {
            return Err(format!("{name} is {}, wanted {}", found.ty(), want.ty()));
        }
        let most = want.to_f64().into_iter().fold(1.0, |m: f64, x| m.max(x.abs()));
        let d = difference(found, want);
        let tolerance = if want.dtype().is_float() { 1e-5 * most } else { 0.0 };
        if d > tolerance {
            return Err(format!("{name} differs by {d}"));
        }
    }
    Ok(())
}

#[test]
fn models_on_cpu() {
    run_all(cpu(), true);
    run_all(cpu(), false);
}

#[test]
fn models_on_wgpu() {
    wgpu().unwrap().into_iter().for_each(|b| run_all(b, true));
}

#[test]
fn models_on_cuda() {
    if let Some(b) = cuda().unwrap() {
        run_all(b.clone(), true);
        run_all(b, false);
    }
}

/// One engine for all iteration counts and lengths, through its file.
fn one_engine(backend: &Arc<dyn Backend>) {
    let shapes: &[(&str, [&[i64]; 3])] = &[("items", [&[0], &[4], &[8]])];
    let e = engine("control_flow/sum_even.onnx", backend, shapes, BuildConfig::default()).unwrap();
    let program = e.program();
    let walked = program.steps.iter().find(|s| s.tactic.name == flow::INTERPRETED).unwrap();
    assert!(walked.bodies[0].steps.iter().any(|s| s.bodies.len() == 2), "the If lies in the Loop's body");
    let plan = Plan::new((*program).clone(), e.profiles().to_vec(), e.target().clone());
    let e = Engine::from_plan(Plan::read(plan.write().unwrap()).unwrap(), backend.clone()).unwrap();
    let mut context = e.create_context().unwrap();
    let (ins, outs) = (cases("control_flow/sum_even.npz", "in"), cases("control_flow/sum_even.npz", "out"));
    for _ in 0..2 {
        for (case, wanted) in &outs {
            let found = context.run(&[("items", ins[case]["items"].clone())]).unwrap();
            assert_eq!(found[0].1.to_f64(), wanted["s"].to_f64(), "{case}");
        }
    }
}

#[test]
fn one_engine_runs_all_lengths() {
    one_engine(&cpu());
    wgpu().unwrap().iter().for_each(one_engine);
}

#[test]
fn one_engine_runs_all_lengths_on_cuda() {
    cuda().unwrap().iter().for_each(one_engine);
}

/// Layers that read sizes which the device counts: random contents contradict the shapes.
const COUNTED: &str = "graph \"counted\" { input %x: f32[n,1] input %gate: f32[n]
    weight %w: f32[1,4] = seed 1 weight %i0: i64[1] = [0] weight %i1: i64[1] = [1] weight %i2: i64[1] = [2]
    %rows = nonzero(%gate) %s = shape(%rows) %k = slice(%s, %i1, %i2, %i0)
    %sx = shape(%x) %n = slice(%sx, %i0, %i1, %i0) %wanted = concat(%n, %k) {axis=0}
    %wide = expand(%x, %wanted) %y = exp(%wide) %tall = matmul(%x, %w) %z = tanh(%tall)
    %flat = concat(%k, %i1) {axis=0} %column = expand(%i1, %flat) %c = neg(%column) output %y output %z output %c }";

/// Builds with the times of several candidates.
fn build_timed(backend: &Arc<dyn Backend>, name: &str, g: Graph, inputs: &[Tensor]) {
    let mut profile = Profile::new();
    for (io, t) in graph_io(&g).iter().zip(inputs) {
        let shape: Vec<i64> = t.shape().iter().map(|&d| d as i64).collect();
        profile.set_shape(&io.name, &shape, &shape, &shape).unwrap();
        if io.is_shape_input && !t.dtype().is_float() {
            profile.set_values(&io.name, &t.to_i64(), &t.to_i64(), &t.to_i64()).unwrap();
        }
    }
    let wanted = g.eval(inputs).unwrap();
    let target = backend.targets().unwrap().remove(0);
    let mut b = Builder::new(backend.clone(), target.clone());
    b.config = BuildConfig { samples: 1, profiles: vec![profile.clone()], ..BuildConfig::default() };
    let built = b.build_graph(g, &mut |_, _, _| true);
    let built = built.unwrap_or_else(|e| panic!("{name} on {}: {e}", backend.name()));
    let engine = Engine::on_target(built.program, vec![profile], backend.as_ref(), target).unwrap();
    let mut context = engine.create_context().unwrap();
    let names: Vec<String> =
        engine.io_tensors().iter().filter(|io| io.mode == IoMode::Input).map(|io| io.name.clone()).collect();
    let given: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(inputs.iter().cloned()).collect();
    let found = context.run(&given).unwrap_or_else(|e| panic!("{name} on {}: {e}", backend.name()));
    for ((_, found), wanted) in found.iter().zip(&wanted) {
        assert_eq!(found.ty(), wanted.ty(), "{name} on {}", backend.name());
        assert!(difference(found, wanted) <= 1e-4, "{name} on {}", backend.name());
    }
}

fn all_build_timed(backend: &Arc<dyn Backend>) {
    for &(model, _) in MODELS {
        let g = graph(&format!("control_flow/{model}.onnx")).unwrap();
        let ins = cases(&format!("control_flow/{model}.npz"), "in");
        let case = ins.values().next().unwrap();
        let inputs: Vec<Tensor> = g.inputs.iter().map(|&v| case[&g.value(v).name].clone()).collect();
        build_timed(backend, model, g, &inputs);
    }
    let gate: Vec<f32> = (0..20).map(|i| f32::from(u8::from(i % 3 == 0))).collect();
    let x: Vec<f32> = (0..20).map(|i| i as f32 / 20.0).collect();
    let inputs = [Tensor::f32(&[20, 1], &x).unwrap(), Tensor::f32(&[20], &gate).unwrap()];
    build_timed(backend, "counted", Graph::from_text(COUNTED).unwrap(), &inputs);
}

#[test]
fn all_build_with_timing_on_cpu() {
    all_build_timed(&cpu());
}

#[test]
fn all_build_with_timing_on_wgpu() {
    wgpu().unwrap().iter().for_each(all_build_timed);
}

#[test]
fn broken_models_are_refused() {
    for (model, says) in [
        ("if_else_without_node", "x"),
        ("if_else_missing", "else_branch"),
        ("if_output_count_differs", "attribute 'else_branch' has 2 outputs: wanted 1"),
        ("if_condition_not_bool", "input 0 (cond) is f32"),
        ("loop_body_without_condition_output", "attribute 'body' has"),
    ] {
        let e = graph(&format!("control_flow/illegal/{model}.onnx")).unwrap_err();
        assert!(e.contains(says), "{model}: {e}");
    }
}

/// Scan yields the results of the LSTM operator.
fn scans(backend: &Arc<dyn Backend>, name: &str, layers: i64, hidden: i64) {
    let state: [&[i64]; 3] = [&[layers, 1, hidden], &[layers, 3, hidden], &[layers, 4, hidden]];
    let shapes: &[(&str, [&[i64]; 3])] =
        &[("ids", [&[1, 1], &[48, 3], &[64, 4]]), ("h0", state), ("c0", state)];
    let config = BuildConfig { max_tactics: 1, ..BuildConfig::default() };
    let e = engine(&format!("charrnn/{name}_scan.onnx"), backend, shapes, config).unwrap();
    let expected = archive(&format!("charrnn/{name}_logits.npz")).unwrap();
    let mut context = e.create_context().unwrap();
    let inputs: Vec<(&str, Tensor)> =
        ["ids", "h0", "c0"].iter().map(|n| (*n, expected[&format!("batch3_{n}")].clone())).collect();
    for (out, found) in context.run(&inputs).unwrap() {
        let d = difference(&found, &expected[&format!("batch3_{out}")]);
        assert!(d <= 1e-4, "{name}: {out} differs by {d}");
    }
}

/// Greedy generation: a counted loop reads the prompt, a loop with a condition writes.
fn generates(backend: &Arc<dyn Backend>, name: &str, prompts: &[usize]) {
    let shapes: &[(&str, [&[i64]; 3])] = &[("prompt", [&[1], &[16], &[64]])];
    let config = BuildConfig { max_tactics: 1, ..BuildConfig::default() };
    let e = engine(&format!("charrnn/{name}_generate.onnx"), backend, shapes, config).unwrap();
    let expected = archive(&format!("charrnn/{name}_generate.npz")).unwrap();
    let mut context = e.create_context().unwrap();
    for k in prompts {
        let of = |what: &str| expected[&format!("{what}{k}")].clone();
        let found: BTreeMap<String, Tensor> = context
            .run(&[("prompt", of("prompt")), ("max_new", of("max_new"))])
            .unwrap()
            .into_iter()
            .collect();
        let wanted = of("generated").to_i64();
        assert_eq!(found["generated"].to_i64(), wanted, "{name}, prompt {k}");
        assert_eq!(found["count"].to_i64(), [wanted.len() as i64]);
        assert_eq!(argmax(&found["logits"]).len(), wanted.len());
        let d = difference(&found["logits"], &of("logits"));
        assert!(d <= 1e-3, "{name}, prompt {k}: logits differ by {d}");
    }
}

#[test]
fn charrnn_on_cpu() {
    scans(&cpu(), "h128", 1, 128);
    scans(&cpu(), "h96x2", 2, 96);
    generates(&cpu(), "h128", &[0, 1, 2, 3, 4]);
    generates(&cpu(), "h96x2", &[0, 2, 4]);
}

#[test]
fn charrnn_on_wgpu() {
    for b in wgpu().unwrap().iter() {
        scans(b, "h128", 1, 128);
        generates(b, "h128", &[2]);
    }
}

#[test]
fn charrnn_on_cuda() {
    for b in cuda().unwrap().iter() {
        scans(b, "h128", 1, 128);
        scans(b, "h96x2", 2, 96);
        generates(b, "h128", &[0, 1, 2, 3, 4]);
        generates(b, "h96x2", &[0, 2, 4]);
    }
}
