//! Removes layers that do nothing, layers that compute what another does, and code that nobody reads.

use super::transposes::order;
use super::{Pass, PassCx, pure};
use crate::BuildError;
use kiln_ir::{DType, Graph, Node, NodeId, ValueId};
use kiln_ops::cast::bitcast::BITCAST;
use kiln_ops::cast::{CAST, IDENTITY};
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::expand::{EXPAND, TILE};
use kiln_ops::shape::squeeze::{SQUEEZE, UNSQUEEZE};
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::slice::pad::PAD;
use kiln_ops::transpose::TRANSPOSE;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// Constants of up to so many elements are compared by contents.
const SMALL: usize = 64;

/// The pass.
pub const PASS: Pass = Pass { name: "canonicalize", run };

fn run(g: &mut Graph, _: &PassCx<'_>) -> Result<usize, BuildError> {
    let mut moved = Moved::default();
    for id in g.order().to_vec() {
        moved.rewire(g, id);
        let Some(node) = g.get(id) else { continue };
        let Some((from, to)) = forwarded(g, node) else { continue };
        if g.outputs.contains(&from) && !take_over_name(g, from, to) {
            continue;
        }
        moved.note(g, id, &[(from, to)]);
    }
    let changes = moved.finish(g) + merge_equal(g);
    Ok(changes + g.remove_dead())
}

/// Values that others stand for from here on, and nodes that go. Nodes are visited in execution order, so that readers come
/// after what they read.
#[derive(Default)]
pub(super) struct Moved {
    to: HashMap<ValueId, ValueId>,
    gone: HashSet<NodeId>,
}

impl Moved {
    /// Lets a node read what stands for its inputs.
    pub(super) fn rewire(&self, g: &mut Graph, id: NodeId) {
        let Some(node) = g.get_mut(id).filter(|_| !self.to.is_empty()) else { return };
        for v in node.inputs.iter_mut().flatten() {
            *v = self.to.get(v).copied().unwrap_or(*v);
        }
    }

    pub(super) fn note(&mut self, g: &mut Graph, id: NodeId, pairs: &[(ValueId, ValueId)]) {
        for &(from, to) in pairs {
            g.outputs.iter_mut().filter(|v| **v == from).for_each(|v| *v = to);
            self.to.insert(from, to);
        }
        self.gone.insert(id);
    }

    /// Removes the nodes; how many.
    pub(super) fn finish(self, g: &mut Graph) -> usize {
        g.remove_nodes(&self.gone);
        self.gone.len()
    }
}

/// Lets one of several equal layers serve the readers of all.
fn merge_equal(g: &mut Graph) -> usize {
    let mut first: HashMap<String, Vec<ValueId>> = HashMap::new();
    let mut moved = Moved::default();
    for id in g.order().to_vec() {
        moved.rewire(g, id);
        let Some(node) = g.get(id) else { continue };
        let Some(key) = identity(g, node) else { continue };
        let outputs = node.outputs.clone();
        match first.get(&key) {
            None => drop(first.insert(key, outputs)),
            Some(_) if outputs.iter().any(|v| g.outputs.contains(v)) => {}
            Some(kept) => {
                let pairs: Vec<_> = outputs.iter().copied().zip(kept.iter().copied()).collect();
                moved.note(g, id, &pairs);
            }
        }
    }
    moved.finish(g)
}

/// A text that only layers share that always give the same; `None` for those that never do.
fn identity(g: &Graph, node: &Node) -> Option<String> {
    (pure(node) && !node.inputs.is_empty()).then_some(())?;
    let mut key = format!("{:?} {:?} {:?}", node.op, node.meta.precision, node.meta.output_types);
    for v in &node.inputs {
        let unnamed = v
            .and_then(|v| g.weight(v))
            .filter(|w| w.name.is_none() && w.recipe.is_none() && w.tensor.len() <= SMALL);
        // Small constants are equal by contents, unless a refit may tell them apart.
        match (unnamed, v) {
            (Some(w), _) => write!(key, " {}{:?}", w.tensor.ty(), w.tensor.bytes()).ok()?,
            (None, v) => write!(key, " {v:?}").ok()?,
        }
    }
    Some(key)
}

/// Output and first input of a layer that only copies that input.
fn forwarded(g: &Graph, node: &Node) -> Option<(ValueId, ValueId)> {
    let (x, y) = (node.inputs.first().copied().flatten()?, *node.outputs.first()?);
    let same = g.ty(x) == g.ty(y);
    if let Some(source) = narrowed_back(g, x, y) {
        return Some((y, source));
    }
    let nothing = match node.op.id() {
        IDENTITY => true,
        CAST | BITCAST | RESHAPE | EXPAND | SQUEEZE | UNSQUEEZE | TILE => same,
        PAD => same && pads_nothing(g, node),
        TRANSPOSE => order(node.op.attrs(), g.ty(x).rank()).is_some_and(|p| p.is_sorted()),
        CONCAT => node.inputs.len() == 1,
        SLICE => same && forward(g, node),
        _ => false,
    };
    // Tiles and pads of unknown amounts may keep the symbolic shape by name only where it is static.
    let sure = !matches!(node.op.id(), TILE | PAD | EXPAND) || g.ty(y).static_dims().is_some();
    (nothing && sure).then_some((y, x))
}

/// Source of a cast to f32 and the next one back, if they restore its type.
pub(super) fn narrowed_back(g: &Graph, x: ValueId, y: ValueId) -> Option<ValueId> {
    let cast = |v: ValueId| g.producer(v).map(|p| p.1).filter(|n| n.op.is(CAST));
    let source = cast(y).and(cast(x))?.inputs.first().copied().flatten()?;
    let wider = g.ty(x).dtype == DType::F32 && g.ty(source).dtype.is_float();
    (wider && g.ty(source).dtype == g.ty(y).dtype).then_some(source)
}

/// Whether a slice goes forward along all axes. If it keeps the shape as well, it takes everything.
fn forward(g: &Graph, node: &Node) -> bool {
    match node.inputs.get(4).copied().flatten() {
        None => true,
        Some(steps) => g.value(steps).fact.as_const().is_some_and(|t| t.to_i64().iter().all(|s| *s > 0)),
    }
}

/// Whether a pad adds and removes nothing. One that removes at one end what it adds at the other keeps the shape, and shifts.
fn pads_nothing(g: &Graph, node: &Node) -> bool {
    let pads = node.inputs.get(1).copied().flatten();
    let pads = pads.and_then(|v| g.value(v).fact.as_const());
    pads.is_some_and(|t| t.to_i64().iter().all(|n| *n == 0))
}

/// Renames the value that replaces an output after that output. Inputs, constants and other outputs keep
/// their names; the layer then has to stay.
fn take_over_name(g: &mut Graph, output: ValueId, by: ValueId) -> bool {
    if g.producer(by).is_none() || g.outputs.contains(&by) {
        return false;
    }
    let name = std::mem::take(&mut g.value_mut(output).name);
    g.value_mut(by).name = name;
    true
}
