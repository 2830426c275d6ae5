//! Engines and timing caches that versions of Kiln wrote, under `tests/data/stored`, by generation and backend. Each loads and
//! computes what the oracle does, or is refused by a sentence that says what to do. The newest generation loads, with two
//! exceptions: plans for another device, and plans whose launches are planned by code of a GPU backend that was changed since then.
//! Version-compatible engines load whatever code was changed.
//!
//! A change by which plans of the newest generation no longer load stores a new one: `KILN_STORE=1` writes it for the backends that
//! are there (CUDA builds by NVRTC alone), and leaves the older ones as they are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::{Backend, Target};
use kiln_builder::cache::TimingCache;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::problem::Rng;
use kiln_ir::{DType, Graph, Tensor};
use kiln_plan::Plan;
use kiln_runtime::{Engine, Profile, graph_io};
use kiln_tests::backends;
use kiln_tests::models::{data, difference};
use kiln_tests::suite::root;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

/// Advice in every refusal of an engine.
const ADVICE: &str = "build the plan again";

/// Reason why engines of varying shapes are refused by a GPU backend of another build.
const OTHER_CODE: &str = "so that code of the backend plans them, and the plan was built with other code";

/// The first generation with engines of fixed shapes, whose names end with [`FIXED`].
const FIXED_SINCE: u32 = 4;
const FIXED: &str = "_fixed";

/// Networks by name; the rows `n` of their inputs go from 1 to 8, or are [`ROWS`] in engines of fixed shapes.
const NETWORKS: &[(&str, &str)] = &[
    ("dense", "graph \"dense\" { input %x: f32[n,24] weight %w: f32[24,16] = seed 1 weight %b: f32[16] = seed 2
        weight %k: i64[1] = [-1] %y = matmul(%x, %w) %z = add(%y, %b) %r = relu(%z) %s = softmax(%r) {axis=1}
        %m = reduce(%z, %k) {op=\"max\",keep_dims=true} output %s output %m }"),
    ("half", "graph \"half\" { input %x: f16[n,3,9,9] weight %w: f16[4,3,3,3] = seed 3 weight %b: f16[4] = seed 4
        %y = conv(%x, %w, %b) {pads=[1,1,1,1]} %z = tanh(%y) %c = cast(%z) {to=bf16} output %z output %c }"),
    ("whole", "graph \"whole\" { input %i: i64[n,5] input %x: f32[n,5] weight %two: i64[] = [2] weight %lo: i64[] = [0]
        %s = mul(%i, %two) %p = greater(%i, %lo) %q = select(%p, %s, %i) %h = cast(%x) {to=i8} %a = argmax(%x) {axis=1}
        output %q output %p output %h output %a }"),
    ("loop", "graph \"loop\" { input %k: i64[] input %x: f32[n,4] weight %w: f32[4,4] = seed 5
        %y: f32[n,4], %all: f32[?m,n,4] = loop(%k, %x, %w) {body_captures=1,carried=1,count=true,iter_axes=[],iter_reverse=[],
        out_axes=[0,0],out_index=[0,0],out_kinds=s[\"last\",\"concat\"],out_length=[0,0]} @l graph \"body\" {
        input %v: f32[n,4] input %u: f32[4,4] %p = matmul(%v, %u) %t = tanh(%p) output %t output %v }
        output %y output %all }"),
    ("choice", "graph \"choice\" { input %c: bool[] input %x: f32[n,4] %y: f32[n,4] = if(%c, %x, %x) {then_captures=1} @i
        graph \"yes\" { input %a: f32[n,4] %p = exp(%a) %q = neg(%p) output %q }
        graph \"no\" { input %a: f32[n,4] %p = softmax(%a) {axis=1} output %p } output %y }"),
];

const ROWS: i64 = 3;

/// The first generation with version-compatible engines of varying shapes, whose names end with [`COMPATIBLE`].
const COMPATIBLE_SINCE: u32 = 5;
const COMPATIBLE: &str = "_compatible";

/// The names of a generation's engines.
fn engines(generation: u32) -> Vec<String> {
    let all = NETWORKS.iter().map(|(name, _)| *name);
    let ending = |since: u32, end: &'static str| {
        all.clone().filter(move |_| generation >= since).map(move |name| format!("{name}{end}"))
    };
    let (fixed, compatible) = (ending(FIXED_SINCE, FIXED), ending(COMPATIBLE_SINCE, COMPATIBLE));
    all.clone().map(str::to_owned).chain(fixed).chain(compatible).collect()
}

/// The network of an engine.
fn network(engine: &str) -> Graph {
    let name = [FIXED, COMPATIBLE].iter().find_map(|end| engine.strip_suffix(end)).unwrap_or(engine);
    let found = NETWORKS.iter().find(|(n, _)| *n == name);
    let text = found.unwrap_or_else(|| panic!("{engine}: no such network")).1;
    match engine.ends_with(FIXED) {
        true => graph(&text.replace("[n,", &format!("[{ROWS},")).replace(",n,", &format!(",{ROWS},"))),
        false => graph(text),
    }
}

fn folder(generation: u32) -> PathBuf {
    data(&format!("stored/{generation}"))
}

/// The newest generation that is stored.
fn newest() -> u32 {
    (1..).take_while(|&g| folder(g).is_dir()).last().unwrap_or(0)
}

/// The CUDA backend for an H200, with or without a device.
fn cuda() -> Option<Arc<dyn Backend>> {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let folder = root().join(".cache/nvrtc");
        if std::env::var_os("KILN_NVRTC").is_none() && folder.is_dir() {
            // SAFETY: before this test's threads read the environment.
            unsafe { std::env::set_var("KILN_NVRTC", &folder) };
        }
        if backends::cuda().unwrap().is_none() {
            // SAFETY: as above.
            unsafe { std::env::set_var("KILN_CUDA_TARGET", "h200") };
        }
    });
    backends::cuda().unwrap()
}

fn graph(text: &str) -> Graph {
    Graph::from_text(text).unwrap_or_else(|e| panic!("{e}"))
}

/// Inputs of [`ROWS`] rows; counts are 3.
fn inputs(g: &Graph) -> Vec<Tensor> {
    let mut rng = Rng::new(9);
    let one = |io: &kiln_runtime::IoTensor| {
        let shape: Vec<usize> = io.dims.iter().map(|d| d.as_const().unwrap_or(ROWS) as usize).collect();
        match (io.dtype, shape.len()) {
            (DType::I64, 0) => Tensor::i64(&[], &[3]).unwrap(),
            (t, _) => rng.tensor(t, &shape),
        }
    };
    graph_io(g).iter().take(g.inputs.len()).map(one).collect()
}

fn profile(g: &Graph) -> Profile {
    let mut p = Profile::new();
    for io in graph_io(g).iter().take(g.inputs.len()) {
        let rows = |n: i64| io.dims.iter().map(|d| d.as_const().unwrap_or(n)).collect::<Vec<_>>();
        p.set_shape(&io.name, &rows(1), &rows(ROWS), &rows(8)).unwrap();
    }
    p
}

fn store(backend: &Arc<dyn Backend>, target: &Target, generation: u32) {
    let to = &folder(generation).join(backend.name());
    std::fs::create_dir_all(to).unwrap();
    let mut times = TimingCache::new();
    for name in engines(generation) {
        let g = network(&name);
        let mut b = Builder::new(backend.clone(), target.clone());
        let timed = backend.name() == "reference";
        b.config = BuildConfig {
            estimates: !timed,
            samples: 1,
            max_tactics: 2,
            version_compatible: name.ends_with(COMPATIBLE),
            profiles: vec![profile(&g)],
            ..BuildConfig::default()
        };
        let built = b.build_graph(g.clone(), &mut |_, _, _| true).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut plan = Plan::new(built.program, vec![profile(&g)], target.clone());
        plan.header.version_compatible = name.ends_with(COMPATIBLE);
        plan.write_file(&to.join(format!("{name}.kiln"))).unwrap();
        times.merge(&b.cache);
    }
    if !times.is_empty() {
        std::fs::write(to.join("times.jsonl"), times.to_text()).unwrap();
    }
}

#[test]
fn a_new_generation_is_stored_where_it_is_asked_for() {
    if std::env::var_os("KILN_STORE").is_none() {
        return;
    }
    let generation = newest() + 1;
    let all = [Some(backends::reference()), backends::wgpu().unwrap(), cuda()];
    for backend in all.into_iter().flatten() {
        let target = backend.targets().unwrap().remove(0);
        store(&backend, &target, generation);
    }
}

/// Checks a refusal: it says what to do, and is none of an engine that has to load.
fn refused(what: &str, loads: bool, e: impl std::fmt::Display) {
    let text = e.to_string();
    assert!(
        !loads,
        "{what} no longer loads; if that is meant, store a new generation by KILN_STORE=1: {text}"
    );
    assert!(text.contains(ADVICE), "{what}: the refusal does not say what to do: {text}");
    println!("{what}: refused: {text}");
}

/// Loads an engine and runs it where a device is; counts those that ran.
fn check(backend: Option<&Arc<dyn Backend>>, path: &Path, name: &str, newest: bool) -> usize {
    let what = path.display().to_string();
    let plan = match Plan::open(path) {
        Ok(plan) => plan,
        Err(e) => {
            refused(&what, newest, e);
            return 0;
        }
    };
    let Some(backend) = backend else { return 0 };
    let target = backend.targets().unwrap().remove(0);
    if name.ends_with(COMPATIBLE) {
        let later = Target { version: "99.0.0".into(), ..plan.header.target.clone() };
        assert_eq!(plan.header.check_compatibility(&later).refusal, None, "{what}");
    }
    if let Some(why) = plan.header.check_compatibility(&target).refusal {
        // Another device, or another version of the backend.
        refused(&what, false, why);
        return 0;
    }
    if std::env::var_os("KILN_CUDA_TARGET").is_some() && backend.name() == "cuda" {
        return 0;
    }
    let engine = match Engine::from_plan(plan, backend.clone()) {
        Ok(engine) => engine,
        Err(e) => {
            let varies =
                backend.name() != "reference" && ![FIXED, COMPATIBLE].iter().any(|end| name.ends_with(end));
            refused(&what, newest && !(varies && e.to_string().contains(OTHER_CODE)), e);
            return 0;
        }
    };
    let g = network(name);
    let given = inputs(&g);
    let wanted = g.eval(&given).unwrap();
    let names: Vec<String> = graph_io(&g).iter().take(g.inputs.len()).map(|io| io.name.clone()).collect();
    let given: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(given).collect();
    let found = engine.create_context().unwrap().run(&given).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(found.len(), wanted.len(), "{what}");
    for ((output, found), wanted) in found.iter().zip(&wanted) {
        assert_eq!(found.ty(), wanted.ty(), "{what}: {output}");
        let tolerance = match found.dtype() {
            DType::F16 | DType::BF16 => 2e-2,
            DType::F32 => 1e-5,
            _ => 0.0,
        };
        let d = difference(found, wanted);
        assert!(d <= tolerance, "{what}: {output} differs by {d}");
    }
    1
}

#[test]
fn stored_engines_load_or_say_what_to_do() {
    let backends =
        [("reference", Some(backends::reference())), ("wgpu", backends::wgpu().unwrap()), ("cuda", cuda())];
    let newest = newest();
    assert!(newest >= 1, "no engine is stored");
    for generation in 1..=newest {
        for (name, backend) in &backends {
            let engines = engines(generation);
            let ran: usize = engines
                .iter()
                .map(|engine| {
                    let file = folder(generation).join(name).join(format!("{engine}.kiln"));
                    assert!(file.is_file(), "{} is missing", file.display());
                    check(backend.as_ref(), &file, engine, generation == newest)
                })
                .sum();
            println!("generation {generation}, {name}: {ran} of {} engines ran", engines.len());
            assert!(
                *name != "reference" || generation < newest || ran == engines.len(),
                "{ran} ran on {name}"
            );
        }
    }
}

#[test]
fn stored_times_are_read_or_refused() {
    for generation in 1..=newest() {
        let path = folder(generation).join("reference/times.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        match TimingCache::from_text(&text) {
            Ok(cache) => {
                assert!(cache.len() >= NETWORKS.len(), "{}: {} entries", path.display(), cache.len());
                assert_eq!(cache.to_text(), text, "{}: read and written again", path.display());
            }
            Err(e) => assert!(e.contains("times are taken again"), "{}: {e}", path.display()),
        }
    }
}

/// Reading and writing lose nothing: the form of a plan is that of its generation.
#[test]
fn plans_of_the_newest_generation_are_written_as_they_were_read() {
    for backend in ["reference", "wgpu", "cuda"] {
        for engine in engines(newest()) {
            let path = folder(newest()).join(backend).join(format!("{engine}.kiln"));
            let bytes = std::fs::read(&path).unwrap();
            let again = Plan::read(bytes.clone()).unwrap().write().unwrap();
            assert!(again == bytes, "{}", path.display());
        }
    }
}
