//! Rewrites inference batch normalization: into the weights of the convolution before it, else into one multiply and
//! one add. The new weights are written as layers over the old ones, which the constant folder then evaluates, so
//! that they carry their recipe. They are computed in f32, from what was not yet rounded to a narrower type.

use super::writer::Writer;
use super::{Pass, PassCx};
use crate::BuildError;
use kiln_ir::graph::Uses;
use kiln_ir::{Attrs, DType, Graph, IrError, NodeId, ValueId};
use kiln_ops::cast::CAST;
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
        changes += usize::from(norm.rewrite(g, id, &uses)?);
    }
    Ok(changes + g.remove_dead())
}

/// A constant of floats, or the one whose conversion to another type this is.
fn constant(g: &Graph, v: ValueId) -> Option<ValueId> {
    let cast = g.producer(v).filter(|(_, n)| n.op.is(CAST));
    let of = cast.and_then(|(_, n)| n.inputs.first().copied().flatten()).unwrap_or(v);
    let float = matches!(g.ty(of).dtype, DType::F32 | DType::F16 | DType::BF16);
    (float && g.weight(of).is_some()).then_some(of)
}

/// A batch normalization with constant parameters.
struct Norm {
    x: ValueId,
    /// scale, bias, mean, variance; each [C].
    params: [ValueId; 4],
    /// Whether all of them come in the type of x.
    uniform: bool,
    epsilon: f64,
    dtype: DType,
    rank: usize,
}

impl Norm {
    fn read(g: &Graph, id: NodeId) -> Option<Norm> {
        let node = g.get(id).filter(|n| n.op.is(BATCH_NORM) && n.outputs.len() == 1)?;
        let ins: Vec<ValueId> = node.inputs.iter().copied().collect::<Option<_>>()?;
        let [x, ref given @ ..] = ins[..] else { return None };
        let params: Vec<ValueId> = given.iter().map(|&v| constant(g, v)).collect::<Option<_>>()?;
        let dtype = g.ty(x).dtype;
        Some(Norm {
            x,
            params: params.try_into().ok()?,
            uniform: given.iter().all(|&v| g.ty(v).dtype == dtype),
            epsilon: node.op.attrs().float("epsilon").ok()?,
            dtype,
            rank: g.ty(x).rank(),
        })
    }

    /// False, and nothing changed, where it cannot be written otherwise without being less exact.
    fn rewrite(self, g: &mut Graph, id: NodeId, uses: &Uses) -> Result<bool, IrError> {
        let conv = self.conv(g, uses);
        if conv.is_none() && !self.uniform {
            return Ok(false);
        }
        let own = g.get(id).and_then(|n| n.meta.precision);
        let asked = conv.as_ref().and_then(|c| c.precision);
        if asked.is_some() && own.is_some() && asked != own {
            return Ok(false);
        }
        let (mut w, wide) = (Writer::before(g, id), DType::F32);
        w.forget_precision();
        let mut params = self.params;
        for v in &mut params {
            *v = w.in_type(*v, wide)?;
        }
        let [scale, bias, mean, var] = params;
        let eps = w.scalar(self.epsilon, wide)?;
        let shifted = w.op(ADD, Attrs::new(), &[var, eps])?;
        let dev = w.op(SQRT, Attrs::new(), &[shifted])?;
        let factor = w.op(DIV, Attrs::new(), &[scale, dev])?;
        let y = match conv {
            Some(conv) => {
                let centred = match conv.bias {
                    Some(b) => {
                        let b = w.in_type(b, wide)?;
                        w.op(SUB, Attrs::new(), &[b, mean])?
                    }
                    None => w.op(NEG, Attrs::new(), &[mean])?,
                };
                let scaled = w.op(MUL, Attrs::new(), &[centred, factor])?;
                let new_bias = w.op(ADD, Attrs::new(), &[scaled, bias])?;
                let new_bias = w.in_type(new_bias, self.dtype)?;
                let per_output = w.column(factor, w.g.ty(conv.weights).rank(), 0)?;
                let weights = w.in_type(conv.weights, wide)?;
                let new_weights = w.op(MUL, Attrs::new(), &[weights, per_output])?;
                let new_weights = w.in_type(new_weights, self.dtype)?;
                w.want_precision(asked.or(own));
                w.op(CONV, conv.attrs, &[conv.x, new_weights, new_bias])?
            }
            None => {
                let drop = w.op(MUL, Attrs::new(), &[mean, factor])?;
                let shift = w.op(SUB, Attrs::new(), &[bias, drop])?;
                let (f, s) = (w.in_type(factor, self.dtype)?, w.in_type(shift, self.dtype)?);
                let (f, s) = (w.column(f, self.rank, 1)?, w.column(s, self.rank, 1)?);
                w.want_precision(own);
                let scaled = w.op(MUL, Attrs::new(), &[self.x, f])?;
                w.op(ADD, Attrs::new(), &[scaled, s])?
            }
        };
        w.replace(id, y);
        Ok(true)
    }

    /// The convolution before it, if its weights are constant and nobody else reads its result. `uses` are those before the
    /// first rewrite, which changes how often new values are read, and no others.
    fn conv(&self, g: &Graph, uses: &Uses) -> Option<Conv> {
        let (_, node) = g.producer(self.x).filter(|(_, n)| n.op.is(CONV))?;
        let readers = match uses.of_value(self.x).len() {
            0 => g.nodes().flat_map(|(_, n)| n.inputs.iter().flatten()).filter(|v| **v == self.x).count(),
            known => known,
        };
        let weights = node.inputs.get(1).copied().flatten().and_then(|v| constant(g, v))?;
        let bias = match node.inputs.get(2).copied().flatten() {
            Some(v) => Some(constant(g, v)?),
            None => None,
        };
        let fits = readers == 1 && !g.outputs.contains(&self.x);
        fits.then(|| Conv {
            x: node.inputs[0].unwrap_or(self.x),
            weights,
            bias,
            attrs: node.op.attrs().clone(),
            precision: node.meta.precision,
        })
    }
}

struct Conv {
    x: ValueId,
    weights: ValueId,
    bias: Option<ValueId>,
    attrs: Attrs,
    /// The type that it was asked to run in.
    precision: Option<DType>,
}
