//! Operators that move elements by a fixed rule: `trilu`, `reverse_sequence`, `depth_to_space`,
//! `space_to_depth`, `center_crop_pad`.

use crate::indices::{self, take};
use crate::util::{PLAIN, for_each_index, offset, strides};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::expr::Num;
use kiln_ir::infer::{Fact, InferCx, differ, normalize_axes, normalize_axis};
use kiln_ir::op::{Op, OpDef, attr, choice, input, optional, required};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::range::IndexRange;
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    TRILU = "trilu",
    REVERSE_SEQUENCE = "reverse_sequence",
    DEPTH_TO_SPACE = "depth_to_space",
    SPACE_TO_DEPTH = "space_to_depth",
    CENTER_CROP_PAD = "center_crop_pad",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: TRILU,
        doc: "The upper (or lower) triangle of the last two dimensions, from diagonal k (positive: above the main one) on; \
              zeros elsewhere. k is a scalar, 0 if absent.",
        inputs: &[input("x"), optional("k").on_host()],
        attrs: &[attr("upper", || Attr::Bool(true))],
        infer: infer_trilu,
        eval: eval_trilu,
        problems: trilu_problems,
        ..PLAIN
    },
    OpDef {
        name: REVERSE_SEQUENCE,
        doc: "For each position b along `batch_axis`, the first lens[b] elements along `time_axis` in reverse order, the \
              others as they are. A length that is negative, or greater than the axis, is an error.",
        inputs: &[input("x"), input("lens")],
        attrs: &[attr("batch_axis", || Attr::Int(1)), attr("time_axis", || Attr::Int(0))],
        infer: infer_reverse,
        eval: eval_reverse,
        ranges: Some(|cx| Ok(vec![IndexRange::up_to(1, cx.size(0, cx.axis("time_axis", 0)?))])),
        problems: reverse_problems,
        ..PLAIN
    },
    OpDef {
        name: DEPTH_TO_SPACE,
        doc: "[N, C·b², H, W] to [N, C, H·b, W·b]. The channels are taken as [b, b, C] (DCR) or [C, b, b] (CRD).",
        attrs: &[required("block", || Attr::Int(1)), choice("mode", || "DCR".into(), &["DCR", "CRD"])],
        infer: infer_depth_to_space,
        eval: eval_depth_to_space,
        problems: depth_problems,
        ..PLAIN
    },
    OpDef {
        name: SPACE_TO_DEPTH,
        doc: "[N, C, H·b, W·b] to [N, C·b², H, W]. The channels are written as [b, b, C] (DCR) or [C, b, b] (CRD).",
        attrs: &[required("block", || Attr::Int(1)), choice("mode", || "DCR".into(), &["DCR", "CRD"])],
        infer: infer_space_to_depth,
        eval: eval_space_to_depth,
        problems: space_problems,
        ..PLAIN
    },
    OpDef {
        name: CENTER_CROP_PAD,
        doc: "x cropped or padded with zeros around its centre to the sizes in `shape`, along `axes` (all of them if the \
              list is empty). Of an odd difference the larger part is cropped or padded at the end.",
        inputs: &[input("x"), input("shape").on_host()],
        attrs: &[attr("axes", || Attr::Ints(Vec::new()))],
        infer: infer_center,
        eval: eval_center,
        problems: center_problems,
        ..PLAIN
    },
];

/// Output 0 with each element taken from where `from` says (given its index and the strides of `x`), or zero.
fn moved(
    cx: &EvalCx<'_>,
    x: &Tensor,
    from: impl Fn(&[usize], &[usize]) -> Option<usize>,
) -> Result<Vec<Tensor>, OpError> {
    let shape = cx.out_shape(0)?;
    let own = strides(x.shape());
    let mut v = Vec::new();
    for_each_index(&shape, |at| v.push(from(at, &own)));
    Ok(vec![cx.make(0, &shape, take(&x.elems(), &v, Num::I(0)))?])
}

fn infer_trilu(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_shape(0, |d| d.len() >= 2, "at least 2 dimensions")?;
    if cx.has(1) {
        cx.check_shape(1, |d| d.iter().all(|d| d.is(1)), "a scalar")?;
    }
    Ok(vec![Fact::of(cx.ty(0)?.clone())])
}

fn eval_trilu(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let k = cx.get(1).and_then(Tensor::scalar_i64).unwrap_or(0);
    let upper = cx.attrs().bool("upper")?;
    moved(cx, cx.input(0)?, |at, own| {
        let [.., i, j] = at else { return None };
        let d = *j as i64 - *i as i64;
        (if upper { d >= k } else { d <= k }).then(|| offset(at, own))
    })
}

fn infer_reverse(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    cx.check_shape(0, |d| d.len() >= 2, "at least 2 dimensions")?;
    let (batch, time) = (cx.axis("batch_axis", x.rank())?, cx.axis("time_axis", x.rank())?);
    if batch == time {
        let wanted = "another axis than batch_axis".into();
        return Err(OpError::Attr { name: "time_axis".into(), found: time.to_string(), wanted });
    }
    cx.check_dtype(1, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
    let n = x.dims[batch].clone();
    cx.check_shape(1, |d| matches!(d, [l] if !differ(l, &n)), &format!("{n} elements, one a batch"))?;
    Ok(vec![Fact::of(x.clone())])
}

fn eval_reverse(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (x, lens) = (cx.input(0)?, cx.input(1)?.to_i64());
    let rank = x.shape().len();
    let batch = normalize_axis(cx.attrs().int("batch_axis")?, rank, "batch_axis")?;
    let time = normalize_axis(cx.attrs().int("time_axis")?, rank, "time_axis")?;
    moved(cx, x, |at, own| {
        let len = lens[at[batch]] as usize;
        let t = if at[time] < len { len - 1 - at[time] } else { at[time] };
        Some(offset(at, own) + t * own[time] - at[time] * own[time])
    })
}

/// The block size, at least 1.
fn block(attrs: &Attrs) -> Result<i64, OpError> {
    let b = attrs.int("block")?;
    if (1..=1 << 16).contains(&b) {
        return Ok(b);
    }
    Err(OpError::Attr { name: "block".into(), found: b.to_string(), wanted: "1 to 65536".into() })
}

fn infer_depth_to_space(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let b = block(cx.attrs)?;
    cx.check_rank(0, 4)?;
    let x = cx.ty(0)?;
    let bb = Dim::new(b * b);
    cx.check_shape(
        0,
        |d| !differ(&d[1].modulo(&bb), &0.into()),
        &format!("channels that are a multiple of {bb}"),
    )?;
    let d = &x.dims;
    let dims = vec![d[0].clone(), d[1].floor_div(&bb), d[2].clone() * b.into(), d[3].clone() * b.into()];
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims })])
}

fn eval_depth_to_space(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (b, crd) = (block(cx.attrs())? as usize, cx.attrs().str("mode")? == "CRD");
    let x = cx.input(0)?;
    let channels = x.shape()[1] / (b * b);
    moved(cx, x, |at, own| {
        let (i, j) = (at[2] % b, at[3] % b);
        let c = if crd { at[1] * b * b + i * b + j } else { (i * b + j) * channels + at[1] };
        Some(offset(&[at[0], c, at[2] / b, at[3] / b], own))
    })
}

fn infer_space_to_depth(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let b = Dim::new(block(cx.attrs)?);
    cx.check_rank(0, 4)?;
    let x = cx.ty(0)?;
    let fits = |d: &Dim| !differ(&d.modulo(&b), &0.into());
    cx.check_shape(
        0,
        |d| fits(&d[2]) && fits(&d[3]),
        &format!("height and width that are multiples of {b}"),
    )?;
    let d = &x.dims;
    let dims =
        vec![d[0].clone(), d[1].clone() * b.clone() * b.clone(), d[2].floor_div(&b), d[3].floor_div(&b)];
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims })])
}

fn eval_space_to_depth(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (b, crd) = (block(cx.attrs())? as usize, cx.attrs().str("mode")? == "CRD");
    let x = cx.input(0)?;
    let channels = x.shape()[1];
    moved(cx, x, |at, own| {
        let (c, part) = match crd {
            true => (at[1] / (b * b), at[1] % (b * b)),
            false => (at[1] % channels, at[1] / channels),
        };
        Some(offset(&[at[0], c, at[2] * b + part / b, at[3] * b + part % b], own))
    })
}

fn center_axes(attrs: &Attrs, rank: usize) -> Result<Vec<usize>, OpError> {
    let given = attrs.ints("axes")?;
    // The sizes come in the order in which the axes are listed.
    normalize_axes(given, rank, "axes")?;
    if given.is_empty() {
        return Ok((0..rank).collect());
    }
    given.iter().map(|&a| normalize_axis(a, rank, "axes")).collect()
}

fn infer_center(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    let axes = center_axes(cx.attrs, x.rank())?;
    let n = Dim::new(axes.len() as i64);
    cx.check_dtype(1, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
    cx.check_shape(1, |d| matches!(d, [k] if !differ(k, &n)), &format!("{n} elements, one an axis"))?;
    let known = cx.contents(1).filter(|v| !v.iter().any(Dim::has_content));
    let mut dims = x.dims.clone();
    for (k, &axis) in axes.iter().enumerate() {
        dims[axis] = match &known {
            Some(v) if v[k].as_const().is_some_and(|n| n < 0) => {
                return Err(OpError::Value(format!("shape[{k}] is {}; wants 0 or more", v[k])));
            }
            Some(v) => v[k].clone(),
            None => cx.fresh_from(1, &format!("d{axis}"), indices::size_bound(cx, 1, k)),
        };
    }
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims })])
}

fn eval_center(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let to = cx.out_shape(0)?;
    // The place in x of the result's first element: before x where there is padding.
    let shift: Vec<i64> = x
        .shape()
        .iter()
        .zip(&to)
        .map(|(&a, &b)| if a >= b { ((a - b) / 2) as i64 } else { -(((b - a) / 2) as i64) })
        .collect();
    moved(cx, x, |at, own| {
        let mut from = 0;
        for d in 0..at.len() {
            let i = usize::try_from(at[d] as i64 + shift[d]).ok().filter(|&i| i < x.shape()[d])?;
            from += i * own[d];
        }
        Some(from)
    })
}

const TYPES: [DType; 5] = [DType::F32, DType::F16, DType::I64, DType::U8, DType::Bool];

fn with_each_type(rng: &mut Rng, op: &Op, label: &str, shape: &[usize], rest: &[Tensor]) -> Vec<Problem> {
    let one = |t: DType| {
        let ins = [vec![rng.tensor(t, shape)], rest.to_vec()].concat();
        Problem::new(&format!("{label} {shape:?} {t}"), op.clone(), ins)
    };
    TYPES.into_iter().map(one).collect()
}

fn trilu_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (k, upper) in [(0, true), (2, true), (-1, false), (9, true), (-9, false)] {
        let op = kiln_ir::problem::op("trilu", Attrs::new().with("upper", upper));
        let k = rng.i64s(&[], &[k]);
        for shape in [&[4, 5][..], &[2, 3, 3], &[0, 4]] {
            out.extend(with_each_type(rng, &op, "", shape, &[k.clone()]));
        }
    }
    out
}

fn reverse_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (b, t) in [(1, 0), (0, 1)] {
        let op = kiln_ir::problem::op(
            "reverse_sequence",
            Attrs::new().with("batch_axis", b as i64).with("time_axis", t as i64),
        );
        let lens = rng.i64s(&[4], &[0, 1, 3, 4]);
        out.extend(with_each_type(rng, &op, "", &[4, 4, 3], &[lens]));
    }
    out
}

fn depth_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for mode in ["DCR", "CRD"] {
        let op = kiln_ir::problem::op("depth_to_space", Attrs::new().with("block", 2i64).with("mode", mode));
        out.extend(with_each_type(rng, &op, mode, &[2, 12, 3, 5], &[]));
    }
    out
}

fn space_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for mode in ["DCR", "CRD"] {
        let op = kiln_ir::problem::op("space_to_depth", Attrs::new().with("block", 3i64).with("mode", mode));
        out.extend(with_each_type(rng, &op, mode, &[2, 2, 6, 9], &[]));
    }
    out
}

fn center_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (axes, to) in [(&[0i64; 0][..], &[10, 7, 3][..]), (&[0, -1], &[3, 8]), (&[1], &[0])] {
        let op = kiln_ir::problem::op("center_crop_pad", Attrs::new().with("axes", axes));
        let to = rng.i64s(&[to.len()], to);
        out.extend(with_each_type(rng, &op, "", &[5, 8, 3], &[to]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{f32s, ints, iota, run};

    #[test]
    fn depth_comes_from_channels_in_both_orders() {
        let x = iota(&[1, 8, 1, 1]);
        let dcr = run("depth_to_space", Attrs::new().with("block", 2i64), &[x.clone()]);
        assert_eq!((dcr.shape(), dcr.to_f64()), (&[1, 2, 2, 2][..], vec![0., 2., 4., 6., 1., 3., 5., 7.]));
        let crd = run("depth_to_space", Attrs::new().with("block", 2i64).with("mode", "CRD"), &[x]);
        assert_eq!(crd.to_f64(), [0., 1., 2., 3., 4., 5., 6., 7.]);
        let back = Attrs::new().with("block", 2i64).with("mode", "CRD");
        assert_eq!(run("space_to_depth", back, &[crd]).to_f64(), [0., 1., 2., 3., 4., 5., 6., 7.]);
        assert_eq!(
            run("space_to_depth", Attrs::new().with("block", 2i64), &[dcr]).to_f64(),
            [0., 1., 2., 3., 4., 5., 6., 7.]
        );
    }

    #[test]
    fn sequences_turn_round_up_to_their_length() {
        let ins = [f32s(&[3, 2], &[0., 3., 1., 4., 2., 5.]), ints(DType::I64, &[2], &[3, 2])];
        assert_eq!(run("reverse_sequence", Attrs::new(), &ins).to_f64(), [2., 4., 1., 3., 0., 5.]);
    }

    #[test]
    fn centres_stay() {
        let x = f32s(&[4], &[1., 2., 3., 4.]);
        let to = |n: i64| {
            run("center_crop_pad", Attrs::new(), &[x.clone(), ints(DType::I64, &[1], &[n])]).to_f64()
        };
        assert_eq!((to(3), to(2), to(7)), (vec![1., 2., 3.], vec![2., 3.], vec![0., 1., 2., 3., 4., 0., 0.]));
    }

    #[test]
    fn triangles() {
        let y = run("trilu", Attrs::new(), &[iota(&[2, 3]), ints(DType::I64, &[], &[1])]);
        assert_eq!(y.to_f64(), [0., 1., 2., 0., 0., 5.]);
    }
}
