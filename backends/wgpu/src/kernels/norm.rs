//! Softmax and norms: two numbers of a row, then a result for each of its elements.

use kiln_backend::{BackendError, Tactic};
use kiln_codegen::lines::along;
use kiln_codegen::rows::{Rows, group_rows, layer_rows};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::template::{fill, sections};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, moves, words};
use kiln_ir::DType;
use kiln_ops::layout::Layout;

const TEXT: &str = include_str!("../../../../shaders/norm.wgsl");

pub const KERNELS: &[Kernel] = &[
    Kernel::of("softmax", &["softmax"], |_, _| text(&SOFTMAX, &[], &[]), axis_rows),
    Kernel::of("log_softmax", &["log_softmax"], |_, _| text(&LOG_SOFTMAX, &[], &[]), axis_rows),
    Kernel::of("lp_norm", &["lp_norm"], lp_source, axis_rows),
    Kernel::of("layer_norm", &["layer_norm"], |s, _| layer_source(s, &LAYER_NORM), layer),
    Kernel::of("rms_norm", &["rms_norm"], |s, _| layer_source(s, &RMS_NORM), layer),
    Kernel::of("group_norm", &["group_norm"], group_source, |cx| norm(cx, group_rows(cx)?, 0)),
    Kernel::of("ragged_softmax", &["ragged_softmax"], ragged_source, ragged),
];

/// The words of `norm.wgsl` that differ.
struct Row {
    merge: &'static str,
    start: &'static str,
    first: &'static str,
    second: &'static str,
    number: &'static str,
    result: &'static str,
}

const LOWEST: &str = "cf(0xff800000u)";

const SOFTMAX: Row = Row {
    merge: "kmax",
    start: LOWEST,
    first: "x0(at)",
    second: "kexp(x0(at) - a)",
    number: "sum",
    result: "kexp(x0(at) - a) / b",
};
const LOG_SOFTMAX: Row = Row { result: "(x0(at) - a) - klog(b)", ..SOFTMAX };
const RAGGED: Row = Row {
    first: "select(cf(0xff800000u), x0(at), counts(at, row))",
    second: "select(0.0, kexp(x0(at) - a), counts(at, row))",
    result: "select(0.0, kexp(x0(at) - a) / b, counts(at, row))",
    ..SOFTMAX
};
const LAYER_NORM: Row = Row {
    merge: "add",
    start: "0.0",
    first: "x0(at)",
    second: "(x0(at) - a) * (x0(at) - a)",
    number: "sum / f32(n)",
    result: "(x0(at) - a) * (1.0 / sqrt(b / f32(n) + mf(2u)))",
};
const GROUP_NORM: Row = Row {
    result: "(x0(at) - a) / sqrt(b / f32(n) + mf(2u)) * x1((at / m(3u)) % m(4u)) + x2((at / m(3u)) % m(4u))",
    ..LAYER_NORM
};
const RMS_NORM: Row = Row {
    first: "x0(at) * x0(at)",
    second: "0.0",
    number: "sqrt(sum / f32(n) + mf(2u))",
    result: "x0(at) / a",
    ..LAYER_NORM
};

const GROUP_NORM_LAST: Row = Row {
    result: "(x0(at) - a) / sqrt(b / f32(n) + mf(2u)) * x1(at % m(4u)) + x2(at % m(4u))",
    ..LAYER_NORM
};

fn text(row: &Row, more: &[&str], pairs: &[(&str, &str)]) -> Result<Body, BackendError> {
    placed("strided", row, more, pairs)
}

/// The text for rows whose elements lie as the section `places` tells.
fn placed(places: &str, row: &Row, more: &[&str], pairs: &[(&str, &str)]) -> Result<Body, BackendError> {
    let mut all = vec![
        ("MERGE", row.merge),
        ("START", row.start),
        ("FIRST", row.first),
        ("SECOND", row.second),
        ("NUMBER", row.number),
        ("RESULT", row.result),
    ];
    all.extend(pairs);
    all.extend([("AFFINE", ""), ("STATISTICS", "")]);
    let code = fill(&(sections(TEXT, &[places, "rows"]) + &sections(TEXT, more)), &all);
    let entries = ["rows", "part_first", "join_first", "part_second", "join_second", "apply"];
    Ok(Body { code, entries: entries.map(Entry::Free).into(), scratch: true, ..Body::default() })
}

/// Elements of a part of a row at most.
const PART: usize = 64 * 4096;

/// Launches for `rows` rows of `n` elements; `cost` counts the iterations that an element takes in the functions of its
/// result.
fn launches(
    cx: &Cx<'_>,
    w: Vec<u32>,
    rows: usize,
    n: usize,
    cost: usize,
) -> Result<Vec<Launch>, BackendError> {
    // Three loops over the elements, and two trees.
    let trees = 32;
    if n.div_ceil(64) * (3 + cost) + trees <= cx.rounds {
        return Ok(vec![Launch::map(0, w).on(Grid::Groups(rows as u64))]);
    }
    let lane = cx.rounds.saturating_sub(trees).clamp(1, PART / 64);
    let parts = n.div_ceil(lane * 64);
    if parts.div_ceil(64) + trees > cx.rounds {
        return unsupported(format!("{} of {n} elements in {parts} parts", cx.op()?.name()));
    }
    let all = (rows * parts) as u64;
    let grids = [
        Grid::Groups(all),
        Grid::Groups(rows as u64),
        Grid::Groups(all),
        Grid::Groups(rows as u64),
        Grid::Threads((rows * n) as u64),
    ];
    let one = |(k, grid): (usize, Grid)| {
        let launch = Launch::map(k + 1, w.clone()).on(grid).scratch((rows as u64 * 2 + all) * 4);
        launch.span(lane * 64, parts)
    };
    grids.into_iter().enumerate().map(one).collect()
}

/// Rows along the attribute "axis".
fn axis_rows(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = moves::axis(cx, x.len())?;
    let (w, rows) = along(&x, axis)?;
    launches(cx, w, rows, x[axis], 0)
}

fn lp_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let square = site.op()?.attrs().int("p").map_err(op_error)? == 2;
    let (first, number) = if square { ("x0(at) * x0(at)", "sqrt(sum)") } else { ("abs(x0(at))", "sum") };
    text(&Row { first, number, result: "select(x0(at) / a, 0.0, a == 0.0)", ..RMS_NORM }, &[], &[])
}

fn layer_source(site: &Site<'_>, row: &Row) -> Result<Body, BackendError> {
    let scale = if site.dtype(1).is_some() { "y = y * x1(spread(3u, 1u, at)); " } else { "" };
    let bias = if site.dtype(2).is_some() { "y = y + x2(spread(3u, 2u, at));" } else { "" };
    let several = site.stored().len() > 1;
    let statistics = if several { "emit1(row, a); emit2(row, 1.0 / sqrt(b / f32(n) + mf(2u)));" } else { "" };
    text(row, &["spread"], &[("AFFINE", &format!("{scale}{bias}")), ("STATISTICS", statistics)])
}

/// Launches for the rows of a norm, whose elements lie next to each other.
fn norm(cx: &Cx<'_>, mut rows: Rows, cost: usize) -> Result<Vec<Launch>, BackendError> {
    rows.words.insert(1, 1);
    launches(cx, rows.words, rows.count, rows.n, cost)
}

fn layer(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    norm(cx, layer_rows(cx)?, 2 * (cx.shape(0)?.len() + 1))
}

fn group_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    match Layout::of(site.op()?.attrs()) {
        Layout::Linear => text(&GROUP_NORM, &[], &[]),
        Layout::ChannelsLast => placed("groups_last", &GROUP_NORM_LAST, &[], &[]),
    }
}

fn ragged_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let (low, high) = match site.dtype(1) {
        Some(DType::I64) => ("i64(0)", "i64(2147483647)"),
        _ => ("0", "2147483647"),
    };
    text(&RAGGED, &["ragged"], &[("LOW", low), ("HIGH", high)])
}

fn ragged(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let Some((&n, lead)) = x.split_last() else { return Ok(Vec::new()) };
    launches(cx, words([n, 1])?, lead.iter().product(), n, 0)
}
