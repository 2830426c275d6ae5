//! `squeeze` and `unsqueeze`: dimensions of 1 dropped and put in.

use crate::indices;
use crate::shape::eval_copy;
use crate::util::PLAIN;
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::infer::{Fact, InferCx, normalize_axes};
use kiln_ir::op::{Movement, OpDef, OpName, Roles, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    SQUEEZE = "squeeze",
    UNSQUEEZE = "unsqueeze",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: SQUEEZE,
        doc: "The same elements without the dimensions `axes`, which must be 1; without `axes`, without all \
              dimensions of 1 (then all must be numbers). Axes that are not known yet leave the dimensions unknown.",
        inputs: &[input("x"), optional("axes").on_host()],
        infer: squeeze,
        eval: eval_copy,
        problems: |rng| problems(SQUEEZE, SQUEEZES, rng),
        roles: Roles { movement: Movement::Reshape, ..Roles::NONE },
        ..PLAIN
    },
    OpDef {
        name: UNSQUEEZE,
        doc: "The same elements with a dimension of 1 at each of `axes` of the result. Axes that are not \
              known yet leave the dimensions unknown.",
        inputs: &[input("x"), input("axes").on_host()],
        infer: unsqueeze,
        eval: eval_copy,
        problems: |rng| problems(UNSQUEEZE, UNSQUEEZES, rng),
        roles: Roles { movement: Movement::Reshape, ..Roles::NONE },
        ..PLAIN
    },
];

/// The axes of input 1, sorted, in a tensor of `rank(their number)` dimensions; `Err` within is their number, where
/// they are not known yet. A scalar counts as a list of one.
fn axes(cx: &InferCx<'_>, rank: impl Fn(usize) -> usize) -> Result<Result<Vec<usize>, usize>, OpError> {
    indices::check_index_dtype(cx, 1)?;
    cx.check_shape(1, |d| d.len() <= 1, "at most one dimension")?;
    match cx.ints(1) {
        Some(given) => Ok(Ok(normalize_axes(&given, rank(given.len()), "axes")?)),
        None => match cx.ty(1)?.volume().as_const().and_then(|n| usize::try_from(n).ok()) {
            Some(n) => Ok(Err(n)),
            None => cx.need_ints(1).map(|_| Err(0)),
        },
    }
}

/// The fact where axes are not known yet.
fn unknown(cx: &InferCx<'_>, rank: usize) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    let dims = (0..rank).map(|i| cx.fresh_from(1, &format!("d{i}"), Some(x.volume())));
    Ok(vec![Fact::of(TensorType::new(x.dtype, dims))])
}

fn squeeze(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    let drop = if cx.has(1) {
        match axes(cx, |_| x.rank())? {
            Ok(axes) => axes,
            Err(n) if n <= x.rank() => return unknown(cx, x.rank() - n),
            Err(n) => return Err(cx.bad_shape(0, &format!("at least {n} dimensions"))),
        }
    } else if x.dims.iter().any(|d| d.as_const().is_none()) {
        return Err(OpError::NeedsValue {
            input: 1,
            name: "axes".into(),
            wanted: "given, since the input has a dimension that is not a number".into(),
        });
    } else {
        (0..x.rank()).filter(|&i| x.dims[i].is(1)).collect()
    };
    if let Some(&a) = drop.iter().find(|&&a| x.dims[a].as_const().is_some_and(|n| n != 1)) {
        return Err(cx.bad_shape(0, &format!("dimension {a} to be 1")));
    }
    let kept = (0..x.rank()).filter(|i| !drop.contains(i)).map(|i| x.dims[i].clone());
    Ok(indices::infer_same(cx, TensorType::new(x.dtype, kept)))
}

fn unsqueeze(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    let mut dims = x.dims.clone();
    match axes(cx, |n| x.rank() + n)? {
        Ok(axes) => axes.into_iter().for_each(|a| dims.insert(a, Dim::new(1))),
        Err(n) if n <= MAX_NEW => return unknown(cx, x.rank() + n),
        Err(n) => return Err(cx.bad_shape(1, &format!("at most {MAX_NEW} axes, not {n}"))),
    }
    Ok(indices::infer_same(cx, TensorType { dtype: x.dtype, dims }))
}

/// The most dimensions that axes not known yet may add.
const MAX_NEW: usize = 64;

type Case = (&'static [usize], &'static [i64]);
const SQUEEZES: &[Case] =
    &[(&[3, 1, 5], &[1]), (&[1, 3, 1], &[0, -1]), (&[1], &[0]), (&[0, 1], &[-1]), (&[2, 3], &[])];
const UNSQUEEZES: &[Case] =
    &[(&[3, 5], &[1]), (&[3], &[0, -1]), (&[], &[0]), (&[0, 2], &[2]), (&[2, 3], &[4, 0, 1])];

fn problems(name: OpName, cases: &[Case], rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let op = kiln_ir::problem::op(name, Attrs::new());
    for &(shape, axes) in cases {
        for t in DType::ALL {
            let ins = [rng.tensor(t, shape), rng.i64s(&[axes.len()], axes)];
            out.push(Problem::new(&format!("{shape:?} at {axes:?} {t}"), op.clone(), ins));
        }
    }
    if name == SQUEEZE {
        out.push(Problem::new("all dimensions of 1", op, [rng.tensor(DType::F32, &[1, 3, 1, 2])]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, run};
    use kiln_ir::op::Op;
    use kiln_ir::tensor::Tensor;

    fn at(v: &[i64]) -> Tensor {
        Tensor::i64(&[v.len()], v).unwrap()
    }

    #[test]
    fn dimensions_of_one_come_and_go() {
        let x = f32s(&[1, 2, 1], &[3.0, 4.0]);
        assert_near(&run("squeeze", Attrs::new(), &[x.clone(), at(&[-1])]), &[1, 2], &[3.0, 4.0], 0.0);
        assert_near(&run("squeeze", Attrs::new(), std::slice::from_ref(&x)), &[2], &[3.0, 4.0], 0.0);
        assert_near(&run("unsqueeze", Attrs::new(), &[x, at(&[4, 0])]), &[1, 1, 2, 1, 1], &[3.0, 4.0], 0.0);
    }

    #[test]
    fn contents_stay() {
        let n = Some(Fact::contents(TensorType::scalar(DType::I64), vec![Dim::host("n")]));
        let axes = Some(Fact::constant(at(&[0])));
        let out = Op::new("unsqueeze", Attrs::new()).unwrap().infer(&[n, axes.clone()], "t").unwrap();
        assert_eq!((out[0].ty.dims.clone(), out[0].as_dims()), (vec![1.into()], Some(vec![Dim::host("n")])));
        let back =
            Op::new("squeeze", Attrs::new()).unwrap().infer(&[Some(out[0].clone()), axes], "t").unwrap();
        assert_eq!((back[0].ty.rank(), back[0].as_dims()), (0, Some(vec![Dim::host("n")])));
    }

    #[test]
    fn axes_may_come_later() {
        let x = Some(Fact::of(TensorType::new(DType::F32, [1, 3])));
        let axes = Some(Fact::of(TensorType::new(DType::I64, [1])));
        for (name, rank) in [("squeeze", 1), ("unsqueeze", 3)] {
            let out = Op::new(name, Attrs::new()).unwrap().infer(&[x.clone(), axes.clone()], "t").unwrap();
            assert!(out[0].ty.rank() == rank && out[0].ty.dims.iter().all(|d| d.as_const().is_none()));
        }
    }

    #[test]
    fn mistakes_are_named() {
        let x = |d: Dim| Some(Fact::of(TensorType::new(DType::F32, [d, 1.into()])));
        let op = Op::new("squeeze", Attrs::new()).unwrap();
        let axes = |a: i64| Some(Fact::constant(at(&[a])));
        assert!(matches!(op.infer(&[x(Dim::host("n"))], "t"), Err(OpError::NeedsValue { .. })));
        assert!(matches!(op.infer(&[x(2.into()), axes(0)], "t"), Err(OpError::Shape { .. })));
        assert!(matches!(op.infer(&[x(2.into()), axes(2)], "t"), Err(OpError::Attr { .. })));
    }
}
