//! Operators that take elements from elsewhere by more than affine arithmetic: padding, triangles, gathers, concat.

use crate::limits::{self, is_far, near_or_far};
use crate::scalar::{register, zero};
use crate::site::{Cx, Site, op_error};
use crate::template::{fill, sections};
use crate::{Body, Entry, Grid, Kernel, Launch, word, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of("pad", &["pad"], |s, _| framed(s, mode_function(s)?), pad),
    Kernel::of("center_crop_pad", &["center_crop_pad"], |s, _| framed(s, "at_constant"), center),
    Kernel::of("trilu", &["trilu"], trilu_source, trilu),
    picking("gather", &["gather"], |s, t| picks(s, t, "gather"), gather),
    picking("gather_elements", &["gather_elements"], |s, t| picks(s, t, "gather_elements"), gather_elements),
    picking("gather_nd", &["gather_nd"], |s, t| picks(s, t, "gather_nd"), gather_nd),
    Kernel::of(
        "reverse_sequence",
        &["reverse_sequence"],
        |s, _| map(s, &["reverse_sequence"], &[]),
        reverse_sequence,
    ),
    Kernel::of("one_hot", &["one_hot"], |s, _| map(s, &["one_hot"], &[]), one_hot),
    Kernel::of("eye_like", &["eye_like"], eye_source, eye_like),
    Kernel::of("concat", &["concat"], concat_source, concat),
];

/// A kernel that may count positions in its first input in 64 bits.
const fn picking(
    name: &'static str,
    ops: &'static [&'static str],
    source: crate::Source,
    launch: crate::Launcher,
) -> Kernel {
    let tactics: fn(&Site<'_>) -> Result<Vec<Tactic>, BackendError> =
        |site| Ok(vec![near_or_far(site, Tactic::plain(site.kernel_name()))]);
    Kernel { tactics, ..Kernel::of(name, ops, source, launch) }
}

/// A map that reads elements by indices.
fn picks(site: &Site<'_>, tactic: &Tactic, section: &str) -> Result<Body, BackendError> {
    let (width, sizes) = if is_far(tactic) { ("far64", "5u") } else { ("far32", "4u") };
    let [at, place] = limits::types(tactic);
    let body = map(site, &["wrap", width, section], &[at, place, ("SIZES", sizes)])?;
    Ok(Body { far: if is_far(tactic) { vec![0] } else { Vec::new() }, ..body })
}

/// A map of these sections, with the words that they share filled in.
fn map(site: &Site<'_>, names: &[&str], more: &[(&str, &str)]) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let index = if site.dtype(1) == Some(DType::I64) { "i64" } else { "i32" };
    let mut pairs = vec![("REG", register(t)), ("IDX", index)];
    pairs.extend(more);
    pairs.push(("GAP", zero(t)));
    Ok(Body::map(fill(&sections(site.text("moves"), names), &pairs)))
}

fn mode_function(site: &Site<'_>) -> Result<&'static str, BackendError> {
    Ok(match site.op()?.attrs().str("mode").map_err(op_error)? {
        "edge" => "at_edge",
        "wrap" => "at_wrap",
        "reflect" => "at_reflect",
        _ => "at_constant",
    })
}

fn framed(site: &Site<'_>, mode: &str) -> Result<Body, BackendError> {
    let gap =
        if site.op()?.is("pad") && site.dtype(2).is_some() { "x2(0u)" } else { zero(site.out_dtype(0)) };
    map(site, &["modes", "framed"], &[("MODE", mode), ("GAP", gap)])
}

fn frame_words(cx: &Cx<'_>, before: &[i64]) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let mut w = vec![word(out.len())?];
    w.extend(words(out)?);
    w.extend(words(x.iter().copied())?);
    w.extend(words(strides(&x))?);
    w.extend(before.iter().map(|&b| b as i32 as u32));
    Ok(vec![Launch::map(0, w)])
}

fn pad(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let rank = cx.shape(0)?.len();
    let pads = cx.ints(1)?.unwrap_or_default();
    let axes = cx.ints(3)?.unwrap_or_else(|| (0..rank as i64).collect());
    let mut before = vec![0; rank];
    for (&a, &p) in axes.iter().zip(&pads) {
        before[normalize_axis(a, rank, "axes").map_err(op_error)?] = p;
    }
    let mode = cx.op()?.attrs().str("mode").map_err(op_error)?;
    let out = cx.out_shape(0)?;
    for ((b, &n), &to) in before.iter_mut().zip(&cx.shape(0)?).zip(&out) {
        *b = position(mode, *b, n as i64, to as i64)?;
    }
    frame_words(cx, &before)
}

/// Where x starts in the result, as a kernel can count: far outside it does not matter how far, or only up to whole periods.
fn position(mode: &str, before: i64, n: i64, to: i64) -> Result<i64, BackendError> {
    const FAR: i64 = 1 << 30;
    if before.abs() <= FAR {
        return Ok(before);
    }
    match mode {
        _ if n.max(to) > FAR => Err(BackendError::Unsupported(format!(
            "a pad of {before} elements before a dimension of {n}, which becomes {to}"
        ))),
        "wrap" => Ok(before.rem_euclid(n.max(1))),
        "reflect" => Ok(before.rem_euclid(2 * (n - 1).max(1))),
        _ => Ok(before.clamp(-FAR, FAR)),
    }
}

fn center(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let shift =
        |(&a, &b): (&usize, &usize)| if a >= b { -(((a - b) / 2) as i64) } else { ((b - a) / 2) as i64 };
    frame_words(cx, &x.iter().zip(&out).map(shift).collect::<Vec<_>>())
}

fn trilu_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let upper = site.op()?.attrs().bool("upper").map_err(op_error)?;
    map(site, &["trilu"], &[("KEEPS", if upper { ">=" } else { "<=" })])
}

fn trilu(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let [.., rows, cols] = x[..] else { return Ok(Vec::new()) };
    let k = cx.ints(1)?.and_then(|v| v.first().copied()).unwrap_or(0);
    let k = k.clamp(-(1 << 30), 1 << 30) as i32;
    let mut w = words([rows, cols])?;
    w.push(k as u32);
    Ok(vec![Launch::map(0, w)])
}

/// The attribute "axis" as a position.
pub fn axis(cx: &Cx<'_>, rank: usize) -> Result<usize, BackendError> {
    normalize_axis(cx.op()?.attrs().int("axis").map_err(op_error)?, rank, "axis").map_err(op_error)
}

fn gather(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, i) = (cx.shape(0)?, cx.shape(1)?);
    let axis = axis(cx, x.len())?;
    let batch = cx.op()?.attrs().int("batch_dims").map_err(op_error)? as usize;
    let after = x[axis + 1..].iter().product();
    let picked = i[batch..].iter().product();
    let before = x[batch..axis].iter().product();
    Ok(vec![Launch::map(0, words([x[axis], after, picked, before])?)])
}

fn gather_elements(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let axis = axis(cx, x.len())?;
    let mut w = words([x.len(), axis + 1, x[axis]])?;
    w.extend(words(out)?);
    w.extend(cx.far_words(strides(&x))?);
    Ok(vec![Launch::map(0, w)])
}

fn gather_nd(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, i) = (cx.shape(0)?, cx.shape(1)?);
    let batch = cx.op()?.attrs().int("batch_dims").map_err(op_error)? as usize;
    let Some((&depth, lead)) = i.split_last() else { return Ok(Vec::new()) };
    let slice: usize = x[batch + depth..].iter().product();
    let per_batch: usize = lead[batch..].iter().product();
    let whole: usize = x[batch..].iter().product();
    let mut w = words([depth, slice, per_batch])?;
    w.extend(cx.far_words([whole])?);
    w.extend(words(x[batch..batch + depth].iter().copied())?);
    w.extend(cx.far_words(strides(&x)[batch..batch + depth].iter().copied())?);
    Ok(vec![Launch::map(0, w)])
}

fn reverse_sequence(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let of = |name: &str| -> Result<usize, BackendError> {
        normalize_axis(cx.op()?.attrs().int(name).map_err(op_error)?, x.len(), name).map_err(op_error)
    };
    let (b, t) = (of("batch_axis")?, of("time_axis")?);
    let own = strides(&x);
    Ok(vec![Launch::map(0, words([own[b], x[b], own[t], x[t]])?)])
}

fn one_hot(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let out = cx.out_shape(0)?;
    let axis = axis(cx, out.len())?;
    Ok(vec![Launch::map(0, words([out[axis], out[axis + 1..].iter().product()])?)])
}

fn eye_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let one = crate::scalar::cast("v", DType::Bool, t);
    let mut body = map(site, &["eye_like"], &[("bool_to_REG", "from_bool")])?;
    body.code += &site.function("from_bool", &[("v", "bool")], register(t), &one);
    body.inputs = Some(Vec::new());
    Ok(body)
}

fn eye_like(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let out = cx.out_shape(0)?;
    let k = cx.op()?.attrs().int("k").map_err(op_error)?.clamp(-(1 << 30), 1 << 30) as i32;
    Ok(vec![Launch::map(0, vec![word(*out.get(1).unwrap_or(&1))?, k as u32])])
}

fn concat_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(Body {
        code: fill(&sections(site.text("moves"), &["concat"]), &[]),
        entries: vec![Entry::Free("concat")],
        inputs: Some(vec![0]),
        ..Body::default()
    })
}

fn concat(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let out = cx.out_shape(0)?;
    let axis = axis(cx, out.len())?;
    let run: usize = out[axis..].iter().product();
    let mut at = 0;
    let mut launches = Vec::new();
    for i in 0..cx.inputs.len() {
        let x = cx.shape(i)?;
        let own: usize = x[axis..].iter().product();
        let n: usize = x.iter().product();
        let launch = Launch::map(0, words([own, run, at])?).on(Grid::Threads(n as u64));
        launches.push(Launch { swap: Some((0, i)), ..launch });
        at += own;
    }
    Ok(launches)
}
