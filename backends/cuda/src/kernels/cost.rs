//! How long products are expected to take, from the target's numbers: which candidates are worth timing.

use super::few;
use super::mma::{Kind, Tile};
use super::wgmma;
use crate::target::capability;
use kiln_backend::Target;
use kiln_codegen::site::Site;
use kiln_ir::{Node, TensorType};

/// A matrix product, or a convolution as one.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Rows, columns, depth, and how many of them (batch, groups).
    size: [f64; 4],
    /// Bytes of operands and result.
    bytes: f64,
    /// Which operands' rows are known not to be whole vectors of 16 bytes.
    uneven: [bool; 2],
}

/// Nanoseconds that a kernel takes if it does nothing.
const LAUNCH_NS: f64 = 2000.0;
/// Nanoseconds of a block before its first and after its last product.
const BLOCK_NS: f64 = 1500.0;
/// Clocks that a stage takes at least, however small the tile.
const STEP_CLOCKS: f64 = 300.0;
/// Clocks of a multiprocessor for a result that goes through shared memory.
const RESULT_CLOCKS: f64 = 0.45;
/// The L2 gives so many times what memory gives.
const L2_SPEED: f64 = 1.5;

fn volume(t: &TensorType) -> Option<f64> {
    t.static_volume().map(|n| n as f64)
}

/// The share of an image that windows read: strides may be larger than they are. Weights lie as [outputs, taps.., channels].
fn read(node: &Node, weights: &TensorType) -> f64 {
    if node.op.name() != "conv" {
        return 1.0;
    }
    let strides = node.op.attrs().ints("strides").unwrap_or_default();
    let taps = weights.dims.iter().skip(1).map(|d| d.as_const().unwrap_or(1));
    strides.iter().zip(taps).map(|(&s, taps)| (taps as f64 / s.max(1) as f64).min(1.0)).product()
}

impl Product {
    /// The product that a site's anchor computes, if all sizes are known.
    pub fn of(site: &Site<'_>) -> Option<Product> {
        let (_, node) = site.anchor?;
        let ty = |i: usize| Some(site.graph.ty((*node.inputs.get(i)?)?));
        let (a, b, y) = (ty(0)?, ty(1)?, site.graph.ty(*node.outputs.first()?));
        let (outs, weights) = (volume(y)?, volume(b)?);
        let (n, k, count) = match node.op.name() {
            "conv" => {
                let channels = b.dims.first()?.as_const()? as f64;
                let groups = node.op.attrs().int("groups").ok()?.max(1) as f64;
                (channels / groups, weights / channels.max(1.0), groups)
            }
            "matmul" => {
                let trans = node.op.attrs().bool("trans_b").ok()?;
                let dim = |from_end: usize| b.dims.iter().rev().nth(from_end).and_then(|d| d.as_const());
                let (k, n) = match (b.rank(), trans) {
                    (0 | 1, _) => (dim(0)?, 1),
                    (_, true) => (dim(0)?, dim(1)?),
                    (_, false) => (dim(1)?, dim(0)?),
                };
                (n as f64, k as f64, (weights / (n as f64 * k as f64).max(1.0)).max(1.0))
            }
            _ => return None,
        };
        let bytes = |t: &TensorType| Some(volume(t)? * f64::from(t.dtype.bits()) / 8.0);
        let m = outs / (n * count).max(1.0);
        let uneven = [a, b].map(|t| {
            let row = t.dims.last().and_then(|d| d.as_const());
            row.is_some_and(|n| n.unsigned_abs() * u64::from(t.dtype.bits()) % 128 != 0)
        });
        let bytes = bytes(a)? * read(node, b) + bytes(b)? + bytes(y)?;
        Some(Product { size: [m, n, k, count], bytes, uneven: uneven.map(|u| u && node.op.is("matmul")) })
    }

    /// By a tile of `mma.sync`, `split` blocks sharing its depth.
    pub fn by_mma(&self, target: &Target, tile: &Tile, kind: Kind, split: usize) -> f64 {
        let warp = (tile.m / tile.warps.0) * (tile.n / tile.warps.1);
        // Larger tiles of a warp read shared memory less often.
        let reuse = (warp as f64 / 4096.0).powf(0.3);
        let rate = per_clock(&target.arch) * kind.speed * reuse;
        // Longer stages wait less often for each other.
        let rate = rate * if tile.bytes < 128 { 0.7 } else { 1.0 };
        // Larger tiles of a block leave the L2 more time.
        let rate = rate * if tile.m * tile.n > 128 * 128 { 1.15 } else { 1.0 };
        let size = (tile.m as f64, tile.n as f64);
        self.by_tiles(target, size, (tile.bytes / kind.size) as f64, kind, split, rate)
            + self.by_elements(target, size)
    }

    /// What tiles take longer whose operands are copied element by element.
    fn by_elements(&self, target: &Target, (rows, cols): (f64, f64)) -> f64 {
        /// Clocks of a multiprocessor for an element, measured on an H200 for a vocabulary of 50,257 columns.
        const ELEMENT: f64 = 26.0;
        let [m, n, k, count] = self.size;
        let number =
            |name: &str, default: f64| target.numbers.get(name).map_or(default, |&n| n as f64).max(1.0);
        let lines = [rows, cols].iter().zip(self.uneven).filter(|(_, u)| *u).map(|(l, _)| l).sum::<f64>();
        let tiles = (m / rows).ceil() * (n / cols).ceil() * count;
        tiles * lines * k * ELEMENT / number("sm_count", 50.0) / (number("clock_mhz", 1500.0) / 1000.0)
    }

    /// By a tile of `wgmma`, in a chain of launches that overlap.
    pub fn by_wgmma(&self, target: &Target, tile: &wgmma::Tile, kind: Kind) -> f64 {
        // Fitted to 194 times of 23 shapes on an H200: one in three is off by more than an eighth.
        /// Nanoseconds of a launch.
        const CHAINED_NS: f64 = 1300.0;
        /// Clocks before the first product; from the copy of a stage to its products; around a tile's results; for a result of
        /// a thread; for a product over what it takes at best.
        const START: f64 = 3000.0;
        const LATENCY: f64 = 2300.0;
        const AROUND: f64 = 240.0;
        const RESULT: f64 = 37.5;
        const SLOWER: f64 = 1.23;
        /// Bytes that a multiprocessor gets in a clock; of their rate on paper, what memory gives and what L2 does.
        const INTAKE: f64 = 59.0;
        const MEMORY: f64 = 0.65;
        const L2: f64 = 2.0;
        let [m, n, k, count] = self.size;
        let number =
            |name: &str, default: f64| target.numbers.get(name).map_or(default, |&n| n as f64).max(1.0);
        let (ghz, bandwidth) = (number("clock_mhz", 1500.0) / 1000.0, number("bandwidth_gbs", 500.0));
        let (rows, cols) = (tile.m() as f64, tile.n as f64);
        let steps = (k * kind.size as f64 / 128.0 / tile.split as f64).ceil().max(1.0);
        let tiles = self.tiles(tile.m(), tile.n) * tile.split as f64;
        let each = (tiles / number("sm_count", 50.0)).ceil();
        let bytes = (rows + cols) * 128.0;
        let on_their_way = (tile.stages as f64 - 1.0).max(1.0) * each.min(tile.resident as f64);
        let multiply = rows / 16.0 * (cols / 2.0).max(16.0 + cols / 4.0) * SLOWER;
        let products = steps * multiply.max(bytes / INTAKE).max(LATENCY / on_their_way);
        let results = AROUND + RESULT * rows * cols / tile.storing_threads() as f64;
        let beside = each.min(tile.resident as f64 * if tile.in_turns { 2.0 } else { 1.0 });
        let clocks =
            START + each * products.max((products + results) / beside) + results * (1.0 - 1.0 / beside);
        let memory = self.bytes / (bandwidth * MEMORY);
        // Sums of several blocks go through memory, and another launch adds them.
        let sums = if tile.split > 1 {
            LAUNCH_NS + m * n * count * 8.0 * tile.split as f64 / bandwidth
        } else {
            0.0
        };
        let (busy, traffic) = (clocks / ghz, tiles * steps * bytes / (bandwidth * L2));
        // Of tiles that memory bounds, those that do less are faster.
        CHAINED_NS + busy.max(memory).max(traffic) + 0.1 * busy + 0.05 * traffic + sums
    }

    /// How many tiles of so many rows and columns it has.
    pub fn tiles(&self, rows: usize, cols: usize) -> f64 {
        let [m, n, _, count] = self.size;
        (m / rows as f64).ceil() * (n / cols as f64).ceil() * count
    }

    /// By a tile for few rows, of which `resident` share a multiprocessor.
    pub fn by_few(
        &self,
        target: &Target,
        tile: &few::Tile,
        cut: few::Cut,
        kind: Kind,
        resident: usize,
    ) -> f64 {
        // Fitted to 317 times of 48 shapes on an H200, in chains of launches that overlap.
        /// Nanoseconds of a launch.
        const CHAINED_NS: f64 = 800.0;
        /// Clocks before the first product and after the last one, of an exchange between blocks, of a row of sums in it, of
        /// storing a row, and of stages that are used again.
        const AROUND: f64 = 1100.0;
        const EXCHANGE: f64 = 580.0;
        const EXCHANGE_ROW: f64 = 9.0;
        const STORE_ROW: f64 = 33.0;
        const AGAIN: f64 = 840.0;
        /// Bytes that a multiprocessor gets in a clock.
        const INTAKE: f64 = 96.0;
        /// The L2 gives small boxes so many times what memory gives.
        const L2: f64 = 1.15;
        let [m, n, ..] = self.size;
        let (rows, parts) = (tile.rows as f64, (cut.steps * cut.chunk) as f64);
        let blocks = self.tiles(tile.rows, 64) * tile.split as f64;
        let bytes = parts * 128.0 * (rows + 64.0);
        // An instruction reads both operands from shared memory, or multiplies.
        let multiply = parts * 4.0 * (rows / 2.0).max(16.0 + rows / 4.0);
        let exchange = if tile.split > 1 { EXCHANGE + rows * EXCHANGE_ROW } else { 0.0 };
        let again = if cut.stages < cut.steps { AGAIN } else { 0.0 };
        let number = |name: &str, default: f64| target.numbers.get(name).map_or(default, |&n| n as f64);
        let sm = number("sm_count", 50.0).max(1.0);
        let together = (blocks / sm).ceil().min(resident as f64).max(1.0);
        let work = rows * STORE_ROW * together + (multiply * together).max(bytes * together / INTAKE);
        let waves = (blocks / (sm * resident as f64)).ceil();
        let bandwidth = number("bandwidth_gbs", 500.0).max(1.0);
        let ghz = (number("clock_mhz", 1500.0) / 1000.0).max(0.1);
        let traffic = blocks * bytes + kind.size as f64 * m * n;
        let busy = waves * (AROUND + exchange + again + work) / ghz;
        CHAINED_NS + busy.max(self.bytes / bandwidth).max(traffic / (bandwidth * L2))
    }

    /// By pieces of `tall` lines of windows, `deep` instructions along the depth, `down` lines of the image from one to the next.
    pub fn by_lines(&self, target: &Target, tall: usize, deep: usize, down: usize) -> f64 {
        /// Clocks of a multiprocessor for 16 windows by 32 columns, beside those for each instruction along the depth.
        const AROUND: f64 = 110.0;
        const EACH: f64 = 11.0;
        let [m, n, ..] = self.size;
        let again = 1.0 + 0.15 * down as f64 / tall as f64;
        let number =
            |name: &str, default: f64| target.numbers.get(name).map_or(default, |&n| n as f64).max(1.0);
        let clocks = (m / 16.0).ceil() * (n / 32.0).ceil() * (AROUND + EACH * deep as f64) * again;
        let sm = number("sm_count", 50.0);
        let ghz = number("clock_mhz", 1500.0) / 1000.0;
        LAUNCH_NS
            + (clocks / sm / ghz).max(self.bytes / number("bandwidth_gbs", 500.0))
            + BLOCK_NS * tall as f64 / 2.0
    }

    /// By tiles whose stages have `step` of the depth, `split` blocks sharing it, at a rate in operations a clock.
    fn by_tiles(
        &self,
        target: &Target,
        (rows, cols): (f64, f64),
        step: f64,
        kind: Kind,
        split: usize,
        rate: f64,
    ) -> f64 {
        let [m, n, k, count] = self.size;
        let parts = split as f64;
        let tiles = (m / rows).ceil() * (n / cols).ceil() * count * parts;
        let steps = (k / parts / step).ceil().max(1.0);
        let traffic = tiles * steps * step * (rows + cols) * kind.size as f64;
        let products = (2.0 * rows * cols * steps * step / rate).max(steps * STEP_CLOCKS);
        let each = products + rows * cols * RESULT_CLOCKS;
        let (sums, more) = if split > 1 { (m * n * count * 8.0 * parts, LAUNCH_NS) } else { (0.0, 0.0) };
        self.total(target, tiles, each, traffic, sums) + more
    }

    /// By a generic kernel that makes tiles of 64 x 64, or one element a thread.
    pub fn by_generic(&self, target: &Target, tiled: bool) -> f64 {
        let [m, n, k, count] = self.size;
        // Products of f32: 256 a clock, of which loads and index arithmetic leave some.
        let (side, rate) = if tiled { (64.0, 80.0) } else { (16.0, 10.0) };
        let tiles = (m / side).ceil() * (n / side).ceil() * count;
        self.total(target, tiles, 2.0 * side * side * k / rate, 0.0, 0.0)
    }

    /// Blocks of `each` clocks, not faster than memory and L2 give their bytes.
    fn total(&self, target: &Target, tiles: f64, each: f64, traffic: f64, more: f64) -> f64 {
        let number = |name: &str, default: f64| target.numbers.get(name).map_or(default, |&n| n as f64);
        let ghz = number("clock_mhz", 1500.0).max(1.0) / 1000.0;
        let bandwidth = number("bandwidth_gbs", 500.0).max(1.0);
        let waves = (tiles / number("sm_count", 50.0).max(1.0)).ceil();
        let memory = (self.bytes + more) / bandwidth;
        LAUNCH_NS + (waves * each / ghz + BLOCK_NS).max(memory).max(traffic / (bandwidth * L2_SPEED))
    }
}

/// Operations (a product and a sum are two) of 16-bit floats that a multiprocessor reaches in a clock by `mma.sync`.
fn per_clock(arch: &str) -> f64 {
    match capability(arch) {
        80 => 1800.0,
        90 | 100 | 103 => 1450.0,
        _ => 900.0,
    }
}
