//! Sampling between elements: resize, grids, regions of interest.

use crate::long::{continued, long_sum};
use crate::scalar::{int, register};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Body, Kernel, Launch, word};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::sample::grid_sample::Sampler;
use kiln_ops::sample::resize::coord::{Filter, ResizeAxis};
use kiln_ops::sample::resize::plan::{Given, axes};
use kiln_ops::sample::{Interpolation, Padding};
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of("resize", &["resize"], resize_source, resize),
    Kernel::of("grid_sample", &["grid_sample"], grid_source, grid),
    Kernel::of("affine_grid", &["affine_grid"], affine_source, affine),
    Kernel::of("roi_align", &["roi_align"], roi_source, roi),
];

/// The type of results, and the function that makes one of a sum.
pub fn resized_value(site: &Site<'_>) -> String {
    let t = site.out_dtype(0);
    // Integers round to even and saturate.
    let stored = |x: &str| match t.int_range() {
        Some(_) if t == DType::I64 => format!("f_to_i64(nearest({x}))"),
        Some((lo, hi)) => {
            format!("clamp(f_to_i32(nearest({x})), {}, {})", int(lo, DType::I32), int(hi, DType::I32))
        }
        None => x.to_owned(),
    };
    site.alias("Value", t) + &site.function("stored", &[("x", "f32")], register(t), &stored("x"))
}

fn resize_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let body = long_sum(site, "sample/resize", ("resize", "resize_sum"), DType::F32);
    Ok(Body { inputs: Some(vec![0]), ..body.with(resized_value(site)) })
}

crate::params! {
    /// Resizing by tables of taps.
    struct ResizeParams {
        /// Combinations of taps.
        combinations: u32,
        /// The result where it is outside of x.
        outside: f32,
        /// Dimensions of the result.
        dims: [u32],
        /// Strides of x.
        strides: [u32],
        /// Taps of a place, for each dimension.
        taps: [u32],
        /// Start of the taps of each dimension in the table.
        starts: [u32],
        /// For every place in turn its taps: element and weight.
        table: [u32],
    }
}

crate::params! {
    /// Samples at the places of a grid.
    struct GridSampleParams {
        /// Dimensions of an image.
        rank: u32,
        /// Elements of the third dimension counted from the last, or 1.
        depth: u32,
        /// Elements of the second one, or 1.
        height: u32,
        /// Elements of the last one.
        width: u32,
        /// Places of a grid.
        points: u32,
        /// Channels of an image.
        channels: u32,
    }
}

crate::params! {
    /// Grids of coordinates.
    struct AffineGridParams {
        /// Dimensions of an image.
        sizes: [u32],
    }
}

crate::params! {
    /// Pooling of regions.
    struct RoiAlignParams {
        /// Images of the input.
        images: u32,
        /// Their channels.
        channels: u32,
        /// Their rows.
        height: u32,
        /// Their columns.
        width: u32,
        /// Rows of bins.
        rows: u32,
        /// Columns of bins.
        columns: u32,
        /// Samples of a bin in one direction, 0 for as many as a bin has elements.
        samples: u32,
        /// Factor of coordinates.
        scale: f32,
    }
}

/// The axes of a `resize` with the taps of each place, [`OUTSIDE`] where it is outside of x.
pub struct Taps {
    /// The axes.
    pub axes: Vec<ResizeAxis>,
    filter: Filter,
}

/// The element of a place that is outside of x.
pub const OUTSIDE: usize = u32::MAX as usize;

impl Taps {
    /// Reads the axes of a launch.
    pub fn of(cx: &Cx<'_>) -> Result<Taps, BackendError> {
        let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
        let a = cx.op()?.attrs();
        let given = Given { roi: cx.floats(1)?, scales: cx.floats(2)?, sizes: cx.ints(3)? };
        let axes = axes(a, &x, &y, &given).map_err(op_error)?;
        Ok(Taps { axes, filter: Filter::of(a).map_err(op_error)? })
    }

    /// Adds the taps of an axis to a table, for every place as many: element and weight. Returns their number; at least `least`.
    pub fn add(&self, axis: &ResizeAxis, least: usize, table: &mut Vec<usize>) -> usize {
        let rows: Vec<_> = (0..axis.output).map(|o| self.filter.taps(axis, o)).collect();
        let most = rows.iter().flatten().map(Vec::len).max().unwrap_or(1).max(least);
        for row in rows {
            let row = row.unwrap_or_else(|| vec![(OUTSIDE, 0.0)]);
            for k in 0..most {
                let (i, w) = row.get(k).copied().unwrap_or((0, 0.0));
                table.extend([i, (w as f32).to_bits() as usize]);
            }
        }
        most
    }
}

/// The tables of taps: what is not resized has one tap of weight 1.
fn resize(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, dims) = (cx.shape(0)?, cx.out_shape(0)?);
    let all = Taps::of(cx)?;
    let outside = cx.op()?.attrs().float("extrapolation").map_err(op_error)? as f32;
    let (mut taps, mut starts, mut table) = (Vec::new(), Vec::new(), Vec::new());
    for axis in &all.axes {
        starts.push(table.len());
        taps.push(all.add(axis, 1, &mut table));
    }
    let combinations = taps.iter().fold(1_usize, |n, &t| n.saturating_mul(t));
    let params = ResizeParams { combinations, outside, dims, strides: strides(&x), taps, starts, table };
    continued(cx, params.words()?, combinations, 2 + x.len())
}

fn grid_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(Body::element("sample/grid_sample", "grid_sample").with(grid_constants(site)?))
}

/// The constants of a `grid_sample`.
pub fn grid_constants(site: &Site<'_>) -> Result<String, BackendError> {
    let s = Sampler::of(site.op()?.attrs()).map_err(op_error)?;
    let is = |name, of: bool| site.constant(name, "bool", of);
    Ok(is("NEAREST", s.how == Interpolation::Nearest)
        + &is("CUBIC", s.how == Interpolation::Cubic)
        + &is("BORDER", s.padding == Padding::Border)
        + &is("REFLECTION", s.padding == Padding::Reflection)
        + &is("ALIGN", s.align_corners))
}

fn grid(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let from_end = |i: usize| if i + 2 < x.len() { x[x.len() - 1 - i] } else { 1 };
    let params = GridSampleParams {
        rank: x.len() - 2,
        depth: from_end(2),
        height: from_end(1),
        width: from_end(0),
        points: y[2..].iter().product(),
        channels: x[1],
    };
    Ok(vec![Launch::map(0, params.words()?)])
}

fn affine_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let align = site.op()?.attrs().bool("align_corners").map_err(op_error)?;
    Ok(Body::element("sample/affine_grid", "affine_grid").with(site.constant("ALIGN", "bool", align)))
}

fn affine(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let y = cx.out_shape(0)?;
    let params = AffineGridParams { sizes: y[1..=y.len() - 2].to_vec() };
    Ok(vec![Launch::map(0, params.words()?)])
}

/// The most samples of a bin in one direction, where loops are cut into spans.
const MOST_SAMPLES: usize = 1024;

fn roi_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let a = site.op()?.attrs();
    let half = a.bool("half_pixel").map_err(op_error)?;
    let mean = a.str("mode").map_err(op_error)? == "avg";
    let code = site.constant("HALF", "bool", half)
        + &site.constant("MEAN", "bool", mean)
        + &site.constant("MOST_SAMPLES", "u32", format_args!("{}u", MOST_SAMPLES * MOST_SAMPLES));
    Ok(long_sum(site, "sample/roi_align", ("roi_align", "roi_align"), DType::F32).with(code))
}

fn roi(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let a = cx.op()?.attrs();
    let samples = a.int("sampling_ratio").map_err(op_error)? as usize;
    let params = RoiAlignParams {
        images: x[0],
        channels: x[1],
        height: x[2],
        width: x[3],
        rows: y[2],
        columns: y[3],
        samples,
        scale: a.float("spatial_scale").map_err(op_error)? as f32,
    };
    let w = params.words()?;
    if !cx.cut() {
        return Ok(vec![Launch::map(0, w)]);
    }
    if samples > MOST_SAMPLES {
        return unsupported(format!("{samples} samples of a bin, {MOST_SAMPLES} are possible"));
    }
    // How many samples an adaptive bin has only the device knows; launches behind the last one end at once.
    let most = if samples > 0 { samples * samples } else { MOST_SAMPLES * MOST_SAMPLES };
    let mut all = continued(cx, w, most, 1)?;
    if let Some(last) = all.last_mut() {
        last.span.1 = word(MOST_SAMPLES * MOST_SAMPLES)?;
    }
    Ok(all)
}
