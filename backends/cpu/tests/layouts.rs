//! Data movement, norms and windows at sizes where one side is short, and pointwise layers whose operands are one number a channel.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod common;

use common::{assert_close, run, single};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Fact, Graph, Op, Tensor};

/// Results of the kernel and of the oracle.
fn both(op: &Op, inputs: &[Tensor]) -> [Vec<Tensor>; 2] {
    let (g, inputs) = single(op, &inputs.iter().cloned().map(Some).collect::<Vec<_>>());
    ["fast", "oracle"].map(|tactic| run(&g, tactic, &inputs, false).unwrap())
}

fn equal(what: &str, op: &str, attrs: Attrs, inputs: &[Tensor]) {
    let [found, wanted] = both(&Op::new(op, attrs).unwrap(), inputs);
    assert!(found == wanted, "{what}");
}

#[test]
fn transposes_with_a_short_side() {
    let mut rng = Rng::new(41);
    let sides = [
        (300, 13),
        (13, 300),
        (37, 50),
        (5, 4),
        (16, 16),
        (2060, 11),
        (11, 2060),
        (33, 65),
        (7, 4),
        (1100, 6),
        (520, 67),
    ];
    for dtype in [DType::U8, DType::F16, DType::I32, DType::I64] {
        for (a, b) in sides {
            let x = rng.tensor(dtype, &[a, b]);
            equal(
                &format!("{a}x{b} of {dtype}"),
                "transpose",
                Attrs::new().with("perm", vec![1i64, 0]),
                &[x],
            );
            let x = rng.tensor(dtype, &[3, a, b]);
            for perm in [vec![0i64, 2, 1], vec![2, 0, 1], vec![1, 2, 0]] {
                let what = format!("3x{a}x{b} of {dtype} by {perm:?}");
                equal(&what, "transpose", Attrs::new().with("perm", perm), &[x.clone()]);
            }
        }
    }
}

#[test]
fn rows_of_short_parts() {
    let mut rng = Rng::new(42);
    for dtype in [DType::U8, DType::F16, DType::I32, DType::I64] {
        for widths in [&[1usize, 1][..], &[1, 3, 5, 1], &[4, 0, 2], &[40, 1, 7]] {
            let x: Vec<Tensor> = widths.iter().map(|&n| rng.tensor(dtype, &[700, n])).collect();
            equal(&format!("{widths:?} of {dtype}"), "concat", Attrs::new().with("axis", 1i64), &x);
        }
    }
}

#[test]
fn norms_of_lines_of_any_length_and_magnitude() {
    let mut rng = Rng::new(43);
    let shapes: [&[usize]; 7] =
        [&[7, 55], &[3, 1, 4], &[2, 300, 33], &[1, 5, 700], &[70_000, 2], &[2, 0, 3], &[0, 4]];
    for (shape, scale) in shapes.into_iter().flat_map(|s| [1f32, 1e-42, 1e30].map(|scale| (s, scale))) {
        let x = rng.tensor(DType::F32, shape).to_f64();
        let mut x: Vec<f32> = x.iter().map(|&x| x as f32 * scale).collect();
        // A line of zeros, and numbers that are none.
        x.iter_mut().take(shape[shape.len() - 1]).for_each(|x| *x = 0.0);
        let special = [f32::INFINITY, f32::NAN].into_iter().filter(|_| scale == 1.0);
        x.iter_mut().rev().step_by(40).zip(special).for_each(|(x, s)| *x = s);
        let x = Tensor::f32(shape, &x).unwrap();
        for (axis, p) in (0..shape.len() as i64).flat_map(|axis| [(axis, 1i64), (axis, 2)]) {
            let op = Op::new("lp_norm", Attrs::new().with("axis", axis).with("p", p)).unwrap();
            let [found, wanted] = both(&op, &[x.clone()]);
            assert_close(&format!("{shape:?} by {axis}, {p}"), &found, &wanted, 1e-7);
        }
    }
}

#[test]
fn places_of_maxima_under_windows_of_any_shape() {
    let mut rng = Rng::new(44);
    for dtype in [DType::I8, DType::F32] {
        for (stride, dilation, pads) in [(1i64, 1i64, 0i64), (2, 1, 1), (3, 2, 1), (1, 3, 2)] {
            for (order, shape) in
                [(0i64, vec![2usize, 3, 19]), (0, vec![1, 5, 11, 14]), (1, vec![2, 2, 9, 10])]
            {
                let rank = shape.len() - 2;
                let all = |n: i64, count: usize| vec![n; count];
                let attrs = Attrs::new()
                    .with("kernel", all(3, rank))
                    .with("strides", all(stride, rank))
                    .with("dilations", all(dilation, rank))
                    .with("pads", all(pads, 2 * rank))
                    .with("storage_order", order);
                let what = format!("{shape:?} of {dtype}, {stride} {dilation} {pads} {order}");
                equal(&what, "max_pool_indices", attrs, &[rng.tensor(dtype, &shape)]);
            }
        }
    }
}

#[test]
fn updates_are_combined_in_order() {
    let mut rng = Rng::new(45);
    for how in ["add", "mul", "max", "min"] {
        for dtype in [DType::F32, DType::F16, DType::I64, DType::U8] {
            for (axis, shape, count) in
                [(0i64, [1usize, 24, 80], 1usize), (1, [6, 9, 400], 20), (2, [40, 30, 7], 15)]
            {
                let mut places = shape;
                places[axis as usize] = count;
                let n = shape[axis as usize] as i64;
                let indices: Vec<i64> = (0..places.iter().product()).map(|_| rng.int(-n, n - 1)).collect();
                let inputs = [
                    rng.tensor(dtype, &shape),
                    Tensor::i64(&places, &indices).unwrap(),
                    rng.tensor(dtype, &places),
                ];
                let op = Op::new("scatter_elements", Attrs::new().with("axis", axis).with("reduction", how))
                    .unwrap();
                let [found, wanted] = both(&op, &inputs);
                let rel = if dtype == DType::F16 { 1e-2 } else { 1e-5 };
                assert_close(&format!("{how} of {dtype} along {axis}"), &found, &wanted, rel);
            }
        }
    }
}

#[test]
fn the_only_element_that_is_kept_of_short_lines() {
    let mut rng = Rng::new(46);
    for (axis, shape) in
        [(2i64, [50usize, 90, 1]), (0, [1, 70, 70]), (1, [40, 5, 33]), (2, [60, 90, 8]), (2, [10, 10, 9])]
    {
        for (dtype, largest) in
            [DType::F32, DType::I32, DType::U8].into_iter().flat_map(|d| [(d, true), (d, false)])
        {
            let k = rng.i64s(&[1], &[1]);
            let attrs = Attrs::new().with("axis", axis).with("largest", largest);
            equal(
                &format!("{shape:?} of {dtype} along {axis}"),
                "topk",
                attrs,
                &[rng.tensor(dtype, &shape), k],
            );
        }
    }
}

/// x·a + b of channels, as one step; x is an input, or what an earlier layer has made.
#[test]
fn factors_and_summands_of_channels() {
    let mut rng = Rng::new(47);
    for shape in [[2usize, 7, 598], [3, 5, 32], [1, 2, 20_000], [4, 9, 20], [2, 300, 33]] {
        for (factor, term, before) in [
            ([1, shape[1], 1], [1, shape[1], 1], false),
            ([1, 1, 1], [shape[0], shape[1], 1], true),
            ([shape[0], 1, 1], [1, shape[1], 1], false),
        ] {
            let mut g = Graph::new("channels");
            let inputs = [
                rng.tensor(DType::F32, &shape),
                rng.tensor(DType::F32, &factor),
                rng.tensor(DType::F32, &term),
            ];
            let [mut x, a, b] = ["x", "a", "b"]
                .map(|name| name)
                .into_iter()
                .zip(&inputs)
                .map(|(name, t)| g.add_input(name, Fact::of(t.ty())))
                .collect::<Vec<_>>()[..]
            else {
                panic!()
            };
            if before {
                let reshape = g
                    .add_node(
                        "exp",
                        Op::new("transpose", Attrs::new().with("perm", vec![0i64, 1, 2])).unwrap(),
                        &[Some(x)],
                    )
                    .unwrap();
                x = reshape[0];
            }
            let y = g.add_node("mul", Op::new("mul", Attrs::new()).unwrap(), &[Some(x), Some(a)]).unwrap();
            g.outputs =
                g.add_node("add", Op::new("add", Attrs::new()).unwrap(), &[Some(y[0]), Some(b)]).unwrap();
            let wanted = run(&g, "oracle", &inputs, false).unwrap();
            let found = run(&g, "fast", &inputs, true).unwrap();
            assert_close(&format!("{shape:?} by {factor:?} and {term:?}"), &found, &wanted, 1e-6);
        }
    }
}

#[test]
fn codes_of_channels_become_floats() {
    let mut rng = Rng::new(48);
    for dtype in [DType::I8, DType::U8] {
        for (shape, channels) in
            [([2usize, 7, 576], 7usize), ([3, 5, 32], 5), ([1, 2, 20_000], 2), ([2, 9, 20], 9)]
        {
            let numbers = [1, channels, 1];
            let [x, zero] = [&shape, &numbers].map(|s| rng.tensor(dtype, s));
            let inputs = [x, rng.tensor(DType::F32, &numbers), zero];
            equal(&format!("{shape:?} of {dtype}"), "dequantize", Attrs::new(), &inputs);
        }
    }
}
