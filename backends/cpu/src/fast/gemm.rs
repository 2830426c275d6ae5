//! Blocked, threaded matrix product in f32.
//!
//! Rows of the left matrix are read where they lie; the right one is packed into panels, which are kept where it is a weight. Tasks
//! take blocks of rows and columns for all of the depth, and each element is the same sum however the product is divided.

pub use super::kept::How;
use super::kept::{Kept, Panels};
use super::micro::{MAX_ROWS, Micro, Panel, Start};
use super::micro_float::best;
use super::pointwise::tail::{At, Lanes};
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
/// Results of a task that stay in the first-level cache until they are finished.
const RESULTS: usize = 4 << 10;
/// Elements of panels that are packed at once where they are not kept.
const PACKED: usize = 512 << 10;
/// Products that a task makes at least.
const TASK: usize = 64 << 10;
/// Rows of a left matrix up to which a right one is not worth packing.
const LOW: usize = 128;
/// Pages of 4 KiB under a panel whose addresses the processor keeps.
const PAGES: usize = 48;

/// c = a·b + bias; c is m × n, row-major and dense. `depth` is that of a block.
pub fn gemm(
    s: Size,
    a: &dyn Left,
    b: &dyn Right,
    bias: Bias<'_>,
    c: &mut [f32],
    (depth, pool): (usize, &Arc<Pool>),
) -> Result<(), BackendError> {
    gemm_into(s, (a, b, bias), c, (s.n, 0), How { depth, pool, kept: None, tail: None })
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
            let row = &mut row[first..first + s.n];
            row.fill(0.0);
            bias.add(i, 0, row);
            if let Some(tail) = how.tail {
                tail.apply(&mut tail.room(), i * stride + first, row);
            }
        }
        return Ok(());
    }
    if let Some(kept) = how.kept {
        let panels = packed(s, b, Some(kept))?;
        if let (1, Some(a)) = (s.m, a.strided().filter(|a| a.col == 1)) {
            let c = &mut c[first..first + s.n];
            vector::by_panels(
                &a.data[..s.k],
                (panels.data(), best().nr),
                bias,
                how.tail.map(|t| t.from(first)),
                c,
            );
            return Ok(());
        }
        by_panels(s, (a, &panels, bias), c, (stride, first), how);
        return Ok(());
    }
    // A matrix by one vector is that vector by the matrix's columns: its rows.
    if let (Some(a), Some(b), Bias::None) = (a.strided(), b.strided(), &bias)
        && s.n == 1
        && stride == 1
        && first == 0
        && a.col == 1
        && b.row == 1
    {
        let turned =
            (Strided { data: b.data, row: s.k, col: 1 }, Strided { data: a.data, row: 1, col: a.row });
        let s = Size { m: 1, n: s.m, k: s.k };
        if vector::fits(s, &turned.0, &turned.1) {
            vector::product(s, &turned.0, &turned.1, bias, how.tail, c);
            return Ok(());
        }
    }
    if let (Some(a), Some(b)) = (a.strided(), b.strided())
        && stride == s.n
        && vector::fits(s, a, b)
    {
        vector::product(s, a, b, bias, how.tail, c);
        return Ok(());
    }
    let micro = best();
    let parts = Parts::new(c);
    let c = Target::new(&parts, stride, first);
    let job = Job { s, a, bias, micro, depth: how.depth.clamp(1, s.k), c, tail: how.tail };
    if let Some((b, there)) = b.strided().map(|b| (b, in_place(s, b, micro.nr))).filter(|(_, n)| *n > 0) {
        let columns = Columns { data: b.data, pitch: b.row, step: micro.nr, last: None };
        if there == s.n {
            job.run(0..s.n, columns);
            return Ok(());
        }
        let mut memory = scratch(how.pool, micro.nr * s.k, "the last columns of a product")?;
        let panel = floats_mut(&mut memory);
        b.pack(0..s.k, there..s.n, micro.nr, panel);
        job.run(0..s.n, Columns { last: Some((there / micro.nr, &*panel)), ..columns });
        return Ok(());
    }
    if s.m * s.k <= BLOCK && s.n >= 4 * micro.nr {
        job.by_columns(b);
        return Ok(());
    }
    let at_once = (PACKED / s.k / micro.nr).max(threads::count()) * micro.nr;
    let wide = at_once.min(s.n.next_multiple_of(micro.nr));
    let mut memory = scratch(how.pool, wide * s.k, "packed columns of a product")?;
    for j in (0..s.n).step_by(wide) {
        let cols = j..s.n.min(j + wide);
        let panels = &mut floats_mut(&mut memory)[..cols.len().next_multiple_of(micro.nr) * s.k];
        pack(s, j, b, micro.nr, panels);
        job.run(cols, Columns::packed(panels, micro.nr, s.k));
    }
    Ok(())
}

/// Columns of a right matrix that tiles read where they are stored: all, all but those of the last panel, or none.
fn in_place(s: Size, b: &Strided<'_>, nr: usize) -> usize {
    let pages = s.k.saturating_mul(b.row.min(1024)) / 1024;
    if b.col != 1 || s.m > LOW || pages > PAGES || s.n == 0 || s.k == 0 {
        return 0;
    }
    let last = (s.n - 1) / nr * nr;
    let wide = if s.n - last <= nr / 2 { nr / 2 } else { nr };
    if (s.k - 1) * b.row + last + wide <= b.data.len() { s.n } else { last }
}

/// The panels of all of a right matrix.
pub fn packed(s: Size, b: &dyn Right, kept: Option<(&Kept, usize)>) -> Result<Arc<Panels>, BackendError> {
    let nr = best().nr;
    Kept::of(kept, s.n.next_multiple_of(nr) * s.k, |to| pack(s, 0, b, nr, to))
}

/// Packs all of a right matrix.
pub fn pack_all(s: Size, b: &dyn Right, out: &mut [f32]) {
    pack(s, 0, b, best().nr, out);
}

/// As [`gemm_into`], with the panels of all of the right matrix.
pub fn by_panels(
    s: Size,
    (a, panels, bias): (&dyn Left, &Panels, Bias<'_>),
    c: &mut [f32],
    (stride, first): (usize, usize),
    how: How<'_>,
) {
    let parts = Parts::new(c);
    let c = Target::new(&parts, stride, first);
    let job = Job { s, a, bias, micro: best(), depth: how.depth.clamp(1, s.k), c, tail: how.tail };
    job.run(0..s.n, Columns::packed(panels.data(), job.micro.nr, s.k));
}

/// The two sides of one of several products of the same sizes, and its summand.
pub type Group<'a> = (&'a dyn Left, &'a dyn Right, Bias<'a>);

/// Writes products of few columns side by side: those of each group, rows of c having all of them. Threads divide the rows.
pub fn side_by_side(s: Size, groups: &[Group<'_>], c: &mut [f32], how: How<'_>) -> Result<(), BackendError> {
    if s.m == 0 || s.n == 0 {
        return Ok(());
    }
    let micro = best();
    let own = |g: usize| how.kept.map(|(kept, i)| (kept, i + g));
    let panels = groups.iter().enumerate().map(|(g, (_, b, _))| packed(s, *b, own(g)));
    let panels = panels.collect::<Result<Vec<_>, _>>()?;
    let width = s.n * groups.len();
    let parts = Parts::new(c);
    let job = |g: usize| {
        let (a, _, bias) = groups[g];
        let c = Target::new(&parts, width, g * s.n);
        Job { s, a, bias, micro, depth: how.depth.clamp(1, s.k), c, tail: None }
    };
    let points = Checkpoints::here();
    let strips = s.m.div_ceil(micro.strip(s.m));
    threads::ranges(strips, TASK.div_ceil(micro.strip(s.m) * width * s.k), |now| {
        // Bands of rows whose results stay in the cache until the layers after the product have them.
        let band = (BLOCK / 4 / (width * micro.strip(s.m))).max(1);
        for first in now.clone().step_by(band) {
            let strips = first..now.end.min(first + band);
            for (g, panels) in panels.iter().enumerate() {
                let columns = Columns::packed(panels.data(), micro.nr, s.k);
                job(g).block(strips.clone(), &(0..s.n), columns, &points);
            }
            if let Some(tail) = how.tail {
                let high = micro.strip(s.m);
                let rows = strips.start * high..s.m.min(strips.end * high);
                let all = Job { c: Target::new(&parts, width, 0), ..job(0) };
                all.finish((tail, &mut tail.room()), rows, &(0..width));
            }
        }
    });
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
            vector::product(Size { m: 1, ..s }, &a, b, Bias::None, None, row(r));
        });
    }
    // SAFETY: as above.
    unsafe { alone_and_finished(s, (a, b, Bias::None), c, (DEPTH, None), room) }
}

/// a·b + bias with the layers after it, as [`alone`], for products whose depth is not 0, in blocks of a depth.
///
/// # Safety
/// As of [`alone`].
pub unsafe fn alone_and_finished(
    s: Size,
    (a, b, bias): Group<'_>,
    c: Target<'_>,
    (depth, tail): (usize, Option<At<'_>>),
    room: &mut Vec<f32>,
) {
    if let Some((a, b)) = a.strided().zip(b.strided())
        && vector::fits(s, a, b)
        && c.joined(&(0..s.m), &(0..s.n))
    {
        // SAFETY: as the contract says.
        let (first, c) = unsafe { c.rows(0, s.m, 0..s.n) };
        return vector::product(s, a, b, bias, tail.map(|t| t.from(first)), c);
    }
    let micro = best();
    let job = Job { s, a, bias, micro, depth: depth.clamp(1, s.k), c, tail };
    let strips = s.m.div_ceil(micro.strip(s.m));
    let there = b.strided().map_or(0, |b| in_place(s, b, micro.nr));
    let len = (s.n - there).next_multiple_of(micro.nr) * s.k;
    room.resize(room.len().max(len), 0.0);
    let panels = &mut room[..len];
    for (i, out) in panels.chunks_exact_mut(micro.nr * s.k).enumerate() {
        let j = there + i * micro.nr;
        b.pack(0..s.k, j..s.n.min(j + micro.nr), micro.nr, out);
    }
    let columns = match b.strided().filter(|_| there > 0) {
        // At most the last panel is packed.
        Some(b) => {
            let last = (there < s.n).then(|| (there / micro.nr, &*panels));
            Columns { data: b.data, pitch: b.row, step: micro.nr, last }
        }
        None => Columns::packed(panels, micro.nr, s.k),
    };
    job.block(0..strips, &(0..s.n), columns, &Checkpoints::here());
}

/// Panels of a right matrix: elements from row to row of one, and from one to the next.
#[derive(Clone, Copy)]
struct Columns<'a> {
    data: &'a [f32],
    pitch: usize,
    step: usize,
    /// The number of the last panel, and its elements, where they are packed and the others are not.
    last: Option<(usize, &'a [f32])>,
}

impl<'a> Columns<'a> {
    fn packed(data: &'a [f32], nr: usize, k: usize) -> Columns<'a> {
        Columns { data, pitch: nr, step: nr * k, last: None }
    }

    /// The panels from one on.
    fn from(self, panel: usize) -> Columns<'a> {
        let last = self.last.map(|(i, data)| (i - panel, data));
        Columns { data: &self.data[panel * self.step..], last, ..self }
    }

    /// A block of the depth of a panel of `nr` columns.
    fn panel(&self, i: usize, depth: &Range<usize>, nr: usize) -> Panel<'a, f32> {
        let (data, pitch) = match self.last {
            Some((last, data)) if last == i => (data, nr),
            _ => (&self.data[i * self.step..], self.pitch),
        };
        Panel { data: &data[depth.start * pitch..], pitch, depth: depth.len() }
    }
}

struct Job<'a> {
    s: Size,
    a: &'a dyn Left,
    bias: Bias<'a>,
    micro: Micro<f32, f32>,
    /// Depth of a block.
    depth: usize,
    c: Target<'a>,
    /// Layers after the product.
    tail: Option<At<'a>>,
}

impl Job<'_> {
    /// Computes columns whose panels are given; threads divide rows and columns.
    fn run(&self, cols: Range<usize>, columns: Columns<'_>) {
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
            let columns = columns.from(at / nr);
            self.block(band * high..strips.min((band + 1) * high), &now, columns, &points);
        });
    }

    /// Computes columns by a left matrix that the cache holds; each task packs its own.
    fn by_columns(&self, b: &dyn Right) {
        let Micro { nr, .. } = self.micro;
        let Size { m, n, k } = self.s;
        let points = Checkpoints::here();
        let strips = m.div_ceil(self.micro.strip(m));
        let most = n.div_ceil(4 * threads::count()).div_ceil(nr);
        let panels = (BLOCK / 2 / k / nr).clamp(1, most.max(1));
        threads::ranges(n.div_ceil(panels * nr), 1, |blocks| {
            let mut room = vec![0f32; panels * nr * k];
            for at in blocks.map(|i| i * panels * nr) {
                let now = at..n.min(at + panels * nr);
                for (i, out) in room.chunks_exact_mut(nr * k).enumerate().take(now.len().div_ceil(nr)) {
                    let j = at + i * nr;
                    b.pack(0..k, j..now.end.min(j + nr), nr, out);
                }
                self.block(0..strips, &now, Columns::packed(&room, nr, k), &points);
            }
        });
    }

    /// Some strips by some columns.
    fn block(&self, strips: Range<usize>, cols: &Range<usize>, columns: Columns<'_>, points: &Checkpoints) {
        let Size { m, k, .. } = self.s;
        let high = self.micro.strip(m);
        let mut room = vec![0f32; if self.a.copies() { high * self.depth } else { 0 }];
        let mut tail = self.tail.map(|tail| (tail, tail.room()));
        // Rows that are finished before others begin: few where the cache holds all panels, so that it holds the results as well.
        let band =
            if k * cols.len() <= BLOCK { (RESULTS / (high * cols.len())).max(1) } else { strips.len() };
        for first in strips.clone().step_by(band.max(1)) {
            let strips = first..strips.end.min(first + band);
            for p0 in (0..k).step_by(self.depth) {
                let depth = p0..k.min(p0 + self.depth);
                for i in strips.clone() {
                    points.pass();
                    let rows = i * high..m.min((i + 1) * high);
                    let a = self.a.rows(rows.clone(), depth.clone(), &mut room);
                    self.strip(&rows, &a, &depth, cols, columns);
                }
            }
            if let Some((tail, lanes)) = &mut tail {
                self.finish((*tail, lanes), strips.start * high..m.min(strips.end * high), cols);
            }
        }
    }

    /// Computes the layers after the product for a block that is done.
    fn finish<'t>(&self, (tail, room): (At<'t>, &mut Lanes<'t>), rows: Range<usize>, cols: &Range<usize>) {
        let whole = self.c.joined(&rows, cols);
        let parts = if whole { 1 } else { rows.len() };
        for r in rows.clone().take(parts) {
            // SAFETY: each block of rows and columns belongs to one task.
            let (first, part) = unsafe { self.c.rows(r, if whole { rows.len() } else { 1 }, cols.clone()) };
            tail.apply(room, first, part);
        }
    }

    /// A strip of rows by the panels of some columns, added to what earlier blocks of the depth came to.
    fn strip(
        &self,
        rows: &Range<usize>,
        a: &[&[f32]; MAX_ROWS],
        depth: &Range<usize>,
        cols: &Range<usize>,
        columns: Columns<'_>,
    ) {
        let nr = self.micro.nr;
        let first = depth.start == 0;
        for (s, j) in cols.clone().step_by(nr).enumerate() {
            let b = columns.panel(s, depth, nr);
            let width = nr.min(cols.end - j);
            let start = match self.bias {
                Bias::Columns(bias) if first => Start::Columns(&bias[j..j + width]),
                Bias::Rows(bias) if first => Start::Rows(&bias[rows.clone()]),
                Bias::None if first => Start::Zero,
                _ => Start::There,
            };
            if let Some(place) = self.c.tile(rows, j, width) {
                // SAFETY: the tile is inside of c, and each block of rows and columns belongs to one task.
                unsafe { self.micro.tile((rows.len(), width), a, b, start, place) };
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
