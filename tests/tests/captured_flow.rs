//! Engines with control flow in CUDA graphs that the caller captures: loops and conditionals are nodes of the caller's graph, which
//! decides in each launch. Needs a CUDA device with conditional nodes, or the emulated one (`scripts/emulate.sh`).

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::{LoopOutputKind, Network, TensorId, TripLimitKind};
use kiln_plan::Plan;
use kiln_runtime::{Engine, ExecutionContext, RuntimeError};
use kiln_tests::backends;
use kiln_tests::driver::Driver;
use kiln_tests::models::difference;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

/// Held by each test: a capture forbids calls of other threads, and all tests use one stream.
static ALONE: Mutex<()> = Mutex::new(());

const SIZE: usize = 16;
/// Bytes between tensors of the test in its memory.
const ROOM: usize = 4096;

fn layer(net: &mut Network, name: &str, op: &str, inputs: &[TensorId]) -> TensorId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    net.add_layer(name, op, Attrs::new(), &inputs).unwrap()[0]
}

/// `x` through a loop of `n` iterations, then through one of two branches, behind layers without control flow. With `seeks` a layer
/// finds out how large its result is.
fn network(seeks: bool) -> Network {
    let mut net = Network::new("decides");
    let ty = TensorType::new(DType::F32, [SIZE as i64, SIZE as i64]);
    let x = net.add_input("x", ty).unwrap();
    let n = net.add_input("n", TensorType::new(DType::I64, [0; 0])).unwrap();
    let c = net.add_input("c", TensorType::new(DType::Bool, [0; 0])).unwrap();
    let w = Rng::new(3).tensor_in(DType::F32, &[SIZE, SIZE], -0.4, 0.4, 1);
    let w = net.add_weights(Some("w"), w).unwrap();
    let soft = layer(&mut net, "rows", "softmax", &[x]);
    let l = net.add_loop().unwrap();
    net.add_trip_limit(l, n, TripLimitKind::Count).unwrap();
    let carried = net.add_recurrence(l, soft).unwrap();
    let (id, value) = (carried.id(), carried.output(0).unwrap());
    let product = layer(&mut net, "product", "matmul", &[value, w]);
    let next = layer(&mut net, "bounded", "tanh", &[product]);
    net.set_input(id, 1, next).unwrap();
    let y = net.add_loop_output(l, value, LoopOutputKind::LastValue, 0).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let of = net.add_if_conditional().unwrap();
    net.set_condition(of, c).unwrap();
    let inside = net.add_if_input(of, y).unwrap().output(0).unwrap();
    let (a, b) = (layer(&mut net, "a", "exp", &[inside]), layer(&mut net, "b", "neg", &[inside]));
    let taken = net.add_if_output(of, a, b).unwrap().output(0).unwrap();
    let z = layer(&mut net, "all", "softmax", &[taken]);
    net.mark_output(z, "z").unwrap();
    if seeks {
        let found = layer(&mut net, "places", "nonzero", &[z]);
        net.mark_output(found, "found").unwrap();
    }
    net
}

fn engine(backend: &Arc<dyn Backend>, net: &Network) -> Engine {
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = BuildConfig { estimates: true, search: false, ..BuildConfig::default() };
    Engine::from_plan(Plan::new(builder.build(net).unwrap().program, Vec::new(), target), backend.clone())
        .unwrap()
}

/// Two sets of memory for all tensors of the network.
struct Sets<'a> {
    driver: &'a Driver,
    base: u64,
    transfer: &'static mut [u8],
}

const NAMES: [&str; 5] = ["x", "n", "c", "y", "z"];

impl Sets<'_> {
    fn new(driver: &Driver) -> Sets<'_> {
        let base = driver.allocate(2 * NAMES.len() * ROOM);
        Sets { driver, base, transfer: driver.pinned(ROOM) }
    }

    fn at(&self, set: usize, tensor: usize) -> u64 {
        self.base + ((set * NAMES.len() + tensor) * ROOM) as u64
    }

    fn bind(&self, context: &mut ExecutionContext, set: usize) {
        let bytes = [SIZE * SIZE * 4, 8, 1, SIZE * SIZE * 4, SIZE * SIZE * 4];
        for (k, (name, n)) in NAMES.iter().zip(bytes).enumerate() {
            // SAFETY: the memory stays until the test ends.
            unsafe { context.bind(name, self.at(set, k) as usize as *mut c_void, n as u64) }.unwrap();
        }
    }

    fn write(&mut self, set: usize, inputs: &[Tensor]) {
        for (k, t) in inputs.iter().enumerate() {
            let n = t.bytes().len();
            self.transfer[..n].copy_from_slice(t.bytes());
            self.driver.send(self.at(set, k), &self.transfer[..n]);
        }
        // Results of the last launch are none of the next.
        self.transfer.fill(0xff);
        (3..5).for_each(|k| self.driver.send(self.at(set, k), self.transfer));
    }

    fn read(&mut self, set: usize, tensor: usize) -> Tensor {
        let n = SIZE * SIZE * 4;
        self.driver.fetch(self.at(set, tensor), &mut self.transfer[..n]);
        Tensor::from_bytes(DType::F32, &[SIZE, SIZE], self.transfer[..n].to_vec()).unwrap()
    }
}

fn inputs(seed: u64, iterations: i64, taken: bool) -> Vec<Tensor> {
    let x = Rng::new(seed).tensor_in(DType::F32, &[SIZE, SIZE], -1.0, 1.0, 1);
    let c = Tensor::from_bytes(DType::Bool, &[], vec![u8::from(taken)]).unwrap();
    vec![x, Tensor::i64(&[], &[iterations]).unwrap(), c]
}

fn shapes(context: &mut ExecutionContext) {
    context.set_input_shape("x", &[SIZE, SIZE]).unwrap();
    context.set_input_shape("n", &[]).unwrap();
    context.set_input_shape("c", &[]).unwrap();
}

#[test]
fn graphs_of_the_caller_decide_in_each_launch() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(backend) = backends::cuda().unwrap() else { return };
    let net = network(false);
    let exact = net.lower().unwrap();
    let engine = engine(&backend, &net);
    let mut context = engine.create_context().unwrap();
    let driver = Driver::open();
    let mut sets = Sets::new(&driver);
    shapes(&mut context);
    // SAFETY: the stream stays as long as the engine.
    unsafe { context.set_stream(driver.stream()) }.unwrap();
    sets.bind(&mut context, 0);
    sets.write(0, &inputs(1, 2, true));
    context.enqueue().unwrap();
    context.wait().unwrap();
    if context.host_layers().unwrap().iter().any(|l| l.why.contains("no conditional nodes")) {
        println!("skipped: the driver has no conditional nodes");
        return;
    }
    assert_eq!(context.host_layers().unwrap(), []);
    let made = context.counters().backend;
    // The memory of before, and other memory, in which the context has not run.
    let graphs = [0, 1].map(|set| {
        sets.bind(&mut context, set);
        driver.captured(|| context.enqueue().unwrap()).unwrap()
    });
    let after = context.counters().backend;
    assert_eq!((after.allocations, after.pipelines), (made.allocations, made.pipelines), "only recorded");
    for (seed, (iterations, taken)) in
        [(0, true), (1, false), (3, true), (12, false), (40, true), (2, false)].into_iter().enumerate()
    {
        for (set, graph) in graphs.into_iter().enumerate() {
            let given = inputs((2 * seed + set) as u64, iterations, taken);
            sets.write(set, &given);
            driver.launch(graph);
            let wanted = exact.eval(&given).unwrap();
            for (k, wanted) in [3, 4].into_iter().zip(&wanted) {
                let d = difference(&sets.read(set, k), wanted);
                assert!(d < 1e-4, "{iterations} iterations, {taken}, set {set}: {} differs by {d}", NAMES[k]);
            }
        }
    }
    graphs.into_iter().for_each(|g| driver.destroy(g));
    // Runs outside of graphs go on.
    sets.write(1, &inputs(9, 5, true));
    context.enqueue().unwrap();
    context.wait().unwrap();
    let wanted = exact.eval(&inputs(9, 5, true)).unwrap();
    assert!(difference(&sets.read(1, 4), &wanted[1]) < 1e-4);
}

#[test]
fn runs_that_need_the_host_are_refused_with_the_layer_and_what_to_do() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(backend) = backends::cuda().unwrap() else { return };
    let engine = engine(&backend, &network(true));
    let mut context = engine.create_context().unwrap();
    let driver = Driver::open();
    let mut sets = Sets::new(&driver);
    shapes(&mut context);
    // SAFETY: the stream stays as long as the engine.
    unsafe { context.set_stream(driver.stream()) }.unwrap();
    sets.bind(&mut context, 0);
    let found = driver.allocate(ROOM);
    // SAFETY: the memory stays until the test ends.
    unsafe { context.bind("found", found as usize as *mut c_void, ROOM as u64) }.unwrap();
    sets.write(0, &inputs(1, 2, true));
    let refused = |context: &mut ExecutionContext| {
        let mut error: Option<RuntimeError> = None;
        let graph = driver.captured(|| error = context.enqueue().err());
        graph.into_iter().for_each(|g| driver.destroy(g));
        error.unwrap().to_string()
    };
    let never_run = refused(&mut context);
    assert!(never_run.contains("run it once with the same shapes"), "{never_run}");
    context.enqueue().unwrap();
    context.wait().unwrap();
    let e = refused(&mut context);
    assert!(e.contains("\"places\"") && e.contains("is found on the device"), "{e}");
    assert!(e.contains("mask elements") && e.contains("outside of the capture"), "{e}");
}
