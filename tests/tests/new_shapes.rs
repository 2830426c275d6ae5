//! After warm-up a new shape inside the profile allocates, compiles and makes nothing: the counters say so.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::BuildConfig;
use kiln_ir::Tensor;
use kiln_runtime::ExecutionContext;
use kiln_tests::backends;
use kiln_tests::models::{archive, difference, engine, rows};
use std::sync::Arc;

const MAX: [usize; 2] = [4, 40];

/// The first words of the first texts.
fn cut(ids: &Tensor, batch: usize, length: usize) -> Tensor {
    let (all, row) = (ids.to_i64(), ids.shape()[1]);
    let cut: Vec<i64> = (0..batch).flat_map(|b| all[b * row..b * row + length].to_vec()).collect();
    Tensor::i64(&[batch, length], &cut).unwrap()
}

fn run(context: &mut ExecutionContext, ids: &Tensor) -> Tensor {
    let mask = Tensor::i64(ids.shape(), &vec![1; ids.len()]).unwrap();
    context.run(&[("input_ids", ids.clone()), ("attention_mask", mask)]).unwrap().remove(0).1
}

/// Runs new shapes between two looks at the counters: only runs and inferences may have grown.
fn counted(name: &str, context: &mut ExecutionContext, new: impl FnOnce(&mut ExecutionContext) -> u64) {
    let before = context.counters();
    let new = new(context);
    let after = context.counters();
    assert!(new >= 99, "{name}: {new} shapes");
    assert_eq!(after.shape_inferences - before.shape_inferences, new, "{name}: the shapes are new");
    let (before, after) = (before.backend, after.backend);
    assert_eq!(after.runs - before.runs, new, "{name}");
    assert_eq!(after.allocations, before.allocations, "{name} allocates");
    assert_eq!(after.compilations, before.compilations, "{name} compiles");
    assert_eq!(after.pipelines, before.pipelines, "{name} makes pipelines");
}

fn transformer(backend: &Arc<dyn Backend>) {
    let name = backend.name().to_owned();
    let shape: [&[i64]; 3] = [&[1, 1], &[1, 8], &[MAX[0] as i64, MAX[1] as i64]];
    let config = BuildConfig { samples: 1, ..BuildConfig::default() };
    let shapes: &[(&str, [&[i64]; 3])] = &[("input_ids", shape), ("attention_mask", shape)];
    let e = engine("nlp/bert_tiny.onnx", backend, shapes, config).unwrap();
    let ids = archive("nlp/nlp_test.npz").unwrap().remove("input_ids").unwrap();
    let mut context = e.create_context().unwrap();
    let warm = run(&mut context, &cut(&ids, MAX[0], MAX[1]));
    // A caller may keep the last results while the next are made.
    let again = run(&mut context, &cut(&ids, MAX[0], MAX[1]));
    drop(again);
    counted(&name, &mut context, |context| {
        let mut new = 0;
        for batch in 1..=MAX[0] {
            for length in (1..MAX[1]).step_by(3).chain((2..MAX[1]).step_by(3)).take(25) {
                let logits = run(context, &cut(&ids, batch, length));
                assert_eq!(logits.shape()[0], batch);
                new += 1;
            }
        }
        new
    });
    let again = run(&mut context, &cut(&ids, MAX[0], MAX[1]));
    assert!(difference(&again, &warm) <= 1e-5, "{name}: other shapes in between change a result");
}

const IMAGES: usize = 100;

fn convnet(backend: &Arc<dyn Backend>) {
    let name = backend.name().to_owned();
    let config = BuildConfig { samples: 1, ..BuildConfig::default() };
    let shape: [&[i64]; 3] = [&[1, 1, 28, 28], &[16, 1, 28, 28], &[IMAGES as i64, 1, 28, 28]];
    let e = engine("digits/lenet_a.onnx", backend, &[("input", shape)], config).unwrap();
    let images = archive("digits/digits_test.npz").unwrap().remove("images").unwrap();
    let mut context = e.create_context().unwrap();
    let logits = |context: &mut ExecutionContext, n: usize| {
        context.run(&[("input", rows(&images, 0, n).unwrap())]).unwrap().remove(0).1
    };
    let warm = logits(&mut context, IMAGES);
    drop(logits(&mut context, IMAGES));
    counted(&name, &mut context, |context| {
        for n in 1..IMAGES {
            let d = difference(&logits(context, n), &rows(&warm, 0, n).unwrap());
            assert!(d <= 1e-4, "{name}: {n} images at once differ by {d}");
        }
        IMAGES as u64 - 1
    });
}

#[test]
fn a_hundred_new_shapes_of_a_transformer_cost_nothing() {
    backends::all().unwrap().iter().for_each(transformer);
}

#[test]
fn a_hundred_new_shapes_of_a_convnet_cost_nothing() {
    backends::all().unwrap().iter().for_each(convnet);
}
