//! Runs in a stream of the caller's: starting one returns while the stream is held up, and its work keeps to the stream's
//! order. Skipped without a device, unless `KILN_REQUIRE_CUDA=1`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

#[path = "common/branches.rs"]
mod branches;

use branches::op;
use cudarc::driver::sys::{self, CUresult::CUDA_SUCCESS};
use kiln_backend::{Backend, BackendError, Bound, Context, Program, Shapes, Tactic};
use kiln_backend_cuda::Cuda;
use kiln_backend_cuda::driver::{Buffer, Gpu, Pinned, Stream, devices};
use kiln_ir::problem::Rng;
use kiln_ir::{DType, Fact, Graph, Tensor, TensorType};
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

type Run = (Box<dyn Context>, Vec<Tensor>, Arc<Shapes>, Tensor);

/// Holds a stream up until it is opened, or some seconds have gone.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
    passed: Mutex<bool>,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn passed(&self) -> bool {
        *self.passed.lock().unwrap()
    }
}

unsafe extern "C" fn hold(gate: *mut c_void) {
    // SAFETY: the test passes a gate that outlives its stream.
    let gate = unsafe { &*gate.cast::<Gate>() };
    let guard = gate.open.lock().unwrap();
    drop(gate.changed.wait_timeout_while(guard, Duration::from_secs(20), |open| !*open).unwrap());
    *gate.passed.lock().unwrap() = true;
}

fn gpu() -> Option<Arc<Gpu>> {
    let found = devices().ok().and_then(|d| d.into_iter().next());
    if found.is_none() {
        assert!(std::env::var_os("KILN_REQUIRE_CUDA").is_none(), "no CUDA device");
        println!("skipped: no CUDA device");
    }
    Some(found?.open().unwrap())
}

/// Three layers, each a kernel of its own.
fn context() -> Run {
    let mut g = Graph::new("three");
    let ty = TensorType::new(DType::F32, [64, 64]);
    let (a, b) = (g.add_input("a", Fact::of(ty.clone())), g.add_input("b", Fact::of(ty)));
    let product = g.add_node("product", op("mul"), &[Some(a), Some(b)]).unwrap()[0];
    let rows = g.add_node("rows", op("softmax"), &[Some(product)]).unwrap()[0];
    g.outputs = g.add_node("sum", op("add"), &[Some(rows), Some(a)]).unwrap();
    let mut rng = Rng::new(1);
    let inputs = vec![rng.tensor(DType::F32, &[64, 64]), rng.tensor(DType::F32, &[64, 64])];
    context_of(g, inputs)
}

fn context_of(g: Graph, inputs: Vec<Tensor>) -> Run {
    let wanted = g.eval(&inputs).unwrap().remove(0);
    let target = Cuda.targets().unwrap().remove(0);
    let mut program = Program::step_per_node(g, &Tactic::plain(""));
    program.choose(&Cuda, &target).unwrap();
    let shapes = Arc::new(program.shapes(&inputs).unwrap());
    let loaded = Cuda.open(&target).unwrap().load(Arc::new(program)).unwrap();
    (loaded.context().unwrap(), inputs, shapes, wanted)
}

fn check(context: &mut dyn Context, wanted: &Tensor) {
    let found = context.outputs().unwrap().remove(0);
    let far = found.to_f64().iter().zip(wanted.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(far < 1e-4, "differs by {far}");
}

#[test]
fn starting_a_run_does_not_wait_for_the_callers_stream() {
    does_not_wait(context);
}

/// Iterations are counted, and branches taken, on the device.
#[test]
fn control_flow_does_not_wait_for_the_callers_stream() {
    does_not_wait(|| {
        let (g, inputs) = branches::gated(true);
        context_of(g, inputs)
    });
}

fn does_not_wait(context: fn() -> Run) {
    let Some(gpu) = gpu() else { return };
    gpu.bind().unwrap();
    let mut stream = std::ptr::null_mut();
    // SAFETY: the place for the handle is valid.
    assert_eq!(unsafe { sys::cuStreamCreate(&mut stream, 1) }, CUDA_SUCCESS);
    let (mut context, inputs, shapes, wanted) = context();
    // SAFETY: the stream is destroyed behind the context.
    unsafe { context.require_native().unwrap().set_stream(stream.cast()) }.unwrap();
    for _ in 0..3 {
        context.enqueue(&inputs, &shapes).unwrap();
        check(context.as_mut(), &wanted);
    }
    let before = context.counters();
    let gate = Gate::default();
    // SAFETY: the gate outlives the stream's work, which is waited for below.
    let launched = unsafe { sys::cuLaunchHostFunc(stream, Some(hold), (&raw const gate).cast_mut().cast()) };
    assert_eq!(launched, CUDA_SUCCESS);
    context.enqueue(&inputs, &shapes).unwrap();
    assert!(!gate.passed(), "enqueue waited for the caller's stream");
    gate.open();
    check(context.as_mut(), &wanted);
    assert!(gate.passed(), "the run overtook what was in the stream");
    let after = context.counters();
    assert_eq!((after.runs - before.runs, after.allocations, after.pipelines), (1, before.allocations, 1));
    assert_eq!(after.host_syncs, 0);
    assert!(context.time_runs(5).unwrap().iter().all(|ns| *ns > 0.0));
    // SAFETY: null is always allowed.
    unsafe { context.require_native().unwrap().set_stream(std::ptr::null_mut()) }.unwrap();
    context.enqueue(&inputs, &shapes).unwrap();
    check(context.as_mut(), &wanted);
    drop(context);
    // SAFETY: nothing uses the stream any more.
    assert_eq!(unsafe { sys::cuStreamDestroy_v2(stream) }, CUDA_SUCCESS);
}

fn pointer(address: u64) -> *mut c_void {
    address as usize as *mut c_void
}

#[test]
fn tensors_of_the_caller_on_the_device_are_used_in_place() {
    let Some(gpu) = gpu() else { return };
    gpu.bind().unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let bytes = 64 * 64 * 4;
    let pairs: Vec<_> =
        (0..3).map(|_| [(); 2].map(|()| Buffer::new(&stream, bytes as u64).unwrap())).collect();
    let mut pinned = Pinned::new(&stream, bytes).unwrap();
    let (mut context, inputs, shapes, wanted) = context();
    for [input, output] in &pairs {
        pinned.send(0, inputs[0].bytes(), input.address()).unwrap();
        output.fill(0xff, &stream).unwrap();
        stream.synchronize().unwrap();
    }
    // What lies on the host is not read of a bound input.
    let given = vec![Tensor::zeros(DType::F32, &[64, 64]).unwrap(), inputs[1].clone()];
    let mut steady = None;
    for round in 0..12 {
        let [input, output] = &pairs[round % 3];
        // SAFETY: the buffers outlive the context's runs, which are waited for.
        unsafe {
            context.require_native().unwrap().bind(Bound::Input(0), pointer(input.address()), bytes as u64)
        }
        .unwrap();
        // SAFETY: as above.
        unsafe {
            context.require_native().unwrap().bind(Bound::Output(0), pointer(output.address()), bytes as u64)
        }
        .unwrap();
        context.enqueue(&given, &shapes).unwrap();
        check(context.as_mut(), &wanted);
        pinned.fetch(0, output.address(), bytes).unwrap();
        stream.synchronize().unwrap();
        let there: Vec<f32> = bytemuck::pod_collect_to_vec(pinned.bytes(0, bytes));
        let far =
            there.iter().zip(wanted.to_f64()).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        assert!(far < 1e-4, "round {round} differs by {far}");
        output.fill(0xff, &stream).unwrap();
        stream.synchronize().unwrap();
        let now = context.counters();
        let made = (now.allocations, now.pipelines);
        if round >= 6 {
            assert_eq!(*steady.get_or_insert(made), made, "round {round} makes new objects");
        }
    }
    // The launches that are known for this address write all of the output.
    let [_, output] = &pairs[2];
    // SAFETY: as above.
    unsafe { context.require_native().unwrap().bind(Bound::Output(0), pointer(output.address()), 64) }
        .unwrap();
    let short = context.enqueue(&given, &shapes);
    let says = format!("has {bytes} bytes, the memory bound to it 64");
    assert!(matches!(&short, Err(BackendError::InvalidArgument(m)) if m.contains(&says)), "{short:?}");
    pinned.fetch(0, output.address(), bytes).unwrap();
    stream.synchronize().unwrap();
    assert!(pinned.bytes(0, bytes).iter().all(|b| *b == 0xff), "something was written");
    // SAFETY: as above.
    unsafe {
        context.require_native().unwrap().bind(Bound::Output(0), pointer(output.address()), bytes as u64)
    }
    .unwrap();
    let [input, _] = &pairs[0];
    // Any address may be bound; too few bytes are refused before anything is read.
    let at = pointer(input.address() + 4);
    // SAFETY: as above.
    unsafe { context.require_native().unwrap().bind(Bound::Input(0), at, 64) }.unwrap();
    let short = context.enqueue(&given, &shapes);
    assert!(matches!(short, Err(BackendError::InvalidArgument(m)) if m.contains("bind more")));
    // SAFETY: null is always allowed.
    unsafe { context.require_native().unwrap().bind(Bound::Input(0), std::ptr::null_mut(), 0) }.unwrap();
    // SAFETY: null is always allowed.
    unsafe { context.require_native().unwrap().bind(Bound::Output(0), std::ptr::null_mut(), 0) }.unwrap();
    context.enqueue(&inputs, &shapes).unwrap();
    check(context.as_mut(), &wanted);
}
