//! Conversions between element types.

use kiln_ir::{Attrs, DType};

use crate::convert::{Cx, Outs, dtype_of_number, grids, named_type, unsupported};
use crate::model::Attribute;
use crate::ops::Operator;
use crate::tensor::DataType;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("BitCast", &[26], bit_cast),
    Operator::new("Cast", &[1, 6, 9, 13, 19, 21, 23, 24, 25, 28], cast),
    Operator::new("CastLike", &[15, 19, 21, 23, 24, 25], cast_like),
];

fn cast(cx: &mut Cx<'_>) -> Outs {
    let to = match cx.attribute("to") {
        Some(Attribute::String(_)) => {
            let name = cx.text("to", "")?;
            match DataType::from_name(name) {
                Some(found) => dtype_of_number(found.number().into())?,
                None => return unsupported(format!("element type {name}")),
            }
        }
        _ => dtype_of_number(cx.require_attr::<i64>("to")?)?,
    };
    // Only FLOAT8E8M0 is rounded by it, which is refused.
    cx.skip("round_mode");
    if to != DType::F8E4M3 {
        cx.skip("saturate");
    }
    if let Some(of) = named_type(cx.node(), "to").filter(|of| grids::held(*of).is_some()) {
        let x = cx.input(0)?;
        return Ok(vec![cx.on_grid(x, of)?]);
    }
    // Values outside f8e4m3 saturate; without that they would become NaN.
    if to == DType::F8E4M3 && !cx.flag("saturate", true)? {
        return unsupported("a cast to FLOAT8E4M3FN without saturation");
    }
    Ok(vec![cx.layer("cast", Attrs::new().with("to", to), &[cx.opt(0)])?])
}

/// Bytes as bool are true where they are not 0.
fn bit_cast(cx: &mut Cx<'_>) -> Outs {
    let number = cx.require_attr::<i64>("to")?;
    let (x, to) = (cx.input(0)?, dtype_of_number(number)?);
    // A value that the network holds in another type has other bits there.
    use DataType::{Double, Int16, Uint4, Uint16, Uint32, Uint64};
    let named = i32::try_from(number).ok().and_then(DataType::from_number);
    let grid = |of: &DataType| grids::held(*of).is_some();
    if let Some(of) = named.filter(grid).or(cx.held_type(0).filter(grid)) {
        return unsupported(format!("bits of {of}, whose values the network holds in another type"));
    }
    if let Some(of @ (Double | Int16 | Uint4 | Uint16 | Uint32 | Uint64)) = named {
        return unsupported(format!("bits as {of}, whose values the network holds as {to}"));
    }
    if to.bits() != cx.dtype(x).bits() {
        let reason = format!("is {to}, of {} bits: wanted a type as wide as {}", to.bits(), cx.dtype(x));
        return Err(cx.bad_attr("to", &reason));
    }
    if to == DType::Bool && cx.dtype(x) != to {
        let bytes = cx.layer("bitcast", Attrs::new().with("to", DType::U8), &[Some(x)])?;
        return Ok(vec![cx.cast(bytes, to)?]);
    }
    Ok(vec![cx.layer("bitcast", Attrs::new().with("to", to), &[Some(x)])?])
}

fn cast_like(cx: &mut Cx<'_>) -> Outs {
    let to = cx.dtype(cx.input(1)?);
    cx.skip("round_mode");
    if let Some(of) = cx.held_type(1).filter(|of| grids::held(*of).is_some()) {
        cx.skip("saturate");
        let x = cx.input(0)?;
        return Ok(vec![cx.on_grid(x, of)?]);
    }
    if to != DType::F8E4M3 {
        cx.skip("saturate");
    } else if !cx.flag("saturate", true)? {
        return unsupported("a cast to FLOAT8E4M3FN without saturation");
    }
    Ok(vec![cx.layer("cast", Attrs::new().with("to", to), &[cx.opt(0)])?])
}
