//! Cutting tensors up, and padding them.

use kiln_ir::Attrs;
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal};
use crate::ops::Operator;
use crate::ops::shape::list;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Pad", &[1, 2, 11, 13, 18, 19, 21, 23, 24, 25], pad),
    Operator::new("Slice", &[1, 10, 11, 13], slice),
    Operator::new("Split", &[1, 2, 11, 13, 18], split),
    Operator::new("CenterCropPad", &[18], center_crop_pad),
    Operator::new("Concat", &[1, 4, 11, 13], concat),
];

/// Bounds are attributes before version 10.
fn slice(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let starts = list(cx, "starts", 1, 10)?;
    let ends = list(cx, "ends", 2, 10)?;
    let axes = list(cx, "axes", 3, 10)?;
    let steps = if cx.version() < 10 { None } else { cx.opt(4) };
    Ok(vec![cx.layer("slice", Attrs::new(), &[Some(x), starts, ends, axes, steps])?])
}

/// Pads and value are attributes before version 11; the attribute was called `paddings` in version 1.
fn pad(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let attrs = Attrs::new().with("mode", cx.text("mode", "constant")?);
    if cx.version() >= 11 {
        return Ok(vec![cx.layer("pad", attrs, &[Some(x), cx.opt(1), cx.opt(2), cx.opt(3)])?]);
    }
    let name = if cx.version() < 2 { "paddings" } else { "pads" };
    let pads = cx.require_attr::<&[i64]>(name)?;
    let pads = cx.i64s(pads)?;
    let value = cx.float("value", 0.0)?;
    let value = cx.num_like(x, value)?;
    Ok(vec![cx.layer("pad", attrs, &[Some(x), Some(pads), Some(value)])?])
}

/// One slice an output. Sizes are an attribute before version 13, then an input; without any the parts are equal, and
/// the last one smaller if they cannot be.
fn split(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let axis = cx.int("axis", 0)?;
    let axis = cx.axis(axis, cx.rank(x))?;
    let parts = cx.output_count();
    let own = cx.int("num_outputs", parts as i64)?;
    if own != parts as i64 {
        let found = format!("is {own}: wanted the number of outputs, {parts}");
        return Err(cx.bad_attr("num_outputs", &found));
    }
    let sizes = if cx.ints("split")?.is_some() { list(cx, "split", 1, 13)? } else { cx.opt(1) };
    let bounds = match sizes {
        Some(sizes) => bounds_of_sizes(cx, sizes, x, axis, parts)?,
        None => equal_bounds(cx, x, axis, parts)?,
    };
    let pairs = bounds.iter().zip(bounds.iter().skip(1));
    pairs.map(|(start, end)| cx.slice_to(x, axis as i64, *start, *end)).collect()
}

/// Start of each part and end of the last one, as 1-D tensors of one element. The sizes must be as many as
/// there are parts, not negative, and add up to the axis. Sizes that are not known yet are checked by the
/// run.
fn bounds_of_sizes(
    cx: &mut Cx<'_>,
    sizes: TensorId,
    x: TensorId,
    axis: usize,
    parts: usize,
) -> Result<Vec<TensorId>, Refusal> {
    let whole = cx.dim(x, axis);
    if let Some(sizes) = cx.ints_of(sizes) {
        let mut end = 0i64;
        let ends = sizes.iter().map(|size| {
            end = end.saturating_add(*size);
            end
        });
        let bounds: Vec<i64> = std::iter::once(0).chain(ends).collect();
        let known = whole.as_ref().and_then(|d| d.as_const());
        let fits = known.is_none_or(|n| n == end) && sizes.iter().all(|n| *n >= 0);
        if sizes.len() != parts || !fits {
            let (ty, n) = (cx.ty(x), whole.map_or_else(String::new, |d| d.to_string()));
            return Err(Refusal::Sizes(format!(
                "sizes {sizes:?} of {ty} along axis {axis}: wanted {parts} sizes of 0 or more whose sum is {n}"
            )));
        }
        if known.is_none() {
            let (sum, length) = (cx.i64s(&[end])?, cx.dims(x, axis..axis + 1)?);
            let whole = cx.bin("equal", length, sum)?;
            let label = cx.label();
            cx.demand(whole, format!("the sizes {sizes:?} of '{label}' do not add up to axis {axis}"))?;
        }
        return bounds.into_iter().map(|b| cx.i64s(&[b])).collect();
    }
    if let Some(n) = cx.dim(sizes, 0).and_then(|d| d.as_const()).filter(|n| *n != parts as i64) {
        return Err(Refusal::Sizes(format!("{n} sizes: wanted {parts}, one for each output")));
    }
    let mut bounds = vec![cx.i64s(&[0])?];
    let mut end = None;
    for i in 0..parts as i64 {
        let size = cx.slice(sizes, 0, i, i + 1)?;
        let next = match end {
            Some(end) => cx.bin("add", end, size)?,
            None => size,
        };
        bounds.push(next);
        end = Some(next);
    }
    let label = cx.label();
    let zero = cx.num_like(sizes, 0.0)?;
    let positive = cx.bin("greater_equal", sizes, zero)?;
    cx.demand(positive, format!("a size of '{label}' is negative: wanted 0 or more"))?;
    if let Some(end) = end {
        let end = cx.cast(end, kiln_ir::DType::I64)?;
        let length = cx.dims(x, axis..axis + 1)?;
        let whole = cx.bin("equal", length, end)?;
        cx.demand(whole, format!("the sizes of '{label}' do not add up to axis {axis}"))?;
    }
    Ok(bounds)
}

fn equal_bounds(cx: &mut Cx<'_>, x: TensorId, axis: usize, parts: usize) -> Result<Vec<TensorId>, Refusal> {
    let n = parts.max(1) as i64;
    if let Some(size) = cx.dim(x, axis).and_then(|d| d.as_const()) {
        let chunk = size / n + i64::from(size % n != 0);
        return (0..=n).map(|i| cx.i64s(&[chunk.saturating_mul(i).min(size)])).collect();
    }
    let size = cx.dims(x, axis..axis + 1)?;
    let (up, count) = (cx.i64s(&[n - 1])?, cx.i64s(&[n])?);
    let padded = cx.bin("add", size, up)?;
    let chunk = cx.bin("floor_div", padded, count)?;
    let bound = |i| {
        let i = cx.i64s(&[i])?;
        cx.bin("mul", chunk, i)
    };
    (0..=n).map(bound).collect()
}

fn center_crop_pad(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("axes", cx.ints("axes")?.unwrap_or_default());
    Ok(vec![cx.layer("center_crop_pad", attrs, &[cx.opt(0), cx.opt(1)])?])
}

fn concat(cx: &mut Cx<'_>) -> Outs {
    let axis = if cx.version() < 4 { cx.int("axis", 1)? } else { cx.require_attr("axis")? };
    let parts: Vec<_> = cx.inputs()?.into_iter().map(Some).collect();
    Ok(vec![cx.layer("concat", Attrs::new().with("axis", axis), &parts)?])
}
