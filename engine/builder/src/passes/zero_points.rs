//! Drops zero points that are 0, which exporters write out for symmetric codes: layers without one take fewer instructions, and other passes
//! see that codes are symmetric.

use super::{Pass, PassCx};
use crate::{BuildError, Refit};
use kiln_ir::{Dim, Graph, Node, NodeId, ValueId};
use kiln_ops::quantize::{DEQUANTIZE, QUANTIZE};

/// The pass. Zero points that a refit may replace stay.
pub const PASS: Pass = Pass { name: "zero-points", run };

/// Input of either operator that has them.
const ZERO_POINT: usize = 2;

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    if !cx.config.fold {
        return Ok(0);
    }
    let fixed = matches!(cx.config.refit, Refit::Off | Refit::Identical);
    let nothing = |v: ValueId| {
        let weight = g.weight(v).filter(|w| fixed || (w.name.is_none() && w.recipe.is_none()));
        weight.is_some_and(|w| w.tensor.to_f64().iter().all(|&x| x == 0.0))
    };
    let dropped = |id: &NodeId| {
        let zero = |n: &Node| {
            let (x, zero) =
                (n.inputs.first().copied().flatten()?, n.inputs.get(ZERO_POINT).copied().flatten()?);
            (stretches_nothing(g, zero, x) && nothing(zero)).then_some(())
        };
        g.get(*id).filter(|n| n.op.is(QUANTIZE) || n.op.is(DEQUANTIZE)).and_then(zero).is_some()
    };
    let found: Vec<NodeId> = g.order().iter().copied().filter(dropped).collect();
    for &id in &found {
        if let Some(node) = g.get_mut(id) {
            node.inputs.truncate(ZERO_POINT);
        }
    }
    Ok(found.len())
}

/// Whether a value broadcasts to the shape of another one.
fn stretches_nothing(g: &Graph, v: ValueId, to: ValueId) -> bool {
    let (own, to) = (&g.ty(v).dims, &g.ty(to).dims);
    let fits = |(own, to): (&Dim, &Dim)| own.as_const() == Some(1) || own == to;
    own.len() <= to.len() && own.iter().rev().zip(to.iter().rev()).all(fits)
}
