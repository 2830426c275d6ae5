//! Dynamic ranges of values, and the layers that can run on codes of 8 bits by them.

use super::super::patterns::constant;
use super::host;
use crate::BuildConfig;
use crate::passes::Notes;
use kiln_ir::op::Movement;
use kiln_ir::{DType, Graph, Node, ValueId};
use kiln_ops::conv::CONV;
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::clip::RELU;
use kiln_ops::pool::POOL;
use kiln_ops::slice::concat::CONCAT;
use std::collections::HashSet;

/// The greatest code of a type that stands for values of f32 by ranges; `None` for types of other kinds.
pub fn greatest_code(t: DType) -> Option<f64> {
    match t {
        DType::I8 => Some(127.0),
        DType::F8E4M3 => Some(448.0),
        _ => None,
    }
}

/// Values are followed through so many moves.
const DEPTH: usize = 16;

/// The range of a tensor, and whether negative values are cut off behind it.
pub struct TensorRange<'a> {
    /// The tensor.
    pub tensor: &'a str,
    /// The least and the greatest value.
    pub ends: [f32; 2],
    /// Whether negative values are cut off.
    pub positive: bool,
}

/// The range of a value of f32: its own by name, or that of the value whose elements a layer moves or picks.
pub fn range_of<'g>(g: &'g Graph, config: &BuildConfig, v: ValueId) -> Option<TensorRange<'g>> {
    let mut v = v;
    for _ in 0..DEPTH {
        let name = &g.value(v).name;
        if let Some(&ends) = config.ranges.get(name) {
            return Some(TensorRange { tensor: name, ends, positive: false });
        }
        let (_, node) = g.producer(v)?;
        v = node.inputs.first().copied().flatten().filter(|_| picks(node) && !node.op.is(CONCAT))?;
        let name = &g.value(v).name;
        if let (true, Some(&ends)) = (node.op.is(RELU), config.ranges.get(name)) {
            return Some(TensorRange { tensor: name, ends, positive: true });
        }
    }
    None
}

/// Notes ranges whose tensors the network does not have.
pub fn note_unknown(g: &Graph, config: &BuildConfig, notes: &Notes) {
    fn collect<'g>(g: &'g Graph, names: &mut HashSet<&'g str>) {
        names.extend(g.value_ids().map(|v| g.value(v).name.as_str()));
        g.nodes().flat_map(|(_, n)| &n.regions).for_each(|r| collect(r, names));
    }
    if config.ranges.is_empty() {
        return;
    }
    let mut names = HashSet::new();
    collect(g, &mut names);
    let unknown: Vec<&str> =
        config.ranges.keys().map(String::as_str).filter(|name| !names.contains(name)).collect();
    if !unknown.is_empty() {
        let (count, all) = (unknown.len(), config.ranges.len());
        let some = unknown.iter().take(UNKNOWN_SHOWN).copied().collect::<Vec<_>>().join("\", \"");
        notes.add(format!(
            "{count} of {all} dynamic ranges are of tensors that the network does not have and are not used: \"{some}\"{}",
            if count > UNKNOWN_SHOWN { " and others" } else { "" }
        ));
    }
}

/// Names of unknown tensors that a note lists.
const UNKNOWN_SHOWN: usize = 5;

/// Whether a layer moves elements, picks the greatest, or cuts negative ones off.
fn picks(node: &Node) -> bool {
    let greatest = node.op.is(POOL) && node.op.attrs().str("op").is_ok_and(|op| op == "max");
    node.op.movement() != Movement::None || greatest || node.op.is(CONCAT) || node.op.is(RELU)
}

/// Whether a layer multiplies two operands of f32.
pub fn multiplies(node: &Node) -> bool {
    node.op.is(CONV) || node.op.is(MATMUL)
}

/// Whether a layer of f32 can be part of a kernel on codes. The reason if not.
pub fn on_codes(g: &Graph, config: &BuildConfig, node: &Node) -> Result<(), String> {
    if !multiplies(node) {
        let plain = node.op.is_pointwise() && !node.op.roles().keeps_f32;
        let float = node.outputs.iter().all(|&y| g.ty(y).dtype == DType::F32);
        return match float && (plain || picks(node)) {
            true => Ok(()),
            false => Err(format!("{} has no form on codes of 8 bits", node.op.name())),
        };
    }
    let operands = node.inputs.iter().take(2).copied().collect::<Option<Vec<ValueId>>>();
    let Some(operands) = operands else { return Err("it lacks an operand".into()) };
    for &v in &operands {
        if g.ty(v).dtype != DType::F32 || g.ty(v).rank() < 2 {
            return Err("its operands are no matrices or images of f32".into());
        }
        if !constant(g, v) && range_of(g, config, v).is_none() {
            return Err(format!("nothing is known of the range of tensor \"{}\"", g.value(v).name));
        }
    }
    match operands.iter().all(|&v| constant(g, v)) || (node.op.is(CONV) && !constant(g, operands[1])) {
        true => Err("its weights are no constants".into()),
        false => Ok(()),
    }
}

/// Inputs of a layer that are f32 and change from run to run.
pub fn activations<'a>(g: &'a Graph, node: &'a Node) -> impl Iterator<Item = ValueId> + 'a {
    let inputs = node.inputs.iter().enumerate().filter_map(|(i, v)| v.filter(|_| !host(node, i)));
    inputs.filter(|&v| g.ty(v).dtype == DType::F32 && !constant(g, v))
}
