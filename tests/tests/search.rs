//! The search decides formats and tactics by the samples of the timing cache alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, BackendError, Device, Place, Program, Region, Tactic, Target};
use kiln_builder::cache::{Entry, TimingCache};
use kiln_builder::passes::patterns::PATTERNS;
use kiln_builder::{BuildConfig, Builder, Built};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::{Network, TensorId};
use kiln_onnx::{ImportOptions, parse_file};
use kiln_plan::{Plan, Verbosity};
use kiln_runtime::{Engine, Layer, LayerTable, Profile};
use kiln_tests::backends::{cpu, cpu_or_oracle, wgpu};
use kiln_tests::models::{data, difference};
use std::sync::Arc;

/// A residual block between a strided convolution and a mean over the image.
fn block() -> Network {
    let mut net = Network::new("block");
    let mut rng = Rng::new(9);
    let x = net.add_input("x", TensorType::new(DType::F32, [1, 32, 12, 12])).unwrap();
    let mut conv = |net: &mut Network, name: &str, x: TensorId, w: [usize; 4], stride: i64| {
        let t = rng.tensor_in(DType::F32, &w, -0.2, 0.2, 0);
        let weights = net.add_weights(Some(&format!("{name}.weight")), t).unwrap();
        let pad = w[2] as i64 / 2;
        let attrs = Attrs::new().with("strides", vec![stride; 2]).with("pads", vec![pad; 4]);
        net.add_layer(name, "conv", attrs, &[Some(x), Some(weights)]).unwrap()[0]
    };
    let a = conv(&mut net, "first", x, [16, 32, 3, 3], 2);
    let a = net.add_layer("relu1", "relu", Attrs::new(), &[Some(a)]).unwrap()[0];
    let b = conv(&mut net, "second", a, [16, 16, 3, 3], 1);
    let b = net.add_layer("sum", "add", Attrs::new(), &[Some(a), Some(b)]).unwrap()[0];
    let b = net.add_layer("relu2", "relu", Attrs::new(), &[Some(b)]).unwrap()[0];
    let axes = net.add_weights(None, Tensor::i64(&[2], &[2, 3]).unwrap()).unwrap();
    let mean = Attrs::new().with("op", "mean");
    let y = net.add_layer("mean", "reduce", mean, &[Some(b), Some(axes)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    net
}

fn build(
    backend: &Arc<dyn Backend>,
    cache: TimingCache,
    config: BuildConfig,
    net: &Network,
) -> (Builder, Built) {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target);
    builder.config = BuildConfig { samples: 2, estimate_limit: f64::INFINITY, ..config };
    builder.cache = cache;
    let built = builder.build(net).unwrap();
    (builder, built)
}

/// The cache with other samples.
fn timed(cache: &TimingCache, ns: impl Fn(&Entry, &str) -> f64) -> TimingCache {
    let mut out = TimingCache::new();
    for (key, entry) in cache.iter() {
        let mut entry = entry.clone();
        let times: Vec<f64> = entry.candidates.keys().map(|id| ns(&entry, id)).collect();
        entry.candidates.values_mut().zip(times).for_each(|(c, t)| c.samples = vec![t; 3]);
        out.insert(key, entry);
    }
    out
}

/// Layouts of the convolutions, in execution order.
fn layouts(p: &Program) -> Vec<String> {
    let convs = p.graph.nodes().filter(|(_, n)| n.op.name() == "conv");
    convs.map(|(_, n)| n.op.attrs().str("layout").unwrap().to_owned()).collect()
}

fn plan(built: Built, backend: &Arc<dyn Backend>) -> Plan {
    Plan::new(built.program, Vec::new(), backend.targets().unwrap().remove(0))
}

#[test]
fn the_faster_format_is_taken_and_gives_the_same_results() {
    let backend = cpu();
    let net = block();
    let (cold, _) = build(&backend, TimingCache::new(), BuildConfig::default(), &net);
    let last = |e: &Entry| e.region.contains("channels_last");
    let mut outputs = Vec::new();
    for (faster, wanted) in [(true, "channels_last"), (false, "linear")] {
        let samples = |e: &Entry, _: &str| match e.region.contains("conv{") {
            true if last(e) == faster => 1e4,
            true => 1e6,
            false => 1e3,
        };
        let cache = timed(&cold.cache, samples);
        let (warm, built) = build(&backend, cache, BuildConfig::default(), &net);
        assert_eq!(layouts(&built.program), [wanted; 2], "{:?}", built.considered);
        let note = built.considered.iter().find(|c| c.rewrite == "channels-last").unwrap();
        assert_eq!((note.taken, note.sites), (faster, 1), "{note:?}");
        assert!(note.with_ns.is_some() && note.without_ns.is_some());
        let text = warm.cache.to_text();
        let locked = BuildConfig { locked: true, ..BuildConfig::default() };
        let (_, again) = build(&backend, TimingCache::from_text(&text).unwrap(), locked, &net);
        assert_eq!(again.timed, 0);
        assert_eq!(again.considered, built.considered);
        let transposes = built.program.graph.nodes().filter(|(_, n)| n.op.name() == "transpose").count();
        assert_eq!(transposes, usize::from(faster), "one where x enters, none where 1×1 leaves");
        let (a, b) = (plan(built, &backend), plan(again, &backend));
        assert!(a.write().unwrap() == b.write().unwrap(), "the plans differ");
        let target = backend.targets().unwrap().remove(0);
        let engine = Engine::on_target(a.program, Vec::new(), backend.as_ref(), target).unwrap();
        let mut cx = engine.create_context().unwrap();
        let x = Rng::new(4).tensor(DType::F32, &[1, 32, 12, 12]);
        outputs.push(cx.run(&[("x", x)]).unwrap().remove(0).1);
    }
    assert!(difference(&outputs[0], &outputs[1]) < 1e-5);
}

#[test]
fn a_build_without_search_leaves_formats_alone() {
    let config = BuildConfig { search: false, ..BuildConfig::default() };
    let (_, built) = build(&cpu(), TimingCache::new(), config, &block());
    assert!(built.considered.is_empty());
    assert_eq!(layouts(&built.program), ["linear"; 2]);
}

#[test]
fn swapped_samples_swap_the_tactic_that_the_inspector_names() {
    let backend = cpu();
    let net = block();
    let (cold, _) =
        build(&backend, TimingCache::new(), BuildConfig { search: false, ..Default::default() }, &net);
    let named = |favourite: &str| {
        let samples = |_: &Entry, id: &str| if id.contains(favourite) { 1e3 } else { 2e3 };
        let config = BuildConfig { search: false, locked: true, ..BuildConfig::default() };
        let (_, built) = build(&backend, timed(&cold.cache, samples), config, &net);
        let plan = Plan::read(plan(built, &backend).write().unwrap()).unwrap();
        let layers = LayerTable::of(&plan.program, Verbosity::Detailed).layers;
        let info = layers.into_iter().find_map(|l| match l {
            Layer::Detailed(info) if info.ops.contains("conv") => Some(info),
            _ => None,
        });
        info.unwrap().tactic_params["depth"]
    };
    assert_eq!((named("depth=256"), named("depth=512")), (256, 512));
}

/// Three products of one input, as queries, keys and values are.
fn products() -> Network {
    let mut net = Network::new("products");
    let mut rng = Rng::new(3);
    let x = net.add_input("x", TensorType::new(DType::F32, [6, 16])).unwrap();
    for name in ["q", "k", "v"] {
        let w = rng.tensor(DType::F32, &[16, 16]);
        let w = net.add_weights(Some(&format!("{name}.weight")), w).unwrap();
        let y = net.add_layer(name, "matmul", Attrs::new(), &[Some(x), Some(w)]).unwrap()[0];
        net.mark_output(y, name).unwrap();
    }
    net
}

#[test]
fn a_pattern_that_does_not_always_pay_is_taken_where_it_does() {
    let backend = cpu();
    let net = products();
    let (cold, _) = build(&backend, TimingCache::new(), BuildConfig::default(), &net);
    for (faster, wanted) in [(true, 1), (false, 3)] {
        let samples = |e: &Entry, _: &str| if e.region.contains("f32[16,48]") == faster { 1e3 } else { 1e6 };
        let samples = |e: &Entry, id: &str| if e.region.contains("matmul{") { samples(e, id) } else { 1e2 };
        let (_, built) = build(&backend, timed(&cold.cache, samples), BuildConfig::default(), &net);
        let count = built.program.graph.nodes().filter(|(_, n)| n.op.name() == "matmul").count();
        assert_eq!(count, wanted, "{:?}", built.considered);
        assert!(built.considered.iter().any(|c| c.rewrite == "parallel-matmul" && c.taken == faster));
    }
}

/// Whether a target of these features gets weights that lie along the depth, if they are faster there.
fn turned(features: &[&str]) -> (bool, bool) {
    let backend = cpu();
    let mut target = backend.targets().unwrap().remove(0);
    target.features.extend(features.iter().map(|f| f.to_string()));
    let run = |cache: TimingCache| {
        let mut builder = Builder::new(backend.clone(), target.clone());
        builder.config = BuildConfig { samples: 2, estimate_limit: f64::INFINITY, ..BuildConfig::default() };
        builder.cache = cache;
        let built = builder.build(&products()).unwrap();
        (builder, built)
    };
    let faster = |e: &Entry, _: &str| if e.region.contains("trans_b=true") { 1e3 } else { 1e6 };
    let (_, built) = run(timed(&run(TimingCache::new()).0.cache, faster));
    let along = |n: &kiln_ir::Node| n.op.name() == "matmul" && n.op.attrs().bool("trans_b").unwrap();
    let all = built.program.graph.nodes().filter(|(_, n)| n.op.name() == "matmul").all(|(_, n)| along(n));
    (built.considered.iter().any(|c| c.rewrite == "weights-along"), all)
}

#[test]
fn weights_are_turned_where_the_target_asks_and_it_pays() {
    assert_eq!(turned(&[]), (false, false));
    assert_eq!(turned(&["weights_along_depth"]), (false, false));
    assert_eq!(turned(&["weights_along_depth", "tf32"]), (true, true));
}

/// Whether a target of these features wants weights of this type transposed, for a product of so many rows and columns.
fn wants_turned(features: &[&str], dtype: DType, [rows, columns]: [usize; 2]) -> bool {
    let mut target = cpu().targets().unwrap().remove(0);
    target.features.extend(features.iter().map(|f| f.to_string()));
    let mut net = Network::new("product");
    let x = net.add_input("x", TensorType::new(dtype, [rows as i64, 16])).unwrap();
    let w = net.add_weights(None, Rng::new(1).tensor(dtype, &[16, columns])).unwrap();
    let y = net.add_layer("y", "matmul", Attrs::new(), &[Some(x), Some(w)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    let g = net.lower().unwrap();
    let pattern = PATTERNS.iter().find(|p| p.name == "weights-along").unwrap();
    let sites = (pattern.find)(&g);
    sites.iter().any(|s| (pattern.wanted)(&target, &g, s.root))
}

#[test]
fn weights_of_16_bits_are_turned_where_their_rows_are_odd_or_the_target_asks_for_many_rows() {
    let along = &["weights_along_depth"][..];
    let many = &["weights_along_depth", "halves_along_depth"][..];
    for dtype in [DType::F16, DType::BF16] {
        assert!(wants_turned(along, dtype, [2, 33]) && !wants_turned(along, dtype, [2, 32]));
        assert!(!wants_turned(&[], dtype, [2, 33]));
        assert!(wants_turned(many, dtype, [512, 32]) && !wants_turned(many, dtype, [8, 32]));
        assert!(!wants_turned(along, dtype, [512, 32]));
    }
}

/// The operators of a product of 100 rows by dequantized weights of 8 bits, on a target of these features. One of the operators
/// takes less time.
fn by_bytes(features: &[&str], faster: &'static str) -> Vec<&'static str> {
    let backend = cpu();
    let mut target = backend.targets().unwrap().remove(0);
    target.features.extend(features.iter().map(|f| f.to_string()));
    let mut net = Network::new("product");
    let mut rng = Rng::new(1);
    let x = net.add_input("x", TensorType::new(DType::F32, [100, 64])).unwrap();
    let codes = net.add_weights(None, rng.tensor(DType::I8, &[64, 32])).unwrap();
    let scale = net.add_weights(None, rng.tensor_in(DType::F32, &[32], 0.01, 0.1, 0)).unwrap();
    let w = net.add_layer("w", "dequantize", Attrs::new(), &[Some(codes), Some(scale)]).unwrap()[0];
    let y = net.add_layer("y", "matmul", Attrs::new(), &[Some(x), Some(w)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    let run = |cache: TimingCache| {
        let mut builder = Builder::new(backend.clone(), target.clone());
        builder.config = BuildConfig { samples: 2, estimate_limit: f64::INFINITY, ..BuildConfig::default() };
        builder.cache = cache;
        let built = builder.build(&net).unwrap();
        (builder, built)
    };
    let time = move |e: &Entry, _: &str| if e.region.contains(&format!("{faster}{{")) { 1e3 } else { 1e6 };
    let (_, built) = run(timed(&run(TimingCache::new()).0.cache, time));
    built.program.graph.nodes().map(|(_, n)| n.op.name()).collect()
}

#[test]
fn weights_of_8_bits_stay_codes_for_many_rows_where_the_target_asks_and_it_pays() {
    assert_eq!(by_bytes(&[], "matmul_codes"), ["matmul"]);
    assert_eq!(by_bytes(&["weights_as_codes"], "matmul_codes"), ["matmul_codes"]);
    assert_eq!(by_bytes(&["weights_as_codes"], "matmul"), ["matmul"]);
}

/// The CPU backend with other tactics for regions that have a convolution: what this makes of its own. Those whose names
/// begin with "late" it refuses when it compiles them.
struct Altered(fn(&Region, &mut Vec<Tactic>));

impl Backend for Altered {
    fn name(&self) -> &str {
        "altered"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        cpu().targets()
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        let mut all = cpu_or_oracle().tactics(region, target)?;
        if region.graph.nodes().any(|(_, n)| n.op.name() == "conv") {
            self.0(region, &mut all);
        }
        Ok(all)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        match tactic.name.starts_with("late") {
            true => Err(BackendError::Unsupported("there is no plan".into())),
            false => cpu().compile(region, tactic, target),
        }
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        cpu().open(target)
    }
}

/// Fast tactics are for convolutions that stand alone only.
fn fussy(region: &Region, all: &mut Vec<Tactic>) {
    if region.graph.nodes().count() > 1 {
        all.retain(|t| t.name == "oracle");
    }
}

fn late_ones() -> [Tactic; 2] {
    ["late.a", "late.b"].map(Tactic::plain)
}

#[test]
fn an_epilogue_that_costs_the_best_tactic_is_split_off() {
    let backend: Arc<dyn Backend> = Arc::new(Altered(fussy));
    let net = block();
    let (cold, _) = build(&backend, TimingCache::new(), BuildConfig::default(), &net);
    for split in [true, false] {
        let samples = |_: &Entry, id: &str| if id.contains("oracle") == split { 1e6 } else { 1e3 };
        let (warm, built) = build(&backend, timed(&cold.cache, samples), BuildConfig::default(), &net);
        let notes: Vec<_> = built.considered.iter().filter(|c| c.rewrite == "split").collect();
        assert!(!notes.is_empty() && notes.iter().all(|c| c.taken == split), "{notes:?}");
        let convs: Vec<&str> =
            built.steps.iter().map(|s| s.ops.as_str()).filter(|ops| ops.contains("conv")).collect();
        assert!(convs.iter().all(|ops| (*ops == "conv") == split), "{convs:?}");
        let locked = BuildConfig { locked: true, ..BuildConfig::default() };
        let (_, again) = build(&backend, warm.cache, locked, &net);
        assert_eq!((again.timed, again.considered), (0, built.considered));
    }
}

/// A product of weights and a part of a tensor whose dimensions are swapped, with a bias behind it.
fn product_of_a_part() -> Network {
    let mut net = Network::new("part");
    let mut rng = Rng::new(8);
    let x = net.add_input("x", TensorType::new(DType::F32, [4, 10, 6])).unwrap();
    let list = |net: &mut Network, v: &[i64]| {
        net.add_weights(None, Tensor::i64(&[v.len()], v).unwrap()).map(Some).unwrap()
    };
    let bounds = [list(&mut net, &[2]), list(&mut net, &[8]), list(&mut net, &[1])];
    let ports = [&[Some(x)], &bounds[..]].concat();
    let part = net.add_layer("part", "slice", Attrs::new(), &ports).unwrap()[0];
    let swap = Attrs::new().with("perm", vec![1i64, 0, 2]);
    let swapped = net.add_layer("swapped", "transpose", swap, &[Some(part)]).unwrap()[0];
    let w = net.add_weights(Some("w"), rng.tensor(DType::F32, &[6, 5])).unwrap();
    let b = net.add_weights(Some("b"), rng.tensor(DType::F32, &[5])).unwrap();
    let y = net.add_layer("product", "matmul", Attrs::new(), &[Some(swapped), Some(w)]).unwrap()[0];
    let y = net.add_layer("bias", "add", Attrs::new(), &[Some(y), Some(b)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    net
}

/// A product reads a transposed slice in place, if that is faster, with the same results.
#[test]
fn moves_join_the_region_that_reads_them_where_that_is_faster() {
    for backend in [wgpu().unwrap(), kiln_tests::backends::cuda().unwrap()].into_iter().flatten() {
        let net = product_of_a_part();
        let (cold, _) = build(&backend, TimingCache::new(), BuildConfig::default(), &net);
        let x = Rng::new(4).tensor(DType::F32, &[4, 10, 6]);
        let mut outputs = Vec::new();
        for joined in [true, false] {
            let whole = |e: &Entry| e.region.contains("matmul") && e.region.contains("transpose");
            let samples = |e: &Entry, _: &str| if whole(e) == joined { 1e3 } else { 1e6 };
            let (warm, built) = build(&backend, timed(&cold.cache, samples), BuildConfig::default(), &net);
            let notes: Vec<_> = built.considered.iter().filter(|c| c.rewrite == "join moves").collect();
            assert!(matches!(notes[..], [n] if n.taken == joined && n.sites == 1), "{notes:?}");
            let ops: Vec<&str> = built.steps.iter().map(|s| s.ops.as_str()).collect();
            let one = ["slice + transpose + matmul + add"];
            assert_eq!(ops == one, joined, "{ops:?}");
            let locked = BuildConfig { locked: true, ..BuildConfig::default() };
            let (_, again) = build(&backend, warm.cache, locked, &net);
            assert_eq!((again.timed, &again.considered), (0, &built.considered));
            let target = backend.targets().unwrap().remove(0);
            let engine = Engine::on_target(built.program, Vec::new(), backend.as_ref(), target).unwrap();
            let mut cx = engine.create_context().unwrap();
            outputs.push(cx.run(&[("x", x.clone())]).unwrap().remove(0).1);
        }
        let reference = build(&cpu(), TimingCache::new(), BuildConfig::default(), &net).1;
        let wanted = reference.program.graph.eval(&[x]).unwrap();
        outputs.iter().for_each(|y| assert!(difference(y, &wanted[0]) < 1e-4, "{}", backend.name()));
    }
}

/// Three parts of a concatenation: a product with a ReLU, an input, and a sum of inputs.
fn concatenation() -> Network {
    let mut net = Network::new("concatenation");
    let mut rng = Rng::new(8);
    let typed = |dims: [i64; 3]| TensorType::new(DType::F32, dims);
    let x = net.add_input("x", typed([2, 3, 7])).unwrap();
    let other = net.add_input("other", typed([2, 2, 5])).unwrap();
    let w = net.add_weights(Some("w"), rng.tensor(DType::F32, &[7, 5])).unwrap();
    let mut layer = |name: &str, op: &str, attrs: Attrs, inputs: &[_]| {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        net.add_layer(name, op, attrs, &inputs).unwrap()[0]
    };
    let product = layer("product", "matmul", Attrs::new(), &[x, w]);
    let relu = layer("relu", "relu", Attrs::new(), &[product]);
    let sum = layer("sum", "add", Attrs::new(), &[other, other]);
    let all = layer("all", "concat", Attrs::new().with("axis", 1i64), &[sum, other, relu]);
    // An output may be bound to memory of the user's, and is not written in parts.
    let y = layer("y", "neg", Attrs::new(), &[all]);
    net.mark_output(y, "y").unwrap();
    net
}

/// The inputs of a concatenation are written in place, if that is faster, with the same results.
#[test]
fn concatenations_are_written_in_place_where_that_is_faster() {
    for backend in [wgpu().unwrap(), kiln_tests::backends::cuda().unwrap()].into_iter().flatten() {
        let net = concatenation();
        let (cold, _) = build(&backend, TimingCache::new(), BuildConfig::default(), &net);
        let x = Rng::new(4).tensor(DType::F32, &[2, 3, 7]);
        let other = Rng::new(5).tensor(DType::F32, &[2, 2, 5]);
        let mut outputs = Vec::new();
        for parts in [true, false] {
            let samples =
                |e: &Entry, _: &str| if e.region.contains("insert_slice") == parts { 1e3 } else { 1e6 };
            let (warm, built) = build(&backend, timed(&cold.cache, samples), BuildConfig::default(), &net);
            let notes: Vec<_> = built.considered.iter().filter(|c| c.rewrite == "concat-in-place").collect();
            assert!(matches!(notes[..], [n] if n.taken == parts && n.sites == 1), "{notes:?}");
            let mut ops: Vec<&str> = built.steps.iter().map(|s| s.ops.as_str()).collect();
            ops.sort_unstable();
            let whole = ["add + insert_slice", "insert_slice", "matmul + relu + insert_slice", "neg"];
            assert_eq!(ops == whole, parts, "{ops:?}");
            let locked = BuildConfig { locked: true, ..BuildConfig::default() };
            let (_, again) = build(&backend, warm.cache, locked, &net);
            assert_eq!((again.timed, &again.considered), (0, &built.considered));
            let target = backend.targets().unwrap().remove(0);
            let engine = Engine::on_target(built.program, Vec::new(), backend.as_ref(), target).unwrap();
            let mut cx = engine.create_context().unwrap();
            // Parts meet in one tensor also where values have memory of their own, to be observed.
            for observable in [false, true] {
                cx.set_observable(observable);
                outputs.push(cx.run(&[("x", x.clone()), ("other", other.clone())]).unwrap().remove(0).1);
            }
        }
        let reference = build(&cpu(), TimingCache::new(), BuildConfig::default(), &net).1;
        let wanted = reference.program.graph.eval(&[x, other]).unwrap();
        outputs.iter().for_each(|y| assert!(difference(y, &wanted[0]) < 1e-4, "{}", backend.name()));
    }
}

/// Layers that write parts of one tensor in place run on every backend, each part by the layer that computes it.
#[test]
fn parts_are_written_into_one_tensor_on_every_backend() {
    for backend in kiln_tests::backends::all().unwrap() {
        let mut net = Network::new("parts");
        let [a, b] = ["a", "b"].map(|n| net.add_input(n, TensorType::new(DType::F32, [3, 4])).unwrap());
        let mut layer = |name: &str, op: &str, attrs: Attrs, inputs: &[Option<_>]| {
            net.add_layer(name, op, attrs, inputs).unwrap()[0]
        };
        let at = |start: i64| Attrs::new().with("axis", 1i64).with("start", start);
        let product = layer("product", "matmul", Attrs::new().with("trans_b", true), &[Some(a), Some(b)]);
        let first = layer(
            "first",
            "insert_slice",
            at(4).with("size", 7i64).with("unset", true),
            &[None, Some(product)],
        );
        let relu = layer("relu", "relu", Attrs::new(), &[Some(b)]);
        let both = layer("both", "insert_slice", at(0), &[Some(first), Some(relu)]);
        let y = layer("y", "neg", Attrs::new(), &[Some(both)]);
        net.mark_output(y, "y").unwrap();
        let built = build(&backend, TimingCache::new(), BuildConfig::default(), &net).1;
        let ops: Vec<&str> = built.steps.iter().map(|s| s.ops.as_str()).collect();
        assert_eq!(ops, ["matmul + insert_slice", "relu + insert_slice", "neg"], "{}", backend.name());
        let places = built.program.memory.places.clone();
        let place = |name: &str| places[built.program.graph.find(name).unwrap().0 as usize];
        assert_eq!(place("first"), place("both"), "{}", backend.name());
        let rules = backend.targets().unwrap().remove(0).memory;
        kiln_plan::verify(&built.program, &rules).unwrap();
        let mut apart = built.program.clone();
        apart.memory.places[apart.graph.find("first").unwrap().0 as usize] = Place::Dynamic;
        let error = kiln_plan::verify(&apart, &rules).unwrap_err().to_string();
        assert!(error.contains("whose other elements lie in other memory"), "{error}");
        let inputs =
            [("a", Rng::new(1)), ("b", Rng::new(2))].map(|(n, mut r)| (n, r.tensor(DType::F32, &[3, 4])));
        let wanted = built.program.graph.eval(&inputs.clone().map(|(_, t)| t)).unwrap();
        let target = backend.targets().unwrap().remove(0);
        let engine = Engine::on_target(built.program, Vec::new(), backend.as_ref(), target).unwrap();
        let found = engine.create_context().unwrap().run(&inputs).unwrap().remove(0).1;
        assert!(difference(&found, &wanted[0]) < 1e-5, "{}", backend.name());
    }
}

/// A product with a bias, and the mean and the maximum of its rows; of as many rows as there are, or of ten.
fn product_with_means(open: bool) -> (Network, BuildConfig) {
    let mut net = Network::new("means");
    let mut rng = Rng::new(8);
    let rows = if open { Dim::host("rows") } else { Dim::from(10) };
    let ty = TensorType { dtype: DType::F32, dims: vec![rows, Dim::from(6)] };
    let x = net.add_input("x", ty).unwrap();
    let w = net.add_weights(Some("w"), rng.tensor(DType::F32, &[6, 5])).unwrap();
    let b = net.add_weights(Some("b"), rng.tensor(DType::F32, &[5])).unwrap();
    let y = net.add_layer("product", "matmul", Attrs::new(), &[Some(x), Some(w)]).unwrap()[0];
    let y = net.add_layer("bias", "add", Attrs::new(), &[Some(y), Some(b)]).unwrap()[0];
    let axes = net.add_weights(None, Tensor::i64(&[1], &[-1]).unwrap()).unwrap();
    let attrs = |op: &str| Attrs::new().with("op", op).with("keep_dims", false);
    let mean = net.add_layer("mean", "reduce", attrs("mean"), &[Some(y), Some(axes)]).unwrap()[0];
    let top = net.add_layer("top", "reduce", attrs("max"), &[Some(y), Some(axes)]).unwrap()[0];
    for (v, name) in [(y, "y"), (mean, "m"), (top, "t")] {
        net.mark_output(v, name).unwrap();
    }
    let mut profile = Profile::new();
    profile.set_shape("x", &[1, 6], &[10, 6], &[40, 6]).unwrap();
    let profiles = if open { vec![profile] } else { Vec::new() };
    (net, BuildConfig { profiles, ..BuildConfig::default() })
}

/// A product stores a reduction of its rows too, if that is faster, with the same results: of several reductions, the first.
#[test]
fn reductions_join_the_product_that_they_read_where_that_is_faster() {
    for backend in [wgpu().unwrap(), kiln_tests::backends::cuda().unwrap()].into_iter().flatten() {
        for (open, joined) in [(false, true), (false, false), (true, true)] {
            let (net, config) = product_with_means(open);
            let (cold, _) = build(&backend, TimingCache::new(), config.clone(), &net);
            let whole = |e: &Entry| e.region.contains("matmul") && e.region.contains("reduce");
            let samples = |e: &Entry, _: &str| if whole(e) == joined { 1e3 } else { 1e6 };
            let (warm, built) = build(&backend, timed(&cold.cache, samples), config.clone(), &net);
            let notes: Vec<_> = built.considered.iter().filter(|c| c.rewrite == "join reductions").collect();
            assert!(matches!(notes[..], [n] if n.taken == joined && n.sites == 1), "{notes:?}");
            let ops: Vec<&str> = built.steps.iter().map(|s| s.ops.as_str()).collect();
            let wanted: &[&str] = if joined {
                &["matmul + add + reduce", "reduce"]
            } else {
                &["matmul + add", "reduce", "reduce"]
            };
            assert_eq!(ops, wanted);
            let locked = BuildConfig { locked: true, ..config.clone() };
            let (_, again) = build(&backend, warm.cache, locked, &net);
            assert_eq!((again.timed, &again.considered), (0, &built.considered));
            let graph = built.program.graph.clone();
            let bytes = plan(built, &backend).write().unwrap();
            let target = backend.targets().unwrap().remove(0);
            let program = Plan::read(bytes).unwrap().program;
            let engine = Engine::on_target(program, config.profiles, backend.as_ref(), target).unwrap();
            let mut cx = engine.create_context().unwrap();
            for rows in if open { vec![10, 1, 40, 7] } else { vec![10] } {
                let x = Rng::new(4).tensor(DType::F32, &[rows, 6]);
                let wanted = graph.eval(std::slice::from_ref(&x)).unwrap();
                let found = cx.run(&[("x", x)]).unwrap();
                for ((name, y), wanted) in found.iter().zip(&wanted) {
                    assert!(difference(y, wanted) < 1e-4, "{} {name} of {rows} rows", backend.name());
                }
            }
        }
    }
}

#[test]
fn tactics_that_are_refused_when_they_are_compiled_are_left_out() {
    let backend: Arc<dyn Backend> = Arc::new(Altered(|_, all| all.extend(late_ones())));
    let net = block();
    let config = BuildConfig { max_tactics: 20, ..BuildConfig::default() };
    let (cold, built) = build(&backend, TimingCache::new(), config.clone(), &net);
    let late: Vec<_> =
        cold.cache.iter().flat_map(|(_, e)| &e.candidates).filter(|(id, _)| id.starts_with("late")).collect();
    assert!(!late.is_empty() && late.iter().all(|(_, c)| c.samples.is_empty()), "{late:?}");
    assert!(built.program.steps.iter().all(|s| !s.tactic.name.starts_with("late")));
    let taken = |b: &Built| b.program.steps.iter().map(|s| s.tactic.id()).collect::<Vec<_>>();
    let (_, again) = build(&backend, cold.cache, BuildConfig { locked: true, ..config }, &net);
    assert_eq!((again.timed, taken(&again)), (0, taken(&built)));

    let backend: Arc<dyn Backend> = Arc::new(Altered(|_, all| *all = late_ones().to_vec()));
    let mut builder = Builder::new(backend.clone(), backend.targets().unwrap().remove(0));
    builder.config = BuildConfig { search: false, ..BuildConfig::default() };
    let error = builder.build(&net).map(drop).unwrap_err().to_string();
    assert!(error.contains("there is no plan"), "{error}");
}

/// Shapes for which few blocks or tiles fit: a convolution of each channel by itself, and single rows and columns.
fn slim() -> Network {
    let mut net = Network::new("slim");
    let mut rng = Rng::new(6);
    let x = net.add_input("x", TensorType::new(DType::F32, [1, 8, 9, 9])).unwrap();
    let w = net.add_weights(Some("w"), rng.tensor(DType::F32, &[8, 1, 3, 3])).unwrap();
    let attrs = Attrs::new().with("groups", 8i64);
    let y = net.add_layer("depthwise", "conv", attrs, &[Some(x), Some(w)]).unwrap()[0];
    net.mark_output(y, "y").unwrap();
    for (m, k, n) in [(1, 12, 40), (40, 12, 1), (1, 5, 1)] {
        let name = format!("{m}x{k}x{n}");
        let a = net.add_input(&format!("a{name}"), TensorType::new(DType::F32, [m, k])).unwrap();
        let b = net.add_input(&format!("b{name}"), TensorType::new(DType::F32, [k, n])).unwrap();
        let y = net.add_layer(&name, "matmul", Attrs::new(), &[Some(a), Some(b)]).unwrap()[0];
        net.mark_output(y, &format!("y{name}")).unwrap();
    }
    net
}

/// Every product and convolution that was timed was chosen from several.
#[test]
fn products_and_convolutions_have_alternatives() {
    let import = |path: &str| parse_file(data(path), &ImportOptions::default()).unwrap().network;
    let profile = |inputs: &[(&str, &[i64])]| {
        let mut p = Profile::new();
        inputs.iter().for_each(|(name, s)| p.set_shape(name, s, s, s).unwrap());
        vec![p]
    };
    let cases = [
        (block(), Vec::new()),
        (slim(), Vec::new()),
        (import("digits/lenet_a.onnx"), profile(&[("input", &[1, 1, 28, 28])])),
        (import("nlp/bert_tiny.onnx"), profile(&[("input_ids", &[1, 8]), ("attention_mask", &[1, 8])])),
    ];
    for backend in [Some(cpu_or_oracle()), wgpu().unwrap()].into_iter().flatten() {
        for (net, profiles) in &cases {
            let config = BuildConfig { profiles: profiles.clone(), ..BuildConfig::default() };
            let (builder, _) = build(&backend, TimingCache::new(), config, net);
            let is =
                |e: &Entry| ["matmul{", "conv{"].iter().any(|op| e.region.lines().any(|l| l.starts_with(op)));
            let entries: Vec<&Entry> = builder.cache.iter().map(|(_, e)| e).filter(|e| is(e)).collect();
            assert!(!entries.is_empty(), "{}: nothing was timed", net.name());
            for e in entries {
                assert!(
                    e.candidates.len() > 1,
                    "{}: only {:?} for\n{}",
                    backend.name(),
                    e.candidates,
                    e.region
                );
            }
        }
    }
}

#[test]
fn limits_of_estimates_below_one_keep_the_best_candidate() {
    let graph = "graph \"g\" { input %x: f32[4,8] input %w: f32[8,4] %y = matmul(%x, %w) output %y }";
    let build = |estimate_limit: f64| {
        let backend = cpu();
        let target = backend.targets().unwrap().remove(0);
        let mut builder = Builder::new(backend, target);
        builder.config.estimate_limit = estimate_limit;
        builder.config.samples = 1;
        let graph = kiln_ir::Graph::from_text(graph).unwrap();
        builder.build_graph(graph, &mut |_, _, _| true).unwrap().program.steps[0].tactic.name.clone()
    };
    for limit in [1.0, 0.5, 0.0, -3.0, f64::NAN] {
        assert_ne!(build(limit), "none", "{limit}");
    }
}
