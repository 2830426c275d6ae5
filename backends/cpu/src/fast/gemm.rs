//! Blocked, threaded matrix product in f32.
//!
//! Rows of the left matrix are read where they lie; the right one is packed into panels, which are kept where it is a weight. Tasks
//! take blocks of rows and columns for all of the depth, and each element is the same sum however the product is divided.

pub use super::kept::How;
use super::kept::Kept;
use super::micro::{MAX_ROWS, Micro, TILE};
pub use super::sides::{Bias, Left, Right, Size, Strided, Target, slices};
use super::vector;
use crate::buffer::{Buf, Pool};
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use std::ops::Range;
use std::sync::Arc;

/// The usual depth of a block: sums of so many products are made in registers, blocks are added one after the other.
pub const DEPTH: usize = 256;
/// Elements of the part of the panels that a task keeps in the second-level cache.
const BLOCK: usize = 64 << 10;
/// Elements of panels that are packed at once where they are not kept.
const PACKED: usize = 512 << 10;
/// Products that a task makes at least.
const TASK: usize = 64 << 10;

/// c = a·b + bias; c is m × n, row-major and dense. `depth` is that of a block.
pub fn gemm(
    s: Size,
    a: &dyn Left,
    b: &dyn Right,
    bias: Bias<'_>,
    c: &mut [f32],
    (depth, pool): (usize, &Arc<Pool>),
) -> Result<(), BackendError> {
    gemm_into(s, (a, b, bias), c, (s.n, 0), How { depth, pool, kept: None })
}

/// Writes a·b + bias into rows of c that begin `stride` elements apart, the first at `first`.
pub fn gemm_into(
    s: Size,
    (a, b, bias): (&dyn Left, &dyn Right, Bias<'_>),
    c: &mut [f32],
    (stride, first): (usize, usize),
    how: How<'_>,
) -> Result<(), BackendError> {
    if s.m == 0 || s.n == 0 {
        return Ok(());
    }
    if s.k == 0 {
        for (i, row) in c.chunks_mut(stride).enumerate().take(s.m) {
            row[first..first + s.n].fill(0.0);
            bias.add(i, 0, &mut row[first..first + s.n]);
        }
        return Ok(());
    }
    if let (Some(a), Some(b)) = (a.strided(), b.strided())
        && stride == s.n
        && vector::fits(s, a, b)
    {
        vector::product(s, a, b, bias, c);
        return Ok(());
    }
    let micro = Micro::best();
    let parts = Parts::new(c);
    let job =
        Job { s, a, bias, micro, depth: how.depth.clamp(1, s.k), c: Target::new(&parts, stride, first) };
    if let Some((kept, i)) = how.kept {
        let len = s.n.next_multiple_of(micro.nr) * s.k;
        let panels = Kept::of(Some((kept, i)), len, |to| pack(s, 0, b, micro.nr, to))?;
        job.run(0..s.n, panels.data());
        return Ok(());
    }
    let at_once = (PACKED / s.k / micro.nr).max(threads::count()) * micro.nr;
    let wide = at_once.min(s.n.next_multiple_of(micro.nr));
    let mut memory = scratch(how.pool, wide * s.k, "packed columns of a product")?;
    for j in (0..s.n).step_by(wide) {
        let cols = j..s.n.min(j + wide);
        let panels = &mut floats_mut(&mut memory)[..cols.len().next_multiple_of(micro.nr) * s.k];
        pack(s, j, b, micro.nr, panels);
        job.run(cols, panels);
    }
    Ok(())
}

/// Packs panels of all rows, from column `first` on, as many as there is room for.
fn pack(s: Size, first: usize, b: &dyn Right, nr: usize, out: &mut [f32]) {
    threads::chunks(out, nr * s.k, TASK / 8 / (nr * s.k), |i, out| {
        let j = first + i * nr;
        b.pack(0..s.k, j..s.n.min(j + nr), nr, out);
    });
}

/// c = a·b on this thread alone, inside of a task; `room` is memory that tasks keep.
///
/// # Safety
/// Nobody else has the rows of c now.
pub unsafe fn alone(s: Size, a: &Strided<'_>, b: &Strided<'_>, c: Target<'_>, room: &mut Vec<f32>) {
    // SAFETY: as the contract says; rows of c are disjoint.
    let row = |r: usize| unsafe { c.row(r, 0..s.n) };
    if s.k == 0 {
        return (0..s.m).for_each(|r| row(r).fill(0.0));
    }
    if vector::fits(s, a, b) {
        return (0..s.m).for_each(|r| {
            let a = Strided { data: &a.data[r * a.row..], ..*a };
            vector::product(Size { m: 1, ..s }, &a, b, Bias::None, row(r));
        });
    }
    let micro = Micro::best();
    let len = s.n.next_multiple_of(micro.nr) * s.k;
    room.resize(room.len().max(len), 0.0);
    let panels = &mut room[..len];
    for (i, out) in panels.chunks_exact_mut(micro.nr * s.k).enumerate() {
        b.pack(0..s.k, i * micro.nr..s.n.min((i + 1) * micro.nr), micro.nr, out);
    }
    let job = Job { s, a, bias: Bias::None, micro, depth: DEPTH.min(s.k), c };
    let strips = s.m.div_ceil(micro.strip(s.m));
    job.block(0..strips, &(0..s.n), panels, &Checkpoints::here());
}

struct Job<'a> {
    s: Size,
    a: &'a dyn Left,
    bias: Bias<'a>,
    micro: Micro,
    /// Depth of a block.
    depth: usize,
    c: Target<'a>,
}

impl Job<'_> {
    /// Computes columns whose panels are given; threads divide rows and columns.
    fn run(&self, cols: Range<usize>, panels: &[f32]) {
        let Micro { nr, .. } = self.micro;
        let Size { m, k, .. } = self.s;
        let points = Checkpoints::here();
        let strips = m.div_ceil(self.micro.strip(m));
        let wanted = (4 * threads::count()).min((m * cols.len() * k).div_ceil(TASK));
        // Columns of a task: their panels stay in the cache from strip to strip.
        let mut width = (BLOCK / self.depth).next_multiple_of(nr).min(cols.len().next_multiple_of(nr));
        let mut bands = wanted.div_ceil(cols.len().div_ceil(width)).clamp(1, strips);
        if bands * cols.len().div_ceil(width) < wanted {
            width = cols.len().div_ceil(wanted.div_ceil(bands)).next_multiple_of(nr).min(width);
        }
        let high = strips.div_ceil(bands);
        bands = strips.div_ceil(high);
        let blocks = cols.len().div_ceil(width);
        threads::each(bands * blocks, |task| {
            // Neighbouring tasks have the same columns.
            let (block, band) = (task / bands, task % bands);
            let at = block * width;
            let now = cols.start + at..cols.end.min(cols.start + at + width);
            self.block(band * high..strips.min((band + 1) * high), &now, &panels[at * k..], &points);
        });
    }

    /// Some strips by some columns.
    fn block(&self, strips: Range<usize>, cols: &Range<usize>, panels: &[f32], points: &Checkpoints) {
        let Size { m, k, .. } = self.s;
        let high = self.micro.strip(m);
        let mut room = vec![0f32; high * self.depth];
        for p0 in (0..k).step_by(self.depth) {
            let depth = p0..k.min(p0 + self.depth);
            for i in strips.clone() {
                points.pass();
                let rows = i * high..m.min((i + 1) * high);
                let a = self.a.rows(rows.clone(), depth.clone(), &mut room);
                self.strip(&rows, &a, &depth, cols, panels);
            }
        }
    }

    /// A strip of rows by the panels of some columns, added to what earlier blocks of the depth came to.
    fn strip(
        &self,
        rows: &Range<usize>,
        a: &[&[f32]; MAX_ROWS],
        depth: &Range<usize>,
        cols: &Range<usize>,
        panels: &[f32],
    ) {
        let (nr, k) = (self.micro.nr, self.s.k);
        let mut tile = [0f32; TILE];
        for (s, j) in cols.clone().step_by(nr).enumerate() {
            let b = &panels[(s * k + depth.start) * nr..(s * k + depth.end) * nr];
            self.micro.run(rows.len(), a, b, &mut tile);
            let now = j..cols.end.min(j + nr);
            for (r, tile) in rows.clone().zip(tile.chunks_exact(nr)) {
                // SAFETY: each block of rows and columns belongs to one task.
                let out = unsafe { self.c.row(r, now.clone()) };
                let tile = &tile[..out.len()];
                if depth.start == 0 {
                    out.copy_from_slice(tile);
                    self.bias.add(r, j, out);
                } else {
                    out.iter_mut().zip(tile).for_each(|(o, t)| *o += t);
                }
            }
        }
    }
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
