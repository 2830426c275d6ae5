//! Sampling of images: grids and regions of interest.

mod resize;

use kiln_ir::Attrs;

use crate::convert::{Cx, Outs, unsupported};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("AffineGrid", &[20], affine_grid),
    Operator::new("GridSample", &[16, 20, 22], grid_sample),
    Operator::new("RoiAlign", &[10, 16, 22], roi_align),
];

fn affine_grid(cx: &mut Cx<'_>) -> Outs {
    let attrs = Attrs::new().with("align_corners", cx.flag("align_corners", false)?);
    Ok(vec![cx.layer("affine_grid", attrs, &[cx.opt(0), cx.opt(1)])?])
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
