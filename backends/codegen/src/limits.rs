//! Limits of tensor sizes: kernels count elements in 32 bits, except for the input that gathers and slices
//! read from.
//!
//! Sizes that are known when tactics are asked for are checked there, so that a build refuses them; the builder asks again
//! with the largest shapes of a profile. Sizes without a bound are checked when launches are planned.

use crate::site::Site;
use kiln_backend::limits::{FAR, too_large};
use kiln_backend::{BackendError, Tactic, is_view_op};
use kiln_ir::{Graph, ValueId};

pub use kiln_backend::limits::{MAX_ELEMENTS, is_far};

/// The tactic of a kernel whose text has both widths: 64 bits where positions in the first input need them. 32 bits, signed
/// for indices, are faster.
pub fn near_or_far(site: &Site<'_>, tactic: Tactic) -> Tactic {
    let elements = site.input(0).and_then(|v| site.graph.ty(v).static_volume());
    match site.dialect.far && elements.is_some_and(|n| n as u64 > i32::MAX as u64) {
        true => tactic.with(FAR, 1),
        false => tactic,
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
