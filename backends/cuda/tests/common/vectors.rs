//! Problems for kernels of rows, reductions, moves and windows of single channels: shapes that fill vectors and such that don't.

use crate::common::{Case, Tail, build};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op, Tensor};

/// Tactics whose names end so are for these problems.
pub const OWN: &[&str] = &[".rows", ".columns", ".vectors", ".depthwise", ".channels"];

const TYPES: &[(DType, Tail)] = &[
    (DType::F16, Tail::Nothing),
    (DType::F16, Tail::Residual),
    (DType::BF16, Tail::Scaled),
    (DType::F32, Tail::Nothing),
];

/// No input is a weight.
const ALL: usize = usize::MAX;

fn list(v: &[i64]) -> Option<Tensor> {
    Tensor::i64(&[v.len()], v)
}

/// Shapes whose last dimension is a row, or the last two, where a second list says so.
const ROWS: &[(&[usize], i64)] = &[
    (&[5, 3, 8], -1),
    (&[197, 768], -1),
    (&[7, 49], -1),
    (&[3, 1000], -1),
    (&[2, 3, 6, 40], -2),
    (&[9, 3072], -1),
    (&[2, 4104], -1),
    (&[33, 9], -1),
    (&[2, 1027], -1),
    (&[130, 197], -1),
    (&[4, 512], -1),
];

fn rows(out: &mut Vec<Case>) {
    let mut rng = Rng::new(21);
    for &(shape, axis) in ROWS {
        for &(t, tail) in TYPES {
            let x = rng.tensor(t, shape);
            let own = &shape[shape.len() - axis.unsigned_abs() as usize..];
            for (name, parameters) in [("softmax", 0), ("log_softmax", 0), ("layer_norm", 2), ("rms_norm", 1)]
            {
                // Statistics beside the result allow no tail.
                let (of_rows, tailed) = (parameters == 0, tail != Tail::Nothing);
                if (of_rows && axis != -1) || (name == "layer_norm" && tailed) {
                    continue;
                }
                let mut inputs = vec![Some(x.clone())];
                inputs.extend((0..parameters).map(|_| Some(rng.tensor(t, own))));
                let op = Op::new(name, Attrs::new().with("axis", axis)).unwrap();
                let label = format!("{name} {t} {shape:?} {}", tail as u8);
                out.push(build(label, op, &inputs, ALL, tail, 1));
            }
        }
    }
}

/// Shapes, reduced axes.
const REDUCTIONS: &[(&[usize], &[i64])] = &[
    (&[3, 7, 9, 64], &[1, 2]),
    (&[1, 56, 56, 24], &[1, 2]),
    (&[2, 112, 100, 16], &[1, 2]),
    (&[5, 33, 7], &[1]),
    (&[40, 600], &[0]),
    (&[6, 5, 4104], &[2]),
    (&[300, 17], &[1]),
    (&[3, 4, 5, 24], &[2, 3]),
    (&[3000, 64], &[1]),
];

fn reductions(out: &mut Vec<Case>) {
    let mut rng = Rng::new(22);
    for &(shape, axes) in REDUCTIONS {
        for &(t, tail) in TYPES {
            for name in ["mean", "max", "l2"] {
                let inputs = [Some(rng.tensor(t, shape)), list(axes)];
                let op = Op::new("reduce", Attrs::new().with("op", name)).unwrap();
                let label = format!("reduce {name} {t} {shape:?} {axes:?} {}", tail as u8);
                out.push(build(label, op, &inputs, ALL, tail, 1));
            }
        }
        let inputs = [Some(rng.tensor(DType::I64, shape)), list(axes)];
        let op = Op::new("reduce", Attrs::new().with("op", "max").with("keep_dims", false)).unwrap();
        out.push(build(format!("reduce i64 {shape:?} {axes:?}"), op, &inputs, ALL, Tail::Nothing, 1));
    }
}

/// Shapes and orders of dimensions.
const TRANSPOSES: &[(&[usize], &[i64])] = &[
    (&[2, 5, 3, 16], &[0, 2, 1, 3]),
    (&[2, 70, 9, 11], &[0, 2, 3, 1]),
    (&[3, 130, 67], &[0, 2, 1]),
    (&[4, 24, 17, 19], &[0, 2, 3, 1]),
    (&[7, 3, 20, 33], &[2, 0, 3, 1]),
    (&[2, 3, 40, 5], &[3, 1, 0, 2]),
    (&[65, 64], &[1, 0]),
    // Phases of an image with channels last, put between each other.
    (&[2, 5, 33, 2, 2, 24], &[0, 5, 1, 3, 2, 4]),
    (&[2, 4, 40, 2, 2, 72], &[0, 5, 1, 3, 2, 4]),
];

/// Shapes, starts, ends and steps of the last two axes.
const SLICES: &[(&[usize], [[i64; 2]; 3])] = &[
    (&[3, 9, 64], [[2, 8], [7, 56], [1, 1]]),
    (&[3, 9, 64], [[0, 3], [9, 60], [2, 1]]),
    (&[2, 10, 33], [[9, 32], [0, 0], [-1, -3]]),
    (&[5, 6, 768], [[0, 256], [6, 512], [1, 1]]),
];

fn moves(out: &mut Vec<Case>) {
    let mut rng = Rng::new(23);
    let wide = TYPES.iter().copied();
    let types = wide.chain([DType::I64, DType::U8].map(|t| (t, Tail::Nothing)));
    for (t, tail) in types {
        for &(shape, perm) in TRANSPOSES {
            let op = Op::new("transpose", Attrs::new().with("perm", perm)).unwrap();
            let label = format!("transpose {t} {shape:?} {perm:?} {}", tail as u8);
            out.push(build(label, op, &[Some(rng.tensor(t, shape))], ALL, tail, 1));
        }
        for &(shape, [starts, ends, steps]) in SLICES {
            let x = Some(rng.tensor(t, shape));
            let inputs = [x, list(&starts), list(&ends), list(&[-2, -1]), list(&steps)];
            let op = Op::new("slice", Attrs::new()).unwrap();
            let label = format!("slice {t} {shape:?} {starts:?} {ends:?} {steps:?} {}", tail as u8);
            out.push(build(label, op, &inputs, ALL, tail, 1));
        }
        for (shape, axis) in
            [(vec![6, 5, 24], 1i64), (vec![6, 50, 3], 1), (vec![40, 96], 0), (vec![3, 4, 9], -1)]
        {
            let n = shape[if axis < 0 { shape.len() - 1 } else { axis as usize }] as i64;
            let picks = Tensor::i64(&[2, 4], &[0, n - 1, -1, 1, -n, 2, 0, 1]);
            let op = Op::new("gather", Attrs::new().with("axis", axis)).unwrap();
            let label = format!("gather {t} {shape:?} {axis} {}", tail as u8);
            out.push(build(label, op, &[Some(rng.tensor(t, &shape)), picks], ALL, tail, 1));
        }
        for (shapes, axis) in [
            (vec![vec![2, 3, 24], vec![2, 1, 24], vec![2, 5, 24]], 1i64),
            (vec![vec![3, 7], vec![3, 0], vec![3, 30]], 1),
            (vec![vec![5, 8], vec![5, 16]], -1),
        ] {
            let inputs: Vec<_> = shapes.iter().map(|s| Some(rng.tensor(t, s))).collect();
            let op = Op::new("concat", Attrs::new().with("axis", axis)).unwrap();
            out.push(build(format!("concat {t} {shapes:?} {}", tail as u8), op, &inputs, ALL, tail, 1));
        }
    }
}

/// Image, kernel, strides, pads.
const WINDOWS: &[(&[usize], [usize; 2], [i64; 2], [i64; 4])] = &[
    (&[2, 13, 11, 24], [3, 3], [1, 1], [1, 1, 1, 1]),
    (&[1, 14, 15, 72], [5, 5], [2, 2], [2, 1, 2, 3]),
    (&[2, 9, 7, 136], [7, 7], [1, 1], [3, 3, 3, 3]),
    (&[1, 30, 31, 8], [3, 2], [2, 3], [0, 1, 1, 0]),
];

fn windows(out: &mut Vec<Case>) {
    let mut rng = Rng::new(24);
    for (i, &(shape, kernel, strides, pads)) in WINDOWS.iter().enumerate() {
        let c = shape[3];
        let attrs = || {
            let a = Attrs::new().with("layout", "channels_last");
            a.with("strides", &strides[..]).with("pads", &pads[..])
        };
        for &(t, tail) in TYPES {
            let bias = (i % 2 == 0).then(|| rng.tensor(t, &[c]));
            let weights = rng.tensor(t, &[c, kernel[0], kernel[1], 1]);
            let inputs = [Some(rng.tensor(t, shape)), Some(weights), bias];
            let op = Op::new("conv", attrs().with("groups", c as i64)).unwrap();
            out.push(build(format!("depthwise {t} {shape:?} {}", tail as u8), op, &inputs, ALL, tail, 49));
            for name in ["max", "average"] {
                let own = attrs().with("op", name).with("kernel", &[kernel[0] as i64, kernel[1] as i64][..]);
                let op = Op::new("pool", own).unwrap();
                let label = format!("pool {name} {t} {shape:?} {}", tail as u8);
                out.push(build(label, op, &[Some(rng.tensor(t, shape))], ALL, tail, 1));
            }
        }
    }
}

/// All of them.
pub fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    rows(&mut out);
    reductions(&mut out);
    moves(&mut out);
    windows(&mut out);
    out
}
