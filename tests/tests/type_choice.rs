//! Types as choices of the build: permitted types are used where they are faster, and what is asked of layers is met, noted or refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{
    Backend, BackendError, Context, Counters, Device, Executable, Program, Region, Shapes, StepTime, Tactic,
    Target, TimeRequest,
};
use kiln_builder::cache::TimingCache;
use kiln_builder::{BuildConfig, BuildError, Builder, Built, Constraints, LayerTypes, Narrowing};
use kiln_ir::{DType, Graph, Tensor, ValueId};
use kiln_ops::conv::CONV;
use kiln_tests::backends::{cpu, cuda, wgpu};
use std::sync::Arc;

/// The CPU backend with estimates of its own, in microseconds; regions without one it refuses.
struct Priced(fn(&Region) -> Option<f64>);

impl Backend for Priced {
    fn name(&self) -> &str {
        "priced"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        cpu().targets()
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        let us = (self.0)(region).ok_or_else(|| BackendError::Unsupported("it is too hard".into()))?;
        let mut all = cpu().tactics(region, target)?;
        all.iter_mut().for_each(|t| t.estimate_ns = Some(us * 1e3));
        Ok(all)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        cpu().compile(region, tactic, target)
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        cpu().open(target)
    }
}

/// Names of the operators of a region, and the type of its result.
fn of(region: &Region) -> (Vec<&str>, DType) {
    let ops = region.graph.nodes().map(|(_, n)| n.op.name()).collect();
    (ops, region.graph.ty(region.graph.outputs[0]).dtype)
}

fn permitted(types: &[DType]) -> BuildConfig {
    BuildConfig { reduced: types.to_vec(), estimates: true, fuse: false, ..BuildConfig::default() }
}

fn build(price: fn(&Region) -> Option<f64>, config: BuildConfig, text: &str) -> Result<Built, BuildError> {
    let backend = Arc::new(Priced(price));
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend, target);
    builder.config = config;
    builder.build_graph(Graph::from_text(text).unwrap(), &mut |_, _, _| true)
}

/// Operators of a program in order, with the types of their results.
fn layers(built: &Built) -> Vec<String> {
    let g = &built.program.graph;
    g.nodes().map(|(_, n)| format!("{} {}", n.op.name(), g.ty(n.outputs[0]).dtype)).collect()
}

const CHAIN: &str = r#"graph "chain" { input %x: f32[64,64] input %w: f32[64,64]
    %a = matmul(%x, %w) %b = softmax(%a) {axis=-1} %c = matmul(%b, %w) output %c }"#;

/// Products take 10 µs in f32 and 4 in f16, softmax 3 and 3, casts 1.
fn ordinary(r: &Region) -> Option<f64> {
    Some(match of(r) {
        (ops, DType::F32) if ops.contains(&"matmul") => 10.0,
        (ops, _) if ops.contains(&"matmul") => 4.0,
        (ops, _) if ops.contains(&"softmax") => 3.0,
        _ => 1.0,
    })
}

#[test]
fn layers_are_narrowed_where_that_is_faster_casts_included() {
    let narrow = build(ordinary, permitted(&[DType::F16]), CHAIN).unwrap();
    let cast = ["cast f16".to_owned(), "cast f16".into()];
    let layered = layers(&narrow);
    assert_eq!(layered[..2], cast);
    assert_eq!(layered[2..], ["matmul f16", "softmax f16", "matmul f16", "cast f32"]);
    // Casts of 5 µs cost more than the products gain.
    let dear = |r: &Region| if of(r).0.contains(&"cast") { Some(5.0) } else { ordinary(r) };
    let wide = build(dear, permitted(&[DType::F16]), CHAIN).unwrap();
    assert_eq!(layers(&wide), ["matmul f32", "softmax f32", "matmul f32"]);
    assert!(wide.considered.iter().any(|c| c.rewrite == "types" && !c.taken), "{:?}", wide.considered);
}

#[test]
fn casts_of_the_network_count_for_the_wide_type() {
    // Narrow inputs and outputs: in f32 the softmax, which is no faster in f16, needs both casts.
    let narrow = r#"graph "ends" { input %x: f16[64,64]
        %a = cast(%x) {to=f32} %b = softmax(%a) {axis=-1} %c = cast(%b) {to=f16} output %c }"#;
    let built = build(ordinary, permitted(&[DType::F16]), narrow).unwrap();
    assert_eq!(layers(&built), ["softmax f16"]);
}

#[test]
fn one_type_throughout_is_searched_to_the_end_where_it_is_close() {
    // In the format of the network a convolution takes as long in both types; channels last it is faster in f16 alone.
    let formats = |r: &Region| {
        let conv = r.graph.nodes().find(|(_, n)| n.op.is(CONV)).map(|(_, n)| n.op.attrs().str("layout").ok());
        Some(match (conv, of(r).1) {
            (Some(Some("channels_last")), DType::F16) => 2.0,
            (Some(_), _) => 10.0,
            _ => 0.5,
        })
    };
    let built = build(formats, permitted(&[DType::F16]), BLOCK).unwrap();
    assert_eq!(layers(&built).iter().filter(|l| *l == "conv f16").count(), 2, "{:?}", layers(&built));
}

#[test]
fn casts_of_large_weights_cost_no_run_anything() {
    // A megabyte, whose cast would take longer than everything else.
    let elements = vec!["0.5"; 512 * 512].join(", ");
    let text = format!(
        r#"graph "large" {{ input %x: f32[1,512] weight %w: f32[512,512] = [{elements}]
            %a = matmul(%x, %w) output %a }}"#
    );
    let dear = |r: &Region| match of(r).0.contains(&"cast") && r.graph.ty(r.graph.outputs[0]).rank() == 2 {
        true if r.graph.ty(r.graph.outputs[0]).dims[0].is(512) => Some(100.0),
        _ => ordinary(r),
    };
    let built = build(dear, permitted(&[DType::F16]), &text).unwrap();
    assert!(layers(&built).contains(&"matmul f16".into()), "{:?}, {:?}", layers(&built), built.considered);
}

#[test]
fn a_layer_that_is_slow_in_a_narrow_type_stays() {
    let slow = |r: &Region| match of(r) {
        (ops, DType::F16) if ops.contains(&"softmax") => Some(50.0),
        _ => ordinary(r),
    };
    let built = build(slow, permitted(&[DType::F16]), CHAIN).unwrap();
    assert!(layers(&built).contains(&"softmax f32".into()), "{:?}", layers(&built));
    assert_eq!(layers(&built).iter().filter(|l| *l == "matmul f16").count(), 2, "{:?}", layers(&built));
}

#[test]
fn a_backends_refusal_keeps_the_wide_type() {
    let refusing = |r: &Region| match of(r) {
        (ops, DType::F16) if !ops.contains(&"cast") => None,
        _ => ordinary(r),
    };
    for narrowing in [Narrowing::Faster, Narrowing::Everywhere] {
        let config = BuildConfig { narrowing, ..permitted(&[DType::F16]) };
        let built = build(refusing, config, CHAIN).unwrap();
        assert_eq!(layers(&built), ["matmul f32", "softmax f32", "matmul f32"]);
        assert!(built.notes.iter().any(|n| n.contains("no layer can run in f16")), "{:?}", built.notes);
    }
}

#[test]
fn of_several_permitted_types_the_fastest_is_taken() {
    let with = |r: &Region| match of(r) {
        (ops, DType::BF16) if ops.contains(&"matmul") => Some(2.0),
        _ => ordinary(r),
    };
    for types in [[DType::F16, DType::BF16], [DType::BF16, DType::F16]] {
        let built = build(with, permitted(&types), CHAIN).unwrap();
        assert_eq!(layers(&built).iter().filter(|l| *l == "matmul bf16").count(), 2, "{:?}", layers(&built));
    }
}

#[test]
fn everywhere_asks_no_times() {
    let slow = |r: &Region| Some(if of(r).1 == DType::F16 { 100.0 } else { 1.0 });
    let config = BuildConfig { narrowing: Narrowing::Everywhere, ..permitted(&[DType::F16]) };
    assert!(layers(&build(slow, config, CHAIN).unwrap()).contains(&"softmax f16".into()));
    assert!(!layers(&build(slow, permitted(&[DType::F16]), CHAIN).unwrap()).contains(&"softmax f16".into()));
}

/// Layers of bodies have types of their own.
#[test]
fn bodies_choose_types_too() {
    let mut net = kiln_network::Network::new("loop");
    let ty = kiln_ir::TensorType::new(DType::F32, [64, 64]);
    let x = net.add_input("x", ty.clone()).unwrap();
    let w = net.add_input("w", ty).unwrap();
    let count =
        net.add_constant(kiln_ir::Tensor::from_slice(&[], &[3i32]).unwrap()).unwrap().output(0).unwrap();
    let l = net.add_loop().unwrap();
    net.add_trip_limit(l, count, kiln_network::TripLimitKind::Count).unwrap();
    let r = net.add_recurrence(l, x).unwrap();
    let state = r.output(0).unwrap();
    let r = r.id();
    let p = net.add_layer("p", "matmul", kiln_ir::Attrs::new(), &[Some(state), Some(w)]).unwrap()[0];
    let p = net.add_layer("q", "matmul", kiln_ir::Attrs::new(), &[Some(p), Some(w)]).unwrap()[0];
    net.set_input(r, 1, p).unwrap();
    let y = net.add_loop_output(l, state, kiln_network::LoopOutputKind::LastValue, 0).unwrap();
    let y = y.output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let backend = Arc::new(Priced(ordinary));
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend, target);
    builder.config = permitted(&[DType::F16]);
    let built = builder.build(&net).unwrap();
    let bodies = built.program.steps.iter().flat_map(|s| &s.bodies);
    let halves = bodies.flat_map(|b| b.graph.nodes().map(|(_, n)| b.graph.ty(n.outputs[0]).dtype));
    assert!(halves.filter(|t| *t == DType::F16).count() >= 2, "{}", built.program.graph.to_text());
}

fn asked(precision: &str, outputs: &str) -> String {
    CHAIN.replace("{axis=-1}", &format!("{{axis=-1}} @\"soft\" meta {{precision={precision}{outputs}}}"))
}

#[test]
fn wishes_are_met_noted_or_refused_by_the_constraints() {
    let slow = |r: &Region| match of(r) {
        (ops, DType::F16) if ops.contains(&"softmax") => Some(50.0),
        _ => ordinary(r),
    };
    let with = |constraints, types: &[DType], text: &str| {
        build(slow, BuildConfig { constraints, ..permitted(types) }, text)
    };
    let text = asked("f16", "");
    // A wish for the slower type is noted, with layer, wanted and taken type; a preference is met.
    let wished = with(Constraints::None, &[DType::F16], &text).unwrap();
    let told = |b: &Built, words: &[&str]| b.notes.iter().any(|n| words.iter().all(|w| n.contains(w)));
    assert!(layers(&wished).contains(&"softmax f32".into()), "{:?}", layers(&wished));
    assert!(told(&wished, &["\"soft\"", "should run in f16", "runs in f32"]), "{:?}", wished.notes);
    let preferred = with(Constraints::Prefer, &[DType::F16], &text).unwrap();
    assert!(layers(&preferred).contains(&"softmax f16".into()), "{:?}", layers(&preferred));
    assert!(preferred.notes.is_empty(), "{:?}", preferred.notes);
    // Without permission only a constraint is met.
    let preferred = with(Constraints::Prefer, &[], &text).unwrap();
    assert!(!layers(&preferred).contains(&"softmax f16".into()), "{:?}", layers(&preferred));
    assert!(told(&preferred, &["\"soft\"", "f16", "does not permit"]), "{:?}", preferred.notes);
    let obeyed = with(Constraints::Obey, &[], &text).unwrap();
    assert!(layers(&obeyed).contains(&"softmax f16".into()), "{:?}", layers(&obeyed));
    // An f32 layer in a network of f16.
    let wide = with(Constraints::Prefer, &[DType::F16], &asked("f32", "")).unwrap();
    assert!(layers(&wide).contains(&"softmax f32".into()), "{:?}", layers(&wide));
}

#[test]
fn a_wish_for_the_wide_type_is_noted_where_casts_make_it_slower() {
    let built = build(ordinary, permitted(&[DType::F16]), &asked("f32", "")).unwrap();
    let words = ["\"soft\"", "should run in f32", "runs in f16"];
    assert!(built.notes.iter().any(|n| words.iter().all(|w| n.contains(w))), "{:?}", built.notes);
}

#[test]
fn constraints_that_cannot_be_met_fail_with_layer_type_and_reason() {
    let refusing = |r: &Region| match of(r) {
        (ops, DType::F16) if ops.contains(&"softmax") => None,
        _ => ordinary(r),
    };
    let fails = |price, text: &str, words: &[&str]| {
        let config = BuildConfig { constraints: Constraints::Obey, ..permitted(&[DType::F16]) };
        let e = build(price, config.clone(), text).unwrap_err().to_string();
        assert!(words.iter().all(|w| e.contains(w)), "{e}");
        // A preference that cannot be met is a note, and the network is built.
        let built = build(price, BuildConfig { constraints: Constraints::Prefer, ..config }, text).unwrap();
        assert!(built.notes.iter().any(|n| n.contains("\"soft\"")), "{:?}", built.notes);
    };
    fails(refusing, &asked("f16", ""), &["\"soft\"", "f16", "backend priced", "it is too hard"]);
    fails(ordinary, &asked("i8", ""), &["\"soft\"", "i8", "codes of 8 bits"]);
    fails(ordinary, &asked("f32", ", outputs=[i32]"), &["\"soft\"", "output 0", "i32", "add a cast layer"]);
}

#[test]
fn settings_ask_types_of_layers_by_name() {
    let of = |layers: &str, precision, outputs: &[DType]| LayerTypes {
        layers: layers.into(),
        precision,
        outputs: outputs.to_vec(),
    };
    let with = |layer_types| {
        let config = BuildConfig { layer_types, constraints: Constraints::Obey, ..permitted(&[]) };
        build(ordinary, config, &CHAIN.replace("{axis=-1}", "{axis=-1} @\"soft\""))
    };
    let all = with(vec![of("*", Some(DType::F16), &[])]).unwrap();
    assert_eq!(layers(&all).iter().filter(|l| l.ends_with("f16") && !l.contains("cast")).count(), 3);
    // The name comes before the pattern, wherever it stands.
    let one = with(vec![of("soft", Some(DType::F32), &[]), of("*", Some(DType::F16), &[])]).unwrap();
    assert!(layers(&one).contains(&"softmax f32".into()), "{:?}", layers(&one));
    assert!(layers(&one).contains(&"matmul f16".into()), "{:?}", layers(&one));
    let output = with(vec![of("so*", None, &[DType::BF16])]).unwrap();
    assert!(layers(&output).contains(&"cast bf16".into()), "{:?}", layers(&output));
    let e = with(vec![of("sofft", Some(DType::F16), &[])]).unwrap_err().to_string();
    assert!(e.contains("\"sofft\"") && e.contains("no layer of this name"), "{e}");
}

const BLOCK: &str = r#"graph "block" { input %x: f32[1,8,20,20] input %w: f32[8,8,3,3]
    %a = conv(%x, %w) {pads=[1,1,1,1]} %b = relu(%a) %c = conv(%b, %w) {pads=[1,1,1,1]} output %c }"#;

fn measured(backend: &Arc<dyn Backend>, cache: TimingCache, config: BuildConfig) -> (Built, TimingCache) {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target);
    (builder.config, builder.cache) = (config, cache);
    let built = builder.build_graph(Graph::from_text(BLOCK).unwrap(), &mut |_, _, _| true).unwrap();
    (built, builder.cache)
}

fn warm_builds_choose_as_cold_ones(backend: &Arc<dyn Backend>) {
    let config = BuildConfig { reduced: vec![DType::F16, DType::BF16], ..BuildConfig::default() };
    let (cold, cache) = measured(backend, TimingCache::new(), config.clone());
    let (warm, _) = measured(backend, cache, BuildConfig { locked: true, ..config });
    assert_eq!((warm.timed, warm.program.graph.to_text()), (0, cold.program.graph.to_text()));
    assert_eq!(warm.considered, cold.considered);
    assert!(cold.considered.iter().any(|c| c.rewrite == "types"), "{:?}", cold.considered);
}

#[test]
fn types_are_chosen_from_stored_times_on_cpu() {
    warm_builds_choose_as_cold_ones(&cpu());
}

#[test]
fn types_are_chosen_from_stored_times_on_wgpu() {
    wgpu().unwrap().iter().for_each(warm_builds_choose_as_cold_ones);
}

#[test]
fn types_are_chosen_from_stored_times_on_cuda() {
    cuda().unwrap().iter().for_each(warm_builds_choose_as_cold_ones);
}

/// The CPU backend, which reports times of its own: of steps by [`close_in_f16`], of whole programs in the narrower type and in f32 as it is
/// told, in microseconds.
#[derive(Clone, Copy)]
struct Whole([f64; 2]);

/// Steps take a little longer in f16 than in f32, casts included.
fn close_in_f16(g: &Graph) -> f64 {
    let product = g.nodes().any(|(_, n)| n.op.name() == "matmul");
    match (product, g.ty(g.outputs[0]).dtype) {
        (true, DType::F16) => 9.5,
        (true, _) => 10.0,
        _ => 1.0,
    }
}

impl Backend for Whole {
    fn name(&self) -> &str {
        "cpu"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        cpu().targets()
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        cpu().tactics(region, target)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        cpu().compile(region, tactic, target)
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        Ok(Arc::new(Clocked(*self, 0.0, cpu().open(target)?)))
    }
}

/// A device, executable or context, with the microseconds of a run.
struct Clocked<T: ?Sized>(Whole, f64, T);

impl Device for Clocked<Arc<dyn Device>> {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        Ok(vec![close_in_f16(request.graph) * 1e3; request.samples as usize])
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        let g = &program.graph;
        let narrow = g.value_ids().any(|v| g.ty(v).dtype == DType::F16);
        let us = self.0.0[usize::from(!narrow)];
        Ok(Arc::new(Clocked(self.0, us, self.2.load(program)?)))
    }
}

impl Executable for Clocked<Arc<dyn Executable>> {
    fn context(&self) -> Result<Box<dyn Context>, BackendError> {
        Ok(Box::new(Clocked(self.0, self.1, self.2.context()?)))
    }
}

impl Context for Clocked<Box<dyn Context>> {
    fn enqueue(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        self.2.enqueue(inputs, shapes)
    }

    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        self.2.outputs()
    }

    fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError> {
        self.2.observe(value)
    }

    fn set_observable(&mut self, on: bool) {
        self.2.set_observable(on);
    }

    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        self.2.step_times()
    }

    fn time_runs(&mut self, runs: u32) -> Result<Vec<f64>, BackendError> {
        match self.1.is_finite() {
            true => Ok(vec![self.1 * 1e3; runs as usize]),
            false => Err(BackendError::Unsupported("no clock".into())),
        }
    }

    fn counters(&self) -> Counters {
        self.2.counters()
    }
}

/// Two products of different shapes.
const PRODUCTS: &str = r#"graph "products" { input %x: f32[64,64] input %w: f32[64,32] input %v: f32[32,64]
    %a = matmul(%x, %w) %b = matmul(%a, %v) output %b }"#;

#[test]
fn networks_whose_sums_are_close_are_compared_by_runs_of_the_whole() {
    let with = |whole: [f64; 2], cache: TimingCache, locked: bool| {
        let backend = Arc::new(Whole(whole));
        let target = backend.targets().unwrap().remove(0);
        let mut builder = Builder::new(backend, target);
        builder.config = BuildConfig { reduced: vec![DType::F16], locked, ..BuildConfig::default() };
        builder.cache = cache;
        let built = builder.build_graph(Graph::from_text(PRODUCTS).unwrap(), &mut |_, _, _| true).unwrap();
        let narrow = layers(&built).iter().filter(|l| *l == "matmul f16").count();
        let told = built.considered.iter().find(|c| c.rewrite == "types").map(|c| c.why.clone()).unwrap();
        (narrow, told, built.timed, builder.cache)
    };
    // Sums of steps say f32.
    let (narrow, told, ..) = with([f64::INFINITY; 2], TimingCache::new(), false);
    assert_eq!((narrow, told.contains("runs of the network")), (0, false), "{told}");
    let (narrow, told, timed, cache) = with([15.0, 20.0], TimingCache::new(), false);
    assert!(narrow == 2 && timed > 0 && told.contains("take 15.0 us, with other types 20.0 us"), "{told}");
    // Stored times decide again, whatever the device would report now.
    let (narrow, again, timed, _) = with([30.0, 20.0], cache, true);
    assert_eq!((narrow, again, timed), (2, told, 0));
    // Noise decides nothing.
    let (narrow, told, ..) = with([19.9, 20.0], TimingCache::new(), false);
    assert!(narrow == 0 && told.contains("take 20.0 us"), "{told}");
}
