//! Progress monitors and error recorders through the façade.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln::plugin::Search;
use kiln::report::BuildError;
use kiln::{
    BuildConfig, DiscoverOptions, Engine, EngineBuilder, Error, ErrorCode, ErrorLog, ProgressMonitor, Tensor,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");

/// Notes all phases, checks that they nest, and cancels at a step.
#[derive(Default)]
struct Watcher {
    open: Vec<(String, usize, usize)>,
    started: Vec<String>,
    steps: usize,
    deepest: usize,
    cancel_at: Option<usize>,
    /// Calls behind the step that cancelled.
    late: usize,
}

impl ProgressMonitor for Watcher {
    fn phase_start(&mut self, phase: &str, parent: Option<&str>, steps: usize) {
        assert_eq!(parent, self.open.last().map(|p| p.0.as_str()), "{phase} is in the innermost open phase");
        assert!(steps > 0, "{phase}");
        self.open.push((phase.to_owned(), steps, 0));
        self.started.push(phase.to_owned());
        self.deepest = self.deepest.max(self.open.len());
        self.late += usize::from(self.cancel_at.is_some_and(|at| self.steps > at));
    }

    fn step_complete(&mut self, phase: &str, step: usize) -> bool {
        let (name, steps, done) = self.open.last_mut().unwrap();
        assert_eq!((name.as_str(), *done), (phase, step), "steps are told in order, of the innermost phase");
        assert!(step < *steps, "{phase} has {steps} steps");
        *done += 1;
        self.steps += 1;
        self.late += usize::from(self.cancel_at.is_some_and(|at| self.steps > at + 1));
        self.cancel_at.is_none_or(|at| self.steps <= at)
    }

    fn phase_finish(&mut self, phase: &str) {
        assert_eq!(self.open.pop().map(|p| p.0).as_deref(), Some(phase), "the innermost phase ends first");
    }
}

fn builder(estimates: bool) -> EngineBuilder {
    on("cpu", estimates)
}

fn on(backend: &str, estimates: bool) -> EngineBuilder {
    let config = BuildConfig { estimates, samples: 1, max_tactics: 2, ..BuildConfig::default() };
    Engine::builder().backend(backend).config(config)
}

/// Threads of this process, but for those of tests, which are named by them, and of the driver of wgpu, which keeps its own.
fn threads() -> usize {
    let tests = ["builds_are", "callbacks_cancel", "errors_of", "phases_nest"];
    let all = std::fs::read_dir("/proc/self/task").unwrap();
    let name =
        |t: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(t.unwrap().path().join("comm"));
    // A thread may end while it is asked.
    let names = all.filter_map(|t| name(t).ok());
    let names = names.filter(|n| !n.starts_with("llvmpipe") && !n.contains(':'));
    names.filter(|n| !tests.iter().any(|t| n.starts_with(&t[..t.len().min(10)]))).count()
}

/// The threads, once there are no more than before, or after a second: the system lists a thread for a moment after it was joined.
fn threads_left(before: usize) -> usize {
    for _ in 0..100 {
        if threads() <= before {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    threads()
}

#[test]
fn phases_nest_and_are_finished() {
    let watcher = Arc::new(Mutex::new(Watcher::default()));
    let built = builder(false).monitor(watcher.clone()).build_plan(MODEL).unwrap();
    let w = watcher.lock().unwrap();
    assert!(w.open.is_empty() && w.deepest >= 3 && built.report.timed > 0);
    let has = |name: &str| w.started.iter().any(|p| p.starts_with(name));
    for phase in
        ["building", "running passes", "searching", "trying", "timing", "choosing kernels", "compiling"]
    {
        assert!(has(phase), "{phase}: {:?}", w.started);
    }
}

/// At each of the observed steps: the build ends there, with all phases finished, no thread more and no file.
fn cancelled_at_every_step(builder: &EngineBuilder, estimates: bool, stride: usize) {
    let watcher = Arc::new(Mutex::new(Watcher::default()));
    builder.clone().monitor(watcher.clone()).build_plan(MODEL).unwrap();
    let (steps, before) = (watcher.lock().unwrap().steps, threads());
    assert!(steps > 10, "{steps}");
    let folder = tempfile::tempdir().unwrap();
    let times = folder.path().join("times.jsonl");
    for at in (0..steps).step_by(stride) {
        let watcher = Arc::new(Mutex::new(Watcher { cancel_at: Some(at), ..Watcher::default() }));
        let watched = builder.clone().monitor(watcher.clone());
        let watched = if estimates { watched } else { watched.timing_cache(&times) };
        let result = watched.build_plan(MODEL);
        let w = watcher.lock().unwrap();
        match result {
            Err(Error::Build { source: BuildError::Cancelled, .. }) => {}
            // Known times leave steps out.
            Ok(_) if !estimates && w.steps <= at => {}
            other => panic!("step {at} of {steps}: {other:?}"),
        }
        assert!(w.open.is_empty(), "step {at}: {:?} are open", w.open);
        assert_eq!(w.late, 0, "step {at}: work goes on");
        assert_eq!(threads_left(before), before, "step {at}");
        let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().path()).collect();
        let alien = |f: &&std::path::PathBuf| !f.to_string_lossy().contains("times.jsonl");
        assert_eq!(files.iter().find(alien), None);
    }
    // The times taken before the cancelled builds are known, and a further build succeeds.
    let last = builder.clone().timing_cache(&times).build_plan(MODEL).unwrap();
    assert!(Engine::builder().plugins(beside()).build(last.plan).is_ok());
}

#[test]
fn builds_are_cancelled_at_every_step_without_timing() {
    cancelled_at_every_step(&builder(true), true, 1);
}

#[test]
fn builds_are_cancelled_while_they_time() {
    cancelled_at_every_step(&builder(false), false, 5);
}

/// Plug-ins in the folder that cargo builds into.
fn beside() -> DiscoverOptions {
    let mut options = DiscoverOptions::default();
    let folder = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    options.search = Search::from_env().with([folder]);
    options
}

#[test]
fn builds_are_cancelled_on_reference() {
    cancelled_at_every_step(&on(kiln::REFERENCE, true), true, 3);
    cancelled_at_every_step(&on(kiln::REFERENCE, false), false, 7);
}

/// On a backend of a plug-in, if it has a device.
fn cancelled_on(name: &str, required: &str) {
    let (backends, _) = kiln::backends(&beside());
    let here = backends.get(name).is_ok_and(|b| b.targets().is_ok_and(|t| !t.is_empty()));
    if !here {
        assert!(std::env::var_os(required).is_none(), "{name} must be there");
        return eprintln!("skipped: {name} is not built or has no device");
    }
    cancelled_at_every_step(&on(name, true).plugins(beside()), true, 9);
    cancelled_at_every_step(&on(name, false).plugins(beside()).shape("input", &[1, 1, 28, 28]), false, 23);
}

#[test]
fn builds_are_cancelled_on_wgpu() {
    cancelled_on("wgpu", "KILN_REQUIRE_WGPU");
}

#[test]
fn builds_are_cancelled_on_cuda() {
    cancelled_on("cuda", "KILN_REQUIRE_CUDA");
}

#[test]
fn callbacks_cancel_too() {
    let mut calls = 0;
    let result = builder(true).build_plan_with_progress(MODEL, &mut |_, done, steps| {
        assert!(done <= steps);
        calls += 1;
        calls < 3
    });
    assert!(matches!(result, Err(Error::Build { source: BuildError::Cancelled, .. })));
    assert_eq!(calls, 3);
}

#[test]
fn errors_of_builds_engines_and_contexts_are_recorded_with_codes() {
    let log = Arc::new(ErrorLog::new(8));
    let take = |wanted: ErrorCode, text: &str| {
        assert_eq!(log.len(), 1, "{log:?}");
        let (code, found) = log.get(0).unwrap();
        assert!(code == wanted && found.contains(text), "{code}: {found}");
        log.clear();
    };
    // A build that fails.
    let config = BuildConfig { debug_tensors: vec!["none".into()], ..BuildConfig::default() };
    let refused = builder(true).config(config).error_recorder(log.clone()).build_plan(MODEL);
    let code = refused.unwrap_err().code();
    take(code, "no tensor outside of loops");
    let watcher = Arc::new(Mutex::new(Watcher { cancel_at: Some(2), ..Watcher::default() }));
    builder(true).error_recorder(log.clone()).monitor(watcher).build(MODEL).unwrap_err();
    take(ErrorCode::Unspecified, "cancelled");
    // An engine and its contexts.
    let engine = builder(true).error_recorder(log.clone()).build(MODEL).unwrap();
    engine.io_tensor("nothing").unwrap_err();
    take(ErrorCode::InvalidArgument, "no tensor \"nothing\"");
    engine.refitter().map(drop).unwrap_err();
    take(ErrorCode::InvalidArgument, "built without refit");
    let mut context = engine.create_context().unwrap();
    context.outputs().unwrap_err();
    take(ErrorCode::InvalidState, "there is no run");
    context.enqueue().unwrap_err();
    take(ErrorCode::InvalidState, "input \"input\" is missing");
    let wrong = [("input", Tensor::zeros(kiln::DType::F32, &[2, 1, 28, 28]).unwrap())];
    context.run(&wrong).unwrap_err();
    take(ErrorCode::InvalidArgument, "input");
    context.set_input_shape("input", &[1]).unwrap_err();
    take(ErrorCode::InvalidArgument, "wants 4 dimensions");
    context.set_profile(Some(7)).unwrap_err();
    take(ErrorCode::InvalidArgument, "there is no profile 7");
    context.observe("nothing").unwrap_err();
    take(ErrorCode::InvalidArgument, "nothing");
    // A recorder of its own, or none.
    let own = Arc::new(ErrorLog::new(1));
    context.set_error_recorder(Some(own.clone()));
    context.outputs().unwrap_err();
    context.outputs().unwrap_err();
    assert!(log.is_empty() && own.len() == 1 && own.has_overflowed());
    context.set_error_recorder(None);
    own.clear();
    context.outputs().unwrap_err();
    assert!(log.is_empty() && own.is_empty());
}
