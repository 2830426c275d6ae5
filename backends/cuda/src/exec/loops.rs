//! Loops of known sizes on the device. Few iterations are unrolled; else the body is that of a node that
//! repeats while a word says so.

mod cells;
mod iteration;
mod repeated;
mod slices;
mod unrolled;

pub use self::cells::copied_an_iteration;
pub use self::iteration::Loop;
#[cfg(feature = "compile")]
pub use self::unrolled::{MOST, USUAL};

use self::iteration::iterations;
use super::fallback::{OnDevice, on_host};
use super::flow::{Flow, Site};
use super::launch::Planned;
use super::planning::{CudaBodies, Operand, Planning, split};
use super::reasons;
use kiln_backend::Shapes;
use kiln_gpu::{Extent, bytes_of};
use kiln_ir::{Dim, LoopOutputKind, LoopShape, Node, TensorType, ValueId};

impl Loop<'_> {
    /// Its commands.
    pub fn planned(&self, flow: &mut Flow<'_>) -> OnDevice<Vec<Planned>> {
        if let Some(n) = self.iterations.filter(|_| !self.shape.condition)
            && let Some(all) = self.unrolled(flow, n)?
        {
            return Ok(all);
        }
        self.repeated(flow)
    }
}

/// Memory for the outputs of a loop: where a condition ends it, for the greatest number of iterations.
pub(super) fn outputs(
    run: &mut Planning<'_>,
    shapes: &Shapes,
    node: &Node,
    site: &Site,
    s: &LoopShape,
    bodies: &mut CudaBodies,
) -> OnDevice<Vec<Operand>> {
    let mut all = Vec::with_capacity(node.outputs.len());
    for (&v, out) in node.outputs.iter().zip(&s.outs) {
        let stacks = out.kind == LoopOutputKind::Concatenate && s.condition && !out.length;
        all.push(match (shapes.shape(v), iterations(site, s)) {
            (None, Some(n)) if stacks => stacked(run, &shapes.fact(v).ty, v, (out.axis, n), bodies)?,
            (None, None) if out.kind != LoopOutputKind::LastValue && !out.length => {
                return on_host(reasons::ITERATIONS);
            }
            _ => run.operand(shapes, v)?,
        });
    }
    Ok(all)
}

/// Memory for values of so many iterations at most, along an axis.
fn stacked(
    run: &mut Planning<'_>,
    ty: &TensorType,
    v: ValueId,
    (axis, iterations): (usize, i64),
    bodies: &mut CudaBodies,
) -> OnDevice<Operand> {
    let mut ty = ty.clone();
    if let Some(d) = ty.dims.get_mut(axis) {
        *d = Dim::new(iterations);
    }
    match (split(&ty, axis), bytes_of(&ty)) {
        // Only one row can be stored at the bound: several would have gaps between them.
        (Some((1, ..)), Ok(most)) if most <= MOST_BOUND => {
            let word = bodies.state.state(run.queue)?;
            run.leave_open(v, Extent::Iterations { word, axis, most: ty.clone() }, most)?;
            Ok(Operand { at: run.run.room(run.queue, v, most)?, ty, content: None })
        }
        (Some((1, ..)), Ok(_)) => on_host(reasons::BOUND),
        _ => on_host(reasons::STACKED_LENGTH),
    }
}

/// Greatest size in bytes of memory for iterations that may not be made.
const MOST_BOUND: u64 = 256 << 20;
