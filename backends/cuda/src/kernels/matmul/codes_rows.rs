//! Products of few rows by weights that stay codes, by `mma.sync` without stages: lanes have the codes of their share of the depth on
//! their way before the kernel in front is done.

use super::codes::{depth, kind, of_codes};
use crate::kernels::constants::{alias, constants};
use crate::kernels::cost::{Device, Product};
use crate::tiles;
use kiln_backend::{BackendError, Tactic, Target};
use kiln_codegen::matmul::codes::{FEW, codes_of_word, rows};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Blocks, Body, Entry, Grid, Launch};
use kiln_ir::DType;

kiln_codegen::params! {
    /// A product of few rows by weights that stay codes.
    struct CodesRowsParams {
        /// Rows of the result.
        rows: u32,
        /// Its columns: outputs.
        columns: u32,
        /// Elements of a row.
        depth: u32,
        /// Scales of an output.
        scales: u32,
        /// Whether codes, scales and zero points are constant.
        constant: u32,
    }
}

/// Outputs of a block, and rows of an instruction.
const OUTPUTS: usize = 16;
const OF_TILE: usize = 8;
/// Vectors of 16 bytes of each of two outputs that a lane has on their way.
const AHEAD: usize = 4;
/// Words of a vector.
const WORDS: usize = 4;

/// Work of a block: tiles of 8 rows, and warps that share the depth.
#[derive(Debug)]
pub struct Tile {
    pub tiles: usize,
    pub warps: usize,
}

impl Tile {
    /// The tile as a row of the list of all.
    pub fn listed(&self, tactic: &'static str) -> tiles::Tile {
        tiles::Tile {
            tactic,
            rows: self.rows(),
            columns: OUTPUTS,
            threads: self.warps * 32,
            stages: Some(AHEAD),
            stage_bytes: Some(4 * WORDS * 4 * self.warps),
            split: 1,
            beside: None,
        }
    }

    fn rows(&self) -> usize {
        self.tiles * OF_TILE
    }

    /// The nanoseconds that a product is expected to take.
    fn estimate(&self, product: &Product, target: &Target) -> f64 {
        /// Nanoseconds of a launch in a chain.
        const CHAINED_NS: f64 = 1200.0;
        /// Clocks of a block around its products, and of a multiprocessor for a code and for a product of it.
        const AROUND: f64 = 1200.0;
        const CODE: f64 = 0.02;
        const PRODUCT: f64 = 0.0005;
        /// Reached part of the memory's nominal bandwidth.
        const MEMORY: f64 = 0.8;
        let [m, n, k, count] = product.size;
        let device = Device::of(target);
        let times = (m / self.rows() as f64).ceil();
        let codes = n * k * count * times / device.sm_count;
        let warps = product.tiles(self.rows(), OUTPUTS) * self.warps as f64 / device.sm_count;
        let idle = (16.0 / warps).clamp(1.0, 3.0);
        // A lane that has all of its depth on its way waits once.
        let waits = (k / (self.warps * AHEAD * 128) as f64).ceil();
        let work = codes * (CODE + PRODUCT * self.rows() as f64);
        let busy = (AROUND * (warps / 16.0).ceil().max(waits) + work) / device.ghz;
        CHAINED_NS + busy.max(product.bytes * idle / (device.bandwidth * MEMORY))
    }
}

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Tile) -> bool {
    false
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    if site.dtype(0) == Some(DType::F32) && !site.target.has("tf32") {
        return unsupported("tensor cores for f32 without TF32");
    }
    kind(site.dtype(0))?;
    depth(site)?;
    let rows = rows(site);
    if rows.is_some_and(|n| n > FEW || n <= (tile.rows() as i64) / 2 && tile.tiles > 1) {
        return unsupported(format!("{} rows at once of {rows:?}", tile.rows()));
    }
    let estimate_ns = Product::of(site).map(|p| tile.estimate(&p, site.target));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// Returns the body: the kernel file, constants and the entry point.
pub fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let kind = kind(site.dtype(0))?;
    let of_vector = WORDS * codes_of_word(site.dtype(1)) as usize;
    let code = constants(&[("WARPS", tile.warps), ("TILES", tile.tiles), ("AHEAD", AHEAD)], &[])
        + &of_codes(site, of_vector)?
        + &alias("CodesMma", &kind.instruction());
    let entry = Blocks { early: true, ..Blocks::of("codes_rows", (tile.warps * 32) as u32) };
    Ok(Body::of("matmul/codes_rows", vec![Entry::Blocks(entry)]).with(code))
}

/// The launch of blocks of outputs and rows.
pub fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let p = super::codes::params(cx)?;
    let constant = [1, 2, 3].into_iter().filter(|&i| cx.has(i)).map(|i| cx.constant(i)).product();
    let params =
        CodesRowsParams { rows: p.rows, columns: p.columns, depth: p.depth, scales: p.scales, constant };
    let blocks = p.rows.div_ceil(tile.rows()) * p.columns.div_ceil(OUTPUTS);
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Groups(blocks as u64))])
}
