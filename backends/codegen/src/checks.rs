//! Checks of the contents of index inputs, by the ranges that operators declare.
//!
//! Every kernel whose anchor has index inputs gets one more entry point for each of them: a thread an element, which
//! records the first element found out of range in the words of its step. The host reads these words with the outputs.
//! The kernel itself must only stay within its memory for such elements; its results are not handed out. One that reads
//! every index anyway records it itself ([`Body::checking`]); the entry points are then launched where there is no result.

use crate::site::{Site, op_error};
use crate::{Body, Entry, Kernel};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::Fact;

/// The kernel file that the entry points call.
const FILE: &str = "checks/index";

impl Kernel {
    /// The kernel's body, with the checks of its index inputs.
    pub fn outline(&self, site: &Site<'_>, tactic: &Tactic) -> Result<Body, BackendError> {
        let mut body = (self.source)(site, tactic)?;
        if self.views == crate::Views::Framed {
            body.framed = (0..site.moves.len()).filter(|&i| !site.moves[i].is_empty()).collect();
        }
        body = body.with_side_result(site)?;
        body.checks = checked(site)?;
        body.files.extend((!body.checks.is_empty()).then_some(FILE));
        body.entries.extend(body.checks.iter().map(|&input| Entry::Check(input)));
        if let Some(bound) = &mut body.inputs {
            let more: Vec<usize> = body.checks.iter().copied().filter(|i| !bound.contains(i)).collect();
            bound.extend(more);
        }
        Ok(body)
    }
}

/// Positions of the anchor's index inputs.
pub(crate) fn checked(site: &Site<'_>) -> Result<Vec<usize>, BackendError> {
    let Some((_, node)) = site.anchor else { return Ok(Vec::new()) };
    let facts: Vec<Option<&Fact>> =
        node.inputs.iter().map(|v| v.map(|v| &site.graph.value(v).fact)).collect();
    let ranges = node.op.ranges_of_facts(&facts).map_err(op_error)?;
    Ok(ranges.into_iter().map(|r| r.input).collect())
}
