//! Regions: the pieces of a graph that one kernel runs.

use crate::field;
use crate::stores::Stores;
use kiln_ir::graph::Uses;
use kiln_ir::{Fact, Graph, Node, NodeId, Op, Source, ValueId};
use minicbor::{Decode, Encode};
use std::collections::{HashMap, HashSet};

/// Bodies of loops and conditionals know the contents of integer weights of up to so many elements.
const SHAPE_DATA: usize = 64;

/// A connected set of nodes, cut out of its graph, with the values at its border.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(map, context_bound = "Stores")]
pub struct Region {
    /// The nodes as a graph of their own, in canonical form: values are `v0…`, nodes `n0…`. Constants that feed host
    /// ports (shapes, axes) stay inside; all other values from outside, weights included, are inputs.
    #[cbor(n(0), with = "field::graph")]
    pub graph: Graph,
    /// Value outside of the region for each input of `graph`.
    #[n(1)]
    pub inputs: Vec<ValueId>,
    /// Value outside of the region for each output of `graph`.
    #[n(2)]
    pub outputs: Vec<ValueId>,
    /// The shapes at which the kernel runs, profile by profile, if the build asks for launches as data at all of them; else the
    /// backend's code may plan launches before a run.
    #[n(3)]
    pub ranges: Option<Vec<ShapeRange>>,
}

/// The shapes of a region's inputs in one profile.
#[derive(Clone, Debug, Encode, Decode)]
#[cbor(map, context_bound = "Stores")]
pub struct ShapeRange {
    /// A graph of the inputs alone, in their order: dimensions, and contents that the host knows, as functions of symbols.
    #[cbor(n(0), with = "field::graph")]
    pub inputs: Graph,
    /// The least and greatest value of each symbol, by name.
    #[n(1)]
    pub symbols: Vec<(String, i64, i64)>,
}

impl Region {
    /// Cuts these nodes (in execution order) out of `g`. Outputs are the values that something outside reads,
    /// and outputs and debug tensors of `g`. Looks at the whole graph: for many regions of one graph see
    /// [`Region::extract_with`].
    pub fn extract(g: &Graph, nodes: &[NodeId]) -> Result<Region, kiln_ir::IrError> {
        let inside: HashSet<NodeId> = nodes.iter().copied().collect();
        let own = nodes.iter().filter_map(|&n| g.get(n)).flat_map(|n| n.outputs.iter().copied());
        let own: HashSet<ValueId> = own.collect();
        let others = g.nodes().filter(|(id, _)| !inside.contains(id));
        let inputs = others.flat_map(|(_, n)| n.inputs.iter().flatten());
        let read = inputs.copied().chain(g.kept());
        let read: HashSet<ValueId> = read.filter(|v| own.contains(v)).collect();
        Region::cut(g, nodes, |v| read.contains(&v))
    }

    /// Cuts nodes out as [`Region::extract`] does, with the readers of all values of the graph given.
    pub fn extract_with(g: &Graph, nodes: &[NodeId], uses: &Uses) -> Result<Region, kiln_ir::IrError> {
        let read = |v: ValueId| uses.of_value(v).iter().any(|(n, _)| !nodes.contains(n));
        Region::cut(g, nodes, |v| read(v) || uses.is_output(v))
    }

    fn cut(
        g: &Graph,
        nodes: &[NodeId],
        read_outside: impl Fn(ValueId) -> bool,
    ) -> Result<Region, kiln_ir::IrError> {
        let mut cut = Cut { from: g, graph: Graph::new(""), map: HashMap::new(), inputs: Vec::new() };
        for (k, &id) in nodes.iter().enumerate() {
            cut.node(k, id)?;
        }
        let mut outputs = Vec::new();
        for &id in nodes {
            let defined = g.get(id).map(|n| n.outputs.clone()).unwrap_or_default();
            outputs.extend(defined.into_iter().filter(|&v| read_outside(v)));
        }
        let Cut { mut graph, map, inputs, .. } = cut;
        graph.outputs = outputs.iter().filter_map(|v| map.get(v).copied()).collect();
        Ok(Region { graph, inputs, outputs, ranges: None })
    }

    /// The only operator of a region of one node.
    pub fn single(&self) -> Option<&Op> {
        let mut nodes = self.graph.nodes();
        let (_, first) = nodes.next()?;
        nodes.next().is_none().then_some(&first.op)
    }

    /// Names of the operators joined with " + ".
    pub fn label(&self) -> String {
        self.graph.nodes().map(|(_, n)| n.op.name()).collect::<Vec<_>>().join(" + ")
    }
}

struct Cut<'a> {
    from: &'a Graph,
    graph: Graph,
    map: HashMap<ValueId, ValueId>,
    inputs: Vec<ValueId>,
}

impl Cut<'_> {
    fn node(&mut self, k: usize, id: NodeId) -> Result<(), kiln_ir::IrError> {
        let Some(node) = self.from.get(id) else {
            return Err(kiln_ir::IrError::Structure(format!("{id:?} is no node of this graph")));
        };
        let inputs: Vec<Option<ValueId>> =
            node.inputs.iter().enumerate().map(|(i, v)| v.map(|v| self.input(node, i, v))).collect();
        let name = format!("n{k}");
        if let Some(facts) = self.plain(node) {
            // Names depend on position only, so that equal regions have equal bytes.
            let first = self.graph.value_count();
            let named = facts.into_iter().enumerate().map(|(i, f)| (format!("v{}", first + i), f));
            let outs = self.graph.add_inferred(&name, node.op.clone(), &inputs, named);
            self.map.extend(node.outputs.iter().copied().zip(outs));
            return Ok(());
        }
        let outs = match &node.regions[..] {
            [] => self.graph.add_node(&name, node.op.clone(), &inputs)?,
            regions => {
                let inputs: Vec<ValueId> = inputs.into_iter().flatten().collect();
                self.graph.add_control(&name, node.op.clone(), &inputs, regions.to_vec(), &[])?
            }
        };
        for (&outer, inner) in node.outputs.iter().zip(outs) {
            let name = format!("v{}", inner.0);
            let def = self.graph.value_mut(inner);
            def.name = name;
            self.map.insert(outer, inner);
        }
        Ok(())
    }

    /// Facts of the outputs of a pointwise layer of numbers as dimensions, where nothing is known of contents: inference
    /// would find the same again.
    fn plain(&self, node: &Node) -> Option<Vec<Fact>> {
        let plain = |f: &Fact| f.value.is_none() && f.ty.dims.iter().all(|d| d.as_const().is_some());
        let given = |v: &Option<ValueId>| {
            v.is_some_and(|v| match self.map.get(&v) {
                Some(&inner) => plain(&self.graph.value(inner).fact),
                None => {
                    let def = self.from.value(v);
                    def.fact.ty.dims.iter().all(|d| d.as_const().is_some())
                        && (def.fact.value.is_none() || matches!(def.source, Source::Weight(_)))
                }
            })
        };
        let facts = || node.outputs.iter().map(|&v| &self.from.value(v).fact);
        let known = node.op.is_pointwise()
            && node.meta.output_types.iter().all(Option::is_none)
            && node.inputs.iter().all(given)
            && facts().all(plain);
        known.then(|| facts().cloned().collect())
    }

    fn input(&mut self, node: &Node, i: usize, v: ValueId) -> ValueId {
        if let Some(&inner) = self.map.get(&v) {
            return inner;
        }
        let def = self.from.value(v);
        let name = format!("v{}", self.graph.value_count());
        let inner = match &def.source {
            Source::Weight(w) if node.op.port(i).is_some_and(|p| p.host) => {
                self.graph.add_constant(&name, w.tensor.clone())
            }
            _ => {
                let mut fact = def.fact.clone();
                if matches!(def.source, Source::Weight(_))
                    && (node.regions.is_empty() || !is_shape_data(&fact))
                {
                    fact.value = None;
                }
                self.inputs.push(v);
                self.graph.add_input(&name, fact)
            }
        };
        self.map.insert(v, inner);
        inner
    }
}

/// Whether a known value may be a shape or axes that the body of a loop or conditional needs to infer its types. Of other
/// weights a body knows no contents: a refit changes them.
pub fn is_shape_data(fact: &Fact) -> bool {
    fact.as_const().is_some_and(|t| !t.dtype().is_float() && t.len() <= SHAPE_DATA)
}
