//! Matrix products by `wgmma`.

use super::across;
use crate::kernels::cost::Product;
use crate::kernels::mma::Kind;
use crate::kernels::wgmma::operands::{Lies, element_bytes, spread_map};
use crate::kernels::wgmma::{Files, Tile, has_wgmma};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Launch, Map};

kiln_codegen::params! {
    /// A matrix product by tiles of `wgmma`.
    pub struct WgmmaMatmulParams {
        /// Rows of the result, of all batches where they share B.
        rows: u32,
        /// Columns of the result.
        columns: u32,
        /// Products that are summed up.
        depth: u32,
        /// Products that do not share B.
        batch: u32,
        /// 1 where B has a matrix for each of them.
        batched_b: u32,
        /// Results of all batches.
        results: u32,
        /// Whether B is constant.
        constant: u32,
    }
}

/// Whether a kernel of the table takes a side result.
pub const fn side_results(tile: &Tile) -> bool {
    tile.leaves_parts()
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    has_wgmma(site.target)?;
    let kind = Kind::of(site)?;
    let (across_a, across_b) = across(site)?;
    if across_a || (across_b && kind.size != 2) || tile.n < 64 && across_b {
        return unsupported("wgmma of operands that lie across the depth");
    }
    let Some((_, node)) = site.anchor else { return unsupported("a region without an anchor") };
    let ty = |i: usize| node.inputs.get(i).copied().flatten().map(|v| site.graph.ty(v));
    let (Some(a), Some(b)) = (ty(0), ty(1)) else { return unsupported("a product without operands") };
    let batch = |d: &[kiln_ir::Dim]| d.get(..d.len().saturating_sub(2)).unwrap_or_default().to_vec();
    if a.rank() < 2 || b.rank() < 2 || (b.rank() > 2 && batch(&a.dims) != batch(&b.dims)) {
        return unsupported("wgmma of vectors, or of batches that broadcast");
    }
    // Depth, and what is contiguous in B.
    let dims = [a.dims.last(), b.dims.last()].map(|d| d.and_then(|d| d.as_const()).unwrap_or(0));
    if dims.iter().any(|&d| d <= 0 || d * kind.size as i64 % 16 != 0) {
        return unsupported("TMA of rows that are not known to be multiples of 16 bytes");
    }
    tile.check(lies(site)?)?;
    Ok(tile.tactic(name, site.target, kind, Product::of(site)))
}

/// Layout of B in the stages of a product, if that is known: by the columns of one matrix along the depth.
fn lies(site: &Site<'_>) -> Result<Lies, BackendError> {
    if across(site)?.1 {
        return Ok(Lies::Across);
    }
    let b = site.anchor.and_then(|(_, n)| Some(site.graph.ty((*n.inputs.get(1)?)?)));
    match b.map(|t| (t.rank(), t.dims.first().and_then(|d| d.as_const()))) {
        Some((2, Some(columns))) => Ok(Lies::along(columns.max(0) as usize)),
        Some((2, None)) => unsupported("wgmma of a matrix of unknown columns"),
        _ => Ok(Lies::Along),
    }
}

/// The files of the product.
pub const FILES: Files = Files { name: "matmul/wgmma", entry: "matmul", sum: "matmul_sum" };

/// Returns the body: kernel files, constants and entry points.
pub fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    Ok(tile.body(site, Kind::of_types(site)?, lies(site)?, &FILES))
}

/// The map of matrices that lie one after the other: columns, rows, matrices.
pub fn matrices(input: usize, size: usize, dims: [usize; 3], block: [usize; 3]) -> Map {
    Map {
        input,
        size,
        dims: dims.map(|d| d as u64).to_vec(),
        strides: vec![dims[0] as u64, (dims[0] * dims[1]) as u64],
        block: block.map(|b| b as u32).to_vec(),
        windows: None,
        scratch: false,
    }
}

/// The product, then its sums where blocks share the depth.
pub fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let (a, b, out) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let trans = cx.op()?.attrs().bool("trans_b").map_err(op_error)?;
    let (&[.., m, k], &[.., r, c]) = (&a[..], &b[..]) else { return unsupported("wgmma of vectors") };
    let n = if trans { r } else { c };
    let volume: usize = out.iter().product();
    // One B for all: the rows of a whole batch are those of one matrix.
    let shared = b.len() == 2;
    let rows = if shared { a.iter().product::<usize>() / k.max(1) } else { m };
    // A result of a gated product has two sums.
    let batch = volume / (rows * out.last().copied().unwrap_or(1)).max(1);
    let size = element_bytes(cx);
    let step = tile.line / size;
    let of_b = match (trans, Lies::along(n)) {
        (true, Lies::Spread) if shared => spread_map(size, k, n, tile.share(), tile.line),
        (true, _) => matrices(1, size, [c, r, batch], [step, tile.share(), 1]),
        _ => matrices(1, size, [c, r, batch], [64, step, 1]),
    };
    let maps = vec![matrices(0, size, [k, rows, batch], [step, tile.m(), 1]), of_b];
    let tiles = tile.count(rows, n, batch);
    let params = WgmmaMatmulParams {
        rows,
        columns: n,
        depth: k,
        batch,
        batched_b: usize::from(!shared),
        results: volume,
        constant: cx.constant(1),
    };
    Ok(tile.launches(tiles, volume, params.words()?, maps))
}
