//! Lets one of several equal constants serve the readers of all, so that layers that read them are seen to be equal: exporters repeat
//! tables and norms for each layer that reads them.

use super::{Pass, PassCx};
use crate::{BuildError, Refit};
use kiln_ir::{DType, Graph, NodeId, ValueId};
use std::collections::HashMap;

/// Bytes by which constants of one type are told apart before all are compared.
const BEGINNING: usize = 64;

/// The pass. A refit may tell named constants apart: there they stay.
pub const PASS: Pass = Pass { name: "equal-weights", run };

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    if !cx.config.fold || cx.config.refit != Refit::Off {
        return Ok(0);
    }
    let mut known: HashMap<(DType, Vec<usize>, Vec<u8>), Vec<ValueId>> = HashMap::new();
    let mut kept: HashMap<ValueId, ValueId> = HashMap::new();
    for v in g.value_ids().collect::<Vec<_>>() {
        let Some(w) = g.weight(v).filter(|w| w.recipe.is_none() && !g.outputs.contains(&v)) else { continue };
        let (t, bytes) = (&w.tensor, w.tensor.bytes());
        let start = bytes.get(..BEGINNING).unwrap_or(bytes).to_vec();
        let alike = known.entry((t.dtype(), t.shape().to_vec(), start)).or_default();
        let same = |k: &&ValueId| g.weight(**k).is_some_and(|other| other.tensor.bytes() == bytes);
        match alike.iter().find(same).copied() {
            Some(first) => drop(kept.insert(v, first)),
            None => alike.push(v),
        }
    }
    let reads = |id: &NodeId| {
        let node = g.get(*id);
        node.is_some_and(|n| n.inputs.iter().flatten().any(|v| kept.contains_key(v)))
    };
    for id in g.order().iter().copied().filter(reads).collect::<Vec<_>>() {
        let inputs = g.get_mut(id).into_iter().flat_map(|n| n.inputs.iter_mut().flatten());
        inputs.for_each(|v| *v = kept.get(v).copied().unwrap_or(*v));
    }
    Ok(kept.len())
}
