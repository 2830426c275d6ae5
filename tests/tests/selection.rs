//! Selection of algorithms: selectors, rules by layer, recorded choices, pinned tactics, times that layers do not share.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, BackendError, Device, Region, Tactic, Target};
use kiln_builder::cache::TimingCache;
use kiln_builder::{
    Algorithm, AlgorithmSelector, BuildConfig, BuildError, Builder, Built, LayerContext, Selector,
    StepReport, TacticRecord,
};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::{LoopOutputKind, Network, TripLimitKind};
use kiln_onnx::parse_file;
use kiln_plan::Plan;
use kiln_runtime::{Engine, Profile};
use kiln_tests::backends::{all, cpu};
use kiln_tests::models::{archive, data, difference, rows};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

fn lenet() -> (Network, Profile) {
    let network = parse_file(data("digits/lenet_a.onnx"), &Default::default()).unwrap().network;
    let mut profile = Profile::new();
    profile.set_shape("input", &[8, 1, 28, 28], &[8, 1, 28, 28], &[8, 1, 28, 28]).unwrap();
    (network, profile)
}

fn builder(backend: &Arc<dyn Backend>, profile: &Profile, config: BuildConfig) -> Builder {
    let target = backend.targets().unwrap().remove(0);
    let mut b = Builder::new(backend.clone(), target);
    b.config = BuildConfig { profiles: vec![profile.clone()], ..config };
    b
}

fn bytes(built: &Built, profile: &Profile, target: &Target) -> Vec<u8> {
    Plan::new(built.program.clone(), vec![profile.clone()], target.clone()).write().unwrap()
}

/// Distance of a built LeNet's logits from those of ONNX Runtime.
fn far(built: Built, profile: &Profile, backend: &Arc<dyn Backend>) -> f64 {
    let e = Engine::from_program(built.program, vec![profile.clone()], backend.clone()).unwrap();
    let images = rows(&archive("digits/digits_test.npz").unwrap()["images"], 0, 8).unwrap();
    let found = e.create_context().unwrap().run(&[("input", images)]).unwrap().remove(0).1;
    difference(&found, &rows(&archive("digits/logits_lenet_a.npz").unwrap()["logits"], 0, 8).unwrap())
}

/// Chooses by a function, and keeps what it is told.
struct Chooser {
    choose: fn(&LayerContext, &[Algorithm], usize) -> Result<Vec<usize>, String>,
    number: usize,
    most: usize,
    asked: BTreeSet<String>,
    reported: Vec<StepReport>,
}

impl Chooser {
    fn new(
        choose: fn(&LayerContext, &[Algorithm], usize) -> Result<Vec<usize>, String>,
    ) -> Arc<Mutex<Chooser>> {
        let (asked, reported) = (BTreeSet::new(), Vec::new());
        Arc::new(Mutex::new(Chooser { choose, number: 0, most: 0, asked, reported }))
    }
}

impl AlgorithmSelector for Chooser {
    fn select(&mut self, layer: &LayerContext, choices: &[Algorithm]) -> Result<Vec<usize>, String> {
        assert!(!choices.is_empty() && !layer.operators.is_empty() && !layer.key.is_empty());
        assert!(layer.outputs.iter().all(|t| t.dims.len() == t.strides.len()));
        assert!(choices.iter().all(|c| c.tactic.starts_with(&c.implementation)));
        self.most = self.most.max(choices.len());
        self.asked.insert(layer.layer.clone());
        (self.choose)(layer, choices, self.number)
    }

    fn report(&mut self, layers: &[StepReport]) {
        self.reported = layers.to_vec();
    }
}

#[test]
fn each_candidate_of_lenet_is_right_when_it_is_selected() {
    let (network, profile) = lenet();
    for backend in all().unwrap() {
        let chooser = Chooser::new(|_, choices, n| Ok(vec![n.min(choices.len() - 1)]));
        let mut n = 0;
        loop {
            chooser.lock().unwrap().number = n;
            let selector = Some(Selector::new(chooser.clone()));
            let config = BuildConfig { selector, estimates: true, ..BuildConfig::default() };
            let built = builder(&backend, &profile, config).build(&network).unwrap();
            let told = chooser.lock().unwrap();
            assert_eq!(told.reported.len(), built.steps.len());
            assert!(built.steps.iter().all(|s| told.asked.contains(&s.name)), "{:?}", told.asked);
            assert!(built.steps.iter().all(|s| s.candidates == 1 && !s.outputs.is_empty()));
            let (most, label) = (told.most, format!("{}, candidate {n}", backend.name()));
            drop(told);
            let d = far(built, &profile, &backend);
            assert!(d <= 1e-4, "{label}: logits differ by {d}");
            n += 1;
            if n >= most {
                break;
            }
        }
        assert!(n > 1, "{} offers one tactic for each layer", backend.name());
    }
}

/// Notes the dimensions of what layers read and write: least, usual, greatest.
#[derive(Default)]
struct Shapes(BTreeSet<(String, [Vec<i64>; 3])>);

impl AlgorithmSelector for Shapes {
    fn select(&mut self, layer: &LayerContext, _: &[Algorithm]) -> Result<Vec<usize>, String> {
        let tensors: Vec<_> = layer.inputs.iter().chain(&layer.outputs).collect();
        assert_eq!(tensors.len(), layer.bounds.len());
        for (t, b) in tensors.into_iter().zip(&layer.bounds) {
            self.0.insert((layer.layer.clone(), [b.least.clone(), t.dims.clone(), b.greatest.clone()]));
        }
        Ok(Vec::new())
    }

    fn report(&mut self, _: &[StepReport]) {}
}

/// A product of rows, whose number varies, and the same joined with itself.
#[test]
fn layers_have_the_least_the_usual_and_the_greatest_shapes_of_their_profile() {
    let mut net = Network::new("rows");
    let ty = TensorType { dtype: DType::F32, dims: vec![Dim::host("n"), Dim::new(48)] };
    let x = net.add_input("x", ty).unwrap();
    let w = net.add_weights(Some("w"), Rng::new(5).tensor(DType::F32, &[48, 40])).unwrap();
    let y = net.add_layer("product", "matmul", Attrs::new(), &[Some(x), Some(w)]).unwrap()[0];
    let axis = Attrs::new().with("axis", 0i64);
    let z = net.add_layer("joined", "concat", axis, &[Some(y), Some(y)]).unwrap()[0];
    net.mark_output(z, "z").unwrap();
    for backend in all().unwrap() {
        let profile = |rows: [i64; 3]| {
            let mut p = Profile::new();
            let [min, opt, max] = rows.map(|n| [n, 48]);
            p.set_shape("x", &min, &opt, &max).unwrap();
            p
        };
        let profiles = vec![profile([1, 4, 8]), profile([9, 24, 32])];
        let shapes = Arc::new(Mutex::new(Shapes::default()));
        let selector = Some(Selector::new(shapes.clone()));
        let mut b = Builder::new(backend.clone(), backend.targets().unwrap().remove(0));
        b.config =
            BuildConfig { profiles, selector, estimates: true, search: false, ..BuildConfig::default() };
        b.build(&net).unwrap();
        let found = shapes.lock().unwrap();
        let has = |layer: &str, rows: [i64; 3], columns: i64| {
            let all = rows.map(|n| vec![n, columns]);
            assert!(
                found.0.iter().any(|(l, dims)| l.contains(layer) && *dims == all),
                "{}: {layer} {all:?} of {:?}",
                backend.name(),
                found.0
            );
        };
        for rows in [[1, 4, 8], [9, 24, 32]] {
            has("product", rows, 48);
            has("product", rows, 40);
            has("joined", rows.map(|n| 2 * n), 40);
        }
        has("product", [48; 3], 40);
    }
}

#[test]
fn the_fastest_of_the_selected_is_taken() {
    let (network, profile) = lenet();
    let two = Chooser::new(|_, choices, _| Ok((0..choices.len().min(2)).collect()));
    let selector = Some(Selector::new(two));
    let config = BuildConfig { selector, samples: 1, ..BuildConfig::default() };
    let mut b = builder(&cpu(), &profile, config);
    let built = b.build(&network).unwrap();
    for s in built.steps.iter().filter(|s| s.candidates == 2) {
        let entry = b.cache.get(s.key.as_ref().unwrap()).unwrap();
        let best = entry.candidates.iter().min_by(|a, b| a.1.median().total_cmp(&b.1.median())).unwrap();
        assert_eq!((&s.tactic, s.ns), (best.0, Some(best.1.median())));
    }
    assert!(built.steps.iter().any(|s| s.candidates == 2) && built.timed > 0);
}

#[test]
fn selectors_that_choose_nothing_or_what_is_not_there_fail_where_the_build_says_so() {
    let (network, profile) = lenet();
    let build = |chooser: Arc<Mutex<Chooser>>, reject_empty: bool| {
        let selector = Some(Selector::new(chooser));
        let config = BuildConfig { selector, reject_empty, estimates: true, ..BuildConfig::default() };
        builder(&cpu(), &profile, config).build(&network)
    };
    let none = || Chooser::new(|_, _, _| Ok(Vec::new()));
    let any = build(none(), false).unwrap();
    let config = BuildConfig { estimates: true, ..BuildConfig::default() };
    let own = builder(&cpu(), &profile, config).build(&network).unwrap();
    let tactics = |b: &Built| b.steps.iter().map(|s| s.tactic.clone()).collect::<Vec<_>>();
    assert_eq!(tactics(&any), tactics(&own), "an empty selection is any algorithm");
    let refused = |r: Result<Built, BuildError>| {
        let e = r.map(drop).unwrap_err();
        assert!(matches!(&e, BuildError::Selection { layer, .. } if !layer.is_empty()), "{e}");
        e.to_string()
    };
    assert!(refused(build(none(), true)).contains("reject_empty"));
    let lost = Chooser::new(|_, choices, _| Ok(vec![choices.len()]));
    assert!(refused(build(lost, false)).contains("algorithms"));
    let angry = Chooser::new(|layer, _, _| Err(format!("not {}", layer.operators)));
    assert!(refused(build(angry, false)).contains("not "));
}

/// Refuses some layers.
struct Refuser(fn(&LayerContext) -> bool);

impl AlgorithmSelector for Refuser {
    fn select(&mut self, _: &LayerContext, _: &[Algorithm]) -> Result<Vec<usize>, String> {
        Ok(Vec::new())
    }

    fn select_or_refuse(
        &mut self,
        layer: &LayerContext,
        choices: &[Algorithm],
    ) -> Result<Option<Vec<usize>>, String> {
        if (self.0)(layer) { Ok(None) } else { self.select(layer, choices).map(Some) }
    }

    fn report(&mut self, _: &[StepReport]) {}
}

/// Whether dimensions are those of an image of LeNet with channels last.
fn last(dims: &[i64]) -> bool {
    channels_last(dims) || matches!(dims, [_, 28, 28, 1])
}

/// Whether dimensions are those of a square image with channels last.
fn channels_last(dims: &[i64]) -> bool {
    matches!(dims, [_, h, w, c] if h == w && w != c && *h > 1)
}

#[test]
fn forms_that_a_selector_refuses_are_left_out() {
    let (network, profile) = lenet();
    let build = |refused: fn(&LayerContext) -> bool| {
        let selector = Some(Selector::new(Arc::new(Mutex::new(Refuser(refused)))));
        let config = BuildConfig { selector, samples: 1, ..BuildConfig::default() };
        builder(&cpu(), &profile, config).build(&network)
    };
    let reads_last = |l: &LayerContext| l.inputs.iter().any(|t| channels_last(&t.dims));
    let built = build(reads_last).unwrap();
    let refused = |c: &&kiln_builder::Considered| c.why.contains("the selector refuses");
    assert!(built.considered.iter().find(refused).is_some_and(|c| !c.taken), "{:?}", built.considered);
    assert!(built.steps.iter().all(|s| s.inputs.iter().all(|t| !channels_last(&t.dims))));
    assert!(far(built, &profile, &cpu()) <= 1e-4);
    let e = build(|_| true).map(drop).unwrap_err();
    assert!(matches!(&e, BuildError::NoTactic { reasons, .. } if reasons.contains("selector")), "{e}");
    // The network as it is written has no algorithm that is selected; the one with channels last has.
    let built = build(|l| l.operators.contains("conv") && !l.inputs.iter().any(|t| last(&t.dims))).unwrap();
    let convs: Vec<&StepReport> = built.steps.iter().filter(|s| s.name.contains("Conv")).collect();
    assert!(convs.len() >= 2 && convs.iter().all(|s| s.inputs.iter().any(|t| last(&t.dims))), "{convs:?}");
    assert!(far(built, &profile, &cpu()) <= 1e-4);
}

#[test]
fn rules_force_and_forbid_tactics_of_layers() {
    let (network, profile) = lenet();
    let build = |rules: &[&str]| {
        let tactic_rules = rules.iter().map(|r| r.parse().unwrap()).collect();
        let config = BuildConfig { tactic_rules, estimates: true, ..BuildConfig::default() };
        builder(&cpu(), &profile, config).build(&network)
    };
    let step = |b: &Built| b.steps.iter().find(|s| s.name.contains("/conv2/Conv")).unwrap().clone();
    let (own, other) = {
        let first = step(&build(&[]).unwrap());
        let forbid = format!("/conv2/Conv=!{}", first.tactic);
        (first.tactic, step(&build(&[&forbid]).unwrap()).tactic)
    };
    assert_ne!(own, other);
    let forced = build(&[&format!("/conv2/Conv={other}")]).unwrap();
    assert_eq!((step(&forced).tactic, step(&forced).candidates), (other.clone(), 1));
    let second = |b: &Built| b.steps.iter().find(|s| s.name.contains("/conv1/Conv")).unwrap().tactic.clone();
    assert_eq!(second(&forced), second(&build(&[]).unwrap()), "other layers are as before");
    assert!(far(forced, &profile, &cpu()) <= 1e-4);
    let e = build(&["/conv2/Conv=nothing"]).map(drop).unwrap_err();
    assert!(matches!(&e, BuildError::NoTactic { layer, .. } if layer.contains("/conv2/Conv")), "{e}");
    assert!(e.to_string().contains("forces nothing") && e.to_string().contains(&own), "{e}");
}

/// The CPU backend, of which one tactic (where there are others) is said to yield other bits each time.
struct Dice {
    inner: Arc<dyn Backend>,
    changing: String,
}

impl Backend for Dice {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        self.inner.targets()
    }
    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        let mut all = self.inner.tactics(region, target)?;
        let only = all.len() == 1;
        all.iter_mut().for_each(|t| t.deterministic = only || t.id() != self.changing);
        Ok(all)
    }
    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        self.inner.compile(region, tactic, target)
    }
    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        self.inner.open(target)
    }
}

#[test]
fn deterministic_builds_take_no_other_tactics() {
    let (network, profile) = lenet();
    let build = |changing: &str, deterministic: bool| {
        let dice: Arc<dyn Backend> = Arc::new(Dice { inner: cpu(), changing: changing.to_owned() });
        let config = BuildConfig { deterministic, estimates: true, ..BuildConfig::default() };
        builder(&dice, &profile, config).build(&network)
    };
    let free = build("", false).unwrap();
    let conv = free.steps.iter().find(|s| s.name.contains("/conv2/Conv")).unwrap();
    let name = &conv.tactic;
    let may = build(name, false).unwrap();
    assert!(may.steps.iter().any(|s| !s.deterministic && s.tactic == conv.tactic));
    let must = build(name, true).unwrap();
    assert!(must.steps.iter().all(|s| s.deterministic));
    let other = must.steps.iter().find(|s| s.name.contains("/conv2/Conv")).unwrap();
    assert_ne!(other.tactic, conv.tactic);
}

#[test]
fn replays_choose_alike_without_timing_anything() {
    let (network, profile) = lenet();
    for backend in all().unwrap() {
        for estimates in [false, true] {
            let config = BuildConfig { estimates, samples: 1, ..BuildConfig::default() };
            let mut first = builder(&backend, &profile, config);
            let built = first.build(&network).unwrap();
            let target = first.target().clone();
            let text = TacticRecord::of(&built.steps, &built.times, &target, estimates).to_text();
            let record = TacticRecord::from_text(&text).unwrap();
            assert_eq!(record.to_text(), text);
            let mut again = builder(&backend, &profile, BuildConfig { samples: 1, ..BuildConfig::default() });
            again.replay(&record).unwrap();
            let replayed = again.build(&network).unwrap();
            assert_eq!(replayed.timed, 0, "{}", backend.name());
            let same = bytes(&replayed, &profile, &target) == bytes(&built, &profile, &target);
            assert!(same, "{}, estimates {estimates}: a replay has other bytes", backend.name());
        }
    }
}

#[test]
fn records_are_edited_and_refused() {
    let (network, profile) = lenet();
    // All tactics are timed, however slow the backend expects them to be.
    let config = || BuildConfig { samples: 1, estimate_limit: f64::INFINITY, ..BuildConfig::default() };
    let mut first = builder(&cpu(), &profile, config());
    let built = first.build(&network).unwrap();
    let mut record = TacticRecord::of(&built.steps, &built.times, first.target(), false);
    let at = record.layers.iter().position(|l| l.layer.contains("/conv2/Conv")).unwrap();
    let key = record.layers[at].key.clone();
    let offered = record.times.get(&key).unwrap().candidates.keys().cloned().collect::<Vec<_>>();
    let other = offered.into_iter().find(|t| *t != record.layers[at].tactic).unwrap();
    record.layers[at].tactic = other.clone();
    let mut edited = builder(&cpu(), &profile, config());
    edited.replay(&record).unwrap();
    let built = edited.build(&network).unwrap();
    let conv = built.steps.iter().find(|s| s.name.contains("/conv2/Conv")).unwrap();
    assert_eq!((&conv.tactic, built.timed), (&other, 0));
    record.layers[at].tactic = "nothing".into();
    let mut lost = builder(&cpu(), &profile, config());
    lost.replay(&record).unwrap();
    let e = lost.build(&network).map(drop).unwrap_err().to_string();
    assert!(e.contains("/conv2/Conv") && e.contains("nothing is not offered"), "{e}");
    let selector = Some(Selector::new(Chooser::new(|_, _, _| Ok(Vec::new()))));
    let mut both = builder(&cpu(), &profile, BuildConfig { selector, ..config() });
    let e = both.replay(&record).unwrap_err();
    assert!(matches!(e, BuildError::ReplayAndSelector) && e.to_string().contains("leave one"), "{e}");
    record.backend = "other".into();
    let e = lost.replay(&record).unwrap_err().to_string();
    assert!(e.contains("backend other") && e.contains("for cpu"), "{e}");
    let text = record.to_text();
    assert!(TacticRecord::from_text("").is_err());
    assert!(TacticRecord::from_text(text.lines().next().unwrap()).unwrap_err().contains("0 of"));
    let newer = text.replacen("\"kiln_tactics\":1", "\"kiln_tactics\":9", 1);
    assert!(TacticRecord::from_text(&newer).unwrap_err().contains("format 9"));
}

/// A product in a loop of three iterations.
fn looped() -> Network {
    let mut net = Network::new("looped");
    let x = net.add_input("x", TensorType::new(DType::F32, [24, 48])).unwrap();
    let w = Rng::new(5).tensor_in(DType::F32, &[48, 48], -0.2, 0.2, 1);
    let w = net.add_weights(Some("w"), w).unwrap();
    let three = net.add_constant(Tensor::i64(&[], &[3]).unwrap()).unwrap().output(0).unwrap();
    let l = net.add_loop().unwrap();
    net.add_trip_limit(l, three, TripLimitKind::Count).unwrap();
    let r = net.add_recurrence(l, x).unwrap();
    let (id, value) = (r.id(), r.output(0).unwrap());
    let y = net.add_layer("product", "matmul", Attrs::new(), &[Some(value), Some(w)]).unwrap()[0];
    net.set_input(id, 1, y).unwrap();
    let last = net.add_loop_output(l, value, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap();
    net.mark_output(last, "y").unwrap();
    net
}

/// Rules, records and replays reach layers inside of loops, and the choice how a loop is run.
#[test]
fn layers_inside_of_loops_are_chosen_recorded_and_replayed() {
    for backend in all().unwrap() {
        let name = backend.name().to_owned();
        let target = backend.targets().unwrap().remove(0);
        let start = |rules: &[&str]| {
            let mut b = Builder::new(backend.clone(), target.clone());
            b.config = BuildConfig {
                samples: 1,
                search: false,
                estimate_limit: f64::INFINITY,
                tactic_rules: rules.iter().map(|r| r.parse().unwrap()).collect(),
                ..BuildConfig::default()
            };
            b
        };
        let step = |b: &Built, what: &str| b.steps.iter().find(|s| s.name.contains(what)).unwrap().clone();
        let mut cold = start(&[]);
        let built = cold.build(&looped()).unwrap();
        let (first, whole) = (step(&built, "product"), step(&built, "loop"));
        let offered = |key: &Option<String>| -> Vec<String> {
            let entry = key.as_ref().and_then(|k| cold.cache.get(k));
            entry.into_iter().flat_map(|e| e.candidates.keys().cloned()).collect()
        };
        let Some(other) = offered(&first.key).into_iter().find(|t| *t != first.tactic) else {
            assert!(name == "reference" || name == "cpu", "{name} has several tactics of a product");
            continue;
        };
        let full = format!("{}={other}", first.name);
        for rule in [&format!("product={other}"), &full] {
            let mut forced = start(&[rule]);
            let built = forced.build(&looped()).unwrap();
            assert_eq!(step(&built, "product").tactic, other, "{name}");
            assert!(!built.notes.iter().any(|n| n.contains("no effect")), "{name}: {:?}", built.notes);
            let record = TacticRecord::of(&built.steps, &built.times, &target, false);
            let mut again = start(&[]);
            again.replay(&record).unwrap();
            let replayed = again.build(&looped()).unwrap();
            assert_eq!((step(&replayed, "product").tactic, replayed.timed), (other.clone(), 0), "{name}");
        }
        // A locked build with another kernel inside takes the times of the loop with the one of before.
        let mut locked = start(&[&full]);
        locked.cache = cold.cache.clone();
        locked.config.locked = true;
        let built = locked.build(&looped()).unwrap();
        assert_eq!((step(&built, "product").tactic, built.timed), (other, 0), "{name}");
        let ways = offered(&whole.key);
        assert_eq!(built.notes.iter().any(|n| n.contains("other kernels inside")), ways.len() > 1, "{name}");
        for way in &ways {
            let mut forced = start(&[&format!("{}={way}", whole.name)]);
            assert_eq!(step(&forced.build(&looped()).unwrap(), "loop").tactic, *way, "{name}");
            let mut pinned = start(&[]);
            pinned.cache = cold.cache.clone();
            pinned.cache.pin(whole.key.as_ref().unwrap(), Some(way)).unwrap();
            assert_eq!(step(&pinned.build(&looped()).unwrap(), "loop").tactic, *way, "{name}");
        }
    }
}

#[test]
fn pinned_tactics_are_taken_whatever_their_times_are() {
    let (network, profile) = lenet();
    // All tactics are timed, however slow the backend expects them to be.
    let config = || BuildConfig { samples: 1, estimate_limit: f64::INFINITY, ..BuildConfig::default() };
    let mut b = builder(&cpu(), &profile, config());
    let built = b.build(&network).unwrap();
    let conv = |b: &Built| b.steps.iter().find(|s| s.name.contains("/conv2/Conv")).unwrap().clone();
    let first = conv(&built);
    let key = first.key.clone().unwrap();
    let slower = b.cache.get(&key).unwrap().candidates.keys().find(|t| **t != first.tactic).unwrap().clone();
    b.cache.pin(&key, Some(&slower)).unwrap();
    let text = b.cache.to_text();
    let build = |text: &str| {
        let mut b = builder(&cpu(), &profile, BuildConfig { locked: true, ..config() });
        b.cache = TimingCache::from_text(text).unwrap();
        b.build(&network).unwrap()
    };
    assert_eq!(conv(&build(&text)).tactic, slower);
    b.cache.pin(&key, None).unwrap();
    assert_eq!(conv(&build(&b.cache.to_text())).tactic, first.tactic);
}

#[test]
fn layers_that_share_no_times_are_timed_each_on_its_own() {
    let mut net = Network::new("twice");
    let mut rng = Rng::new(1);
    let x = net.add_input("x", TensorType::new(DType::F32, [8, 512])).unwrap();
    let mut y = x;
    for name in ["first", "second"] {
        let w = net.add_weights(Some(&format!("{name}.w")), rng.tensor(DType::F32, &[512, 512])).unwrap();
        let ins = [Some(y), Some(w)];
        y = net.add_layer(name, "matmul", Attrs::new(), &ins).unwrap()[0];
        y = net
            .add_layer(&format!("{name}.soft"), "softmax", Attrs::new().with("axis", 1i64), &[Some(y)])
            .unwrap()[0];
    }
    net.mark_output(y, "y").unwrap();
    let target = cpu().targets().unwrap().remove(0);
    let keys = |share_times: bool| {
        let mut b = Builder::new(cpu(), target.clone());
        b.config = BuildConfig { share_times, samples: 1, search: false, ..BuildConfig::default() };
        let built = b.build(&net).unwrap();
        let of = |name: &str| built.steps.iter().find(|s| s.name.starts_with(name)).unwrap().key.clone();
        (of("first"), of("second"), built.timed)
    };
    let (first, second, shared) = keys(true);
    assert!(first.is_some() && first == second);
    let (first, second, alone) = keys(false);
    assert!(first.is_some() && second.is_some() && first != second);
    assert_eq!(alone, 2 * shared);
}

#[test]
fn caches_of_other_devices_are_refused_where_the_build_says_so() {
    let (network, profile) = lenet();
    let mut b = builder(&cpu(), &profile, BuildConfig { samples: 1, ..BuildConfig::default() });
    b.check_cache().unwrap();
    b.build(&network).unwrap();
    b.check_cache().unwrap();
    let text = b.cache.to_text();
    let (_, entry) = b.cache.iter().next().unwrap();
    let foreign = text.replace(&entry.target, "0123456789abcdef0123456789abcdef");
    b.cache = TimingCache::from_text(&foreign).unwrap();
    let e = b.check_cache().unwrap_err();
    assert!(matches!(e, BuildError::OtherCache { .. }), "{e}");
}
