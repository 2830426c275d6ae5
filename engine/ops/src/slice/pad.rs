//! `pad`: elements added around a tensor, or cut off.

use crate::indices::{check_index_dtype, fresh, host_list, size_bound, take};
use crate::layout::axes_or_first;
use crate::util::{PLAIN, for_each_index, strides};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::{Dim, DimKind};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::expr::Num;
use kiln_ir::infer::{Fact, InferCx, normalize_axis};
use kiln_ir::op::{LayoutRule, OpDef, Roles, choice, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    PAD = "pad",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: PAD,
    doc: "x with elements added before and after each of `axes` (all of them if absent): `pads` holds what comes before each, \
          then what comes after each; a negative number cuts off. New elements are `value` (0 if absent), the nearest element \
          (edge), the mirror image without the edge itself (reflect), or the other end (wrap).",
    inputs: &[input("x"), input("pads").on_host(), optional("value"), optional("axes").on_host()],
    attrs: &[choice("mode", || "constant".into(), &["constant", "edge", "reflect", "wrap"])],
    infer,
    eval,
    problems,
    roles: Roles {
        layout: LayoutRule::Axes(|_, inputs, rank| axes_or_first(inputs, rank, 2)),
        ..Roles::NONE
    },
    ..PLAIN
}];

/// More elements than that are never added to a dimension, or cut off.
const MAX_PAD: i64 = 1 << 48;

/// Padding before and after each axis of x, where it is known.
fn amounts(cx: &InferCx<'_>, rank: usize) -> Result<Vec<[Option<Dim>; 2]>, OpError> {
    let pads = host_list(cx, 1)?;
    let axes: Vec<usize> = if cx.has(3) {
        check_index_dtype(cx, 3)?;
        let Some(axes) = cx.ints(3) else { return Ok(vec![[None, None]; rank]) };
        axes.iter().map(|&a| normalize_axis(a, rank, "axes")).collect::<Result<_, _>>()?
    } else {
        (0..rank).collect()
    };
    if pads.len() != 2 * axes.len() {
        return Err(
            cx.bad_shape(1, &format!("{} elements, two for each of {} axes", 2 * axes.len(), axes.len()))
        );
    }
    let mut out = vec![[Some(Dim::new(0)), Some(Dim::new(0))]; rank];
    for (k, &a) in axes.iter().enumerate() {
        let known = |d: &Option<Dim>| d.clone().filter(|d| !d.has_content());
        for k in [k, axes.len() + k] {
            let n = pads[k].as_ref().and_then(Dim::as_const).unwrap_or(0);
            if !(-MAX_PAD..=MAX_PAD).contains(&n) {
                return Err(OpError::Value(format!("pads[{k}] is {n}; wants -2^48 to 2^48")));
            }
        }
        out[a] = [known(&pads[k]), known(&pads[axes.len() + k])];
    }
    Ok(out)
}

/// A bound of a dimension whose amounts are contents of shape inputs; where axes are named, none.
fn padded_bound(cx: &InferCx<'_>, axis: usize, rank: usize, d: &Dim) -> Option<Dim> {
    if cx.has(3) || d.kind() > DimKind::Host {
        return None;
    }
    Some(d.clone() + size_bound(cx, 1, axis)? + size_bound(cx, 1, rank + axis)?)
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    if cx.has(2) {
        cx.same_dtype(0, 2)?;
        cx.check_shape(2, |d| d.iter().all(|d| d.is(1)), "a scalar")?;
    }
    let mode = cx.attrs.str("mode")?;
    let mut dims = Vec::new();
    for (i, ([before, after], d)) in amounts(cx, x.rank())?.into_iter().zip(&x.dims).enumerate() {
        let (Some(before), Some(after)) = (before, after) else {
            let bound = padded_bound(cx, i, x.rank(), d);
            dims.push(fresh(cx, &[1, 3], &format!("d{i}"), bound));
            continue;
        };
        let to = d.clone() + before.clone() + after.clone();
        if to.as_const().is_some_and(|n| n < 0) {
            return Err(OpError::Value(format!(
                "pads {before} and {after} cut dimension {i} of {d} below 0"
            )));
        }
        let grows = |p: &Dim| p.as_const().is_some_and(|p| p > 0);
        let least = if mode == "reflect" { 2 } else { 1 };
        if mode != "constant" && d.as_const().is_some_and(|n| n < least) && (grows(&before) || grows(&after))
        {
            return Err(OpError::Value(format!(
                "mode {mode} has no elements to take in dimension {i} of size {d}"
            )));
        }
        dims.push(to);
    }
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims })])
}

/// The place in a dimension of size `n` that position `i` (counted from its first element) shows.
pub fn source(mode: &str, i: i64, n: i64) -> Option<i64> {
    match mode {
        _ if (0..n).contains(&i) => Some(i),
        _ if n == 0 => None,
        "edge" => Some(i.clamp(0, n - 1)),
        "wrap" => Some(i.rem_euclid(n)),
        "reflect" => {
            let period = 2 * (n - 1).max(1);
            let k = i.rem_euclid(period);
            Some(if k < n { k } else { period - k })
        }
        _ => None,
    }
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (x, to) = (cx.input(0)?, cx.out_shape(0)?);
    let rank = x.shape().len();
    let pads = cx.input(1)?.to_i64();
    let axes = match cx.get(3) {
        Some(t) => {
            t.to_i64().iter().map(|&a| normalize_axis(a, rank, "axes")).collect::<Result<Vec<_>, _>>()?
        }
        None => (0..rank).collect(),
    };
    let mut before = vec![0; rank];
    axes.iter().zip(&pads).for_each(|(&a, &p)| before[a] = p);
    let mode = cx.attrs().str("mode")?;
    let own = strides(x.shape());
    let mut from = Vec::new();
    for_each_index(&to, |at| {
        let place =
            |d: usize| Some(source(mode, at[d] as i64 - before[d], x.shape()[d] as i64)? as usize * own[d]);
        from.push((0..rank).map(place).sum::<Option<usize>>());
    });
    let gap = match cx.get(2).map(Tensor::elems) {
        Some(Elems::F(v)) => v.first().map_or(Num::F(0.0), |&x| Num::F(x)),
        Some(Elems::I(v)) => v.first().map_or(Num::I(0), |&x| Num::I(x)),
        None => Num::I(0),
    };
    Ok(vec![cx.make(0, &to, take(&x.elems(), &from, gap))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for mode in ["constant", "edge", "reflect", "wrap"] {
        let op = kiln_ir::problem::op("pad", Attrs::new().with("mode", mode));
        for (shape, pads) in [
            (&[3, 5][..], &[1, 2, 0, 3][..]),
            (&[4, 2, 3], &[0, 1, -1, 2, 0, 1]),
            (&[6], &[-2, -3]),
            (&[2, 5, 16], &[0, 3, 3, 0, 3, 5]),
            (&[3, 24], &[2, 8, 1, 40]),
            (&[4, 77], &[1, 5, 0, 6]),
        ] {
            for t in [DType::F32, DType::F16, DType::I64, DType::U8, DType::Bool] {
                let p = rng.i64s(&[pads.len()], pads);
                out.push(Problem::new(
                    &format!("{mode} {shape:?} {t}"),
                    op.clone(),
                    [rng.tensor(t, shape), p],
                ));
            }
        }
        let (p, a) = (rng.i64s(&[2], &[2, 1]), rng.i64s(&[1], &[-2]));
        let inputs = vec![
            Some(rng.tensor(DType::F32, &[2, 4, 3])),
            Some(p),
            Some(rng.tensor(DType::F32, &[])),
            Some(a),
        ];
        out.push(Problem { label: format!("{mode}, value and axes"), op, inputs });
    }
    {
        let op = kiln_ir::problem::op("pad", Attrs::new());
        let p = rng.i64s(&[4], &[1, 0, 1, 2]);
        out.push(Problem::new("empty", op, [rng.tensor(DType::F32, &[0, 2]), p]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{f32s, ints, run, run_all};

    fn padded(mode: &str, v: &[f64], pads: &[i64]) -> Vec<f64> {
        let ins = [f32s(&[v.len()], v), ints(DType::I64, &[2], pads)];
        run("pad", Attrs::new().with("mode", mode), &ins).to_f64()
    }

    #[test]
    fn each_mode_takes_its_own_elements() {
        let v = [1., 2., 3.];
        assert_eq!(padded("constant", &v, &[1, 2]), [0., 1., 2., 3., 0., 0.]);
        assert_eq!(padded("edge", &v, &[2, 1]), [1., 1., 1., 2., 3., 3.]);
        assert_eq!(padded("reflect", &v, &[2, 2]), [3., 2., 1., 2., 3., 2., 1.]);
        assert_eq!(padded("wrap", &v, &[2, 1]), [2., 3., 1., 2., 3., 1.]);
        assert_eq!(padded("constant", &v, &[-1, 1]), [2., 3., 0.]);
    }

    #[test]
    fn cutting_more_than_there_is_is_refused() {
        let ins = [f32s(&[2], &[1., 2.]), ints(DType::I64, &[2], &[-2, -1])];
        assert!(run_all("pad", Attrs::new(), &ins.map(Some)).is_err());
    }
}
