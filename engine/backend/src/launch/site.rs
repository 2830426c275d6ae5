//! Operands of a kernel, and host code that plans launches from them.

use super::{Condition, Launch};
use crate::{BackendError, Tactic};
use kiln_ir::{Fact, Graph, NodeId, Op, ValueId};
use minicbor::{Decode, Encode};

/// Operands of a kernel, by positions in its region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct KernelOperands {
    /// The anchor among the nodes; none of a pointwise region.
    #[n(0)]
    pub anchor: Option<u32>,
    /// Whether the kernel stores the outputs of the region, which pointwise nodes compute; else those of the anchor.
    #[n(1)]
    pub fused: bool,
    /// Nodes in front of each input of the anchor that the kernel reads through, the first one first; empty if there are
    /// none at all.
    #[n(2)]
    pub moves: Vec<Vec<u32>>,
    /// Further operands of the pointwise nodes, among the inputs of the region.
    #[n(3)]
    pub extras: Vec<u32>,
    /// The value whose shape says how each of them is read: itself, or a view of it.
    #[n(4)]
    pub extra_shapes: Vec<RegionValue>,
    /// Elements of each stored output that one thread of an entry point which maps it computes.
    #[n(5)]
    pub lanes: Vec<u32>,
    /// The `insert_slice` behind all other nodes: the kernel stores its result, the node's second input, as a part of the region's
    /// output.
    #[n(6)]
    pub insert: Option<u32>,
    /// The slice that each of the further operands is read through, among the nodes.
    #[n(9)]
    #[cbor(default)]
    pub extra_slices: Vec<Option<u32>>,
    /// The reduction of the rows of the first output that is stored as the second one, among the nodes.
    #[n(8)]
    pub side: Option<u32>,
}

/// A value of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum RegionValue {
    /// An input, by position.
    #[n(0)]
    Input(#[n(0)] u32),
    /// An output of a node, by positions of both.
    #[n(1)]
    Result(#[n(0)] u32, #[n(1)] u32),
}

/// A step whose launches are planned: in a build with what is known of its region, before a run with all shapes.
#[derive(Clone, Copy)]
pub struct LaunchSite<'a> {
    /// The graph of the step.
    pub graph: &'a Graph,
    /// The nodes of the step.
    pub nodes: &'a [NodeId],
    /// Operands of the kernel.
    pub operands: &'a KernelOperands,
    /// The tactic of the step.
    pub tactic: &'a Tactic,
    /// Facts of a value of the graph.
    pub fact: &'a dyn Fn(ValueId) -> &'a Fact,
    /// Whether anyone reads an output of the anchor, by position.
    pub wanted: &'a [bool],
    /// Iterations that all loops of one thread may make in one launch.
    pub rounds: usize,
    /// Whether a condition holds.
    pub holds: &'a dyn Fn(Condition) -> bool,
}

/// Host code that plans the launches of a kernel: what a launch program was recorded from, and in its place where there is none.
pub trait PlanLaunches: Send + Sync {
    /// The launches, in order. An error where they need a shape, or contents, that are not known.
    fn launches(&self, site: &LaunchSite<'_>) -> Result<Vec<Launch>, BackendError>;
}

impl<'a> LaunchSite<'a> {
    /// The node at a position of the step.
    pub fn node(&self, at: u32) -> Option<&'a kiln_ir::Node> {
        self.nodes.get(at as usize).and_then(|&n| self.graph.get(n))
    }

    /// The anchor.
    pub fn anchor(&self) -> Option<&'a kiln_ir::Node> {
        self.operands.anchor.and_then(|at| self.node(at))
    }

    /// The reduction that is a side result.
    pub fn side(&self) -> Option<&'a kiln_ir::Node> {
        self.operands.side.and_then(|at| self.node(at))
    }

    /// The anchor's operator.
    pub fn op(&self) -> Option<&'a Op> {
        self.anchor().map(|n| &n.op)
    }

    /// Facts of the anchor's inputs.
    pub fn inputs(&self) -> Vec<Option<&'a Fact>> {
        let all = self.anchor().map(|n| &n.inputs[..]).unwrap_or_default();
        all.iter().map(|v| v.map(|v| (self.fact)(v))).collect()
    }

    /// Facts of the anchor's outputs.
    pub fn outputs(&self) -> Vec<&'a Fact> {
        let all = self.anchor().map(|n| &n.outputs[..]).unwrap_or_default();
        all.iter().map(|&v| (self.fact)(v)).collect()
    }

    /// Whether all results are empty and nothing else comes of the step; other dimensions of empty results may be any size.
    pub fn computes_nothing(&self) -> bool {
        let empty = |f: &&Fact| f.ty.static_dims().is_some_and(|d| d.contains(&0));
        let pure = |op: &Op| !op.def().traits.side_effect && !op.def().traits.data_dependent;
        let mut outputs = self.outputs();
        outputs.extend(self.side().iter().flat_map(|n| &n.outputs).map(|&v| (self.fact)(v)));
        !outputs.is_empty() && outputs.iter().all(empty) && self.op().is_none_or(pure)
    }
}
