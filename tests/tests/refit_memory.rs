//! A refit takes the memory of its new weights, and of what its largest recipe works with: not of all recipes.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use kiln_builder::{BuildConfig, Builder, Narrowing, Refit};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, TensorType};
use kiln_network::Network;
use kiln_plan::Plan;
use kiln_runtime::Refitter;
use kiln_tests::backends::reference;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The allocator of the system, which counts bytes.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is left to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: usize = 256;
const LAYERS: usize = 16;

#[test]
fn a_refit_takes_its_new_weights_and_the_largest_recipe() {
    let mut net = Network::new("layers");
    let mut v = net.add_input("x", TensorType::new(DType::F32, [2, ROWS as i64])).unwrap();
    let weight = |seed: u64| Rng::new(seed).tensor(DType::F32, &[ROWS, ROWS]);
    for i in 0..LAYERS {
        let w = net.add_weights(Some(&format!("w{i}")), weight(i as u64)).unwrap();
        v = net.add_layer(&format!("y{i}"), "matmul", Attrs::new(), &[Some(v), Some(w)]).unwrap()[0];
    }
    net.mark_output(v, "y").unwrap();
    let target = reference().targets().unwrap().remove(0);
    let mut builder = Builder::new(reference(), target.clone());
    builder.config = BuildConfig {
        reduced: vec![DType::F16],
        narrowing: Narrowing::Everywhere,
        estimates: true,
        refit: Refit::All,
        ..BuildConfig::default()
    };
    let plan = Plan::new(builder.build(&net).unwrap().program, Vec::new(), target);
    let halves = |p: &Plan| {
        let narrow = p.program.weights().filter(|(_, t)| t.dtype() == DType::F16);
        narrow.map(|(_, t)| t.bytes().len()).sum::<usize>()
    };
    let derived = halves(&plan);
    assert_eq!(derived, LAYERS * ROWS * ROWS * 2);
    let mut refitter = Refitter::of_plan(plan).unwrap();
    for i in 0..LAYERS {
        refitter.set(&format!("w{i}"), weight(100 + i as u64)).unwrap();
    }
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let report = refitter.refit().unwrap();
    let peak = MOST.load(Ordering::Relaxed) - before;
    assert_eq!((report.replaced, report.derived), (LAYERS, LAYERS));
    // A recipe works with elements of 8 bytes: those that it reads, and those that it makes.
    let recipe = 3 * ROWS * ROWS * 8;
    println!("{peak} bytes for {derived} bytes of weights");
    assert!(peak <= derived + recipe, "{peak} bytes for {derived} bytes of weights");
}
