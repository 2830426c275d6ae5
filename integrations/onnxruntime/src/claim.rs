//! The parts of a graph that Kiln runs: the largest that the importer and the backend accept.

use crate::error::{Fail, described};
use crate::model::{Graph, Node, Parts, Reader, element_type, model};
use kiln_onnx::proto::ModelProto;
use kiln_onnx::{ImportOptions, ModelFile, OnnxError};
use std::collections::{HashMap, HashSet};

/// Attempts of an importer that keeps refusing nodes.
const ATTEMPTS: usize = 64;

/// Parts of a graph by positions of nodes, and why others are not among them.
pub struct Claims {
    pub parts: Vec<Vec<usize>>,
    pub refused: Vec<(String, String)>,
}

/// Nodes in an order in which each comes after what it reads, with the nodes that it reads from.
fn ordered(nodes: &[Node]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let mut makers = HashMap::new();
    for (i, n) in nodes.iter().enumerate() {
        makers.extend(n.writes().map(|w| (w.as_str(), i)));
    }
    let before: Vec<Vec<usize>> =
        nodes.iter().map(|n| n.reads().filter_map(|r| makers.get(r.as_str()).copied()).collect()).collect();
    let (mut order, mut seen) = (Vec::with_capacity(nodes.len()), vec![false; nodes.len()]);
    for start in 0..nodes.len() {
        let mut open = vec![(start, 0)];
        while let Some((at, next)) = open.pop() {
            if seen[at] {
                continue;
            }
            match before[at].get(next) {
                Some(&b) => {
                    open.push((at, next + 1));
                    open.push((b, 0));
                }
                None => {
                    seen[at] = true;
                    order.push(at);
                }
            }
        }
    }
    (order, before)
}

/// Parts of the nodes that are allowed, by levels. The level of a node counts changes between allowed and other nodes in front of it.
/// No path between two nodes of one level leaves it.
fn parts(order: &[usize], before: &[Vec<usize>], allowed: &[bool]) -> Vec<Vec<usize>> {
    let mut level = vec![0usize; before.len()];
    let mut by_level: Vec<Vec<usize>> = Vec::new();
    for &i in order {
        let least = usize::from(!allowed[i]);
        let found = before[i].iter().map(|&b| level[b] + usize::from(allowed[b] != allowed[i])).max();
        level[i] = found.unwrap_or(least).max(least);
        if allowed[i] {
            if by_level.len() <= level[i] {
                by_level.resize_with(level[i] + 1, Vec::new);
            }
            by_level[level[i]].push(i);
        }
    }
    by_level.retain(|p| !p.is_empty());
    by_level
}

/// The model of a part. The error is a node at the border and why the part cannot have it.
pub fn model_of(reader: &Reader<'_>, graph: &Graph, part: &[usize]) -> Result<ModelProto, Refused> {
    let inside: HashSet<usize> = part.iter().copied().collect();
    let made: HashSet<&String> = part.iter().flat_map(|&i| graph.nodes[i].writes()).collect();
    let read_outside: HashSet<&String> = graph
        .nodes
        .iter()
        .enumerate()
        .filter(|(i, _)| !inside.contains(i))
        .flat_map(|(_, n)| n.reads())
        .chain(&graph.outputs)
        .collect();
    let mut all = Parts::default();
    let mut known = HashSet::new();
    for &i in part {
        let n = &graph.nodes[i];
        let refuse = |why: String| Refused { node: i, why };
        for name in n.reads().filter(|r| !made.contains(*r)) {
            if !known.insert(name.clone()) {
                continue;
            }
            let Some(&info) = graph.values.get(name) else { continue };
            match reader.constant(name, info).map_err(|e| refuse(e.text))? {
                Some(tensor) => all.initializer.push(tensor),
                None => all.input.push(border(reader, name, info).map_err(refuse)?),
            }
        }
        for name in n.writes().filter(|w| read_outside.contains(*w)) {
            let Some(&info) = graph.values.get(name) else { continue };
            all.output.push(border(reader, name, info).map_err(refuse)?);
        }
    }
    let nodes = part.iter().map(|&i| graph.nodes[i].proto.clone()).collect();
    Ok(model(graph, nodes, all))
}

/// A node that a part cannot have.
pub struct Refused {
    node: usize,
    why: String,
}

impl Refused {
    /// Reason of the refusal.
    pub fn why(self) -> String {
        self.why
    }
}

/// A value at the border of a part, which must be a tensor of numbers.
fn border(
    reader: &Reader<'_>,
    name: &str,
    info: *const ort_sys::OrtValueInfo,
) -> Result<kiln_onnx::proto::ValueInfoProto, String> {
    let v = reader.described(name, info).map_err(|e| e.text)?;
    match element_type(&v) {
        None => Err(format!("\"{name}\", which others need, is not a tensor")),
        Some(elem) if crate::values::bytes_of(elem, 1).is_none() => {
            Err(format!("\"{name}\", which others need, has elements of type {elem}"))
        }
        Some(_) => Ok(v),
    }
}

/// Positions of nodes that the importer refuses, with reasons; none if it accepts all.
fn refused_by_importer(proto: &ModelProto, part: &[usize], nodes: &[Node]) -> Vec<Refused> {
    let file = ModelFile::from_proto(proto.clone());
    let done = kiln_onnx::Model::check(&file).and_then(|m| kiln_onnx::import(&m, &ImportOptions::default()));
    let all = |why: String| part.iter().map(|&node| Refused { node, why: why.clone() }).collect();
    match done {
        Ok(imported) => match imported.network.lower() {
            Ok(graph) => unprofiled(&kiln::Model::from(graph), part, nodes),
            Err(e) => all(described(&e)),
        },
        Err(OnnxError::Refused(list)) => {
            let place = |name: &str| part.iter().copied().find(|&i| names(&nodes[i], name));
            let found: Vec<Refused> = list
                .0
                .iter()
                .filter_map(|r| Some(Refused { node: place(&r.node)?, why: r.reason.to_string() }))
                .collect();
            if found.is_empty() { all(list.to_string()) } else { found }
        }
        Err(e) => all(described(&e)),
    }
}

/// Nodes that take shapes from floats at the border: profiles have integers alone.
fn unprofiled(model: &kiln::Model, part: &[usize], nodes: &[Node]) -> Vec<Refused> {
    let floats = model.io_tensors().iter().filter(|t| t.is_shape_input && t.dtype.is_float());
    let names: Vec<&String> = floats.map(|t| &t.name).collect();
    let readers = part.iter().copied().filter(|&i| nodes[i].reads().any(|r| names.contains(&r)));
    let why = "it computes shapes of floats that only a run knows".to_owned();
    readers.map(|node| Refused { node, why: why.clone() }).collect()
}

/// Whether a refusal names this node, or one in its bodies.
fn names(node: &Node, refused: &str) -> bool {
    node.proto.name == refused
        || node.proto.attribute.iter().filter_map(|a| a.g.as_ref()).any(|g| within(g, refused))
}

fn within(graph: &kiln_onnx::proto::GraphProto, refused: &str) -> bool {
    graph.node.iter().any(|n| {
        n.name == refused || n.attribute.iter().filter_map(|a| a.g.as_ref()).any(|g| within(g, refused))
    })
}

/// The parts that Kiln runs. `check` refuses nodes of a model that the importer accepts, by their names.
pub fn claims(
    reader: &Reader<'_>,
    graph: &Graph,
    least: usize,
    check: &dyn Fn(&ModelProto) -> Result<(), (Option<String>, String)>,
) -> Result<Claims, Fail> {
    let (order, before) = ordered(&graph.nodes);
    let mut allowed: Vec<bool> = graph.nodes.iter().map(|n| !n.taken && n.refusal.is_none()).collect();
    let mut refused: Vec<(String, String)> =
        graph.nodes.iter().filter_map(|n| Some((n.proto.name.clone(), n.refusal.clone()?))).collect();
    let mut accepted: HashSet<Vec<usize>> = HashSet::new();
    for _ in 0..ATTEMPTS {
        let mut found = Vec::new();
        for part in parts(&order, &before, &allowed) {
            if accepted.contains(&part) {
                continue;
            }
            let complaints = match model_of(reader, graph, &part) {
                Err(border) => vec![border],
                Ok(proto) => match refused_by_importer(&proto, &part, &graph.nodes) {
                    none if none.is_empty() => match check(&proto) {
                        Ok(()) => Vec::new(),
                        Err((name, why)) => {
                            let at =
                                name.and_then(|n| part.iter().copied().find(|&i| names(&graph.nodes[i], &n)));
                            let those = at.map_or_else(|| part.clone(), |i| vec![i]);
                            those.into_iter().map(|node| Refused { node, why: why.clone() }).collect()
                        }
                    },
                    some => some,
                },
            };
            if complaints.is_empty() {
                accepted.insert(part);
            }
            found.extend(complaints);
        }
        if found.is_empty() {
            let mut parts = parts(&order, &before, &allowed);
            parts.retain(|p| p.len() >= least);
            return Ok(Claims { parts, refused });
        }
        for Refused { node, why } in found {
            if std::mem::replace(&mut allowed[node], false) {
                refused.push((graph.nodes[node].proto.name.clone(), why));
            }
        }
    }
    Err(Fail::new(format!("the importer refused nodes {ATTEMPTS} times in a row; report this model")))
}
