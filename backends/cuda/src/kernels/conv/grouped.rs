//! Convolutions with few channels a group, depthwise ones among them, of any rank, taps, strides and dilations, in both layouts.

use super::Geometry;
use crate::frame::element;
use crate::kernels::cost::Device;
use crate::kernels::shape::{input, moving, output, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Blocks, Body, Entry, Kernel, Launch, Views};
use kiln_ir::DType;
use kiln_ops::layout::Layout;

mod last;
mod planes;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "conv.grouped_last",
        ops: &["conv"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: |site| tactics(site, Layout::ChannelsLast, "conv.grouped_last", 40.0),
        source: |site, _| last::source(site),
        launch: last::launch,
    },
    Kernel {
        name: "conv.grouped_planes",
        ops: &["conv"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: |site| tactics(site, Layout::Linear, "conv.grouped_planes", 32.0),
        source: |site, _| planes::source(site),
        launch: planes::launch,
    },
];

/// The most channels of a group.
const MOST_CHANNELS: usize = 32;
/// The most channels on one side of a convolution without groups.
const FEW: usize = 4;
/// The most taps along a line, and elements that they span.
const MOST_TAPS: usize = 128;
const MOST_REACH: usize = 2048;
/// The largest stride along a line.
const MOST_STRIDE: usize = 8;

/// Numbers that the text depends on.
#[derive(Clone, Copy, Debug)]
struct Form {
    outputs: usize,
    groups: usize,
    /// Channels, and output channels of a group.
    channels: usize,
    group_outputs: usize,
    /// Taps along a line, and of all lines.
    across: usize,
    taps: usize,
    /// Elements along a line from one window to the next, and from one tap to the next.
    stride: usize,
    dilation: usize,
}

impl Form {
    fn of(site: &Site<'_>, layout: Layout) -> Result<Form, BackendError> {
        let attrs = site.op()?.attrs();
        let t = site.first_dtype();
        let floats = matches!(t, DType::F16 | DType::BF16 | DType::F32) && site.dtype(1) == Some(t);
        if Layout::of(attrs) != layout || !floats || !site.out_dtype(0).is_float() {
            return unsupported(format!("convolutions of {t}, or of another layout"));
        }
        let (Some(x), Some(weights)) = (input(site, 0), input(site, 1).and_then(|w| w.static_dims())) else {
            return unsupported("convolutions with weights of unknown shape");
        };
        let [outputs, channels, ref kernel @ ..] = layout.to_linear(&weights)[..] else {
            return unsupported("convolutions with weights of no channels");
        };
        let groups = usize::try_from(attrs.int("groups").map_err(op_error)?).unwrap_or(0).max(1);
        let taps: usize = kernel.iter().product();
        let across = kernel.last().copied().unwrap_or(0);
        let last = |name: &str| -> Result<usize, BackendError> {
            let all = attrs.ints(name).map_err(op_error)?;
            Ok(all.get(kernel.len().wrapping_sub(1)).map_or(1, |&n| usize::try_from(n).unwrap_or(usize::MAX)))
        };
        let (stride, dilation) = (last("strides")?, last("dilations")?);
        let group_outputs = outputs / groups;
        if x.rank() < 3 || outputs * channels * taps == 0 || group_outputs == 0 {
            return unsupported("convolutions without channels or taps");
        }
        let few = groups > 1 || channels.min(group_outputs) <= FEW;
        if channels > MOST_CHANNELS || !few {
            return unsupported(format!("direct sums over {channels} channels of a group"));
        }
        let reach = (across - 1).saturating_mul(dilation);
        if across > MOST_TAPS || reach > MOST_REACH || !(1..=MOST_STRIDE).contains(&stride) {
            return unsupported(format!(
                "lines of {across} taps that span {reach} elements, stride {stride}"
            ));
        }
        Ok(Form { outputs, groups, channels, group_outputs, across, taps, stride, dilation })
    }
}

/// The largest divisor of `n` that is at most `most`.
fn divisor(n: usize, most: usize) -> usize {
    (1..=n.min(most)).rev().find(|d| n.is_multiple_of(*d)).unwrap_or(1)
}

/// Members that both kernels ask for.
fn members(site: &Site<'_>, numbers: &[(&str, usize)]) -> String {
    let mut code = element("Cell", "wide", site.first_dtype());
    for (name, n) in numbers {
        code += &site.constant(name, "u32", format_args!("{n}u"));
    }
    let bias = if site.dtype(2).is_some() { "x2(channel)" } else { "0.0f" };
    code + &site.function("bias", &[("channel", "u32")], "f32", bias)
}

/// The tactic; a multiprocessor is expected to make `rate` products a clock.
fn tactics(site: &Site<'_>, layout: Layout, name: &str, rate: f64) -> Result<Vec<Tactic>, BackendError> {
    let form = Form::of(site, layout)?;
    if layout == Layout::ChannelsLast {
        last::Split::of(&form)?;
    }
    let device = Device::of(site.target);
    let results = output(site, 0).and_then(|y| y.static_volume());
    let estimate_ns = traffic(site).zip(results).map(|(bytes, n)| {
        let products = n as f64 * (form.taps * form.channels) as f64;
        moving(site.target, bytes, 1.5).max(2500.0 + products / (rate * device.sm_count * device.ghz))
    });
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// Blocks that registers are to suffice for: sums and operands of a thread take no more.
fn blocks(name: &'static str, threads: u32, beside: u32) -> Entry {
    Entry::Blocks(Blocks { beside: Some(beside), ..Blocks::of(name, threads) })
}

/// The body of a kernel file with one entry point.
fn body(file: &'static str, entry: Entry, code: String) -> Body {
    Body::of(file, vec![entry]).with(code)
}

/// The sizes at launch; none where there are no results.
fn sizes(cx: &Cx<'_>) -> Result<Option<(Geometry, usize)>, BackendError> {
    let (g, y) = (Geometry::of(cx)?, cx.out_shape(0)?);
    let total: usize = y.iter().product();
    Ok((total > 0).then(|| (g, y[0])))
}

/// No launches.
fn nothing() -> Result<Vec<Launch>, BackendError> {
    Ok(Vec::new())
}
