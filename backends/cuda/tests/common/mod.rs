//! Problems for tensor cores: every element type, way to lie and epilogue, at sizes that leave parts of tiles empty.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(dead_code, reason = "every test uses a part")]

pub mod device;
mod many;
pub mod nvrtc;
pub mod report;

use kiln_backend::{Backend, Region, Tactic, Target};
use kiln_backend_cuda::Cuda;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Elems, Fact, Graph, Op, Tensor, ValueId};
use kiln_ops::matmul::sparse::pack::packed;
use kiln_ops::matmul::sparse::random_sparse;

/// A region with inputs.
pub struct Case {
    pub label: String,
    pub graph: Graph,
    pub inputs: Vec<Tensor>,
    /// Greatest difference of an element, for sums of about this depth.
    noise: f64,
}

impl Case {
    pub fn region(&self) -> Region {
        Region::extract(&self.graph, self.graph.order()).unwrap()
    }

    /// Tactics of the backend that are `own`, of which there must be some.
    pub fn tactics(&self, target: &Target, own: impl Fn(&Tactic) -> bool) -> Vec<Tactic> {
        if self.inputs.first().is_some_and(|t| t.dtype() == DType::F8E4M3) {
            // Chips have none of these instructions, or not the sparse one; that of sm_90a wants rows of whole vectors.
            let depth = self.inputs[0].shape().last().copied().unwrap_or(0);
            let sparse = self.label.starts_with("matmul_sparse")
                && target.arch != "sm_89"
                && (target.arch != "sm_90a" || depth == 0 || !depth.is_multiple_of(16));
            if sparse || !target.has("f8") {
                return Vec::new();
            }
        }
        // Other targets have no tiles for them.
        let of_wgmma = ["gated_matmul", "norm_matmul"].iter().any(|op| self.label.starts_with(op));
        if of_wgmma && target.arch != "sm_90a" {
            return Vec::new();
        }
        let all = Cuda.tactics(&self.region(), target).unwrap_or_else(|e| panic!("{}: {e}", self.label));
        let found: Vec<_> = all.into_iter().filter(own).collect();
        assert!(!found.is_empty(), "{}: no tactic of its own", self.label);
        found
    }

    /// Text of the differences between results, if there are any.
    pub fn differs(&self, found: &Tensor, wanted: &Tensor) -> Option<String> {
        if (found.dtype(), found.shape()) != (wanted.dtype(), wanted.shape()) {
            return Some(format!("{} {:?}", found.dtype(), found.shape()));
        }
        let (x, y) = (found.to_f64(), wanted.to_f64());
        // A NaN is not near anything.
        let near = |x: f64, y: f64| (x - y).abs() <= self.noise * (1.0 + y.abs());
        let bad: Vec<_> = x.iter().zip(&y).enumerate().filter(|(_, (x, y))| !near(**x, **y)).collect();
        let &(at, (x, y)) = bad.first()?;
        Some(format!("{} of {} wrong; {x} for {y} at {at}", bad.len(), found.len()))
    }
}

/// Layers after the product.
#[derive(Clone, Copy, PartialEq)]
pub enum Tail {
    Nothing,
    /// Plus a bias of the columns, relu, plus another image, to f32.
    Residual,
    /// Times a number of the row, gelu's erf.
    Scaled,
    /// Plus a bias of the columns, relu.
    Biased,
    /// Plus a number, at least another, plus a third: of 16 bits they fill no whole words.
    Numbers,
}

/// Relative to the greatest number on the way: a place or two of the narrow types, which every step rounds to.
fn noise(t: DType, depth: usize) -> f64 {
    let eps = match t {
        // Every step of 32 products is added to a sum, of about the root of the depth, that keeps 13 bits of fraction.
        DType::F8E4M3 => return (2 + depth / 32) as f64 * (2.0 + (depth as f64).sqrt()) / 8192.0,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        DType::F32 => 1e-3,
        _ => return 0.0,
    };
    // Operands of TF32 are rounded; the others' products are exact.
    let of_sums = if t == DType::F32 { 2e-3 * (depth as f64).sqrt() } else { 0.0 };
    eps + of_sums
}

/// One operator on given inputs, those that the host reads and those from number `weights` on as constants, and what follows.
pub fn build(
    label: String,
    op: Op,
    given: &[Option<Tensor>],
    weights: usize,
    tail: Tail,
    depth: usize,
) -> Case {
    let mut g = Graph::new("case");
    let mut inputs = Vec::new();
    let ids: Vec<Option<ValueId>> = given
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let t = t.as_ref()?;
            if i >= weights || op.port(i).is_some_and(|p| p.host) {
                return Some(g.add_constant(&format!("w{i}"), t.clone()));
            }
            inputs.push(t.clone());
            Some(g.add_input(&format!("x{i}"), Fact::of(t.ty())))
        })
        .collect();
    let y = g.add_node("product", op, &ids).unwrap()[0];
    let ty = g.ty(y).clone();
    let mut rng = Rng::new(77);
    let dims: Vec<usize> = ty.static_dims().unwrap();
    let mut also = |g: &mut Graph, name: &str, dims: &[usize]| {
        let t = rng.tensor(ty.dtype, dims);
        let v = g.add_input(name, Fact::of(t.ty()));
        inputs.push(t);
        v
    };
    let plain = |name: &str| Op::new(name, Attrs::new()).unwrap();
    let last = dims.last().copied().unwrap_or(1);
    let result = match tail {
        Tail::Nothing => y,
        Tail::Residual => {
            let b = also(&mut g, "bias", &[last]);
            let r = also(&mut g, "residual", &dims);
            let s = g.add("biased", plain("add"), &[y, b]).unwrap();
            let s = g.add("relu", plain("relu"), &[s]).unwrap();
            let s = g.add("sum", plain("add"), &[s, r]).unwrap();
            g.add("cast", Op::new("cast", Attrs::new().with("to", DType::F32)).unwrap(), &[s]).unwrap()
        }
        Tail::Biased => {
            let b = also(&mut g, "bias", &[last]);
            let s = g.add("biased", plain("add"), &[y, b]).unwrap();
            g.add("relu", plain("relu"), &[s]).unwrap()
        }
        Tail::Scaled => {
            let mut own = dims.clone();
            if let Some(l) = own.last_mut() {
                *l = 1;
            }
            let b = also(&mut g, "scale", &own);
            let s = g.add("scaled", plain("mul"), &[y, b]).unwrap();
            g.add("erf", plain("erf"), &[s]).unwrap()
        }
        Tail::Numbers => ["add", "max", "add"].into_iter().enumerate().fold(y, |s, (i, op)| {
            let number = also(&mut g, &format!("number{i}"), &[1]);
            g.add(&format!("{op}{i}"), plain(op), &[s, number]).unwrap()
        }),
    };
    g.outputs = vec![result];
    Case { label, graph: g, inputs, noise: noise(given[0].as_ref().unwrap().dtype(), depth) }
}

/// A matrix, or its transpose, with batch dimensions.
fn matrix(rng: &mut Rng, t: DType, batch: &[usize], rows: usize, cols: usize, trans: bool) -> Option<Tensor> {
    let own = if trans { [cols, rows] } else { [rows, cols] };
    let dims: Vec<usize> = batch.iter().copied().chain(own).collect();
    Some(rng.tensor(t, &dims))
}

/// Rows, columns, depth.
const SIZES: &[[usize; 3]] =
    &[[200, 136, 264], [17, 9, 33], [130, 257, 70], [1, 64, 520], [64, 1, 8], [5, 8, 0]];

fn products(out: &mut Vec<Case>) {
    use DType::{BF16, F8E4M3, F16, F32, I8, U8};
    let mut rng = Rng::new(11);
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    let mut one = |types: (DType, DType), ways: &[(bool, bool)], tail: Tail| {
        for &(ta, tb) in ways {
            for &[m, n, k] in SIZES {
                let attrs = Attrs::new().with("trans_a", ta).with("trans_b", tb);
                let batch: (&[usize], &[usize]) = if k == 70 { (&[2, 1], &[3]) } else { (&[], &[]) };
                let a = matrix(&mut rng, types.0, batch.0, m, k, ta);
                let b = matrix(&mut rng, types.1, batch.1, k, n, tb);
                let label = format!("matmul {} {} {m}x{n}x{k} {ta} {tb} {}", types.0, types.1, tail as u8);
                out.push(build(label, Op::new("matmul", attrs).unwrap(), &[a, b], 2, tail, k));
            }
        }
    };
    one((F16, F16), &ways, Tail::Nothing);
    one((F32, F32), &ways, Tail::Nothing);
    one((I8, I8), &ways, Tail::Nothing);
    one((F8E4M3, F8E4M3), &ways, Tail::Nothing);
    one((F8E4M3, F8E4M3), &ways[1..2], Tail::Biased);
    one((BF16, BF16), &ways[..1], Tail::Nothing);
    one((U8, I8), &ways[..1], Tail::Nothing);
    one((F16, F16), &ways[..2], Tail::Residual);
    one((F16, F16), &ways[..1], Tail::Scaled);
    one((BF16, BF16), &ways[1..2], Tail::Biased);
    one((F16, F16), &ways[..2], Tail::Numbers);
    let vector = |rng: &mut Rng| Some(rng.tensor(F16, &[72]));
    let a = matrix(&mut rng, F16, &[], 40, 72, false);
    let op = || Op::new("matmul", Attrs::new()).unwrap();
    out.push(build("matrix by vector".into(), op(), &[a, vector(&mut rng)], 2, Tail::Nothing, 72));
    let b = matrix(&mut rng, F16, &[2], 72, 48, false);
    out.push(build("vector by matrices".into(), op(), &[vector(&mut rng), b], 2, Tail::Nothing, 72));
}

/// Rows, columns, depth of products by weights.
const BY_WEIGHTS: &[[usize; 3]] = &[
    [130, 72, 256],
    [7, 200, 768],
    [33, 64, 64],
    [1, 8, 1536],
    [300, 136, 512],
    [0, 64, 128],
    [19, 35, 3072],
];

fn by_weights(out: &mut Vec<Case>) {
    use DType::{BF16, F8E4M3, F16, F32, I8, U8};
    let mut rng = Rng::new(13);
    for (a, b, trans, tail) in [
        (F16, F16, true, Tail::Nothing),
        (F16, F16, false, Tail::Residual),
        (BF16, BF16, true, Tail::Scaled),
        (F32, F32, true, Tail::Nothing),
        (I8, I8, true, Tail::Nothing),
        (U8, I8, true, Tail::Nothing),
        (F8E4M3, F8E4M3, true, Tail::Nothing),
    ] {
        for &[m, n, k] in BY_WEIGHTS {
            let op = Op::new("matmul", Attrs::new().with("trans_b", trans)).unwrap();
            let given = [matrix(&mut rng, a, &[], m, k, false), matrix(&mut rng, b, &[], k, n, trans)];
            let label = format!("matmul {a} by weights {b} {m}x{n}x{k} {trans} {}", tail as u8);
            out.push(build(label, op, &given, 1, tail, k));
        }
    }
}

/// Rows, results of a row and depth of gated products and of products of normalized rows.
const GATED: &[[usize; 3]] =
    &[[130, 64, 256], [7, 96, 768], [300, 160, 512], [19, 32, 3072], [1, 32, 64], [0, 64, 128]];

fn gated_and_normalized(out: &mut Vec<Case>) {
    use DType::{BF16, F16, F32};
    let mut rng = Rng::new(16);
    for (t, trans, [gate, value], normalized, tail) in [
        (F16, true, ["swish", "none"], false, Tail::Nothing),
        (F16, false, ["swish", "none"], true, Tail::Residual),
        (BF16, true, ["gelu", "none"], true, Tail::Biased),
        (F16, true, ["sigmoid", "tanh"], false, Tail::Scaled),
        (F32, true, ["gelu_tanh", "none"], false, Tail::Nothing),
        (F16, false, ["none", "relu"], true, Tail::Numbers),
    ] {
        for &[m, n, k] in GATED {
            // Sums of a magnitude of about 1.
            let most = 1.5 / (k as f64).sqrt();
            let mut weights = |columns: usize| {
                let own = if trans { [columns, k] } else { [k, columns] };
                rng.tensor_in(t, &own, -most, most, 0)
            };
            let (w, both) = (weights(n), weights(2 * n));
            let x = rng.tensor_in(t, &[m, k], -1.0, 1.0, 0);
            let sums = |w: &Tensor| {
                let (v, columns) = (w.to_f64(), w.len() / k);
                let at = |i: usize, j: usize| if trans { j * k + i } else { i * columns + j };
                let all = (0..columns).map(|j| (0..k).map(|i| v[at(i, j)]).sum()).collect();
                Tensor::from_elems(DType::F32, &[columns], &Elems::F(all)).unwrap()
            };
            let attrs = || Attrs::new().with("trans_b", trans).with("epsilon", 1e-3);
            // By squares where there are few columns.
            let centered = n > 64;
            let bias = rng.tensor_in(t, &[2 * n], -1.0, 1.0, 0);
            let given = [
                Some(x.clone()),
                Some(both.clone()),
                normalized.then_some(bias),
                (normalized && centered).then(|| sums(&both)),
            ];
            let op = attrs().with("gate", gate).with("value", value).with("normalized", normalized);
            let label =
                format!("gated_matmul {t} {m}x{n}x{k} {trans} {gate} {value} {normalized} {}", tail as u8);
            out.push(build(label, Op::new("gated_matmul", op).unwrap(), &given, 1, tail, k));
            if normalized {
                let label = format!("norm_matmul {t} {m}x{n}x{k} {trans} {centered} {}", tail as u8);
                let given = [Some(x), Some(w.clone()), centered.then(|| sums(&w))];
                out.push(build(label, Op::new("norm_matmul", attrs()).unwrap(), &given, 1, tail, k));
            }
        }
    }
}

/// Rows, columns, depth of products by 2:4 sparse weights.
const BY_SPARSE: &[[usize; 3]] = &[
    [200, 136, 264],
    [130, 257, 140],
    [17, 9, 36],
    [1, 64, 520],
    [300, 136, 512],
    [64, 1, 8],
    [0, 64, 128],
    [5, 8, 0],
    [19, 35, 3076],
    [19, 35, 3088],
    [270, 264, 144],
    [300, 1000, 32],
];

fn by_sparse_weights(out: &mut Vec<Case>) {
    use DType::{BF16, F8E4M3, F16, I8, U8};
    let mut rng = Rng::new(14);
    for (a, b, tail) in [
        (F16, F16, Tail::Nothing),
        (F16, F16, Tail::Residual),
        (BF16, BF16, Tail::Scaled),
        (I8, I8, Tail::Nothing),
        (U8, I8, Tail::Nothing),
        (I8, U8, Tail::Nothing),
        (U8, U8, Tail::Nothing),
        (F8E4M3, F8E4M3, Tail::Nothing),
    ] {
        for &[m, n, k] in BY_SPARSE {
            let op = Op::new("matmul_sparse", Attrs::new()).unwrap();
            let (values, places) = packed(&random_sparse(&mut rng, b, n, k)).unwrap();
            let given = [Some(rng.tensor(a, &[m, k])), Some(values), Some(places)];
            let label = format!("matmul_sparse {a} by {b} {m}x{n}x{k} {}", tail as u8);
            out.push(build(label, op, &given, 1, tail, k));
        }
    }
}

/// Rows, outputs, depth, elements that share a scale along the depth and across outputs.
const BY_CODES: &[[usize; 5]] = &[
    [130, 257, 256, 32, 1],
    [300, 136, 512, 128, 1],
    [17, 72, 96, 96, 1],
    [1, 8, 1536, 16, 3],
    [70, 40, 160, 8, 1],
    [130, 96, 128, 32, 1],
    [33, 264, 64, 64, 264],
    [0, 64, 128, 64, 1],
    [19, 35, 3072, 64, 1],
];

fn by_codes(out: &mut Vec<Case>) {
    use DType::{BF16, F16, F32, I4, I8, U8};
    let mut rng = Rng::new(15);
    for (a, b, zero, tail) in [
        (F16, I4, true, Tail::Nothing),
        (F16, I4, false, Tail::Residual),
        (F16, I8, true, Tail::Biased),
        (F16, U8, true, Tail::Nothing),
        (BF16, I4, true, Tail::Scaled),
        (BF16, I8, false, Tail::Nothing),
        (BF16, U8, true, Tail::Nothing),
        (F32, I4, true, Tail::Nothing),
        (F32, I8, true, Tail::Nothing),
    ] {
        for &[m, n, k, along, across] in BY_CODES {
            let attrs = Attrs::new().with("along", along as i64).with("across", across as i64);
            let parts = [n.div_ceil(across), k.div_ceil(along)];
            // Weights of a magnitude of about 1.
            let most = if b == I4 { 0.2 } else { 0.012 };
            let scale = rng.tensor_in(a, &parts, most / 2.0, most, 0);
            let given = [
                Some(rng.tensor(a, &[m, k])),
                Some(rng.tensor_in(b, &[n, k], 0.0, 0.0, 127)),
                Some(scale),
                zero.then(|| rng.tensor_in(b, &parts, 0.0, 0.0, 120)),
            ];
            let label = format!("matmul_codes {a} by {b} {m}x{n}x{k} {along} {across} {}", tail as u8);
            let mut case = build(label, Op::new("matmul_codes", attrs).unwrap(), &given, 1, tail, k);
            // Tiles round every weight: errors of some thousandths of the noise each, which add up as the root of the depth. The
            // greatest of 100,000 results is five standard deviations off.
            case.noise *= 1.0 + (k as f64).sqrt() / 3.0;
            out.push(case);
        }
    }
}

struct Window {
    label: &'static str,
    x: &'static [usize],
    w: &'static [usize],
    groups: i64,
    strides: &'static [i64],
    pads: &'static [i64],
    dilations: &'static [i64],
}

const BASE: Window = Window { label: "", x: &[], w: &[], groups: 1, strides: &[], pads: &[], dilations: &[] };

const WINDOWS: &[Window] = &[
    Window { label: "3x3", x: &[2, 13, 11, 64], w: &[72, 3, 3, 64], pads: &[1, 1, 1, 1], ..BASE },
    Window { label: "1x1", x: &[3, 9, 7, 48], w: &[200, 1, 1, 48], ..BASE },
    Window { label: "1x1 to many", x: &[2, 13, 11, 128], w: &[160, 1, 1, 128], ..BASE },
    Window { label: "3x3 to some", x: &[2, 12, 11, 64], w: &[96, 3, 3, 64], pads: &[1, 1, 1, 1], ..BASE },
    Window {
        label: "3x3 of many channels",
        x: &[3, 9, 7, 256],
        w: &[72, 3, 3, 256],
        strides: &[2, 1],
        pads: &[1, 0, 0, 1],
        ..BASE
    },
    Window { label: "1x1 of very many channels", x: &[3, 7, 7, 2048], w: &[72, 1, 1, 2048], ..BASE },
    Window {
        label: "1x1 of many channels",
        x: &[2, 14, 13, 512],
        w: &[136, 1, 1, 512],
        strides: &[1, 2],
        ..BASE
    },
    Window {
        label: "strided, dilated, uneven pads",
        x: &[1, 19, 23, 16],
        w: &[24, 3, 2, 16],
        strides: &[2, 3],
        pads: &[2, 0, 1, 3],
        dilations: &[2, 3],
        ..BASE
    },
    Window { label: "groups", x: &[2, 8, 9, 96], w: &[48, 3, 3, 32], groups: 3, pads: &[1, 1, 1, 1], ..BASE },
    Window {
        label: "few channels",
        x: &[2, 20, 21, 3],
        w: &[32, 7, 7, 3],
        strides: &[2, 2],
        pads: &[3, 3, 3, 3],
        ..BASE
    },
    Window {
        label: "few channels, long lines",
        x: &[2, 7, 150, 3],
        w: &[72, 3, 3, 3],
        pads: &[2, 1, 0, 1],
        dilations: &[2, 1],
        ..BASE
    },
    Window { label: "odd channels", x: &[1, 10, 9, 21], w: &[35, 3, 3, 21], pads: &[0, 1, 0, 1], ..BASE },
    Window { label: "1-D", x: &[2, 50, 32], w: &[40, 5, 32], strides: &[2], pads: &[2, 1], ..BASE },
    Window {
        label: "3-D",
        x: &[1, 5, 6, 7, 16],
        w: &[16, 3, 2, 3, 16],
        pads: &[1, 0, 1, 1, 1, 1],
        strides: &[2, 1, 1],
        ..BASE
    },
];

fn convolutions(out: &mut Vec<Case>) {
    use DType::{BF16, F8E4M3, F16, F32, I8};
    let mut rng = Rng::new(12);
    for (i, w) in WINDOWS.iter().chain(many::WINDOWS).enumerate() {
        for (t, sums, tail) in [
            (F16, F16, Tail::Nothing),
            (F16, F16, Tail::Residual),
            (BF16, BF16, Tail::Scaled),
            (F32, F32, Tail::Biased),
            (I8, DType::I32, Tail::Nothing),
            (F8E4M3, F32, Tail::Nothing),
        ] {
            let attrs = Attrs::new()
                .with("layout", "channels_last")
                .with("groups", w.groups)
                .with("strides", w.strides)
                .with("pads", w.pads)
                .with("dilations", w.dilations);
            let bias = (i % 2 == 0).then(|| rng.tensor(sums, &w.w[..1]));
            let inputs = [Some(rng.tensor(t, w.x)), Some(rng.tensor(t, w.w)), bias];
            let depth = w.w[1..].iter().product();
            let label = format!("conv {} {t} {}", w.label, tail as u8);
            // Weights are weights in every second one.
            let weights = 1 + 2 * (i % 2);
            out.push(build(label, Op::new("conv", attrs).unwrap(), &inputs, weights, tail, depth));
        }
    }
}

/// All problems.
pub fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    products(&mut out);
    many::small_products(&mut out);
    by_weights(&mut out);
    gated_and_normalized(&mut out);
    by_sparse_weights(&mut out);
    by_codes(&mut out);
    convolutions(&mut out);
    out
}

/// Results of `work` on any elements, on all cores.
pub fn parallel<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> Option<R> + Sync) -> Vec<R> {
    report::parallel(all, work).into_iter().flatten().collect()
}
