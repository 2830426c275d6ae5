//! Weights that are made 2:4 sparse where the build forces that. The pruned weights are written as a layer over the old ones, so
//! that they carry their recipe.

use super::shaped;
use crate::passes::writer::Writer;
use crate::passes::{Pass, PassCx};
use crate::{BuildError, Sparsity};
use kiln_ir::{Attrs, DType, Graph, NodeId, Tensor, ValueId};
use kiln_ops::matmul::sparse::prune::{SPARSE_PRUNE, kept};
use kiln_ops::quantize::DEQUANTIZE;

/// The pass.
pub const PASS: Pass = Pass { name: "sparsity-prune", run };

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    if cx.config.sparsity != Sparsity::Force || !cx.config.fold {
        return Ok(0);
    }
    let mut changes = 0;
    for id in g.order().to_vec() {
        let Some(node) = g.get(id) else { continue };
        let Some(Ok(found)) = shaped(g, node) else { continue };
        let Some(stored) = stored(g, found.value) else { continue };
        let Some(w) = g.weight(stored) else { continue };
        let change = Change::of(&w.tensor, found.depth);
        if change.share > 0.0 {
            cx.work.notes.tell(format!(
                "(Sparsity) pruned the weights of layer \"{}\" to 2:4: {:.1} % of their elements, {:.1} % of their norm, \
                 are lost",
                node.name,
                100.0 * change.share,
                100.0 * change.dropped
            ));
        }
        // Also where nothing is lost: a refit may bring others.
        replace(g, id, found.value, stored, found.depth)?;
        changes += 1;
    }
    Ok(changes + g.remove_dead())
}

/// The constant that holds weights: themselves, or their codes where they are symmetric.
fn stored(g: &Graph, v: ValueId) -> Option<ValueId> {
    if g.weight(v).is_some() {
        return Some(v);
    }
    let (_, node) =
        g.producer(v).filter(|(_, n)| n.op.is(DEQUANTIZE) && n.inputs.get(2).is_none_or(Option::is_none))?;
    node.inputs
        .first()
        .copied()
        .flatten()
        .filter(|&codes| g.weight(codes).is_some() && g.ty(codes).dtype != DType::I4)
}

fn replace(
    g: &mut Graph,
    id: NodeId,
    value: ValueId,
    stored: ValueId,
    axis: usize,
) -> Result<(), BuildError> {
    let wide = g.producer(value).map(|(_, n)| (n.op.clone(), n.inputs.clone()));
    let mut w = Writer::before(g, id);
    w.forget_precision();
    let mut pruned = w.op(SPARSE_PRUNE, Attrs::new().with("axis", axis as i64), &[stored])?;
    if let Some((op, mut inputs)) = wide {
        inputs[0] = Some(pruned);
        pruned = w.node(op.id(), op.attrs().clone(), &inputs)?;
    }
    if let Some(node) = g.get_mut(id) {
        node.inputs[1] = Some(pruned);
    }
    Ok(())
}

/// Loss of weights by pruning.
struct Change {
    /// Part of the elements that were not 0 and are.
    share: f64,
    /// Norm of these over that of all.
    dropped: f64,
}

impl Change {
    fn of(w: &Tensor, axis: usize) -> Change {
        let all = w.to_f64();
        let lost =
            || all.iter().zip(kept(w, axis)).filter(|(x, kept)| !kept && **x != 0.0).map(|(x, _)| x * x);
        let norm = all.iter().map(|x| x * x).sum::<f64>().max(f64::MIN_POSITIVE).sqrt();
        Change {
            share: lost().count() as f64 / all.len().max(1) as f64,
            dropped: lost().sum::<f64>().sqrt() / norm,
        }
    }
}
