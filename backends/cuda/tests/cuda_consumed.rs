//! The event behind the last kernel that reads an input: it is reached while the rest of the run goes on. Skipped without a
//! device, unless `KILN_REQUIRE_CUDA=1`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use cudarc::driver::sys::{self, CUresult::CUDA_SUCCESS};
use kiln_backend::{Backend, Bound, Context, Program, Shapes, Tactic};
use kiln_backend_cuda::Cuda;
use kiln_backend_cuda::driver::{Buffer, Event, Gpu, Pinned, Stream, devices};
use kiln_ir::problem::Rng;
use kiln_ir::{DType, Graph, Tensor};
use std::ffi::c_void;
use std::sync::Arc;

const N: usize = 2048;
/// Products behind the one that reads the input: some milliseconds in all.
const TAIL: usize = 64;

/// y = (x · w) · w · w · …
fn products() -> Program {
    let mut text = format!(
        "graph \"products\" {{ input %x: f32[{N},{N}] weight %w: f32[{N},{N}] = seed 3 %y0 = matmul(%x, %w)"
    );
    for i in 0..TAIL {
        text += &format!(" %t{i} = tanh(%y{i}) %y{} = matmul(%t{i}, %w)", i + 1);
    }
    let g = Graph::from_text(&format!("{text} output %y{TAIL} }}")).unwrap();
    let target = Cuda.targets().unwrap().remove(0);
    let mut program = Program::step_per_node(g, &Tactic::plain(""));
    program.choose(&Cuda, &target).unwrap();
    program
}

/// Objects that the runs of one test need.
struct Setup {
    gpu: Arc<Gpu>,
    stream: *mut c_void,
    context: Box<dyn Context>,
    shapes: Arc<Shapes>,
    x: Tensor,
    /// Given to the context.
    consumed: *mut c_void,
    /// Before the run, and behind it.
    ends: [*mut c_void; 2],
}

fn setup() -> Option<Setup> {
    let Some(found) = devices().ok().and_then(|d| d.into_iter().next()) else {
        assert!(std::env::var_os("KILN_REQUIRE_CUDA").is_none(), "no CUDA device");
        println!("skipped: no CUDA device");
        return None;
    };
    let gpu = found.open().unwrap();
    gpu.bind().unwrap();
    let mut stream = std::ptr::null_mut();
    // SAFETY: the place for the handle is valid.
    assert_eq!(unsafe { sys::cuStreamCreate(&mut stream, 1) }, CUDA_SUCCESS);
    let event = || {
        let mut e = std::ptr::null_mut();
        // SAFETY: the place for the handle is valid.
        assert_eq!(unsafe { sys::cuEventCreate(&mut e, 0) }, CUDA_SUCCESS);
        e.cast()
    };
    let program = products();
    let x = Rng::new(5).tensor(DType::F32, &[N, N]);
    let shapes = Arc::new(program.shapes(std::slice::from_ref(&x)).unwrap());
    let target = Cuda.targets().unwrap().remove(0);
    let loaded = Cuda.open(&target).unwrap().load(Arc::new(program)).unwrap();
    let mut context = loaded.context().unwrap();
    let (consumed, ends) = (event(), [event(), event()]);
    let native = context.require_native().unwrap();
    // SAFETY: stream and event outlive the context's runs.
    unsafe { native.set_stream(stream.cast()).and_then(|()| native.set_consumed_event(consumed)) }.unwrap();
    Some(Setup { gpu, stream: stream.cast(), context, shapes, x, consumed, ends })
}

impl Setup {
    fn enqueue(&mut self) {
        self.record(self.ends[0]);
        self.context.enqueue(std::slice::from_ref(&self.x), &self.shapes).unwrap();
        self.record(self.ends[1]);
    }

    fn record(&self, event: *mut c_void) {
        // SAFETY: both handles are alive.
        assert_eq!(unsafe { sys::cuEventRecord(event.cast(), self.stream.cast()) }, CUDA_SUCCESS);
    }

    fn reached(&self, event: *mut c_void) -> bool {
        // SAFETY: the handle is alive.
        unsafe { sys::cuEventQuery(event.cast()) == CUDA_SUCCESS }
    }

    /// Milliseconds of the whole run, and of what is behind the event.
    fn times(&self) -> (f32, f32) {
        let between = |a: *mut c_void, b: *mut c_void| {
            let mut ms = 0.0;
            // SAFETY: the handles are alive and reached.
            assert_eq!(unsafe { sys::cuEventElapsedTime(&mut ms, a.cast(), b.cast()) }, CUDA_SUCCESS);
            ms
        };
        // SAFETY: the handle is alive.
        assert_eq!(unsafe { sys::cuEventSynchronize(self.ends[1].cast()) }, CUDA_SUCCESS);
        (between(self.ends[0], self.ends[1]), between(self.consumed, self.ends[1]))
    }

    fn output(&mut self) -> Tensor {
        self.context.outputs().unwrap().remove(0)
    }
}

fn pointer(address: u64) -> *mut c_void {
    address as usize as *mut c_void
}

#[test]
fn the_event_is_reached_long_before_the_run_ends_and_the_input_may_go() {
    let Some(mut s) = setup() else { return };
    let other = Stream::new(&s.gpu).unwrap();
    let bytes = N * N * 4;
    let input = Buffer::new(&other, bytes as u64).unwrap();
    let output = Buffer::new(&other, bytes as u64).unwrap();
    let mut pinned = Pinned::new(&other, bytes).unwrap();
    let mut wanted = None;
    // SAFETY: the buffer outlives the context's runs.
    unsafe {
        s.context.require_native().unwrap().bind(Bound::Input(0), pointer(input.address()), bytes as u64)
    }
    .unwrap();
    // SAFETY: as above. What is read back otherwise is copied behind the run.
    unsafe {
        s.context.require_native().unwrap().bind(Bound::Output(0), pointer(output.address()), bytes as u64)
    }
    .unwrap();
    for run in 0..5 {
        pinned.send(0, s.x.bytes(), input.address()).unwrap();
        other.synchronize().unwrap();
        s.enqueue();
        while !s.reached(s.consumed) {
            std::hint::spin_loop();
        }
        assert!(!s.reached(s.ends[1]), "run {run}: the event marks the end");
        input.fill(0xff, &other).unwrap();
        other.synchronize().unwrap();
        let (all, behind) = s.times();
        assert!(behind > 0.5 * all, "run {run}: {behind} of {all} ms are behind the event");
        let found = s.output();
        assert_eq!(*wanted.get_or_insert(found.clone()), found, "run {run} read what came later");
    }
    assert!(wanted.unwrap().to_f64().iter().all(|x| x.is_finite()));
    assert_eq!(s.context.counters().pipelines, 1, "the event is a node of the graph");
}

/// Elements of the host are copied by `enqueue`.
#[test]
fn without_memory_of_the_callers_the_event_is_in_front_of_all_kernels() {
    let Some(mut s) = setup() else { return };
    for _ in 0..3 {
        s.enqueue();
        let (all, behind) = s.times();
        assert!(behind > 0.5 * all, "{behind} of {all} ms are behind the event");
        s.output();
    }
}

#[test]
fn the_host_waits_for_inputs_no_longer_than_they_are_read() {
    let Some(mut s) = setup() else { return };
    let other = Stream::new(&s.gpu).unwrap();
    let bytes = (N * N * 4) as u64;
    let input = Buffer::new(&other, bytes).unwrap();
    input.fill(0, &other).unwrap();
    other.synchronize().unwrap();
    // SAFETY: the buffer outlives the context's runs.
    unsafe { s.context.require_native().unwrap().bind(Bound::Input(0), pointer(input.address()), bytes) }
        .unwrap();
    // The first wait asks for marks.
    s.enqueue();
    s.context.wait_consumed().unwrap();
    for run in 0..4 {
        s.enqueue();
        s.context.wait_consumed().unwrap();
        assert!(!s.reached(s.ends[1]), "run {run}: it waited for the end");
        s.context.wait().unwrap();
        assert!(s.reached(s.consumed));
        let zeros = s.output();
        assert!(zeros.to_f64().iter().all(|x| *x == 0.0));
    }
    // SAFETY: null is always allowed.
    unsafe { s.context.require_native().unwrap().set_consumed_event(std::ptr::null_mut()) }.unwrap();
    s.enqueue();
    s.context.wait().unwrap();
}

#[test]
fn an_event_of_the_callers_is_not_destroyed() {
    let Some(s) = setup() else { return };
    // SAFETY: the event is alive.
    let e = unsafe { Event::foreign(&s.gpu, s.consumed) };
    assert!(e.is(s.consumed));
    drop(e);
    s.record(s.consumed);
}
