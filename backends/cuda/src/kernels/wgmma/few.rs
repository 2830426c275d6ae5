//! Products with few rows by `wgmma` with TMA, for sm_90a: matrix products by weights, and convolutions of images with
//! channels last. The weights are the first operand of the instruction; blocks of a cluster share the depth.

use super::{gates, moments, multiply};
use crate::kernels::constants::structure;
use crate::kernels::conv::bias;
use crate::kernels::cost::{Device, Product};
use crate::kernels::mma::Kind;
use crate::tiles;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Site, unsupported};
use kiln_codegen::{Blocks, Body, Entry, Grid, Launch, Map};

/// Columns of a block's tile: rows of the instruction.
pub const COLUMNS: usize = 64;
/// Bytes of K in a part of a stage.
pub const PART_BYTES: usize = 128;
/// Threads of a block: a warpgroup that multiplies, and a warp that copies.
const THREADS: usize = 160;
/// Words from one row of sums to the next.
const PITCH: usize = 68;
/// Parts of a stage at most: a box of TMA has 256 lines.
const MAX_CHUNK: usize = 4;
/// Parts of a block's share of the depth at most.
const MAX_PARTS: usize = 512;
/// Stages at most.
const MAX_STAGES: usize = 24;

/// Work of a block: rows, and the number of blocks that share the depth.
#[derive(Debug)]
pub struct Tile {
    pub rows: usize,
    pub split: usize,
}

/// Division of a block's share of the depth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// Stages that are multiplied.
    pub steps: usize,
    /// Parts of 128 bytes in a stage.
    pub chunk: usize,
    /// Stages that lie in shared memory.
    pub stages: usize,
}

impl Tile {
    /// The tile as a row of the list of all.
    pub fn listed(&self, tactic: &'static str) -> tiles::Tile {
        tiles::Tile {
            tactic,
            rows: self.rows,
            columns: COLUMNS,
            threads: THREADS,
            stages: None,
            stage_bytes: Some(PART_BYTES),
            split: self.split,
            beside: None,
        }
    }

    /// Cuts a depth of so many parts, if shared memory of this many bytes lets it.
    pub fn cut(&self, parts: usize, shared: usize) -> Option<Cut> {
        let own = parts
            .checked_div(self.split)
            .filter(|n| n * self.split == parts && (1..=MAX_PARTS).contains(n))?;
        let room = shared.checked_sub(self.fixed())?;
        let fits = |chunk: usize| (room / (chunk * self.part_bytes())).min(MAX_STAGES);
        // Three stages are enough to begin early; larger ones take fewer copies.
        let whole = |c: &usize| own % c == 0 && own / c >= own.min(3) && fits(*c) >= own / c;
        let ring = |c: &usize| own % c == 0 && fits(*c) >= 3;
        let mut chunks = (1..=MAX_CHUNK).rev();
        let chunk = chunks.clone().find(whole).or_else(|| chunks.find(ring))?;
        let steps = own / chunk;
        Some(Cut { steps, chunk, stages: steps.min(fits(chunk)) })
    }

    fn part_bytes(&self) -> usize {
        (COLUMNS + self.rows) * PART_BYTES
    }

    /// Bytes of the shares of other blocks, barriers, and room to start at a multiple of 1024; of sums where stages are
    /// smaller.
    fn fixed(&self) -> usize {
        let shares = (self.split - 1) * (self.rows / self.split) * PITCH * 4;
        shares + (2 * MAX_STAGES + 1) * 8 + 1024
    }

    /// Shared memory of a block.
    pub fn shared(&self, cut: Cut) -> usize {
        (cut.stages * cut.chunk * self.part_bytes()).max(self.rows * PITCH * 4) + self.fixed()
    }

    /// A tactic where the depth, of so many elements, can be cut.
    pub fn tactic(
        &self,
        site: &Site<'_>,
        name: &str,
        kind: Kind,
        depth: Option<usize>,
    ) -> Result<Vec<Tactic>, BackendError> {
        if kind.sums.2 == "r" && self.rows > 32 && !self.rows.is_multiple_of(16) {
            return unsupported("wgmma of bytes with so many columns");
        }
        let Some(cut) = self.cut_of(site, kind, depth) else {
            return unsupported("depths that are not known, or no multiple of the blocks that share them");
        };
        let resident = (shared_memory(site) / (self.shared(cut) + 1024)).clamp(1, 8);
        let product = Product::of(site);
        let at_once = site.target.numbers.get("sm_count").map_or(0, |&n| n as usize) * resident;
        let blocks = product.as_ref().map(|p| p.tiles(self.rows, COLUMNS) * self.split as f64);
        // Clusters that use stages again have been checked only where all of them run at once.
        if self.split > 1 && cut.stages < cut.steps && blocks.is_none_or(|n| n > at_once as f64) {
            return unsupported("clusters whose stages are used again, of more blocks than run at once");
        }
        let estimate_ns = product.map(|p| self.estimate(&p, site, cut, kind, resident));
        Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
    }

    fn cut_of(&self, site: &Site<'_>, kind: Kind, depth: Option<usize>) -> Option<Cut> {
        let bytes = depth.filter(|&d| d > 0)?.checked_mul(kind.size)?;
        let parts = bytes / PART_BYTES;
        bytes.is_multiple_of(PART_BYTES).then(|| self.cut(parts, shared_memory(site)))?
    }

    /// The nanoseconds that a product is expected to take where `resident` blocks share a multiprocessor.
    fn estimate(&self, product: &Product, site: &Site<'_>, cut: Cut, kind: Kind, resident: usize) -> f64 {
        // Fitted to 317 times of 48 shapes on an H200, in chains of launches that overlap.
        /// Nanoseconds of a launch.
        const CHAINED_NS: f64 = 800.0;
        /// Clocks before the first product and after the last one.
        const AROUND: f64 = 1100.0;
        /// Clocks of an exchange between blocks.
        const EXCHANGE: f64 = 580.0;
        /// Clocks of a row of sums in it.
        const EXCHANGE_ROW: f64 = 9.0;
        /// Clocks of storing a row.
        const STORE_ROW: f64 = 33.0;
        /// Clocks for the moments of a row of a part.
        const MOMENTS: f64 = 0.7;
        /// Clocks of stages that are used again.
        const AGAIN: f64 = 840.0;
        /// Bytes that a multiprocessor gets in a clock.
        const INTAKE: f64 = 96.0;
        /// Bandwidth of the L2 for small boxes, as a multiple of the memory's.
        const L2: f64 = 1.15;
        let (target, normed) = (site.target, moments::is(site));
        let [m, n, ..] = product.size;
        let (rows, parts) = (self.rows as f64, (cut.steps * cut.chunk) as f64);
        let blocks = product.tiles(self.rows, 64) * self.split as f64;
        let bytes = parts * 128.0 * (rows + 64.0);
        // An instruction reads both operands from shared memory, or multiplies.
        let multiply = parts * 4.0 * (rows / 2.0).max(16.0 + rows / 4.0);
        let moments = if normed { parts * rows * MOMENTS } else { 0.0 };
        let exchange = if self.split > 1 { EXCHANGE + rows * EXCHANGE_ROW } else { 0.0 };
        let again = if cut.stages < cut.steps { AGAIN } else { 0.0 };
        let Device { sm_count: sm, ghz, bandwidth } = Device::of(target);
        let together = (blocks / sm).ceil().min(resident as f64).max(1.0);
        let work = moments * together
            + rows * STORE_ROW * together
            + (multiply * together).max(bytes * together / INTAKE);
        let waves = (blocks / (sm * resident as f64)).ceil();
        let traffic = blocks * bytes + kind.size as f64 * m * n;
        let busy = waves * (AROUND + exchange + again + work) / ghz;
        CHAINED_NS + busy.max(product.bytes / bandwidth).max(traffic / (bandwidth * L2))
    }

    /// Returns the body: the file of an operator, constants and entry points.
    pub fn body(
        &self,
        site: &Site<'_>,
        file: &'static str,
        across_w: bool,
        depth: Option<usize>,
    ) -> Result<Body, BackendError> {
        let kind = Kind::of_types(site)?;
        let Some(cut) = self.cut_of(site, kind, depth) else { return unsupported("this depth") };
        let numbers = [
            ("ROWS", self.rows),
            ("SPLIT", self.split),
            ("SIZE", kind.size),
            ("STEPS", cut.steps),
            ("CHUNK", cut.chunk),
            ("STAGES", cut.stages),
        ];
        let more = multiply(self.rows, kind, (kind.types.1, kind.types.0), (across_w, false));
        let code = structure("Tile", &numbers, &[("ACROSS_W", across_w)], &more)
            + &bias(site)
            + &gates::members(site)
            + &moments::members(site);
        let blocks = Blocks { early: true, cluster: self.split as u32, ..Blocks::of("few", THREADS as u32) };
        let shared = self.shared(cut) as u32;
        Ok(Body { shared, maps: 2, ..Body::of(file, vec![Entry::Blocks(blocks)]) }.with(code))
    }

    /// The launch for a result of so many rows and columns.
    pub fn launches(&self, rows: usize, cols: usize, words: Vec<u32>, maps: Vec<Map>) -> Vec<Launch> {
        let tiles = rows.div_ceil(self.rows) * cols.div_ceil(COLUMNS);
        vec![Launch { maps, ..Launch::map(0, words).on(Grid::Groups((tiles * self.split) as u64)) }]
    }
}

fn shared_memory(site: &Site<'_>) -> usize {
    site.target.numbers.get("shared_memory").map_or(0, |&n| n as usize)
}

/// Dimensions of the weights, those that are known.
pub fn weights(site: &Site<'_>) -> Option<Vec<Option<usize>>> {
    let (_, n) = site.anchor?;
    let dims = &site.graph.ty((*n.inputs.get(1)?)?).dims;
    Some(dims.iter().map(|d| d.as_const().and_then(|d| usize::try_from(d).ok())).collect())
}

/// The parts of a stage for a depth of so many parts, on every device of sm_90a.
pub fn chunk_of(tile: &Tile, parts: usize) -> Result<usize, BackendError> {
    match tile.cut(parts, SHARED) {
        Some(cut) => Ok(cut.chunk),
        None => unsupported(format!("a depth of {parts} parts")),
    }
}

/// Bytes of shared memory of a block on every device of sm_90a.
pub const SHARED: usize = 227 << 10;

/// The map of lines along the depth, cut into parts: a box has `lines` lines of `chunk` parts.
pub fn along(input: usize, size: usize, depth: usize, lines: usize, block: [usize; 2]) -> Map {
    let step = PART_BYTES / size;
    Map {
        input,
        size,
        dims: [step, lines, depth / step].map(|d| d as u64).to_vec(),
        strides: [depth, step].map(|d| d as u64).to_vec(),
        block: [step, block[0], block[1]].map(|d| d as u32).to_vec(),
        windows: None,
        scratch: false,
    }
}
