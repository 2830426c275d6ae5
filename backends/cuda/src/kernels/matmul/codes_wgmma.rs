//! Products by weights that stay codes, by `wgmma` with TMA: the weights are the first operand of the instruction, from registers.

use super::codes::{depth, kind, of_codes, params};
use crate::kernels::constants::{constants, structure};
use crate::kernels::cost::{Device, LAUNCH_NS, Product};
use crate::kernels::wgmma::few::along;
use crate::kernels::wgmma::{STAGE_BYTES, has_wgmma, multiply_registers};
use crate::tiles;
use kiln_backend::{BackendError, Tactic, Target};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Entry, Grid, Launch};
use kiln_ir::DType;

/// Elements of the depth in a stage.
const STAGE: usize = STAGE_BYTES / SIZE;
/// Bytes of an element of a row.
const SIZE: usize = 2;
/// Elements of the depth of an instruction, which share a scale.
const STEP: i64 = 16;
/// Words from one row of sums in shared memory to the next.
const PITCH: usize = 68;

/// Work of a block: rows, warpgroups of 64 columns each, buffers, and the number of blocks that share the depth.
#[derive(Debug)]
pub struct Tile {
    pub rows: usize,
    pub groups: usize,
    pub stages: usize,
    pub split: usize,
}

impl Tile {
    /// The tile as a row of the list of all.
    pub fn listed(&self, tactic: &'static str) -> tiles::Tile {
        tiles::Tile {
            tactic,
            rows: self.rows,
            columns: self.columns(),
            threads: self.threads(),
            stages: Some(self.stages),
            stage_bytes: Some(STAGE_BYTES),
            split: self.split,
            beside: None,
        }
    }

    fn columns(&self) -> usize {
        self.groups * 64
    }

    /// The warpgroups that multiply, and the warp that copies.
    fn threads(&self) -> usize {
        self.groups * 128 + 32
    }

    /// Stages or sums, barriers, and room to start at a multiple of 1024.
    fn shared(&self) -> usize {
        let stages = self.stages * self.rows * STAGE_BYTES;
        stages.max(self.groups * self.rows * PITCH * 4) + self.stages * 16 + 1024
    }

    /// The nanoseconds that a product is expected to take.
    fn estimate(&self, product: &Product, target: &Target) -> f64 {
        /// Clocks before the first product and after the last one.
        const AROUND: f64 = 4000.0;
        /// Times that a product takes what it takes at best.
        const SLOWER: f64 = 1.25;
        /// Clocks in which the warps of a warpgroup make the weights of a stage floats.
        const DEQUANTIZE: f64 = 220.0;
        /// Clocks of a stage at least.
        const LATENCY: f64 = 700.0;
        /// Reached part of the memory's nominal bandwidth.
        const MEMORY: f64 = 0.65;
        /// Bandwidth of the L2 as a multiple of the memory's nominal one.
        const L2: f64 = 2.0;
        let [m, n, k, count] = product.size;
        let Device { sm_count, ghz, bandwidth } = Device::of(target);
        let steps = (k / STAGE as f64 / self.split as f64).ceil().max(1.0);
        let groups = self.groups as f64;
        let multiply = groups * 2.0 * self.rows as f64 * SLOWER;
        let each = multiply.max(groups * DEQUANTIZE).max(LATENCY);
        let blocks = product.tiles(self.rows, self.columns()) * self.split as f64;
        let busy = (blocks / sm_count).ceil() * (AROUND + steps * each) / ghz;
        let traffic = blocks * steps * (self.rows * STAGE_BYTES + self.columns() * STAGE) as f64;
        let split = self.split as f64;
        let sums = if self.split > 1 { LAUNCH_NS + m * n * count * 8.0 * split / bandwidth } else { 0.0 };
        LAUNCH_NS + busy.max(product.bytes / (bandwidth * MEMORY)).max(traffic / (bandwidth * L2)) + sums
    }
}

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Tile) -> bool {
    false
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    has_wgmma(site.target)?;
    if !matches!(site.dtype(0), Some(DType::F16 | DType::BF16)) {
        return unsupported("wgmma of codes by rows of another type than f16 and bf16");
    }
    let (depth, along) = depth(site)?;
    if !depth.is_multiple_of(STAGE) || along % STEP != 0 && along < depth as i64 {
        return unsupported(format!(
            "a depth of {depth} in blocks of {along}: not multiples of {STAGE} and {STEP}"
        ));
    }
    let needs = tile.shared() as u64;
    if let Some(&has) = site.target.numbers.get("shared_memory").filter(|has| **has < needs) {
        return unsupported(format!("{needs} bytes of shared memory, there are {has}"));
    }
    let estimate_ns = Product::of(site).map(|p| tile.estimate(&p, site.target));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// Returns the body: kernel files, constants and entry points.
pub fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let kind = kind(site.dtype(0))?;
    let numbers = [("ROWS", tile.rows), ("GROUPS", tile.groups), ("STAGES", tile.stages)];
    let more = format!("    typedef {} Mma;\n", kind.instruction())
        + &multiply_registers(tile.rows, kind, kind.types, false);
    let code = structure("Tile", &numbers, &[], &more)
        + &constants(&[("SPLIT", tile.split)], &[])
        + &of_codes(site, STAGE)?;
    let mut entries = vec![Entry::blocks("codes_groups", tile.threads() as u32)];
    entries.extend((tile.split > 1).then_some(Entry::Element(0, "codes_sum")));
    let (shared, scratch) = (tile.shared() as u32, tile.split > 1);
    Ok(Body { shared, maps: 1, scratch, ..Body::of("matmul/codes_wgmma", entries) }.with(code))
}

/// The product, then its sums where blocks share the depth.
pub fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let p = params(cx)?;
    let words = p.words()?;
    let blocks = p.rows.div_ceil(tile.rows) * p.columns.div_ceil(tile.columns()) * tile.split;
    let maps = vec![along(0, SIZE, p.depth, p.rows, [tile.rows, 1])];
    let gemm = Launch { maps, ..Launch::map(0, words.clone()).on(Grid::Groups(blocks as u64)) };
    if tile.split == 1 {
        return Ok(vec![gemm]);
    }
    let bytes = (tile.split * p.rows * p.columns * 4) as u64;
    Ok(vec![gemm.scratch(bytes), Launch::map(1, words).scratch(bytes)])
}
