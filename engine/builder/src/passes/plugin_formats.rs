//! Other formats for the tensors of a plug-in layer: the search tries them, and keeps what is fastest with the moves around it.

use super::PassCx;
use super::writer::Writer;
use crate::BuildError;
use kiln_backend::{Region, host_layer};
use kiln_ir::{Graph, IrError, Node, NodeId, Op, OpError, Tensor, TensorType, ValueId};
use kiln_ops::plugin::packings::Packings;
use kiln_ops::plugin::record::LayerRecord;
use kiln_ops::plugin::{self, PLUGIN, layer_op_as, registry};
use kiln_ops::reformat::{self, Move};
use std::sync::Arc;

/// Name for reports.
pub const NAME: &str = "plug-in formats";

/// Every layer that has its tensors in formats or could have them, with its operators by other combinations.
pub fn choices(g: &Graph) -> Vec<(NodeId, Op)> {
    let mut all = Vec::new();
    for (id, node) in g.nodes() {
        let Some((record, inputs)) = layer(g, node) else { continue };
        let Ok(fields) = plugin::fields(node.op.attrs()) else { continue };
        let mut seen = vec![&node.op];
        let others: Vec<Op> = (0..record.types.len())
            .filter_map(|first| layer_op_as(&record, &fields, &inputs, first).ok())
            .collect();
        for op in &others {
            if seen.iter().all(|s| *s != op) {
                seen.push(op);
                all.push((id, op.clone()));
            }
        }
    }
    all
}

/// The definition of a layer with more than one combination, and the types of its inputs in the linear format.
fn layer(g: &Graph, node: &Node) -> Option<(Arc<LayerRecord>, Vec<TensorType>)> {
    let attrs = node.op.attrs();
    let name = plugin::name(attrs).ok().filter(|_| node.op.is(PLUGIN))?;
    let record = registry::find(&name.space, &name.name, Some(&name.version))?;
    if record.types.len() < 2 || record.types.iter().all(|t| t.is_linear()) {
        return None;
    }
    let packings = Packings::of_attrs(attrs).ok()?;
    let one = |(i, v): (usize, &Option<ValueId>)| {
        let ty = g.ty((*v)?);
        Some(TensorType { dtype: ty.dtype, dims: Packings::dims(packings.input(i), &ty.dims).ok()? })
    };
    let inputs = node.inputs.iter().enumerate().map(one).collect::<Option<_>>()?;
    Some((record, inputs))
}

/// Puts an operator of other formats in the place of a layer; false where the layer would lose its kernels for the device.
pub fn apply(g: &mut Graph, cx: &PassCx<'_>, id: NodeId, op: &Op) -> Result<bool, BuildError> {
    let Some(node) = g.get(id) else { return Ok(false) };
    let (inputs, outputs) = (node.inputs.clone(), node.outputs.clone());
    let wrong = |e: OpError| BuildError::Graph(IrError::layer(&node.name, "plugin", e));
    let old = Packings::of_attrs(node.op.attrs()).map_err(wrong)?;
    let new = Packings::of_attrs(op.attrs()).map_err(wrong)?;
    let name = node.name.clone();
    let hosted = |g: &Graph, id: NodeId| -> Result<bool, BuildError> {
        let tactics = cx.backend.tactics(&Region::extract(g, &[id])?, cx.target).unwrap_or_default();
        Ok(tactics.iter().all(|t| t.name == host_layer::ON_HOST))
    };
    let before = hosted(g, id)?;
    let fail = |e: OpError| BuildError::Graph(IrError::layer(&name, "plugin", e));
    let mut writer = Writer::before(g, id);
    let mut packed = Vec::with_capacity(inputs.len());
    for (i, v) in inputs.into_iter().enumerate() {
        let Some(v) = v else { return Ok(false) };
        let dims = Packings::dims(old.input(i), &writer.g.ty(v).dims.clone()).map_err(fail)?;
        let linear = match behind(writer.g, v, &reformat::pack(old.input(i), &dims)) {
            Some(source) => source,
            None => moved(&mut writer, v, reformat::unpack(old.input(i), &dims))?,
        };
        packed.push(Some(moved(&mut writer, linear, reformat::pack(new.input(i), &dims))?));
    }
    let made = writer.nodes(op.clone(), &packed)?;
    let Some(at) = made.first().and_then(|&v| writer.g.producer(v)).map(|p| p.0) else { return Ok(false) };
    if hosted(writer.g, at)? && !before {
        return Ok(false);
    }
    for (j, (&was, &is)) in outputs.iter().zip(&made).enumerate() {
        let dims = Packings::dims(new.output(j), &writer.g.ty(is).dims.clone()).map_err(fail)?;
        let linear = moved(&mut writer, is, reformat::unpack(new.output(j), &dims))?;
        // Readers that bring it into the linear format read it there.
        for end in ends(writer.g, was, &reformat::unpack(old.output(j), &dims)) {
            if !writer.g.outputs.contains(&end) {
                writer.g.replace_uses(end, linear);
            }
        }
        let back = moved(&mut writer, linear, reformat::pack(old.output(j), &dims))?;
        if writer.g.outputs.contains(&was) {
            if writer.g.outputs.contains(&back) || writer.g.producer(back).is_none() {
                return Ok(false);
            }
            writer.stand_in(was, back);
        } else {
            writer.g.replace_uses(was, back);
        }
    }
    g.remove_node(id);
    g.remove_dead();
    Ok(true)
}

/// Whether a node is a move.
fn is(g: &Graph, node: &Node, step: &Move) -> bool {
    let Ok((op, more)) = step.operator() else { return false };
    let constants = |v: &Option<ValueId>, t: &Tensor| v.and_then(|v| g.value(v).fact.as_const()) == Some(t);
    node.op == op
        && node.inputs.len() == more.len() + 1
        && node.inputs.iter().skip(1).zip(&more).all(|(v, t)| constants(v, t))
}

/// The value in front of these moves, if they make `v`.
fn behind(g: &Graph, mut v: ValueId, way: &[Move]) -> Option<ValueId> {
    for step in way.iter().rev() {
        let node = g.producer(v).map(|p| p.0).and_then(|id| g.get(id)).filter(|n| is(g, n, step))?;
        v = node.inputs.first().copied().flatten()?;
    }
    Some(v)
}

/// The values that these moves make of `v`.
fn ends(g: &Graph, v: ValueId, way: &[Move]) -> Vec<ValueId> {
    let mut all = vec![v];
    for step in way {
        let reads = |n: &Node| n.inputs.first().copied().flatten().is_some_and(|x| all.contains(&x));
        let found = g.nodes().filter(|(_, n)| reads(n) && is(g, n, step));
        all = found.filter_map(|(_, n)| n.outputs.first().copied()).collect();
    }
    if way.is_empty() { Vec::new() } else { all }
}

/// A value behind these moves.
pub fn moved(w: &mut Writer<'_>, mut v: ValueId, way: Vec<Move>) -> Result<ValueId, BuildError> {
    for step in way {
        let (op, more) = step.operator().map_err(|e| IrError::layer("reformat", "plugin", e))?;
        let mut inputs = vec![Some(v)];
        inputs.extend(more.into_iter().map(|t| Some(w.constant(t))));
        v = w.node(op.id(), op.attrs().clone(), &inputs)?;
    }
    Ok(v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{DType, Dim, Fact};

    /// A chain of moves is recognized as a whole, and no other chain is.
    #[test]
    fn moves_are_recognized() {
        let mut g = Graph::new("g");
        let x = g.add_input("x", Fact::of(TensorType::new(DType::F32, [2, 5, 3, 4])));
        let format: kiln_ir::TensorFormat = "chw32".parse().unwrap();
        let p = kiln_ir::Packing::new(format, DType::F32, &g.ty(x).dims.clone()).unwrap();
        let dims: Vec<Dim> = g.ty(x).dims.clone();
        let first = g.add_node("first", Op::new("neg", Default::default()).unwrap(), &[Some(x)]).unwrap();
        let last = g.add_node("last", Op::new("neg", Default::default()).unwrap(), &[Some(x)]).unwrap();
        let at = g.producer(last[0]).unwrap().0;
        let (way, back) = (reformat::pack(p, &dims), reformat::unpack(p, &dims));
        let mut w = Writer::before(&mut g, at);
        let packed = moved(&mut w, first[0], way.clone()).unwrap();
        let end = moved(&mut w, packed, back.clone()).unwrap();
        assert_eq!(behind(&g, packed, &way), Some(first[0]));
        assert_eq!(behind(&g, end, &way), None);
        assert_eq!(ends(&g, packed, &back), [end]);
        assert!(ends(&g, first[0], &back).is_empty());
    }
}
