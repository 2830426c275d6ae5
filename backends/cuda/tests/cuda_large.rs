//! A tensor of more than 2^31 elements is filled, reduced, multiplied and gathered from. Takes 10 GB of device memory; skipped
//! without a device, unless `KILN_REQUIRE_CUDA=1`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

#[path = "common/device.rs"]
mod device;

use device::device;
use kiln_backend::{Program, Tactic};
use kiln_backend_cuda::Cuda;
use kiln_ir::{Attrs, DType, Fact, Graph, Op, Tensor, TensorType, ValueId};
use std::sync::Arc;

/// 2^31 and some more elements.
const ROWS: usize = 32_769;
const COLS: usize = 65_537;
/// Rows that are looked at.
const PICKED: [i64; 4] = [0, 16_384, 32_767, 32_768];

fn column(c: usize) -> f64 {
    (c % 61) as f64
}

fn row(r: usize) -> f64 {
    (r % 7) as f64
}

fn node(g: &mut Graph, name: &str, op: &str, attrs: Attrs, inputs: &[ValueId]) -> ValueId {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    g.add_node(name, Op::new(op, attrs).unwrap(), &inputs).unwrap()[0]
}

fn halves(shape: &[usize], value: impl Fn(usize) -> f64) -> Tensor {
    let n = shape.iter().product::<usize>();
    Tensor::from_elems(DType::F16, shape, &kiln_ir::Elems::F((0..n).map(value).collect())).unwrap()
}

/// The sum of a column and a row vector, and what is made of it.
fn program() -> Program {
    let mut g = Graph::new("large");
    let input = |g: &mut Graph, name: &str, shape: [i64; 2]| {
        g.add_input(name, Fact::of(TensorType::new(DType::F16, shape)))
    };
    let cols = input(&mut g, "cols", [1, COLS as i64]);
    let rows = input(&mut g, "rows", [ROWS as i64, 1]);
    let picks = input(&mut g, "picks", [COLS as i64, 8]);
    let wide = node(&mut g, "wide", "add", Attrs::new(), &[rows, cols]);
    let at = g.add_constant("at", Tensor::i64(&[PICKED.len()], &PICKED).unwrap());
    let some = node(&mut g, "some", "gather", Attrs::new().with("axis", 0i64), &[wide, at]);
    let axes = g.add_constant("axes", Tensor::i64(&[1], &[1]).unwrap());
    let most = node(&mut g, "most", "reduce", Attrs::new().with("op", "max"), &[wide, axes]);
    let ends = node(&mut g, "ends", "matmul", Attrs::new(), &[wide, picks]);
    g.outputs = vec![some, most, ends];
    Program::step_per_node(g, &Tactic::plain(""))
}

#[test]
fn a_tensor_of_more_than_two_to_the_31_elements() {
    let Some((device, target)) = device() else { return };
    let mut program = program();
    program.choose(&Cuda, &target).unwrap();
    for s in &program.steps {
        println!("{}: {}", s.name, s.tactic.id());
    }
    let program = Arc::new(program);
    let mut context = device.load(program.clone()).unwrap().context().unwrap();
    // Only the first and the last element of a row count.
    let ends = halves(&[COLS, 8], |i| if i / 8 == 0 || i / 8 == COLS - 1 { (i % 8) as f64 } else { 0.0 });
    let inputs = [halves(&[1, COLS], column), halves(&[ROWS, 1], row), ends];
    let shapes = Arc::new(program.shapes(&inputs).unwrap());
    context.enqueue(&inputs, &shapes).unwrap();
    let found = context.outputs().unwrap();
    let (some, most, ends) = (found[0].to_f64(), found[1].to_f64(), found[2].to_f64());
    for (i, &r) in PICKED.iter().enumerate() {
        let wrong = (0..COLS).find(|&c| some[i * COLS + c] != row(r as usize) + column(c));
        assert_eq!(wrong, None, "row {r}");
    }
    for r in 0..ROWS {
        assert_eq!(most[r], row(r) + 60.0, "row {r}");
        let sum = column(0) + column(COLS - 1) + 2.0 * row(r);
        for j in 0..8 {
            assert_eq!(ends[r * 8 + j], sum * j as f64, "row {r}, {j}");
        }
    }
}
