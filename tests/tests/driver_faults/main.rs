//! The CUDA backend on a driver of the project's own, without a device (`tests/fake_driver`). The driver
//! checks handles, addresses and the order of work, and fails a chosen call. Every fault is a typed error
//! that names call and code, nothing stays allocated, and the next run is right.
//!
//! One call of each function is failed in each case, with each code; `KILN_FAULTS_SEED=n` chooses other ones, and
//! `KILN_FAULTS=all` fails every call.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod cases;
mod fake;
mod faults;
mod natives;
mod plugins;
mod run_only;
mod streams;
mod weights;

use cases::{Case, Cx};
use fake::{Fake, VARIABLE, library};
use faults::Faults;
use kiln_backend::{Backend, BackendError, DeviceChoice, Target};
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::problem::Rng;
use kiln_ir::{DType, Graph, Tensor};
use kiln_plan::Plan;
use kiln_runtime::{Engine, ExecutionContext, RuntimeError};
use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs an ignored test of this file in a process whose driver is the one of tests, with these variables.
fn with_driver(test: &str, library: &Path, variables: &[(&str, &str)]) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, library)
        .env_remove("KILN_POISON")
        .env_remove("KILN_REQUIRE_CUDA")
        .env_remove("KILN_CUDA_TARGET")
        .env_remove("KILN_DEVICE_TIMEOUT")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{text}");
    println!("{text}");
}

/// The backend's library; none with a clear line where it is not built, which is an error where kernels have to be compiled.
fn loaded() -> Option<Arc<dyn Backend>> {
    if std::env::var_os(VARIABLE).is_none() {
        println!("skipped: another test of this file starts it");
        return None;
    }
    match kiln_tests::backends::loaded("cuda") {
        Ok(b) => Some(b),
        Err(e) if std::env::var_os("KILN_REQUIRE_NVRTC").is_none() => {
            println!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// The backend on the driver of tests, which has a device.
fn open() -> Option<Cx> {
    loaded()?;
    let fake = Fake::open();
    let backend = kiln_tests::backends::cuda().unwrap().unwrap();
    let target = backend.targets().unwrap().remove(0);
    assert_eq!(target.device, "Fake GPU");
    Some(Cx { fake, backend, target, version_compatible: false })
}

/// All cases; none, with the reason, where NVRTC is missing, which compiles kernels.
fn cases(cx: &Cx) -> Vec<Case> {
    match cases::all(cx) {
        Ok(all) => all,
        Err(e) if e.contains("NVRTC") && std::env::var_os("KILN_REQUIRE_NVRTC").is_none() => {
            println!("skipped: {e}");
            Vec::new()
        }
        Err(e) => panic!("{e}"),
    }
}

fn sweep(cx: &Cx, only: &[&str]) {
    let whole = std::env::var("KILN_FAULTS").is_ok_and(|v| v == "all");
    let seed = std::env::var("KILN_FAULTS_SEED").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    let mut rng = Rng::new(seed);
    let cases = cases(cx);
    let cases = cases.iter().filter(|c| only.is_empty() || only.contains(&c.name));
    let failed: usize = cases.map(|c| faults::all_calls(c, cx, whole, &mut rng)).sum();
    println!("{failed} faults, seed {seed}");
}

#[test]
fn faults_in_each_function() {
    with_driver("faults", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn faults() {
    let Some(cx) = open() else { return };
    sweep(&cx, &[]);
    let seen = cx.fake.seen();
    let missed: Vec<_> = fake::functions().into_iter().filter(|f| !seen.contains(f)).collect();
    // Asked for in the test below, by older drivers, by errors, by tools, and by convolutions that are not here.
    let elsewhere = [
        "cuEventQuery",
        "cuStreamQuery",
        "cuEventRecordWithFlags",
        "cuGetErrorName",
        "cuGetErrorString",
        "cuFuncGetAttribute",
        "cuTensorMapEncodeIm2col",
        "cuMemGetInfo_v2",
        "cuMemPoolGetAttribute",
    ];
    let missed: Vec<_> = missed.iter().filter(|f| !elsewhere.contains(&f.as_str())).collect();
    assert!(missed.is_empty(), "no case calls {missed:?}");
}

/// Devices without pools of memory allocate without a stream; waits with a limit ask again and again.
#[test]
fn faults_without_pools_and_under_a_limit() {
    with_driver("faults_otherwise", &library(), &[("KILN_DEVICE_TIMEOUT", "30")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn faults_otherwise() {
    let Some(cx) = open() else { return };
    cx.fake.set("pools", 0);
    cx.fake.set("delay", 3);
    sweep(&cx, &["products", "walked", "on_device"]);
    for function in ["cuMemAlloc_v2", "cuMemFree_v2", "cuStreamQuery", "cuEventQuery"] {
        assert!(cx.fake.seen().iter().any(|f| f == function), "{function}");
    }
}

/// The first calls of a process, which later ones do not repeat.
#[test]
fn a_driver_that_does_not_start_is_tried_again() {
    with_driver("starting", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn starting() {
    let Some(backend) = loaded() else { return };
    let fake = Fake::open();
    for (n, call) in ["cuInit", "cuDriverGetVersion"].iter().enumerate() {
        for code in [2, 100, 802, 803, 999] {
            fake.start(n as i64, code);
            let e = backend.targets().unwrap_err().to_string();
            assert!(e.contains(call) && e.contains(&format!("FAKE_{code}")), "{e}");
            assert_eq!(fake.failed(), *call);
        }
    }
    fake.start(-1, 0);
    assert_eq!(backend.targets().unwrap().len(), 1);
    fake.start(0, 2);
    backend.targets().unwrap_err();
    assert_eq!(fake.failed(), "cuDeviceGetCount", "the driver is started once");
    assert_eq!(fake.alive(), "");
}

/// Equal devices: each is opened by its number and by its UUID, and a plan runs on the one that is asked for.
#[test]
fn equal_devices_are_told_apart() {
    with_driver("two_devices", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn two_devices() {
    let Some(backend) = loaded() else { return };
    let fake = Fake::open();
    fake.start(-1, 0);
    fake.set("devices", 2);
    let found = backend.targets().unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[1].uuid, "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01");
    assert_eq!(found[0].fingerprint(), found[1].fingerprint());
    assert_eq!(found[0].traits["shared_memory_per_sm"], 228 << 10);
    for (i, target) in found.iter().enumerate() {
        drop(backend.open(target).unwrap());
        assert_eq!(fake.device(), i as i64);
    }
    let gone = Target { uuid: "GPU-0".into(), ..found[0].clone() };
    assert!(matches!(backend.open(&gone), Err(BackendError::Incompatible(_))));
    // A plan names no device: it runs on the first one, or on the one that is asked for.
    let graph = "graph \"g\" { input %x: f32[4] %y = neg(%x) output %y }";
    let mut builder = Builder::new(backend.clone(), found[1].clone());
    builder.config = BuildConfig { estimates: true, ..BuildConfig::default() };
    let built = builder.build_graph(Graph::from_text(graph).unwrap(), &mut |_, _, _| true).unwrap();
    let plan = || Plan::new(built.program.clone(), Vec::new(), found[1].clone());
    assert_eq!(plan().header.target.uuid, "");
    let on = |choice: &str| Engine::from_plan_on(plan(), backend.clone(), &DeviceChoice::from(choice));
    for (choice, device) in [("1", 1), ("0", 0), (&found[1].uuid, 1), (&found[0].uuid, 0)] {
        let engine = on(choice).unwrap();
        assert_eq!(
            (engine.target().uuid == found[device].uuid, fake.device()),
            (true, device as i64),
            "{choice}"
        );
    }
    drop(Engine::from_plan(plan(), backend.clone()).unwrap());
    assert_eq!(fake.device(), 0);
    for (choice, why) in [("2", "\"2\""), ("GPU-a0", "\"GPU-a0\"")] {
        let e = on(choice).unwrap_err();
        assert!(matches!(e, RuntimeError::NoDevice { .. }), "{e}");
        assert!(e.to_string().contains(why) && e.to_string().contains("1: Fake GPU (GPU-a0a1"), "{e}");
    }
    assert_eq!((fake.misuse(), fake.alive()), (String::new(), String::new()));
}

/// Contexts without memory allocate no arena, and run in memory that is large enough and aligned.
#[test]
fn contexts_run_in_memory_of_the_caller() {
    with_driver("borrowed_memory", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn borrowed_memory() {
    let Some(cx) = open() else { return };
    let all = cases(&cx);
    let case = all.iter().find(|c| c.name == "shared_memory").unwrap();
    cx.fake.start(-1, 0);
    cx.fake.with_native(1 << 12, |native| {
        let engine = case.load(&cx).unwrap();
        let wanted = engine.context_memory();
        assert!(wanted > 0 && wanted < 1 << 12, "{wanted}");
        let x = [("x", Tensor::zeros(DType::F32, &[8, 8]).unwrap())];
        let mut context = engine.create_context_without_memory().unwrap();
        let e = context.run(&x).unwrap_err().to_string();
        assert!(e.contains("created without memory") && e.contains(&wanted.to_string()), "{e}");
        let at = |offset: u64| (native.memory[0] + offset) as usize as *mut c_void;
        context.set_input("x", x[0].1.clone()).unwrap();
        let needed = context.memory_for_shapes().unwrap();
        assert!(needed > 0 && needed <= wanted, "{needed} of {wanted}");
        let mut set = |offset, bytes| {
            // SAFETY: the memory outlives the context.
            unsafe { context.set_memory(at(offset), bytes) }.map_err(|e| e.to_string())
        };
        let odd = set(16, wanted).unwrap_err();
        assert!(odd.contains("not a multiple of 256"), "{odd}");
        set(0, needed - 1).unwrap();
        set(256, needed).unwrap();
        let runs = context.run(&x).unwrap();
        // SAFETY: the memory outlives the context.
        unsafe { context.set_memory(at(0), needed - 1) }.unwrap();
        let few = context.run(&x).unwrap_err().to_string();
        assert!(
            few.contains(&format!("{needed} at these shapes")) && few.contains(&wanted.to_string()),
            "{few}"
        );
        let mut own = engine.create_context().unwrap();
        assert_eq!(runs.len(), own.run(&x).unwrap().len());
        let counted = |c: &ExecutionContext| c.counters().backend.allocations;
        assert!(counted(&context) < counted(&own), "{} and {}", counted(&context), counted(&own));
        // SAFETY: as above.
        let e = unsafe { own.set_memory(at(0), wanted) }.unwrap_err().to_string();
        assert!(e.contains("has memory of its own"), "{e}");
        // SAFETY: null takes the memory away.
        unsafe { context.set_memory(std::ptr::null_mut(), 0) }.unwrap();
        assert!(context.run(&x).is_err());
    });
    assert_eq!(cx.fake.misuse(), "");
}

/// Runs in a stream that captures a graph of the caller's are launches in it, and nothing else that a capture forbids.
/// Kernels by profile: both are loaded with the engine, and a switch loads and instantiates nothing.
#[test]
fn kernels_follow_the_profile() {
    with_driver("profiles", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn profiles() {
    let Some(cx) = open() else { return };
    let all = cases(&cx);
    let Some(case) = all.iter().find(|c| c.name == "profiles") else { return };
    let program = &case.program;
    assert!(program.steps.iter().any(|s| !s.alternatives.is_empty()), "{:?}", case.layers());
    let engine = case.load(&cx).unwrap();
    let mut contexts: Vec<_> = (0..8).map(|_| engine.create_context().unwrap()).collect();
    let run = |context: &mut ExecutionContext, rows: usize| {
        context.run(&[("x", Tensor::zeros(DType::F16, &[rows, 512]).unwrap())]).unwrap();
    };
    let step = program.steps.iter().find(|s| !s.alternatives.is_empty()).unwrap();
    let (own, other) = (step.tactic.id(), step.alternatives[0].tactic.id());
    for context in &mut contexts {
        [1, 2048, 1, 2048].iter().for_each(|&rows| run(context, rows));
    }
    cx.fake.start(-1, 0);
    let counted = |c: &ExecutionContext| {
        let b = c.counters().backend;
        (b.allocations, b.compilations, b.pipelines)
    };
    let warm: Vec<_> = contexts.iter().map(counted).collect();
    for i in 0..2_000 {
        run(&mut contexts[i % 8], if (i / 8) % 2 == 0 { 1 } else { 2048 });
    }
    let trace = cx.fake.trace();
    let made = ["cuModuleLoad", "cuLibraryLoad", "cuGraphInstantiate", "cuMemAlloc"];
    let made: Vec<_> = trace.iter().filter(|f| made.iter().any(|m| f.starts_with(m))).collect();
    assert!(made.is_empty(), "{} calls as {:?}", made.len(), made.first());
    assert_eq!(contexts.iter().map(counted).collect::<Vec<_>>(), warm);
    let context = &mut contexts[0];
    context.layer_times().unwrap();
    for (rows, wanted) in [(1, own), (2048, other)] {
        run(context, rows);
        let times = context.layer_times().unwrap();
        assert!(times.iter().any(|t| t.tactic == wanted), "{rows}: {times:?}");
    }
    assert_eq!(cx.fake.misuse(), "");
}

#[test]
fn runs_are_recorded_in_graphs_of_the_caller() {
    with_driver("captured_runs", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn captured_runs() {
    let Some(cx) = open() else { return };
    let all = cases(&cx);
    let case = all.iter().find(|c| c.name == "on_device").unwrap();
    cx.fake.start(-1, 0);
    cx.fake.with_native(8 * 8 * 4, |native| {
        let engine = case.load(&cx).unwrap();
        let mut context = engine.create_context().unwrap();
        let at = |i: usize| native.memory[i] as usize as *mut c_void;
        context.set_input_shape("x", &[8, 8]).unwrap();
        // SAFETY: stream and memory outlive the context.
        unsafe {
            context.set_stream(native.stream).unwrap();
            context.bind("x", at(0), 256).unwrap();
        }
        let launched = |calls: &[String]| calls.iter().filter(|c| *c == "cuLaunchKernelEx").count();
        // Not before the context has run, and not with an output in memory of its own.
        let mut refused = String::new();
        cx.fake.captured(native.stream, || refused = context.enqueue().unwrap_err().to_string());
        assert!(refused.contains("\"z\" is not in memory that is bound to it"), "{refused}");
        // SAFETY: as above.
        unsafe { context.bind("z", at(1), 256) }.unwrap();
        cx.fake.captured(native.stream, || refused = context.enqueue().unwrap_err().to_string());
        assert!(refused.contains("run it once with the same shapes"), "{refused}");
        let before = cx.fake.trace().len();
        context.enqueue().unwrap();
        context.wait().unwrap();
        let wanted = launched(&cx.fake.trace()[before..]);
        assert!(wanted > 0);
        for _ in 0..3 {
            let calls = cx.fake.captured(native.stream, || context.enqueue().unwrap());
            assert_eq!(launched(&calls), wanted, "{calls:?}");
            let taken = context.outputs().unwrap_err().to_string();
            assert!(taken.contains("no run to take outputs of"), "{taken}");
        }
        // Other memory of the same shapes, which the context has not run with.
        // SAFETY: as above; the ranges are swapped.
        unsafe {
            context.bind("x", at(1), 256).unwrap();
            context.bind("z", at(0), 256).unwrap();
        }
        let calls = cx.fake.captured(native.stream, || context.enqueue().unwrap());
        assert_eq!(launched(&calls), wanted, "{calls:?}");
        // A stream that is set while it captures, as frameworks do; afterwards it is a stream as any other.
        cx.fake.with_stream(|other| {
            let calls = cx.fake.captured(other, || {
                // SAFETY: the stream outlives its use: the context gets another one below.
                unsafe { context.set_stream(other) }.unwrap();
                context.enqueue().unwrap();
            });
            assert_eq!(launched(&calls), wanted, "{calls:?}");
            context.enqueue().unwrap();
            assert_eq!(context.outputs().unwrap().len(), 1);
            // SAFETY: null is the context's own stream.
            unsafe { context.set_stream(std::ptr::null_mut()) }.unwrap();
        });
        context.enqueue().unwrap();
        context.wait().unwrap();
        assert_eq!(cx.fake.misuse(), "");
    });
    // Loops and conditionals are nodes of the caller's graph; nothing else is made or launched.
    let flow = all.iter().find(|c| c.name == "control").unwrap();
    cx.fake.with_native(1 << 12, |native| {
        let engine = flow.load(&cx).unwrap();
        let mut context = engine.create_context().unwrap();
        for (name, shape) in [("x", &[4, 4][..]), ("n", &[]), ("c", &[])] {
            context.set_input_shape(name, shape).unwrap();
        }
        let bind = |context: &mut ExecutionContext, from: u64| {
            for (k, name) in ["x", "n", "c", "y", "z", "turned"].iter().enumerate() {
                let at = native.memory[0] + from + 256 * k as u64;
                // SAFETY: stream and memory outlive the context.
                unsafe { context.bind(name, at as usize as *mut c_void, 64) }.unwrap();
            }
        };
        bind(&mut context, 0);
        // SAFETY: as above.
        unsafe { context.set_stream(native.stream) }.unwrap();
        for _ in 0..2 {
            context.enqueue().unwrap();
            context.wait().unwrap();
        }
        for (from, round) in [(0, "memory of before"), (2048, "other memory"), (0, "the first memory")] {
            bind(&mut context, from);
            let calls = cx.fake.captured(native.stream, || context.enqueue().unwrap());
            let count = |name: &str| calls.iter().filter(|c| c.starts_with(name)).count();
            let nodes = (count("cuGraphAddNode"), count("cuStreamUpdateCaptureDependencies"));
            assert_eq!(nodes, (2, 2), "{round}: {calls:?}");
            let others = ["cuGraphInstantiate", "cuGraphLaunch", "cuMemAlloc", "cuStreamSynchronize"];
            assert_eq!(others.map(count), [0; 4], "{round}: {calls:?}");
        }
        context.enqueue().unwrap();
        context.wait().unwrap();
    });
    assert_eq!((cx.fake.misuse(), cx.fake.alive()), (String::new(), String::new()));
}

/// A stream of the caller's may be destroyed once its runs are done: the context takes another one, or ends, without it.
#[test]
fn streams_of_the_caller_go_before_contexts() {
    with_driver("gone_streams", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn gone_streams() {
    let Some(cx) = open() else { return };
    let all = cases(&cx);
    let case = all.iter().find(|c| c.name == "on_device").unwrap();
    cx.fake.start(-1, 0);
    cx.fake.with_native(8 * 8 * 4, |native| {
        let engine = case.load(&cx).unwrap();
        let mut context = engine.create_context().unwrap();
        let at = |i: usize| native.memory[i] as usize as *mut c_void;
        context.set_input_shape("x", &[8, 8]).unwrap();
        // SAFETY: memory that outlives the context.
        unsafe {
            context.bind("x", at(0), 256).unwrap();
            context.bind("z", at(1), 256).unwrap();
        }
        for taken in [false, true, false] {
            cx.fake.with_stream(|stream| {
                // SAFETY: the stream outlives the run.
                unsafe { context.set_stream(stream) }.unwrap();
                context.enqueue().unwrap();
                match taken {
                    true => assert_eq!(context.outputs().unwrap().len(), 1),
                    false => context.wait().unwrap(),
                }
            });
        }
        drop(context);
        assert_eq!(cx.fake.misuse(), "");
    });
    assert_eq!((cx.fake.misuse(), cx.fake.alive()), (String::new(), String::new()));
}

/// Drivers that lack a function are refused by its name; those without conditional nodes walk control flow on the host.
#[test]
fn old_drivers_are_refused() {
    let later = ["cuGraphConditionalHandleCreate", "cuGraphAddNode_v2", "cuStreamBeginCaptureToGraph"];
    let whole = std::env::var("KILN_FAULTS").is_ok_and(|v| v == "all");
    let all = fake::functions();
    for (i, function) in all.iter().enumerate().filter(|(_, f)| *f != "cuCtxSetCurrent") {
        let needed = !later.contains(&function.as_str())
            && !["cuStreamGetCaptureInfo_v3", "cuStreamUpdateCaptureDependencies_v2"]
                .contains(&function.as_str());
        if needed && !whole && i % 9 != 0 {
            continue;
        }
        let library = fake::library_without(function);
        let lacks = if needed { function.as_str() } else { "" };
        with_driver("old_driver", &library, &[("KILN_TEST_LACKS", lacks)]);
        std::fs::remove_file(library).unwrap();
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn old_driver() {
    let lacks = std::env::var("KILN_TEST_LACKS").unwrap_or_default();
    if !lacks.is_empty() {
        let Some(backend) = loaded() else { return };
        match backend.targets() {
            Err(BackendError::Unsupported(why)) => {
                assert!(why.contains(&lacks) && why.contains("install version"), "{why}");
            }
            other => panic!("{other:?}"),
        }
        return;
    }
    let Some(cx) = open() else { return };
    cx.fake.start(-1, 0);
    for case in cases(&cx).iter().filter(|c| c.name == "control") {
        let walked = case.host_layers(&cx);
        assert!(walked.iter().any(|why| why.contains("no conditional nodes")), "{walked:?}");
        assert_eq!((cx.fake.misuse(), cx.fake.alive()), (String::new(), String::new()));
    }
}

/// A device that never ends its work is given up at the limit: every wait ends, also those of objects that are dropped.
#[test]
fn a_device_that_hangs_is_given_up() {
    with_driver("hangs", &library(), &[("KILN_DEVICE_TIMEOUT", "0.05")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn hangs() {
    let Some(cx) = open() else { return };
    for case in cases(&cx) {
        cx.fake.start(-1, 0);
        case.session(&cx, &mut Faults::default()).unwrap();
        let (calls, mut given_up) = (cx.fake.calls(), 0);
        for n in (0..calls).step_by(calls as usize / 12) {
            cx.fake.start(-1, 0);
            cx.fake.set("hang_at", n);
            let mut faults = Faults::default();
            let start = Instant::now();
            let ended = case.session(&cx, &mut faults);
            let what = format!("{}: hangs at call {n}: {faults:?}", case.name);
            assert!(start.elapsed() < Duration::from_secs(5), "{what}");
            assert_eq!(cx.fake.misuse(), "", "{what}");
            assert!(ended.is_some() || faults.hung(), "{what}");
            given_up += usize::from(ended.is_none());
            // A device that hangs cannot be given back.
            cx.fake.set("forget", 1);
        }
        assert!(given_up >= 6, "{}: {given_up}", case.name);
    }
}

/// Less and less memory: an error that names what wanted it, and what was asked for works again where there is more.
#[test]
fn too_little_memory_is_an_error() {
    with_driver("short_of_memory", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn short_of_memory() {
    let Some(cx) = open() else { return };
    for case in cases(&cx) {
        cx.fake.set("memory", MUCH);
        cx.fake.start(-1, 0);
        let expected = case.session(&cx, &mut Faults::default());
        let (mut refused, mut limit) = (0, 64 << 20);
        while limit > 256 {
            cx.fake.start(-1, 0);
            cx.fake.set("memory", limit);
            let mut faults = Faults::with_remedy(|| cx.fake.set("memory", MUCH));
            let found = case.session(&cx, &mut faults);
            let what = format!("{}: {limit} bytes: {faults:?}", case.name);
            assert!(found == expected, "{what}");
            refused += usize::from(faults.of_memory());
            assert_eq!(cx.fake.misuse(), "", "{what}");
            assert_eq!(cx.fake.alive(), "", "{what}");
            limit = limit * 3 / 4;
        }
        assert!(refused > 5, "{}: {refused}", case.name);
    }
}

/// Bytes of memory that no case fills.
const MUCH: i64 = 8 << 30;

/// The driver does not work in a copy of the process that started it.
#[test]
fn a_forked_process_is_refused() {
    with_driver("forked", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn forked() {
    let Some(cx) = open() else { return };
    let Some(case) = cases(&cx).into_iter().find(|c| c.name == "products") else { return };
    cx.fake.start(-1, 0);
    let engine = case.load(&cx).unwrap();
    let calls = cx.fake.calls();
    let refused = |e: BackendError| matches!(e, BackendError::DeviceLost(m) if m.contains("forked"));
    // SAFETY: the copy asks some questions and drops what it has, and ends without destructors.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let listed = cx.backend.targets().is_err_and(refused);
            let opened = cx.backend.open(&cx.target).is_err_and(refused);
            let made = engine.create_context().is_err();
            drop(engine);
            let silent = cx.fake.calls() == calls;
            libc::_exit(if listed && opened && made && silent { 7 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(libc::WEXITSTATUS(status), 7, "the forked process was not refused, or called the driver");
    }
    drop(engine);
    assert_eq!((cx.fake.misuse(), cx.fake.alive()), (String::new(), String::new()));
}
