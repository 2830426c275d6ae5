//! Whole graphs of constants: recipes of derived weights.

use crate::layer;
use kiln_ir::{Graph, IrError, Source, Tensor, ValueId};
use std::collections::HashMap;

/// Results of a graph whose inputs are these constants, in the order of [`Graph::inputs`]. Values go once nothing reads them any more.
///
/// # Errors
/// As of [`Graph::eval`].
pub fn evaluate(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>, IrError> {
    if graph.nodes().any(|(_, n)| !n.regions.is_empty()) {
        return graph.eval(inputs);
    }
    let mut readers: HashMap<ValueId, usize> = HashMap::new();
    for v in graph.nodes().flat_map(|(_, n)| n.inputs.iter().flatten()).chain(&graph.outputs) {
        *readers.entry(*v).or_default() += 1;
    }
    let mut values: HashMap<ValueId, Tensor> =
        graph.inputs.iter().copied().zip(inputs.iter().cloned()).collect();
    let weight = |v: ValueId| match &graph.value(v).source {
        Source::Weight(w) => Some(w.tensor.clone()),
        _ => None,
    };
    for (_, node) in graph.nodes() {
        let mut given = Vec::with_capacity(node.inputs.len());
        for v in &node.inputs {
            given.push(v.and_then(|v| values.get(&v).cloned().or_else(|| weight(v))));
        }
        for v in node.inputs.iter().flatten() {
            let left = readers.entry(*v).or_default();
            *left = left.saturating_sub(1);
            if *left == 0 {
                values.remove(v);
            }
        }
        let made = layer(&node.op, &given).map_err(|e| IrError::layer(&node.name, node.op.name(), e))?;
        values.extend(node.outputs.iter().copied().zip(made));
    }
    let lost = |v: ValueId| IrError::UnknownTensor(graph.value(v).name.clone());
    graph
        .outputs
        .iter()
        .map(|&v| values.get(&v).cloned().or_else(|| weight(v)).ok_or_else(|| lost(v)))
        .collect()
}
