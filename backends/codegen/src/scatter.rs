//! Scatters: a copy, then threads that own disjoint parts of the result write their updates in order.

use crate::long::repeated;
use crate::scalar::register;
use crate::site::{Cx, Site, op_error};
use crate::template::{fill, section, sections};
use crate::{Body, Entry, Grid, Kernel, Launch, plain, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "scatter_elements",
        ops: &["scatter_elements"],
        epilogue: false,
        tactics: |_| plain("scatter_elements"),
        source,
        launch: elements,
    },
    Kernel {
        name: "scatter_nd",
        ops: &["scatter_nd"],
        epilogue: false,
        tactics: |_| plain("scatter_nd"),
        source,
        launch: nd,
    },
];

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let op = site.op()?;
    let float = site.out_dtype(0).is_float();
    let combine = match (op.attrs().str("reduction").map_err(op_error)?, float, site.out_dtype(0)) {
        ("add", _, _) => "old + new_value",
        ("mul", _, _) => "old * new_value",
        ("max", true, _) => "kmax(old, new_value)",
        ("min", true, _) => "kmin(old, new_value)",
        ("max", _, DType::Bool) => "(old || new_value)",
        ("min", _, DType::Bool) => "(old && new_value)",
        ("max", _, _) => "max(old, new_value)",
        ("min", _, _) => "min(old, new_value)",
        _ => "new_value",
    };
    let index = if site.dtype(1) == Some(DType::I64) { "i64" } else { "i32" };
    let pairs =
        [("REG", register(site.out_dtype(0))), ("IDX", index), ("PLACE", "i32"), ("COMBINE", combine)];
    let text =
        sections(site.text("moves"), &["scatter_copy", "wrap"]) + section(site.text("moves"), op.name());
    Ok(Body {
        code: fill(&text, &pairs),
        entries: vec![Entry::Map(0), Entry::Free("scatter")],
        ..Body::default()
    })
}

/// A copy, unless x and the result are one, then `trips` updates of each thread of `cost` iterations each.
fn with_copy(
    cx: &Cx<'_>,
    words: Vec<u32>,
    threads: usize,
    (trips, cost): (usize, usize),
) -> Result<Vec<Launch>, BackendError> {
    let scatter = Launch::map(1, words).on(Grid::Threads(threads as u64));
    let mut out = Vec::new();
    if !cx.aliased(0, 0) {
        out.push(Launch::map(0, Vec::new()));
    }
    out.extend(repeated(cx, &scatter, (trips, cost), 0)?);
    Ok(out)
}

fn elements(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, i) = (cx.shape(0)?, cx.shape(1)?);
    let axis = crate::moves::axis(cx, x.len())?;
    let mut lines = i.clone();
    lines[axis] = 1;
    let count = if i[axis] == 0 { 0 } else { lines.iter().product() };
    let mut w = words([x.len(), axis + 1, x[axis], i[axis]])?;
    w.extend(words(lines)?);
    w.extend(words(strides(&i))?);
    w.extend(words(strides(&x))?);
    with_copy(cx, w, count, (i[axis], 1))
}

fn nd(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, i) = (cx.shape(0)?, cx.shape(1)?);
    let Some((&depth, lead)) = i.split_last() else { return Ok(Vec::new()) };
    let tuples: usize = lead.iter().product();
    let slice: usize = x[depth..].iter().product();
    let mut w = words([tuples, depth, slice])?;
    w.extend(words(x[..depth].iter().copied())?);
    w.extend(words(strides(&x)[..depth].iter().copied())?);
    with_copy(cx, w, if tuples == 0 { 0 } else { slice }, (tuples, 2 + depth))
}
