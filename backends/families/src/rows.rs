//! Operators on rows: softmax, norms, scans, orders.

use crate::scalar::register;
use crate::site::{Cx, Site, op_error};
use crate::template::{fill, sections};
use crate::{Body, Entry, Grid, Kernel, Launch, plain, word, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;
use kiln_ir::ops::layout::Layout;
use kiln_ir::ops::util::broadcast_strides;

type LaunchFn = fn(&Cx<'_>) -> Result<Vec<Launch>, BackendError>;
type SourceFn = fn(&Site<'_>, &Tactic) -> Result<Body, BackendError>;

const fn kernel(
    name: &'static str,
    ops: &'static [&'static str],
    source: SourceFn,
    launch: LaunchFn,
) -> Kernel {
    Kernel { name, ops, epilogue: true, tactics: |site| plain(site.kernel_name()), source, launch }
}

pub const KERNELS: &[Kernel] = &[
    kernel(
        "softmax",
        &["softmax"],
        |s, _| free(s, &["tree", "softmax"], &[("RESULT", "kexp(x0(at) - top) / sum")]),
        |cx| lines(cx, Lines::Groups),
    ),
    kernel(
        "log_softmax",
        &["log_softmax"],
        |s, _| free(s, &["tree", "softmax"], &[("RESULT", "(x0(at) - top) - klog(sum)")]),
        |cx| lines(cx, Lines::Groups),
    ),
    kernel("hardmax", &["hardmax"], |s, _| free(s, &["hardmax"], &[]), |cx| lines(cx, Lines::Threads)),
    kernel("lp_norm", &["lp_norm"], lp_source, |cx| lines(cx, Lines::Groups)),
    kernel("layer_norm", &["layer_norm"], |s, _| layer_source(s, "layer_norm"), layer),
    kernel("rms_norm", &["rms_norm"], |s, _| layer_source(s, "rms_norm"), layer),
    kernel("group_norm", &["group_norm"], group_source, group),
    kernel("batch_norm", &["batch_norm"], |s, _| map(s, "batch_norm", &[]), batch),
    kernel("lrn", &["lrn"], |s, _| map(s, "lrn", &[]), lrn),
    kernel("argreduce", &["argmax", "argmin"], arg_source, |cx| lines(cx, Lines::Map)),
    kernel("cumulative", &["cumulative"], cumulative_source, cumulative),
    kernel("topk", &["topk"], topk_source, topk),
    kernel("ragged_softmax", &["ragged_softmax"], ragged_source, ragged),
    kernel("det", &["det"], det_source, det),
];

fn free(site: &Site<'_>, names: &[&str], pairs: &[(&str, &str)]) -> Result<Body, BackendError> {
    let code = fill(&sections(site.text("rows"), names), pairs);
    Ok(Body { code, entries: vec![Entry::Free("rows")], ..Body::default() })
}

fn map(site: &Site<'_>, name: &str, pairs: &[(&str, &str)]) -> Result<Body, BackendError> {
    Ok(Body::map(fill(&sections(site.text("rows"), &[name]), pairs)))
}

/// What works on a line.
enum Lines {
    Groups,
    Threads,
    Map,
}

/// Lines along the attribute "axis": elements of a line, and of what lies inside the axis.
fn lines(cx: &Cx<'_>, by: Lines) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = crate::moves::axis(cx, x.len())?;
    along(&x, axis, by)
}

fn along(x: &[usize], axis: usize, by: Lines) -> Result<Vec<Launch>, BackendError> {
    let total: usize = x.iter().product();
    let count = total.checked_div(x[axis]).unwrap_or(0) as u64;
    let launch = Launch::map(0, words([x[axis], x[axis + 1..].iter().product()])?);
    Ok(vec![match by {
        Lines::Groups => launch.on(Grid::Groups(count)),
        Lines::Threads => launch.on(Grid::Threads(count)),
        Lines::Map => launch,
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

fn layer(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = crate::moves::axis(cx, x.len())?;
    let n: usize = x[axis..].iter().product();
    let count: usize = x[..axis].iter().product();
    let mut w = vec![word(n)?, epsilon(cx)?, word(x.len())?];
    w.extend(words(x.iter().copied())?);
    for i in [1, 2] {
        let by = if cx.has(i) { broadcast_strides(&cx.shape(i)?, &x) } else { vec![0; x.len()] };
        w.extend(words(by)?);
    }
    Ok(vec![Launch::map(0, w).on(Grid::Groups(count as u64))])
}

fn epsilon(cx: &Cx<'_>) -> Result<u32, BackendError> {
    attr(cx, "epsilon")
}

/// A float attribute as a word.
fn attr(cx: &Cx<'_>, name: &str) -> Result<u32, BackendError> {
    Ok((cx.op()?.attrs().float(name).map_err(op_error)? as f32).to_bits())
}

fn group_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let places = match Layout::of(site.op()?.attrs()) {
        Layout::Linear => "group_linear",
        Layout::ChannelsLast => "group_channels_last",
    };
    free(site, &["tree", places, "group_norm"], &[])
}

/// The shape of the first input with channels second, and how far the elements of a channel are apart: elements of
/// one channel in a row, or 1 with channels last.
fn channels(cx: &Cx<'_>) -> Result<(Vec<usize>, usize), BackendError> {
    let layout = Layout::of(cx.op()?.attrs());
    let x = layout.to_linear(&cx.shape(0)?);
    let inner = if layout == Layout::Linear { x.iter().skip(2).product() } else { 1 };
    Ok((x, inner))
}

fn group(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, _) = channels(cx)?;
    let inner: usize = x[2..].iter().product();
    let groups = match cx.op()?.attrs().int("groups").map_err(op_error)? {
        0 => x[1],
        n => n as usize,
    };
    let n = x[1].checked_div(groups).unwrap_or(0) * inner;
    let count = if n == 0 { 0 } else { x[0] * groups };
    let w = vec![word(n)?, epsilon(cx)?, word(inner)?, word(x[1])?];
    Ok(vec![Launch::map(0, w).on(Grid::Groups(count as u64))])
}

fn batch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, inner) = channels(cx)?;
    Ok(vec![Launch::map(0, vec![word(inner)?, word(x.get(1).copied().unwrap_or(1))?, epsilon(cx)?])])
}

fn lrn(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, inner) = channels(cx)?;
    let a = cx.op()?.attrs();
    let size = a.int("size").map_err(op_error)?.clamp(1, 1 << 30);
    let alpha = a.float("alpha").map_err(op_error)? / size as f64;
    let mut w = words([inner, x[1], ((size - 1) / 2) as usize, (size / 2) as usize])?;
    w.extend([(alpha as f32).to_bits(), attr(cx, "beta")?, attr(cx, "bias")?]);
    Ok(vec![Launch::map(0, w)])
}

fn arg_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let op = site.op()?;
    let t = site.first_dtype();
    let better = match (op.is("argmax"), t.is_float()) {
        (true, true) => "(is_nan(a) && !is_nan(b)) || flt(b, a)",
        (false, true) => "(is_nan(a) && !is_nan(b)) || flt(a, b)",
        (true, false) => "a > b",
        (false, false) => "a < b",
    };
    let last = op.attrs().bool("select_last").map_err(op_error)?;
    let replaces = if last { "!better(a, b)" } else { "better(b, a)" };
    let mut body = map(site, "argreduce", &[("REPLACES", replaces)])?;
    let r = register(t);
    body.code = site.function("better", &[("a", r), ("b", r)], "bool", better) + &body.code;
    Ok(body)
}

fn cumulative_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let a = site.op()?.attrs();
    let prod = a.str("op").map_err(op_error)? == "prod";
    let reverse = a.bool("reverse").map_err(op_error)?;
    let exclusive = a.bool("exclusive").map_err(op_error)?;
    let r = register(site.out_dtype(0));
    let start = format!("{r}({})", u8::from(prod));
    free(
        site,
        &["cumulative"],
        &[
            ("START", &start),
            ("STEP", if prod { "*" } else { "+" }),
            ("PLACE", if reverse { "(n - 1u - k)" } else { "k" }),
            ("STORED", if exclusive { "acc" } else { "next" }),
        ],
    )
}

fn cumulative(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.ints(1)?.and_then(|v| v.first().copied()).unwrap_or(0);
    along(&x, normalize_axis(axis, x.len(), "axis").map_err(op_error)?, Lines::Threads)
}

fn topk_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let largest = site.op()?.attrs().bool("largest").map_err(op_error)?;
    let before = match (largest, t.is_float()) {
        (true, true) => "(is_nan(a) && !is_nan(b)) || flt(b, a)",
        (false, true) => "(!is_nan(a) && is_nan(b)) || flt(a, b)",
        (true, false) => "a > b",
        (false, false) => "a < b",
    };
    let mut body = free(site, &["topk"], &[])?;
    let r = register(t);
    body.code = site.function("before", &[("a", r), ("b", r)], "bool", before) + &body.code;
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
