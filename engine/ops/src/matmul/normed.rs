//! The product of normalized rows and a matrix, without the normalized rows.

use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::stop::checkpoint;
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    NORM_MATMUL = "norm_matmul",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: NORM_MATMUL,
    doc: "Matrix product of the normalized rows of X [.., M, K] and W [K, N], or [N, K] with trans_b. With `sums`, the sums of W \
          over K in f32, rows are normalized by mean and variance: (X·W − mean·sums)/√(var + epsilon). Without them by the mean \
          of squares: X·W/√(mean(x²) + epsilon). The variance is the mean of squares less the square of the mean. Computed in \
          f32 at least, rounded once.",
    inputs: &[input("x"), input("w"), optional("sums")],
    outputs: &["y"],
    attrs: &[attr("trans_b", || Attr::Bool(false)), attr("epsilon", || Attr::Float(1e-5))],
    infer,
    eval,
    tolerance: Tolerance::Conditioned,
    problems,
    traits: Traits::heavy(|s| s.made(0).saturating_mul(s.from_last(0, 0))),
    roles: Roles { absorbs_pointwise: true, ..Roles::NONE },
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let float = |t: DType| matches!(t, DType::F16 | DType::BF16 | DType::F32);
    cx.check_dtype(0, float, "f16, bf16 or f32")?;
    cx.same_dtype(0, 1)?;
    cx.check_shape(0, |d| d.len() >= 2, "at least two dimensions")?;
    cx.check_rank(1, 2)?;
    let mut dims = cx.dims(0)?.to_vec();
    let depth = dims.pop().unwrap_or_else(|| Dim::new(1));
    let [rows, columns] = [0, 1].map(|i| cx.dims(1).map(|d| d[i].clone()));
    let (rows, columns) = (rows?, columns?);
    let (rows, columns) = if cx.attrs.bool("trans_b")? { (columns, rows) } else { (rows, columns) };
    if differ(&rows, &depth) {
        return Err(cx.bad_shape(1, &format!("a depth of {depth}")));
    }
    if cx.has(2) {
        cx.check_dtype(2, |t| t == DType::F32, "f32")?;
        let fits = |d: &[Dim]| d.len() == 1 && !differ(&d[0], &columns);
        cx.check_shape(2, fits, "an element for each column")?;
    }
    dims.push(columns);
    Ok(vec![Fact::of(TensorType { dtype: cx.ty(0)?.dtype, dims })])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let (trans, epsilon) = (cx.attrs().bool("trans_b")?, cx.attrs().float("epsilon")?);
    let depth = x.shape().last().copied().unwrap_or(0);
    let n = w.shape()[usize::from(!trans)];
    let (v, m, sums) = (x.to_f64(), w.to_f64(), cx.get(2).map(Tensor::to_f64));
    let at = |k: usize, j: usize| if trans { j * depth + k } else { k * n + j };
    let rows: usize = x.shape().iter().rev().skip(1).product();
    let mut y = Vec::with_capacity(rows.saturating_mul(n));
    for row in 0..rows {
        let own = &v[row * depth..][..depth];
        let mean_of = |f: fn(f64) -> f64| own.iter().map(|&x| f(x)).sum::<f64>() / depth as f64;
        let mean = if sums.is_some() { mean_of(|x| x) } else { 0.0 };
        let by = (mean_of(|x| x * x) - mean * mean + epsilon).sqrt();
        for j in 0..n {
            checkpoint();
            let product: f64 = own.iter().enumerate().map(|(k, x)| x * m[at(k, j)]).sum();
            y.push((product - mean * sums.as_ref().map_or(0.0, |s| s[j])) / by);
        }
    }
    Ok(vec![cx.make(0, &cx.out_shape(0)?, Elems::F(y))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, &[usize], usize, bool)] = &[
        ("odd", &[5, 7], 3, false),
        ("whole parts of the depth", &[3, 5, 128], 72, false),
        ("whole parts, transposed", &[130, 192], 136, true),
        ("a long depth", &[9, 1024], 64, true),
        ("many rows", &[300, 64], 33, true),
        ("a row", &[1, 256], 40, false),
        ("no row", &[0, 64], 8, true),
        ("no column", &[4, 64], 0, true),
    ];
    let mut out = Vec::new();
    for &(label, shape, n, trans) in cases {
        for t in [DType::F32, DType::F16, DType::BF16] {
            let k = shape[shape.len() - 1];
            let (x, w) = (rng.tensor(t, shape), rng.tensor(t, &if trans { [n, k] } else { [k, n] }));
            let at = |i: usize, j: usize| if trans { j * k + i } else { i * n + j };
            let v = w.to_f64();
            let sums = (0..n).map(|j| (0..k).map(|i| v[at(i, j)]).sum()).collect();
            let attrs = || Attrs::new().with("trans_b", trans).with("epsilon", 1e-3);
            let by_squares = [Some(x.clone()), Some(w.clone()), None];
            out.push(Problem::of(&format!("{label} {t}, by squares"), NORM_MATMUL, attrs(), by_squares));
            let sums = Tensor::from_elems(DType::F32, &[n], &Elems::F(sums));
            out.push(Problem::of(&format!("{label} {t}"), NORM_MATMUL, attrs(), [Some(x), Some(w), sums]));
        }
    }
    out
}
