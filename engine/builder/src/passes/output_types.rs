//! Types that layers ask for on their outputs, in weakly typed networks: a cast to the type and back after each such output.
//!
//! Readers then see elements that fit the type, and the value is stored in it where no layer in between needs f32. Runs in
//! front of the other passes, so that no rewrite loses the request.

use super::writer::cast;
use super::{Pass, PassCx};
use crate::{BuildError, Constraints};
use kiln_ir::{DType, Graph, IrError, Node, NodeId, ValueId};
use std::collections::HashMap;

/// The pass.
pub const PASS: Pass = Pass { name: "output-types", run };

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    if g.nodes().all(|(_, n)| n.meta.output_types.is_empty()) {
        return Ok(0);
    }
    let mut cast_of: HashMap<ValueId, ValueId> = HashMap::new();
    let mut order = Vec::with_capacity(g.order().len());
    for id in g.order().to_vec() {
        let inputs = g.get_mut(id).map(|n| n.inputs.iter_mut().flatten());
        inputs.into_iter().flatten().for_each(|v| *v = cast_of.get(v).copied().unwrap_or(*v));
        order.push(id);
        let Some(node) = g.get(id) else { continue };
        for (y, to) in requests(g, node, cx)? {
            let first = g.order().len();
            let rounded = round_trip(g, y, to)?;
            order.extend_from_slice(&g.order()[first..]);
            cast_of.insert(y, rounded);
        }
        forget(g, id, &cast_of);
    }
    g.reorder(order)?;
    for v in &mut g.outputs {
        *v = cast_of.get(v).copied().unwrap_or(*v);
    }
    Ok(cast_of.len())
}

/// The outputs of f32 that get another type.
fn requests(g: &Graph, node: &Node, cx: &PassCx<'_>) -> Result<Vec<(ValueId, DType)>, BuildError> {
    let config = cx.config;
    let obey = config.constraints == Constraints::Obey;
    let refused = |message| BuildError::Precision { layer: node.name.clone(), message };
    let mut all = Vec::new();
    for (k, (&y, to)) in node.outputs.iter().zip(&node.meta.output_types).enumerate() {
        let Some(to) = to.filter(|&t| t != g.ty(y).dtype) else { continue };
        let found = g.ty(y).dtype;
        if config.strong_types || g.strong_types {
            let message = "has an output type, but the network is strongly typed; insert a cast instead";
            return Err(refused(message.into()));
        }
        let why = match found == DType::F32 && to.is_float() {
            true if obey || config.reduced.contains(&to) => {
                all.push((y, to));
                continue;
            }
            true => format!("the build does not permit {to} (BuildConfig::reduced)"),
            false => {
                "only outputs of f32 can be narrowed, to a float type: add a cast layer to the network".into()
            }
        };
        if obey {
            return Err(refused(format!("output {k} must be {to}, but is {found}; {why}")));
        }
        cx.work
            .notes
            .add(format!("layer \"{}\": output {k} should be {to} and is {found}: {why}", node.name));
    }
    Ok(all)
}

/// A cast to a type and back to f32 at the end of the order. The result takes the name of the value.
fn round_trip(g: &mut Graph, y: ValueId, to: DType) -> Result<ValueId, IrError> {
    let name = g.value(y).name.clone();
    let wide = g.unique_name(&format!("{name}.f32"));
    let narrow = cast(g, usize::MAX, &format!("{name}.{to}"), y, to)?;
    let back = cast(g, usize::MAX, &format!("{name}.back"), narrow, DType::F32)?;
    g.value_mut(y).name = wide;
    g.value_mut(back).name = name;
    Ok(back)
}

/// Takes the requests away that are met, so that passes may merge and fuse the layer.
fn forget(g: &mut Graph, id: NodeId, cast_of: &HashMap<ValueId, ValueId>) {
    let Some(node) = g.get(id) else { return };
    let met = |y: &ValueId, t: &Option<DType>| cast_of.contains_key(y) || *t == Some(g.ty(*y).dtype);
    let left = |(y, t): (&ValueId, &Option<DType>)| t.filter(|_| !met(y, t));
    let mut types: Vec<Option<DType>> = node.outputs.iter().zip(&node.meta.output_types).map(left).collect();
    while types.last() == Some(&None) {
        types.pop();
    }
    if let Some(node) = g.get_mut(id).filter(|n| n.meta.output_types != types) {
        node.meta.output_types = types;
    }
}
