//! Kernels that load and store whole words, of shapes long enough for them, beside the oracle.
#![allow(
    clippy::print_stdout,
    clippy::panic,
    reason = "a test that is skipped says so, one that fails says of what"
)]

mod beside_oracle;

use beside_oracle::{agree, f};
use kiln_ir::{Attrs, DType, Tensor};

const TYPES: [DType; 4] = [DType::F16, DType::F32, DType::I8, DType::I64];

/// Runs an operator of one tensor by a tactic, in all types.
fn of_one(name: &str, attrs: &Attrs, shape: &[usize], others: &[Option<Tensor>], by: &str) {
    for t in TYPES {
        let inputs = [f(t, 1, shape)].into_iter().chain(others.iter().cloned()).collect();
        agree(name, attrs.clone(), &inputs, by);
    }
}

fn i64s(values: &[i64]) -> Option<Tensor> {
    Tensor::i64(&[values.len()], values)
}

#[test]
fn expressions_of_spread_operands() {
    for other in [&[40][..], &[16, 1], &[5, 1, 40], &[1], &[5, 16, 40], &[5, 1, 1]] {
        for t in TYPES {
            agree("add", Attrs::new(), &vec![f(t, 1, &[5, 16, 40]), f(t, 2, other)], "pointwise");
            agree("less", Attrs::new(), &vec![f(t, 1, &[5, 16, 40]), f(t, 2, other)], "pointwise");
        }
    }
    // Rows that no thread has whole.
    for n in [3, 13, 41] {
        agree("mul", Attrs::new(), &vec![f(DType::F16, 1, &[7, 5, n]), f(DType::F16, 2, &[n])], "pointwise");
        agree(
            "mul",
            Attrs::new(),
            &vec![f(DType::F16, 1, &[7, 5, n]), f(DType::F16, 2, &[5, 1])],
            "pointwise",
        );
    }
}

#[test]
fn moves_by_runs() {
    let perm = |p: &[i64]| Attrs::new().with("perm", p.to_vec());
    for p in [[0, 2, 1, 3], [0, 3, 1, 2], [3, 2, 1, 0]] {
        of_one("transpose", &perm(&p), &[3, 8, 5, 16], &[], "transpose");
    }
    of_one("transpose", &perm(&[0, 3, 1, 2]), &[2, 9, 12, 45], &[], "transpose.tiled");
    of_one("transpose", &perm(&[0, 2, 3, 1]), &[2, 68, 7, 9], &[], "transpose.tiled");
    of_one("transpose", &perm(&[3, 1, 2, 0]), &[16, 5, 3, 40], &[], "transpose.tiled");
    of_one("transpose", &perm(&[0, 2, 3, 1]), &[2, 2, 3, 9], &[], "transpose.interleaved");
    of_one("transpose", &perm(&[0, 3, 1, 4, 2]), &[3, 2, 4, 5, 7], &[], "transpose.interleaved");
    of_one("transpose", &perm(&[0, 3, 1, 4, 2]), &[3, 2, 2, 5, 16], &[], "transpose.interleaved");
    let block = Attrs::new().with("block", 2i64);
    for mode in ["DCR", "CRD"] {
        of_one("depth_to_space", &block.clone().with("mode", mode), &[2, 8, 5, 16], &[], "depth_to_space");
    }
    of_one("space_to_depth", &block, &[2, 3, 6, 32], &[], "space_to_depth");
    let bounds = [i64s(&[1, 3]), i64s(&[4, 37]), i64s(&[0, 1]), i64s(&[1, 2])];
    of_one("slice", &Attrs::new(), &[5, 40], &bounds, "slice");
    for mode in ["constant", "edge", "reflect", "wrap"] {
        let pads = [i64s(&[1, 3, 2, 9])];
        of_one("pad", &Attrs::new().with("mode", mode), &[4, 30], &pads, "pad");
    }
    let axis = |k: i64| Attrs::new().with("axis", k);
    of_one("gather", &axis(1), &[3, 7, 24], &[i64s(&[6, 0, 3, -1])], "gather");
    let parts = |t: DType, n: usize| vec![f(t, 1, &[3, 8, n]), f(t, 2, &[3, 1, n]), f(t, 3, &[3, 5, n])];
    for t in TYPES {
        agree("concat", axis(1), &parts(t, 16), "concat");
        agree("concat", axis(1), &parts(t, 13), "concat");
    }
}

#[test]
fn rows_in_fours() {
    for t in [DType::F16, DType::F32] {
        for shape in [&[5, 512][..], &[3, 4100], &[2, 9000], &[1030, 8], &[7, 77], &[2, 12, 16]] {
            let n = shape[shape.len() - 1];
            let x = || f(t, 1, shape);
            agree("softmax", Attrs::new().with("axis", -1i64), &vec![x()], "softmax");
            agree("log_softmax", Attrs::new().with("axis", -1i64), &vec![x()], "log_softmax");
            let norm = Attrs::new().with("axis", -1i64);
            agree("layer_norm", norm.clone(), &vec![x(), f(t, 2, &[n]), f(t, 3, &[n])], "layer_norm");
            agree("rms_norm", norm, &vec![x(), f(t, 2, &[n])], "rms_norm");
            let sum = Attrs::new().with("op", "sum");
            if n > 64 {
                agree("reduce", sum, &vec![x(), i64s(&[-1])], "reduce.group");
            }
        }
        agree("softmax", Attrs::new().with("axis", 1i64), &vec![f(t, 1, &[3, 20, 16])], "softmax");
        for inner in [16, 15] {
            let x = f(t, 1, &[2, 12, 4, inner]);
            let groups = Attrs::new().with("groups", 3i64);
            agree("group_norm", groups, &vec![x, f(t, 2, &[12]), f(t, 3, &[12])], "group_norm");
        }
    }
}

#[test]
fn columns_in_fours() {
    for t in [DType::F16, DType::F32, DType::I64, DType::I32] {
        for op in ["sum", "max", "mean"].into_iter().filter(|op| t.is_float() || *op != "mean") {
            for (shape, axes) in [(&[300, 64][..], &[0][..]), (&[9, 20, 12], &[0]), (&[5, 40, 3, 8], &[0, 2])]
            {
                let attrs = Attrs::new().with("op", op);
                agree("reduce", attrs, &vec![f(t, 1, shape), i64s(axes)], "reduce.columns");
            }
        }
    }
}

#[test]
fn products_of_few_rows() {
    let turned = |b: bool| Attrs::new().with("trans_b", b);
    for t in [DType::F16, DType::F32] {
        for (m, k, n) in [(1, 1500, 260), (3, 301, 131), (4, 64, 40), (2, 4097, 3)] {
            agree("matmul", turned(false), &vec![f(t, 1, &[m, k]), f(t, 2, &[k, n])], "matmul.rows");
            agree("matmul", turned(true), &vec![f(t, 1, &[m, k]), f(t, 2, &[n, k])], "matmul.rows");
        }
        agree("matmul", turned(false), &vec![f(t, 1, &[5, 1, 300]), f(t, 2, &[5, 300, 20])], "matmul.rows");
        agree("matmul", turned(false), &vec![f(t, 1, &[2, 700]), f(t, 2, &[700])], "matmul.rows");
    }
}

#[test]
fn blocks_stored_by_words() {
    for (m, n) in [(20, 40), (19, 36), (5, 9)] {
        for t in [DType::F16, DType::F32] {
            for by in ["matmul.block", "matmul.tiled"] {
                agree("matmul", Attrs::new(), &vec![f(t, 1, &[2, m, 30]), f(t, 2, &[30, n])], by);
            }
        }
        agree(
            "matmul",
            Attrs::new(),
            &vec![f(DType::I8, 1, &[m, 30]), f(DType::I8, 2, &[30, n])],
            "matmul.dot",
        );
    }
    for layout in ["linear", "channels_last"] {
        let linear = layout == "linear";
        let (x, w) = if linear { ([1, 5, 6, 12], [20, 5, 2, 2]) } else { ([1, 6, 12, 5], [20, 2, 2, 5]) };
        for by in ["conv.block", "conv.tiled"] {
            let given = vec![f(DType::F16, 1, &x), f(DType::F16, 2, &w), f(DType::F16, 3, &[20])];
            agree("conv", Attrs::new().with("layout", layout), &given, by);
        }
    }
}

#[test]
fn windows_side_by_side() {
    for t in [DType::F16, DType::F32] {
        for layout in ["linear", "channels_last"] {
            let shape = |c: usize| if layout == "linear" { [2, c, 9, 20] } else { [2, 9, 20, c] };
            let weights = if layout == "linear" { [12, 1, 3, 3] } else { [12, 3, 3, 1] };
            for (stride, dilation) in [(1i64, 1i64), (2, 1), (1, 2), (2, 2)] {
                let attrs = Attrs::new().with("strides", vec![stride, stride]).with("layout", layout);
                let attrs =
                    attrs.with("dilations", vec![dilation, dilation]).with("pads", vec![1i64, 2, 1, 1]);
                let conv = vec![f(t, 1, &shape(12)), f(t, 2, &weights), f(t, 3, &[12])];
                agree("conv", attrs.clone().with("groups", 12i64), &conv, "conv.depthwise");
                for op in ["max", "average"] {
                    let pool = attrs.clone().with("op", op).with("kernel", vec![3i64, 3]);
                    agree("pool", pool, &vec![f(t, 1, &shape(12))], "pool");
                }
            }
        }
    }
}

#[test]
fn resizes_in_fours() {
    for mode in ["nearest", "linear", "cubic"] {
        for (shape, scales) in [
            ([2, 3, 6, 10], [1.0, 1.0, 2.0, 2.4]),
            ([1, 2, 9, 16], [1.0, 1.0, 0.5, 8.0]),
            ([2, 5, 7, 8], [1.0, 2.0, 1.5, 1.0]),
            ([1, 4, 6, 6], [1.0, 3.0, 0.7, 1.0]),
        ] {
            let scales = Tensor::f32(&[4], &scales);
            of_one("resize", &Attrs::new().with("mode", mode), &shape, &[None, scales, None], "resize");
        }
    }
}
