//! A graph with its readers, as patterns look at it.

use kiln_ir::OpName;
use kiln_ir::graph::Uses;
use kiln_ir::{Dim, Graph, Node, NodeId, ValueId};

/// A graph and who reads what.
pub struct View<'g> {
    /// The graph.
    pub g: &'g Graph,
    uses: Uses,
}

impl<'g> View<'g> {
    /// Counts readers.
    pub fn new(g: &'g Graph) -> View<'g> {
        View { g, uses: g.uses() }
    }

    /// Readers of a value: `(node, input position)`.
    pub fn readers(&self, v: ValueId) -> &[(NodeId, usize)] {
        self.uses.of_value(v)
    }

    /// Whether a value is read by a layer, or an output of the graph.
    pub fn is_read(&self, v: ValueId) -> bool {
        !self.readers(v).is_empty() || self.uses.is_output(v)
    }

    /// Whether the value is read once, and no output of the graph.
    pub fn read_once(&self, v: ValueId) -> bool {
        self.readers(v).len() == 1 && !self.uses.is_output(v)
    }

    /// Whether results of these nodes, but those of `root`, are read by these nodes alone, and the user asks for one
    /// precision of all.
    pub fn closed(&self, nodes: &[NodeId], root: NodeId) -> bool {
        let inside =
            |v: &ValueId| !self.uses.is_output(*v) && self.readers(*v).iter().all(|(n, _)| nodes.contains(n));
        let Some(meta) = self.g.get(root).map(|n| &n.meta) else { return false };
        nodes.iter().filter_map(|&n| Some((n, self.g.get(n)?))).all(|(id, n)| {
            (id == root || n.outputs.iter().all(inside))
                && n.meta.precision == meta.precision
                && n.meta.output_types.iter().all(Option::is_none)
        })
    }

    /// The float in a constant of one element.
    pub fn scalar(&self, v: ValueId) -> Option<f64> {
        let t = &self.g.weight(v)?.tensor;
        (t.len() == 1 && t.dtype().is_float()).then(|| t.scalar_f64()).flatten()
    }

    /// The integers of a constant.
    pub fn ints(&self, v: ValueId) -> Option<Vec<i64>> {
        let t = self.g.value(v).fact.as_const()?;
        (!t.dtype().is_float()).then(|| t.to_i64())
    }

    /// The producer of a value, if it is this operator.
    pub fn made_by(&self, v: ValueId, op: OpName) -> Option<(NodeId, &'g Node)> {
        self.g.producer(v).filter(|(_, n)| n.op.is(op))
    }

    /// The dimensions of a value.
    pub fn dims(&self, v: ValueId) -> &'g [Dim] {
        &self.g.ty(v).dims
    }

    /// The order of axes of a `transpose`, from 0 on.
    pub fn perm(&self, node: &Node) -> Option<Vec<usize>> {
        let rank = self.g.ty(input(node, 0)?).rank();
        let given = node.op.attrs().ints("perm").ok()?;
        if given.is_empty() {
            return Some((0..rank).rev().collect());
        }
        let wrap = |&p: &i64| usize::try_from(if p < 0 { p + rank as i64 } else { p }).ok();
        given.iter().map(wrap).collect::<Option<Vec<_>>>().filter(|p| p.iter().all(|&a| a < rank))
    }

    /// The axes of a `reduce` of this kind that keeps dimensions, from 0 on, sorted.
    pub fn reduced(&self, node: &Node, kind: &str) -> Option<Vec<usize>> {
        let attrs = node.op.attrs();
        if attrs.str("op").ok()? != kind || !attrs.bool("keep_dims").ok()? {
            return None;
        }
        let axes = match node.inputs.get(1).copied().flatten() {
            Some(v) => Some(self.ints(v)?),
            None => None,
        };
        let rank = self.g.ty(input(node, 0)?).rank();
        let mask = kiln_ops::reduce::mask(attrs, axes.as_deref(), rank).ok()?;
        Some((0..rank).filter(|&i| mask[i]).collect())
    }
}

/// An input of a node that is present.
pub fn input(node: &Node, i: usize) -> Option<ValueId> {
    node.inputs.get(i).copied().flatten()
}

/// Layers over constants are looked through so far.
const DEPTH: usize = 64;

/// Whether two values are one, or equal constants.
pub fn same(g: &Graph, a: Option<ValueId>, b: Option<ValueId>) -> bool {
    let tensor =
        |v: ValueId| g.weight(v).filter(|w| w.name.is_none() && w.recipe.is_none()).map(|w| &w.tensor);
    match (a, b) {
        (Some(a), Some(b)) => a == b || (tensor(a).is_some() && tensor(a) == tensor(b)),
        (a, b) => a == b,
    }
}

/// Whether it is a constant, or the constant folder will make it one.
pub fn constant(g: &Graph, v: ValueId) -> bool {
    fn at(g: &Graph, v: ValueId, depth: usize) -> bool {
        let made =
            || g.producer(v).is_some_and(|(_, n)| n.inputs.iter().flatten().all(|&v| at(g, v, depth - 1)));
        g.weight(v).is_some() || (depth > 0 && made())
    }
    at(g, v, DEPTH)
}
