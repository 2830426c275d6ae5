//! `cumulative`: running sums and products along an axis.

use crate::util::{PLAIN, for_each_group, mask_of};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, normalize_axis};
use kiln_ir::op::{OpDef, Roles, Tolerance, attr, choice, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};

kiln_ir::op_names! {
    CUMULATIVE = "cumulative",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: CUMULATIVE,
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
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

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

fn cumulative_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
        for (shape, axis) in [(&[3, 7, 5][..], 1), (&[9], 0), (&[4, 0], -1), (&[2, 3], -2)] {
            for (t, op) in
                [(DType::F32, "sum"), (DType::F16, "sum"), (DType::I64, "sum"), (DType::I32, "prod")]
            {
                let attrs = Attrs::new().with("exclusive", exclusive).with("reverse", reverse).with("op", op);
                let op = kiln_ir::problem::op("cumulative", attrs);
                let a = rng.i64s(&[], &[axis]);
                out.push(Problem::new(&format!("{shape:?} axis {axis} {t}"), op, [rng.tensor(t, shape), a]));
            }
        }
    }
    // Rows of warps, blocks and several blocks; columns by ones and eights, and in parts.
    let long: &[(&[usize], i64, DType, &str)] = &[
        (&[3, 300], 1, DType::F16, "sum"),
        (&[2, 2500], 1, DType::F32, "sum"),
        (&[2, 4096], 1, DType::F16, "sum"),
        (&[20_003], 0, DType::I64, "prod"),
        (&[20_008], 0, DType::F32, "sum"),
        (&[2, 70, 11], 1, DType::BF16, "sum"),
        (&[140, 33, 8], 1, DType::F16, "sum"),
        (&[900, 24], 0, DType::I32, "sum"),
        (&[3, 2000], 1, DType::U8, "prod"),
    ];
    for &(shape, axis, t, op) in long {
        for (exclusive, reverse) in [(false, false), (true, true), (false, true)] {
            let attrs = Attrs::new().with("exclusive", exclusive).with("reverse", reverse).with("op", op);
            let op = kiln_ir::problem::op("cumulative", attrs);
            let a = rng.i64s(&[], &[axis]);
            out.push(Problem::new(&format!("long {shape:?} {t}"), op, [rng.tensor(t, shape), a]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, ints, run};

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
}
