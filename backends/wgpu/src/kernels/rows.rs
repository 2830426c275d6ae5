//! Operators on rows: greatest elements, scans, orders, determinants.

use super::sort;
use kiln_backend::{BackendError, Tactic};
use kiln_families::long::{continued, repeated, state, summed};
use kiln_families::scalar::register;
use kiln_families::site::{Cx, Site, op_error};
use kiln_families::template::{fill, sections};
use kiln_families::{Body, Entry, Grid, Kernel, Launch, moves, plain, word, words};
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;
use kiln_ir::ops::layout::Layout;

const TEXT: &str = include_str!("../../../../shaders/rows.wgsl");

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
    kernel("hardmax", &["hardmax"], |s, _| Ok(long_map(s, "hardmax", &[], DType::I32)), hardmax),
    kernel("batch_norm", &["batch_norm"], |_, _| map("batch_norm", &[]), batch),
    kernel("lrn", &["lrn"], |s, _| Ok(long_map(s, "lrn", &[], DType::F32)), lrn),
    kernel("argreduce", &["argmax", "argmin"], arg_source, arg),
    kernel("cumulative", &["cumulative"], cumulative_source, cumulative),
    kernel("topk", &["topk"], topk_source, topk),
    kernel("det", &["det"], det_source, det),
];

fn free(names: &[&str], pairs: &[(&str, &str)]) -> Result<Body, BackendError> {
    let code = fill(&sections(TEXT, names), pairs);
    Ok(Body { code, entries: vec![Entry::Free("rows")], ..Body::default() })
}

fn map(name: &str, pairs: &[(&str, &str)]) -> Result<Body, BackendError> {
    Ok(Body::map(fill(&sections(TEXT, &[name]), pairs)))
}

/// A map that continues from launch to launch, keeping a number of type `t`.
fn long_map(site: &Site<'_>, name: &str, pairs: &[(&str, &str)], t: DType) -> Body {
    summed(site, fill(&sections(TEXT, &[name]), pairs), t)
}

/// Lines along an axis: the words (elements of a line, and of what lies inside the axis), and the number of lines.
fn along(x: &[usize], axis: usize) -> Result<(Vec<u32>, usize), BackendError> {
    let lines = x.iter().product::<usize>().checked_div(x[axis]).unwrap_or(0);
    Ok((words([x[axis], x[axis + 1..].iter().product()])?, lines))
}

fn hardmax(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = moves::axis(cx, x.len())?;
    let (w, lines) = along(&x, axis)?;
    let bytes = lines as u64 * 4;
    let find = Launch::map(1, w.clone()).on(Grid::Threads(lines as u64)).scratch(bytes);
    let mut out = repeated(cx, &find, (x[axis], 1), 0)?;
    out.push(Launch::map(0, w).scratch(bytes));
    Ok(out)
}

fn arg(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = moves::axis(cx, x.len())?;
    continued(cx, along(&x, axis)?.0, x[axis], 1)
}

/// A float attribute as a word.
fn attr(cx: &Cx<'_>, name: &str) -> Result<u32, BackendError> {
    Ok((cx.op()?.attrs().float(name).map_err(op_error)? as f32).to_bits())
}

/// The channels of the first input, and how far the elements of neighbouring channels are apart.
fn channels(cx: &Cx<'_>) -> Result<(usize, usize), BackendError> {
    let layout = Layout::of(cx.op()?.attrs());
    let x = cx.shape(0)?;
    let inner = if layout == Layout::Linear { x.iter().skip(2).product() } else { 1 };
    Ok((layout.to_linear(&x).get(1).copied().unwrap_or(1), inner))
}

fn batch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (count, inner) = channels(cx)?;
    Ok(vec![Launch::map(0, vec![word(inner)?, word(count)?, attr(cx, "epsilon")?])])
}

fn lrn(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (count, inner) = channels(cx)?;
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
    let mut body = long_map(site, "argreduce", &[("REPLACES", replaces)], DType::I32);
    let r = register(t);
    body.code = format!("fn better(a: {r}, b: {r}) -> bool {{ return {better}; }}\n") + &body.code;
    Ok(body)
}

fn cumulative_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let a = site.op()?.attrs();
    let prod = a.str("op").map_err(op_error)? == "prod";
    let reverse = a.bool("reverse").map_err(op_error)?;
    let exclusive = a.bool("exclusive").map_err(op_error)?;
    let r = register(site.out_dtype(0));
    let start = format!("{r}({})", u8::from(prod));
    let mut body = free(
        &["cumulative"],
        &[
            ("START", &start),
            ("STEP", if prod { "*" } else { "+" }),
            ("PLACE", if reverse { "(n - 1u - k)" } else { "k" }),
            ("STORED", if exclusive { "acc" } else { "next" }),
        ],
    )?;
    body.code = state(site, site.out_dtype(0)) + &body.code;
    body.scratch = true;
    Ok(body)
}

fn cumulative(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = cx.ints(1)?.and_then(|v| v.first().copied()).unwrap_or(0);
    let axis = normalize_axis(axis, x.len(), "axis").map_err(op_error)?;
    let (w, lines) = along(&x, axis)?;
    repeated(cx, &Launch::map(0, w).on(Grid::Threads(lines as u64)), (x[axis], 1), lines as u64 * 8)
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
    let r = register(t);
    let order = format!("fn precedes(a: {r}, b: {r}) -> bool {{ return {before}; }}\n");
    let text = sort::text().to_owned() + &sections(TEXT, &["topk", "topk_sorted"]);
    let entries = sort::ENTRIES.into_iter().chain([Entry::Free("rows"), Entry::Free("take")]).collect();
    Ok(Body { code: order + &fill(&text, &[]), entries, scratch: true, ..Body::default() })
}

/// Rows of more elements are sorted.
const RANKED: usize = 4096;

fn topk(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let axis = moves::axis(cx, x.len())?;
    let (n, count) = (x[axis], x.iter().product::<usize>());
    let w = words([n, sort::width(n), x[axis + 1..].iter().product(), out[axis]])?;
    if n <= RANKED.min(cx.rounds) {
        return Ok(vec![Launch::map(2, w).on(Grid::Threads(count as u64))]);
    }
    let rows = count / n;
    let mut all = sort::launches(&w, rows, n)?;
    let taken = out.iter().product::<usize>() as u64;
    all.push(Launch::map(3, w).on(Grid::Threads(taken)));
    let bytes = (rows * sort::width(n)) as u64 * 4;
    Ok(all.into_iter().map(|l| l.scratch(bytes)).collect())
}

fn det_source(_: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let code = fill(&sections(TEXT, &["det"]), &[]);
    Ok(Body { code, entries: vec![Entry::Free("determinants")], scratch: true, ..Body::default() })
}

fn det(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let count: usize = cx.out_shape(0)?.iter().product();
    let n = x.last().copied().unwrap_or(0);
    let bytes = (x.iter().product::<usize>() + count) as u64 * 4;
    let launch = Launch::map(0, vec![word(n)?]).on(Grid::Groups(count as u64)).scratch(bytes);
    // A column takes a search, a swap, and the rows of a thread; the copy before the first one takes less.
    let cost = n + n / 64 + 2 + n.div_ceil(64) * (n + 1);
    repeated(cx, &launch, (n, cost * 2), 0)
}
