//! How large tensors may be: kernels count elements in 32 bits, except for the input that gathers and slices read from.
//!
//! Sizes that are known when tactics are asked for are checked there, so that a build refuses them; the builder asks again
//! with the largest shapes of a profile. Sizes without a bound are checked when launches are planned.

use crate::site::{Cx, Site};
use kiln_backend::{BackendError, Tactic, is_view_op};
use kiln_ir::{Graph, TensorType, ValueId};

/// Elements that 32 bits count.
pub const MAX_ELEMENTS: u64 = u32::MAX as u64;

/// The parameter of tactics that count positions in the first input in 64 bits.
const FAR: &str = "far";

/// Whether a tactic counts positions in the first input in 64 bits.
pub fn is_far(tactic: &Tactic) -> bool {
    tactic.params.contains_key(FAR)
}

/// The tactic of a kernel whose text has both widths: 64 bits where positions in the first input need them. 32 bits, signed
/// for indices, are faster.
pub fn near_or_far(site: &Site<'_>, tactic: Tactic) -> Tactic {
    let elements = site.input(0).and_then(|v| site.graph.ty(v).static_volume());
    match site.dialect.far && elements.is_some_and(|n| n as u64 > i32::MAX as u64) {
        true => tactic.with(FAR, 1),
        false => tactic,
    }
}

/// The types of positions in a kernel's text: unsigned, signed.
pub fn types(tactic: &Tactic) -> [(&'static str, &'static str); 2] {
    match is_far(tactic) {
        true => [("AT", "u64"), ("PLACE", "i64")],
        false => [("AT", "u32"), ("PLACE", "i32")],
    }
}

/// Keeps the tactics that can count the elements of all tensors of the region whose sizes are known.
pub fn fitting(site: &Site<'_>, tactics: Vec<Tactic>) -> Result<Vec<Tactic>, BackendError> {
    let given = tactics.len();
    let mut why = None;
    let kept: Vec<Tactic> = tactics
        .into_iter()
        .filter(|t| match beyond(site, is_far(t)) {
            None => true,
            Some(reason) => {
                why = Some(reason);
                false
            }
        })
        .collect();
    match why {
        Some(reason) if kept.is_empty() && given > 0 => Err(BackendError::Unsupported(reason)),
        _ => Ok(kept),
    }
}

/// Why a tensor of the region is too large; `None` if none is.
fn beyond(site: &Site<'_>, far: bool) -> Option<String> {
    let g: &Graph = site.graph;
    // Views launch nothing.
    if g.nodes().all(|(_, n)| is_view_op(&n.op)) {
        return None;
    }
    let free: Option<ValueId> = site.input(0).filter(|_| far);
    let made = g.nodes().flat_map(|(_, n)| n.outputs.iter().copied());
    let mut all = g.inputs.iter().copied().chain(made);
    all.find_map(|v| {
        let reason = too_large(g.ty(v), free == Some(v))?;
        let role = |name: &str, of: &[ValueId]| Some(format!("{name} {}", of.iter().position(|&o| o == v)?));
        let role = role("input", &g.inputs).or_else(|| role("output", &g.outputs));
        Some(format!("{} {reason}", role.unwrap_or_else(|| "a value between its layers".into())))
    })
}

/// What is too much of a type, and what to do.
fn too_large(ty: &TensorType, far: bool) -> Option<String> {
    const ADVICE: &str = "split it along an axis, or run the network on a backend without this limit";
    let dims = ty.static_dims()?;
    // With a dimension of 0 there is nothing to count.
    let elements = match dims.contains(&0) {
        true => 0,
        false => dims.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64)),
    };
    let most = dims.iter().copied().max().unwrap_or(0) as u64;
    if elements > MAX_ELEMENTS && !far {
        return Some(format!("({ty}) has {elements} elements, kernels count up to {MAX_ELEMENTS}: {ADVICE}"));
    }
    if elements > 0 && most > MAX_ELEMENTS {
        return Some(format!(
            "({ty}) has a dimension of {most}, kernels count up to {MAX_ELEMENTS}: {ADVICE}"
        ));
    }
    None
}

/// Refuses tensors with more elements than the kernel can count, once all sizes are known.
pub fn check_sizes(cx: &Cx<'_>, layer: &str) -> Result<(), BackendError> {
    let inputs = cx.inputs.iter().enumerate().filter_map(|(i, f)| Some((i == 0 && cx.far(), (*f)?)));
    let outputs = cx.outputs.iter().map(|f| (false, *f));
    match inputs.chain(outputs).find_map(|(far, f)| too_large(&f.ty, far)) {
        None => Ok(()),
        Some(reason) => {
            let message = format!("a tensor {reason}");
            Err(BackendError::Execution { layer: layer.to_owned(), message })
        }
    }
}
