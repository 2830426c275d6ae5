//! Weakly typed precision: runs f32 layers in a permitted narrower type, or in the type that the user set on them.
//!
//! Casts go on the inputs and outputs of each layer that changes; neighbouring pairs cancel. Inputs and outputs of
//! the network keep their types. Layers that are known to overflow or to lose too much ([`kiln_ir::op::Roles::keeps_f32`]) stay.
//! They are narrowed where operands and readers are of the narrower type anyway.

use super::canonicalize::{Moved, narrowed_back};
use super::writer::cast;
use super::{Pass, PassCx};
use crate::{BuildConfig, BuildError, Constraints};
use kiln_ir::graph::Uses;
use kiln_ir::{DType, Graph, Node, NodeId, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::cast::bitcast::BITCAST;
use kiln_ops::reduce::REDUCE;
use kiln_ops::sample::resize::RESIZE;
use std::collections::HashSet;

/// The pass.
pub const PASS: Pass = Pass { name: "precision", run };

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    let config = cx.config;
    let asked = g.nodes().find(|(_, n)| n.meta.precision.is_some()).map(|(_, n)| n.name.clone());
    if config.strong_types || g.strong_types {
        return match (asked, config.reduced.is_empty()) {
            (Some(layer), _) => Err(BuildError::Precision {
                layer,
                message: "has a precision, but the network is strongly typed; insert a cast instead".into(),
            }),
            (_, false) => Err(BuildError::Precision {
                layer: g.name.clone(),
                message: "is strongly typed; reduced precision must come from casts in the network".into(),
            }),
            _ => Ok(0),
        };
    }
    if asked.is_none() && config.reduced.is_empty() {
        return Ok(0);
    }
    let uses = g.uses();
    let mut changes = 0;
    let mut moved = Moved::default();
    let mut order = Vec::with_capacity(g.order().len());
    for id in g.order().to_vec() {
        moved.rewire(g, id);
        let Some(node) = g.get(id) else { continue };
        let new = match wanted(node, config).or_else(|| settled(g, node, config, &uses)) {
            Some(to) => narrow(g, id, to, config, &mut moved)?,
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

/// The type that a layer should run in, if not f32.
fn wanted(node: &Node, config: &BuildConfig) -> Option<DType> {
    let allowed = |t: DType| config.reduced.contains(&t);
    match node.meta.precision {
        Some(DType::F32) => None,
        Some(t) if t.is_float() && (allowed(t) || config.constraints == Constraints::Obey) => Some(t),
        _ if node.op.roles().keeps_f32 => None,
        _ => config.reduced.first().copied(),
    }
}

/// The narrower type of a layer that stays in f32 otherwise, where that costs no accuracy. Its operands are widened from that type,
/// and its sums are of f32 in both forms. Its result is as large as its elements, or all readers round it to that type.
fn settled(g: &Graph, node: &Node, config: &BuildConfig, uses: &Uses) -> Option<DType> {
    if node.meta.precision.is_some() || node.op.is_pointwise() || node.op.is(CAST) || node.op.is(BITCAST) {
        return None;
    }
    let wide =
        |(i, v): (usize, &Option<ValueId>)| v.filter(|&v| g.ty(v).dtype == DType::F32 && !host(node, i));
    let mut sources = node.inputs.iter().enumerate().filter_map(wide).map(|v| {
        let (_, cast) = g.producer(v).filter(|(_, n)| n.op.is(CAST))?;
        Some(g.ty(cast.inputs.first().copied().flatten()?).dtype)
    });
    let from = sources.next()??;
    let same = sources.all(|t| t == Some(from));
    let fits = || bounded(node) || node.outputs.iter().all(|&y| rounded(g, y, from, config, uses));
    (same && config.reduced.contains(&from) && fits()).then_some(from)
}

/// Whether no result is larger than the greatest element.
fn bounded(node: &Node) -> bool {
    let attr = |name| node.op.attrs().str(name);
    match node.op.id() {
        REDUCE => matches!(attr("op"), Ok("mean" | "max" | "min")),
        RESIZE => matches!(attr("mode"), Ok("nearest" | "linear")),
        _ => false,
    }
}

/// Whether all who read a value of f32 take it as this type.
fn rounded(g: &Graph, y: ValueId, to: DType, config: &BuildConfig, uses: &Uses) -> bool {
    let takes = |&(id, i): &(NodeId, usize)| {
        g.get(id).is_some_and(|n| match n.op.is(CAST) {
            true => n.op.attrs().dtype("to").is_ok_and(|t| t == to),
            false => !host(n, i) && wanted(n, config) == Some(to) && takes(g, n, to),
        })
    };
    let readers = uses.of_value(y);
    g.ty(y).dtype != DType::F32 || (!uses.is_output(y) && !readers.is_empty() && readers.iter().all(takes))
}

/// Writes one layer anew, to run in `to`, and the casts around it, at the end of the order; returns them as they are to run.
/// Leaves the layer as it is, and returns nothing, if its schema does not take that type.
fn narrow(
    g: &mut Graph,
    id: NodeId,
    to: DType,
    config: &BuildConfig,
    moved: &mut Moved,
) -> Result<Option<Vec<NodeId>>, BuildError> {
    let Some(node) = g.get(id).cloned() else { return Ok(None) };
    let is_f32 = |g: &Graph, v: ValueId| g.ty(v).dtype == DType::F32;
    let touched =
        node.inputs.iter().enumerate().any(|(i, v)| v.is_some_and(|v| is_f32(g, v) && !host(&node, i)));
    if !touched || !takes(g, &node, to) {
        return if config.constraints == Constraints::Obey && node.meta.precision == Some(to) {
            let message = format!("must run in {to}, but {} has no such form", node.op.name());
            Err(BuildError::Precision { layer: node.name, message })
        } else {
            Ok(None)
        };
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

fn host(node: &Node, i: usize) -> bool {
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
