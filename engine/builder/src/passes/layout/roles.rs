//! Roles of layers that can work on images with channels last: the changes that they need.

use kiln_ir::op::{Arity, AxesPlace, AxesRule, LayoutRule, NamedAxes};
use kiln_ir::{Attrs, Fact, Graph, Node, ValueId};
use kiln_ops::layout::{Layout, to_last};

/// Change that channels last need in a layer.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// Operator with the attribute "layout".
    Layout,
    /// Operator that works element by element.
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

/// Role of a layer of the linear layout when its images have channels last; `None` if it can't.
pub fn role(g: &Graph, node: &Node) -> Option<Role> {
    let &[y] = &node.outputs[..] else { return None };
    let rank = g.ty(y).rank();
    let plain = node.regions.is_empty() && !node.op.def().traits.side_effect && !node.op.def().traits.random;
    if !(3..=5).contains(&rank) || !plain {
        return None;
    }
    if node.op.is_pointwise() {
        return node.inputs.iter().flatten().all(|&v| spreads(g, v, rank)).then_some(Role::Pointwise);
    }
    match node.op.roles().layout {
        LayoutRule::Fixed => None,
        LayoutRule::Attribute(_) => (Layout::of(node.op.attrs()) == Layout::Linear).then_some(Role::Layout),
        LayoutRule::Axes(rule) => renumbered(g, node, rule, rank),
    }
}

/// The axes that a layer names, as images with channels last have them.
fn renumbered(g: &Graph, node: &Node, rule: AxesRule, rank: usize) -> Option<Role> {
    let inputs: Vec<Option<&Fact>> = node.inputs.iter().map(|v| v.map(|v| &g.value(v).fact)).collect();
    let attrs = node.op.attrs();
    let NamedAxes { place, axes } = rule(attrs, &inputs, rank)?;
    let axes: Vec<i64> = axes.into_iter().map(|a| new_axis(a, rank)).collect();
    Some(match place {
        AxesPlace::Axis(name) => Role::Attrs(attrs.clone().with(name, *axes.first()?)),
        AxesPlace::List(name) => Role::Attrs(attrs.clone().with(name, axes)),
        AxesPlace::Input(at) => Role::Axes { at, axes },
    })
}

/// Inputs that are images, by position.
pub fn image_inputs(g: &Graph, node: &Node) -> Vec<usize> {
    let variadic = node.op.port(0).is_some_and(|p| p.arity == Arity::Variadic);
    let many = node.op.is_pointwise() || variadic;
    let rank = node.outputs.first().map_or(0, |&v| g.ty(v).rank());
    let count = if many { node.inputs.len() } else { 1 };
    let image = |i: &usize| node.inputs[*i].is_some_and(|v| g.ty(v).rank() == rank);
    (0..count.min(node.inputs.len())).filter(image).collect()
}

/// Whether an operand of a pointwise layer of this rank is one number, of the same rank, or a constant that
/// can take leading dimensions.
fn spreads(g: &Graph, v: ValueId, rank: usize) -> bool {
    let own = g.ty(v).rank();
    own == 0 || own == rank || g.weight(v).is_some()
}

/// Position of an axis in channels-last order.
fn new_axis(axis: usize, rank: usize) -> i64 {
    to_last(rank).iter().position(|&p| p == axis).unwrap_or(axis) as i64
}
