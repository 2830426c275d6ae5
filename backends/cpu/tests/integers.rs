//! Products of integers whose sums wrap, at sizes around those of tiles and blocks, with elements of any magnitude.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod common;

use common::{run, single, weighed};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op, Tensor};

/// Magnitudes of elements: within 16 bits, within 32, at their limits, and all 64 bits.
#[derive(Clone, Copy, Debug)]
enum Size {
    Small,
    Half,
    Edge,
    Whole,
}

/// Random integers of a type; those of 32 bits are the lower halves.
fn integers(rng: &mut Rng, dtype: DType, shape: &[usize], size: Size) -> Tensor {
    let limits = [i64::from(i32::MIN), i64::from(i32::MAX), i64::from(i32::MAX) + 1, i64::MIN, i64::MAX, -1];
    let one = |rng: &mut Rng| match size {
        Size::Small => rng.int(-300, 300),
        Size::Half => i64::from(rng.bits() as i32),
        Size::Edge => rng.pick(&limits).unwrap(),
        Size::Whole => rng.bits() as i64,
    };
    let all: Vec<i64> = (0..shape.iter().product::<usize>()).map(|_| one(rng)).collect();
    match dtype {
        DType::I64 => Tensor::i64(shape, &all).unwrap(),
        _ => {
            let bytes: Vec<u8> = all.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect();
            Tensor::from_bytes(dtype, shape, bytes).unwrap()
        }
    }
}

/// The product of matrices, one element at a time; b may be one matrix for all of a.
fn product(a: &Tensor, b: &Tensor) -> Vec<i64> {
    let (&[batch, m, k], n) = (a.shape().first_chunk().unwrap(), *b.shape().last().unwrap());
    let (x, y) = (a.to_i64(), b.to_i64());
    let apart = if b.shape().len() == 3 { k * n } else { 0 };
    let mut c = Vec::new();
    for (i, r, j) in (0..batch).flat_map(|i| (0..m).flat_map(move |r| (0..n).map(move |j| (i, r, j)))) {
        let sum = (0..k).fold(0i64, |sum, p| {
            sum.wrapping_add(x[(i * m + r) * k + p].wrapping_mul(y[i * apart + p * n + j]))
        });
        c.push(if a.dtype() == DType::I32 { i64::from(sum as i32) } else { sum });
    }
    c
}

#[test]
fn products_wrap_whatever_their_sizes() {
    let mut rng = Rng::new(31);
    let sizes = [
        (1, 1, 1),
        (5, 70, 1),
        (130, 33, 1),
        (1, 300, 1),
        (1, 40, 519),
        (3, 17, 9),
        (6, 300, 2),
        (67, 260, 4),
        (4, 9, 5),
        (66, 521, 13),
        (9, 5, 100),
        (2, 64, 3),
        (65, 1, 8),
        (0, 4, 3),
        (3, 0, 5),
        (4, 6, 0),
    ];
    for (m, k, n) in sizes {
        for (dtype, size, own) in [DType::I32, DType::I64].into_iter().flat_map(|d| {
            [Size::Small, Size::Half, Size::Edge, Size::Whole].map(|s| (d, s, true)).into_iter().chain([(
                d,
                Size::Whole,
                false,
            )])
        }) {
            let a = integers(&mut rng, dtype, &[2, m, k], size);
            let shape = if own { vec![2, k, n] } else { vec![k, n] };
            let b = integers(&mut rng, dtype, &shape, size);
            let op = Op::new("matmul", Attrs::new()).unwrap();
            let (g, inputs) = single(&op, &[Some(a.clone()), Some(b.clone())]);
            let what = format!("{m}x{k}x{n} of {dtype}, {size:?}, {own}");
            let found = run(&g, "fast", &inputs, false).unwrap();
            assert!(found[0].to_i64() == product(&a, &b), "{what}");
            let (g, inputs) = weighed(&op, a.clone(), b.clone());
            assert!(
                run(&g, "fast", &inputs, false).unwrap()[0].to_i64() == product(&a, &b),
                "{what}, a weight"
            );
        }
    }
}

#[test]
fn transposed_operands_and_vectors_have_the_products_of_the_oracle() {
    let mut rng = Rng::new(32);
    for (m, k, n) in [(1, 7, 1), (2, 300, 11), (70, 300, 1), (33, 9, 3), (66, 270, 21), (1, 20, 300)] {
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            for dtype in [DType::I32, DType::I64] {
                let a = integers(&mut rng, dtype, &if ta { [k, m] } else { [m, k] }, Size::Whole);
                let b = integers(&mut rng, dtype, &if tb { [n, k] } else { [k, n] }, Size::Whole);
                let op = Op::new("matmul", Attrs::new().with("trans_a", ta).with("trans_b", tb)).unwrap();
                same(&op, &[a, b], &format!("{m}x{k}x{n} of {dtype}, {ta} {tb}"));
            }
        }
        let op = Op::new("matmul", Attrs::new()).unwrap();
        let [row, column] = [[m, k], [k, n]].map(|s| integers(&mut rng, DType::I64, &s, Size::Whole));
        let vector = integers(&mut rng, DType::I64, &[k], Size::Whole);
        same(&op, &[row, vector.clone()], "a matrix by a vector");
        same(&op, &[vector.clone(), column], "a vector by a matrix");
        same(&op, &[vector.clone(), vector], "two vectors");
    }
}

fn same(op: &Op, inputs: &[Tensor], what: &str) {
    let (g, inputs) = single(op, &inputs.iter().cloned().map(Some).collect::<Vec<_>>());
    let wanted = run(&g, "oracle", &inputs, false).unwrap();
    assert!(run(&g, "fast", &inputs, false).unwrap() == wanted, "{what}");
}
