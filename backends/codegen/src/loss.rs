//! Losses.

use crate::site::{Cx, Site, op_error};
use crate::template::{fill, sections};
use crate::{Body, Kernel, Launch, plain, words};
use kiln_backend::BackendError;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "nll_loss",
    ops: &["nll_loss"],
    epilogue: true,
    tactics: |_| plain("nll_loss"),
    source: |site, _| Ok(Body::map(text(site)?)),
    launch: |cx| Ok(vec![Launch::map(0, loss_words(cx)?)]),
}];

/// Are losses not summed up?
pub fn each(op: &kiln_ir::Op) -> Result<bool, BackendError> {
    Ok(op.attrs().str("reduction").map_err(op_error)? == "none")
}

/// The template, filled in.
pub fn text(site: &Site<'_>) -> Result<String, BackendError> {
    let op = site.op()?;
    let weight = if site.dtype(2).is_some() { "x2(c)" } else { "1.0f" };
    let part = if each(op)? { "nll_each" } else { "nll_all" };
    let all = match op.attrs().str("reduction").map_err(op_error)? {
        "sum" => "sum",
        _ => "select(sum / weights, cf(0x7fc00000u), weights == 0.0f)",
    };
    let names = ["nll_loss", part];
    Ok(fill(&sections(site.text("sequence"), &names), &[("WEIGHT", weight), ("ALL", all)]))
}

/// Classes, elements inside, targets in all, is a target ignored, which one.
pub fn loss_words(cx: &Cx<'_>) -> Result<Vec<u32>, BackendError> {
    let (x, target) = (cx.shape(0)?, cx.shape(1)?);
    let attrs = cx.op()?.attrs();
    let mut w = words([x[1], x[2..].iter().product(), target.iter().product()])?;
    w.push(u32::from(attrs.bool("use_ignore").map_err(op_error)?));
    // A target beyond 32 bits is no class, whether ignored or not.
    let ignored = attrs.int("ignore_index").map_err(op_error)?;
    w.push(ignored.clamp(-i64::from(i32::MAX), i64::from(i32::MAX)) as i32 as u32);
    Ok(w)
}
