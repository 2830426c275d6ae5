//! Programs: what a plan runs.

use crate::BackendError;
use crate::cases::{Alternative, Case};
use crate::field;
use crate::region::Region;
use crate::stores::Stores;
use crate::tactic::Tactic;
use kiln_ir::{Bytes, DType, Graph, Node, NodeId, Op, Source, Tensor, ValueId};
use minicbor::{Decode, Encode};
use std::collections::{HashMap, HashSet};

/// The executable form of a network: its graph, cut into steps of one kernel each, and where its values lie.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(map, context_bound = "Stores")]
pub struct Program {
    /// Values and nodes after all passes. Weights are `Source::Weight` values.
    #[cbor(n(0), with = "field::graph")]
    pub graph: Graph,
    /// Steps in execution order; together they cover every node of the graph once.
    #[n(1)]
    pub steps: Vec<Step>,
    /// Places of values, planned for the largest shapes of each profile.
    #[n(2)]
    pub memory: MemoryPlan,
    /// Cases of runs for which steps may have kernels of their own. Those of a profile stand by their sizes. Empty: all runs
    /// are alike.
    #[cbor(n(3), skip_if = "Vec::is_empty")]
    pub cases: Vec<Case>,
    /// Stream of each step, 0 for the main one; see [`Order`](crate::Order). Empty: all steps are in the main stream.
    #[cbor(n(4), skip_if = "Vec::is_empty")]
    pub streams: Vec<u32>,
}

/// One kernel of a program.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(map, context_bound = "Stores")]
pub struct Step {
    /// Names of the layers it runs, joined with " + ".
    #[n(0)]
    pub name: String,
    /// Nodes of the step, in execution order.
    #[n(1)]
    pub nodes: Vec<NodeId>,
    /// The chosen tactic, of all cases without an alternative.
    #[n(2)]
    pub tactic: Tactic,
    /// Compiled form of the step. Steps of equal regions share it.
    #[cbor(n(3), with = "field::blob", has_nil)]
    pub blob: Bytes,
    /// Programs of the regions of control flow that the host walks (module `flow`): one for each region, whose inputs and outputs are the
    /// region's. Empty for all other steps.
    #[cbor(n(4), with = "field::bodies", has_nil)]
    pub bodies: Vec<Program>,
    /// Kernels for some cases of the program, in the place of the step's own.
    #[cbor(n(5), skip_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
}

impl Step {
    /// A step without bodies.
    pub fn new(name: impl Into<String>, nodes: Vec<NodeId>, tactic: Tactic, blob: Bytes) -> Step {
        Step { name: name.into(), nodes, tactic, blob, bodies: Vec::new(), alternatives: Vec::new() }
    }

    /// Refuses bodies that do not fit the regions of the node that the step runs: as many, with the same inputs and
    /// outputs by type and rank.
    pub fn check_bodies(&self, node: &Node) -> Result<(), BackendError> {
        let refuse = |why: String| {
            Err(BackendError::InvalidArgument(format!("step \"{}\" of control flow: {why}", self.name)))
        };
        if self.bodies.len() != node.regions.len() {
            return refuse(format!("{} bodies for {} regions", self.bodies.len(), node.regions.len()));
        }
        let kinds = |g: &Graph, of: &[ValueId]| -> Vec<(DType, usize)> {
            of.iter().map(|&v| (g.ty(v).dtype, g.ty(v).rank())).collect()
        };
        for (i, (body, region)) in self.bodies.iter().zip(&node.regions).enumerate() {
            let ins = kinds(&body.graph, &body.graph.inputs) == kinds(region, &region.inputs);
            if !ins || kinds(&body.graph, &body.graph.outputs) != kinds(region, &region.outputs) {
                return refuse(format!("body {i} has other inputs or outputs than the region"));
            }
        }
        Ok(())
    }
}

/// Places of a program's values.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct MemoryPlan {
    /// Place of each value of the graph, by [`ValueId`].
    #[n(0)]
    pub places: Vec<Place>,
    /// Size of the arena in bytes.
    #[n(1)]
    pub arena: u64,
    /// Offset of the scratch memory in the arena; as large as the greatest workspace.
    #[n(2)]
    pub scratch: u64,
}

/// Place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: nobody reads it, or it lives inside a kernel.
    None,
    /// Input of the network, by position; or a view of it ([`Program::is_view`]).
    Input(u32),
    /// A weight; see [`Program::graph`].
    Weight,
    /// Range of the arena, from `offset` on, `size` bytes at most.
    Arena {
        /// Offset in bytes.
        offset: u64,
        /// Size in bytes, at the largest shapes.
        size: u64,
    },
    /// Allocated when its size is known: no bound is known before.
    Dynamic,
}

impl Program {
    /// A program of a single case.
    pub fn new(graph: Graph, steps: Vec<Step>, memory: MemoryPlan) -> Program {
        Program { graph, steps, memory, cases: Vec::new(), streams: Vec::new() }
    }

    /// A program of one step for each node, all of this tactic and without blobs or a memory plan: for backends that
    /// need neither, and for tests.
    pub fn step_per_node(graph: Graph, tactic: &Tactic) -> Program {
        let steps = graph
            .nodes()
            .map(|(id, n)| Step::new(&n.name, vec![id], tactic.clone(), Bytes::from(Vec::new())))
            .collect();
        Program::new(graph, steps, MemoryPlan::default())
    }

    /// Values that another step or the caller reads, debug tensors included.
    pub fn border(&self) -> HashSet<ValueId> {
        let mut step_of: HashMap<NodeId, usize> = HashMap::new();
        for (i, step) in self.steps.iter().enumerate() {
            step_of.extend(step.nodes.iter().map(|&n| (n, i)));
        }
        let mut border: HashSet<ValueId> = self.graph.kept().collect();
        for (id, node) in self.graph.nodes() {
            for &v in node.inputs.iter().flatten() {
                let from = self.graph.producer(v).map(|(p, _)| step_of.get(&p));
                if from.is_none_or(|from| from != step_of.get(&id)) {
                    border.insert(v);
                }
            }
        }
        border
    }

    /// Whether a step only renames memory: the result of a reshape that is stored where its input is. It
    /// launches nothing.
    pub fn is_view(&self, step: &Step) -> bool {
        let [node] = step.nodes[..] else { return false };
        let Some(node) = self.graph.get(node).filter(|n| is_view_op(&n.op)) else { return false };
        let place = |v: Option<ValueId>| v.and_then(|v| self.memory.places.get(v.0 as usize));
        let (from, to) = (node.inputs.first().copied().flatten(), node.outputs.first().copied());
        match (place(from), place(to)) {
            (Some(Place::Arena { offset: a, .. }), Some(Place::Arena { offset: b, .. })) => a == b,
            (Some(Place::Input(a)), Some(Place::Input(b))) => a == b,
            _ => false,
        }
    }

    /// Whether a value can be observed behind a run, if steps write it or not. An error says why it can't.
    pub fn observable(&self, v: ValueId, written: bool) -> Result<(), BackendError> {
        let g = &self.graph;
        if g.value_ids().all(|known| known != v) {
            return Err(BackendError::InvalidArgument(format!("{v:?} is no value of the program")));
        }
        if written || g.inputs.contains(&v) || g.weight(v).is_some() {
            return Ok(());
        }
        let name = &g.value(v).name;
        Err(BackendError::Unsupported(format!("\"{name}\" lives inside a kernel, or nobody reads it")))
    }

    /// The region of a step.
    pub fn region(&self, step: &Step) -> Result<Region, BackendError> {
        Ok(Region::extract(&self.graph, &step.nodes)?)
    }

    /// Positions of the inputs whose contents the host needs before enqueue.
    pub fn shape_inputs(&self) -> Vec<usize> {
        shape_inputs(&self.graph)
    }

    /// The weights that a layer or the caller reads: the value and its elements. Sources of derived weights, kept for
    /// refit, are not a device's concern.
    pub fn weights(&self) -> impl Iterator<Item = (ValueId, &Tensor)> {
        let g = &self.graph;
        let read: HashSet<ValueId> =
            g.nodes().flat_map(|(_, n)| n.inputs.iter().flatten()).chain(&g.outputs).copied().collect();
        g.value_ids().filter(move |v| read.contains(v)).filter_map(|v| match &g.value(v).source {
            Source::Weight(w) => Some((v, &w.tensor)),
            _ => None,
        })
    }
}

/// Whether an operator returns the bytes of its first input in their order, so that its result can be the same memory.
pub fn is_view_op(op: &Op) -> bool {
    op.movement().is_view()
}

/// Positions of the inputs of a graph whose contents the host needs before enqueue (shape inputs): those that host
/// ports read, directly or through layers that compute shapes.
pub fn shape_inputs(g: &Graph) -> Vec<usize> {
    let mut needed: HashSet<ValueId> = HashSet::new();
    for (_, n) in g.nodes().rev() {
        // `shape` and `size` read only dimensions of their inputs.
        let wanted = n.outputs.iter().any(|v| needed.contains(v)) && !n.op.roles().host_known;
        for (i, v) in n.inputs.iter().enumerate() {
            if let Some(v) = v.filter(|_| wanted || n.op.port(i).is_some_and(|p| p.host)) {
                // The parts of a shape are needed only where it is small enough to be followed.
                if g.ty(v).static_volume().is_some_and(|n| n <= kiln_ir::infer::MAX_CONTENT) {
                    needed.insert(v);
                }
            }
        }
    }
    (0..g.inputs.len()).filter(|&i| needed.contains(&g.inputs[i])).collect()
}
