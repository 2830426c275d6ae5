//! Products of many rows by weights that stay codes. One launch makes the weights floats in scratch memory, where they mostly stay in
//! the L2. The next is a product of floats by `wgmma`.

use super::codes::{depth, kind, of_codes, params};
use super::wgmma::{FILES, WgmmaMatmulParams, matrices};
use crate::kernels::constants::{alias, constants};
use crate::kernels::cost::{Device, LAUNCH_NS, Product};
use crate::kernels::wgmma::operands::{Lies, spread_map};
use crate::kernels::wgmma::{STAGE_BYTES, Tile, has_wgmma};
use kiln_backend::{BackendError, Tactic, Target};
use kiln_codegen::matmul::codes::{FEW, rows};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Entry, Grid, Launch, Map};
use kiln_ir::DType;

/// Bytes of an element.
const SIZE: usize = 2;
/// Elements beside each other that a thread makes of codes, how many of them, and threads of a block.
const NEIGHBOURS: usize = 8;
const EIGHTS: usize = 8;
const MAKERS: usize = 256;
/// The entry point behind that of the product.
const MAKE: usize = 1;

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Tile) -> bool {
    false
}

/// Columns of the product, if their number is known.
fn columns(site: &Site<'_>) -> Option<usize> {
    usize::try_from(site.graph.ty(site.input(1)?).dims.first()?.as_const()?).ok()
}

/// The nanoseconds in which codes are read and floats written.
fn estimate(target: &Target, weights: f64) -> f64 {
    /// Reached part of the memory's nominal bandwidth.
    const MEMORY: f64 = 0.65;
    LAUNCH_NS + weights * 3.0 / (Device::of(target).bandwidth * MEMORY)
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    has_wgmma(site.target)?;
    if !matches!(site.dtype(0), Some(DType::F16 | DType::BF16)) {
        return unsupported("wgmma of codes by rows of another type than f16 and bf16");
    }
    let (depth, _) = depth(site)?;
    let columns = columns(site);
    let Some(columns) = columns.filter(|n| n.checked_mul(depth).is_some_and(|n| n <= u32::MAX as usize))
    else {
        return unsupported("a matrix of an unknown number of weights, or of more than 2^32");
    };
    if rows(site).is_some_and(|n| n <= FEW) {
        return unsupported(format!("no more than {FEW} rows"));
    }
    tile.check(Lies::along(columns))?;
    let more = estimate(site.target, (columns * depth) as f64);
    let all = tile.tactic(name, site.target, kind(site.dtype(0))?, Product::of(site));
    let with = |t: Tactic| Tactic { estimate_ns: t.estimate_ns.map(|ns| ns + more), ..t };
    Ok(all.into_iter().map(with).collect())
}

/// Returns the body: kernel files, constants and entry points.
pub fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let kind = kind(site.dtype(0))?;
    let mut body = tile.body(site, kind, Lies::along(columns(site).unwrap_or(0)), &FILES);
    let numbers = [("DEPTH", depth(site)?.0), ("EIGHTS", EIGHTS), ("MAKERS", MAKERS)];
    body.code += &(of_codes(site, STAGE_BYTES / SIZE)? + &alias("CodesMma", &kind.instruction()));
    body.code += &constants(&numbers, &[]);
    body.files.push("matmul/codes_floats");
    body.entries.push(Entry::blocks("codes_floats", MAKERS as u32).silent());
    Ok(Body { scratch: true, ..body })
}

/// The weights as floats, then the product.
pub fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let p = params(cx)?;
    let (rows, n, k) = (p.rows, p.columns, p.depth);
    let bytes = (n * k * SIZE) as u64;
    let blocks = (n * k).div_ceil(NEIGHBOURS * EIGHTS * MAKERS) as u64;
    let make = Launch::map(MAKE, p.words()?).on(Grid::Groups(blocks)).scratch(bytes);
    let step = STAGE_BYTES / SIZE;
    let weights = match Lies::along(n) {
        Lies::Spread => spread_map(SIZE, k, n, tile.share(), tile.line),
        _ => matrices(1, SIZE, [k, n, 1], [step, tile.share(), 1]),
    };
    let maps = vec![matrices(0, SIZE, [k, rows, 1], [step, tile.m(), 1]), Map { scratch: true, ..weights }];
    let product = WgmmaMatmulParams {
        rows,
        columns: n,
        depth: k,
        batch: 1,
        batched_b: 0,
        results: rows * n,
        constant: 0,
    };
    let tiles = tile.count(rows, n, 1);
    let product = tile.launches(tiles, rows * n, product.words()?, maps);
    Ok([make].into_iter().chain(product.into_iter().map(|l| l.scratch(bytes))).collect())
}
