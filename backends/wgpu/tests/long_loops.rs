//! Loops beyond 65,535 iterations of one thread, after which llvmpipe silently ends them: every family,
//! compared with the oracle. And tensors beyond the size of one binding.
#![allow(
    clippy::print_stdout,
    clippy::panic,
    reason = "a test that is skipped says so, one that fails says of what"
)]

use kiln_backend::compare::{Latitude, check};
use kiln_backend::{Backend, BackendError, Device, Program, Target};
use kiln_backend_wgpu::Wgpu;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op, Tensor};
use std::sync::Arc;

/// The first device, or `None` with a line that says why there is none.
fn device() -> Option<(Arc<dyn Device>, Target)> {
    match Wgpu.targets() {
        Ok(t) => Some((Wgpu.open(&t[0]).expect("the first target opens"), t[0].clone())),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

type Inputs = Vec<Option<Tensor>>;

fn run(device: &dyn Device, program: Program, given: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
    let program = Arc::new(program);
    let shapes = Arc::new(program.shapes(given)?);
    let mut cx = device.load(program)?.context()?;
    cx.enqueue(given, &shapes)?;
    cx.outputs()
}

/// Runs every tactic of an operator and compares with the oracle.
fn agree(name: &str, attrs: Attrs, inputs: &Inputs) {
    let Some((device, target)) = device() else { return };
    let op = Op::new(name, attrs).expect("an operator");
    let (program, given) = Program::single(&op, inputs).expect(name);
    let region = program.region(&program.steps[0]).expect("a region");
    for tactic in Wgpu.tactics(&region, &target).expect("tactics") {
        let mut program = program.clone();
        program.steps[0].blob = Wgpu.compile(&region, &tactic, &target).expect("a text").into();
        program.steps[0].tactic = tactic.clone();
        let found =
            run(device.as_ref(), program, &given).unwrap_or_else(|e| panic!("{name}, {}: {e}", tactic.id()));
        let verdict = check(&op, inputs, &found, Latitude { flush: true, ..Latitude::default() });
        assert!(verdict.is_ok(), "{name}, {}: {}", tactic.id(), verdict.expect_err("it differs"));
    }
}

fn none() -> Attrs {
    Attrs::new()
}

fn f(seed: u64, shape: &[usize]) -> Option<Tensor> {
    Some(Rng::new(seed).tensor(DType::F32, shape))
}

fn typed(t: DType, seed: u64, shape: &[usize]) -> Option<Tensor> {
    Some(Rng::new(seed).tensor(t, shape))
}

fn i64s(shape: &[usize], of: impl Fn(usize) -> i64) -> Option<Tensor> {
    let v: Vec<i64> = (0..shape.iter().product()).map(of).collect();
    Tensor::i64(shape, &v)
}

const LONG: usize = 70_001;

#[test]
fn products() {
    agree("matmul", none(), &vec![f(1, &[2, LONG]), f(2, &[LONG, 2])]);
    agree("matmul", none(), &vec![typed(DType::I8, 1, &[2, LONG]), typed(DType::U8, 2, &[LONG, 3])]);
    agree("einsum", none().with("equation", "ik,kj->ij"), &vec![f(1, &[2, LONG]), f(2, &[LONG, 2])]);
}

#[test]
fn products_beyond_what_tiles_do_in_one_launch() {
    agree("matmul", none(), &vec![f(1, &[2, 350_003]), f(2, &[350_003, 2])]);
}

#[test]
fn windows() {
    agree("conv", none(), &vec![f(1, &[1, 1, LONG + 1]), f(2, &[4, 1, LONG]), f(3, &[4])]);
    agree(
        "conv",
        none(),
        &vec![typed(DType::U8, 1, &[1, 2, 40_002]), typed(DType::I8, 2, &[4, 2, 40_001]), None],
    );
    agree("conv_transpose", none(), &vec![f(1, &[1, LONG, 1, 1]), f(2, &[LONG, 1, 1, 2]), None]);
    for op in ["max", "average"] {
        agree(
            "pool",
            none().with("op", op).with("kernel", vec![265i64, 265]),
            &vec![f(1, &[1, 1, 266, 265])],
        );
    }
    let x = typed(DType::F32, 1, &[1, 1, 266, 266]);
    agree("max_pool_indices", none().with("kernel", vec![265i64, 265]), &vec![x]);
}

#[test]
fn windows_moved_by_data() {
    let x = f(1, &[1, 250, 3, 3]);
    agree("deform_conv", none(), &vec![x, f(2, &[1, 250, 3, 3]), f(3, &[1, 18, 1, 1]), None, None]);
}

#[test]
fn reductions() {
    let all = none().with("keep_dims", false);
    for op in ["sum", "max", "log_sum_exp", "mean"] {
        agree("reduce", all.clone().with("op", op), &vec![f(1, &[LONG, 3]), i64s(&[1], |_| 0)]);
    }
    agree("reduce", all.clone().with("op", "sum"), &vec![f(1, &[3_300_000]), i64s(&[1], |_| 0)]);
    agree("argmax", none().with("axis", 0i64), &vec![f(1, &[LONG, 2])]);
    agree("hardmax", none().with("axis", 0i64), &vec![f(1, &[LONG, 2])]);
    agree("cumulative", none(), &vec![f(1, &[LONG, 2]), i64s(&[], |_| 0)]);
    agree("cumulative", none(), &vec![typed(DType::I64, 1, &[LONG]), i64s(&[], |_| 0)]);
}

#[test]
fn rows() {
    agree("softmax", none(), &vec![f(1, &[1, 1_200_000])]);
    agree("layer_norm", none(), &vec![f(1, &[1, 1_200_000]), None, None]);
}

#[test]
fn orders() {
    agree("topk", none(), &vec![f(1, &[2, LONG]), i64s(&[1], |_| 5)]);
    agree("unique", none().with("sorted", false), &vec![i64s(&[LONG], |i| (i as i64 * 7919) % 30_011)]);
    agree("unique", none(), &vec![i64s(&[LONG], |i| (i as i64 * 7919) % 30_011)]);
    let x = i64s(&[2_300_000], |i| i64::from(i % 1000 == 7));
    agree("nonzero", none(), &vec![x]);
}

#[test]
fn boxes() {
    let n = 1_100;
    let corner = |i: usize| ((i * 7919) % 1009) as f32;
    let boxes: Vec<f32> =
        (0..n).flat_map(|i| [corner(i), corner(i * 3), corner(i) + 30.0, corner(i * 3) + 40.0]).collect();
    let scores: Vec<f32> = (0..n * 2).map(|i| ((i * 104_729) % 99_991) as f32 / 99_991.0).collect();
    let inputs = vec![
        Tensor::f32(&[1, n, 4], &boxes),
        Tensor::f32(&[1, 2, n], &scores),
        i64s(&[1], |_| 1_100),
        Tensor::f32(&[1], &[0.3]),
        Tensor::f32(&[1], &[0.1]),
    ];
    agree("nms", none(), &inputs);
    agree("nms", none().with("by_score", true), &inputs);
}

#[test]
fn losses_and_scatters() {
    let target = i64s(&[LONG * 60], |i| (i % 3) as i64);
    agree("nll_loss", none(), &vec![f(1, &[LONG * 60, 3]), target]);
    agree(
        "scatter_elements",
        none().with("reduction", "add"),
        &vec![f(1, &[5]), i64s(&[LONG], |i| (i % 5) as i64), f(2, &[LONG])],
    );
    agree(
        "scatter_nd",
        none().with("reduction", "max"),
        &vec![f(1, &[5, 2]), i64s(&[LONG, 1], |i| (i % 5) as i64), f(2, &[LONG, 2])],
    );
    let plane = i64s(&[1, 1, 140, 140], |i| (i * 4) as i64);
    agree(
        "max_unpool",
        none().with("kernel", vec![2i64, 2]).with("strides", vec![2i64, 2]),
        &vec![f(1, &[1, 1, 140, 140]), plane],
    );
}

#[test]
fn attention_over_many_keys() {
    let inputs = vec![f(1, &[1, 1, 2, 8]), f(2, &[1, 1, LONG, 8]), f(3, &[1, 1, LONG, 8])];
    agree("attention", none(), &inputs);
}

#[test]
fn recurrences() {
    // One step of one sequence takes more iterations than a launch can do.
    let (n, h) = (600, 700);
    let small = |seed, shape: &[usize]| Some(Rng::new(seed).tensor_in(DType::F32, shape, -0.05, 0.05, 0));
    for (op, gates) in [("lstm", 4), ("gru", 3)] {
        agree(
            op,
            none(),
            &vec![f(1, &[2, 1, n]), small(2, &[1, gates * h, n]), small(3, &[1, gates * h, h])],
        );
    }
}

#[test]
fn determinants_and_counts() {
    let n = 60;
    let v: Vec<f32> =
        (0..n * n).map(|i| if i % (n + 1) == 0 { 1.5 } else { ((i * 37) % 11) as f32 / 110.0 }).collect();
    agree("det", none(), &vec![Tensor::f32(&[n, n], &v)]);
    agree(
        "resize",
        none().with("mode", "linear").with("antialias", true),
        &vec![f(1, &[1, 1, 600, 600]), None, None, i64s(&[4], |i| [1, 1, 2, 2][i])],
    );
}

#[test]
fn weights_beyond_one_binding() {
    let Some((device, target)) = device() else { return };
    let (k, n) = (40_000, 1_000);
    // A matrix of few different numbers, so that sums can be told without the oracle.
    let weight: Vec<f32> = (0..k * n).map(|i| ((i / n * 31 + i % n * 17) % 13) as f32 - 6.0).collect();
    let x: Vec<f32> = (0..k).map(|i| (i % 5) as f32 - 2.0).collect();
    let inputs = vec![Tensor::f32(&[1, k], &x), Tensor::f32(&[k, n], &weight)];
    assert!(k as u64 * n as u64 * 4 > 128 << 20);
    let op = Op::new("matmul", none()).expect("matmul");
    let (mut program, given) = Program::single(&op, &inputs).expect("a program");
    program.choose(&Wgpu, &target).expect("tactics");
    let found = run(device.as_ref(), program, &given).expect("runs")[0].to_f64();
    for j in (0..n).step_by(37) {
        let wanted: f64 = (0..k).map(|i| f64::from(x[i]) * f64::from(weight[i * n + j])).sum();
        assert!(
            (found[j] - wanted).abs() <= 1e-5 * wanted.abs().max(1000.0),
            "{j}: {} is not {wanted}",
            found[j]
        );
    }
}

#[test]
fn indices_out_of_range_are_errors() {
    let Some((device, target)) = device() else { return };
    for (name, indices) in
        [("scatter_elements", i64s(&[2], |i| [1, 5][i])), ("scatter_nd", i64s(&[2, 1], |i| [-6, 1][i]))]
    {
        let op = Op::new(name, none()).expect(name);
        let inputs = vec![f(1, &[5]), indices, f(2, &[2])];
        let (mut program, given) = Program::single(&op, &inputs).expect(name);
        program.choose(&Wgpu, &target).expect("tactics");
        let failed = run(device.as_ref(), program, &given).expect_err("an index is out of range");
        assert!(
            matches!(&failed, BackendError::Execution { message, .. } if message.contains("element")),
            "{failed}"
        );
    }
}
