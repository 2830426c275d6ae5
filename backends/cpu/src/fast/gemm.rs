//! Blocked, threaded matrix product in f32.

use super::micro::{Micro, TILE};
use super::vector;
use crate::buffer::{Buf, Pool};
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use std::ops::Range;
use std::sync::Arc;

/// The usual depth of a block: sums of so many products are made in registers, blocks are added one after the other.
pub const DEPTH: usize = 256;
/// Columns of a block, whose panel stays in the second-level cache.
const NC: usize = 512;

/// The left matrix, m × k, given by strips of rows.
pub trait Left: Sync {
    /// Fills `out[p·mr + r]` with element (rows.start + r, p) for all p below `k` and all of `rows` (at most
    /// `mr`). Missing rows are filled with zeros.
    fn pack(&self, rows: Range<usize>, k: usize, mr: usize, out: &mut [f32]);

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

impl Left for Strided<'_> {
    fn strided(&self) -> Option<&Strided<'_>> {
        Some(self)
    }

    fn pack(&self, rows: Range<usize>, k: usize, mr: usize, out: &mut [f32]) {
        for (p, line) in out.chunks_exact_mut(mr).enumerate().take(k) {
            let start = rows.start * self.row + p * self.col;
            let (now, rest) = line.split_at_mut(rows.len());
            now.iter_mut().enumerate().for_each(|(r, x)| *x = self.data[start + r * self.row]);
            rest.fill(0.0);
        }
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
            out.fill(0.0);
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
            if self.col == 1 {
                now.copy_from_slice(&self.data[start..start + n]);
            } else {
                now.iter_mut().enumerate().for_each(|(j, x)| *x = self.data[start + j * self.col]);
            }
            rest.fill(0.0);
        }
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

/// c = a·b + bias; c is m × n, row-major and dense. `depth` is that of a block.
pub fn gemm(
    s: Size,
    a: &dyn Left,
    b: &dyn Right,
    bias: Bias<'_>,
    c: &mut [f32],
    (depth, pool): (usize, &Arc<Pool>),
) -> Result<(), BackendError> {
    if s.m == 0 || s.n == 0 {
        return Ok(());
    }
    if s.k == 0 {
        c.fill(0.0);
        c.chunks_exact_mut(s.n).enumerate().for_each(|(i, row)| bias.add(i, 0, row));
        return Ok(());
    }
    if let (Some(a), Some(b)) = (a.strided(), b.strided())
        && vector::fits(s, a, b)
    {
        vector::product(s, a, b, bias, c);
        return Ok(());
    }
    let micro = Micro::best();
    let packed = pack_left(s, a, micro.mr, pool)?;
    let depth = depth.clamp(1, s.k);
    let job = Job { s, a: floats(&packed), b, bias, micro, depth };
    let split = Split::of(s, micro, depth, threads::count());
    let mut memory = scratch(pool, split.floats(), "scratch of a product")?;
    if s.m.div_ceil(micro.mr) >= split.threads || s.n < 2 * micro.nr {
        job.rows(c, floats_mut(&mut memory));
    } else {
        job.columns(c, &split, floats_mut(&mut memory));
    }
    Ok(())
}

/// c = a·b on this thread alone, inside of a task; `room` is memory that tasks keep.
pub fn alone(s: Size, a: &dyn Left, b: &dyn Right, c: &mut [f32], room: &mut Vec<f32>) {
    if s.m == 0 || s.n == 0 || s.k == 0 {
        return c.fill(0.0);
    }
    let micro = Micro::best();
    let depth = DEPTH.min(s.k);
    let left = s.m.next_multiple_of(micro.mr) * s.k;
    let panel = depth * NC.min(s.n.next_multiple_of(micro.nr));
    room.resize(room.len().max(left + panel), 0.0);
    let (packed, panel) = room.split_at_mut(left);
    for (i, out) in packed.chunks_exact_mut(micro.mr * s.k).enumerate() {
        a.pack(i * micro.mr..s.m.min((i + 1) * micro.mr), s.k, micro.mr, out);
    }
    Job { s, a: packed, b, bias: Bias::None, micro, depth }.rows(c, panel);
}

/// Division of a product of few rows among threads.
struct Split {
    threads: usize,
    /// Columns of a part.
    width: usize,
    /// Columns of all parts.
    columns: usize,
    /// Rows of a panel.
    depth: usize,
    /// Rows of a part of c at most: with more the rows are divided.
    rows: usize,
    /// Elements of the panel that all threads share where the rows are divided.
    shared: usize,
}

impl Split {
    fn of(s: Size, micro: Micro, depth: usize, threads: usize) -> Split {
        let width = s.n.div_ceil(4 * threads).next_multiple_of(micro.nr).min(NC);
        Split {
            threads,
            width,
            columns: s.n.next_multiple_of(width),
            depth,
            rows: threads * micro.mr,
            shared: depth * NC.min(s.n.next_multiple_of(micro.nr)),
        }
    }

    /// The scratch memory wanted, the same for any number of rows, so that another one never wants more: a panel for
    /// each thread and a copy of c, or the shared panel. Where the rows are divided, c is not smaller than the copy.
    fn floats(&self) -> usize {
        (self.rows * self.columns + self.threads * self.width * self.depth).max(self.shared)
    }
}

struct Job<'a> {
    s: Size,
    /// Packed in strips of `mr` rows.
    a: &'a [f32],
    b: &'a dyn Right,
    bias: Bias<'a>,
    micro: Micro,
    /// Depth of a block.
    depth: usize,
}

impl Job<'_> {
    /// Threads share each panel of b and divide the rows among them.
    fn rows(&self, c: &mut [f32], memory: &mut [f32]) {
        let Micro { mr, nr, .. } = self.micro;
        let Size { n, k, .. } = self.s;
        let points = Checkpoints::here();
        for j0 in (0..n).step_by(NC) {
            let cols = j0..n.min(j0 + NC);
            for p0 in (0..k).step_by(self.depth) {
                let depth = p0..k.min(p0 + self.depth);
                let strips = &mut memory[..depth.len() * nr * cols.len().div_ceil(nr)];
                threads::chunks(strips, depth.len() * nr, 1, |s, out| self.pack(&depth, &cols, s, out));
                let panel = &*memory;
                threads::chunks(c, mr * n, 1, |i, c| {
                    points.pass();
                    self.strip(i, c, (n, cols.start), &depth, &cols, panel);
                });
            }
        }
    }

    /// Computes few rows: threads divide the columns among them, into parts that are copied together in the
    /// end.
    fn columns(&self, c: &mut [f32], split: &Split, memory: &mut [f32]) {
        let Size { m, n, .. } = self.s;
        let (copies, panels) = memory.split_at_mut(m * split.columns);
        let cols = |part: usize| part * split.width..n.min((part + 1) * split.width);
        let (count, size) = (copies.len().div_ceil(m * split.width), m * split.width);
        let parts = Parts::new(copies);
        let points = Checkpoints::here();
        threads::chunks(
            &mut panels[..split.threads * split.width * split.depth],
            split.width * split.depth,
            1,
            |hand, panel| {
                for part in (hand..count).step_by(split.threads) {
                    // SAFETY: each part is one hand's, and each hand's panel is chunk of one index.
                    let out = unsafe { parts.part(part * size, (part + 1) * size) };
                    self.part(&cols(part), out, panel, &points);
                }
            },
        );
        for (part, out) in copies.chunks(m * split.width).enumerate() {
            let cols = cols(part);
            let rows = out.chunks_exact(cols.len());
            c.chunks_exact_mut(n).zip(rows).for_each(|(c, row)| c[cols.clone()].copy_from_slice(row));
        }
    }

    /// All rows of some columns.
    fn part(&self, cols: &Range<usize>, out: &mut [f32], panel: &mut [f32], points: &Checkpoints) {
        let Micro { mr, nr, .. } = self.micro;
        let Size { m, k, .. } = self.s;
        for p0 in (0..k).step_by(self.depth) {
            points.pass();
            let depth = p0..k.min(p0 + self.depth);
            let strips = panel.chunks_mut(depth.len() * nr).take(cols.len().div_ceil(nr));
            strips.enumerate().for_each(|(s, out)| self.pack(&depth, cols, s, out));
            let c = out[..m * cols.len()].chunks_mut(mr * cols.len()).enumerate();
            c.for_each(|(i, c)| self.strip(i, c, (cols.len(), 0), &depth, cols, panel));
        }
    }

    fn pack(&self, depth: &Range<usize>, cols: &Range<usize>, strip: usize, out: &mut [f32]) {
        let nr = self.micro.nr;
        let j = cols.start + strip * nr;
        self.b.pack(depth.clone(), j..cols.end.min(j + nr), nr, out);
    }

    /// Rows of strip `i` by the panel of columns `cols`, which begin at column `at` of `c`, whose rows have `stride`.
    fn strip(
        &self,
        i: usize,
        c: &mut [f32],
        (stride, at): (usize, usize),
        depth: &Range<usize>,
        cols: &Range<usize>,
        panel: &[f32],
    ) {
        let Micro { mr, nr, .. } = self.micro;
        let width = cols.len();
        let a = &self.a[(i * self.s.k + depth.start) * mr..(i * self.s.k + depth.end) * mr];
        let mut tile = [0f32; TILE];
        for (s, b) in panel.chunks_exact(depth.len() * nr).take(width.div_ceil(nr)).enumerate() {
            self.micro.run(a, b, &mut tile);
            let now = nr.min(width - s * nr);
            for (r, row) in c.chunks_mut(stride).enumerate() {
                let out = &mut row[at + s * nr..at + s * nr + now];
                let tile = &tile[r * nr..r * nr + now];
                if depth.start == 0 {
                    out.copy_from_slice(tile);
                    self.bias.add(i * mr + r, cols.start + s * nr, out);
                } else {
                    out.iter_mut().zip(tile).for_each(|(o, t)| *o += t);
                }
            }
        }
    }
}

/// Strips of `mr` rows, column by column; the last strip is filled up with zeros.
fn pack_left(s: Size, a: &dyn Left, mr: usize, pool: &Arc<Pool>) -> Result<Buf, BackendError> {
    let mut packed = scratch(pool, s.m.next_multiple_of(mr) * s.k, "packed rows of a product")?;
    threads::chunks(floats_mut(&mut packed), mr * s.k, 1, |i, out| {
        a.pack(i * mr..s.m.min((i + 1) * mr), s.k, mr, out);
    });
    Ok(packed)
}

/// Memory for `n` floats of unspecified contents.
pub fn scratch(pool: &Arc<Pool>, n: usize, what: &str) -> Result<Buf, BackendError> {
    pool.take(n.saturating_mul(4), what)
}

/// A buffer as floats.
pub fn floats(b: &Buf) -> &[f32] {
    bytemuck::try_cast_slice(b.as_ref()).unwrap_or_default()
}

/// A buffer as floats, to write.
pub fn floats_mut(b: &mut Buf) -> &mut [f32] {
    bytemuck::try_cast_slice_mut(b.bytes_mut()).unwrap_or_default()
}
