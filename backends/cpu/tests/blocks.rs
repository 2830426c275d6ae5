//! Sizes at which kernels divide their work: whole blocks and vectors, and what is left over.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod common;

use common::{assert_close, run, single};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Fact, Graph, Op, Tensor, TensorType};

fn compare(what: &str, op: &str, attrs: Attrs, inputs: &[Tensor]) {
    let op = Op::new(op, attrs).unwrap();
    let (g, inputs) = single(&op, &inputs.iter().cloned().map(Some).collect::<Vec<_>>());
    let wanted = run(&g, "oracle", &inputs, false).unwrap();
    assert_close(what, &run(&g, "fast", &inputs, false).unwrap(), &wanted, 1e-5);
}

/// Right sides where they are stored, with and without room behind the last panel, and those that tasks pack.
#[test]
fn products_of_inputs() {
    let mut rng = Rng::new(5);
    for (m, k, n) in
        [(34, 34, 784), (34, 34, 49), (7, 60, 131), (129, 20, 33), (6, 300, 200), (5, 1, 70), (130, 400, 90)]
    {
        for batch in [1, 3] {
            let x = [rng.tensor(DType::F32, &[batch, m, k]), rng.tensor(DType::F32, &[batch, k, n])];
            compare(&format!("{batch} of {m}x{k}x{n}"), "matmul", Attrs::new(), &x);
        }
    }
}

/// Planes whose rows are shorter and longer than vectors, and whose number of rows is not that of a block.
#[test]
fn planes_of_any_size() {
    let mut rng = Rng::new(6);
    for (high, wide) in [(1, 1), (3, 7), (7, 7), (9, 15), (14, 14), (5, 16), (29, 31), (2, 40)] {
        for stride in [1i64, 2] {
            let attrs = || Attrs::new().with("strides", vec![stride; 2]).with("pads", vec![1i64; 4]);
            let what = format!("{high}x{wide} by {stride}");
            let x = rng.tensor(DType::F32, &[2, 6, high, wide]);
            let alone = [x.clone(), rng.tensor(DType::F32, &[6, 1, 3, 3]), rng.tensor(DType::F32, &[6])];
            compare(&what, "conv", attrs().with("groups", 6i64), &alone);
            let grouped = [x.clone(), rng.tensor(DType::F32, &[20, 3, 3, 3]), rng.tensor(DType::F32, &[20])];
            compare(&what, "conv", attrs().with("groups", 2i64), &grouped);
            for op in ["max", "average"] {
                compare(&what, "pool", attrs().with("kernel", vec![3i64; 2]).with("op", op), &[x.clone()]);
            }
        }
    }
}

/// Pieces of rows that are longer than one.
#[test]
fn long_rows_are_joined() {
    let mut rng = Rng::new(7);
    let x = [30_000, 7, 20_001].map(|n| rng.tensor(DType::F32, &[2, n]));
    compare("rows", "concat", Attrs::new().with("axis", 1i64), &x);
}

/// A cache in front of keys and values, for one query and for many.
#[test]
fn attention_reads_caches_where_they_are() {
    let mut rng = Rng::new(8);
    for (queries, past) in [(1, 37), (5, 64), (40, 0), (3, 1)] {
        let mut heads = |n: usize, len: usize| Some(rng.tensor(DType::F32, &[2, n, len, 8]));
        let (q, k, v) = (heads(4, queries), heads(2, queries), heads(2, queries));
        let inputs = [q, k, v, None, heads(2, past), heads(2, past)];
        let op = Op::new("attention", Attrs::new().with("causal", true)).unwrap();
        let (mut g, inputs) = single(&op, &inputs);
        let wanted = run(&g, "oracle", &inputs, false).unwrap();
        assert_close("all results", &run(&g, "fast", &inputs, false).unwrap(), &wanted, 1e-5);
        // Results that nobody reads are left out.
        g.outputs.truncate(1);
        assert_close("one result", &run(&g, "fast", &inputs, false).unwrap(), &wanted[..1], 1e-5);
    }
}

/// Numbers that are not numbers stay so under a bound, in whole blocks and behind them.
#[test]
fn bounds_after_products_keep_nan() {
    let mut rng = Rng::new(9);
    let (m, k, n) = (3, 5, 77);
    let mut g = Graph::new("bound");
    let ty = |dims: [i64; 2]| Fact::of(TensorType::new(DType::F32, dims));
    let (a, b) = (g.add_input("a", ty([m, k])), g.add_input("b", ty([k, n])));
    let op = |name: &str| Op::new(name, Attrs::new()).unwrap();
    let y = g.add_node("product", op("matmul"), &[Some(a), Some(b)]).unwrap()[0];
    g.outputs = g.add_node("bound", op("relu"), &[Some(y)]).unwrap();
    let mut values = rng.tensor(DType::F32, &[m as usize, k as usize]).to_f64();
    values[7] = f64::NAN;
    let bytes: Vec<u8> = values.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect();
    let a = Tensor::from_bytes(DType::F32, &[m as usize, k as usize], bytes).unwrap();
    let inputs = [a, rng.tensor(DType::F32, &[k as usize, n as usize])];
    let found = run(&g, "fast", &inputs, true).unwrap();
    assert_close("bound", &found, &run(&g, "oracle", &inputs, false).unwrap(), 1e-5);
    assert!(found[0].to_f64()[n as usize..2 * n as usize].iter().all(|x| x.is_nan()));
}
