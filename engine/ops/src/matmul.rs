//! Matrix multiplication.

pub mod codes;
pub mod det;
pub mod einsum;
pub mod gated;
pub mod normed;
pub mod sparse;

use crate::util::{broadcast_strides, for_each_index, offset, product_dtype};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, broadcast, unify};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::stop::checkpoint;
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::{TensorType, dims_text};

kiln_ir::op_names! {
    MATMUL = "matmul",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: MATMUL,
    doc: "Batched matrix product of A [.., M, K] and B [.., K, N], giving [.., M, N]. With trans_a (trans_b) the last \
          two dimensions of A (B) are swapped. Batch dimensions broadcast; a 1-D input is a vector whose dimension is \
          then dropped. Floats accumulate in f32 at least and round once to the input type; i8 and u8 (mixed allowed) \
          give i32; f8e4m3 gives f32; i32 and i64 wrap.",
    inputs: &[input("a"), input("b")],
    outputs: &["y"],
    attrs: &[attr("trans_a", || Attr::Bool(false)), attr("trans_b", || Attr::Bool(false))],
    infer,
    eval,
    ranges: None,
    expr: None,
    roles: Roles { absorbs_pointwise: true, ..Roles::NONE },
    traits: Traits::heavy(|s| {
        // The depth is the last dimension of A, or the one before it.
        let before = s.attrs.bool("trans_a").unwrap_or(false) && s.dims(0).len() > 1;
        s.made(0).saturating_mul(s.from_last(0, usize::from(before)))
    }),
    tolerance: Tolerance::Sum,
    problems,
}];

/// A matrix operand's batch dimensions, rows and columns; rows (or columns) of a vector are `None`.
struct Operand<D> {
    batch: Vec<D>,
    rows: Option<D>,
    cols: Option<D>,
}

fn operand<D: Clone>(dims: &[D], trans: bool, left: bool) -> Operand<D> {
    match dims {
        [n] if left => Operand { batch: vec![], rows: None, cols: Some(n.clone()) },
        [n] => Operand { batch: vec![], rows: Some(n.clone()), cols: None },
        [batch @ .., r, c] => {
            let (r, c) = if trans { (c, r) } else { (r, c) };
            Operand { batch: batch.to_vec(), rows: Some(r.clone()), cols: Some(c.clone()) }
        }
        [] => Operand { batch: vec![], rows: None, cols: None },
    }
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let (a, b) = (cx.ty(0)?, cx.ty(1)?);
    cx.check_shape(0, |d| !d.is_empty(), "at least one dimension")?;
    cx.check_shape(1, |d| !d.is_empty(), "at least one dimension")?;
    let dtype = product_dtype(cx, 0, 1)?;
    let l = operand(&a.dims, cx.attrs.bool("trans_a")?, true);
    let r = operand(&b.dims, cx.attrs.bool("trans_b")?, false);
    let misfit = |wanted: &str| OpError::Mismatch {
        a: dims_text(&a.dims),
        b: dims_text(&b.dims),
        wanted: wanted.into(),
    };
    if let (Some(x), Some(y)) = (&l.cols, &r.rows) {
        unify(x, y).ok_or_else(|| misfit("columns of the first must equal rows of the second"))?;
    }
    let mut dims = broadcast(&l.batch, &r.batch)?;
    dims.extend(l.rows);
    dims.extend(r.cols);
    Ok(vec![Fact::of(TensorType { dtype, dims })])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (ta, tb) = (cx.attrs().bool("trans_a")?, cx.attrs().bool("trans_b")?);
    let (l, r) = (operand(a.shape(), ta, true), operand(b.shape(), tb, false));
    let (m, k, n) = (l.rows.unwrap_or(1), l.cols.unwrap_or(1), r.cols.unwrap_or(1));
    let dims = |v: &[usize]| v.iter().map(|&d| Dim::new(d as i64)).collect::<Vec<_>>();
    let batch = broadcast(&dims(&l.batch), &dims(&r.batch))?;
    let batch: Vec<usize> = batch.iter().filter_map(|d| d.as_const()).map(|d| d as usize).collect();
    let (sa, sb) = (batch_strides(&l.batch, m * k, &batch), batch_strides(&r.batch, k * n, &batch));
    let at_a = |i: usize, x: usize| if ta && a.shape().len() > 1 { x * m + i } else { i * k + x };
    let at_b = |x: usize, j: usize| if tb && b.shape().len() > 1 { j * k + x } else { x * n + j };
    let mut out_f = Vec::new();
    let mut out_i = Vec::new();
    let (ea, eb) = (a.elems(), b.elems());
    for_each_index(&batch, |at| {
        let (oa, ob) = (offset(at, &sa), offset(at, &sb));
        for i in 0..m {
            for j in 0..n {
                checkpoint();
                match (&ea, &eb) {
                    (Elems::F(x), Elems::F(y)) => {
                        out_f.push((0..k).map(|p| x[oa + at_a(i, p)] * y[ob + at_b(p, j)]).sum::<f64>());
                    }
                    (Elems::I(x), Elems::I(y)) => out_i.push((0..k).fold(0i64, |s, p| {
                        s.wrapping_add(x[oa + at_a(i, p)].wrapping_mul(y[ob + at_b(p, j)]))
                    })),
                    _ => {}
                }
            }
        }
    });
    let elems = if a.dtype().is_float() { Elems::F(out_f) } else { Elems::I(out_i) };
    Ok(vec![cx.make(0, &cx.out_shape(0)?, elems)?])
}

/// Strides of the batch dimensions, broadcast, in elements of matrices of `size` elements.
fn batch_strides(own: &[usize], size: usize, to: &[usize]) -> Vec<usize> {
    broadcast_strides(own, to).into_iter().map(|s| s * size).collect()
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let cases: &[(&str, &[usize], &[usize], bool, bool)] = &[
        ("plain", &[5, 7], &[7, 3], false, false),
        ("transposed", &[7, 5], &[3, 7], true, true),
        ("batched, broadcast", &[4, 1, 5, 6], &[3, 6, 2], false, false),
        ("vector by matrix", &[6], &[6, 5], false, false),
        ("matrix by vector", &[2, 5, 6], &[6], false, false),
        ("dot product", &[9], &[9], false, false),
        ("empty sum", &[3, 0], &[0, 4], false, false),
        ("empty result", &[0, 3], &[3, 4], false, false),
        ("empty result of a long sum", &[0, 64], &[64, 8], false, false),
        ("larger", &[65, 130], &[130, 67], false, false),
    ];
    for &(label, a, b, ta, tb) in cases {
        for t in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::I8, DType::I32] {
            let attrs = Attrs::new().with("trans_a", ta).with("trans_b", tb);
            let op = kiln_ir::problem::op("matmul", attrs);
            out.push(Problem::new(&format!("{label} {t}"), op, [rng.tensor(t, a), rng.tensor(t, b)]));
        }
    }
    out
}
