//! Operators that make tensors from sizes and positions: `range`, `one_hot`, `eye_like`, `size`; and `assertion`,
//! which makes none.

pub mod mel;
pub mod random;
pub mod window;

use crate::indices::{self, take};
use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::expr::Num;
use kiln_ir::infer::{Fact, InferCx, normalize_axis};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    RANGE = "range",
    ONE_HOT = "one_hot",
    EYE_LIKE = "eye_like",
    SIZE = "size",
    ASSERTION = "assertion",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: RANGE,
        doc: "start, start+delta, start+2·delta, … as long as below `limit` (above it if delta is negative); all three are \
              scalars of one number type. max(⌈(limit−start)/delta⌉, 0) elements; element i is start + i·delta.",
        inputs: &[input("start").on_host(), input("limit").on_host(), input("delta").on_host()],
        infer: infer_range,
        eval: eval_range,
        tolerance: Tolerance::Generated,
        problems: range_problems,
        roles: Roles { keeps_f32: true, ..Roles::NONE },
        ..PLAIN
    },
    OpDef {
        name: ONE_HOT,
        doc: "`values` is [off, on]. A new axis of size `depth` (a scalar) is put in at `axis`; the result is `on` where the \
              position along it is the index (negative ones counted from the end), else `off`. An index out of range gives \
              `off` everywhere.",
        inputs: &[input("indices"), input("depth").on_host(), input("values")],
        attrs: &[attr("axis", || Attr::Int(-1))],
        infer: infer_one_hot,
        eval: eval_one_hot,
        problems: one_hot_problems,
        ..PLAIN
    },
    OpDef {
        name: EYE_LIKE,
        doc: "A matrix of the shape of x with ones on diagonal k (positive: above the main one) and zeros elsewhere.",
        attrs: &[attr("k", || Attr::Int(0)), attr("to", || Attr::DType(DType::F32))],
        infer: infer_eye,
        eval: eval_eye,
        problems: eye_problems,
        ..PLAIN
    },
    OpDef {
        name: SIZE,
        doc: "The number of elements of x as an i64 scalar.",
        infer: |cx| Ok(vec![Fact::contents(TensorType::scalar(DType::I64), vec![cx.ty(0)?.volume()])]),
        eval: |cx| Ok(vec![cx.make(0, &[], Elems::I(vec![cx.input(0)?.len() as i64]))?]),
        problems: size_problems,
        roles: Roles { host_known: true, ..Roles::NONE },
        ..PLAIN
    },
    OpDef {
        name: ASSERTION,
        doc: "An error with the message at run time if any element of the bool tensor is false.",
        inputs: &[input("cond")],
        outputs: &[],
        attrs: &[attr("message", || "".into())],
        infer: infer_assertion,
        eval: eval_assertion,
        traits: Traits { side_effect: true, ..Traits::PURE },
        ..PLAIN
    },
];

fn infer_range(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let dtype = cx.check_dtype(0, |d| d != DType::Bool, "a number type")?;
    for i in 0..3 {
        cx.same_dtype(0, i)?;
        cx.check_shape(i, |d| d.iter().all(|d| d.is(1)), "a scalar")?;
    }
    let consts: Option<Vec<&Tensor>> = (0..3).map(|i| cx.fact(i)?.as_const()).collect();
    let (ints, follow) = (dtype.is_int(), matches!(dtype, DType::I32 | DType::I64));
    let n = match consts {
        Some(c) => Some(Dim::new(count(&c)?)),
        None if ints => counted(cx),
        None => None,
    };
    let n = n.unwrap_or_else(|| indices::fresh(cx, &[0, 1, 2], "n", None));
    let ty = TensorType { dtype, dims: vec![n.clone()] };
    if let (true, Some(start), Some(delta), Some(len)) =
        (follow, cx.contents(0), cx.contents(2), n.as_const())
        && len <= kiln_ir::infer::MAX_CONTENT as i64
    {
        let at = |i: i64| start[0].clone() + delta[0].clone() * i.into();
        return Ok(vec![Fact::contents(ty, (0..len).map(at).collect())]);
    }
    Ok(vec![Fact::of(ty)])
}

/// The number of elements of an integer range whose step is a number.
fn counted(cx: &InferCx<'_>) -> Option<Dim> {
    let (start, limit, delta) = (cx.contents(0)?, cx.contents(1)?, cx.contents(2)?);
    let (start, limit, delta) = (start.first()?, limit.first()?, delta.first()?.as_const()?);
    let span = if delta > 0 { limit.clone() - start.clone() } else { start.clone() - limit.clone() };
    let n = span.ceil_div(&Dim::new(delta.checked_abs().filter(|&d| d != 0)?));
    Some(if span.is_nonnegative() { n } else { n.max_with(&Dim::new(0)) })
}

/// The number of elements of a range of numbers.
fn count(c: &[&Tensor]) -> Result<i64, OpError> {
    let zero = || OpError::Value("delta is 0; a range needs a step".into());
    let missing = || OpError::Value("start, limit and delta must have one element each".into());
    if c[0].dtype().is_float() {
        let v: Vec<f64> = c.iter().map(|t| t.scalar_f64()).collect::<Option<_>>().ok_or_else(missing)?;
        let n = ((v[1] - v[0]) / v[2]).ceil();
        return if v[2] == 0.0 { Err(zero()) } else { Ok(n.max(0.0) as i64) };
    }
    let v: Vec<i128> =
        c.iter().map(|t| t.scalar_i64().map(i128::from)).collect::<Option<_>>().ok_or_else(missing)?;
    if v[2] == 0 {
        return Err(zero());
    }
    let span = v[1] - v[0];
    let n = (span / v[2] + i128::from(span % v[2] != 0 && (span < 0) == (v[2] < 0))).max(0);
    i64::try_from(n).map_err(|_| OpError::TooLarge(format!("{n} elements")))
}

fn eval_range(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let c = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let n = count(&c)?;
    let shape = cx.out_shape(0)?;
    let elems = match (c[0].elems(), c[2].elems()) {
        (Elems::F(s), Elems::F(d)) => Elems::F((0..n).map(|i| s[0] + i as f64 * d[0]).collect()),
        (Elems::I(s), Elems::I(d)) => {
            Elems::I((0..n).map(|i| s[0].wrapping_add(i.wrapping_mul(d[0]))).collect())
        }
        _ => return Err(OpError::Value("start and delta differ in type".into())),
    };
    Ok(vec![cx.make(0, &shape, elems)?])
}

fn infer_one_hot(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let indices = cx.ty(0)?;
    cx.check_dtype(0, |d| d != DType::Bool, "a number type")?;
    cx.check_shape(1, |d| d.iter().all(|d| d.is(1)), "a scalar")?;
    cx.check_shape(
        2,
        |d| matches!(d, [n] if !kiln_ir::infer::differ(n, &2.into())),
        "2 elements, off and on",
    )?;
    let axis = normalize_axis(cx.attrs.int("axis")?, indices.rank() + 1, "axis")?;
    let depth = match cx.fact(1).and_then(Fact::as_const).and_then(Tensor::scalar_f64) {
        Some(d) => Dim::new(d as i64),
        None => match cx.contents(1) {
            Some(d) if !d[0].has_content() => d[0].clone(),
            _ => cx.fresh_from(1, "depth", indices::size_bound(cx, 1, 0)),
        },
    };
    if depth.as_const().is_some_and(|d| d < 0) {
        return Err(OpError::Value(format!("depth is {depth}; wants 0 or more")));
    }
    let mut dims = indices.dims.clone();
    dims.insert(axis, depth);
    Ok(vec![Fact::of(TensorType { dtype: cx.dtype(2)?, dims })])
}

fn eval_one_hot(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let shape = cx.out_shape(0)?;
    let axis = normalize_axis(cx.attrs().int("axis")?, shape.len(), "axis")?;
    let (depth, inner): (usize, usize) = (shape[axis], shape[axis + 1..].iter().product());
    let indices = cx.input(0)?.to_i64();
    let n: usize = shape.iter().product();
    let from: Vec<Option<usize>> = (0..n)
        .map(|i| {
            let (outer, at, low) = (i / (inner * depth), i / inner % depth, i % inner);
            let k = indices[outer * inner + low];
            let k = if k < 0 { k + depth as i64 } else { k };
            Some(usize::from(k == at as i64))
        })
        .collect();
    Ok(vec![cx.make(0, &shape, take(&cx.input(2)?.elems(), &from, Num::I(0)))?])
}

fn infer_eye(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_rank(0, 2)?;
    Ok(vec![Fact::of(cx.ty(0)?.with_dtype(cx.attrs.dtype("to")?))])
}

fn eval_eye(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let shape = cx.out_shape(0)?;
    let k = cx.attrs().int("k")?;
    let n = shape[0] * shape[1];
    let one = |i: usize| i64::from((i % shape[1]) as i64 - (i / shape[1]) as i64 == k);
    Ok(vec![cx.make(0, &shape, Elems::I((0..n).map(one).collect()))?])
}

fn infer_assertion(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, |d| d == DType::Bool, "bool")?;
    match cx.ints(0) {
        Some(v) if v.contains(&0) => Err(failed(cx.attrs)),
        _ => Ok(Vec::new()),
    }
}

fn eval_assertion(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    if cx.input(0)?.to_i64().contains(&0) { Err(failed(cx.attrs())) } else { Ok(Vec::new()) }
}

fn failed(attrs: &Attrs) -> OpError {
    OpError::Value(format!("assertion failed: {}", attrs.str("message").unwrap_or_default()))
}

fn range_problems(_: &mut Rng) -> Vec<Problem> {
    let op = kiln_ir::problem::op("range", Attrs::new());
    let cases = [(0.0, 9.0, 2.0), (10.0, 4.0, -2.0), (3.0, 3.0, 1.0), (5.0, 1.0, 1.0), (-3.0, 4.0, 3.0)];
    let mut out = Vec::new();
    for (s, l, d) in cases {
        for t in [DType::F32, DType::I32, DType::I64] {
            let scalar = |x: f64| Tensor::from_elems(t, &[], &Elems::F(vec![x]));
            if let (Some(s), Some(l), Some(d)) = (scalar(s), scalar(l), scalar(d)) {
                out.push(Problem::new(&format!("{t}"), op.clone(), [s, l, d]));
            }
        }
    }
    out
}

fn one_hot_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (shape, axis) in [(&[3, 5][..], -1), (&[3, 5], 0), (&[4], 1), (&[], 0), (&[0, 2], 1)] {
        let op = kiln_ir::problem::op("one_hot", Attrs::new().with("axis", axis as i64));
        for (i, v) in [(DType::I64, DType::F32), (DType::I32, DType::I64), (DType::F32, DType::F16)] {
            let indices = match i {
                DType::F32 => rng.tensor(DType::U8, shape).to_i64(),
                _ => rng.tensor(DType::I64, shape).to_i64(),
            };
            let Some(indices) = Tensor::from_elems(i, shape, &Elems::I(indices)) else { continue };
            let depth = rng.i64s(&[], &[7]);
            out.push(Problem::new(
                &format!("{shape:?} {v}"),
                op.clone(),
                [indices, depth, rng.tensor(v, &[2])],
            ));
        }
    }
    out
}

fn eye_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (k, to) in [(0, DType::F32), (1, DType::I64), (-2, DType::F16), (9, DType::Bool)] {
        let op = kiln_ir::problem::op("eye_like", Attrs::new().with("k", k as i64).with("to", to));
        out.push(Problem::new(&format!("k {k} {to}"), op, [rng.tensor(DType::F32, &[4, 7])]));
    }
    out
}

fn size_problems(rng: &mut Rng) -> Vec<Problem> {
    let op = kiln_ir::problem::op("size", Attrs::new());
    [&[2, 3, 4][..], &[], &[0, 5]]
        .iter()
        .map(|s| Problem::new("", op.clone(), [rng.tensor(DType::F32, s)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{f32s, ints, run, run_all};
    use kiln_ir::op::Op;

    #[test]
    fn ranges_stop_before_the_limit() {
        let scalar = |x: f64| f32s(&[], &[x]);
        assert_eq!(run("range", Attrs::new(), &[scalar(1.0), scalar(5.0), scalar(2.0)]).to_f64(), [1.0, 3.0]);
        let int = |x: i64| ints(DType::I32, &[], &[x]);
        assert_eq!(run("range", Attrs::new(), &[int(10), int(6), int(-3)]).to_i64(), [10, 7]);
        assert!(run_all("range", Attrs::new(), &[int(0), int(6), int(0)].map(Some)).is_err());
    }

    #[test]
    fn lengths_of_ranges_follow_symbols() {
        let fact = |d: Dim| Some(Fact::contents(TensorType::scalar(DType::I64), vec![d]));
        let (p, s) = (Dim::host("p"), Dim::host("s"));
        let len = |start: Dim, limit: Dim, delta: i64| {
            let ins = [fact(start), fact(limit), fact(delta.into())];
            Op::new("range", Attrs::new()).unwrap().infer(&ins, "t").unwrap()[0].ty.dims[0].clone()
        };
        assert_eq!(len(p.clone(), p.clone() + s.clone(), 1), s);
        assert_eq!(len(0.into(), s.clone() * 2.into(), 2), s);
        assert_eq!(len(s.clone(), 0.into(), -1), s);
        assert_eq!(len(1.into(), s.clone(), 1), (s - 1.into()).max_with(&0.into()));
    }

    #[test]
    fn one_hot_counts_negative_indices_from_the_end() {
        let ins = [ints(DType::I64, &[2], &[0, -1]), ints(DType::I64, &[], &[3]), f32s(&[2], &[2.0, 5.0])];
        assert_eq!(run("one_hot", Attrs::new(), &ins).to_f64(), [5., 2., 2., 2., 2., 5.]);
    }

    #[test]
    fn a_false_assertion_gives_its_message() {
        let e = run_all(
            "assertion",
            Attrs::new().with("message", "too long"),
            &[Some(ints(DType::Bool, &[2], &[1, 0]))],
        );
        assert!(e.unwrap_err().to_string().contains("too long"));
    }
}
