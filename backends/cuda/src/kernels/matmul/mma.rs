//! Matrix products by `mma.sync`.

use super::across;
use crate::kernels::constants::constants;
use crate::kernels::cost;
use crate::kernels::mma::{Kind, Row};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::matmul::product;
use kiln_codegen::rows::RowTile;
use kiln_codegen::site::{Cx, Site};
use kiln_codegen::{Body, Entry, Grid, Launch};

kiln_codegen::params! {
    /// A matrix product by tiles of `mma.sync`.
    struct MmaMatmulParams {
        /// Rows of the result.
        rows: u32,
        /// Columns of the result.
        columns: u32,
        /// Products that are summed up.
        depth: u32,
        /// Elements from one row of A to the next.
        a_row: u32,
        /// Elements from one column of A to the next.
        a_column: u32,
        /// Elements from one row of B to the next.
        b_row: u32,
        /// Elements from one column of B to the next.
        b_column: u32,
        /// Results of all batches.
        sums: u32,
        /// Dimensions of the batch.
        batch: [u32],
        /// Elements from one to the next of each dimension of the batch in A.
        a_batch: [u32],
        /// Elements from one to the next of each dimension of the batch in B.
        b_batch: [u32],
    }
}

/// Numbers of what is known of an operand's lines in `matmul/mma.cuh`: nothing, that they are whole vectors of 16 bytes, that they
/// are not.
fn lines(site: &Site<'_>, input: usize) -> usize {
    let whole = || {
        let ty = site.anchor.and_then(|(_, n)| Some(site.graph.ty((*n.inputs.get(input)?)?)))?;
        let line = ty.dims.last().filter(|_| ty.rank() > 1)?.as_const()?;
        Some(line.checked_mul(i64::from(ty.dtype.bits()))? % 128 == 0)
    };
    whole().map_or(0, |whole| if whole { 1 } else { 2 })
}

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Row) -> bool {
    true
}

/// The rows that a block finds; none where blocks share the depth, and another launch sums up.
fn row_tile(Row { tile, split }: &Row) -> Option<RowTile> {
    (*split == 1).then_some(RowTile { rows: tile.m, columns: tile.n, chunk: 8 })
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, row: &Row) -> Result<Vec<Tactic>, BackendError> {
    let kind = Kind::of(site)?;
    let side = row_tile(row).filter(|_| site.side.is_some());
    if side.is_some() {
        RowTile::check(site)?;
    }
    row.tile.check(site, kind, across(site)?, side.map_or(0, |t| t.shared()))?;
    let estimate_ns = cost::Product::of(site).map(|p| row.tile.estimate(&p, site.target, kind, row.split));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// Returns the body: kernel files, constants and entry points.
pub fn source(site: &Site<'_>, row: &Row) -> Result<Body, BackendError> {
    let (kind, across) = (Kind::of_types(site)?, across(site)?);
    let own = row.tile.shared(kind, across);
    let side = row_tile(row).filter(|_| site.side.is_some());
    let (lines_a, lines_b) = (lines(site, 0), lines(site, 1));
    let numbers = [("SPLIT", row.split), ("SIDE_AT", own), ("LINES_A", lines_a), ("LINES_B", lines_b)];
    let code = row.tile.constants(kind, across)
        + &constants(&numbers, &[("SIDE", side.is_some())])
        + &side.map_or_else(String::new, |t| t.constants(site));
    let mut entries = vec![Entry::blocks("gemm", row.tile.threads() as u32)];
    entries.extend((row.split > 1).then_some(Entry::Element(0, "gemm_sum")));
    let shared = (own + side.map_or(0, |t| t.shared())) as u32;
    Ok(Body { shared, scratch: row.split > 1, ..Body::of("matmul/mma", entries) }.with(code))
}

/// The product, then its sums where blocks share the depth.
pub fn launch(cx: &Cx<'_>, row: &Row) -> Result<Vec<Launch>, BackendError> {
    let Row { tile, split } = row;
    let p = product(cx)?;
    let sums: usize = cx.out_shape(0)?.iter().product();
    let params = MmaMatmulParams {
        rows: p.m,
        columns: p.n,
        depth: p.k,
        a_row: p.left.1,
        a_column: p.left.0,
        b_row: p.right.0,
        b_column: p.right.1,
        sums,
        batch: p.params.batch,
        a_batch: p.params.a_batch,
        b_batch: p.params.b_batch,
    };
    let blocks = p.m.div_ceil(tile.m) * p.n.div_ceil(tile.n) * p.batch * split;
    let gemm = Launch::map(0, params.words()?).on(Grid::Groups(blocks as u64));
    if let Some(rows) = row_tile(row) {
        return Ok(rows.launches(cx, 1, vec![gemm]));
    }
    let bytes = (split * sums * 4) as u64;
    Ok(vec![gemm.scratch(bytes), Launch::map(1, params.words()?).scratch(bytes)])
}
