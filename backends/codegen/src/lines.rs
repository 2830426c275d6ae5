//! Operators on lines of elements along an axis, and on channels: one thread a result, or a line.

use crate::long::{continued, repeated, state, summed};
use crate::scalar::register;
use crate::site::{Cx, Site, op_error};
use crate::template::{fill, section};
use crate::{Body, Entry, Grid, Kernel, Launch, word, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;
use kiln_ops::layout::Layout;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of("batch_norm", &["batch_norm"], |s, _| Ok(Body::map(text(s, "batch_norm", &[]))), batch),
    Kernel::of("lrn", &["lrn"], |s, _| Ok(summed(s, text(s, "lrn", &[]), DType::F32)), lrn),
    Kernel::of("argreduce", &["argmax", "argmin"], arg_source, arg),
    Kernel::of("cumulative", &["cumulative"], cumulative_source, cumulative),
];

fn text(site: &Site<'_>, name: &str, pairs: &[(&str, &str)]) -> String {
    fill(section(site.text("rows"), name), pairs)
}

/// Lines along an axis: the words (elements of a line, and of what lies inside the axis), and the number of lines.
pub fn along(x: &[usize], axis: usize) -> Result<(Vec<u32>, usize), BackendError> {
    let lines = x.iter().product::<usize>().checked_div(x[axis]).unwrap_or(0);
    Ok((words([x[axis], x[axis + 1..].iter().product()])?, lines))
}

/// A float attribute as a word.
pub fn attr(cx: &Cx<'_>, name: &str) -> Result<u32, BackendError> {
    Ok((cx.op()?.attrs().float(name).map_err(op_error)? as f32).to_bits())
}

/// The shape of the first input with channels second, and how far the elements of a channel are apart: elements of
/// one channel in a row, or 1 with channels last.
pub fn channels(cx: &Cx<'_>) -> Result<(Vec<usize>, usize), BackendError> {
    let layout = Layout::of(cx.op()?.attrs());
    let x = layout.to_linear(&cx.shape(0)?);
    let inner = if layout == Layout::Linear { x.iter().skip(2).product() } else { 1 };
    Ok((x, inner))
}

fn batch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, inner) = channels(cx)?;
    let count = word(x.get(1).copied().unwrap_or(1))?;
    Ok(vec![Launch::map(0, vec![word(inner)?, count, attr(cx, "epsilon")?])])
}

fn lrn(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, inner) = channels(cx)?;
    let count = x.get(1).copied().unwrap_or(1);
    let a = cx.op()?.attrs();
    let size = a.int("size").map_err(op_error)?.clamp(1, 1 << 30);
    let alpha = a.float("alpha").map_err(op_error)? / size as f64;
    let mut w = words([inner, count, ((size - 1) / 2) as usize, (size / 2) as usize])?;
    w.extend([(alpha as f32).to_bits(), attr(cx, "beta")?, attr(cx, "bias")?]);
    continued(cx, w, count.min(size as usize), 1)
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
    let mut body = summed(site, text(site, "argreduce", &[("REPLACES", replaces)]), DType::I32);
    let r = register(t);
    body.code = site.function("better", &[("a", r), ("b", r)], "bool", better) + &body.code;
    Ok(body)
}

fn arg(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = crate::moves::axis(cx, x.len())?;
    continued(cx, along(&x, axis)?.0, x[axis], 1)
}

fn cumulative_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let a = site.op()?.attrs();
    let prod = a.str("op").map_err(op_error)? == "prod";
    let reverse = a.bool("reverse").map_err(op_error)?;
    let exclusive = a.bool("exclusive").map_err(op_error)?;
    let t = site.out_dtype(0);
    let start = format!("{}({})", register(t), u8::from(prod));
    let pairs = [
        ("START", &*start),
        ("STEP", if prod { "*" } else { "+" }),
        ("PLACE", if reverse { "(n - 1u - k)" } else { "k" }),
        ("STORED", if exclusive { "acc" } else { "next" }),
    ];
    let code = state(site, t) + &text(site, "cumulative", &pairs);
    Ok(Body { code, entries: vec![Entry::Free("rows")], scratch: site.cut(), ..Body::default() })
}

fn cumulative(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.ints(1)?.and_then(|v| v.first().copied()).unwrap_or(0);
    let axis = normalize_axis(axis, x.len(), "axis").map_err(op_error)?;
    let (w, lines) = along(&x, axis)?;
    repeated(cx, &Launch::map(0, w).on(Grid::Threads(lines as u64)), (x[axis], 1), lines as u64 * 8)
}
