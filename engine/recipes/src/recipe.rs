//! Whole graphs of constants: recipes of derived weights.

use crate::layer;
use crate::pointwise::{Value, pending};
use kiln_ir::{Graph, IrError, Node, OpError, Source, Tensor, ValueId};
use std::collections::HashMap;

/// Results of a graph whose inputs are these constants, in the order of [`Graph::inputs`]. Values go once nothing reads them any more.
/// Pointwise layers of which only other pointwise layers read the results are computed together with these.
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
    let mut values: HashMap<ValueId, Value> =
        graph.inputs.iter().zip(inputs).map(|(&v, t)| (v, Value::Ready(t.clone()))).collect();
    for (_, node) in graph.nodes() {
        let mut given = Vec::with_capacity(node.inputs.len());
        for v in &node.inputs {
            given.push(v.and_then(|v| taken(graph, &mut values, &mut readers, v)));
        }
        let failed = |e: OpError| IrError::layer(&node.name, node.op.name(), e);
        match combined(node, &readers, given) {
            Ok((v, value)) => drop(values.insert(v, value)),
            Err(given) => {
                let given: Result<Vec<_>, OpError> =
                    given.into_iter().map(|v| v.map(ready).transpose()).collect();
                let made = given.and_then(|given| layer(&node.op, &given)).map_err(failed)?;
                values.extend(node.outputs.iter().copied().zip(made.into_iter().map(Value::Ready)));
            }
        }
    }
    let lost = |v: ValueId| IrError::UnknownTensor(graph.value(v).name.clone());
    let mut out = Vec::with_capacity(graph.outputs.len());
    for &v in &graph.outputs {
        let value = taken(graph, &mut values, &mut readers, v).ok_or_else(|| lost(v))?;
        out.push(ready(value).map_err(|e| IrError::layer(&graph.value(v).name, "recipe", e))?);
    }
    Ok(out)
}

/// A value that one of its readers takes: the last one gets it, others a copy. What is not yet computed has one reader.
fn taken(
    graph: &Graph,
    values: &mut HashMap<ValueId, Value>,
    readers: &mut HashMap<ValueId, usize>,
    v: ValueId,
) -> Option<Value> {
    let left = readers.entry(v).or_default();
    *left = left.saturating_sub(1);
    let found = match values.get(&v) {
        Some(Value::Ready(t)) if *left > 0 => Some(Value::Ready(t.clone())),
        _ => values.remove(&v),
    };
    found.or_else(|| match &graph.value(v).source {
        Source::Weight(w) => Some(Value::Ready(w.tensor.clone())),
        _ => None,
    })
}

/// The result of a pointwise layer of which one other layer reads the result; else what it is given.
fn combined(
    node: &Node,
    readers: &HashMap<ValueId, usize>,
    given: Vec<Option<Value>>,
) -> Result<(ValueId, Value), Vec<Option<Value>>> {
    match node.outputs[..] {
        [v] if readers.get(&v) == Some(&1) => pending(&node.op, given).map(|p| (v, Value::Pending(p))),
        _ => Err(given),
    }
}

fn ready(value: Value) -> Result<Tensor, OpError> {
    match value {
        Value::Ready(t) => Ok(t),
        Value::Pending(p) => {
            p.computed().ok_or_else(|| OpError::Value("an expression that cannot be computed".into()))
        }
    }
}
