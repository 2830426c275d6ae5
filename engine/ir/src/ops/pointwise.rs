//! What all pointwise operators share: numpy broadcasting, the result type of the expression, the scalar oracle.

use super::util::{broadcast_strides, for_each_index, offset};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::OpError;
use crate::eval::EvalCx;
use crate::expr::{Expr, Num};
use crate::infer::{Fact, InferCx, MAX_CONTENT, broadcast_all, differ};
use crate::op::Op;
use crate::problem::{Problem, Rng};
use crate::tensor::{Elems, Tensor};
use crate::ty::{TensorType, dims_text};

/// The rule of every pointwise operator: shapes broadcast, the expression gives the type.
pub fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let given = given(cx.len(), |i| cx.has(i));
    let types = (0..given).map(|i| cx.dtype(i)).collect::<Result<Vec<_>, _>>()?;
    let dims = broadcast_all((0..given).map(|i| cx.dims(i)).collect::<Result<Vec<_>, _>>()?)?;
    let expr = expr_of(cx.def.expr, cx.attrs, &types)?;
    Ok(vec![Fact::of(TensorType { dtype: expr.result_type(), dims })])
}

/// How many inputs there are up to the last that is present.
fn given(len: usize, has: impl Fn(usize) -> bool) -> usize {
    (0..len).rev().find(|&i| has(i)).map_or(0, |i| i + 1)
}

/// As [`infer`], but the other inputs are stretched to the shape of the first, never the first to theirs.
pub fn infer_like_first(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let out = infer(cx)?;
    let (dims, x) = (&out[0].ty.dims, cx.dims(0)?);
    if dims.len() == x.len() && !dims.iter().zip(x).any(|(a, b)| differ(a, b)) {
        return Ok(vec![Fact::of(TensorType { dtype: out[0].ty.dtype, dims: x.to_vec() })]);
    }
    Err(OpError::Mismatch {
        a: dims_text(x),
        b: cx.dims(1).map(dims_text).unwrap_or_default(),
        wanted: "the second must broadcast to the first".into(),
    })
}

/// As [`infer`], and follows the contents of integer tensors through `f`.
pub fn infer_with(cx: &mut InferCx<'_>, f: impl Fn(&Dim, &Dim) -> Dim) -> Result<Vec<Fact>, OpError> {
    let mut out = infer(cx)?;
    if matches!(out[0].ty.dtype, DType::I32 | DType::I64)
        && let Some(v) = follow(cx, &out[0].ty, |a, b| Some(f(a, b)))
    {
        out[0] = Fact::contents(out[0].ty.clone(), v);
    }
    Ok(out)
}

/// As [`infer`], for a comparison: its result is known where that of all elements is certain, whatever the values of
/// their symbols.
pub fn infer_compare(
    cx: &mut InferCx<'_>,
    certain: impl Fn(&Dim, &Dim) -> Option<bool>,
) -> Result<Vec<Fact>, OpError> {
    let mut out = infer(cx)?;
    if let Some(v) = follow(cx, &out[0].ty, |a, b| Some(Dim::new(certain(a, b)?.into()))) {
        out[0] = Fact::contents(out[0].ty.clone(), v);
    }
    Ok(out)
}

/// `f` of the contents of two inputs, broadcast to `ty`; `None` if they are not known or too many, or `f` has none.
fn follow(cx: &InferCx<'_>, ty: &TensorType, f: impl Fn(&Dim, &Dim) -> Option<Dim>) -> Option<Vec<Dim>> {
    let (a, b) = (cx.contents(0)?, cx.contents(1)?);
    let shape = ty.static_dims()?;
    ty.static_volume().filter(|&n| n <= MAX_CONTENT)?;
    let stretch = |i: usize| Some(broadcast_strides(&cx.fact(i)?.ty.static_dims()?, &shape));
    let (ta, tb) = (stretch(0)?, stretch(1)?);
    let mut v = Vec::new();
    for_each_index(&shape, |at| v.push(f(&a[offset(at, &ta)], &b[offset(at, &tb)])));
    v.into_iter().collect()
}

type ExprFn = fn(&crate::Attrs, &[DType]) -> Result<Expr, OpError>;

fn expr_of(f: Option<ExprFn>, attrs: &crate::Attrs, types: &[DType]) -> Result<Expr, OpError> {
    f.ok_or_else(|| OpError::Unsupported("no scalar expression".into()))?(attrs, types)
}

/// The oracle of every pointwise operator: the expression, element by element.
pub fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let ins =
        (0..given(cx.len(), |i| cx.get(i).is_some())).map(|i| cx.input(i)).collect::<Result<Vec<_>, _>>()?;
    let types: Vec<_> = ins.iter().map(|t| t.dtype()).collect();
    let expr = expr_of(cx.op.def().expr, cx.attrs(), &types)?;
    let shape = cx.out_shape(0)?;
    let strides: Vec<_> = ins.iter().map(|t| broadcast_strides(t.shape(), &shape)).collect();
    let elems: Vec<_> = ins.iter().map(|t| t.elems()).collect();
    let mut scratch = Vec::new();
    let mut args = vec![Num::I(0); ins.len()];
    let mut out = Vec::new();
    for_each_index(&shape, |at| {
        for (k, e) in elems.iter().enumerate() {
            let i = offset(at, &strides[k]);
            args[k] = match e {
                Elems::F(v) => Num::F(v[i]),
                Elems::I(v) => Num::I(v[i]),
            };
        }
        out.push(expr.eval(&args, &mut scratch));
    });
    let is_float = expr.result_type().is_float();
    let elems = if is_float {
        Elems::F(out.into_iter().map(|x| if let Num::F(x) = x { x } else { f64::NAN }).collect())
    } else {
        Elems::I(out.into_iter().map(|x| if let Num::I(x) = x { x } else { 0 }).collect())
    };
    Ok(vec![cx.make(0, &shape, elems)?])
}

/// Problems for an operator of `arity` inputs of one type: odd sizes, scalar, empty, broadcast, special floats.
pub fn problems(name: &str, arity: usize, types: &[DType], rng: &mut Rng) -> Vec<Problem> {
    Op::new(name, crate::Attrs::new()).map(|op| problems_of(&op, arity, types, rng)).unwrap_or_default()
}

/// As [`problems`], for an operator with its attributes.
pub fn problems_of(op: &Op, arity: usize, types: &[DType], rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for &t in types {
        let shapes: &[(&str, &[usize], &[usize])] = &[
            ("odd sizes", &[3, 7, 5], &[3, 7, 5]),
            ("scalar", &[], &[]),
            ("empty", &[0, 3], &[0, 3]),
            ("broadcast", &[4, 1, 5], &[3, 1]),
            ("one", &[1], &[1, 1]),
        ];
        for (label, a, b) in shapes {
            let ins = (0..arity).map(|i| rng.tensor(t, if i == 0 { a } else { b })).collect::<Vec<_>>();
            out.push(Problem::new(&format!("{label} {t}"), op.clone(), ins));
        }
        if t.is_float() {
            let ins = (0..arity).map(|_| rng.edge_floats(t, 19)).collect::<Vec<_>>();
            out.push(Problem::new(&format!("special values {t}"), op.clone(), ins));
        }
    }
    out
}
