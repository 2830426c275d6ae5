//! Which layers can work on images with channels last, and what changes in them.

use kiln_ir::infer::normalize_axis;
use kiln_ir::{Attrs, Graph, Node, ValueId};
use kiln_ops::layout::{Layout, to_last};
use kiln_ops::sample::resize::plan::resized;

/// How a layer takes channels last.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// It has the attribute "layout".
    Layout,
    /// It works element by element.
    Pointwise,
    /// These attributes take the place of its own.
    Attrs(Attrs),
    /// Input `at` is a list of axes, which becomes this.
    Axes {
        /// The input.
        at: usize,
        /// The new axes.
        axes: Vec<i64>,
    },
}

/// Whether channels last may make the layer itself faster.
pub fn gains(node: &Node) -> bool {
    node.op.roles().gains_channels_last
}

/// What a layer of the linear layout does when its images have channels last; `None` if it can't.
pub fn role(g: &Graph, node: &Node) -> Option<Role> {
    let &[y] = &node.outputs[..] else { return None };
    let rank = g.ty(y).rank();
    let x = node.inputs.first().copied().flatten()?;
    let plain = node.regions.is_empty() && !node.op.def().traits.side_effect && !node.op.def().traits.random;
    if !(3..=5).contains(&rank) || !plain {
        return None;
    }
    if node.op.is_pointwise() {
        return node.inputs.iter().flatten().all(|&v| spreads(g, v, rank)).then_some(Role::Pointwise);
    }
    if node.op.attrs().get("layout").is_some() {
        return (Layout::of(node.op.attrs()) == Layout::Linear).then_some(Role::Layout);
    }
    let moved = |axes: Vec<usize>| axes.into_iter().map(|a| new_axis(a, rank)).collect::<Vec<i64>>();
    let attrs = node.op.attrs();
    match node.op.name() {
        "concat" => {
            let axis = normalize_axis(attrs.int("axis").ok()?, rank, "axis").ok()?;
            Some(Role::Attrs(attrs.clone().with("axis", new_axis(axis, rank))))
        }
        "resize" if g.ty(x).rank() == rank => {
            Some(Role::Attrs(attrs.clone().with("axes", moved(resized(attrs, rank).ok()?))))
        }
        "reduce" if attrs.bool("keep_dims").ok()? => {
            let axes = axes_of(g, node, 1, rank)??;
            (!axes.is_empty()).then(|| Role::Axes { at: 1, axes: moved(axes) })
        }
        "pad" | "slice" => {
            let count = length(g, node, 1)? / if node.op.is("pad") { 2 } else { 1 };
            let axes = axes_of(g, node, 3, rank)?.unwrap_or_else(|| (0..count).collect());
            Some(Role::Axes { at: 3, axes: moved(axes) })
        }
        _ => None,
    }
}

/// Inputs that are images, by position.
pub fn image_inputs(g: &Graph, node: &Node) -> Vec<usize> {
    let many = node.op.is_pointwise() || node.op.is("concat");
    let rank = node.outputs.first().map_or(0, |&v| g.ty(v).rank());
    let count = if many { node.inputs.len() } else { 1 };
    let image = |i: &usize| node.inputs[*i].is_some_and(|v| g.ty(v).rank() == rank);
    (0..count.min(node.inputs.len())).filter(image).collect()
}

/// Is an operand of a pointwise layer of this rank one number, of the same rank, or a constant to which leading
/// dimensions can be given?
fn spreads(g: &Graph, v: ValueId, rank: usize) -> bool {
    let own = g.ty(v).rank();
    own == 0 || own == rank || g.weight(v).is_some()
}

/// Where an axis comes to lie.
fn new_axis(axis: usize, rank: usize) -> i64 {
    to_last(rank).iter().position(|&p| p == axis).unwrap_or(axis) as i64
}

/// The axes that a constant input lists: `Some(None)` if it is absent, `None` if it is not known.
fn axes_of(g: &Graph, node: &Node, at: usize, rank: usize) -> Option<Option<Vec<usize>>> {
    let Some(v) = node.inputs.get(at).copied().flatten() else { return Some(None) };
    let given = g.value(v).fact.as_const()?.to_i64();
    let axes: Result<Vec<usize>, _> = given.iter().map(|&a| normalize_axis(a, rank, "axes")).collect();
    axes.ok().map(Some)
}

fn length(g: &Graph, node: &Node, at: usize) -> Option<usize> {
    let v = node.inputs.get(at).copied().flatten()?;
    usize::try_from(g.ty(v).dims.first()?.as_const()?).ok()
}
