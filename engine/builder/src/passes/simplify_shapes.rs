//! Puts constants in the place of values whose contents inference knows: shapes of static tensors, sizes, axes.

use super::fold_constants::widens_codes;
use super::{Pass, PassCx};
use crate::BuildError;
use kiln_ir::{Graph, Source, ValueId};
use std::collections::HashSet;

/// The pass.
pub const PASS: Pass = Pass { name: "simplify-shapes", run };

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    if !cx.config.fold {
        return Ok(0);
    }
    g.refresh()?;
    let (mut gone, mut codes) = (HashSet::new(), HashSet::new());
    for id in g.order().to_vec() {
        let Some(node) = g.get(id) else { continue };
        let known = |v: &ValueId| g.value(*v).fact.as_const().is_some();
        // Patterns look for the codes of weights and for layers that change these weights. Layers whose results the inputs of a run
        // decide are no such layers: the shapes of their results are known all the same.
        let of_codes =
            node.inputs.iter().flatten().any(|v| codes.contains(v)) && node.outputs.iter().all(known);
        if widens_codes(g, node) || of_codes {
            codes.extend(node.outputs.iter().copied());
            continue;
        }
        if node.op.def().traits.side_effect || !node.outputs.iter().all(known) {
            continue;
        }
        // A weight behind it keeps its recipe: folding is the constant folder's business.
        if node
            .inputs
            .iter()
            .flatten()
            .any(|v| g.weight(*v).is_some_and(|w| w.name.is_some() || w.recipe.is_some()))
        {
            continue;
        }
        let outputs = node.outputs.clone();
        gone.insert(id);
        for v in outputs {
            let def = g.value_mut(v);
            if let Some(t) = def.fact.as_const().cloned() {
                def.source = Source::Weight(kiln_ir::Weight { tensor: t, name: None, recipe: None });
            }
        }
    }
    g.remove_nodes(&gone);
    Ok(gone.len() + g.remove_dead())
}
