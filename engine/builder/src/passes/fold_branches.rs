//! Puts the branch that a constant condition takes in the place of its conditional.

use super::{Pass, PassCx};
use crate::BuildError;
use kiln_ir::{Graph, Node, ValueId};

/// The pass.
pub const PASS: Pass = Pass { name: "fold-branches", run };

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    if !cx.config.fold {
        return Ok(0);
    }
    let mut changes = 0;
    // An inlined body may hold conditionals itself.
    loop {
        let found = g.nodes().find_map(|(id, n)| taken(g, n).map(|(t, v)| (id, t, v)));
        let Some((id, taken, given)) = found else { break };
        g.inline_region(id, taken, &given)?;
        changes += 1;
    }
    if changes > 0 {
        g.refresh()?;
        g.remove_dead();
    }
    Ok(changes)
}

/// The branch that is taken, and what it captures. A condition that a refit can change decides nothing.
fn taken(g: &Graph, node: &Node) -> Option<(usize, Vec<ValueId>)> {
    let captures = node.branches(node.inputs.len()).ok()??;
    let condition = g.weight(node.inputs.first().copied().flatten()?)?;
    if condition.name.is_some() || condition.recipe.is_some() {
        return None;
    }
    let taken = usize::from(condition.tensor.scalar_i64()? == 0);
    let given: Option<Vec<ValueId>> = node.inputs.get(captures[taken].clone())?.iter().copied().collect();
    Some((taken, given?))
}
