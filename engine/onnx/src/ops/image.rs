//! Sampling, regions of interest and boxes.

use kiln_ir::Attrs;

use super::Operator;
use crate::convert::{Cx, Outs, unsupported};

/// The operators of this family.
pub(super) const OPS: &[Operator] = &[
    Operator::new("AffineGrid", &[20], affine_grid),
    Operator::new("Col2Im", &[18], col2im),
    Operator::new("GridSample", &[16, 20, 22], grid_sample),
    Operator::new("NonMaxSuppression", &[10, 11], nms),
    Operator::new("RoiAlign", &[10, 16, 22], roi_align),
];

fn affine_grid(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("align_corners", cx.flag("align_corners", false)?);
    Ok(vec![cx.layer("affine_grid", attrs, &[cx.opt(0), cx.opt(1)])?])
}

fn col2im(cx: &mut Cx<'_>) -> Outs {
    let mut attrs = Attrs::new();
    for name in ["dilations", "pads", "strides"] {
        attrs.set(name, cx.ints(name)?.unwrap_or_default());
    }
    Ok(vec![cx.layer("col2im", attrs, &[cx.opt(0), cx.opt(1), cx.opt(2)])?])
}

/// Modes were called bilinear and bicubic before version 20.
fn grid_sample(cx: &mut Cx<'_>) -> Outs {
    let mode = match cx.text("mode", "linear")? {
        "linear" | "bilinear" => "linear",
        "cubic" | "bicubic" => "cubic",
        "nearest" => "nearest",
        other => return unsupported(format!("mode '{other}'")),
    };
    let attrs = Attrs::new()
        .with("mode", mode)
        .with("padding", cx.text("padding_mode", "zeros")?)
        .with("align_corners", cx.flag("align_corners", false)?);
    Ok(vec![cx.layer("grid_sample", attrs, &[cx.opt(0), cx.opt(1)])?])
}

/// An absent limit of boxes is 0: none are kept.
fn nms(cx: &mut Cx<'_>) -> Outs {
    let limit = match cx.opt(2) {
        Some(limit) => limit,
        None => cx.i64(0)?,
    };
    let attrs = Attrs::new().with("center_box", cx.flag("center_point_box", false)?);
    Ok(vec![cx.layer("nms", attrs, &[cx.opt(0), cx.opt(1), Some(limit), cx.opt(3), cx.opt(4)])?])
}

/// Coordinates are not shifted by half a pixel before version 16.
fn roi_align(cx: &mut Cx<'_>) -> Outs {
    let default = if cx.version() < 16 { "output_half_pixel" } else { "half_pixel" };
    let half_pixel = match cx.text("coordinate_transformation_mode", default)? {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => return unsupported(format!("coordinate_transformation_mode '{other}'")),
    };
    let attrs = Attrs::new()
        .with("mode", cx.text("mode", "avg")?)
        .with("output_height", cx.int("output_height", 1)?)
        .with("output_width", cx.int("output_width", 1)?)
        .with("sampling_ratio", cx.int("sampling_ratio", 0)?)
        .with("spatial_scale", cx.float("spatial_scale", 1.0)?)
        .with("half_pixel", half_pixel);
    Ok(vec![cx.layer("roi_align", attrs, &[cx.opt(0), cx.opt(1), cx.opt(2)])?])
}
