//! Comparisons, truth values, choice and changes of element type.

use kiln_ir::{Attrs, DType};

use super::Handler;
use super::arith::two;
use crate::convert::{Cx, Outs, dtype_of_number, unsupported};
use crate::model::Attribute;
use crate::tensor::DataType;

/// The operators of this family.
pub(super) const OPS: &[(&str, Handler)] = &[
    ("And", |cx| two(cx, "and")),
    ("BitCast", bit_cast),
    ("Cast", cast),
    ("CastLike", cast_like),
    ("Equal", |cx| two(cx, "equal")),
    ("Greater", |cx| two(cx, "greater")),
    ("GreaterOrEqual", |cx| two(cx, "greater_equal")),
    ("Less", |cx| two(cx, "less")),
    ("LessOrEqual", |cx| two(cx, "less_equal")),
    ("Not", |cx| {
        let x = cx.input(0)?;
        Ok(vec![cx.un("not", x)?])
    }),
    ("Or", |cx| two(cx, "or")),
    ("Where", |cx| {
        let (cond, a, b) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        Ok(vec![cx.layer("select", Attrs::new(), &[Some(cond), Some(a), Some(b)])?])
    }),
    ("Xor", |cx| two(cx, "xor")),
];

fn cast(cx: &mut Cx<'_>) -> Outs {
    let to = match cx.node().attributes.get("to") {
        Some(Attribute::String(_)) => {
            let name = cx.text("to", "")?;
            match DataType::from_name(name) {
                Some(found) => dtype_of_number(found.number().into())?,
                None => return unsupported(format!("element type {name}")),
            }
        }
        _ => dtype_of_number(cx.node().require_attr::<i64>("to")?)?,
    };
    // Values outside f8e4m3 saturate; without that they would become NaN.
    if to == DType::F8E4M3 && !cx.flag("saturate", true)? {
        return unsupported("a cast to FLOAT8E4M3FN without saturation");
    }
    Ok(vec![cx.layer("cast", Attrs::new().with("to", to), &[cx.opt(0)])?])
}

/// Bytes as bool are true where they are not 0.
fn bit_cast(cx: &mut Cx<'_>) -> Outs {
    let number = cx.node().require_attr::<i64>("to")?;
    let (x, to) = (cx.input(0)?, dtype_of_number(number)?);
    // What the network holds in another type has other bits there.
    use DataType::{Double, Int16, Uint4, Uint16, Uint32, Uint64};
    let named = i32::try_from(number).ok().and_then(|n| DataType::from_number(n).ok());
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
    Ok(vec![cx.layer("cast", Attrs::new().with("to", to), &[cx.opt(0)])?])
}
