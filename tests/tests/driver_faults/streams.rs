//! Branches in several streams, copies of weights beside kernels, memory of a caller's allocator, and weights on the device: what the
//! driver of tests sees of them.

use crate::cases::Cx;
use crate::fake::library;
use crate::{open, with_driver};
use kiln_backend::{BackendError, TemporaryAllocator};
use kiln_builder::{BuildConfig, BuildError, Builder, Refit};
use kiln_ir::budget;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::{Network, TensorId};
use kiln_plan::{Plan, Verbosity};
use kiln_runtime::{Engine, LoadOptions, RuntimeError};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

/// Two branches of products, and the sum of both.
pub fn network() -> Network {
    let mut net = Network::new("branches");
    let x = net.add_input("x", TensorType::new(DType::F32, [64, 64])).unwrap();
    let mut rng = Rng::new(9);
    let mut weight = |net: &mut Network, name: &str| {
        net.add_weights(Some(name), rng.tensor_in(DType::F32, &[64, 64], -1.0, 1.0, 1)).unwrap()
    };
    let layer = |net: &mut Network, name: &str, op: &str, inputs: &[TensorId]| {
        let inputs: Vec<Option<TensorId>> = inputs.iter().copied().map(Some).collect();
        net.add_layer(name, op, Attrs::new(), &inputs).unwrap()[0]
    };
    let a = weight(&mut net, "wa");
    let p = layer(&mut net, "p", "matmul", &[x, a]);
    let b = weight(&mut net, "wb");
    let q = layer(&mut net, "q", "matmul", &[p, b]);
    let t = layer(&mut net, "t", "softmax", &[x]);
    let c = weight(&mut net, "wc");
    let r = layer(&mut net, "r", "matmul", &[t, c]);
    let d = weight(&mut net, "wd");
    let s = layer(&mut net, "s", "matmul", &[r, d]);
    let u = layer(&mut net, "u", "softmax", &[s]);
    let y = layer(&mut net, "y", "add", &[q, u]);
    net.mark_output(y, "y").unwrap();
    net
}

fn built(cx: &Cx, streams: usize) -> Result<(Plan, Vec<String>), BuildError> {
    let mut builder = Builder::new(cx.backend.clone(), cx.target.clone());
    builder.config = BuildConfig {
        estimates: true,
        search: false,
        refit: Refit::All,
        max_aux_streams: streams,
        ..BuildConfig::default()
    };
    let built = builder.build(&network())?;
    let plan = Plan::new(built.program, Vec::new(), cx.target.clone()).with_verbosity(Verbosity::Detailed);
    Ok((plan, built.notes))
}

fn x() -> Tensor {
    Rng::new(4).tensor_in(DType::F32, &[64, 64], -1.0, 1.0, 1)
}

/// Nothing was misused, and nothing stays.
fn clean(cx: &Cx) {
    assert_eq!((cx.fake.misuse(), cx.fake.alive()), (String::new(), String::new()));
}

/// Plans a build for the device of tests; none where kernels cannot be compiled.
fn plan(cx: &Cx, streams: usize) -> Option<(Plan, Vec<String>)> {
    match built(cx, streams) {
        Ok(made) => Some(made),
        Err(e) if e.to_string().contains("NVRTC") && std::env::var_os("KILN_REQUIRE_NVRTC").is_none() => {
            println!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn branches_run_side_by_side_up_to_the_limit() {
    with_driver("streams::branches", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn branches() {
    let Some(cx) = open() else { return };
    for (limit, used) in [(0usize, 0u32), (1, 1), (7, 1)] {
        let Some((plan, notes)) = plan(&cx, limit) else { return };
        let told = notes.iter().any(|n| n.contains("auxiliary streams"));
        assert_eq!(told, limit > 0, "{notes:?}");
        assert_eq!(plan.program.streams.iter().max().copied().unwrap_or(0), used);
        assert_eq!(plan.layers.to_json().contains("\"StreamId\": 1"), used > 0);
        let plan = Plan::read(plan.write().unwrap()).unwrap();
        cx.fake.start(-1, 0);
        let engine = Engine::from_plan(plan, cx.backend.clone()).unwrap();
        let mut context = engine.create_context().unwrap();
        for _ in 0..3 {
            context.run(&[("x", x())]).unwrap();
        }
        assert_eq!(cx.fake.side_by_side() > 0, used > 0, "limit {limit}: {}", cx.fake.side_by_side());
        drop((context, engine));
        clean(&cx);
    }
    // Damaged streams are refused before anything runs.
    let Some((mut plan, _)) = plan(&cx, 1) else { return };
    plan.program.memory.places.iter_mut().for_each(|p| {
        if let kiln_backend::Place::Arena { offset, .. } = p {
            *offset = 0;
        }
    });
    let e = Plan::read(plan.write().unwrap()).unwrap_err().to_string();
    assert!(e.contains("same memory"), "{e}");
    let e = built(&cx, 16).unwrap_err().to_string();
    assert!(e.contains("16 auxiliary streams") && e.contains("15 at most"), "{e}");
}

#[test]
fn branches_run_in_streams_of_the_caller() {
    with_driver("streams::theirs", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn theirs() {
    let Some(cx) = open() else { return };
    let Some((plan, _)) = plan(&cx, 1) else { return };
    cx.fake.start(-1, 0);
    let engine = Engine::from_plan(plan, cx.backend.clone()).unwrap();
    assert_eq!(engine.aux_streams(), 1);
    let mut context = engine.create_context().unwrap();
    let wanted = context.run(&[("x", x())]).unwrap().remove(0).1;
    let launches = |context: &mut kiln_runtime::ExecutionContext| {
        cx.fake.start(-1, 0);
        let y = context.run(&[("x", x())]).unwrap().remove(0).1;
        assert!(y.bytes() == wanted.bytes());
        let calls = cx.fake.trace();
        let count = |name: &str| calls.iter().filter(|c| c.starts_with(name)).count();
        (count("cuLaunchKernel"), count("cuGraphLaunch"), count("cuStreamWaitEvent"))
    };
    cx.fake.with_stream(|stream| {
        // SAFETY: the stream is alive until it is replaced below.
        unsafe { context.set_aux_streams(&[stream]) }.unwrap();
        let first = launches(&mut context);
        // Into both streams, with events between them: the second begins behind the first, which ends behind it.
        assert!(first.0 >= 5 && first.1 == 0 && first.2 >= 2, "{first:?}");
        assert_eq!(launches(&mut context), first, "each run alike");
        // SAFETY: as above; the null stream is refused.
        let e = unsafe { context.set_aux_streams(&[stream, std::ptr::null_mut()]) }.unwrap_err().to_string();
        assert!(e.contains("auxiliary stream 1 is null"), "{e}");
        assert_eq!(launches(&mut context), first, "a refused call changes nothing");
        // A run is in flight: the host does not wait for it.
        context.set_input("x", x()).unwrap();
        context.enqueue().unwrap();
        cx.fake.start(-1, 0);
        // SAFETY: as above: no stream is left in use once the run has ended, for which the context waits below.
        unsafe { context.set_aux_streams(&[]) }.unwrap();
        let waits = ["cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"];
        let waited = |c: &&String| waits.iter().any(|w| c.starts_with(w));
        assert_eq!(cx.fake.trace().iter().find(waited), None, "the host waits");
        assert!(context.outputs().unwrap().remove(0).1.bytes() == wanted.bytes());
    });
    launches(&mut context);
    assert_eq!(launches(&mut context).1, 1, "one graph again");
    drop((context, engine));
    clean(&cx);
}

#[test]
fn weights_are_copied_beside_kernels() {
    with_driver("streams::copies", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn copies() {
    let Some(cx) = open() else { return };
    let Some((plan, _)) = plan(&cx, 0) else { return };
    cx.fake.start(-1, 0);
    let mut options = LoadOptions::default();
    // Two of the four weights: the next one is copied while a product runs.
    options.weight_budget = Some(2 * 64 * 64 * 4);
    let engine = Engine::from_plan_with(plan.clone(), cx.backend.clone(), &options).unwrap();
    let mut context = engine.create_context().unwrap();
    for _ in 0..3 {
        context.run(&[("x", x())]).unwrap();
    }
    assert!(cx.fake.side_by_side() > 0, "copies are nodes beside those of kernels");
    assert_eq!(context.host_layers().unwrap(), [], "the host waits for no copy");
    assert_eq!(context.counters().backend.host_syncs, 0);
    drop((context, engine));
    clean(&cx);
    // Free memory decides, not all that the device has.
    let mut options = LoadOptions::default();
    options.automatic_weight_budget = true;
    let budget = |free: i64| {
        cx.fake.start(-1, 0);
        cx.fake.set("memory", free);
        let engine = Engine::from_plan_with(plan.clone(), cx.backend.clone(), &options);
        cx.fake.set("memory", 8 << 30);
        let found = engine.unwrap().weight_budget();
        clean(&cx);
        found
    };
    let arena = plan.program.memory.arena as i64;
    assert_eq!(budget(8 << 30), None);
    assert_eq!(budget(arena + 3 * 64 * 64 * 4), Some(3 * 64 * 64 * 4));
}

/// An allocator over the functions of the driver of tests.
#[derive(Default)]
struct Counting {
    /// Bytes by address of what is handed out, and the streams that were named.
    out: Mutex<Vec<(usize, u64)>>,
    all: Mutex<usize>,
    /// Returned in place of memory, if set.
    wrong: Option<usize>,
}

type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;

fn driver() -> libloading::Library {
    // SAFETY: the driver of tests, which the backend has loaded.
    unsafe { libloading::Library::new(std::env::var_os(crate::VARIABLE).unwrap()) }.unwrap()
}

impl TemporaryAllocator for Counting {
    fn allocate(&self, bytes: u64, alignment: u64, stream: *mut c_void) -> *mut c_void {
        assert!(bytes > 0 && alignment.is_power_of_two() && !stream.is_null());
        if let Some(wrong) = self.wrong {
            return wrong as *mut c_void;
        }
        let mut at = 0;
        // SAFETY: the function's own type; the place is valid.
        let code = unsafe { driver().get::<Allocate>(b"cuMemAlloc_v2").unwrap()(&mut at, bytes as usize) };
        assert_eq!(code, 0);
        self.out.lock().unwrap().push((at as usize, bytes));
        *self.all.lock().unwrap() += 1;
        at as usize as *mut c_void
    }

    fn free(&self, address: *mut c_void, bytes: u64, _stream: *mut c_void) {
        if self.wrong.is_some() {
            return;
        }
        let mut out = self.out.lock().unwrap();
        let at = out.iter().position(|o| *o == (address as usize, bytes)).unwrap();
        out.remove(at);
        // SAFETY: the function's own type; the memory is what it returned.
        unsafe { driver().get::<Free>(b"cuMemFree_v2").unwrap()(address as u64) };
    }
}

#[test]
fn memory_of_a_callers_allocator() {
    with_driver("streams::allocators", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn allocators() {
    let Some(cx) = open() else { return };
    let Some((plan, _)) = plan(&cx, 1) else { return };
    cx.fake.start(-1, 0);
    let engine = Engine::from_plan(plan, cx.backend.clone()).unwrap();
    let mut context = engine.create_context().unwrap();
    let counting = Arc::new(Counting::default());
    // SAFETY: its memory is the driver's.
    unsafe { context.set_temporary_allocator(Some(counting.clone())) }.unwrap();
    context.run(&[("x", x())]).unwrap();
    let first = *counting.all.lock().unwrap();
    assert!(first > 0, "inputs are in memory of the allocator");
    context.run(&[("x", x())]).unwrap();
    assert_eq!(*counting.all.lock().unwrap(), first, "memory is kept from run to run");
    // It stays set through a refit, whose context has memory of its own.
    let mut refitter = engine.refitter().unwrap();
    refitter.set("wa", Tensor::f32(&[64, 64], &[0.5; 4096]).unwrap()).unwrap();
    refitter.refit().unwrap();
    context.run(&[("x", x())]).unwrap();
    assert!(*counting.all.lock().unwrap() > first);
    drop((context, refitter));
    assert!(counting.out.lock().unwrap().is_empty(), "all memory went back");
    for (wrong, what) in [(0, "the caller's allocator"), (8, "multiple of 256")] {
        let mut context = engine.create_context().unwrap();
        let allocator = Counting { wrong: Some(wrong), ..Counting::default() };
        // SAFETY: what it returns is refused.
        unsafe { context.set_temporary_allocator(Some(Arc::new(allocator))) }.unwrap();
        let e = context.run(&[("x", x())]).unwrap_err();
        let source = match &e {
            RuntimeError::Backend { source, .. } => source.clone(),
            e => panic!("{e}"),
        };
        assert_eq!(matches!(source, BackendError::OutOfMemory { .. }), wrong == 0, "{e}");
        assert!(e.to_string().contains(what) || source.to_string().contains(what), "{e}: {source}");
        // SAFETY: memory of the backend's own again.
        unsafe { context.set_temporary_allocator(None) }.unwrap();
        context.run(&[("x", x())]).unwrap();
    }
    drop(engine);
    clean(&cx);
}

/// Page-locked memory of the host with these bytes.
struct Pinned(*mut c_void, usize);

impl Pinned {
    fn of(bytes: &[u8]) -> Pinned {
        type Make = unsafe extern "C" fn(*mut *mut c_void, usize, u32) -> c_int;
        let mut at = std::ptr::null_mut();
        // SAFETY: the function's own type; the memory has so many bytes.
        unsafe {
            assert_eq!(driver().get::<Make>(b"cuMemHostAlloc").unwrap()(&mut at, bytes.len(), 0), 0);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast(), bytes.len());
        }
        Pinned(at, bytes.len())
    }

    fn send(&self, to: u64, stream: *mut c_void) {
        type Send = unsafe extern "C" fn(u64, *const c_void, usize, *mut c_void) -> c_int;
        // SAFETY: the function's own type; both have so many bytes.
        let code =
            unsafe { driver().get::<Send>(b"cuMemcpyHtoDAsync_v2").unwrap()(to, self.0, self.1, stream) };
        assert_eq!(code, 0);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
        // SAFETY: the function's own type; freed once, with no copy under way.
        unsafe { driver().get::<Free>(b"cuMemFreeHost").unwrap()(self.0) };
    }
}

#[test]
fn weights_on_the_device_are_refitted() {
    with_driver("streams::device_weights", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn device_weights() {
    let Some(cx) = open() else { return };
    let Some((plan, _)) = plan(&cx, 0) else { return };
    let engine = Engine::from_plan(plan, cx.backend.clone()).unwrap();
    let new = Rng::new(77).tensor_in(DType::F32, &[64, 64], -1.0, 1.0, 1);
    let bytes = new.bytes().len();
    cx.fake.with_native(bytes, |native| {
        let pinned = Pinned::of(new.bytes());
        // The copy is not done before the stream is waited for.
        pinned.send(native.memory[0], native.stream);
        let at = native.memory[0] as usize as *const c_void;
        let mut refitter = engine.refitter().unwrap();
        // SAFETY: the memory has so many bytes until the refit is done; the stream outlives it.
        unsafe {
            let e = refitter.set_on_device("wb", at, 8).unwrap_err().to_string();
            assert!(e.contains("16384 bytes") && e.contains("8 bytes"), "{e}");
            let e = refitter.set_on_device("none", at, bytes as u64).unwrap_err().to_string();
            assert!(e.contains("none"), "{e}");
            refitter.set_stream(native.stream);
            refitter.set_on_device("wb", at, bytes as u64).unwrap();
        }
        assert!(refitter.get_missing().is_empty());
        let (_, report) = refitter.refit_async().unwrap().wait().unwrap();
        assert_eq!(report.unwrap().replaced, 1);
        let program = engine.program();
        let weight = |name: &str| {
            let all = program.graph.value_ids().filter_map(|v| program.graph.weight(v));
            all.filter(|w| w.name.as_deref() == Some(name)).map(|w| w.tensor.clone()).next().unwrap()
        };
        assert_eq!(weight("wb"), new, "the copy in the stream came first");
        assert_ne!(weight("wa"), new);
        // What is set later counts, on the host or on the device.
        let mut refitter = engine.refitter().unwrap();
        let other = Tensor::f32(&[64, 64], &[0.25; 4096]).unwrap();
        // SAFETY: as above.
        unsafe { refitter.set_on_device("wa", at, bytes as u64) }.unwrap();
        refitter.set("wa", other.clone()).unwrap();
        assert!(refitter.unset("wa") && !refitter.unset("wa"));
        refitter.set("wa", other.clone()).unwrap();
        refitter.refit().unwrap();
        let program = engine.program();
        let found = program.graph.value_ids().filter_map(|v| program.graph.weight(v));
        assert!(found.into_iter().any(|w| w.name.as_deref() == Some("wa") && w.tensor == other));
        // Nothing is read while the stream records a graph.
        let mut refitter = engine.refitter().unwrap();
        // SAFETY: as above.
        unsafe {
            refitter.set_stream(native.stream);
            refitter.set_on_device("wa", at, bytes as u64).unwrap();
        }
        let mut refused = String::new();
        cx.fake.captured(native.stream, || refused = refitter.refit().unwrap_err().to_string());
        assert!(!refused.is_empty());
    });
    drop(engine);
    clean(&cx);
}

#[test]
fn addresses_that_change_are_set_in_nodes() {
    with_driver("streams::moved", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn moved() {
    let Some(cx) = open() else { return };
    for streams in [0, 3] {
        let Some((plan, _)) = plan(&cx, streams) else { return };
        let engine = Engine::from_plan(plan, cx.backend.clone()).unwrap();
        let bytes = 64 * 64 * 4;
        cx.fake.with_native(bytes * 16, |native| {
            let mut context = engine.create_context().unwrap();
            let mut run = |[from, to]: [usize; 2], size: usize| {
                let at =
                    |i: usize, set: usize| (native.memory[i] + (bytes * set) as u64) as usize as *mut c_void;
                // SAFETY: both ranges have so many bytes.
                unsafe {
                    context.bind("x", at(0, from), size as u64).unwrap();
                    context.bind("y", at(1, to), size as u64).unwrap();
                }
                cx.fake.start(-1, 0);
                context.enqueue().unwrap();
                context.wait().unwrap();
                assert_eq!(cx.fake.misuse(), "");
                let trace = cx.fake.trace();
                let calls = |name: &str| trace.iter().filter(|f| f.starts_with(name)).count();
                assert_eq!(
                    (calls("cuMemcpyDtoH"), calls("cuMemcpyHtoD")),
                    (0, 0),
                    "nothing that is bound is copied"
                );
                let whole =
                    ["cuGraphExecUpdate", "cuGraphInstantiate", "cuStreamBeginCapture", "cuLaunchKernel"];
                (calls("cuGraphExecKernelNodeSetParams"), whole.map(calls), calls("cuGraphLaunch"))
            };
            // Four sets of addresses have graphs of their own.
            for set in 0..8 {
                run([set % 4, set % 4], bytes);
            }
            assert_eq!(run([0, 0], bytes), (0, [0; 4], 1), "nothing changes");
            // Both branches read the input; one kernel writes the output. In one stream these kernels are at the ends, and outside of the
            // graph once addresses have changed; in several streams their nodes are set.
            for set in 4..8 {
                let (_, [updated, ..], _) = run([set, 15 - set], bytes);
                assert_eq!(updated, 0, "set {set}, {streams} streams");
            }
            let changed = run([8, 7], bytes);
            let (nodes, [updated, made, recorded, plain], _) = changed;
            assert_eq!((updated, made, recorded), (0, 0, 0), "{changed:?}, {streams} streams");
            let wanted = if streams == 0 { (0, true) } else { (3, false) };
            assert_eq!((nodes, plain > 0), wanted, "{changed:?}");
            for set in 9..16 {
                assert_eq!(run([set, 15 - set], bytes), changed, "set {set}, {streams} streams");
            }
            // Other addresses take no new memory of the host: what stands for the input on the host serves all of them.
            let limit = budget::limit();
            budget::set_limit(budget::used() - 1);
            assert_eq!(run([9, 15], bytes), changed, "another pair");
            budget::set_limit(limit);
            let same = run([9, 15], bytes);
            assert_eq!((same.0, same.1), (0, changed.1), "the same again");
            assert_eq!(run([9, 13], 2 * bytes), changed, "larger memory");
            drop(context);
        });
    }
    clean(&cx);
}

#[test]
fn memory_at_any_address_is_bound() {
    with_driver("streams::any_address", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn any_address() {
    let Some(cx) = open() else { return };
    let Some((plan, _)) = plan(&cx, 0) else { return };
    let engine = Engine::from_plan(plan, cx.backend.clone()).unwrap();
    let bytes = 64 * 64 * 4;
    cx.fake.with_native(bytes + 64, |native| {
        let mut context = engine.create_context().unwrap();
        // SAFETY: the stream outlives the context.
        unsafe { context.set_stream(native.stream) }.unwrap();
        let mut run = |offset: u64| {
            let [from, to] = native.memory.map(|m| (m + offset) as usize as *mut c_void);
            // SAFETY: both ranges have so many bytes.
            unsafe {
                context.bind("x", from, bytes as u64).unwrap();
                context.bind("y", to, bytes as u64).unwrap();
            }
            cx.fake.start(-1, 0);
            context.enqueue().unwrap();
            context.wait().unwrap();
            assert_eq!(cx.fake.misuse(), "");
            cx.fake.trace().iter().filter(|f| *f == "cuMemcpyDtoDAsync_v2").count()
        };
        // An input and an output are copied where their addresses are not multiples of 16.
        assert_eq!([16, 4, 4, 36, 32, 0].map(&mut run), [0, 2, 2, 2, 0, 0]);
        // So are those of runs that a graph of the caller's records.
        assert_eq!(run(20), 2);
        let mut refused = None;
        let called = cx.fake.captured(native.stream, || refused = context.enqueue().err());
        assert!(refused.is_none(), "{refused:?}");
        assert_eq!(called.iter().filter(|f| *f == "cuMemcpyDtoDAsync_v2").count(), 2, "{called:?}");
        drop(context);
    });
    drop(engine);
    clean(&cx);
}
