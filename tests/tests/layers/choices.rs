//! Choices of the tuner for plug-in layers: formats by time, kernels by time, entries of the timing cache; weights that a refit replaces.

use crate::devices::{built, devices};
use crate::examples::{f32s, reference, run_on};
use crate::row_norm;
use kiln_builder::{BuildConfig, Builder, Built, Refit};
use kiln_ir::{Attrs, DType, OpError, Tensor, TensorType};
use kiln_network::{Network, PluginSpec};
use kiln_ops::plugin::kernel::{KernelForm, Language, Param};
use kiln_ops::plugin::record::{LayerFunctions, LayerName, LayerRecord, LayerRun, Library, TypedKernel};
use kiln_ops::plugin::registry;
use kiln_ops::plugin::shapes::Shape;
use kiln_ops::plugin::types::Combination;
use kiln_plan::Plan;
use kiln_runtime::Engine;
use std::sync::Arc;

/// y = 2 x.
struct Twice;

impl LayerFunctions for Twice {
    fn check(&self, _: &Attrs) -> Result<(), OpError> {
        Ok(())
    }
    fn describe(&self, _: &Attrs, _: &[TensorType]) -> Result<String, OpError> {
        Err(OpError::Unsupported("shapes are fixed".into()))
    }
    fn run(&self, run: &LayerRun<'_>) -> Result<Vec<Tensor>, OpError> {
        let x = &run.inputs[0];
        let twice: Vec<f32> = x.to_f64().iter().map(|v| 2.0 * *v as f32).collect();
        Ok(vec![Tensor::f32(x.shape(), &twice).unwrap()])
    }
}

/// A kernel for a combination that turns so often before it writes.
fn kernel(tactic: &str, types: &str, turns: u32) -> TypedKernel {
    let form = KernelForm {
        language: Language::Wgsl,
        tactic: tactic.into(),
        condition: String::new(),
        source: "@compute @workgroup_size(64) fn twice(@builtin(global_invocation_id) at: vec3<u32>) {\n    if at.x >= params.n { \
                 return; }\n    var v = 2.0 * i0[at.x];\n    for (var k = 0u; k < params.turns; k++) { v += 0.0 * sin(v + f32(k)); }\n    \
                 o0[at.x] = v;\n}\n"
            .into(),
        entry: "twice".into(),
        grid: "ceildiv(i0.size, 64)".into(),
        block: String::new(),
        shared: String::new(),
        params: Param::list(&format!("u32 n = i0.size; u32 turns = {turns}")).unwrap(),
        count: None,
    };
    TypedKernel { types: Combination::list(types).unwrap(), form }
}

/// A layer of two combinations, the first one preferred.
fn layer(name: &str, turns: [u32; 2]) {
    let kernels = vec![kernel("last", "f32@hwc:f32@hwc", turns[0]), kernel("first", "f32:f32", turns[1])];
    let record = LayerRecord {
        name: LayerName { space: "choices".into(), name: name.into(), version: "1".into() },
        doc: String::new(),
        fields: Vec::new(),
        types: Combination::list("f32@hwc:f32@hwc; f32:f32").unwrap(),
        shapes: Some(Shape::list("[i0.d*]").unwrap()),
        aliases: Vec::new(),
        workspace: String::new(),
        expression: None,
        tolerance: "exact".into(),
        kernels,
        natives: Vec::new(),
        patterns: Vec::new(),
        library: Library::default(),
        functions: Arc::new(Twice),
    };
    registry::register(record).map(drop).unwrap();
}

/// The first of several combinations is preferred where times do not say otherwise; the tuner takes the faster one.
#[test]
fn formats_are_chosen_by_time() {
    const SLOW: u32 = 3000;
    for (name, turns, wanted) in
        [("SlowLast", [SLOW, 0], "plugin.first"), ("SlowFirst", [0, SLOW], "plugin.last")]
    {
        layer(name, turns);
        let mut net = Network::new("net");
        let x = net.add_input("x", TensorType::new(DType::F32, [2, 8, 32, 16])).unwrap();
        let twice = net.add_layer("", "exp", Attrs::new(), &[Some(x)]).unwrap()[0];
        let y = net.add_plugin(&[twice], PluginSpec::new("choices", name)).unwrap().output(0).unwrap();
        let y = net.add_layer("", "neg", Attrs::new(), &[Some(y)]).unwrap()[0];
        net.mark_output(y, "y").unwrap();
        let values: Vec<f32> = (0..2 * 8 * 32 * 16).map(|i| (i % 17) as f32 / 8.0).collect();
        let x = f32s(&[2, 8, 32, 16], &values);
        let expected = run_on(&reference(), &net, std::slice::from_ref(&x)).unwrap().remove(0).to_f64();
        for b in devices().into_iter().filter(|b| b.name() == "wgpu") {
            let built = built(&b, &net);
            let tactics: Vec<&str> = built.program.steps.iter().map(|s| s.tactic.name.as_str()).collect();
            assert!(tactics.contains(&wanted), "{name}: {tactics:?}");
            let tried: Vec<_> = built.considered.iter().filter(|c| c.rewrite == "plug-in formats").collect();
            assert!(!tried.is_empty() && tried.iter().all(|c| c.with_ns.is_some()), "{tried:?}");
            assert_eq!(tried.iter().any(|c| c.taken), name == "SlowLast", "{tried:?}");
            // Nothing but the layer and its neighbours is left where it works in the linear format.
            assert!(name == "SlowFirst" || built.program.steps.len() <= 3, "{tactics:?}");
            let found = run_on(&b, &net, std::slice::from_ref(&x)).unwrap().remove(0).to_f64();
            let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * b.abs().max(1.0);
            assert!(found.iter().zip(&expected).all(close), "{name}");
            // Without a search, and with estimates only, the first combination stays.
            let mut builder = Builder::new(b.clone(), b.targets().unwrap().remove(0));
            builder.config = BuildConfig { search: false, estimates: true, ..BuildConfig::default() };
            let plain = builder.build(&net).unwrap();
            assert!(plain.program.steps.iter().any(|s| s.tactic.name == "plugin.last"));
        }
    }
}

/// y = RowNorm(x, scale) with a weight.
fn norm(scale: &[f32]) -> Network {
    row_norm();
    let mut net = Network::new("net");
    let x = net.add_input("x", TensorType::new(DType::F32, [64, 32])).unwrap();
    let s = net.add_weights(Some("scale"), f32s(&[32], scale)).unwrap();
    let y = net.add_plugin(&[x, s], PluginSpec::new("example", "RowNorm")).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net
}

fn made(builder: &mut Builder, net: &Network) -> Built {
    builder.build(net).unwrap()
}

/// The cache holds the times of both kernels beside the region; a build with it times nothing, chooses the same and explains it, and a
/// changed entry changes the choice.
#[test]
fn the_timing_cache_explains_the_choice_of_kernels() {
    let net = norm(&[1.0; 32]);
    for b in devices() {
        let mut builder = Builder::new(b.clone(), b.targets().unwrap().remove(0));
        let cold = made(&mut builder, &net);
        assert!(cold.timed >= 2);
        let (key, entry) = builder.cache.iter().find(|(_, e)| e.region.contains("plugin")).unwrap();
        let (key, entry) = (key.to_owned(), entry.clone());
        let names: Vec<&str> = entry.candidates.keys().map(String::as_str).collect();
        assert_eq!(names, ["plugin.block", "plugin.thread"], "{}", b.name());
        assert!(entry.candidates.values().all(|c| !c.samples.is_empty() && !c.source_hash.is_empty()));
        assert!(entry.region.contains("RowNorm"), "{}", entry.region);
        let warm = made(&mut builder, &net);
        let tactic = |b: &Built| b.program.steps[0].tactic.name.clone();
        assert_eq!((warm.timed, tactic(&warm)), (0, tactic(&cold)));
        assert_eq!(warm.steps[0].key.as_deref(), Some(&*key));
        for name in ["plugin.block", "plugin.thread"] {
            builder.cache.set_samples(&key, name, vec![1.0]).unwrap();
            let other = if name == "plugin.block" { "plugin.thread" } else { "plugin.block" };
            builder.cache.set_samples(&key, other, vec![1e9]).unwrap();
            assert_eq!(tactic(&made(&mut builder, &net)), name, "{}", b.name());
        }
    }
}

/// A weight of a plug-in layer is replaced in an engine and in its plan, on every backend.
#[test]
fn weights_of_plug_in_layers_are_refitted() {
    let (old, new): (Vec<f32>, Vec<f32>) = (0..32).map(|i| (i as f32, 10.0 - i as f32 / 4.0)).unzip();
    let x = f32s(&[64, 32], &(0..64 * 32).map(|i| (i % 13) as f32 - 5.0).collect::<Vec<_>>());
    let wanted = run_on(&reference(), &norm(&new), std::slice::from_ref(&x)).unwrap().remove(0).to_f64();
    for b in devices().into_iter().chain([reference()]) {
        let target = b.targets().unwrap().remove(0);
        let mut builder = Builder::new(b.clone(), target.clone());
        builder.config = BuildConfig { refit: Refit::All, ..BuildConfig::default() };
        let plan = Plan::new(made(&mut builder, &norm(&old)).program, Vec::new(), target);
        let plan = Plan::read(plan.write().unwrap()).unwrap();
        let engine = Engine::from_plan(plan, b.clone()).unwrap();
        let close = |found: &Tensor, wanted: &[f64]| {
            found.to_f64().iter().zip(wanted).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs().max(1.0))
        };
        let mut context = engine.create_context().unwrap();
        let before = context.run(&[("x", x.clone())]).unwrap();
        assert!(!close(before.get("y").unwrap(), &wanted), "{}", b.name());
        let mut refitter = engine.refitter().unwrap();
        assert_eq!(refitter.get_all(), ["scale"], "{}", b.name());
        let e = refitter.set("scale", f32s(&[31], &new[..31])).unwrap_err().to_string();
        assert!(e.contains("scale") && e.contains("32"), "{e}");
        refitter.set("scale", f32s(&[32], &new)).unwrap();
        assert!(refitter.refit().unwrap().replaced > 0);
        let after = context.run(&[("x", x.clone())]).unwrap();
        assert!(close(after.get("y").unwrap(), &wanted), "{}", b.name());
    }
}
