//! Rewrites inference batch normalization: into the weights of the convolution before it, else into one multiply and
//! one add. The new weights are written as layers over the old ones, which the constant folder then evaluates, so
//! that they carry their recipe.

use super::writer::Writer;
use super::{Pass, PassCx};
use crate::BuildError;
use kiln_ir::graph::Uses;
use kiln_ir::{Attrs, DType, Graph, IrError, NodeId, ValueId};
use kiln_ops::conv::CONV;
use kiln_ops::norm::batch_norm::BATCH_NORM;
use kiln_ops::pointwise::binary::{ADD, DIV, MUL, SUB};
use kiln_ops::pointwise::unary::{NEG, SQRT};

/// The pass.
pub const PASS: Pass = Pass { name: "fold-batch-norm", run };

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    if !cx.config.fold {
        return Ok(0);
    }
    let mut changes = 0;
    let uses = g.uses();
    for id in g.order().to_vec() {
        let Some(norm) = Norm::read(g, id) else { continue };
        norm.rewrite(g, id, &uses)?;
        changes += 1;
    }
    Ok(changes + g.remove_dead())
}

/// A batch normalization with constant parameters.
struct Norm {
    x: ValueId,
    /// scale, bias, mean, variance; each [C].
    params: [ValueId; 4],
    epsilon: f64,
    dtype: DType,
    rank: usize,
}

impl Norm {
    fn read(g: &Graph, id: NodeId) -> Option<Norm> {
        let node = g.get(id).filter(|n| n.op.is(BATCH_NORM) && n.outputs.len() == 1)?;
        let ins: Vec<ValueId> = node.inputs.iter().copied().collect::<Option<_>>()?;
        let [x, scale, bias, mean, var] = ins[..] else { return None };
        let params = [scale, bias, mean, var];
        let dtype = g.ty(x).dtype;
        if !params.iter().all(|&v| g.weight(v).is_some() && g.ty(v).dtype == dtype) {
            return None;
        }
        Some(Norm { x, params, epsilon: node.op.attrs().float("epsilon").ok()?, dtype, rank: g.ty(x).rank() })
    }

    fn rewrite(self, g: &mut Graph, id: NodeId, uses: &Uses) -> Result<(), IrError> {
        let mut w = Writer::before(g, id);
        let [scale, bias, mean, var] = self.params;
        let eps = w.scalar(self.epsilon, self.dtype)?;
        let shifted = w.op(ADD, Attrs::new(), &[var, eps])?;
        let dev = w.op(SQRT, Attrs::new(), &[shifted])?;
        let factor = w.op(DIV, Attrs::new(), &[scale, dev])?;
        let y = match self.conv(w.g, uses) {
            Some(conv) => {
                let centred = match conv.bias {
                    Some(b) => w.op(SUB, Attrs::new(), &[b, mean])?,
                    None => w.op(NEG, Attrs::new(), &[mean])?,
                };
                let scaled = w.op(MUL, Attrs::new(), &[centred, factor])?;
                let new_bias = w.op(ADD, Attrs::new(), &[scaled, bias])?;
                let per_output = w.column(factor, w.g.ty(conv.weights).rank(), 0)?;
                let new_weights = w.op(MUL, Attrs::new(), &[conv.weights, per_output])?;
                w.op(CONV, conv.attrs, &[conv.x, new_weights, new_bias])?
            }
            None => {
                let drop = w.op(MUL, Attrs::new(), &[mean, factor])?;
                let shift = w.op(SUB, Attrs::new(), &[bias, drop])?;
                let (f, s) = (w.column(factor, self.rank, 1)?, w.column(shift, self.rank, 1)?);
                let scaled = w.op(MUL, Attrs::new(), &[self.x, f])?;
                w.op(ADD, Attrs::new(), &[scaled, s])?
            }
        };
        w.replace(id, y);
        Ok(())
    }

    /// The convolution before it, if its weights are constant and nobody else reads its result. `uses` are those before the
    /// first rewrite, which changes how often new values are read, and no others.
    fn conv(&self, g: &Graph, uses: &Uses) -> Option<Conv> {
        let (_, node) = g.producer(self.x).filter(|(_, n)| n.op.is(CONV))?;
        let readers = match uses.of_value(self.x).len() {
            0 => g.nodes().flat_map(|(_, n)| n.inputs.iter().flatten()).filter(|v| **v == self.x).count(),
            known => known,
        };
        let weights = node.inputs.get(1).copied().flatten().filter(|&v| g.weight(v).is_some())?;
        let bias = node.inputs.get(2).copied().flatten();
        let fits = readers == 1
            && !g.outputs.contains(&self.x)
            && g.ty(weights).dtype == self.dtype
            && bias.is_none_or(|b| g.weight(b).is_some());
        fits.then(|| Conv {
            x: node.inputs[0].unwrap_or(self.x),
            weights,
            bias,
            attrs: node.op.attrs().clone(),
        })
    }
}

struct Conv {
    x: ValueId,
    weights: ValueId,
    bias: Option<ValueId>,
    attrs: Attrs,
}
