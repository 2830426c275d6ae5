//! Products, convolutions and attention by cooperative matrices beside the oracle: whole and broken quads, turned operands, batches,
//! groups, masks.
#![allow(
    clippy::print_stdout,
    clippy::panic,
    reason = "a test that is skipped says so, one that fails says of what"
)]

use kiln_backend::compare::{Latitude, check};
use kiln_backend::{Backend, BackendError, Device, Program, Target};
use kiln_backend_wgpu::{Wgpu, text_of};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op, Tensor};
use std::sync::Arc;

/// The first device that has cooperative matrices, or `None` with a line that says why there is none.
fn device() -> Option<(Arc<dyn Device>, Target)> {
    let targets = Wgpu.targets().map_err(|e| println!("skipped: {e}")).ok()?;
    let Some(target) = targets.into_iter().find(|t| t.numbers.contains_key("cooperative_part")) else {
        println!("skipped: no device has cooperative matrices");
        return None;
    };
    Some((Wgpu.open(&target).expect("the target opens"), target))
}

fn run(device: &dyn Device, program: Program, given: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
    let program = Arc::new(program);
    let shapes = Arc::new(program.shapes(given)?);
    let mut cx = device.load(program)?.context()?;
    cx.enqueue(given, &shapes)?;
    cx.outputs()
}

/// Runs an operator of f16 by every tile, and compares with the oracle.
fn agree(name: &str, attrs: Attrs, shapes: &[&[usize]]) {
    let tensor = |(k, s): (usize, &&[usize])| Some(Rng::new(k as u64).tensor(DType::F16, s));
    agree_of(name, attrs, &shapes.iter().enumerate().map(tensor).collect::<Vec<_>>());
}

/// Runs an operator on these inputs, of whose outputs the first one is read.
fn agree_of(name: &str, attrs: Attrs, inputs: &[Option<Tensor>]) {
    let Some((device, target)) = device() else { return };
    let op = Op::new(name, attrs).expect("an operator");
    let shapes: Vec<_> = inputs.iter().map(|t| t.as_ref().map(Tensor::shape)).collect();
    let (mut program, given) = Program::single(&op, inputs).expect(name);
    program.graph.outputs.truncate(1);
    let others = op.eval(inputs).expect("the oracle's results").split_off(1);
    let region = program.region(&program.steps[0]).expect("a region");
    let tactics = Wgpu.tactics(&region, &target).expect("tactics");
    let mut ran = 0;
    for tactic in tactics.into_iter().filter(|t| t.name.ends_with(".cooperative")) {
        let mut program = program.clone();
        program.steps[0].blob = Wgpu.compile(&region, &tactic, &target).expect("a text").into();
        program.steps[0].tactic = tactic.clone();
        let text = || text_of(program.steps[0].blob.as_slice()).expect("a text");
        let what = format!("{name} {shapes:?}, {}", tactic.id());
        let mut found =
            run(device.as_ref(), program.clone(), &given).unwrap_or_else(|e| panic!("{what}: {e}"));
        found.extend(others.iter().cloned());
        let verdict = check(&op, inputs, &found, Latitude { flush: true, ..Latitude::default() });
        assert!(verdict.is_ok(), "{what}: {}\n{}", verdict.expect_err("it differs"), text());
        ran += 1;
    }
    assert!(ran > 0, "{name}: no tactic ran");
}

fn product(trans_a: bool, trans_b: bool, a: &[usize], b: &[usize]) {
    agree("matmul", Attrs::new().with("trans_a", trans_a).with("trans_b", trans_b), &[a, b]);
}

#[test]
fn products_of_whole_quads() {
    product(false, false, &[72, 100], &[100, 140]);
    product(false, true, &[132, 64], &[68, 64]);
    product(true, false, &[36, 64], &[36, 132]);
    product(true, true, &[36, 64], &[132, 36]);
}

#[test]
fn products_of_broken_quads() {
    product(false, false, &[65, 47], &[47, 131]);
    product(false, true, &[129, 33], &[66, 33]);
    product(true, false, &[35, 63], &[35, 129]);
    product(true, true, &[35, 63], &[129, 35]);
}

#[test]
fn products_of_batches_and_vectors() {
    product(false, false, &[3, 1, 20, 24], &[5, 24, 36]);
    product(false, true, &[2, 7, 10], &[2, 9, 10]);
    product(false, false, &[40], &[40, 36]);
    product(false, false, &[3, 12, 40], &[40]);
    product(false, false, &[5, 0], &[0, 36]);
}

#[test]
fn convolutions() {
    for layout in ["linear", "channels_last"] {
        let last = layout == "channels_last";
        let turned = |c: usize, s: [usize; 2], n: usize| match last {
            true => vec![n, s[0], s[1], c],
            false => vec![n, c, s[0], s[1]],
        };
        for (channels, outputs, groups) in [(8, 72, 1), (5, 9, 1), (16, 24, 2), (64, 136, 1)] {
            let attrs = Attrs::new().with("groups", groups as i64).with("pads", vec![1i64, 0, 1, 2]);
            let attrs = attrs.with("strides", vec![1i64, 2]).with("layout", layout);
            let (x, w) = (turned(channels, [9, 13], 2), turned(channels / groups, [3, 3], outputs));
            agree("conv", attrs.clone(), &[&x, &w, &[outputs]]);
        }
    }
}

#[test]
fn convolutions_of_neighbouring_windows() {
    let pads = |rank: usize, begin: i64, end: i64| {
        let all = [vec![begin; rank], vec![end; rank]].concat();
        Attrs::new().with("pads", all)
    };
    agree("conv", pads(1, 8, 8).with("dilations", vec![8i64]), &[&[2, 12, 61], &[20, 12, 3], &[20]]);
    agree("conv", pads(2, 1, 1), &[&[2, 8, 7, 14], &[24, 8, 3, 3], &[24]]);
    agree("conv", pads(2, 3, 2), &[&[1, 5, 6, 3], &[12, 5, 5, 5]]);
    agree("conv", pads(2, 4, 4), &[&[1, 4, 9, 12], &[8, 4, 9, 9], &[8]]);
    agree("conv", pads(2, 0, 1).with("groups", 2i64), &[&[2, 16, 9, 8], &[24, 8, 2, 2], &[24]]);
    agree("conv", pads(3, 1, 1), &[&[2, 6, 4, 5, 12], &[16, 6, 3, 3, 3], &[16]]);
    agree("conv", pads(3, 1, 2).with("strides", vec![2i64, 1, 1]), &[&[1, 4, 5, 6, 9], &[8, 4, 3, 2, 3]]);
    let last = pads(2, 4, 4).with("layout", "channels_last");
    agree("conv", last, &[&[1, 9, 12, 4], &[8, 9, 9, 4], &[8]]);
    let last = pads(3, 1, 1).with("layout", "channels_last");
    agree("conv", last, &[&[2, 4, 5, 6, 8], &[16, 3, 3, 3, 8], &[16]]);
}

#[test]
fn products_of_inputs_of_recurrences() {
    let cases = [("lstm", 4, [5, 3, 12, 20]), ("gru", 3, [4, 9, 7, 6]), ("rnn", 1, [3, 11, 16, 33])];
    for (name, gates, [steps, batch, inputs, hidden]) in cases {
        let attrs = Attrs::new().with("direction", "bidirectional");
        let attrs = if name == "gru" { attrs.with("linear_before_reset", true) } else { attrs };
        let (x, w) = ([steps, batch, inputs], [2, gates * hidden, inputs]);
        agree(name, attrs, &[&x, &w, &[2, gates * hidden, hidden], &[2, 2 * gates * hidden]]);
    }
}

/// Attention of `q_heads` heads with `kv_heads` heads of keys; a mask of this type is added for each query and key.
fn attention(attrs: Attrs, heads: [usize; 2], lengths: [usize; 2], sizes: [usize; 2], mask: Option<DType>) {
    let ([q_heads, kv_heads], [queries, keys], [size, v_size]) = (heads, lengths, sizes);
    let mut rng = Rng::new(7);
    let flat = attrs.int("q_heads").is_ok();
    let mut input = |heads: usize, n: usize, size: usize| {
        let shape = if flat { vec![2, n, heads * size] } else { vec![2, heads, n, size] };
        Some(rng.tensor(DType::F16, &shape))
    };
    let mut inputs =
        vec![input(q_heads, queries, size), input(kv_heads, keys, size), input(kv_heads, keys, v_size)];
    inputs.extend(mask.map(|t| Some(Rng::new(8).tensor(t, &[2, 1, queries, keys]))));
    agree_of("attention", attrs, &inputs);
}

#[test]
fn attention_of_all_keys() {
    attention(Attrs::new(), [2, 2], [70, 77], [64, 64], None);
    attention(Attrs::new(), [2, 1], [5, 130], [40, 24], None);
    attention(Attrs::new(), [1, 1], [33, 50], [99, 101], None);
    attention(Attrs::new(), [1, 1], [1, 1], [128, 64], None);
    attention(Attrs::new().with("softcap", 2.0), [4, 2], [40, 33], [8, 8], None);
    // Scores far apart, so that the references of weights are raised again and again.
    attention(Attrs::new().with("scale", 3.0), [2, 2], [40, 150], [16, 24], None);
    let flat = Attrs::new().with("q_heads", 4i64).with("kv_heads", 2i64);
    attention(flat, [4, 2], [37, 45], [32, 30], None);
}

#[test]
fn attention_of_some_keys() {
    let causal = || Attrs::new().with("causal", true);
    attention(causal(), [2, 2], [97, 97], [64, 64], None);
    attention(causal(), [2, 2], [40, 90], [72, 72], None);
    attention(causal().with("window_left", 9i64), [2, 2], [97, 97], [64, 64], None);
    let window = Attrs::new().with("window_left", 40i64).with("window_right", 3i64);
    attention(window.with("zero_empty", true), [2, 2], [97, 20], [64, 64], None);
    attention(Attrs::new(), [2, 2], [50, 66], [64, 64], Some(DType::F16));
    attention(Attrs::new(), [2, 2], [50, 67], [64, 64], Some(DType::F32));
    attention(Attrs::new(), [2, 2], [50, 67], [64, 64], Some(DType::Bool));
    attention(Attrs::new(), [2, 2], [50, 68], [16, 16], Some(DType::F16));
    attention(Attrs::new(), [2, 2], [50, 68], [16, 16], Some(DType::Bool));
    attention(causal(), [2, 2], [68, 68], [16, 16], Some(DType::F32));
    attention(Attrs::new().with("hidden_score", -1e4), [2, 2], [50, 9], [64, 64], Some(DType::Bool));
}
