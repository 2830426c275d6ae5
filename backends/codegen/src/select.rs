//! Operators whose output sizes depend on data. A first pass lists what is kept in scratch memory and tells how much
//! it is; the rest runs when the host knows.

use crate::scalar::register;
use crate::site::{Cx, Site, op_error};
use crate::template::{fill, section, sections};
use crate::{Body, Entry, Grid, Kernel, Launch, word, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::alone("nonzero", &["nonzero"], nonzero_source, nonzero),
    Kernel::alone("compress", &["compress"], compress_source, compress),
    Kernel::alone("unique", &["unique"], unique_source, unique),
    Kernel::alone("nms", &["nms"], nms_source, nms),
    Kernel::alone("assertion", &["assertion"], assertion_source, assertion),
];

/// A first pass, which lists, and these entries after it.
fn body(code: String, first: &[&'static str], maps: usize) -> Body {
    let entries = first.iter().map(|n| Entry::Free(n)).chain((0..maps).map(Entry::Map)).collect();
    Body { code, entries, scratch: true, sizes: true, ..Body::default() }
}

/// Launches before and after the sizes are known; the latter only once all shapes are.
pub fn phases(
    cx: &Cx<'_>,
    first: Vec<Launch>,
    then: impl FnOnce() -> Result<Vec<Launch>, BackendError>,
    scratch: u64,
) -> Result<Vec<Launch>, BackendError> {
    let mut all: Vec<Launch> = first.into_iter().map(|l| Launch { counts: true, ..l }).collect();
    if cx.out_shape(0).is_ok() {
        all.extend(then()?);
    }
    Ok(all.into_iter().map(|l| l.scratch(scratch)).collect())
}

/// `keep(i)`: is element i of a `nonzero` listed?
pub fn nonzero_test(site: &Site<'_>) -> String {
    let test = match site.first_dtype() {
        DType::Bool => "x0(i)",
        // By the bits, so that NaN counts and subnormals do.
        t if t.is_float() => "fnonzero(x0(i))",
        DType::I64 => "x0(i) != i64(0)",
        _ => "x0(i) != 0",
    };
    site.function("keep", &[("i", "u32")], "bool", test)
}

fn nonzero_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let keep = nonzero_test(site);
    Ok(body(keep + &fill(&sections(site.text("select"), &["starts", "list", "nonzero"]), &[]), &["list"], 1))
}

/// The shape whose indices a `nonzero` gives: a scalar may count as one element.
pub fn nonzero_shape(cx: &Cx<'_>) -> Result<Vec<usize>, BackendError> {
    let x = cx.shape(0)?;
    let one = x.is_empty() && cx.outputs.first().and_then(|f| f.ty.dims.first()?.as_const()) == Some(1);
    Ok(if one { vec![1] } else { x })
}

/// Words of the indices: elements that are listed, rank, strides, dimensions.
pub fn nonzero_words(cx: &Cx<'_>, x: &[usize]) -> Result<Vec<u32>, BackendError> {
    let mut w = words([cx.out_shape(0)?[1], x.len()])?;
    w.extend(words(strides(x))?);
    w.extend(words(x.iter().copied())?);
    Ok(w)
}

fn nonzero(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = nonzero_shape(cx)?;
    let n: usize = x.iter().product();
    let list = Launch::map(0, vec![word(n)?]).on(Grid::Groups(1));
    let maps = || Ok(vec![Launch::map(1, nonzero_words(cx, &x)?)]);
    phases(cx, vec![list], maps, n as u64 * 4)
}

fn compress_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let keep = site.function("keep", &[("i", "u32")], "bool", "x1(i)");
    let pairs = [("REG", register(site.out_dtype(0)))];
    Ok(body(
        keep + &fill(&sections(site.text("select"), &["starts", "list", "compress"]), &pairs),
        &["list"],
        1,
    ))
}

/// The slices of x: how many along the axis, elements after it and before it.
pub fn slices(cx: &Cx<'_>) -> Result<[usize; 3], BackendError> {
    let x = cx.shape(0)?;
    let a = cx.op()?.attrs();
    if a.bool("flatten").map_err(op_error)? {
        return Ok([x.iter().product(), 1, 1]);
    }
    let axis = normalize_axis(a.int("axis").map_err(op_error)?, x.len(), "axis").map_err(op_error)?;
    Ok([x[axis], x[axis + 1..].iter().product(), x[..axis].iter().product()])
}

fn compress(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let [n, inner, outer] = slices(cx)?;
    let n = n.min(cx.shape(1)?.iter().product());
    let list = Launch::map(0, vec![word(n)?]).on(Grid::Groups(1));
    let maps = || {
        let [whole, ..] = slices(cx)?;
        let kept = cx.out_shape(0)?.iter().product::<usize>().checked_div(inner * outer).unwrap_or(0);
        Ok(vec![Launch::map(1, words([inner, kept, whole])?)])
    };
    phases(cx, vec![list], maps, n as u64 * 4)
}

fn unique_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let r = register(t);
    let (same, before) = match t {
        DType::Bool => ("a == b", "!a && b"),
        _ if t.is_float() => ("feq(a, b)", "flt(a, b) || (!is_nan(a) && is_nan(b))"),
        _ => ("a == b", "a < b"),
    };
    let order = ["same", "before"]
        .map(|n| site.function(n, &[("a", r), ("b", r)], "bool", if n == "same" { same } else { before }))
        .concat();
    let sorted = site.op()?.attrs().bool("sorted").map_err(op_error)?;
    let sort = if sorted { section(site.text("select"), "sort") } else { "" };
    let text = sections(site.text("select"), &["unique", "unique_maps"]);
    Ok(body(order + &fill(&text, &[("REG", r), ("SORT", sort)]), &["distinct"], 4))
}

fn unique(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let [n, inner, outer] = slices(cx)?;
    let w = words([n, inner, outer])?;
    let list = Launch::map(0, w.clone()).on(Grid::Threads(1));
    let maps = || {
        let count = cx.out_shape(1)?.iter().product();
        let mut w = w;
        w.push(word(count)?);
        Ok((1..5).map(|entry| Launch::map(entry, w.clone())).collect())
    };
    phases(cx, vec![list], maps, n as u64 * 16)
}

fn nms_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let corners = if site.op()?.attrs().bool("center_box").map_err(op_error)? {
        "return Rect(a - b / 2.0f, a + b / 2.0f);"
    } else {
        "return Rect(flip(min(a, b)), flip(max(a, b)));"
    };
    let place = |i: &str| {
        if site.rank(0) == Some(4) {
            format!("((t / m(1u) * n + {i}) * m(1u) + t % m(1u)) * 4u")
        } else {
            format!("(t / m(1u) * n + {i}) * 4u")
        }
    };
    let least = site.anchor.is_some_and(|(_, n)| n.inputs.get(4).is_some_and(Option::is_some));
    let pairs = [
        ("CORNERS", corners),
        ("BOX", &place("best")),
        ("OTHER", &place("other")),
        ("SCORE", if least { "s > mf(6u)" } else { "true" }),
    ];
    Ok(body(fill(section(site.text("select"), "nms"), &pairs), &["pick", "count"], 1))
}

fn nms(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let s = cx.shape(1)?;
    let &[batch, classes, count] = &s[..] else { return Ok(Vec::new()) };
    let one = |v: Option<Vec<f64>>| v.and_then(|v| v.first().copied());
    let most = cx.ints(2)?.and_then(|v| v.first().copied()).unwrap_or(0).clamp(0, count as i64) as usize;
    let topk = cx.op()?.attrs().int("topk_limit").map_err(op_error)?;
    let limit = if topk > 0 { (topk as usize).min(count) } else { count };
    let mut w = words([batch, classes, count, most, limit])?;
    w.push((one(cx.floats(3)?).unwrap_or(0.0) as f32).to_bits());
    w.push((one(cx.floats(4)?).unwrap_or(0.0) as f32).to_bits());
    let all = (batch * classes) as u64;
    let first = vec![
        Launch::map(0, w.clone()).on(Grid::Threads(all)),
        Launch::map(1, w.clone()).on(Grid::Threads(1)),
    ];
    phases(cx, first, || Ok(vec![Launch::map(2, w)]), all * (most as u64 + 2) * 4)
}

fn assertion_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let text = sections(site.text("select"), &["starts", "assertion"]);
    Ok(Body { code: fill(&text, &[]), entries: vec![Entry::Free("list")], sizes: true, ..Body::default() })
}

/// Counts what is false; the context reads the count and makes the error.
fn assertion(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let n: usize = cx.shape(0)?.iter().product();
    let launch = Launch::map(0, vec![word(n)?]).on(Grid::Groups(1));
    Ok(vec![Launch { counts: true, ..launch }])
}
