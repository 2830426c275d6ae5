//! Resizing of images.

use kiln_ir::{Attrs, DType, Elems};
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("Resize", &[10, 11, 13, 18, 19], resize),
    Operator::new("Upsample", &[1, 7, 9], upsample),
];

/// Version 10 has scales only; later ones a region, scales and sizes, of which empty ones count as absent.
fn resize(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    if cx.version() < 11 {
        let scales = cx.input(1)?;
        return Ok(vec![old_style(cx, x, scales)?]);
    }
    let attrs = Attrs::new()
        .with("mode", mode(cx)?)
        .with("coord", cx.text("coordinate_transformation_mode", "half_pixel")?)
        .with("nearest_mode", cx.text("nearest_mode", "round_prefer_floor")?)
        .with("cubic_a", cx.float("cubic_coeff_a", -0.75)?)
        .with("antialias", cx.flag("antialias", false)?)
        .with("exclude_outside", cx.flag("exclude_outside", false)?)
        .with("extrapolation", cx.float("extrapolation_value", 0.0)?)
        .with("axes", cx.ints("axes")?.unwrap_or_default())
        .with("policy", cx.text("keep_aspect_ratio_policy", "stretch")?);
    let mut roi = present(cx, 1);
    if let Some(t) = roi {
        roi = Some(cx.cast(t, DType::F32)?);
    }
    Ok(vec![cx.layer("resize", attrs, &[Some(x), roi, present(cx, 2), present(cx, 3)])?])
}

/// An input that is there and not known to be empty.
fn present(cx: &Cx<'_>, i: usize) -> Option<TensorId> {
    cx.opt(i).filter(|t| !cx.ty(*t).volume().is(0))
}

fn mode(cx: &Cx<'_>) -> Result<&'static str, Refusal> {
    match cx.text("mode", "nearest")? {
        "nearest" => Ok("nearest"),
        "linear" | "bilinear" => Ok("linear"),
        "cubic" => Ok("cubic"),
        other => unsupported(format!("mode '{other}'")),
    }
}

/// Corners at 0, nearest rounded down.
fn old_style(cx: &mut Cx<'_>, x: TensorId, scales: TensorId) -> Result<TensorId, Refusal> {
    let attrs =
        Attrs::new().with("mode", mode(cx)?).with("coord", "asymmetric").with("nearest_mode", "floor");
    cx.layer("resize", attrs, &[Some(x), None, Some(scales)])
}

/// Scales are attributes before version 9: for height and width in version 1, for all dimensions in 7.
fn upsample(cx: &mut Cx<'_>) -> Outs {
    let x = cx.input(0)?;
    let scales = match cx.version() {
        9.. => cx.input(1)?,
        7.. => constant_scales(cx, cx.floats("scales")?)?,
        _ => {
            let scales = vec![1.0, 1.0, cx.float("height_scale", 1.0)?, cx.float("width_scale", 1.0)?];
            constant_scales(cx, scales)?
        }
    };
    Ok(vec![old_style(cx, x, scales)?])
}

fn constant_scales(cx: &mut Cx<'_>, scales: Vec<f64>) -> Result<TensorId, Refusal> {
    cx.elems(DType::F32, &[scales.len()], Elems::F(scales))
}
