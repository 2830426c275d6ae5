//! Operators that change the shape.

use kiln_ir::Attrs;
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Expand", &[8, 13], |cx| {
        let (x, shape) = (cx.input(0)?, cx.input(1)?);
        Ok(vec![cx.bin("expand", x, shape)?])
    }),
    Operator::new("Flatten", &[1, 9, 11, 13, 21, 23, 24, 25], flatten),
    Operator::new("Reshape", &[1, 5, 13, 14, 19, 21, 23, 24, 25], reshape),
    Operator::new("Squeeze", &[1, 11, 13, 21, 23, 24, 25], squeeze),
    Operator::new("Tile", &[1, 6, 13], tile),
    Operator::new("Unsqueeze", &[1, 11, 13, 21, 23, 24, 25], unsqueeze),
];

fn flatten(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let rank = cx.rank(x);
    let axis = cx.int("axis", 1)?;
    let axis = if axis == rank as i64 { rank } else { cx.axis(axis, rank)? };
    Ok(vec![cx.flatten(x, axis)?])
}

fn reshape(cx: &mut Cx<'_>) -> Outs {
    let shape = list(cx, "shape", 1, 5)?;
    let Some(shape) = shape else { return unsupported("a reshape without a shape") };
    let attrs = Attrs::new().with("allow_zero", cx.flag("allowzero", false)?);
    Ok(vec![cx.layer("reshape", attrs, &[cx.opt(0), Some(shape)])?])
}

/// Converts Squeeze. Without axes every dimension of 1 goes. One that is not known yet stays, and is an error
/// if a run makes it 1.
fn squeeze(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    if let Some(axes) = list(cx, "axes", 1, 13)? {
        return Ok(vec![cx.bin("squeeze", x, axes)?]);
    }
    let dims = cx.ty(x).dims.clone();
    let axes: Vec<i64> = (0..dims.len() as i64).zip(&dims).filter(|(_, d)| d.is(1)).map(|(i, _)| i).collect();
    let y = cx.squeeze(x, &axes)?;
    let label = cx.label();
    for (i, d) in dims.iter().enumerate().filter(|(_, d)| d.as_const().is_none()) {
        let length = cx.length(x, i)?;
        let one = cx.num_like(length, 1.0)?;
        let same = cx.bin("equal", length, one)?;
        let other = cx.un("not", same)?;
        let message = format!(
            "'{label}' has no axes, and dimension {i} ({d}) is 1; it was taken for another number when the model was \
             imported: export the model with axes"
        );
        cx.demand(other, message)?;
        cx.note(format!(
            "node '{label}' has no axes: dimension {i} ({d}) is kept, and may not be 1 at run time"
        ));
    }
    Ok(vec![y])
}

fn unsqueeze(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    match list(cx, "axes", 1, 13)? {
        Some(axes) => Ok(vec![cx.bin("unsqueeze", x, axes)?]),
        None => Err(cx.bad_attr("axes", "is missing")),
    }
}

/// Before version 6 the inputs are how often, and along which one axis.
fn tile(cx: &mut Cx<'_>) -> Outs {
    let (x, mut repeats) = (cx.input(0)?, cx.input(1)?);
    if cx.version() < 6 {
        let tiles = cx.need_ints(1, "tiles")?;
        let axis = cx.need_ints(2, "axis")?;
        let (&[tiles], &[axis]) = (&tiles[..], &axis[..]) else {
            return unsupported("tiles or axis of more than one element");
        };
        let rank = cx.rank(x);
        let axis = cx.axis(axis, rank)?;
        let all: Vec<i64> = (0..rank).map(|i| if i == axis { tiles } else { 1 }).collect();
        repeats = cx.i64s(&all)?;
    }
    Ok(vec![cx.bin("tile", x, repeats)?])
}

/// The list that versions below `from` have as an attribute and later ones as input `i`.
pub(crate) fn list(cx: &mut Cx<'_>, name: &str, i: usize, from: i64) -> Result<Option<TensorId>, Refusal> {
    if cx.version() >= from {
        return Ok(cx.opt(i));
    }
    cx.ints(name)?.map(|values| cx.i64s(&values)).transpose()
}
