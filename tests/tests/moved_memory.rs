//! Runs on a CUDA device whose inputs and outputs are at other addresses in each run: their results are right. On the driver of tests no
//! graph is made, recorded or updated as a whole once four sets of addresses were used twice. The host time of a run is printed. Allocators
//! supply device memory for outputs whose sizes the run finds.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_builder::{BuildConfig, Builder};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Graph, Tensor, TensorType};
use kiln_network::{Network, TensorId};
use kiln_plan::Plan;
use kiln_runtime::{Engine, OutputAllocator};
use kiln_tests::backends;
use kiln_tests::driver::Driver;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Products in f16 that large tiles compute, with two inputs and two outputs.
fn network() -> Network {
    let mut net = Network::new("moved");
    let mut rng = Rng::new(9);
    let x = net.add_input("x", TensorType::new(DType::F16, [128, 256])).unwrap();
    let z = net.add_input("z", TensorType::new(DType::F16, [128, 256])).unwrap();
    let layer = |net: &mut Network, name: &str, op: &str, inputs: &[TensorId]| {
        let inputs: Vec<Option<TensorId>> = inputs.iter().copied().map(Some).collect();
        net.add_layer(name, op, Attrs::new(), &inputs).unwrap()[0]
    };
    let mut weight = |net: &mut Network, name: &str| {
        net.add_weights(Some(name), rng.tensor_in(DType::F16, &[256, 256], -0.2, 0.2, 1)).unwrap()
    };
    let (a, b) = (weight(&mut net, "a"), weight(&mut net, "b"));
    let p = layer(&mut net, "p", "matmul", &[x, a]);
    let q = layer(&mut net, "q", "softmax", &[p]);
    let r = layer(&mut net, "r", "matmul", &[q, b]);
    let s = layer(&mut net, "s", "add", &[r, z]);
    net.mark_output(s, "s").unwrap();
    net.mark_output(q, "q").unwrap();
    net
}

#[test]
fn runs_follow_addresses_that_change() {
    let Some(backend) = backends::cuda().unwrap() else { return };
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = BuildConfig { estimates: true, search: false, ..BuildConfig::default() };
    let program = builder.build(&network()).unwrap().program;
    let tactics: Vec<_> = program.steps.iter().map(|s| s.tactic.id()).collect();
    println!("{tactics:?}");
    let engine = Engine::from_plan(Plan::new(program, Vec::new(), target), backend).unwrap();
    let mut rng = Rng::new(5);
    let data: Vec<[Tensor; 2]> =
        (0..3).map(|_| [(); 2].map(|()| rng.tensor_in(DType::F16, &[128, 256], -1.0, 1.0, 1))).collect();
    let mut plain = engine.create_context().unwrap();
    let wanted: Vec<_> =
        data.iter().map(|[x, z]| plain.run(&[("x", x.clone()), ("z", z.clone())]).unwrap()).collect();
    let driver = Driver::open();
    let (bytes, sets) = (128 * 256 * 2, 9);
    let names = ["x", "z", "s", "q"];
    let base = driver.allocate(bytes * sets * names.len());
    let transfer = driver.pinned(bytes);
    let at = |set: usize, k: usize| base + ((k * sets + set) * bytes) as u64;
    let mut context = engine.create_context().unwrap();
    let mut from = driver.calls(0, &[]).map_or(0, |c| c.1);
    let mut times = Vec::new();
    for round in 0..3 * sets {
        // Tensors move by different distances.
        let places: Vec<u64> = (0..4).map(|k| at((round * (k + 1) + k) % sets, k)).collect();
        let which = round % data.len();
        for (t, &at) in data[which].iter().zip(&places) {
            transfer.copy_from_slice(t.bytes());
            driver.send(at, transfer);
        }
        from = driver.calls(from, &[]).map_or(0, |c| c.1);
        let start = Instant::now();
        for (name, &at) in names.iter().zip(&places) {
            // SAFETY: memory that was allocated above.
            unsafe { context.bind(name, at as usize as *mut c_void, bytes as u64) }.unwrap();
        }
        context.enqueue().unwrap();
        times.push(start.elapsed().as_secs_f64() * 1e6);
        context.wait().unwrap();
        let counted = [
            "cuGraphExecKernelNodeSetParams",
            "cuGraphExecUpdate",
            "cuGraphInstantiate",
            "cuStreamBeginCapture",
        ];
        if let Some((found, now)) = driver.calls(from, &counted) {
            from = now;
            // All kernels with such addresses are at the ends, outside of the graph.
            assert!(round < sets || found == [0; 4], "{round}: {found:?}");
        }
        for ((name, tensor), k) in wanted[which].iter().zip([2, 3]) {
            assert_eq!(names[k], name);
            driver.fetch(places[k], transfer);
            assert!(*transfer == *tensor.bytes(), "round {round}: {name}");
        }
    }
    times.drain(..sets);
    times.sort_by(f64::total_cmp);
    println!("all addresses changed: {:.1} us at best, {:.1} median", times[0], times[times.len() / 2]);
    drop(context);
    driver.unpin(transfer);
    driver.free(base);
}

/// Memory of one output, what was asked, and the shapes that were told.
#[derive(Default)]
struct Seen {
    at: u64,
    asked: Vec<u64>,
    shapes: Vec<Vec<usize>>,
}

struct Supplies(Driver, Arc<Mutex<Seen>>);

// SAFETY: so many bytes of the device are there until the test frees them, at a multiple of 256.
unsafe impl OutputAllocator for Supplies {
    fn allocate(&mut self, _: &str, _: *mut c_void, bytes: u64, alignment: u64) -> *mut c_void {
        assert!(alignment <= 256, "{alignment}");
        let mut seen = self.1.lock().unwrap();
        seen.asked.push(bytes);
        if seen.at == 0 {
            seen.at = self.0.allocate(4096);
        }
        seen.at as usize as *mut c_void
    }

    fn shape(&mut self, _: &str, shape: &[usize]) {
        self.1.lock().unwrap().shapes.push(shape.to_vec());
    }
}

#[test]
fn allocators_supply_device_memory_for_sizes_that_a_run_finds() {
    let Some(backend) = backends::cuda().unwrap() else { return };
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target.clone());
    builder.config = BuildConfig { estimates: true, ..BuildConfig::default() };
    let text = "graph \"g\" { input %x: f32[2,3] %e = exp(%x) %i = nonzero(%x) output %i output %e }";
    let built = builder.build_graph(Graph::from_text(text).unwrap(), &mut |_, _, _| true).unwrap();
    let engine = Engine::from_plan(Plan::new(built.program, Vec::new(), target), backend).unwrap();
    let mut context = engine.create_context().unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let driver = Driver::open();
    context.set_output_allocator("i", Some(Box::new(Supplies(Driver::open(), seen.clone())))).unwrap();
    let transfer = driver.pinned(96);
    for (values, wanted) in [
        ([0.0, 4.0, 0.0, 0.0, 0.0, 0.0], vec![0i64, 1]),
        ([1.0, 0.0, 2.0, 0.0, 3.0, 0.0], vec![0, 0, 1, 0, 2, 1]),
        ([0.0; 6], vec![]),
    ] {
        context.set_input("x", Tensor::f32(&[2, 3], &values).unwrap()).unwrap();
        context.enqueue().unwrap();
        context.wait().unwrap();
        let s = seen.lock().unwrap();
        assert_eq!(s.shapes.last(), Some(&vec![2, wanted.len() / 2]));
        assert!(s.asked.last().is_some_and(|&n| n as usize >= wanted.len() * 8), "{:?}", s.asked);
        let bytes: Vec<u8> = wanted.iter().flat_map(|n| n.to_le_bytes()).collect();
        driver.fetch(s.at, transfer);
        assert_eq!(transfer[..bytes.len()], bytes);
    }
    assert_eq!(seen.lock().unwrap().shapes.len(), 3, "once a run");
    drop(context);
    driver.unpin(transfer);
    driver.free(seen.lock().unwrap().at);
}
