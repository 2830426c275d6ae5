//! Checks that every graph keeps: one definition a name, outputs defined, nodes in order, captures listed.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{Graph, order};
use crate::error::OnnxError;

/// Definer of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Definer {
    Input,
    Initializer,
    Node(usize),
}

/// Checks a graph whose nodes' own graphs are closed already: fills in its captures and sorts its nodes.
pub(super) fn close(graph: &mut Graph) -> Result<(), OnnxError> {
    let definers = definers(graph)?;
    for output in &graph.outputs {
        if !definers.contains_key(output.name.as_str()) {
            return Err(OnnxError::UndefinedOutput {
                graph: graph.name.clone(),
                output: output.name.clone(),
            });
        }
    }
    let reads = graph.nodes.iter().flat_map(|node| node.reads());
    let captures: BTreeSet<&str> = reads.filter(|name| !definers.contains_key(name)).collect();
    let captures: Vec<String> = captures.into_iter().map(str::to_owned).collect();
    let producer = |name: &str| match definers.get(name) {
        Some(Definer::Node(index)) => Some(*index),
        _ => None,
    };
    let order = order::order(&graph.nodes, producer)
        .map_err(|nodes| OnnxError::Cycle { graph: graph.name.clone(), nodes })?;
    if let Some(order) = order {
        order::permute(&mut graph.nodes, &order);
    }
    graph.captures = captures;
    Ok(())
}

/// Every value that the graph defines. An initializer may share its name with an input, whose default it is.
fn definers(graph: &Graph) -> Result<HashMap<&str, Definer>, OnnxError> {
    let mut definers: HashMap<&str, Definer> = HashMap::new();
    let twice = |name: &str, first, second| OnnxError::DuplicateName {
        graph: graph.name.clone(),
        name: name.to_owned(),
        first: describe(graph, first),
        second: describe(graph, second),
    };
    for input in &graph.inputs {
        if let Some(first) = definers.insert(&input.name, Definer::Input) {
            return Err(twice(&input.name, first, Definer::Input));
        }
    }
    for name in graph.initializers.keys().chain(graph.sparse_initializers.keys()) {
        definers.entry(name).or_insert(Definer::Initializer);
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        for output in node.outputs.iter().filter(|output| !output.is_empty()) {
            if let Some(first) = definers.insert(output, Definer::Node(index)) {
                return Err(twice(output, first, Definer::Node(index)));
            }
        }
    }
    Ok(definers)
}

fn describe(graph: &Graph, definer: Definer) -> String {
    match definer {
        Definer::Input => "an input".to_owned(),
        Definer::Initializer => "an initializer".to_owned(),
        Definer::Node(index) => format!("node '{}'", graph.nodes[index].label()),
    }
}

/// Checks what holds for the main graph alone: it reads nothing from outside, and its outputs differ.
pub(super) fn check_main(graph: &Graph) -> Result<(), OnnxError> {
    if let Some(input) = graph.captures.first() {
        let (graph, node) = reader(graph, input);
        return Err(OnnxError::UndefinedInput { graph, node, input: input.clone() });
    }
    let mut outputs = HashSet::new();
    for output in &graph.outputs {
        if !outputs.insert(&output.name) {
            return Err(OnnxError::DuplicateName {
                graph: graph.name.clone(),
                name: output.name.clone(),
                first: "an output".into(),
                second: "another output".into(),
            });
        }
    }
    Ok(())
}

/// The innermost graph and node that read a captured name.
fn reader(graph: &Graph, name: &str) -> (String, String) {
    for node in &graph.nodes {
        if node.inputs.iter().any(|input| input == name) {
            return (graph.name.clone(), node.label());
        }
        if let Some(inner) = node.graphs().find(|inner| inner.captures.iter().any(|capture| capture == name))
        {
            return reader(inner, name);
        }
    }
    (graph.name.clone(), String::new())
}
