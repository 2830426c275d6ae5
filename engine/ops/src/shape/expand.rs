//! `expand` and `tile`: a tensor repeated along its axes.

use crate::indices;
use crate::util::{PLAIN, broadcast_strides, for_each_index, offset, strides};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::{Dim, DimKind};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, broadcast};
use kiln_ir::op::{OpDef, OpName, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    EXPAND = "expand",
    TILE = "tile",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: EXPAND,
        doc: "x broadcast with a tensor of shape `shape`: either may stretch the other's dimensions of 1.",
        inputs: &[input("x"), input("shape").on_host()],
        infer: infer_expand,
        eval: |cx: &EvalCx<'_>| indices::eval(cx, |from, to| Ok(stretched(from, to))),
        problems: |rng| problems(EXPAND, EXPANSIONS, rng),
        ..PLAIN
    },
    OpDef {
        name: TILE,
        doc: "x repeated repeats[i] times along each axis i.",
        inputs: &[input("x"), input("repeats").on_host()],
        infer: infer_tile,
        eval: |cx: &EvalCx<'_>| indices::eval(cx, |from, to| Ok(tiled(from, to))),
        problems: |rng| problems(TILE, TILINGS, rng),
        ..PLAIN
    },
];

/// The contents of input 1, none of them negative; `None` where one is not known.
fn sizes(cx: &InferCx<'_>) -> Result<Vec<Option<Dim>>, OpError> {
    let v = indices::host_list(cx, 1)?;
    match v.iter().flatten().find(|d| d.as_const().is_some_and(|n| n < 0)) {
        Some(d) => Err(OpError::Value(format!("{} contains {d}; wants 0 or more", cx.def.inputs[1].name))),
        None => Ok(v),
    }
}

fn infer_expand(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    let want = sizes(cx)?;
    let dims = match want.iter().cloned().collect::<Option<Vec<_>>>() {
        Some(want) => broadcast(&x.dims, &want)?,
        None => {
            let rank = want.len().max(x.rank());
            // A dimension of x that is neither 1 nor a symbol can't be stretched.
            let own = |i: usize| {
                x.dims.get((i + x.rank()).checked_sub(rank)?).filter(|d| d.as_const().is_some_and(|n| n != 1))
            };
            (0..rank).map(|i| own(i).cloned().unwrap_or_else(|| stretched_size(cx, i, rank))).collect()
        }
    };
    indices::infer(cx, TensorType { dtype: x.dtype, dims }, |from, to| Ok(stretched(from, to)))
}

/// A size that the contents of input 1 say: theirs, or that of the dimension that is stretched.
fn stretched_size(cx: &InferCx<'_>, i: usize, rank: usize) -> Dim {
    let x = cx.dims(0).unwrap_or_default();
    let at = |len: usize| (i + len).checked_sub(rank);
    let own = at(x.len()).map_or(Dim::new(1), |k| x[k].clone());
    let wanted = at(cx.contents(1).map_or(0, |v| v.len())).and_then(|k| indices::size_bound(cx, 1, k));
    let bound = wanted.filter(|_| own.kind() <= DimKind::Host).map(|w| w.max_with(&own));
    indices::fresh(cx, &[1], &format!("d{i}"), bound)
}

fn stretched(from: &[usize], to: &[usize]) -> indices::Moves {
    let by = broadcast_strides(from, to);
    let mut out = Vec::new();
    for_each_index(to, |at| out.push(Some(offset(at, &by))));
    out
}

fn infer_tile(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    let repeats = sizes(cx)?;
    if repeats.len() != x.rank() {
        return Err(cx.bad_shape(1, &format!("{} elements, one for each dimension of input 0", x.rank())));
    }
    let dim = |(i, (d, r)): (usize, (&Dim, &Option<Dim>))| match r {
        Some(r) => d.clone() * r.clone(),
        None => {
            let repeats = indices::size_bound(cx, 1, i).filter(|_| d.kind() <= DimKind::Host);
            indices::fresh(cx, &[1], &format!("d{i}"), repeats.map(|r| d.clone() * r))
        }
    };
    let dims = x.dims.iter().zip(&repeats).enumerate().map(dim).collect();
    indices::infer(cx, TensorType { dtype: x.dtype, dims }, |from, to| Ok(tiled(from, to)))
}

fn tiled(from: &[usize], to: &[usize]) -> indices::Moves {
    let own = strides(from);
    let mut out = Vec::new();
    for_each_index(to, |at| out.push(Some((0..to.len()).map(|k| at[k] % from[k] * own[k]).sum())));
    out
}

type Case = (&'static [usize], &'static [i64]);
const EXPANSIONS: &[Case] = &[
    (&[3, 1], &[2, 1, 5]),
    (&[3, 1], &[3, 4]),
    (&[2, 3, 1, 7], &[5, 1]),
    (&[], &[2, 3]),
    (&[1], &[0]),
    (&[0, 1], &[0, 4]),
    (&[4, 5], &[]),
];
const TILINGS: &[Case] = &[
    (&[3, 5], &[2, 1]),
    (&[2, 1, 3], &[1, 3, 2]),
    (&[2, 3], &[0, 2]),
    (&[], &[]),
    (&[7], &[3]),
    (&[0, 2], &[3, 2]),
];

fn problems(name: OpName, cases: &[Case], rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let op = kiln_ir::problem::op(name, Attrs::new());
    for &(shape, to) in cases {
        for t in DType::ALL {
            let ins = [rng.tensor(t, shape), rng.i64s(&[to.len()], to)];
            out.push(Problem::new(&format!("{shape:?} by {to:?} {t}"), op.clone(), ins));
        }
    }
    let by = rng.i64s(&[2], &[2, 13]);
    let exact = rng.exact_tensors(if name == TILE { &[13, 1] } else { &[2, 1] });
    out.extend(exact.map(|x| Problem::new("exact values", op.clone(), [x, by.clone()])));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, iota, run};
    use kiln_ir::op::Op;
    use kiln_ir::tensor::Tensor;

    fn list(v: &[i64]) -> Tensor {
        Tensor::i64(&[v.len()], v).unwrap()
    }

    #[test]
    fn either_shape_stretches_the_other() {
        let x = f32s(&[2, 1], &[1.0, 2.0]);
        let y = run("expand", Attrs::new(), &[x.clone(), list(&[2, 1, 2])]);
        assert_near(&y, &[2, 2, 2], &[1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0], 0.0);
        assert_near(&run("expand", Attrs::new(), &[x, list(&[1])]), &[2, 1], &[1.0, 2.0], 0.0);
    }

    #[test]
    fn tiles_repeat_the_whole() {
        let y = run("tile", Attrs::new(), &[iota(&[2, 2]), list(&[1, 2])]);
        assert_near(&y, &[2, 4], &[0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 2.0, 3.0], 0.0);
        let y = run("tile", Attrs::new(), &[iota(&[2, 1]), list(&[2, 1])]);
        assert_near(&y, &[4, 1], &[0.0, 1.0, 0.0, 1.0], 0.0);
    }

    #[test]
    fn dimensions_follow_symbols() {
        let fact =
            |v: &[Dim]| Some(Fact::contents(TensorType::new(DType::I64, [v.len() as i64]), v.to_vec()));
        let x = Some(Fact::of(TensorType::new(DType::F32, [Dim::host("b"), 1.into()])));
        let s = fact(&[Dim::host("b"), Dim::host("s")]);
        let out = Op::new("expand", Attrs::new()).unwrap().infer(&[x.clone(), s.clone()], "t").unwrap();
        assert_eq!(out[0].ty.dims, [Dim::host("b"), Dim::host("s")]);
        let out = Op::new("tile", Attrs::new()).unwrap().infer(&[x.clone(), s], "t").unwrap();
        assert_eq!(out[0].ty.dims, [Dim::host("b") * Dim::host("b"), Dim::host("s")]);
        let bad = Op::new("expand", Attrs::new()).unwrap().infer(&[x, fact(&[(-1).into()])], "t");
        assert!(matches!(bad, Err(OpError::Value(_))));
    }
}
