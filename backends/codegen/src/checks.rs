//! Kernels that check the contents of index inputs, derived from the ranges that operators declare.
//!
//! Every kernel whose anchor has index inputs gets one more entry point for each of them: a thread an element, which
//! records the first element found out of range in the words of its step. The host reads these words with the outputs.
//! The kernel itself must only stay within its memory for such elements; its results are not handed out.

use crate::site::{Site, op_error};
use crate::template::{fill, section};
use crate::{Body, Entry, Kernel};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::{DType, Fact};

impl Kernel {
    /// The body as [`Kernel::body`] returns it, in the site's dialect. A dialect without templates gets the right entry points
    /// and bindings, but no valid code.
    pub fn outline(&self, site: &Site<'_>, tactic: &Tactic) -> Result<Body, BackendError> {
        let mut body = (self.source)(site, tactic)?;
        for input in checked(site)? {
            let index = if site.dtype(input) == Some(DType::I64) { "i64" } else { "i32" };
            let high = if index == "i64" { "u32(i32(v >> 32u))" } else { "select(0u, 4294967295u, v < 0)" };
            let pairs = [("INPUT", &*input.to_string()), ("IDX", index), ("HIGH", high)];
            let text = section(site.text("checks"), "check");
            let named = [("checkINPUT", &*format!("check{input}")), ("xINPUT", &*format!("x{input}"))];
            body.code += &fill(&fill(text, &named), &pairs);
            body.entries.push(Entry::Partial(NAMES.get(input).copied().unwrap_or("check")));
            body.checks.push(input);
            if let Some(bound) = body.inputs.as_mut().filter(|b| !b.contains(&input)) {
                bound.push(input);
            }
        }
        Ok(body)
    }
}

const NAMES: [&str; 8] = ["check0", "check1", "check2", "check3", "check4", "check5", "check6", "check7"];

/// Positions of the anchor's index inputs.
pub(crate) fn checked(site: &Site<'_>) -> Result<Vec<usize>, BackendError> {
    let Some((_, node)) = site.anchor else { return Ok(Vec::new()) };
    let facts: Vec<Option<&Fact>> =
        node.inputs.iter().map(|v| v.map(|v| &site.graph.value(v).fact)).collect();
    let ranges = node.op.ranges_of_facts(&facts).map_err(op_error)?;
    Ok(ranges.into_iter().map(|r| r.input).collect())
}
