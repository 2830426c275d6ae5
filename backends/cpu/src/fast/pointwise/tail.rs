//! Pointwise layers after a kernel, computed on parts of its result while those are in the cache.

use super::block::{Made, Source, block};
use super::lanes::BLOCK;
pub use super::lanes::Lanes;
use super::loops;
use super::walk::Walk;
use crate::threads::Parts;
use crate::value::{Out, Val};
use kiln_ir::DType;

/// An expression of a kernel's result and of other values.
pub struct Tail<'a> {
    made: &'a Made,
    sources: Vec<Source<'a>>,
}

/// A tail of a result, or of a part of it that begins at an element.
#[derive(Clone, Copy)]
pub struct At<'a> {
    tail: &'a Tail<'a>,
    first: usize,
}

/// Memory of a kernel's results, which it computes as sums in i32: these themselves, or what layers behind make of them.
pub struct Results<'a> {
    bytes: Parts<'a, u8>,
    /// Bytes of a result.
    size: usize,
    tail: Option<At<'a>>,
}

impl<'a> Results<'a> {
    /// Sums as a dense matrix.
    pub fn sums(to: &'a mut [i32]) -> Results<'a> {
        Results { bytes: Parts::new(bytemuck::cast_slice_mut(to)), size: size_of::<i32>(), tail: None }
    }

    /// A tensor of i32, or of what a tail makes.
    pub fn of(out: &'a mut Out, tail: Option<At<'a>>) -> Results<'a> {
        Results { size: out.size(), bytes: Parts::new(out.bytes_mut()), tail }
    }

    /// Memory of one task.
    pub fn room(&self) -> Option<Lanes<'a>> {
        self.tail.map(|t| t.room())
    }

    /// Writes neighbouring results, from one on.
    ///
    /// # Safety
    /// Nobody else writes them now.
    pub unsafe fn write(&self, at: usize, sums: &[i32], room: &mut Option<Lanes<'a>>) {
        // SAFETY: as the contract says.
        let to = unsafe { self.bytes.part(at * self.size, (at + sums.len()) * self.size) };
        match (self.tail, room) {
            (Some(tail), Some(room)) => tail.convert(room, at, sums, to),
            _ => to.copy_from_slice(bytemuck::cast_slice(sums)),
        }
    }
}

impl<'a> Tail<'a> {
    /// The expression of values that are broadcast to the shape of the result, the result itself where there is none.
    pub fn new(made: &'a Made, args: &'a [Option<Val>], shape: &[usize]) -> Tail<'a> {
        let source = |v: &'a Option<Val>| match v {
            Some(v) => Source::Given(v, Walk::new(v.shape(), shape)),
            None => Source::Output,
        };
        Tail { made, sources: args.iter().map(source).collect() }
    }

    /// The tail of the whole result.
    pub fn whole(&'a self) -> At<'a> {
        At { tail: self, first: 0 }
    }

    /// The type of the elements that it makes.
    pub fn result(&self) -> DType {
        self.made.expr.result_type()
    }
}

impl<'a> At<'a> {
    /// The tail of what begins at an element of this part.
    pub fn from(self, element: usize) -> At<'a> {
        At { first: self.first + element, ..self }
    }

    /// The type of the elements that it makes.
    pub fn result(&self) -> DType {
        self.tail.result()
    }

    /// Memory of one task.
    pub fn room(&self) -> Lanes<'a> {
        match self.short() {
            Some(_) => Lanes::none(),
            None => Lanes::new(&self.tail.made.expr, self.tail.made.code.as_ref()),
        }
    }

    /// The bound and the other summands, if the expression is that the kernel's floats are raised to a bound. As many others may be added
    /// to them first.
    fn short(&self) -> Option<(f32, Option<&'a [f32]>)> {
        let short = self.tail.made.short?;
        match &self.tail.sources[..] {
            [Source::Output] if !short.sum => Some((short.bound, None)),
            [Source::Output, Source::Given(v, walk)] | [Source::Given(v, walk), Source::Output]
                if short.sum =>
            {
                walk.is_whole().then(|| v.view())?.map(|v| (short.bound, Some(v)))
            }
            _ => None,
        }
    }

    /// Computes elements, from one on, in the place of the kernel's.
    pub fn apply(&self, room: &mut Lanes<'a>, start: usize, part: &mut [f32]) {
        match self.short() {
            Some((bound, None)) => return loops::raise(part, bound),
            Some((bound, Some(others))) => {
                return loops::raise_sum(part, &others[self.first + start..], bound);
            }
            None => {}
        }
        for (i, part) in part.chunks_mut(BLOCK).enumerate() {
            let at = self.first + start + i * BLOCK;
            block(&self.tail.made.expr, &self.tail.sources, room, (at, None), bytemuck::cast_slice_mut(part));
        }
    }

    /// Computes elements, from one on, from the kernel's.
    pub fn convert(&self, room: &mut Lanes<'a>, start: usize, from: &[i32], to: &mut [u8]) {
        let size = to.len().checked_div(from.len()).unwrap_or(1).max(1);
        for (i, (from, to)) in from.chunks(BLOCK).zip(to.chunks_mut(BLOCK * size)).enumerate() {
            let at = self.first + start + i * BLOCK;
            block(&self.tail.made.expr, &self.tail.sources, room, (at, Some(bytemuck::cast_slice(from))), to);
        }
    }
}
