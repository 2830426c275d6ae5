//! Weakly typed precision: layers of f32 that run in a narrower type, with casts around them.
//!
//! [`choices`] says which types a layer may have: those that the build permits, that its operator takes and that the backend
//! runs, cut down by what the user asked for. Which of them it gets is decided by time (`search/types`), or is the first narrower
//! one ([`everywhere`]). [`apply`] writes the layers anew. Casts go on the inputs and outputs of each layer that changes, and
//! neighbouring pairs cancel. Inputs and outputs of the network keep their types.

mod angles;
mod choices;
mod emulated;
mod quantize;
mod ranges;
mod settled;
mod stored;

pub use choices::{Choice, choices};
pub use emulated::note_emulated;
pub use ranges::{greatest_code, multiplies, note_unknown as note_unknown_ranges, range_of};
pub use settled::bounded;

use super::canonicalize::{Moved, narrowed_back};
use super::writer::cast;
use super::{Pass, PassCx};
use crate::BuildError;
use kiln_ir::{DType, Graph, Node, NodeId, ValueId};
use kiln_ops::cast::CAST;
use std::collections::{BTreeMap, HashSet};

/// The pass that narrows every layer that may be narrowed; builds choose by time instead.
pub const PASS: Pass = Pass { name: "precision", run };

/// The narrower types of layers; layers that are not listed keep f32.
pub type Types = BTreeMap<NodeId, DType>;

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    let types = everywhere(&choices(g, cx)?);
    apply(g, cx, &types)
}

/// The type that each layer was asked to have, else its first narrower type.
pub fn everywhere(choices: &BTreeMap<NodeId, Choice>) -> Types {
    let of = |c: &Choice| c.wish.or_else(|| c.types.iter().copied().find(|&t| t != DType::F32));
    choices.iter().filter_map(|(&id, c)| Some((id, of(c).filter(|&t| t != DType::F32)?))).collect()
}

/// Runs layers in these types. Layers that stay in f32 follow where that costs no accuracy (see [`settled`]).
pub fn apply(g: &mut Graph, cx: &PassCx<'_>, types: &Types) -> Result<usize, BuildError> {
    let permitted = &cx.config.reduced;
    if types.is_empty() && permitted.is_empty() {
        return Ok(0);
    }
    let permitted: Vec<DType> = permitted.iter().copied().filter(|&t| greatest_code(t).is_none()).collect();
    let mut changes = quantize::apply(g, cx, types)? + stored::apply(g, cx, types)?;
    let uses = g.uses();
    let mut moved = Moved::default();
    let mut order = Vec::with_capacity(g.order().len());
    for id in g.order().to_vec() {
        moved.rewire(g, id);
        let Some(node) = g.get(id) else { continue };
        let to = types.get(&id).copied().filter(|&t| greatest_code(t).is_none());
        let new = match to.or_else(|| settled::settled(g, id, node, &permitted, types, &uses)) {
            Some(to) => narrow(g, id, to, &mut moved)?,
            None => None,
        };
        changes += usize::from(new.is_some());
        order.extend(new.unwrap_or_else(|| vec![id]));
    }
    moved.finish(g);
    g.reorder(order)?;
    cancel_casts(g);
    Ok(changes + g.remove_dead())
}

/// Writes one layer anew, to run in `to`, and the casts around it, at the end of the order; returns them as they are to run.
/// Leaves the layer as it is, and returns nothing, if its schema does not take that type.
fn narrow(
    g: &mut Graph,
    id: NodeId,
    to: DType,
    moved: &mut Moved,
) -> Result<Option<Vec<NodeId>>, BuildError> {
    let Some(node) = g.get(id).cloned() else { return Ok(None) };
    let is_f32 = |g: &Graph, v: ValueId| g.ty(v).dtype == DType::F32;
    let touched =
        node.inputs.iter().enumerate().any(|(i, v)| v.is_some_and(|v| is_f32(g, v) && !host(&node, i)));
    if !touched || !takes(g, &node, to) {
        return Ok(None);
    }
    let first = g.order().len();
    moved.note(g, id, &[]);
    let mut inputs = node.inputs.clone();
    for (i, v) in inputs.iter_mut().enumerate() {
        if let Some(x) = v.filter(|&x| is_f32(g, x) && !host(&node, i)) {
            *v = Some(cast(g, usize::MAX, &format!("{}.in{i}", node.name), x, to)?);
        }
    }
    let outs = g.add_node(&format!("{}.{to}", node.name), node.op.clone(), &inputs)?;
    let new_id = outs.first().and_then(|&v| Some(g.producer(v)?.0));
    for (k, (&old, new)) in node.outputs.iter().zip(outs).enumerate() {
        let back = g.ty(old).dtype;
        let mut value = new;
        if g.ty(new).dtype != back {
            value = cast(g, usize::MAX, &format!("{}.out{k}", node.name), new, back)?;
        }
        moved.note(g, id, &[(old, value)]);
        let name = std::mem::take(&mut g.value_mut(old).name);
        g.value_mut(value).name = name;
    }
    if let Some(n) = new_id.and_then(|n| g.get_mut(n)) {
        n.meta = node.meta;
    }
    Ok(Some(g.order()[first..].to_vec()))
}

/// Whether the host reads this input, whose type then stays.
pub fn host(node: &Node, i: usize) -> bool {
    node.op.port(i).is_some_and(|p| p.host)
}

/// Whether the operator accepts `to` in the place of f32 everywhere.
fn takes(g: &Graph, node: &Node, to: DType) -> bool {
    let facts: Vec<_> = node
        .inputs
        .iter()
        .enumerate()
        .map(|(i, v)| {
            v.map(|v| {
                let mut f = g.value(v).fact.clone();
                if f.ty.dtype == DType::F32 && !host(node, i) {
                    f.ty.dtype = to;
                    f.value = None;
                }
                f
            })
        })
        .collect();
    node.op.infer(&facts, &node.name).is_ok()
}

/// Removes casts to f32 and back, which neighbours that both changed leave between them.
fn cancel_casts(g: &mut Graph) {
    let mut moved = Moved::default();
    let outputs: HashSet<ValueId> = g.outputs.iter().copied().collect();
    for id in g.order().to_vec() {
        moved.rewire(g, id);
        let Some(node) = g.get(id).filter(|n| n.op.is(CAST)) else { continue };
        let (Some(x), y) = (node.inputs[0], node.outputs[0]) else { continue };
        let Some(source) = narrowed_back(g, x, y).filter(|_| !outputs.contains(&y)) else { continue };
        moved.note(g, id, &[(y, source)]);
    }
    moved.finish(g);
}
