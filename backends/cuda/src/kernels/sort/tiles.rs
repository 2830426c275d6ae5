//! Lines sorted by blocks; long ones in tiles, whose runs are merged.

use super::keyed::{check, keyed, sizes, slot_bytes};
use crate::kernels::alone;
use crate::kernels::shape::{moving, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};
use kiln_ir::DType;

/// The kernels.
pub const KERNELS: &[Kernel] = &[alone("topk.sort", &["topk"], tactics, |site, _| source(site), launch)];

kiln_codegen::params! {
    /// The first elements of lines, sorted by blocks.
    struct TopkSortParams {
        /// Elements of a line.
        count: u32,
        /// Elements from one element of a line to the next.
        inner: u32,
        /// Elements of a line of the result.
        kept: u32,
        /// Number of lines.
        rows: u32,
        /// Logarithm of the slots of a line that a block has.
        log2: u32,
        /// Tiles of a line that no block has.
        tiles: u32,
        /// Elements of the runs that are merged.
        run: u32,
        /// Blocks of two runs.
        groups: u32,
        /// The buffer that has the runs.
        odd: u32,
        /// Whether the merge is the last one.
        last: u32,
    }
}

/// Slots of a thread.
const EACH: usize = 8;
/// Elements of a line that a small block has, a large one.
const SHORT: usize = 256 * EACH;
const TILE: usize = 1024 * EACH;
/// Results of a block that merges.
const MERGED: usize = 256 * EACH;

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    check(site)?;
    let estimate_ns = sizes(site).zip(traffic(site)).map(|(s, bytes)| {
        let log2 = s.count.min(TILE).next_power_of_two().ilog2() as f64;
        let all = (s.rows * s.count) as f64;
        let merges = s.count.div_ceil(TILE).next_power_of_two().ilog2() as f64;
        // A step of the network takes a block 50 ns, and 132 multiprocessors 0.17 ns for 1,000 elements.
        let steps = log2 * (log2 + 1.0) / 2.0;
        let sort = steps * (50.0 + all * 1.7e-4);
        moving(site.target, bytes, 1.2) + sort + merges * (3000.0 + all * 0.012)
    });
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain("topk.sort") }])
}

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let entries =
        [("sort_short_lines", 256), ("sort_middle_lines", 1024), ("sort_tiles", 1024), ("merge_runs", 256)];
    keyed(site, Body::of("sort/topk_sort", entries.map(|(name, n)| Entry::blocks(name, n)).into()))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let axis = cx.axis(x.len())?;
    let (count, kept) = (x[axis], out[axis]);
    let inner = x[axis + 1..].iter().product();
    let rows = x[..axis].iter().product::<usize>() * inner;
    if rows == 0 || kept == 0 {
        return Ok(Vec::new());
    }
    let size = count.max(EACH).next_power_of_two();
    let mut p =
        TopkSortParams { count, inner, kept, rows, log2: size.ilog2() as usize, ..Default::default() };
    if size <= TILE {
        let (entry, slots) = if size <= SHORT { (0, SHORT) } else { (1, TILE) };
        let groups = Grid::Groups(rows.div_ceil(slots / size) as u64);
        return Ok(vec![Launch::map(entry, p.words()?).on(groups)]);
    }
    p.tiles = count.div_ceil(TILE);
    // Two buffers.
    let t = cx.inputs.first().copied().flatten().map_or(DType::I64, |f| f.ty.dtype);
    let bytes = (2 * rows * p.tiles * TILE * slot_bytes(t)) as u64;
    let mut all = vec![Launch::map(2, p.words()?).on(Grid::Groups((rows * p.tiles) as u64))];
    p.run = TILE;
    while p.run < count {
        let pairs = (p.tiles * TILE).div_ceil(2 * p.run);
        p.groups = kept.min(2 * p.run).div_ceil(MERGED);
        p.last = usize::from(2 * p.run >= count);
        all.push(Launch::map(3, p.words()?).on(Grid::Groups((rows * pairs * p.groups) as u64)));
        p.run *= 2;
        p.odd = 1 - p.odd;
    }
    Ok(all.into_iter().map(|l| l.scratch(bytes)).collect())
}
