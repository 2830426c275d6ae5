//! Convolutions of each channel by itself, images with channels last.

use crate::frame::element;
use crate::kernels::shape::{from_end, input, moving, output, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::DType;
use kiln_ops::conv;
use kiln_ops::conv::window::{dims, known};
use kiln_ops::layout::Layout;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "conv.depthwise",
    ops: &["conv"],
    epilogue: true,
    views: Views::Whole,
    side_results: false,
    tactics,
    source,
    launch,
}];

kiln_codegen::params! {
    /// Windows over planes with channels last, by runs of neighbouring windows in a band of rows.
    struct DepthwiseParams {
        /// Height of x.
        height: u32,
        /// Width of x.
        width: u32,
        /// Height of the result.
        rows: u32,
        /// Width of the result.
        columns: u32,
        /// Number of channels.
        channels: u32,
        /// Padding above.
        before_down: i32,
        /// Padding on the left.
        before_across: i32,
        /// Runs of a row.
        runs: u32,
        /// Bands of an image.
        bands: u32,
        /// Runs of all bands.
        positions: u32,
        /// Blocks along channels.
        along: u32,
        /// Blocks along positions.
        blocks: u32,
    }
}

/// Channels of a thread.
const WIDTH: usize = 8;
/// Neighbouring windows of a thread.
const RUN: usize = 4;
/// Rows of the result in a band, in the order in which tactics are offered.
const LINES: [usize; 2] = [1, 2];
/// The parameter that says how many.
const LINES_PARAM: &str = "lines";
/// Threads of a block.
const THREADS: u32 = 128;
/// The most taps down or across.
const MOST: usize = 11;

/// Numbers that the text depends on.
struct Shape {
    kernel: [usize; 2],
    strides: [usize; 2],
    channels: usize,
}

fn shape(site: &Site<'_>) -> Result<Shape, BackendError> {
    let attrs = site.op()?.attrs();
    let (Some(x), Some(w)) = (input(site, 0), input(site, 1)) else {
        return unsupported("a convolution of nothing");
    };
    let sizes = || Some([from_end(w, 3)?, from_end(w, 2)?, from_end(w, 1)?, from_end(w, 0)?]);
    let (Some([channels, high, wide, depth]), true) = (sizes(), x.rank() == 4) else {
        return unsupported("depthwise convolutions of other than planes, or with weights of unknown shape");
    };
    if Layout::of(attrs) != Layout::ChannelsLast || depth != 1 || from_end(x, 0) != Some(channels) {
        return unsupported(
            "depthwise convolutions without channels last, or with several channels of a group",
        );
    }
    let fits = matches!(site.first_dtype(), DType::F16 | DType::BF16 | DType::F32);
    if !fits || !site.out_dtype(0).is_float() || !channels.is_multiple_of(WIDTH) {
        return unsupported(format!(
            "depthwise convolutions of {channels} channels of {}",
            site.first_dtype()
        ));
    }
    let list = |name: &str, default: i64| {
        let v = attrs.ints(name).map_err(op_error)?;
        Ok::<_, BackendError>(if v.is_empty() { vec![default; 2] } else { v.to_vec() })
    };
    if list("dilations", 1)?.iter().any(|&d| d != 1) || high > MOST || wide > MOST || high * wide == 0 {
        return unsupported("depthwise convolutions with dilations or large kernels");
    }
    match list("strides", 1)?[..] {
        [a, b] if (1..=4).contains(&a) && (1..=4).contains(&b) => {
            Ok(Shape { kernel: [high, wide], strides: [a as usize, b as usize], channels })
        }
        _ => unsupported("depthwise convolutions with large strides"),
    }
}

/// Threads side by side along channels.
fn side(channels: usize) -> usize {
    (channels / WIDTH).next_power_of_two().min(8)
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let s = shape(site)?;
    // A product and a sum a clock and lane, of which loads and conversions leave half.
    let number = |name: &str, default: f64| site.target.numbers.get(name).map_or(default, |&n| n as f64);
    let rate = number("sm_count", 50.0) * number("clock_mhz", 1500.0) / 1000.0 * 64.0;
    let sums = output(site, 0).and_then(|y| y.static_volume());
    let tactic = |lines: usize| {
        // The windows of a band share rows of x: the part of the reads that bands of one row would make.
        let height = (lines - 1) * s.strides[0] + s.kernel[0];
        let reads = height as f64 / (lines * s.kernel[0]) as f64;
        let estimate_ns = traffic(site).zip(sums).map(|(bytes, n)| {
            let products = n as f64 * (s.kernel[0] * s.kernel[1]) as f64 * (0.5 + 0.5 * reads);
            moving(site.target, bytes, 1.5).max(2000.0 + products / rate)
        });
        let params = [(LINES_PARAM.to_owned(), lines as i64)].into();
        Tactic { estimate_ns, params, ..Tactic::plain("conv.depthwise") }
    };
    // Rows of a band whose windows share nothing gain nothing.
    let shares = |lines: usize| lines == 1 || s.kernel[0] > s.strides[0];
    Ok(LINES.into_iter().filter(|&n| shares(n)).map(tactic).collect())
}

/// Rows of a band.
fn lines(tactic: &Tactic) -> Result<usize, BackendError> {
    let asked = tactic.params.get(LINES_PARAM).copied().unwrap_or(1);
    match usize::try_from(asked).ok().filter(|n| LINES.contains(n)) {
        Some(n) => Ok(n),
        None => unsupported(format!("depthwise convolutions by bands of {asked} rows")),
    }
}

fn source(site: &Site<'_>, tactic: &Tactic) -> Result<Body, BackendError> {
    let Shape { kernel: [down, across], strides, channels } = shape(site)?;
    let (t, lines) = (site.first_dtype(), lines(tactic)?);
    let height = (lines - 1) * strides[0] + down;
    // Rows of small kernels are all read at once, where registers hold them.
    let unroll = if height <= 5 && t.bits() <= 16 { height } else { 1 };
    let numbers = [
        ("KERNEL_DOWN", down),
        ("KERNEL_ACROSS", across),
        ("STRIDE_DOWN", strides[0]),
        ("STRIDE_ACROSS", strides[1]),
        ("SIDE", side(channels)),
        ("RUN", RUN),
        ("LINES", lines),
        ("UNROLL", unroll),
    ];
    let mut code = element("Cell", "wide", t);
    for (name, n) in numbers {
        code += &site.constant(name, "u32", format_args!("{n}u"));
    }
    code += &site.constant("BF16", "bool", t == DType::BF16);
    let bias = if site.dtype(2).is_some() { "x2(channel)" } else { "0.0f" };
    code += &site.function("bias", &[("channel", "u32")], "f32", bias);
    Ok(Body::of("conv/depthwise", vec![Entry::blocks("depthwise", THREADS)]).with(code))
}

/// As many blocks keep a large device busy.
const BLOCKS: usize = 2112;

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, w, y) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let axes = conv::geometry(cx.op()?.attrs(), &dims(&x), &dims(&w)).map_err(op_error)?;
    let axes = known(&axes).map_err(op_error)?;
    let (&[n, rows, columns, channels], [down, across]) = (&y[..], &axes[..]) else {
        return Err(BackendError::Internal("a depthwise convolution of no plane".into()));
    };
    let side = side(channels);
    let runs = columns.div_ceil(RUN);
    let bands = rows.div_ceil(lines(cx.tactic)?);
    let positions = n * bands * runs;
    let along = channels.div_ceil(side * WIDTH);
    let blocks = positions.div_ceil(THREADS as usize / side).min((BLOCKS / along.max(1)).max(1));
    let params = DepthwiseParams {
        height: x[1],
        width: x[2],
        rows,
        columns,
        channels,
        before_down: down.begin,
        before_across: across.begin,
        runs,
        bands,
        positions,
        along,
        blocks,
    };
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups((along * blocks) as u64))])
}
