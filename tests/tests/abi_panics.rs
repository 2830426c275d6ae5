//! Panics in every slot of a plug-in in Rust stay inside it: they become errors, and the object refuses further calls.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use kiln_backend::{Backend, BackendError, Context, Device, HostStep, Region, Tactic, TimeRequest, assisted};
use kiln_ir::{NodeId, ValueId};
use kiln_runtime::plugin::{LoadedBackend, Plugin, Policy, load};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

mod abi;

use abi::programs::{affine, expected_y, input, target};

const POISONED: &str = "an earlier call on this object panicked; make a new one";

/// The library, built now, its log captured, and its constructor past its one panic.
fn plugin() -> Arc<Plugin> {
    static PLUGIN: OnceLock<Arc<Plugin>> = OnceLock::new();
    let make = || {
        tracing_subscriber::fmt().with_writer(|| Log).with_ansi(false).init();
        let build = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--offline", "--package", "kiln-example-panicky"])
            .current_dir(abi::root())
            .status();
        assert!(build.unwrap().success());
        let exe = std::env::current_exe().unwrap();
        let name = format!("libkiln_backend_panicky{}", std::env::consts::DLL_SUFFIX);
        let path = exe.ancestors().find(|p| p.ends_with("debug")).map(|p| p.join(name));
        let plugin = load(&path.expect("tests run out of target/debug"), &Policy::default())
            .unwrap_or_else(|e| panic!("{}", e.chain()));
        let e = plugin.backend().map(drop).unwrap_err().chain();
        assert!(e.contains("the backend panicked: panic 1 in create"), "{e}");
        plugin
    };
    PLUGIN.get_or_init(make).clone()
}

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn log() -> String {
    String::from_utf8(LOG.lock().unwrap().clone()).unwrap()
}

fn backend() -> LoadedBackend {
    plugin().backend().unwrap_or_else(|e| panic!("{}", e.chain()))
}

/// The message of a panic, which must be of this slot.
fn panicked<T>(r: Result<T, BackendError>, slot: &str) -> String {
    match r.map(drop) {
        Err(BackendError::Panicked(m)) => {
            assert!(m.ends_with(&format!(" in {slot}")), "{m}");
            m
        }
        other => panic!("{slot}: {other:?}"),
    }
}

/// The object refuses without running its code: had it run, it would have panicked with a new number, or succeeded.
fn refuses<T>(r: Result<T, BackendError>) {
    assert_eq!(r.map(drop), Err(BackendError::Panicked(POISONED.into())));
}

fn region() -> Region {
    Region::extract(&affine("region").0.graph, &[NodeId(1)]).unwrap()
}

fn context(graph: &str) -> Box<dyn Context> {
    let device = backend().open(&target("calm")).unwrap();
    device.load(affine(graph).0).unwrap().context().unwrap()
}

fn run(c: &mut dyn Context) -> Result<(), BackendError> {
    let inputs = [input(2)];
    let shapes = affine("calm").0.shapes(&inputs).unwrap();
    c.enqueue(&inputs, &Arc::new(shapes))
}

#[test]
fn slots_of_a_backend() {
    let (calm, oracle) = (target("calm"), Tactic::plain("oracle"));
    let b = backend();
    panicked(b.targets(), "targets");
    refuses(b.targets());
    refuses(b.tactics(&region(), &calm));
    refuses(b.compile(&region(), &oracle, &calm));
    refuses(b.open(&calm));
    let b = backend();
    assert_eq!(b.tactics(&region(), &calm).unwrap(), [oracle]);
    panicked(b.tactics(&region(), &target("tactics")), "tactics");
    refuses(b.targets());
    let b = backend();
    panicked(b.compile(&region(), &Tactic::plain("compile"), &calm), "compile");
    refuses(b.open(&calm));
    let b = backend();
    panicked(b.open(&target("open")), "open");
    refuses(b.open(&calm));
}

#[test]
fn slots_of_a_device() {
    let device = backend().open(&target("calm")).unwrap();
    let time = |device: &dyn Device, name: &str| {
        let r = region();
        let tactic = Tactic::plain(name);
        device.time(&TimeRequest { graph: &r.graph, tactic: &tactic, blob: &[], inputs: &[], samples: 2 })
    };
    assert_eq!(time(&*device, "calm").unwrap(), [1.0, 1.0]);
    let executable = device.load(affine("calm").0).unwrap();
    panicked(time(&*device, "time"), "time");
    refuses(time(&*device, "calm"));
    refuses(device.load(affine("calm").0));
    assert!(executable.context().is_ok(), "what the device made before is none the worse");
    let device = backend().open(&target("calm")).unwrap();
    panicked(device.load(affine("load").0), "load");
    refuses(device.load(affine("calm").0));
}

#[test]
fn slots_of_an_executable_and_a_context() {
    let device = backend().open(&target("calm")).unwrap();
    let executable = device.load(affine("context").0).unwrap();
    panicked(executable.context(), "context");
    refuses(executable.context());

    let mut c = context("enqueue");
    panicked(run(&mut *c), "enqueue");
    refuses(run(&mut *c));
    refuses(c.outputs());

    let mut c = context("outputs");
    run(&mut *c).unwrap();
    panicked(c.outputs(), "outputs");
    refuses(c.outputs());

    let mut c = context("observe");
    panicked(c.observe(ValueId(0)), "observe");
    refuses(c.observe(ValueId(0)));

    let mut c = context("step_times");
    panicked(c.step_times(), "step_times");
    refuses(c.step_times());

    let mut c = context("host_steps");
    panicked(c.host_steps(), "host_steps");
    refuses(c.host_steps());

    let mut c = context("set_observable");
    c.set_observable(true);
    refuses(run(&mut *c));

    let mut c = context("counters");
    run(&mut *c).unwrap();
    c.outputs().unwrap();
    assert_eq!((c.counters().runs, c.counters().host_syncs), (1, 0), "the host's own count");
    refuses(run(&mut *c));
}

#[test]
fn where_nothing_panics_all_works() {
    let mut c = context("calm");
    for _ in 0..2 {
        run(&mut *c).unwrap();
        let z: Vec<f64> = expected_y(2).iter().map(|v| 2.0 * f64::from(*v)).collect();
        assert_eq!(c.outputs().unwrap()[0].to_f64(), z);
    }
    let (program, y, _) = affine("calm");
    assert_eq!(c.observe(program.graph.outputs[0]).unwrap().shape(), [2, 20]);
    let e = c.observe(y).unwrap_err();
    assert!(matches!(e, BackendError::Unsupported(_)), "{e}");
    assert_eq!(c.step_times().unwrap()[0].ns, 2.5);
    assert_eq!(c.host_steps().unwrap(), [HostStep::new(0, assisted::SIZES).within(0, 1)]);
    assert_eq!((c.counters().runs, c.counters().host_syncs), (2, 7));
}

#[test]
fn panics_in_destructors_and_payloads_stay_inside_too() {
    drop(backend().open(&target("drop")).unwrap());
    assert!(log().contains("while an object was destroyed: the backend panicked"), "{}", log());
    let b = backend();
    match b.tactics(&region(), &target("payload")) {
        Err(BackendError::Panicked(m)) => assert_eq!(m, "with a value that is no text"),
        other => panic!("{other:?}"),
    }
    refuses(b.targets());
}

#[test]
fn the_log_tells_where_it_panicked() {
    let m = panicked(backend().targets(), "targets");
    let log = log();
    let line = log.lines().find(|l| l.contains(&m)).unwrap_or_else(|| panic!("no {m} in {log}"));
    assert!(line.contains("ERROR") && line.contains("plugin=\"panicky\""), "{line}");
    assert!(line.contains("panicky/src/lib.rs:"), "{line}");
}
