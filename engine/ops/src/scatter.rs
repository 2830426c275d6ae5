//! `scatter_elements` and `scatter_nd`: a copy of a tensor with elements replaced or combined at given places.

use crate::indices::wrap_index;
use crate::util::{PLAIN, for_each_index, offset, strides};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ, normalize_axis};
use kiln_ir::op::{AttrDef, OpDef, Port, Roles, Tolerance, attr, choice, input};
use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::range::{IndexRange, RangeCx};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::dims_text;

const PORTS: &[Port] = &[input("x"), input("indices"), input("updates")];
const REDUCTION: AttrDef = choice("reduction", || "none".into(), &["none", "add", "mul", "max", "min"]);

/// Elements that are copied or compared keep their bits.
fn tolerance(attrs: &kiln_ir::Attrs) -> Tolerance {
    match attrs.str("reduction") {
        Ok("add") => Tolerance::Sum,
        Ok("mul") => Tolerance::Conditioned,
        _ => Tolerance::Exact,
    }
}

kiln_ir::op_names! {
    SCATTER_ELEMENTS = "scatter_elements",
    SCATTER_ND = "scatter_nd",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: SCATTER_ELEMENTS,
        doc: "y = x, then for every index p of `indices`: y[p with p[axis] = indices[p]] = updates[p], or combined with \
              what is there by `reduction`, in row-major order of p. Negative indices count from the end; those out of \
              range are an error.",
        inputs: PORTS,
        attrs: &[attr("axis", || Attr::Int(0)), REDUCTION],
        infer: infer_elements,
        tolerance: Tolerance::ByAttrs(tolerance),
        eval: eval_elements,
        ranges: Some(|cx| Ok(vec![IndexRange::signed(1, cx.size(0, cx.axis("axis", 0)?))])),
        problems: element_problems,
        roles: Roles { reads_through_movement: true, ..Roles::NONE },
        ..PLAIN
    },
    OpDef {
        name: SCATTER_ND,
        doc: "y = x, then for every index p of all but the last dimension of `indices`: the slice y[indices[p]] = \
              updates[p], or combined with what is there by `reduction`, in row-major order of p. Negative indices count \
              from the end; those out of range are an error.",
        inputs: PORTS,
        attrs: &[REDUCTION],
        infer: infer_nd,
        tolerance: Tolerance::ByAttrs(tolerance),
        eval: eval_nd,
        ranges: Some(ranges_nd),
        problems: nd_problems,
        roles: Roles { reads_through_movement: true, ..Roles::NONE },
        ..PLAIN
    },
];

fn check(cx: &InferCx<'_>) -> Result<(), OpError> {
    cx.same_dtype(0, 2)?;
    cx.check_dtype(1, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
    Ok(())
}

fn infer_elements(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    check(cx)?;
    let x = cx.ty(0)?;
    cx.axis("axis", x.rank())?;
    cx.check_rank(1, x.rank())?;
    let (i, u) = (cx.dims(1)?, cx.dims(2)?);
    if i.len() != u.len() || i.iter().zip(u).any(|(a, b)| differ(a, b)) {
        return Err(cx.bad_shape(2, &format!("[{}], as input 1 has", dims_text(i))));
    }
    Ok(vec![Fact::of(x.clone())])
}

fn infer_nd(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    check(cx)?;
    let x = cx.ty(0)?;
    let indices = cx.dims(1)?;
    let depth = indices.last().and_then(|d| d.as_const()).and_then(|d| usize::try_from(d).ok());
    let Some(depth) = depth.filter(|&d| d <= x.rank()) else {
        return Err(cx.bad_shape(1, &format!("a last dimension that is known and at most {}", x.rank())));
    };
    let wanted: Vec<_> = indices[..indices.len() - 1].iter().chain(&x.dims[depth..]).cloned().collect();
    let u = cx.dims(2)?;
    if u.len() != wanted.len() || u.iter().zip(&wanted).any(|(a, b)| differ(a, b)) {
        return Err(cx.bad_shape(2, &format!("[{}]", dims_text(&wanted))));
    }
    Ok(vec![Fact::of(x.clone())])
}

fn ranges_nd(cx: &RangeCx<'_>) -> Result<Vec<IndexRange>, OpError> {
    let depth = cx.dims(1).last().and_then(|&d| usize::try_from(d).ok());
    let sizes = depth.and_then(|d| cx.dims(0).get(..d)).unwrap_or_default();
    Ok(vec![IndexRange::tuples(1, sizes)])
}

/// An index counted from the end if negative; the contents of `indices` were checked before.
fn place(i: i64, n: usize) -> usize {
    wrap_index(i, n).unwrap_or(0)
}

fn eval_elements(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let axis = normalize_axis(cx.attrs().int("axis")?, x.shape().len(), "axis")?;
    let own = strides(x.shape());
    let values = indices.to_i64();
    let mut targets = Vec::with_capacity(values.len());
    for_each_index(indices.shape(), |at| {
        let p = place(values[targets.len()], x.shape()[axis]);
        targets.push(offset(at, &own) + p * own[axis] - at[axis] * own[axis]);
    });
    finish(cx, targets)
}

fn eval_nd(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let depth = indices.shape().last().copied().unwrap_or(0);
    let own = strides(x.shape());
    let slice: usize = x.shape()[depth..].iter().product();
    let tuples: usize = indices.shape()[..indices.shape().len().saturating_sub(1)].iter().product();
    let values = indices.to_i64();
    let mut targets = Vec::new();
    for t in 0..tuples {
        let base: usize = (0..depth).map(|d| place(values[t * depth + d], x.shape()[d]) * own[d]).sum();
        targets.extend(base..base + slice);
    }
    finish(cx, targets)
}

/// Writes update `i` to target `i`, in order.
fn finish(cx: &EvalCx<'_>, targets: Vec<usize>) -> Result<Vec<Tensor>, OpError> {
    let (x, updates) = (cx.input(0)?, cx.input(2)?);
    let how = cx.attrs().str("reduction")?;
    let out = match (x.elems(), updates.elems()) {
        (Elems::F(mut v), Elems::F(u)) => {
            targets.iter().zip(u).for_each(|(&t, u)| v[t] = combine_f(how, v[t], u));
            Elems::F(v)
        }
        (Elems::I(mut v), Elems::I(u)) => {
            targets.iter().zip(u).for_each(|(&t, u)| v[t] = combine_i(how, v[t], u));
            Elems::I(v)
        }
        _ => return Err(OpError::Value("x and updates differ in type".into())),
    };
    Ok(vec![cx.make(0, x.shape(), out)?])
}

fn combine_f(how: &str, old: f64, new: f64) -> f64 {
    match how {
        "add" => old + new,
        "mul" => old * new,
        _ if how != "none" && (old.is_nan() || new.is_nan()) => f64::NAN,
        "max" => old.max(new),
        "min" => old.min(new),
        _ => new,
    }
}

fn combine_i(how: &str, old: i64, new: i64) -> i64 {
    match how {
        "add" => old.wrapping_add(new),
        "mul" => old.wrapping_mul(new),
        "max" => old.max(new),
        "min" => old.min(new),
        _ => new,
    }
}

fn element_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for how in ["none", "add", "mul", "max", "min"] {
        for (shape, part, axis) in [
            (&[5, 7][..], &[3, 7][..], 0),
            (&[4, 6], &[4, 2], 1),
            (&[3, 2, 5], &[3, 2, 5], -1),
            (&[4, 6], &[0, 2], 1),
        ] {
            let n = shape[if axis < 0 { shape.len() - 1 } else { axis as usize }] as i64;
            for t in [DType::F32, DType::F16, DType::I64, DType::I8] {
                let attrs = Attrs::new().with("axis", axis as i64).with("reduction", how);
                let op = kiln_ir::problem::op("scatter_elements", attrs);
                // Without a reduction no place may be written twice: every slice counts up along the axis.
                let count: usize = part.iter().product();
                let along = crate::util::strides(part)[if axis < 0 { part.len() - 1 } else { axis as usize }];
                let v: Vec<i64> = (0..count)
                    .map(|i| if how == "none" { (i / along) as i64 % n } else { rng.int(-n, n - 1) })
                    .collect();
                let ins = [rng.tensor(t, shape), rng.i64s(part, &v), rng.tensor(t, part)];
                out.push(Problem::new(&format!("{how} {shape:?} axis {axis} {t}"), op, ins));
            }
        }
    }
    // Many updates of few places, with special values. Sums and products of narrow floats may be rounded at each update.
    for how in ["none", "add", "mul", "max", "min"] {
        for t in [DType::F32, DType::BF16, DType::F16, DType::I32, DType::I64, DType::U8] {
            if matches!(how, "add" | "mul") && matches!(t, DType::BF16 | DType::F16) {
                continue;
            }
            let attrs = Attrs::new().with("axis", 1i64).with("reduction", how);
            let op = kiln_ir::problem::op("scatter_elements", attrs);
            let (shape, part) = ([2, 11, 4, 3], [2, 70, 4, 2]);
            let v: Vec<i64> = (0..part.iter().product()).map(|_| rng.int(-11, 10)).collect();
            let updates = match t {
                DType::F32 | DType::BF16 => made(rng.edge_floats(t, v.len()).reshaped(&part)),
                _ => rng.tensor(t, &part),
            };
            let ins = [rng.tensor(t, &shape), rng.i64s(&part, &v), updates];
            out.push(Problem::new(&format!("{how} many {t}"), op, ins));
        }
    }
    out
}

fn nd_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for how in ["none", "add", "mul", "max", "min"] {
        for (shape, indices, values, updates) in [
            (&[8][..], &[4, 1][..], &[4, 3, 1, -1][..], &[4][..]),
            (&[4, 3, 2], &[2, 1], &[0, 2], &[2, 3, 2]),
            (&[4, 3], &[2, 2], &[0, 2, 3, 1], &[2]),
            (&[4, 3], &[0, 1], &[], &[0, 3]),
        ] {
            for t in [DType::F32, DType::F16, DType::I64, DType::U8] {
                let op = kiln_ir::problem::op("scatter_nd", Attrs::new().with("reduction", how));
                let ins = [rng.tensor(t, shape), rng.i64s(indices, values), rng.tensor(t, updates)];
                out.push(Problem::new(&format!("{how} {shape:?} {t}"), op, ins));
            }
        }
    }
    for how in ["none", "add", "mul", "max", "min"] {
        for t in [DType::F32, DType::I32] {
            let op = kiln_ir::problem::op("scatter_nd", Attrs::new().with("reduction", how));
            let v: Vec<i64> = (0..3 * 40 * 2).map(|_| rng.int(-3, 2)).collect();
            let ins = [rng.tensor(t, &[4, 3, 5]), rng.i64s(&[3, 40, 2], &v), rng.tensor(t, &[3, 40, 5])];
            out.push(Problem::new(&format!("{how} many {t}"), op, ins));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{f32s, ints, run, run_all};

    #[test]
    fn elements_go_along_the_axis() {
        let x = f32s(&[1, 5], &[1., 2., 3., 4., 5.]);
        let i = ints(DType::I64, &[1, 2], &[1, -2]);
        let u = f32s(&[1, 2], &[1.5, 2.5]);
        let y = run("scatter_elements", Attrs::new().with("axis", 1i64), &[x.clone(), i, u.clone()]);
        assert_eq!(y.to_f64(), [1., 1.5, 3., 2.5, 5.]);
        let i = ints(DType::I64, &[1, 2], &[1, 1]);
        let attrs = Attrs::new().with("axis", 1i64).with("reduction", "add");
        assert_eq!(run("scatter_elements", attrs, &[x, i, u]).to_f64(), [1., 6., 3., 4., 5.]);
    }

    #[test]
    fn slices_go_to_tuples() {
        let x = f32s(&[8], &[1., 2., 3., 4., 5., 6., 7., 8.]);
        let i = ints(DType::I64, &[4, 1], &[4, 3, 1, 7]);
        let u = f32s(&[4], &[9., 10., 11., 12.]);
        assert_eq!(run("scatter_nd", Attrs::new(), &[x, i, u]).to_f64(), [1., 11., 3., 10., 9., 6., 7., 12.]);
    }

    #[test]
    fn an_index_out_of_range_is_an_error() {
        let ins = [f32s(&[2], &[1., 2.]), ints(DType::I64, &[1], &[2]), f32s(&[1], &[0.])];
        let e = run_all("scatter_elements", Attrs::new(), &ins.map(Some)).unwrap_err();
        assert!(matches!(e, OpError::Index { at: 0, found: 2, least: -2, greatest: 1, .. }), "{e}");
    }
}
