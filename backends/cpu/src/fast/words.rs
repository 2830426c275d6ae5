//! Products of matrices of 8-bit numbers: rows are widened to words of 16 bits block by block, columns are packed once.

use super::kept::{Kept, Panels};
use super::micro::MAX_ROWS;
use super::micro_integer::{Micro, TILE};
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use std::sync::Arc;

/// Words of rows that a task widens at once.
const WIDENED: usize = 64 << 10;
/// Products that a task makes at least.
const TASK: usize = 64 << 10;

/// Numbers of 8 bits, with or without sign.
#[derive(Clone, Copy)]
pub struct Narrow<'a> {
    pub bytes: &'a [u8],
    pub signed: bool,
}

impl<'a> Narrow<'a> {
    /// The elements of a tensor of 8-bit numbers.
    pub fn of(dtype: DType, bytes: &'a [u8]) -> Option<Narrow<'a>> {
        matches!(dtype, DType::I8 | DType::U8).then_some(Narrow { bytes, signed: dtype == DType::I8 })
    }

    /// The elements from one on.
    pub fn from(&self, at: usize) -> Narrow<'a> {
        Narrow { bytes: self.bytes.get(at..).unwrap_or_default(), ..*self }
    }

    /// One element.
    pub fn at(&self, i: usize) -> i16 {
        let byte = self.bytes[i];
        if self.signed { i16::from(byte as i8) } else { i16::from(byte) }
    }

    /// Neighbours, as many as there is room for.
    pub fn widen(&self, at: usize, to: &mut [i16]) {
        let from = &self.bytes[at..at + to.len()];
        match self.signed {
            true => to.iter_mut().zip(from).for_each(|(to, &x)| *to = i16::from(x as i8)),
            false => to.iter_mut().zip(from).for_each(|(to, &x)| *to = i16::from(x)),
        }
    }
}

/// The left matrix, m × k.
pub trait Rows: Sync {
    /// Writes all words of a row.
    fn fill(&self, row: usize, to: &mut [i16]);
}

/// The right matrix, k × n: an element by row and column.
pub trait Columns: Sync {
    /// The element of a row and a column.
    fn at(&self, k: usize, j: usize) -> i16;
}

/// A matrix by strides.
pub struct Strided<'a> {
    pub data: Narrow<'a>,
    pub row: usize,
    pub col: usize,
}

impl Rows for Strided<'_> {
    fn fill(&self, row: usize, to: &mut [i16]) {
        let first = row * self.row;
        match self.col {
            1 => self.data.widen(first, to),
            step => to.iter_mut().enumerate().for_each(|(k, to)| *to = self.data.at(first + k * step)),
        }
    }
}

impl Columns for Strided<'_> {
    fn at(&self, k: usize, j: usize) -> i16 {
        self.data.at(k * self.row + j * self.col)
    }
}

/// Sizes of a product.
#[derive(Clone, Copy)]
pub struct Size {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// Places of the elements of the result: row r and column j are at `first + start(r) + j·column`.
pub struct Target<'a> {
    parts: Parts<'a, i32>,
    pub first: usize,
    /// Elements from column to column.
    pub column: usize,
    /// Rows of an image, and elements from row to row and from image to image.
    pub rows: [usize; 3],
}

impl<'a> Target<'a> {
    /// A dense matrix.
    pub fn dense(c: &'a mut [i32], n: usize) -> Target<'a> {
        Target { parts: Parts::new(c), first: 0, column: 1, rows: [usize::MAX, n, 0] }
    }

    /// Elements of a tensor.
    pub fn of(c: &'a mut [i32], first: usize, column: usize, rows: [usize; 3]) -> Target<'a> {
        Target { parts: Parts::new(c), first, column, rows }
    }

    /// Writes neighbours of a row, from column j on.
    ///
    /// # Safety
    /// Nobody else writes them now.
    unsafe fn write(&self, row: usize, j: usize, tile: &[i32]) {
        let [many, step, image] = self.rows;
        let at = self.first + row / many * image + row % many * step + j * self.column;
        if self.column == 1 {
            // SAFETY: as the contract says.
            unsafe { self.parts.part(at, at + tile.len()) }.copy_from_slice(tile);
            return;
        }
        for (i, &x) in tile.iter().enumerate() {
            let at = at + i * self.column;
            // SAFETY: as the contract says.
            let to = unsafe { self.parts.part(at, at + 1) };
            to.fill(x);
        }
    }
}

/// The panels of columns, two rows at a time: kept ones where the columns are weights.
pub fn panels(s: Size, b: &dyn Columns, kept: Option<(&Kept, usize)>) -> Result<Arc<Panels>, BackendError> {
    let nr = Micro::best().nr;
    let pairs = s.k.div_ceil(2);
    Kept::of(kept, s.n.next_multiple_of(nr) * pairs, |all: &mut [[i16; 2]]| {
        threads::chunks(all, nr * pairs, 1, |i, out| {
            for (k, line) in out.chunks_exact_mut(nr).enumerate() {
                for (j, to) in (i * nr..s.n).zip(line) {
                    let second = if 2 * k + 1 < s.k { b.at(2 * k + 1, j) } else { 0 };
                    *to = [b.at(2 * k, j), second];
                }
            }
        });
    })
}

/// Writes a·b plus a number a column.
pub fn product(s: Size, a: &dyn Rows, b: &Panels, bias: Option<&[i32]>, c: &Target<'_>) {
    if s.m == 0 || s.n == 0 {
        return;
    }
    let micro = Micro::best();
    let nr = micro.nr;
    let (high, pairs) = (micro.strip(s.m), s.k.div_ceil(2));
    let strips = s.m.div_ceil(high);
    let wanted = (4 * threads::count()).min((s.m * s.n * s.k).div_ceil(TASK));
    let most = (WIDENED / (2 * pairs * high).max(1)).max(1);
    let band = strips.div_ceil(wanted.max(1)).clamp(1, most);
    let bands = strips.div_ceil(band);
    // Few bands divide the columns as well.
    let blocks = wanted.div_ceil(bands).clamp(1, s.n.div_ceil(nr));
    let width = s.n.div_ceil(blocks).next_multiple_of(nr);
    let blocks = s.n.div_ceil(width);
    let points = Checkpoints::here();
    let panels: &[[i16; 2]] = b.data();
    threads::each(bands * blocks, |task| {
        let rows = task / blocks * band * high..s.m.min((task / blocks + 1) * band * high);
        let cols = task % blocks * width..s.n.min((task % blocks + 1) * width);
        let mut room = vec![[0i16; 2]; rows.len() * pairs];
        for (row, to) in rows.clone().zip(room.chunks_exact_mut(pairs.max(1))) {
            a.fill(row, &mut bytemuck::cast_slice_mut(to)[..s.k]);
        }
        let mut tile = [0i32; TILE];
        for j in cols.clone().step_by(nr) {
            points.pass();
            let panel = &panels[j / nr * nr * pairs..(j / nr + 1) * nr * pairs];
            let now = nr.min(cols.end - j);
            for first in rows.clone().step_by(high) {
                let count = high.min(rows.end - first);
                let mut left = [&[][..]; MAX_ROWS];
                for (i, to) in left.iter_mut().enumerate().take(count) {
                    *to = &room[(first - rows.start + i) * pairs..][..pairs];
                }
                micro.run(count, &left, panel, &mut tile);
                for (i, tile) in tile.chunks_exact_mut(nr).enumerate().take(count) {
                    if let Some(bias) = bias {
                        tile.iter_mut().zip(&bias[j..j + now]).for_each(|(x, &b)| *x = x.wrapping_add(b));
                    }
                    // SAFETY: each block of rows and columns belongs to one task.
                    unsafe { c.write(first + i, j, &tile[..now]) };
                }
            }
        }
    });
}
