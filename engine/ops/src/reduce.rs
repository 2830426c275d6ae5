//! `reduce`: sums, products, extrema, means and norms over axes.

pub mod argreduce;
pub mod cumulative;

mod fold;
mod problems;

pub use fold::ReduceOp;

use crate::layout::listed_axes;
use crate::util::{PLAIN, for_each_group};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, normalize_axes};
use kiln_ir::op::{AxesPlace, LayoutRule, NamedAxes, OpDef, Roles, Tolerance, attr, choice, input, optional};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    REDUCE = "reduce",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: REDUCE,
    doc: "One value for all elements of x along the given axes (absent or empty: along all; with \
          `noop_with_empty_axes` along none, so that every element is reduced by itself). `keep_dims` leaves \
          dimensions of 1. sum Σx · prod Πx · max · min · mean Σx/n · l1 Σ|x| · l2 √Σx² · log_sum ln Σx · \
          log_sum_exp ln Σeˣ · sum_square Σx². NaN wins in max and min. Of no elements: sum, l1, l2 and sum_square \
          give 0, prod 1, max −∞ or the type's least value, min the opposite, log_sum and log_sum_exp −∞, mean NaN \
          or 0 for integers. Floats accumulate in f32 at least. Integer sums wrap; integer mean, l2 and logarithms \
          truncate toward zero and saturate. Bool only for max and min.",
    inputs: &[input("x"), optional("axes").on_host()],
    attrs: &[
        choice("op", || "sum".into(), ReduceOp::NAMES),
        attr("keep_dims", || Attr::Bool(true)),
        attr("noop_with_empty_axes", || Attr::Bool(false)),
    ],
    infer,
    eval,
    tolerance: Tolerance::ByAttrs(tolerance),
    problems: problems::problems,
    roles: Roles {
        absorbs_pointwise: true,
        keeps_f32: true,
        layout: LayoutRule::Axes(named_axes),
        ..Roles::NONE
    },
    ..PLAIN
}];

/// Reduced axes. Where reduced dimensions go, others move up: only kept ones stay where images have them.
fn named_axes(attrs: &Attrs, inputs: &[Option<&Fact>], rank: usize) -> Option<NamedAxes> {
    let axes = listed_axes(inputs, 1, rank)?.filter(|axes| !axes.is_empty())?;
    attrs.bool("keep_dims").ok()?.then_some(NamedAxes { place: AxesPlace::Input(1), axes })
}

/// Tolerance of sums of terms that are linear in x, of extrema, or of functions of sums.
fn tolerance(attrs: &Attrs) -> Tolerance {
    match ReduceOp::of(attrs) {
        Ok(ReduceOp::Max | ReduceOp::Min) => Tolerance::Exact,
        Ok(ReduceOp::Sum | ReduceOp::Mean | ReduceOp::L1 | ReduceOp::SumSquare) => Tolerance::Sum,
        _ => Tolerance::Conditioned,
    }
}

/// Axes that are reduced, by position, once their numbers are known.
pub fn mask(attrs: &Attrs, axes: Option<&[i64]>, rank: usize) -> Result<Vec<bool>, OpError> {
    let axes = axes.unwrap_or_default();
    if axes.is_empty() {
        return Ok(vec![!attrs.bool("noop_with_empty_axes")?; rank]);
    }
    let axes = normalize_axes(axes, rank, "axes")?;
    Ok((0..rank).map(|i| axes.contains(&i)).collect())
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    let op = ReduceOp::of(cx.attrs)?;
    check_dtype(cx, op)?;
    if cx.has(1) {
        cx.check_dtype(1, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
        cx.check_rank(1, 1)?;
    }
    let empty = cx.has(1) && cx.dims(1)?[0].is(0);
    let axes = if cx.has(1) && !empty { cx.ints(1) } else { Some(Vec::new()) };
    let Some(axes) = axes else { return unknown_axes(cx, x) };
    let mask = mask(cx.attrs, Some(&axes), x.rank())?;
    let keep = cx.attrs.bool("keep_dims")?;
    let dims: Vec<Dim> = (0..x.rank())
        .filter(|&i| keep || !mask[i])
        .map(|i| if mask[i] { Dim::new(1) } else { x.dims[i].clone() })
        .collect();
    let ty = TensorType { dtype: x.dtype, dims };
    Ok(vec![match followed(cx, op, x, &mask) {
        Some(v) => Fact::contents(ty, v),
        None => Fact::of(ty),
    }])
}

fn check_dtype(cx: &InferCx<'_>, op: ReduceOp) -> Result<(), OpError> {
    let order = matches!(op, ReduceOp::Max | ReduceOp::Min);
    let (wanted, number) = if order {
        ("f32, f16, bf16, i8, u8, i32, i64 or bool", true)
    } else {
        ("f32, f16, bf16, i8, u8, i32 or i64", false)
    };
    let ok = |d| !matches!(d, DType::F8E4M3 | DType::I4) && (number || d != DType::Bool);
    cx.check_dtype(0, ok, wanted).map(drop)
}

/// The rank must follow from the number of axes; every dimension is computed once the axes are known.
fn unknown_axes(cx: &InferCx<'_>, x: &TensorType) -> Result<Vec<Fact>, OpError> {
    let bound = x.dims.iter().fold(Dim::new(1), |a, d| a.max_with(d));
    let cut = match (cx.attrs.bool("keep_dims")?, cx.dims(1)?[0].as_const()) {
        (true, _) => 0,
        (false, Some(n)) if (0..=x.rank() as i64).contains(&n) => n as usize,
        (false, Some(n)) => {
            return Err(OpError::Value(format!("{n} axes are given for a tensor of rank {}", x.rank())));
        }
        (false, None) => {
            return Err(OpError::NeedsValue {
                input: 1,
                name: "axes".into(),
                wanted: "of a length that is known when the network is built, or keep_dims must be true"
                    .into(),
            });
        }
    };
    let dims = (0..x.rank() - cut).map(|i| cx.fresh_from(1, &format!("d{i}"), Some(bound.clone()))).collect();
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims })])
}

/// The results as functions of symbols, where the elements of x are.
fn followed(cx: &InferCx<'_>, op: ReduceOp, x: &TensorType, mask: &[bool]) -> Option<Vec<Dim>> {
    matches!(x.dtype, DType::I32 | DType::I64).then_some(())?;
    let (v, shape) = (cx.contents(0)?, x.static_dims()?);
    let mut out = Some(Vec::new());
    for_each_group(&shape, mask, |at| {
        let group = at.iter().map(|&i| v[i].clone()).collect::<Vec<_>>();
        if let (Some(all), Some(d)) = (&mut out, op.of_dims(&group)) { all.push(d) } else { out = None }
    });
    out
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let op = ReduceOp::of(cx.attrs())?;
    let axes = cx.get(1).map(Tensor::to_i64);
    let mask = mask(cx.attrs(), axes.as_deref(), x.shape().len())?;
    let shape = cx.out_shape(0)?;
    let elems = match x.elems() {
        Elems::F(v) => {
            let mut out = Vec::new();
            for_each_group(x.shape(), &mask, |at| {
                out.push(op.of_floats(&at.iter().map(|&i| v[i]).collect::<Vec<_>>()));
            });
            Elems::F(out)
        }
        Elems::I(v) => {
            let mut out = Vec::new();
            for_each_group(x.shape(), &mask, |at| {
                out.push(op.of_ints(&at.iter().map(|&i| v[i]).collect::<Vec<_>>(), x.dtype()));
            });
            Elems::I(out)
        }
    };
    Ok(vec![cx.make(0, &shape, elems)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, floats, ints, run};
    use kiln_ir::op::Op;

    fn reduce(op: &str) -> Attrs {
        Attrs::new().with("op", op)
    }

    #[test]
    fn every_op_on_three_numbers() {
        let x = f32s(&[3], &[1.0, -2.0, 4.0]);
        let e = std::f64::consts::E;
        let wanted = [
            ("sum", 3.0),
            ("prod", -8.0),
            ("max", 4.0),
            ("min", -2.0),
            ("mean", 1.0),
            ("l1", 7.0),
            ("l2", 21f64.sqrt()),
            ("log_sum", 3f64.ln()),
            ("log_sum_exp", (e + e.powi(-2) + e.powi(4)).ln()),
            ("sum_square", 21.0),
        ];
        for (op, want) in wanted {
            assert_near(&run("reduce", reduce(op), std::slice::from_ref(&x)), &[1], &[want], 1e-6);
        }
    }

    #[test]
    fn axes_select_and_keep_dims_keeps() {
        let x = ints(DType::I32, &[2, 3], &[1, 2, 3, 4, 5, 6]);
        let axes = |v: &[i64]| ints(DType::I64, &[v.len()], v);
        let drop = reduce("sum").with("keep_dims", false);
        assert_near(&run("reduce", drop.clone(), &[x.clone(), axes(&[0])]), &[3], &[5.0, 7.0, 9.0], 0.0);
        assert_near(&run("reduce", reduce("max"), &[x.clone(), axes(&[-1])]), &[2, 1], &[3.0, 6.0], 0.0);
        assert_near(&run("reduce", drop.clone(), &[x.clone(), axes(&[])]), &[], &[21.0], 0.0);
        let noop = reduce("sum_square").with("noop_with_empty_axes", true);
        assert_near(&run("reduce", noop, &[x]), &[2, 3], &[1.0, 4.0, 9.0, 16.0, 25.0, 36.0], 0.0);
    }

    #[test]
    fn nothing_reduces_to_the_neutral_element() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        let none = f32s(&[2, 0], &[]);
        let axis = ints(DType::I64, &[1], &[1]);
        for (op, want) in
            [("sum", 0.0), ("prod", 1.0), ("max", -inf), ("min", inf), ("mean", nan), ("l2", 0.0)]
        {
            assert_near(&run("reduce", reduce(op), &[none.clone(), axis.clone()]), &[2, 1], &[want; 2], 0.0);
        }
        assert_near(&run("reduce", reduce("log_sum_exp"), &[none, axis]), &[2, 1], &[-inf; 2], 0.0);
        let ints = ints(DType::I32, &[0], &[]);
        for (op, want) in [("max", f64::from(i32::MIN)), ("min", f64::from(i32::MAX)), ("mean", 0.0)] {
            assert_near(&run("reduce", reduce(op), std::slice::from_ref(&ints)), &[1], &[want], 0.0);
        }
    }

    #[test]
    fn nan_wins_and_large_exponents_do_not_overflow() {
        let x = f32s(&[3], &[1.0, f64::NAN, 2.0]);
        assert_near(&run("reduce", reduce("max"), std::slice::from_ref(&x)), &[1], &[f64::NAN], 0.0);
        assert_near(&run("reduce", reduce("min"), &[x]), &[1], &[f64::NAN], 0.0);
        let x = f32s(&[2], &[1e6, 1e6]);
        assert_near(&run("reduce", reduce("log_sum_exp"), &[x]), &[1], &[1e6 + 2f64.ln()], 0.1);
    }

    #[test]
    fn integers_wrap_truncate_and_sums_of_halves_round_once() {
        let x = ints(DType::I8, &[2], &[100, 100]);
        assert_eq!(run("reduce", reduce("sum"), &[x]).to_i64(), [-56]);
        let x = ints(DType::I32, &[3], &[-1, -2, -2]);
        assert_eq!(run("reduce", reduce("mean"), std::slice::from_ref(&x)).to_i64(), [-1]);
        assert_eq!(run("reduce", reduce("l2"), &[x]).to_i64(), [3]);
        let x = floats(DType::F16, &[4097], &[1.0; 4097]);
        assert_eq!(run("reduce", reduce("sum"), &[x]).to_f64(), [4096.0]);
        let x = ints(DType::Bool, &[2], &[0, 1]);
        assert_eq!(run("reduce", reduce("max"), std::slice::from_ref(&x)).to_i64(), [1]);
        assert!(Op::new("reduce", reduce("sum")).unwrap().eval(&[Some(x)]).is_err());
    }

    #[test]
    fn small_shapes_are_followed() {
        let shape = [Dim::host("b"), Dim::new(3), Dim::host("s")];
        let x = Fact::contents(TensorType::new(DType::I64, [3]), shape.to_vec());
        let follow = |op: &str| {
            let op = Op::new("reduce", reduce(op).with("keep_dims", false)).unwrap();
            op.infer(&[Some(x.clone())], "r").unwrap()[0].as_dims().map(|d| d[0].clone())
        };
        assert_eq!(follow("prod"), Some(Dim::host("b") * Dim::host("s") * 3.into()));
        assert_eq!(follow("sum"), Some(Dim::host("b") + Dim::host("s") + 3.into()));
        let (b, s) = (Dim::host("b"), Dim::host("s"));
        assert_eq!(follow("max"), Some(b.max_with(&3.into()).max_with(&s)));
        assert_eq!(follow("mean"), None);
    }

    #[test]
    fn unknown_axes_need_a_known_rank() {
        let x = Some(Fact::of(TensorType::new(DType::F32, [2, 3])));
        let axes = |n: Dim| Some(Fact::of(TensorType { dtype: DType::I64, dims: vec![n] }));
        let op = |keep: bool| Op::new("reduce", reduce("sum").with("keep_dims", keep)).unwrap();
        assert_eq!(op(false).infer(&[x.clone(), axes(1.into())], "r").unwrap()[0].ty.rank(), 1);
        assert_eq!(op(true).infer(&[x.clone(), axes(Dim::host("n"))], "r").unwrap()[0].ty.rank(), 2);
        assert!(op(false).infer(&[x.clone(), axes(Dim::host("n"))], "r").is_err());
        assert!(op(false).infer(&[x, axes(3.into())], "r").is_err());
    }
}
