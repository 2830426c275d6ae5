//! Least work of a step: bytes that move, and operations.

use kiln_backend::{Program, Shapes, Step};
use kiln_ir::graph::Uses;
use kiln_ir::{TensorType, ValueId};
use std::collections::HashSet;

/// Least work of a step at the shapes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerCost {
    /// Bytes of all that it reads from outside and of all that is read of it. Of what it reads by indices as much counts as it makes.
    pub bytes: u64,
    /// Multiplications and additions of products, or as much work of other operators beyond one pass over their elements.
    pub operations: u64,
}

impl LayerCost {
    /// The work of a step of a program; `None` where the run determines shapes or the step has bodies.
    pub(super) fn of(program: &Program, uses: &Uses, shapes: &Shapes, step: &Step) -> Option<LayerCost> {
        let g = &program.graph;
        let ty = |v: ValueId| &shapes.fact(v).ty;
        let bytes = |v: ValueId| bytes(ty(v));
        let own: HashSet<_> = step.nodes.iter().copied().collect();
        let (mut seen, mut cost) = (HashSet::new(), LayerCost { bytes: 0, operations: 0 });
        if !step.bodies.is_empty() {
            return None;
        }
        for node in step.nodes.iter().filter_map(|&n| g.get(n)) {
            let made = node.outputs.iter().map(|&v| bytes(v)).sum::<Option<u64>>()?;
            for (i, v) in node.inputs.iter().enumerate().filter_map(|(i, v)| Some((i, (*v)?))) {
                if g.producer(v).is_some_and(|(n, _)| own.contains(&n)) || !seen.insert(v) {
                    continue;
                }
                let all = bytes(v)?;
                let by_index = i == 0 && node.op.def().ranges.is_some();
                cost.bytes += if by_index { all.min(made) } else { all };
            }
            for &v in &node.outputs {
                let outside = uses.is_output(v) || uses.of_value(v).iter().any(|(n, _)| !own.contains(n));
                cost.bytes += if outside { bytes(v)? } else { 0 };
            }
            let inputs: Vec<_> = node.inputs.iter().map(|v| v.map(ty)).collect();
            let outputs: Vec<_> = node.outputs.iter().map(|&v| ty(v)).collect();
            cost.operations += 2 * node.op.work(&inputs, &outputs).beyond;
        }
        Some(cost)
    }
}

fn bytes(ty: &TensorType) -> Option<u64> {
    ty.dtype.bytes_for(u64::try_from(ty.static_volume()?).ok()?)
}
