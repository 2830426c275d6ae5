//! Waiting for inputs and for the end of a run, and runs without transfers, through the runtime on every backend.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::BuildConfig;
use kiln_ir::Tensor;
use kiln_runtime::Engine;
use kiln_tests::backends;
use kiln_tests::models::{archive, difference, engine, rows};
use std::sync::Arc;

const BATCH: usize = 8;

fn lenet(backend: &Arc<dyn Backend>) -> Engine {
    let shapes: &[(&str, [&[i64]; 3])] = &[("input", [&[1, 1, 28, 28], &[8, 1, 28, 28], &[8, 1, 28, 28]])];
    let config = BuildConfig { samples: 1, max_tactics: 1, ..BuildConfig::default() };
    engine("digits/lenet_a.onnx", backend, shapes, config).unwrap()
}

fn images() -> Tensor {
    rows(&archive("digits/digits_test.npz").unwrap()["images"], 0, BATCH).unwrap()
}

fn close(found: &Tensor, what: &str) {
    let wanted = rows(&archive("digits/logits_lenet_a.npz").unwrap()["logits"], 0, BATCH).unwrap();
    let d = difference(found, &wanted);
    assert!(d <= 1e-4, "{what}: logits differ by {d}");
}

/// The host can wait for either moment, and take the outputs still.
fn waits(backend: &Arc<dyn Backend>) {
    let (e, name) = (lenet(backend), backend.name());
    let mut context = e.create_context().unwrap();
    context.set_input("input", images()).unwrap();
    context.wait_consumed().unwrap();
    context.wait().unwrap();
    for _ in 0..3 {
        context.enqueue().unwrap();
        context.wait_consumed().unwrap();
        // The given tensor may be replaced now.
        context.set_input("input", Tensor::zeros(kiln_ir::DType::F32, &[BATCH, 1, 28, 28]).unwrap()).unwrap();
        context.wait().unwrap();
        close(&context.outputs().unwrap()[0].1, name);
        context.set_input("input", images()).unwrap();
    }
    assert_eq!(context.counters().backend.runs, 3, "{name}");
}

/// Runs with tensors on the device have the same results, and make no new objects.
fn stays(backend: &Arc<dyn Backend>) {
    let (e, name) = (lenet(backend), backend.name());
    let mut context = e.create_context().unwrap();
    close(&context.run(&[("input", images())]).unwrap()[0].1, name);
    if let Err(e) = context.keep_on_device() {
        assert_ne!(name, "cuda", "{e}");
        assert!(e.to_string().contains("takes no streams, device memory or events"), "{e}");
        return;
    }
    for _ in 0..3 {
        context.enqueue().unwrap();
        context.outputs().unwrap();
    }
    let before = context.counters().backend;
    for _ in 0..3 {
        context.enqueue().unwrap();
        context.wait().unwrap();
        close(&context.outputs().unwrap()[0].1, name);
    }
    let after = context.counters().backend;
    assert_eq!((after.allocations, after.pipelines), (before.allocations, before.pipelines), "{name}");
}

/// Events of the caller's are CUDA's; elsewhere they are refused.
fn events(backend: &Arc<dyn Backend>) {
    let mut context = lenet(backend).create_context().unwrap();
    // SAFETY: null is always allowed.
    let set = unsafe { context.set_consumed_event(std::ptr::null_mut()) };
    match backend.name() {
        "cuda" => set.unwrap(),
        _ => assert!(set.unwrap_err().to_string().contains("takes no streams, device memory or events")),
    }
}

#[test]
fn the_host_waits_for_inputs_and_for_the_end() {
    backends::all().unwrap().iter().for_each(waits);
}

#[test]
fn tensors_stay_on_the_device() {
    backends::all().unwrap().iter().for_each(stays);
}

#[test]
fn events_are_marked_or_refused() {
    backends::all().unwrap().iter().for_each(events);
}
