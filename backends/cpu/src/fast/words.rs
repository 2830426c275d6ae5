//! Products of matrices of 8-bit numbers, or of 16. Rows are widened to words of 16 bits block by block, and columns are packed once. Where sums of
//! two products fit 16 bits, or the processor adds four in 32, rows and columns stay bytes.

use super::copy::{self, Map};
use super::kept::{Kept, Panels};
use super::micro::{MAX_ROWS, Micro, Panel, Place, Start};
use super::micro_integer::{self, Four, Pair};
use super::pointwise::tail::{At, Results};
use super::short;
use super::simd::vectorized;
use crate::threads;
use crate::value::{Out, Val};
use bytemuck::Pod;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Words of rows that a task makes at once.
const WIDENED: usize = 64 << 10;
/// Sums that a task makes at once.
const SUMS: usize = 16 << 10;
/// Products that a task makes at least.
const TASK: usize = 64 << 10;
/// Elements of a row that are packed at once.
const PACKED: usize = 32;
/// Rows of a group at most.
const MOST: usize = 4;

/// Numbers of 8 bits, with or without sign, or of 16.
#[derive(Clone, Copy)]
pub enum Narrow<'a> {
    Signed(&'a [u8]),
    Unsigned(&'a [u8]),
    Words(&'a [i16]),
}

/// The elements of a tensor as narrow numbers, copied where they are stored in 32 bits.
pub enum Stored<'a> {
    Bytes(Narrow<'a>),
    Words(Vec<i16>),
}

impl<'a> Stored<'a> {
    /// Numbers of 8 bits, or of 32 that all fit 16, as those of 8 bits less a zero point do; `None` of others.
    pub fn of(v: &'a Val) -> Option<Stored<'a>> {
        match v.dtype() {
            DType::I8 => Some(Stored::Bytes(Narrow::Signed(v.bytes()))),
            DType::U8 => Some(Stored::Bytes(Narrow::Unsigned(v.bytes()))),
            DType::I32 => Some(Stored::Words(words_of(v.view()?)?)),
            _ => None,
        }
    }

    /// The elements.
    pub fn narrow(&self) -> Narrow<'_> {
        match self {
            Stored::Bytes(x) => *x,
            Stored::Words(x) => Narrow::Words(x),
        }
    }
}

/// Words of integers, if all of them fit.
fn words_of(x: &[i32]) -> Option<Vec<i16>> {
    let mut y = vec![0; x.len()];
    let fits = AtomicBool::new(true);
    threads::chunks(&mut y, WIDENED, 1, |i, y| {
        if !narrowed(&x[i * WIDENED..], y) {
            fits.store(false, Ordering::Relaxed);
        }
    });
    fits.into_inner().then_some(y)
}

vectorized! {
    /// Cuts integers to words; false where that changes one.
    fn narrowed(x: &[i32], y: &mut [i16]) -> bool {
        let mut lost = 0;
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x as i16;
            lost |= x ^ i32::from(x as i16);
        }
        lost == 0
    }
}

impl<'a> Narrow<'a> {
    /// The elements from one on.
    pub fn from(&self, at: usize) -> Narrow<'a> {
        match self {
            Narrow::Signed(x) => Narrow::Signed(x.get(at..).unwrap_or_default()),
            Narrow::Unsigned(x) => Narrow::Unsigned(x.get(at..).unwrap_or_default()),
            Narrow::Words(x) => Narrow::Words(x.get(at..).unwrap_or_default()),
        }
    }

    /// One element.
    #[inline(always)]
    pub fn at(&self, i: usize) -> i16 {
        match self {
            Narrow::Signed(x) => i16::from(x[i] as i8),
            Narrow::Unsigned(x) => i16::from(x[i]),
            Narrow::Words(x) => x[i],
        }
    }

    /// Neighbours as bytes.
    #[inline(always)]
    pub fn copy(&self, at: usize, to: &mut [u8]) {
        match self {
            Narrow::Signed(x) | Narrow::Unsigned(x) => {
                short::copy::<u8, 16>(&x[at..at + to.len()], to);
            }
            Narrow::Words(x) => to.iter_mut().zip(&x[at..]).for_each(|(to, &x)| *to = x as u8),
        }
    }

    /// Neighbours, as many as there is room for.
    #[inline(always)]
    pub fn widen(&self, at: usize, to: &mut [i16]) {
        let from = at..at + to.len();
        match self {
            Narrow::Signed(x) => to.iter_mut().zip(&x[from]).for_each(|(to, &x)| *to = i16::from(x as i8)),
            Narrow::Unsigned(x) => to.iter_mut().zip(&x[from]).for_each(|(to, &x)| *to = i16::from(x)),
            Narrow::Words(x) => short::copy::<i16, 8>(&x[from], to),
        }
    }

    /// The elements where they are bytes.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Narrow::Signed(x) | Narrow::Unsigned(x) => x,
            Narrow::Words(_) => &[],
        }
    }

    /// Whether elements are bytes without sign.
    pub fn is_unsigned(&self) -> bool {
        matches!(self, Narrow::Unsigned(_))
    }

    /// Whether elements are bytes with a sign.
    pub fn is_signed(&self) -> bool {
        matches!(self, Narrow::Signed(_))
    }
}

/// The left matrix, m × k.
pub trait Rows: Sync {
    /// Writes all elements of some rows as words, the first `k` of each `pitch`.
    fn words(&self, rows: Range<usize>, k: usize, pitch: usize, to: &mut [i16]);

    /// Writes all elements of some rows as they are, the first `k` of each `pitch`.
    fn bytes(&self, rows: Range<usize>, k: usize, pitch: usize, to: &mut [u8]);

    /// Whether elements are bytes without sign.
    fn unsigned(&self) -> bool;
}

/// The right matrix, k × n: an element by row and column.
pub trait Columns: Sync {
    /// The element of a row and a column.
    fn at(&self, k: usize, j: usize) -> i16;

    /// Some neighbouring elements of a row.
    fn line(&self, k: usize, j: usize, to: &mut [i16]) {
        to.iter_mut().enumerate().for_each(|(i, to)| *to = self.at(k, j + i));
    }

    /// Whether elements are bytes with a sign.
    fn signed(&self) -> bool;
}

/// A matrix by strides.
pub struct Strided<'a> {
    pub data: Narrow<'a>,
    pub row: usize,
    pub col: usize,
}

impl Rows for Strided<'_> {
    fn words(&self, rows: Range<usize>, k: usize, pitch: usize, to: &mut [i16]) {
        for (row, to) in rows.zip(to.chunks_exact_mut(pitch)) {
            let (first, to) = (row * self.row, &mut to[..k]);
            match self.col {
                1 => self.data.widen(first, to),
                step => to.iter_mut().enumerate().for_each(|(k, to)| *to = self.data.at(first + k * step)),
            }
        }
    }

    fn bytes(&self, rows: Range<usize>, k: usize, pitch: usize, to: &mut [u8]) {
        for (row, to) in rows.zip(to.chunks_exact_mut(pitch)) {
            let (first, to) = (row * self.row, &mut to[..k]);
            match self.col {
                1 => self.data.copy(first, to),
                step => {
                    to.iter_mut().enumerate().for_each(|(k, to)| *to = self.data.at(first + k * step) as u8)
                }
            }
        }
    }

    fn unsigned(&self) -> bool {
        self.data.is_unsigned()
    }
}

impl Columns for Strided<'_> {
    fn at(&self, k: usize, j: usize) -> i16 {
        self.data.at(k * self.row + j * self.col)
    }

    fn line(&self, k: usize, j: usize, to: &mut [i16]) {
        match self.col {
            1 => self.data.widen(k * self.row + j, to),
            col => {
                to.iter_mut().enumerate().for_each(|(i, to)| *to = self.data.at(k * self.row + (j + i) * col))
            }
        }
    }

    fn signed(&self) -> bool {
        self.data.is_signed()
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
    to: Results<'a>,
    pub first: usize,
    /// Elements from column to column.
    pub column: usize,
    /// Rows of an image, and elements from row to row and from image to image.
    pub rows: [usize; 3],
}

impl<'a> Target<'a> {
    /// A dense matrix.
    pub fn dense(c: &'a mut [i32], n: usize) -> Target<'a> {
        Target { to: Results::sums(c), first: 0, column: 1, rows: [usize::MAX, n, 0] }
    }

    /// Elements of a tensor from one on, in the order of a dense matrix of `n` columns: of i32, or of what the tail makes.
    pub fn of(out: &'a mut Out, tail: Option<At<'a>>, n: usize) -> Target<'a> {
        Target { to: Results::of(out, tail), first: 0, column: 1, rows: [usize::MAX, n, 0] }
    }

    /// Writes some rows of sums, `wide` elements apart, from a column on.
    ///
    /// # Safety
    /// Nobody else writes them now.
    unsafe fn write(&self, rows: &Range<usize>, cols: &Range<usize>, sums: &[i32], wide: usize) {
        let mut room = self.to.room();
        let [many, step, image] = self.rows;
        let place =
            |row: usize, j: usize| self.first + row / many * image + row % many * step + j * self.column;
        // SAFETY: as the contract says.
        let mut line = |at: usize, line: &[i32]| unsafe { self.to.write(at, line, &mut room) };
        if self.column == 1 && cols.len() == wide && step == wide && many == usize::MAX {
            return line(place(rows.start, cols.start), &sums[..rows.len() * wide]);
        }
        if self.column == 1 {
            for (row, sums) in rows.clone().zip(sums.chunks_exact(wide)) {
                line(place(row, cols.start), &sums[..cols.len()]);
            }
            return;
        }
        // Windows lie side by side, those of each image.
        let mut columns = vec![0i32; TURNED.min(cols.len()) * rows.len()];
        for first in cols.clone().step_by(TURNED) {
            let some = first..cols.end.min(first + TURNED);
            let columns = &mut columns[..some.len() * rows.len()];
            let maps = vec![Map::all(some.len(), 1), Map::all(rows.len(), wide)];
            let (from, to) =
                (bytemuck::cast_slice(&sums[first - cols.start..]), bytemuck::cast_slice_mut(columns));
            copy::bytes(4, from, to, 0, maps, &[]);
            for (column, j) in columns.chunks_exact(rows.len()).zip(some) {
                let mut from = rows.start;
                while from < rows.end {
                    let end = rows.end.min((from / many + 1) * many);
                    line(place(from, j), &column[from - rows.start..end - rows.start]);
                    from = end;
                }
            }
        }
    }
}

/// Columns that are made of rows together.
const TURNED: usize = 16;

/// Neighbouring elements of a row or a column that are multiplied at once.
trait Group: Pod + Send + Sync {
    /// Elements of a group.
    const MANY: usize;
    /// The kernels of the level.
    fn micro() -> Option<Micro<Self, i32>>;
    /// Writes all elements of some rows, each in so many groups.
    fn fill(rows: &dyn Rows, now: Range<usize>, k: usize, groups: usize, to: &mut [Self]);
    /// A group of a column from its elements.
    fn of(at: impl Fn(usize) -> i16) -> Self;
}

impl Group for Pair {
    const MANY: usize = 2;
    fn micro() -> Option<Micro<Pair, i32>> {
        Some(micro_integer::words())
    }
    fn fill(rows: &dyn Rows, now: Range<usize>, k: usize, groups: usize, to: &mut [Pair]) {
        rows.words(now, k, 2 * groups, bytemuck::cast_slice_mut(to));
    }
    fn of(at: impl Fn(usize) -> i16) -> Pair {
        [at(0), at(1)]
    }
}

impl Group for Four {
    const MANY: usize = 4;
    fn micro() -> Option<Micro<Four, i32>> {
        micro_integer::bytes()
    }
    fn fill(rows: &dyn Rows, now: Range<usize>, k: usize, groups: usize, to: &mut [Four]) {
        rows.bytes(now, k, 4 * groups, bytemuck::cast_slice_mut(to));
    }
    fn of(at: impl Fn(usize) -> i16) -> Four {
        // Signed bytes.
        std::array::from_fn(|i| at(i) as u8)
    }
}

/// A right matrix in panels.
pub enum Matrix {
    /// Two rows at a time, as words.
    Words(Arc<Panels>),
    /// Four rows at a time, as bytes.
    Bytes(Arc<Panels>),
}

/// The panels of columns by which rows are multiplied: kept ones where the columns are weights.
pub fn panels(
    s: Size,
    (a, b): (&dyn Rows, &dyn Columns),
    kept: Option<(&Kept, usize)>,
) -> Result<Matrix, BackendError> {
    let [words, bytes] = [0, 1].map(|kind| kept.map(|(kept, i)| (kept, 2 * i + kind)));
    let found = |at: Option<(&Kept, usize)>| at.and_then(|(kept, i)| kept.get(i));
    // Whether weights are small is asked once.
    if a.unsigned()
        && b.signed()
        && let Some(micro) = micro_integer::bytes().filter(|_| kept.is_some())
    {
        if let Some(found) = found(bytes) {
            return Ok(Matrix::Bytes(found));
        }
        if found(words).is_none() && (!micro_integer::saturates() || small(s, b)) {
            return Ok(Matrix::Bytes(packed(s, b, &micro, bytes)?));
        }
    }
    Ok(Matrix::Words(packed(s, b, &micro_integer::words(), words)?))
}

/// Whether the panels of words of an operation's products are kept.
pub fn kept(all: Option<&Kept>, products: usize) -> bool {
    all.is_some_and(|kept| (0..products).all(|i| kept.get(2 * i).is_some()))
}

/// Whether two products by neighbours of each column have a sum of 16 bits.
fn small(s: Size, b: &dyn Columns) -> bool {
    let at = |k: usize, j: usize| if k < s.k { b.at(k, j).unsigned_abs() } else { 0 };
    let fits = |k: usize, j: usize| at(k, j) + at(k + 1, j) <= 128;
    (0..s.n).all(|j| (0..s.k).step_by(2).all(|k| fits(k, j)))
}

fn packed<T: Group>(
    s: Size,
    b: &dyn Columns,
    micro: &Micro<T, i32>,
    kept: Option<(&Kept, usize)>,
) -> Result<Arc<Panels>, BackendError> {
    let (nr, groups) = (micro.nr, s.k.div_ceil(T::MANY));
    Kept::of(kept, s.n.next_multiple_of(nr) * groups, |all: &mut [T]| {
        threads::chunks(all, nr * groups, 1, |i, out| {
            let cols = i * nr..s.n.min((i + 1) * nr);
            let mut rows = [[0i16; PACKED]; MOST];
            for (k, line) in out.chunks_exact_mut(nr).enumerate() {
                for first in cols.clone().step_by(PACKED) {
                    let wide = PACKED.min(cols.end - first);
                    for (i, row) in rows.iter_mut().enumerate().take(T::MANY) {
                        match k * T::MANY + i < s.k {
                            true => b.line(k * T::MANY + i, first, &mut row[..wide]),
                            false => row.fill(0),
                        }
                    }
                    let to = &mut line[first - cols.start..][..wide];
                    to.iter_mut().enumerate().for_each(|(j, to)| *to = T::of(|i| rows[i][j]));
                }
            }
        });
    })
}

/// Writes a·b plus a number a column, and what layers after it make of that.
pub fn product(s: Size, a: &dyn Rows, b: &Matrix, bias: Option<&[i32]>, c: &Target<'_>) {
    match b {
        Matrix::Words(panels) => multiply::<Pair>(s, a, panels.data(), bias, c),
        Matrix::Bytes(panels) => multiply::<Four>(s, a, panels.data(), bias, c),
    }
}

fn multiply<T: Group>(s: Size, a: &dyn Rows, panels: &[T], bias: Option<&[i32]>, c: &Target<'_>) {
    let Some(micro) = T::micro() else { return };
    if s.m == 0 || s.n == 0 {
        return;
    }
    let nr = micro.nr;
    let (high, groups) = (micro.strip(s.m), s.k.div_ceil(T::MANY));
    let strips = s.m.div_ceil(high);
    let wanted = (4 * threads::count()).min((s.m * s.n * s.k).div_ceil(TASK));
    // Rows and results of a task: memory that the cache holds, and that the allocator keeps.
    let most = (WIDENED / (2 * groups * high).max(1)).min(SUMS / (high * s.n.next_multiple_of(nr))).max(1);
    let band = strips.div_ceil(wanted.max(1)).clamp(1, most);
    let bands = strips.div_ceil(band);
    // Few bands divide the columns as well.
    let blocks = wanted.div_ceil(bands).clamp(1, s.n.div_ceil(nr));
    let width = s.n.div_ceil(blocks).next_multiple_of(nr);
    let blocks = s.n.div_ceil(width);
    let points = Checkpoints::here();
    threads::each(bands * blocks, |task| {
        let rows = task / blocks * band * high..s.m.min((task / blocks + 1) * band * high);
        let cols = task % blocks * width..s.n.min((task % blocks + 1) * width);
        let mut room = vec![T::zeroed(); rows.len() * groups];
        if groups > 0 {
            T::fill(a, rows.clone(), s.k, groups, &mut room);
        }
        let wide = cols.len().next_multiple_of((nr / 2).max(1));
        let mut first = vec![0i32; if bias.is_some() { wide } else { 0 }];
        if let Some(bias) = bias {
            first[..cols.len()].copy_from_slice(&bias[cols.clone()]);
        }
        let mut sums = vec![0i32; rows.len() * wide];
        let strips: Vec<[&[T]; MAX_ROWS]> = (0..rows.len())
            .step_by(high)
            .map(|from| {
                let mut left = [&[][..]; MAX_ROWS];
                for (i, to) in left.iter_mut().enumerate().take(high.min(rows.len() - from)) {
                    *to = &room[(from + i) * groups..][..groups];
                }
                left
            })
            .collect();
        for (at, j) in cols.clone().step_by(nr).enumerate().map(|(i, j)| (i * nr, j)) {
            points.pass();
            let panel = &panels[j / nr * nr * groups..(j / nr + 1) * nr * groups];
            let panel = Panel { data: panel, pitch: nr, depth: groups };
            let width = nr.min(wide - at);
            let start = if bias.is_some() { Start::Columns(&first[at..at + width]) } else { Start::Zero };
            for (from, left) in (0..rows.len()).step_by(high).zip(&strips) {
                let count = high.min(rows.len() - from);
                let to = &mut sums[from * wide + at..(from + count - 1) * wide + at + width];
                let place = Place { first: to.as_mut_ptr(), stride: wide };
                // SAFETY: the slice ends with the last element of the tile.
                unsafe { micro.tile((count, width), left, panel, start, place) };
            }
        }
        // SAFETY: each block of rows and columns belongs to one task.
        unsafe { c.write(&rows, &cols, &sums, wide) };
    });
}
