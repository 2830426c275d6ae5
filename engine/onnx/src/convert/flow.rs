//! Graphs inside of nodes: converted in place, with some names bound to values of the loop or branch.

use std::collections::HashMap;

use kiln_network::{Network, TensorId};

use super::Report;
use super::cx::{Cx, Outs};
use super::importer::{Importer, Splits};
use crate::error::{Refusal, unsupported};
use crate::model::{Graph, Node};

/// State of an import before an attempt.
pub(crate) struct Saved {
    net: Network,
    report: Report,
    small: HashMap<(kiln_ir::DType, Vec<usize>, Vec<u8>), TensorId>,
    layers: usize,
    splits: Splits,
}

impl Importer {
    /// Converts the nodes of a node's graph in place, some names bound; its outputs.
    pub(super) fn region(&mut self, node: &Node, graph: &Graph, bound: Vec<(String, TensorId)>) -> Outs {
        let before = self.refused.len();
        for (name, t) in &bound {
            let info = graph.inputs.iter().find(|info| info.name == *name);
            info.map_or(Ok(()), |info| self.check_inside(name, *t, &info.ty))?;
        }
        self.enter(bound);
        self.region_types(node, graph);
        self.weights(graph);
        self.nodes(graph);
        let outputs: Option<Vec<_>> =
            graph.outputs.iter().map(|info| self.lookup(&info.name).flatten()).collect();
        self.held.close_region(graph);
        self.leave();
        match outputs {
            Some(outputs) => {
                for (info, &t) in graph.outputs.iter().zip(&outputs) {
                    self.check_inside(&info.name, t, &info.ty)?;
                }
                Ok(outputs)
            }
            None if self.refused.len() > before => Err(Refusal::Branch),
            None => unsupported("a graph inside of it has undefined outputs"),
        }
    }
}

impl Cx<'_> {
    /// The network, for layers that only it can write.
    pub(crate) fn net(&mut self) -> &mut Network {
        &mut self.importer.net
    }

    /// The tensor that a name means here, unless its node was refused.
    pub(crate) fn named(&self, name: &str) -> Option<TensorId> {
        self.importer.lookup(name).flatten()
    }

    /// Converts a graph in place; its outputs, each of one rank.
    pub(crate) fn region(&mut self, graph: &Graph, bound: Vec<(String, TensorId)>) -> Outs {
        let outputs = self.importer.region(self.node, graph, bound)?;
        match outputs.iter().zip(&graph.outputs).find_map(|(&t, o)| Some((self.ranks_differ(t)?, o))) {
            Some((why, output)) => {
                unsupported(format!("output '{}' of a graph inside of it: {why}", output.name))
            }
            None => Ok(outputs),
        }
    }

    /// Converts a graph that stands in the place of this node; what has two ranks may pass.
    pub(crate) fn in_place(&mut self, graph: &Graph) -> Outs {
        self.importer.region(self.node, graph, Vec::new())
    }

    /// A name for a loop or conditional: the node's, if no other has it.
    pub(crate) fn label(&self) -> String {
        self.node.label()
    }

    /// State of the import. Small constants made later belong to layers that are written later.
    pub(crate) fn save(&self) -> Saved {
        let i = &self.importer;
        Saved {
            net: i.net.clone(),
            report: i.report.clone(),
            small: i.small.clone(),
            layers: self.layers,
            splits: i.splits.clone(),
        }
    }

    /// Forgets what was written since.
    pub(crate) fn restore(&mut self, saved: Saved) {
        let Saved { net, report, small, layers, splits } = saved;
        self.importer.splits = splits;
        (self.importer.net, self.importer.report) = (net, report);
        (self.importer.small, self.layers) = (small, layers);
    }

    /// A tensor of one element without its dimensions.
    pub(crate) fn scalar(&mut self, t: TensorId) -> Result<TensorId, Refusal> {
        if self.rank(t) == 0 {
            return Ok(t);
        }
        let shape = self.i64s(&[])?;
        self.bin("reshape", t, shape)
    }

    /// A dimension of a tensor as a scalar of i64.
    pub(crate) fn length(&mut self, t: TensorId, axis: usize) -> Result<TensorId, Refusal> {
        let attrs = kiln_ir::Attrs::new().with("start", axis as i64).with("end", axis as i64 + 1);
        let one = self.layer("shape", attrs, &[Some(t)])?;
        self.scalar(one)
    }
}
