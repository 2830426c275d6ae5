//! Slices, concatenations and padding.

pub mod insert;

use crate::scalar::{register, zero};
use crate::shape::{launch, signed, strided_or_far};
use crate::site::{Cx, Site, op_error};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::infer::normalize_axis;
use kiln_ops::slice::pad::PAD;
use kiln_ops::slice::window::window;
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    strided_or_far("slice", &["slice"], slice),
    Kernel::of("pad", &["pad"], pad_source, pad),
    Kernel::of("concat", &["concat"], concat_source, concat),
];

crate::params! {
    /// A part of x with more around it.
    struct PadParams {
        /// Dimensions of the result.
        dims: [u32],
        /// Dimensions of x.
        sizes: [u32],
        /// Strides of x.
        strides: [u32],
        /// Position of x in the result.
        before: [i32],
    }
}

crate::params! {
    /// One input of a concatenation.
    struct ConcatParams {
        /// Elements of one slice of this input.
        own: u32,
        /// Elements of one slice of the result.
        whole: u32,
        /// Position of this input in a slice of the result.
        start: u32,
    }
}

fn slice(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let missing = || BackendError::Internal("a slice without bounds".into());
    let (starts, ends) = (cx.ints(1)?.ok_or_else(missing)?, cx.ints(2)?.ok_or_else(missing)?);
    let axes = cx.ints(3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = cx.ints(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    let mut by = signed(strides(&x));
    let mut offset = 0;
    for (((&a, &start), &end), &step) in axes.iter().zip(&starts).zip(&ends).zip(&steps) {
        let axis = normalize_axis(a, x.len(), "axes").map_err(op_error)?;
        let w = window(x[axis] as i64, start, end, step);
        if w.len > 0 {
            offset += w.first * by[axis];
        }
        // A single element needs no step; a huge one would overflow.
        by[axis] = if w.len > 1 { by[axis] * w.step } else { 0 };
    }
    launch(cx, offset, &cx.out_shape(0)?, &by)
}

/// Elements outside of x; the numbers stand in the kernel's file as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One value.
    Constant = 0,
    /// The element at the edge.
    Edge = 1,
    /// x again.
    Wrap = 2,
    /// x mirrored at its edges.
    Reflect = 3,
}

fn mode(name: &str) -> Mode {
    match name {
        "edge" => Mode::Edge,
        "wrap" => Mode::Wrap,
        "reflect" => Mode::Reflect,
        _ => Mode::Constant,
    }
}

fn pad_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    pad_body(site)
}

/// The generic body of a pad.
pub fn pad_body(site: &Site<'_>) -> Result<Body, BackendError> {
    Ok(framed(site, mode(site.op()?.attrs().str("mode").map_err(op_error)?)))
}

/// A map of x with more around it; the third input of a pad is the value that stands there.
pub(crate) fn framed(site: &Site<'_>, mode: Mode) -> Body {
    let t = site.out_dtype(0);
    let given = site.op().is_ok_and(|op| op.is(PAD)) && site.dtype(2).is_some();
    let gap = if given { "x2(0u)" } else { zero(t) };
    let code = site.alias("Value", t)
        + &site.constant("MODE", "u32", format_args!("{}u", mode as u32))
        + &site.function("gap", &[], register(t), gap);
    Body::element("slice/pad", "pad").with(code)
}

/// Dimensions of a pad, the innermost one last.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// Dimensions of the result.
    pub dims: Vec<usize>,
    /// Dimensions of x.
    pub sizes: Vec<usize>,
    /// Strides of x.
    pub strides: Vec<usize>,
    /// Position of x in the result.
    pub before: Vec<i64>,
}

/// The launch of [`framed`]: where x starts in the result.
pub(crate) fn frame(cx: &Cx<'_>, before: Vec<i64>) -> Result<Vec<Launch>, BackendError> {
    let (sizes, dims) = (cx.shape(0)?, cx.out_shape(0)?);
    let params = PadParams { dims, strides: strides(&sizes), sizes, before };
    Ok(vec![Launch::map(0, params.words()?)])
}

fn pad(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    frame(cx, pad_frame(cx)?.before)
}

/// The dimensions of a pad's launch.
pub fn pad_frame(cx: &Cx<'_>) -> Result<Frame, BackendError> {
    let rank = cx.shape(0)?.len();
    let pads = cx.ints(1)?.unwrap_or_default();
    let axes = cx.ints(3)?.unwrap_or_else(|| (0..rank as i64).collect());
    let mut before = vec![0; rank];
    for (&a, &p) in axes.iter().zip(&pads) {
        before[normalize_axis(a, rank, "axes").map_err(op_error)?] = p;
    }
    let mode = mode(cx.op()?.attrs().str("mode").map_err(op_error)?);
    let out = cx.out_shape(0)?;
    for ((b, &n), &to) in before.iter_mut().zip(&cx.shape(0)?).zip(&out) {
        *b = position(mode, *b, n as i64, to as i64)?;
    }
    let sizes = cx.shape(0)?;
    Ok(Frame { dims: out, strides: strides(&sizes), sizes, before })
}

/// Position of x in the result, in the numbers of a kernel. Far outside, the distance does not matter, or
/// only up to whole periods.
fn position(mode: Mode, before: i64, n: i64, to: i64) -> Result<i64, BackendError> {
    const FAR: i64 = 1 << 30;
    if before.abs() <= FAR {
        return Ok(before);
    }
    match mode {
        _ if n.max(to) > FAR => Err(BackendError::Unsupported(format!(
            "a pad of {before} elements before a dimension of {n}, which becomes {to}"
        ))),
        Mode::Wrap => Ok(before.rem_euclid(n.max(1))),
        Mode::Reflect => Ok(before.rem_euclid(2 * (n - 1).max(1))),
        _ => Ok(before.clamp(-FAR, FAR)),
    }
}

fn concat_source(_: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let body = Body::of("slice/concat", vec![Entry::threads("concat")]);
    Ok(Body { inputs: Some(vec![0]), ..body })
}

fn concat(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let out = cx.out_shape(0)?;
    let axis = cx.axis(out.len())?;
    let whole: usize = out[axis..].iter().product();
    let mut start = 0;
    let mut launches = Vec::new();
    for i in 0..cx.inputs.len() {
        let x = cx.shape(i)?;
        let own: usize = x[axis..].iter().product();
        let n: usize = x.iter().product();
        let params = ConcatParams { own, whole, start };
        let launch = Launch::map(0, params.words()?).on(Grid::Threads(n as u64));
        launches.push(Launch { swap: Some((0, i)), ..launch });
        start += own;
    }
    Ok(launches)
}
