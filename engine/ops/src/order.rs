//! `topk` and `cumulative`: operators along one axis in which the order of elements matters.

use super::moves::take;
use super::util::{PLAIN, for_each_group, mask_of};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::expr::Num;
use kiln_ir::infer::{Fact, InferCx, normalize_axis};
use kiln_ir::op::{Op, OpDef, Tolerance, attr, choice, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;
use std::cmp::Ordering;

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: "topk",
        doc: "The k largest (or smallest) elements along an axis with their i64 positions. Sorted; of equal elements the \
              one at the lower position comes first. NaN counts as larger than everything.",
        inputs: &[input("x"), input("k").on_host()],
        outputs: &["values", "indices"],
        attrs: &[
            attr("axis", || Attr::Int(-1)),
            attr("largest", || Attr::Bool(true)),
            attr("sorted", || Attr::Bool(true)),
        ],
        infer: infer_topk,
        eval: eval_topk,
        problems: topk_problems,
        ..PLAIN
    },
    OpDef {
        name: "cumulative",
        doc: "Running sum or product along the axis given by the 0-D (or one-element) i64 tensor `axis`; of the elements \
              before only if `exclusive`, from the end if `reverse`. Integers wrap.",
        inputs: &[input("x"), input("axis").on_host()],
        attrs: &[
            choice("op", || "sum".into(), &["sum", "prod"]),
            attr("exclusive", || Attr::Bool(false)),
            attr("reverse", || Attr::Bool(false)),
        ],
        infer: infer_cumulative,
        eval: eval_cumulative,
        tolerance: Tolerance::ByAttrs(|attrs| match attrs.str("op") {
            Ok("sum") => Tolerance::Sum,
            _ => Tolerance::Conditioned,
        }),
        problems: cumulative_problems,
        ..PLAIN
    },
];

fn infer_topk(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    cx.check_dtype(0, |d| d != DType::Bool, "a number type")?;
    cx.check_dtype(1, |d| d.is_int(), "an integer type")?;
    cx.check_shape(1, |d| d.iter().all(|d| d.is(1)), "a scalar or one element")?;
    cx.check_shape(0, |d| !d.is_empty(), "at least one dimension")?;
    let axis = cx.axis("axis", x.rank())?;
    let k = cx.contents(1).and_then(|v| v.first().cloned()).filter(|k| !k.has_content());
    let k = k.unwrap_or_else(|| cx.fresh_from(1, "k", Some(x.dims[axis].clone())));
    if let (Some(k), Some(n)) = (k.as_const(), x.dims[axis].as_const())
        && (k < 0 || k > n)
    {
        return Err(OpError::Value(format!("k is {k}; axis {axis} has {n} elements")));
    }
    let mut dims = x.dims.clone();
    dims[axis] = k;
    Ok(vec![
        Fact::of(TensorType { dtype: x.dtype, dims: dims.clone() }),
        Fact::of(TensorType { dtype: DType::I64, dims }),
    ])
}

/// NaN above everything else.
fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn eval_topk(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let shape = cx.out_shape(0)?;
    let axis = normalize_axis(cx.attrs().int("axis")?, shape.len(), "axis")?;
    let largest = cx.attrs().bool("largest")?;
    let e = x.elems();
    let order = |a: usize, b: usize| {
        let o = match &e {
            Elems::F(v) => compare(v[a], v[b]),
            Elems::I(v) => v[a].cmp(&v[b]),
        };
        if largest { o.reverse() } else { o }.then(a.cmp(&b))
    };
    // Groups come in the order of the other axes; write them back along the axis.
    let k = shape[axis];
    let inner: usize = shape[axis + 1..].iter().product();
    let n = shape.iter().product();
    let (mut from, mut index) = (vec![None; n], vec![0i64; n]);
    let mut g = 0;
    for_each_group(x.shape(), &mask_of(axis, shape.len()), |group| {
        let mut order_of: Vec<usize> = (0..group.len()).collect();
        order_of.sort_by(|&a, &b| order(group[a], group[b]));
        let base = g / inner.max(1) * k * inner + g % inner.max(1);
        for (j, &i) in order_of.iter().take(k).enumerate() {
            from[base + j * inner] = Some(group[i]);
            index[base + j * inner] = i as i64;
        }
        g += 1;
    });
    Ok(vec![cx.make(0, &shape, take(&e, &from, Num::I(0)))?, cx.make(1, &shape, Elems::I(index))?])
}

fn infer_cumulative(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    cx.check_dtype(0, |d| d != DType::Bool, "a number type")?;
    cx.check_shape(0, |d| !d.is_empty(), "at least one dimension")?;
    cx.check_shape(1, |d| d.iter().all(|d| d.is(1)), "a scalar or one element")?;
    if let Some(axis) = cx.contents(1).and_then(|v| v.first()?.as_const()) {
        normalize_axis(axis, x.rank(), "axis")?;
    }
    Ok(vec![Fact::of(x.clone())])
}

fn eval_cumulative(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let axis =
        cx.input(1)?.scalar_i64().ok_or_else(|| OpError::Value("axis has no single element".into()))?;
    let axis = normalize_axis(axis, x.shape().len(), "axis")?;
    let (exclusive, reverse) = (cx.attrs().bool("exclusive")?, cx.attrs().bool("reverse")?);
    let prod = cx.attrs().str("op")? == "prod";
    let mask = mask_of(axis, x.shape().len());
    let e = match x.elems() {
        Elems::F(mut v) => {
            for_each_group(x.shape(), &mask, |g| {
                scan(&mut v, g, exclusive, reverse, f64::from(u8::from(prod)), |a, b| {
                    if prod { a * b } else { a + b }
                });
            });
            Elems::F(v)
        }
        Elems::I(mut v) => {
            for_each_group(x.shape(), &mask, |g| {
                scan(&mut v, g, exclusive, reverse, i64::from(prod), |a, b| {
                    if prod { a.wrapping_mul(b) } else { a.wrapping_add(b) }
                });
            });
            Elems::I(v)
        }
    };
    Ok(vec![cx.make(0, x.shape(), e)?])
}

fn scan<T: Copy>(
    v: &mut [T],
    group: &[usize],
    exclusive: bool,
    reverse: bool,
    zero: T,
    f: impl Fn(T, T) -> T,
) {
    let mut acc = zero;
    let mut step = |&i: &usize| {
        let next = f(acc, v[i]);
        v[i] = if exclusive { acc } else { next };
        acc = next;
    };
    if reverse { group.iter().rev().for_each(&mut step) } else { group.iter().for_each(&mut step) }
}

fn topk_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let cases: &[(&[usize], i64, i64)] =
        &[(&[3, 7, 5], 1, 3), (&[17], -1, 17), (&[4, 6], 0, 1), (&[2, 5], 1, 0), (&[0, 3], 1, 2)];
    for &(shape, axis, k) in cases {
        for largest in [true, false] {
            for t in [DType::F32, DType::F16, DType::I32, DType::I64, DType::U8] {
                let Ok(op) = Op::new("topk", Attrs::new().with("axis", axis).with("largest", largest)) else {
                    continue;
                };
                let k = rng.i64s(&[1], &[k]);
                out.push(Problem::new(&format!("{shape:?} {t}"), op, [rng.tensor(t, shape), k]));
            }
        }
    }
    if let Ok(op) = Op::new("topk", Attrs::new()) {
        let k = rng.i64s(&[1], &[12]);
        out.push(Problem::new("special values", op, [rng.edge_floats(DType::F32, 19), k]));
    }
    out
}

fn cumulative_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
        for (shape, axis) in [(&[3, 7, 5][..], 1), (&[9], 0), (&[4, 0], -1), (&[2, 3], -2)] {
            for (t, op) in
                [(DType::F32, "sum"), (DType::F16, "sum"), (DType::I64, "sum"), (DType::I32, "prod")]
            {
                let attrs = Attrs::new().with("exclusive", exclusive).with("reverse", reverse).with("op", op);
                let Ok(op) = Op::new("cumulative", attrs) else { continue };
                let a = rng.i64s(&[], &[axis]);
                out.push(Problem::new(&format!("{shape:?} axis {axis} {t}"), op, [rng.tensor(t, shape), a]));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_near, f32s, infer, ints, run, run_all};
    use super::*;
    use kiln_ir::dim::Dim;
    use kiln_ir::infer::differ;

    #[test]
    fn topk_breaks_ties_by_position() {
        let x = f32s(&[2, 4], &[1., 3., 3., 0., -1., -1., 5., 2.]);
        let k = ints(DType::I64, &[1], &[2]);
        let out = run_all("topk", Attrs::new(), &[Some(x), Some(k)]).unwrap();
        assert_near(&out[0], &[2, 2], &[3., 3., 5., 2.], 0.0);
        assert_eq!(out[1].to_i64(), [1, 2, 2, 3]);
    }

    #[test]
    fn topk_works_along_an_inner_axis() {
        let x = ints(DType::I32, &[3, 2], &[1, 6, 3, 4, 2, 5]);
        let attrs = Attrs::new().with("axis", 0i64).with("largest", false);
        let out = run_all("topk", attrs, &[Some(x), Some(ints(DType::I64, &[1], &[2]))]).unwrap();
        assert_eq!((out[0].to_i64(), out[1].to_i64()), (vec![1, 4, 2, 5], vec![0, 1, 2, 2]));
    }

    #[test]
    fn sums_run_in_all_four_ways() {
        let x = f32s(&[4], &[1., 2., 3., 4.]);
        let axis = ints(DType::I64, &[], &[0]);
        for (ex, rev, want) in [
            (false, false, [1., 3., 6., 10.]),
            (true, false, [0., 1., 3., 6.]),
            (false, true, [10., 9., 7., 4.]),
            (true, true, [9., 7., 4., 0.]),
        ] {
            let attrs = Attrs::new().with("exclusive", ex).with("reverse", rev);
            assert_near(&run("cumulative", attrs, &[x.clone(), axis.clone()]), &[4], &want, 0.0);
        }
    }

    #[test]
    fn an_unknown_k_is_a_new_dimension() {
        let f = infer(
            "topk",
            Attrs::new(),
            &[(DType::F32, vec![3.into(), 5.into()]), (DType::I64, vec![1.into()])],
        )
        .unwrap();
        assert_eq!(f[0].ty.dims[0], Dim::new(3));
        assert!(f[0].ty.dims[1].as_const().is_none() && !differ(&f[0].ty.dims[1], &f[1].ty.dims[1]));
    }
}
