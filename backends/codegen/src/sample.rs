//! Sampling between elements: resize, grids, regions of interest.

use crate::long::{continued, summed};
use crate::scalar::{int, register};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::template::{fill, sections};
use crate::{Body, Kernel, Launch, word, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::sample::grid_sample::Sampler;
use kiln_ops::sample::resize::coord::Filter;
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

fn resize_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    // Integers round to even and saturate.
    let stored = |x: &str| match t.int_range() {
        Some(_) if t == DType::I64 => format!("f_to_i64(nearest({x}))"),
        Some((lo, hi)) => {
            format!("clamp(f_to_i32(nearest({x})), {}, {})", int(lo, DType::I32), int(hi, DType::I32))
        }
        None => x.to_owned(),
    };
    let pairs = [("REG", register(t)), ("RESULT", &*stored("sum")), ("OUTSIDE", &*stored("mf(1u)"))];
    let code = fill(&sections(site.text("sample"), &["resize"]), &pairs);
    Ok(Body { inputs: Some(vec![0]), ..summed(site, code, DType::F32) })
}

/// The tables of taps: what is not resized has one tap of weight 1.
fn resize(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let a = cx.op()?.attrs();
    let filter = Filter::of(a).map_err(op_error)?;
    let given = Given { roi: cx.floats(1)?, scales: cx.floats(2)?, sizes: cx.ints(3)? };
    let axes = axes(a, &x, &y, &given).map_err(op_error)?;
    let own = strides(&x);
    let outside = a.float("extrapolation").map_err(op_error)? as f32;
    let mut head = vec![word(x.len())?, outside.to_bits()];
    let mut tables = Vec::new();
    let mut combinations = 1_usize;
    let start = 2 + 5 * x.len();
    for (d, axis) in axes.iter().enumerate() {
        let rows: Vec<_> = (0..axis.output).map(|o| filter.taps(axis, o)).collect();
        let most = rows.iter().flatten().map(Vec::len).max().unwrap_or(1).max(1);
        combinations = combinations.saturating_mul(most);
        head.extend(words([y[d], x[d], own[d], most, start + tables.len()])?);
        for row in rows {
            let taps = row.unwrap_or_else(|| vec![(u32::MAX as usize, 0.0)]);
            for k in 0..most {
                let (i, w) = taps.get(k).copied().unwrap_or((0, 0.0));
                tables.extend([word(i)?, (w as f32).to_bits()]);
            }
        }
    }
    head.extend(tables);
    continued(cx, head, combinations, 2 + x.len())
}

fn grid_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let s = Sampler::of(site.op()?.attrs()).map_err(op_error)?;
    let (rounded, base, taps, before, weight) = match s.how {
        Interpolation::Nearest => ("nearest(x)", "nearest(x)", "1u", "0", "1.0f"),
        Interpolation::Linear => ("x", "floor(x)", "2u", "0", "select(1.0f - part[d], part[d], tap == 1)"),
        Interpolation::Cubic => ("x", "floor(x)", "4u", "1", "cubic_kernel(f32(tap) - part[d])"),
    };
    let (inside, element) = match s.padding {
        Padding::Zeros => ("return x;", "return -1;"),
        Padding::Border => (
            match s.how {
                // Every tap is brought inside by itself.
                Interpolation::Cubic => "return clamp(x, -2.0f, f32(size) + 1.0f);",
                _ => "return clamp(x, 0.0f, max(f32(size) - 1.0f, 0.0f));",
            },
            "return select(clamp(i, 0, size - 1), -1, size == 0);",
        ),
        Padding::Reflection => (
            "return reflect_at(x, lo, hi);",
            "let r = f_to_i32(reflect_at(f32(i), border_low(), border_high(size)));\n    \
             return select(clamp(r, 0, size - 1), -1, size == 0);",
        ),
    };
    let pairs = [
        ("ROUNDED", rounded),
        ("FLOOR", base),
        ("TAPSu", taps),
        ("BEFORE", before),
        ("WEIGHT", weight),
        ("INSIDE", inside),
        ("ELEMENT", element),
        ("ALIGN", if s.align_corners { "true" } else { "false" }),
    ];
    Ok(Body::map(fill(&sections(site.text("sample"), &["grid", "grid_sample"]), &pairs)))
}

fn grid(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let rank = x.len() - 2;
    let mut w = vec![word(rank)?];
    w.resize(4 - rank, 1);
    w.extend(words(x[2..].iter().copied())?);
    w.extend(words([y[2..].iter().product(), x[1]])?);
    Ok(vec![Launch::map(0, w)])
}

fn affine_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let align = site.op()?.attrs().bool("align_corners").map_err(op_error)?;
    let pairs = [("ALIGN", if align { "true" } else { "false" })];
    Ok(Body::map(fill(&sections(site.text("sample"), &["affine_grid"]), &pairs)))
}

fn affine(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let y = cx.out_shape(0)?;
    let r = y.len() - 2;
    let mut w = vec![word(r)?];
    w.extend(words(y[1..=r].iter().copied())?);
    Ok(vec![Launch::map(0, w)])
}

/// The most samples of a bin in one direction, where loops are cut into spans.
const MOST_SAMPLES: usize = 1024;

fn roi_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let a = site.op()?.attrs();
    let half = a.bool("half_pixel").map_err(op_error)?;
    let mean = a.str("mode").map_err(op_error)? == "avg";
    let pairs: [(&str, &str); 6] = [
        ("HALF", if half { "true" } else { "false" }),
        // Of a bin whose samples one launch takes.
        ("MODE", if mean { "sum / f32(count)" } else { "most" }),
        // Of others.
        ("START", if mean { "0.0f" } else { "cf(0xff800000u)" }),
        ("STEP", if mean { "acc + sum" } else { "max(acc, most)" }),
        ("LAST", if mean { "acc / f32(count)" } else { "acc" }),
        ("MOST_SAMPLES", &format!("{}u", MOST_SAMPLES * MOST_SAMPLES)),
    ];
    Ok(summed(site, fill(&sections(site.text("sample"), &["roi_align"]), &pairs), DType::F32))
}

fn roi(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let a = cx.op()?.attrs();
    let samples = a.int("sampling_ratio").map_err(op_error)? as usize;
    let mut w = words([x[0], x[1], x[2], x[3], y[2], y[3], samples])?;
    w.push((a.float("spatial_scale").map_err(op_error)? as f32).to_bits());
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
