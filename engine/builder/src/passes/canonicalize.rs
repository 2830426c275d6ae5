//! Removes layers that do nothing and code that nobody reads.

use super::transposes::order;
use super::{Pass, PassCx};
use crate::BuildError;
use kiln_ir::{Graph, Node, ValueId};

/// The pass.
pub const PASS: Pass = Pass { name: "canonicalize", run };

fn run(g: &mut Graph, _: &PassCx<'_>) -> Result<usize, BuildError> {
    let mut changes = 0;
    for id in g.order().to_vec() {
        let Some(node) = g.get(id) else { continue };
        let Some((from, to)) = forwarded(g, node) else { continue };
        if g.outputs.contains(&from) && !take_over_name(g, from, to) {
            continue;
        }
        g.replace_uses(from, to);
        g.remove_node(id);
        changes += 1;
    }
    Ok(changes + g.remove_dead())
}

/// For a layer that only hands its first input on: its output and that input.
fn forwarded(g: &Graph, node: &Node) -> Option<(ValueId, ValueId)> {
    let (x, y) = (node.inputs.first().copied().flatten()?, *node.outputs.first()?);
    let same = g.ty(x) == g.ty(y);
    let nothing = match node.op.name() {
        "identity" => true,
        "cast" | "reshape" | "expand" | "squeeze" | "unsqueeze" | "tile" | "pad" => same,
        "transpose" => order(node.op.attrs(), g.ty(x).rank()).is_some_and(|p| p.is_sorted()),
        "concat" => node.inputs.len() == 1,
        _ => false,
    };
    // Tiles and pads of unknown amounts may keep the symbolic shape by name only where it is static.
    let sure = !matches!(node.op.name(), "tile" | "pad" | "expand") || g.ty(y).static_dims().is_some();
    (nothing && sure).then_some((y, x))
}

/// Gives the output's name to the value that replaces it. Inputs, constants and other outputs keep theirs, and then
/// the layer has to stay.
fn take_over_name(g: &mut Graph, output: ValueId, by: ValueId) -> bool {
    if g.producer(by).is_none() || g.outputs.contains(&by) {
        return false;
    }
    let name = std::mem::take(&mut g.value_mut(output).name);
    g.value_mut(by).name = name;
    true
}
