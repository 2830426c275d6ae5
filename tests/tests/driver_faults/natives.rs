//! Native forms of plug-in layers: what the host passes to them, graphs that they split, states, and errors.

use crate::cases::Cx;
use crate::fake::library;
use crate::{open, with_driver};
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::{LoopOutputKind, Network, PluginSpec, TensorId, TripLimitKind};
use kiln_plan::Plan;
use kiln_runtime::plugin::{Policy, load};
use kiln_runtime::{Engine, ExecutionContext, Profile};
use std::path::{Path, PathBuf};
use std::process::Command;

const CAPTURABLE: u32 = 1;
const MOVABLE: u32 = 2;

/// Ways in which the library fails.
const REFUSES: i32 = 1;
const PANICS: i32 = 2;
const NO_STATE: i32 = 3;
const NULL_STATE: i32 = 4;

/// The library of `native.c` with these flags, loaded; its layer has the name of the flags.
struct Layer {
    name: String,
    path: PathBuf,
    library: libloading::Library,
}

#[derive(Debug, PartialEq, Eq)]
struct Counts {
    attached: u64,
    detached: u64,
    called: u64,
    recorded: u64,
}

impl Layer {
    fn new(flags: u32) -> Layer {
        let name = format!("Roll{flags}");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("natives");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("libkiln_layers_native{flags}-{}.so", std::process::id()));
        let root = kiln_tests::suite::root();
        let built = Command::new("cc")
            .args([
                "-std=c11",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-O1",
                "-g",
                "-shared",
                "-fPIC",
                "-fvisibility=hidden",
            ])
            .arg(format!("-DLAYER=\"{name}\""))
            .arg(format!("-DFLAGS={flags}u"))
            .arg("-I")
            .arg(root.join("plugins/include"))
            .arg("-o")
            .args([&path, &root.join("tests/tests/driver_faults/native.c")])
            .arg("-ldl")
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        load(&path, &Policy::default()).unwrap().layers().unwrap();
        // SAFETY: the library is the test's own, and mapped already.
        let library = unsafe { libloading::Library::new(&path) }.unwrap();
        Layer { name, path, library }
    }

    /// The counts since the last call. Fails if a call was wrong.
    fn counts(&self) -> Counts {
        // SAFETY: the source beside this test declares five numbers.
        let all = unsafe { &mut **self.library.get::<*mut [u64; 5]>(b"kiln_test_counts").unwrap() };
        let [attached, detached, called, recorded, wrong] = std::mem::take(all);
        assert_eq!(wrong, 0, "calls with wrong members");
        Counts { attached, detached, called, recorded }
    }

    fn fail(&self, how: i32) {
        // SAFETY: the source beside this test declares a number.
        unsafe { **self.library.get::<*mut i32>(b"kiln_test_fail").unwrap() = how }
    }

    fn roll(&self, net: &mut Network, x: TensorId, by: i64) -> TensorId {
        net.add_plugin(&[x], PluginSpec::new("native", &self.name).field("by", by))
            .unwrap()
            .output(0)
            .unwrap()
    }

    /// y = roll(roll(x, 1), 2) and z = exp(x), which stands between them.
    fn network(&self) -> Network {
        let mut net = Network::new("natives");
        let x = net.add_input("x", TensorType { dtype: DType::F32, dims: vec![Dim::host("n")] }).unwrap();
        let a = self.roll(&mut net, x, 1);
        let z = net.add_layer("z", "exp", Attrs::new(), &[Some(x)]).unwrap()[0];
        let y = self.roll(&mut net, a, 2);
        net.mark_output(y, "y").unwrap();
        net.mark_output(z, "z").unwrap();
        net
    }

    fn plan(&self, cx: &Cx) -> Plan {
        let mut profile = Profile::new();
        profile.set_shape("x", &[1], &[5], &[8]).unwrap();
        let mut builder = Builder::new(cx.backend.clone(), cx.target.clone());
        builder.config = BuildConfig {
            estimates: true,
            search: false,
            profiles: vec![profile.clone()],
            ..BuildConfig::default()
        };
        let program = builder.build(&self.network()).unwrap().program;
        let natives: Vec<&str> =
            program.steps.iter().map(|s| &*s.tactic.name).filter(|n| n.starts_with("native.")).collect();
        assert_eq!(natives, ["native.copies"; 2]);
        Plan::new(program, vec![profile], cx.target.clone())
    }

    fn engine(&self, cx: &Cx) -> Engine {
        Engine::from_plan(self.plan(cx), cx.backend.clone()).unwrap()
    }
}

fn vector(n: usize) -> Tensor {
    Tensor::f32(&[n], &(0..n).map(|i| i as f32 + 1.0).collect::<Vec<_>>()).unwrap()
}

fn run(context: &mut ExecutionContext, n: usize) -> Result<(), String> {
    let out = context.run(&[("x", vector(n))]).map_err(|e| e.to_string())?;
    let wanted: Vec<f64> = (0..n).map(|i| ((i + 3) % n) as f64 + 1.0).collect();
    assert_eq!(out.get("y").unwrap().to_f64(), wanted, "{n}");
    Ok(())
}

#[test]
fn native_forms_run_in_the_stream_and_in_graphs() {
    with_driver("natives::in_streams", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn in_streams() {
    let Some(cx) = open() else { return };
    cx.fake.start(-1, 0);
    for flags in [0, CAPTURABLE, MOVABLE, CAPTURABLE | MOVABLE] {
        let (captured, movable) = (flags & CAPTURABLE != 0, flags & MOVABLE != 0);
        let layer = Layer::new(flags);
        let plan = layer.plan(&cx);
        let [needed] = &plan.header.plugins[..] else { panic!("{:?}", plan.header.plugins) };
        assert!(needed.called && needed.name == "native" && !needed.digest.is_empty());
        let engine = Engine::from_plan(plan, cx.backend.clone()).unwrap();
        let mut context = engine.create_context().unwrap();
        layer.counts();
        run(&mut context, 5).unwrap();
        assert_eq!(layer.counts(), Counts { attached: 2, detached: 0, called: 2, recorded: 0 }, "{flags}");
        // The second run becomes a graph, from the third on nothing is called but what no graph records.
        let later = if captured { [2, 0, 0] } else { [2, 2, 2] };
        for called in later {
            run(&mut context, 5).unwrap();
            let recorded = if captured { called } else { 0 };
            assert_eq!(layer.counts(), Counts { attached: 0, detached: 0, called, recorded }, "{flags}");
        }
        assert!(context.host_layers().unwrap().is_empty());
        // Other shapes have other states, unless one serves all.
        run(&mut context, 3).unwrap();
        let attached = if movable { 0 } else { 2 };
        assert_eq!(layer.counts().attached, attached, "{flags}");
        run(&mut context, 1).unwrap();
        assert_eq!(layer.counts().attached, attached, "{flags}");
        // A context has states of its own, and gives them back.
        let mut other = engine.create_context().unwrap();
        run(&mut other, 5).unwrap();
        assert_eq!(layer.counts().attached, 2);
        drop((context, other, engine));
        assert_eq!(layer.counts().detached, if movable { 4 } else { 8 }, "{flags}");
        assert_eq!((cx.fake.misuse(), cx.fake.alive()), (String::new(), String::new()));
    }
}

#[test]
fn failures_of_native_forms_are_errors_of_their_layer() {
    with_driver("natives::failing", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn failing() {
    let Some(cx) = open() else { return };
    cx.fake.start(-1, 0);
    for flags in [0, CAPTURABLE, CAPTURABLE | MOVABLE] {
        let layer = Layer::new(flags);
        let engine = layer.engine(&cx);
        for (how, says) in [
            (REFUSES, "not on a Monday"),
            (PANICS, "panicked: as a panic of Rust says; report it to its author"),
            (NO_STATE, "no such device"),
            (NULL_STATE, "made no object"),
        ] {
            // A fresh run, one that records, and one that only launches.
            for before in 0..3 {
                let mut context = engine.create_context().unwrap();
                (0..before).for_each(|_| run(&mut context, 5).unwrap());
                layer.fail(how);
                let found = run(&mut context, 5);
                layer.fail(0);
                let attaches = how == NO_STATE || how == NULL_STATE;
                let fails = if attaches { before == 0 } else { before < 2 || flags & CAPTURABLE == 0 };
                match found {
                    Err(e) => {
                        let path = layer.path.display().to_string();
                        assert!(
                            fails && e.contains(says) && e.contains(&path),
                            "{flags} {how} {before}: {e}"
                        );
                        assert!(e.contains("layer \"") && e.contains(&layer.name), "{e}");
                    }
                    Ok(()) => assert!(!fails, "{flags} {how} {before}"),
                }
                run(&mut context, 5).unwrap();
                run(&mut context, 5).unwrap();
            }
        }
        layer.counts();
        drop(engine);
        assert_eq!((cx.fake.misuse(), cx.fake.alive()), (String::new(), String::new()));
    }
}

/// y = x rolled n times by 1, in a loop.
fn looped(layer: &Layer) -> Network {
    let mut net = Network::new("looped");
    let x = net.add_input("x", TensorType::new(DType::F32, [5])).unwrap();
    let n = net.add_input("n", TensorType::new(DType::I64, [0; 0])).unwrap();
    let l = net.add_loop().unwrap();
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    let r = net.add_recurrence(l, x).unwrap();
    let (id, value) = (r.id(), r.output(0).unwrap());
    let next = layer.roll(&mut net, value, 1);
    net.set_input(id, 1, next).unwrap();
    let y = net.add_loop_output(l, value, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net
}

#[test]
fn control_flow_around_native_forms() {
    with_driver("natives::in_loops", &library(), &[]);
}

/// The device keeps a loop around a form that graphs record; the host walks one around another form, and says why.
#[test]
#[ignore = "runs in a process of its own"]
fn in_loops() {
    let Some(cx) = open() else { return };
    cx.fake.start(-1, 0);
    for flags in [0, CAPTURABLE] {
        let layer = Layer::new(flags);
        let mut builder = Builder::new(cx.backend.clone(), cx.target.clone());
        builder.config = BuildConfig { estimates: true, search: false, ..BuildConfig::default() };
        let built = builder.build(&looped(&layer)).unwrap();
        let told: Vec<&str> = built.host_layers.iter().map(|h| &*h.why).collect();
        let engine =
            Engine::on_target(built.program.clone(), Vec::new(), &*cx.backend, cx.target.clone()).unwrap();
        let mut context = engine.create_context().unwrap();
        for n in [3, 4, 3] {
            let n = Tensor::i64(&[], &[n]).unwrap();
            let out = context.run(&[("x", vector(5)), ("n", n.clone())]).unwrap();
            let walked: Vec<String> = context.host_layers().unwrap().into_iter().map(|h| h.why).collect();
            if flags & CAPTURABLE != 0 {
                assert!(walked.is_empty() && told.is_empty(), "{walked:?} {told:?}");
                let counts = layer.counts();
                assert!(counts.called == counts.recorded, "{counts:?}");
            } else {
                assert!(walked.iter().any(|w| w.contains("no graph records")), "{walked:?}");
                assert!(told.iter().any(|w| w.contains("no graph records")), "{told:?}");
                let shift = n.to_i64()[0] as usize;
                let wanted: Vec<f64> = (0..5).map(|i| ((i + shift) % 5) as f64 + 1.0).collect();
                assert_eq!(out.get("y").unwrap().to_f64(), wanted);
            }
        }
        drop((context, engine));
        assert_eq!((cx.fake.misuse(), cx.fake.alive()), (String::new(), String::new()));
    }
}
