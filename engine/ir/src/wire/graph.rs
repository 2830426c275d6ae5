//! Graphs: values, weights with recipes, nodes with regions.

use super::io::{fields, list, need, refuse};
use super::{MAX_NESTING, WeightSink, WeightSource, op, tensor};
use crate::format::{Formats, Packing};
use crate::graph::{
    Graph, Meta, Node, NodeId, Numbering, Recipe, Source, ValueDef, ValueId, Weight, WeightUse,
};
use crate::infer::Fact;
use crate::op::Op;
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{Encoder, Error as EncodeError, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Written<W> = Result<(), EncodeError<<W as Write>::Error>>;

pub(super) fn encode<W: Write>(e: &mut Encoder<W>, g: &Graph, sink: &mut dyn WeightSink) -> Written<W> {
    let n = g.numbering().map_err(EncodeError::message)?;
    let optional = [
        g.strong_types,
        !g.weight_uses.is_empty(),
        !g.ranges.is_empty(),
        !g.debug.is_empty(),
        !g.allowed_formats.is_empty(),
        !g.packings.is_empty(),
    ];
    let optional = optional.map(u64::from).iter().sum::<u64>();
    e.map(5 + optional)?.u8(0)?.str(&g.name)?.u8(1)?.array(g.inputs.len() as u64)?;
    g.inputs.iter().try_for_each(|&v| write_value(e, g.value(v), sink))?;
    let weights: Vec<_> = n.old.iter().filter_map(|&v| Some((g.value(v), g.weight(v)?))).collect();
    e.u8(2)?.array(weights.len() as u64)?;
    weights.into_iter().try_for_each(|(v, w)| write_weight(e, &v.name, w, sink))?;
    e.u8(3)?.array(g.nodes().count() as u64)?;
    g.nodes().try_for_each(|(_, node)| write_node(e, g, node, &n, sink))?;
    e.u8(4)?.array(g.outputs.len() as u64)?;
    g.outputs.iter().try_for_each(|&v| write_number(e, &n, v))?;
    if g.strong_types {
        e.u8(5)?.bool(true)?;
    }
    if !g.weight_uses.is_empty() {
        e.u8(6)?.encode(&g.weight_uses)?;
    }
    if !g.ranges.is_empty() {
        e.u8(7)?.encode(&g.ranges)?;
    }
    if !g.debug.is_empty() {
        e.u8(8)?.encode(&g.debug)?;
    }
    if !g.allowed_formats.is_empty() {
        e.u8(9)?.encode(&g.allowed_formats)?;
    }
    if !g.packings.is_empty() {
        e.u8(10)?.encode(&g.packings)?;
    }
    Ok(())
}

fn write_number<W: Write>(e: &mut Encoder<W>, n: &Numbering, v: ValueId) -> Written<W> {
    e.u32(n.of(v, "the graph").map_err(EncodeError::message)?.0)?.ok()
}

fn write_value<W: Write>(e: &mut Encoder<W>, v: &ValueDef, sink: &mut dyn WeightSink) -> Written<W> {
    e.map(2)?.u8(0)?.str(&v.name)?.u8(1)?;
    tensor::write_fact(e, &v.fact, Some(sink))
}

fn write_weight<W: Write>(
    e: &mut Encoder<W>,
    value: &str,
    w: &Weight,
    sink: &mut dyn WeightSink,
) -> Written<W> {
    let optional = u64::from(w.name.is_some()) + u64::from(w.recipe.is_some());
    e.map(2 + optional)?.u8(0)?.str(value)?.u8(1)?;
    tensor::write(e, &w.tensor, Some(sink), w.name.as_deref())?;
    if let Some(name) = &w.name {
        e.u8(2)?.str(name)?;
    }
    if let Some(r) = &w.recipe {
        e.u8(3)?.map(2)?.u8(0)?;
        encode(e, &r.graph, sink)?;
        e.u8(1)?.array(r.sources.len() as u64)?;
        r.sources.iter().try_for_each(|s| e.str(s)?.ok())?;
    }
    Ok(())
}

fn write_node<W: Write>(
    e: &mut Encoder<W>,
    g: &Graph,
    node: &Node,
    n: &Numbering,
    sink: &mut dyn WeightSink,
) -> Written<W> {
    let (regions, meta) = (!node.regions.is_empty(), node.meta != Meta::default());
    e.map(4 + u64::from(regions) + u64::from(meta))?.u8(0)?.str(&node.name)?.u8(1)?;
    op::write(e, &node.op)?;
    e.u8(2)?.array(node.inputs.len() as u64)?;
    for v in &node.inputs {
        match v {
            Some(v) => write_number(e, n, *v)?,
            None => e.null()?.ok()?,
        }
    }
    e.u8(3)?.array(node.outputs.len() as u64)?;
    node.outputs.iter().try_for_each(|&v| write_value(e, g.value(v), sink))?;
    if regions {
        e.u8(4)?.array(node.regions.len() as u64)?;
        node.regions.iter().try_for_each(|r| encode(e, r, sink))?;
    }
    if meta {
        e.u8(5)?;
        e.encode(&node.meta)?;
    }
    Ok(())
}

/// A node before its outputs have numbers.
struct RawNode {
    name: String,
    op: Op,
    inputs: Vec<Option<u32>>,
    outputs: Vec<(String, Fact)>,
    regions: Vec<Graph>,
    meta: Meta,
}

#[derive(Default)]
struct RawGraph {
    name: Option<String>,
    inputs: Option<Vec<(String, Fact)>>,
    weights: Option<Vec<(String, Weight)>>,
    nodes: Option<Vec<RawNode>>,
    outputs: Option<Vec<u32>>,
    strong_types: bool,
    weight_uses: Vec<WeightUse>,
    ranges: BTreeMap<String, [f32; 2]>,
    debug: BTreeSet<String>,
    allowed_formats: BTreeMap<String, Formats>,
    packings: BTreeMap<String, Packing>,
}

pub(super) fn decode(d: &mut Decoder<'_>, source: &dyn WeightSource, depth: usize) -> Result<Graph, Error> {
    if depth > MAX_NESTING {
        return Err(refuse(format!("graphs nest deeper than {MAX_NESTING}")).at(d.position()));
    }
    let mut raw = RawGraph::default();
    fields(d, "a graph", |d, key| {
        match key {
            0 => raw.name = Some(d.str()?.to_owned()),
            1 => raw.inputs = Some(list(d, |d| read_value(d, source))?),
            2 => raw.weights = Some(list(d, |d| read_weight(d, source, depth))?),
            3 => raw.nodes = Some(list(d, |d| read_node(d, source, depth))?),
            4 => raw.outputs = Some(list(d, Decoder::u32)?),
            5 => raw.strong_types = d.bool()?,
            6 => raw.weight_uses = list(d, |d| d.decode())?,
            7 => raw.ranges = d.decode()?,
            8 => raw.debug = d.decode()?,
            9 => raw.allowed_formats = d.decode()?,
            10 => raw.packings = d.decode()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    assemble(raw)
}

fn assemble(raw: RawGraph) -> Result<Graph, Error> {
    let mut g = Graph::new(&need(raw.name, "field 0 (name) of a graph")?);
    g.strong_types = raw.strong_types;
    g.weight_uses = raw.weight_uses;
    g.ranges = raw.ranges;
    g.debug = raw.debug;
    g.allowed_formats = raw.allowed_formats;
    g.packings = raw.packings;
    for (name, fact) in need(raw.inputs, "field 1 (inputs) of a graph")? {
        g.add_input(&name, fact);
    }
    for (name, weight) in need(raw.weights, "field 2 (weights) of a graph")? {
        g.add_weight(&name, weight);
    }
    for node in need(raw.nodes, "field 3 (nodes) of a graph")? {
        push_node(&mut g, node)?;
    }
    let outputs = need(raw.outputs, "field 4 (outputs) of a graph")?;
    g.outputs = outputs
        .into_iter()
        .map(|v| {
            defined(&g, v).ok_or_else(|| refuse(format!("output {v} of graph \"{}\" is no value", g.name)))
        })
        .collect::<Result<_, _>>()?;
    Ok(g)
}

fn defined(g: &Graph, v: u32) -> Option<ValueId> {
    ((v as usize) < g.values.len()).then_some(ValueId(v))
}

fn push_node(g: &mut Graph, raw: RawNode) -> Result<(), Error> {
    let layer =
        |e: &dyn std::fmt::Display| refuse(format!("layer \"{}\" ({}): {e}", raw.name, raw.op.name()));
    let read = |v: u32| defined(g, v).ok_or_else(|| layer(&format!("reads value {v} before it is defined")));
    let inputs = raw.inputs.iter().map(|v| v.map(read).transpose()).collect::<Result<Vec<_>, _>>()?;
    let present: Vec<bool> = inputs.iter().map(Option::is_some).collect();
    raw.op.check_arity(&present).map_err(|e| layer(&e))?;
    let id = NodeId(g.nodes.len() as u32);
    let outputs = raw.outputs.into_iter().enumerate();
    let outputs = outputs.map(|(k, (name, fact))| g.add_value(&name, fact, Source::Node(id, k))).collect();
    let RawNode { name, op, regions, meta, .. } = raw;
    g.nodes.push(Some(Node { name, op, inputs, outputs, regions, meta }));
    g.order.push(id);
    Ok(())
}

fn read_value(d: &mut Decoder<'_>, source: &dyn WeightSource) -> Result<(String, Fact), Error> {
    let (mut name, mut fact) = (None, None);
    fields(d, "a value", |d, key| {
        match key {
            0 => name = Some(d.str()?.to_owned()),
            1 => fact = Some(tensor::read_fact(d, Some(source))?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok((need(name, "field 0 (name) of a value")?, need(fact, "field 1 (fact) of a value")?))
}

fn read_weight(
    d: &mut Decoder<'_>,
    source: &dyn WeightSource,
    depth: usize,
) -> Result<(String, Weight), Error> {
    let (mut value, mut t, mut name, mut recipe) = (None, None, None, None);
    fields(d, "a weight", |d, key| {
        match key {
            0 => value = Some(d.str()?.to_owned()),
            1 => t = Some(tensor::read(d, Some(source))?),
            2 => name = Some(Arc::from(d.str()?)),
            3 => recipe = Some(Arc::new(read_recipe(d, source, depth + 1)?)),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let tensor = need(t, "field 1 (tensor) of a weight")?;
    Ok((need(value, "field 0 (name) of a weight")?, Weight { tensor, name, recipe }))
}

fn read_recipe(d: &mut Decoder<'_>, source: &dyn WeightSource, depth: usize) -> Result<Recipe, Error> {
    let (mut graph, mut sources) = (None, None);
    fields(d, "a recipe", |d, key| {
        match key {
            0 => graph = Some(decode(d, source, depth)?),
            1 => sources = Some(list(d, |d| Ok(Arc::from(d.str()?)))?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let graph: Graph = need(graph, "field 0 (graph) of a recipe")?;
    let sources: Vec<Arc<str>> = need(sources, "field 1 (sources) of a recipe")?;
    if graph.inputs.len() != sources.len() || graph.outputs.len() != 1 {
        let found = (graph.inputs.len(), sources.len(), graph.outputs.len());
        return Err(refuse(format!(
            "a recipe has {} inputs, {} sources and {} outputs",
            found.0, found.1, found.2
        )));
    }
    Ok(Recipe { graph, sources })
}

fn read_node(d: &mut Decoder<'_>, source: &dyn WeightSource, depth: usize) -> Result<RawNode, Error> {
    let (mut name, mut op, mut inputs, mut outputs) = (None, None, None, None);
    let (mut regions, mut meta) = (Vec::new(), Meta::default());
    fields(d, "a node", |d, key| {
        match key {
            0 => name = Some(d.str()?.to_owned()),
            1 => op = Some(op::read(d)?),
            2 => inputs = Some(d.decode()?),
            3 => outputs = Some(list(d, |d| read_value(d, source))?),
            4 => regions = list(d, |d| decode(d, source, depth + 1))?,
            5 => meta = d.decode()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(RawNode {
        name: need(name, "field 0 (name) of a node")?,
        op: need(op, "field 1 (op) of a node")?,
        inputs: need(inputs, "field 2 (inputs) of a node")?,
        outputs: need(outputs, "field 3 (outputs) of a node")?,
        regions,
        meta,
    })
}
