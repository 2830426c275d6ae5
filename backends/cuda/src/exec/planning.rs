//! Planning control flow for the device: a run with its queue, and operands whose sizes are known.

use super::fallback::{OnDevice, on_host};
use super::kernel::CudaGpu;
use super::memory::Range;
use super::queue::CudaQueue;
use super::reasons;
use kiln_backend::Shapes;
use kiln_gpu::{Bodies, Extent, Run};
use kiln_ir::{Tensor, TensorType, ValueId};

pub type CudaRun = Run<CudaGpu>;
pub type CudaBodies = Bodies<CudaGpu>;

/// A tensor that bodies read: where it is stored, its type, and its elements if the host knows them.
#[derive(Clone)]
pub struct Operand {
    pub at: Range,
    pub ty: TensorType,
    pub content: Option<Tensor>,
}

impl Operand {
    /// As an input of a body that reads it where it is.
    pub fn lent(&self) -> Input {
        (Some(self.at), self.ty.clone(), self.content.clone())
    }
}

/// An input of a body: where it is stored (`None`: in memory of the body's own), its type, and its elements if they are known.
pub type Input = (Option<Range>, TensorType, Option<Tensor>);

/// Plans steps of a run.
pub struct Planning<'a> {
    pub run: &'a mut CudaRun,
    pub queue: &'a mut CudaQueue,
}

impl Planning<'_> {
    /// The memory of a value.
    pub fn place(&mut self, shapes: &Shapes, v: ValueId) -> OnDevice<Range> {
        Ok(self.run.place(self.queue, shapes, v)?.0)
    }

    /// A value whose size is known.
    pub fn operand(&mut self, shapes: &Shapes, v: ValueId) -> OnDevice<Operand> {
        if shapes.shape(v).is_none() {
            return on_host(reasons::SIZE_OUTSIDE);
        }
        let content = shapes.content(&self.run.loaded.program.graph, v);
        let at = self.place(shapes, v)?;
        // Control flow inside of a loop copies what it is given, decides by it, or lends it to others.
        Ok(Operand { at: self.run.memory.notes.fixed(at), ty: shapes.fact(v).ty.clone(), content })
    }

    /// Lets the size of a value be known only behind the run, if nobody needs it before.
    pub fn leave_open(&mut self, v: ValueId, extent: Extent, most: u64) -> OnDevice<()> {
        let graph = &self.run.loaded.program.graph;
        if !self.run.may_leave_open || graph.nodes().any(|(_, n)| n.inputs.contains(&Some(v))) {
            return on_host(reasons::WANTED_SIZE);
        }
        if self.run.memory.bound.outputs.get(&v).is_some_and(|r| r.size < most) {
            return on_host(reasons::BOUND_MEMORY);
        }
        self.run.open.insert(v, extent);
        Ok(())
    }

    /// The extent of a value whose step was planned.
    pub fn extent(&self, shapes: &Shapes, v: ValueId) -> OnDevice<Extent> {
        let ty = &shapes.fact(v).ty;
        match (ty.static_dims(), self.run.open.get(v)) {
            (Some(_), _) => Ok(Extent::Known(ty.clone())),
            (None, Some(open)) => Ok(open.clone()),
            (None, None) => on_host(reasons::SIZE_INSIDE),
        }
    }
}

/// Rows before the axis, its length, bytes of what is behind it; none where elements share bytes.
pub fn split(ty: &TensorType, axis: usize) -> Option<(usize, usize, usize)> {
    let shape = ty.static_dims()?;
    let bits = ty.dtype.bits() as usize;
    let (before, rest) = shape.split_at_checked(axis)?;
    let (&length, after) = rest.split_first()?;
    let inner = after.iter().product::<usize>() * bits / 8;
    bits.is_multiple_of(8).then(|| (before.iter().product(), length, inner))
}
