//! After warm-up a new shape inside the profile allocates, compiles and makes nothing: the counters say so.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::BuildConfig;
use kiln_ir::Tensor;
use kiln_runtime::ExecutionContext;
use kiln_tests::backends;
use kiln_tests::models::{archive, difference, engine};
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

fn check(backend: &Arc<dyn Backend>) {
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
    let before = context.counters();
    let mut new = 0;
    for batch in 1..=MAX[0] {
        for length in (1..MAX[1]).step_by(3).chain((2..MAX[1]).step_by(3)).take(25) {
            let logits = run(&mut context, &cut(&ids, batch, length));
            assert_eq!(logits.shape()[0], batch);
            new += 1;
        }
    }
    assert_eq!(new, 100);
    let after = context.counters();
    assert_eq!(after.shape_inferences - before.shape_inferences, 100, "{name}: the shapes are new");
    let (before, after) = (before.backend, after.backend);
    assert_eq!(after.runs - before.runs, 100, "{name}");
    assert_eq!(after.allocations, before.allocations, "{name} allocates");
    assert_eq!(after.compilations, before.compilations, "{name} compiles");
    assert_eq!(after.pipelines, before.pipelines, "{name} makes pipelines");
    let again = run(&mut context, &cut(&ids, MAX[0], MAX[1]));
    assert!(difference(&again, &warm) <= 1e-5, "{name}: other shapes in between change a result");
}

#[test]
fn a_hundred_new_shapes_cost_nothing() {
    backends::all().unwrap().iter().for_each(check);
}
