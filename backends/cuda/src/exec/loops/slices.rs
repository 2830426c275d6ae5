//! Elements of tensors that iterations take, and parts of outputs that they add.

use super::super::fallback::{Fallback, OnDevice, on_host};
use super::super::memory::Range;
use super::super::moves::{Factor, Move};
use super::super::planning::{Operand, split};
use super::super::reasons;
use kiln_ir::TensorType;

/// Kernels load 16 bytes at once.
const ALIGNMENT: u64 = 16;

/// The elements of a tensor along an axis, in the order of the iterations.
pub(super) struct Slices {
    pub(super) ty: TensorType,
    at: u64,
    step: i64,
    pitch: u64,
    rows: u32,
    width: u32,
}

impl Slices {
    pub(super) fn new(whole: &Operand, axis: usize, reverse: bool, iterations: i64) -> OnDevice<Slices> {
        let mut ty = whole.ty.clone();
        let Some((rows, length, inner)) = split(&ty, axis) else { return on_host(reasons::PACKED) };
        ty.dims.remove(axis);
        let step = inner as i64;
        let start = if reverse { (iterations - 1).max(0) * step } else { 0 };
        let small = |n: usize| u32::try_from(n).map_err(|_| Fallback::Host(reasons::LONG_ROWS));
        Ok(Slices {
            ty,
            at: whole.at.address.wrapping_add_signed(start),
            step: if reverse { -step } else { step },
            pitch: (length * inner) as u64,
            rows: small(rows)?,
            width: small(inner)?,
        })
    }

    pub(super) fn address(&self, iteration: i64) -> u64 {
        self.at.wrapping_add_signed(self.step * iteration)
    }

    /// Range of one element, if a kernel can use it in place.
    pub(super) fn place(&self, iteration: i64) -> Option<Range> {
        let at = self.address(iteration);
        let fits = self.rows == 1 && at.is_multiple_of(ALIGNMENT);
        fits.then_some(Range { address: at, size: u64::from(self.width) })
    }

    /// Whether a kernel can use all of them in place.
    fn fits(&self) -> bool {
        let even = self.at.is_multiple_of(ALIGNMENT) && self.step.unsigned_abs().is_multiple_of(ALIGNMENT);
        self.rows == 1 && self.width > 0 && even
    }

    /// Range of the elements for kernels that read the address in a cell, if they can use it in place.
    pub(super) fn in_cell(&self, cell: u64) -> Option<Range> {
        self.fits().then(|| Range::cell(cell, u64::from(self.width)))
    }

    /// Writes the address of the next iteration's element into the cell.
    pub(super) fn tell(&self, cell: u64) -> Move {
        Move::address(self.at, self.step, cell)
    }

    /// Copies to or from memory where they lie together.
    pub(super) fn load(&self, to: u64, factor: Factor) -> Move {
        let (width, rows) = (self.width, self.rows);
        let (from_step, to_step, to_pitch) = (self.step, 0, u64::from(width));
        Move {
            from: Some(self.at),
            to,
            from_step,
            to_step,
            from_pitch: self.pitch,
            to_pitch,
            rows,
            width,
            factor,
        }
    }

    pub(super) fn store(&self, from: u64) -> Move {
        let (width, rows) = (self.width, self.rows);
        let (from_step, to_step, from_pitch) = (0, self.step, u64::from(width));
        let (to, to_pitch, factor) = (self.at, self.pitch, Factor::Made);
        Move { from: Some(from), to, from_step, to_step, from_pitch, to_pitch, rows, width, factor }
    }
}

/// The move of one iteration.
pub(super) fn at_iteration(m: &Move, iteration: i64) -> Move {
    let shift = |at: u64, step: i64| at.wrapping_add_signed(step * iteration);
    let (from, to) = (m.from.map(|at| shift(at, m.from_step)), shift(m.to, m.to_step));
    Move { from, to, from_step: 0, to_step: 0, factor: Factor::Made, ..*m }
}
