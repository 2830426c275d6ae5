//! Conditionals and loops.

use std::sync::Arc;

use super::Handler;
use crate::convert::{Cx, Outs, unsupported};
use crate::model::Graph;

/// The operators of this family.
pub(super) const OPS: &[(&str, Handler)] = &[
    ("If", if_),
    ("Loop", |_| unsupported("control flow is not run yet")),
    ("Scan", |_| unsupported("control flow is not run yet")),
];

/// A condition that is known picks its branch, which is converted in place.
fn if_(cx: &mut Cx<'_>) -> Outs {
    let Some(condition) = cx.ints_of(cx.input(0)?) else {
        return unsupported("control flow is not run yet: the condition is not constant");
    };
    let &[condition] = &condition[..] else {
        return unsupported(format!("a condition of {} elements", condition.len()));
    };
    let branch = if condition != 0 { "then_branch" } else { "else_branch" };
    let graph = cx.node().require_attr::<&Arc<Graph>>(branch)?;
    cx.note(format!(
        "node '{}' is its {branch}: its condition is constant, a refit does not change it",
        cx.node().label()
    ));
    cx.inline(graph)
}
