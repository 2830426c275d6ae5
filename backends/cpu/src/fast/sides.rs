//! The two sides of a matrix product, and where it goes.

use super::micro::{MAX_ROWS, Place};
use crate::threads::Parts;
use std::ops::Range;

/// The left matrix, m × k, given by stretches of its rows.
pub trait Left: Sync {
    /// The columns `depth` of some rows, at most [`MAX_ROWS`]: where they lie, or copied to `room`, which has as many elements.
    fn rows<'r>(
        &'r self,
        rows: Range<usize>,
        depth: Range<usize>,
        room: &'r mut [f32],
    ) -> [&'r [f32]; MAX_ROWS];

    /// Whether rows may be copied to the room.
    fn copies(&self) -> bool {
        true
    }

    /// The matrix, if it is stored by strides.
    fn strided(&self) -> Option<&Strided<'_>> {
        None
    }
}

/// The right matrix, k × n, given by panels.
pub trait Right: Sync {
    /// Fills `out[(p − k.start)·nr + (j − cols.start)]` with element (p, j) for all of `k` and `cols` (at most `nr`
    /// columns), and the columns that lack with zeros.
    fn pack(&self, k: Range<usize>, cols: Range<usize>, nr: usize, out: &mut [f32]);

    /// The matrix, if it is stored by strides.
    fn strided(&self) -> Option<&Strided<'_>> {
        None
    }
}

/// Summand of every element of a product.
#[derive(Clone, Copy)]
pub enum Bias<'a> {
    /// No summand.
    None,
    /// One number a row.
    Rows(&'a [f32]),
    /// One number a column.
    Columns(&'a [f32]),
}

impl Bias<'_> {
    /// Adds the summands of elements of a row, from a column on.
    pub fn add(&self, row: usize, col: usize, out: &mut [f32]) {
        match self {
            Bias::None => {}
            Bias::Rows(b) => out.iter_mut().for_each(|o| *o += b[row]),
            Bias::Columns(b) => out.iter_mut().zip(&b[col..]).for_each(|(o, b)| *o += b),
        }
    }
}

/// A matrix by strides.
#[derive(Clone, Copy)]
pub struct Strided<'a> {
    /// The elements.
    pub data: &'a [f32],
    /// Elements from row to row.
    pub row: usize,
    /// Elements from column to column.
    pub col: usize,
}

/// Slices of `room`, each of `len` elements.
pub fn slices(room: &[f32], len: usize, count: usize) -> [&[f32]; MAX_ROWS] {
    let mut all = [&[][..]; MAX_ROWS];
    all.iter_mut().zip(room.chunks_exact(len.max(1))).take(count).for_each(|(to, from)| *to = from);
    all
}

impl Left for Strided<'_> {
    fn copies(&self) -> bool {
        self.col != 1
    }

    fn strided(&self) -> Option<&Strided<'_>> {
        Some(self)
    }

    fn rows<'r>(
        &'r self,
        rows: Range<usize>,
        depth: Range<usize>,
        room: &'r mut [f32],
    ) -> [&'r [f32]; MAX_ROWS] {
        let len = depth.len();
        let count = rows.len();
        if self.col == 1 {
            let mut all = [&[][..]; MAX_ROWS];
            for (to, r) in all.iter_mut().zip(rows) {
                *to = &self.data[r * self.row + depth.start..][..len];
            }
            return all;
        }
        // Neighbours in memory are read together.
        for (p, k) in depth.enumerate() {
            for (i, r) in rows.clone().enumerate() {
                room[i * len + p] = self.data[r * self.row + k * self.col];
            }
        }
        slices(room, len, count)
    }
}

impl Right for Strided<'_> {
    fn strided(&self) -> Option<&Strided<'_>> {
        Some(self)
    }

    fn pack(&self, k: Range<usize>, cols: Range<usize>, nr: usize, out: &mut [f32]) {
        let n = cols.len();
        if self.row == 1 && self.col != 1 {
            // Rows of the matrix's transpose are read in order.
            if n < nr {
                out.fill(0.0);
            }
            for j in 0..n {
                let start = (cols.start + j) * self.col;
                let column = &self.data[start + k.start..start + k.end];
                for (line, &x) in out.chunks_exact_mut(nr).zip(column) {
                    line[j] = x;
                }
            }
            return;
        }
        for (p, line) in k.clone().zip(out.chunks_exact_mut(nr)) {
            let (now, rest) = line.split_at_mut(n);
            let start = p * self.row + cols.start * self.col;
            rest.fill(0.0);
            if self.col == 1 {
                let from = &self.data[start..start + n];
                match n {
                    // Whole vectors, without a call.
                    8 => whole::<8>(from, now),
                    16 => whole::<16>(from, now),
                    32 => whole::<32>(from, now),
                    _ => now.copy_from_slice(from),
                }
            } else {
                now.iter_mut().enumerate().for_each(|(j, x)| *x = self.data[start + j * self.col]);
            }
        }
    }
}

/// Copies `N` elements.
#[inline(always)]
fn whole<const N: usize>(from: &[f32], to: &mut [f32]) {
    if let (Some(from), Some(to)) = (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
        *to = *from;
    }
}

/// Sizes of a product.
#[derive(Clone, Copy)]
pub struct Size {
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Products in a sum.
    pub k: usize,
}

/// The matrix that a product is written to: row r begins at `first + r·stride`.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    parts: &'a Parts<'a, f32>,
    stride: usize,
    first: usize,
}

impl<'a> Target<'a> {
    /// A matrix inside of a slice.
    pub fn new(parts: &'a Parts<'a, f32>, stride: usize, first: usize) -> Target<'a> {
        Target { parts, stride, first }
    }

    /// Some elements of a row.
    ///
    /// # Safety
    /// No two such parts that are in use at once have an element in common.
    #[allow(clippy::mut_from_ref, reason = "parts are disjoint, as the contract says")]
    pub unsafe fn row(&self, r: usize, cols: Range<usize>) -> &mut [f32] {
        let at = self.first + r * self.stride;
        // SAFETY: disjoint, as the contract says.
        unsafe { self.parts.part(at + cols.start, at + cols.end) }
    }

    /// A tile of some rows; `None` if it is not all inside.
    pub fn tile(&self, rows: &Range<usize>, col: usize, width: usize) -> Option<Place<f32>> {
        let at = |r: usize| self.first + r * self.stride + col;
        let first = self.parts.address(at(rows.start), at(rows.end.max(1) - 1) + width)?;
        Some(Place { first, stride: self.stride })
    }

    /// Whether rows lie one after the other.
    pub fn joined(&self, rows: &Range<usize>, cols: &Range<usize>) -> bool {
        cols.len() == self.stride || rows.len() == 1
    }

    /// Some elements of rows that are joined, and the place of the first.
    ///
    /// # Safety
    /// No two such parts that are in use at once have an element in common.
    #[allow(clippy::mut_from_ref, reason = "parts are disjoint, as the contract says")]
    pub unsafe fn rows(&self, r: usize, count: usize, cols: Range<usize>) -> (usize, &mut [f32]) {
        let at = self.first + r * self.stride + cols.start;
        // SAFETY: disjoint, as the contract says.
        (at, unsafe { self.parts.part(at, at + (count - 1) * self.stride + cols.len()) })
    }
}
