//! Operators on rows: softmax, norms, orders, determinants.

use crate::lines::{along, attr};
use crate::norm::channels;
use crate::scalar::register;
use crate::site::{Cx, Site, op_error};
use crate::template::{fill, sections};
use crate::{Body, Entry, Grid, Kernel, Launch, word, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::layout::Layout;
use kiln_ops::util::broadcast_strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of(
        "softmax",
        &["softmax"],
        |s, _| free(s, &["tree", "softmax"], &[("RESULT", "kexp(x0(at) - top) / sum")]),
        |cx| lines(cx, Lines::Groups),
    ),
    Kernel::of(
        "log_softmax",
        &["log_softmax"],
        |s, _| free(s, &["tree", "softmax"], &[("RESULT", "(x0(at) - top) - klog(sum)")]),
        |cx| lines(cx, Lines::Groups),
    ),
    Kernel::of("hardmax", &["hardmax"], |s, _| free(s, &["hardmax"], &[]), |cx| lines(cx, Lines::Threads)),
    Kernel::of("lp_norm", &["lp_norm"], lp_source, |cx| lines(cx, Lines::Groups)),
    Kernel::of(
        "layer_norm",
        &["layer_norm"],
        |s, _| layer_source(s, "layer_norm"),
        |cx| layer_rows(cx)?.launch(),
    ),
    Kernel::of("rms_norm", &["rms_norm"], |s, _| layer_source(s, "rms_norm"), |cx| layer_rows(cx)?.launch()),
    Kernel::of("group_norm", &["group_norm"], group_source, |cx| group_rows(cx)?.launch()),
    Kernel::of("topk", &["topk"], topk_source, topk),
    Kernel::of("ragged_softmax", &["ragged_softmax"], ragged_source, ragged),
    Kernel::of("det", &["det"], det_source, det),
];

fn free(site: &Site<'_>, names: &[&str], pairs: &[(&str, &str)]) -> Result<Body, BackendError> {
    let code = fill(&sections(site.text("rows"), names), pairs);
    Ok(Body { code, entries: vec![Entry::Free("rows")], ..Body::default() })
}

/// What works on a line.
enum Lines {
    Groups,
    Threads,
}

/// Lines along the attribute "axis": elements of a line, and of what lies inside the axis.
fn lines(cx: &Cx<'_>, by: Lines) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let (w, count) = along(&x, crate::moves::axis(cx, x.len())?)?;
    let (launch, count) = (Launch::map(0, w), count as u64);
    Ok(vec![match by {
        Lines::Groups => launch.on(Grid::Groups(count)),
        Lines::Threads => launch.on(Grid::Threads(count)),
    }])
}

fn lp_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let square = site.op()?.attrs().int("p").map_err(op_error)? == 2;
    let (term, norm) = if square { ("v * v", "sqrt") } else { ("abs(v)", "f32") };
    free(site, &["tree", "lp_norm"], &[("TERM", term), ("NORM", norm)])
}

fn layer_source(site: &Site<'_>, name: &str) -> Result<Body, BackendError> {
    let scale = if site.dtype(1).is_some() { "y = y * x1(spread(2u, 1u, at)); " } else { "" };
    let bias = if site.dtype(2).is_some() { "y = y + x2(spread(2u, 2u, at));" } else { "" };
    let several = site.stored().len() > 1;
    let statistics = if several { "if (l == 0u) { emit1(group, mean); emit2(group, inverse); }" } else { "" };
    free(
        site,
        &["tree", "spread", name],
        &[("AFFINE", &format!("{scale}{bias}")), ("STATISTICS", statistics)],
    )
}

/// Rows that a norm is taken of.
pub struct Rows {
    /// Elements of a row, epsilon, and what the operator needs beside them.
    pub words: Vec<u32>,
    /// How many rows.
    pub count: usize,
    /// Elements of each.
    pub n: usize,
}

impl Rows {
    fn launch(self) -> Result<Vec<Launch>, BackendError> {
        Ok(vec![Launch::map(0, self.words).on(Grid::Groups(self.count as u64))])
    }
}

/// Rows over the last axes; behind epsilon rank, dimensions, strides of scale and bias.
pub fn layer_rows(cx: &Cx<'_>) -> Result<Rows, BackendError> {
    let x = cx.shape(0)?;
    let axis = crate::moves::axis(cx, x.len())?;
    let n: usize = x[axis..].iter().product();
    let count: usize = x[..axis].iter().product();
    let mut w = vec![word(n)?, attr(cx, "epsilon")?, word(x.len())?];
    w.extend(words(x.iter().copied())?);
    for i in [1, 2] {
        let by = if cx.has(i) { broadcast_strides(&cx.shape(i)?, &x) } else { vec![0; x.len()] };
        w.extend(words(by)?);
    }
    Ok(Rows { words: w, count, n })
}

fn group_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let places = match Layout::of(site.op()?.attrs()) {
        Layout::Linear => "group_linear",
        Layout::ChannelsLast => "group_channels_last",
    };
    free(site, &["tree", places, "group_norm"], &[])
}

/// Rows of groups of channels; behind epsilon elements of a channel, channels.
pub fn group_rows(cx: &Cx<'_>) -> Result<Rows, BackendError> {
    let (x, _) = channels(cx)?;
    let inner: usize = x[2..].iter().product();
    let groups = match cx.op()?.attrs().int("groups").map_err(op_error)? {
        0 => x[1],
        n => n as usize,
    };
    let n = x[1].checked_div(groups).unwrap_or(0) * inner;
    let count = if n == 0 { 0 } else { x[0] * groups };
    let words = vec![word(n)?, attr(cx, "epsilon")?, word(inner)?, word(x[1])?];
    Ok(Rows { words, count, n })
}

/// Does `a` stand before `b`? The test of a `topk`.
pub fn precedes(site: &Site<'_>) -> Result<&'static str, BackendError> {
    let largest = site.op()?.attrs().bool("largest").map_err(op_error)?;
    Ok(match (largest, site.out_dtype(0).is_float()) {
        (true, true) => "(is_nan(a) && !is_nan(b)) || flt(b, a)",
        (false, true) => "(!is_nan(a) && is_nan(b)) || flt(a, b)",
        (true, false) => "a > b",
        (false, false) => "a < b",
    })
}

fn topk_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let mut body = free(site, &["topk"], &[])?;
    let r = register(site.out_dtype(0));
    body.code = site.function("before", &[("a", r), ("b", r)], "bool", precedes(site)?) + &body.code;
    Ok(body)
}

fn topk(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let axis = crate::moves::axis(cx, x.len())?;
    let n: usize = x.iter().product();
    let w = words([x[axis], x[axis + 1..].iter().product(), out[axis]])?;
    Ok(vec![Launch::map(0, w).on(Grid::Threads(n as u64))])
}

fn ragged_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let (low, high) = match site.dtype(1) {
        Some(DType::I64) => ("i64(0)", "i64(2147483647)"),
        _ => ("0", "2147483647"),
    };
    free(site, &["tree", "ragged_softmax"], &[("LOW", low), ("HIGH", high)])
}

fn ragged(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let Some((&n, lead)) = x.split_last() else { return Ok(Vec::new()) };
    Ok(vec![Launch::map(0, vec![word(n)?]).on(Grid::Groups(lead.iter().product::<usize>() as u64))])
}

fn det_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let code = fill(&sections(site.text("rows"), &["det"]), &[]);
    Ok(Body { code, entries: vec![Entry::Free("determinants")], scratch: true, ..Body::default() })
}

fn det(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let count: usize = cx.out_shape(0)?.iter().product();
    let bytes = x.iter().product::<usize>() as u64 * 4;
    let n = word(x.last().copied().unwrap_or(0))?;
    Ok(vec![Launch::map(0, vec![n]).on(Grid::Threads(count as u64)).scratch(bytes)])
}
