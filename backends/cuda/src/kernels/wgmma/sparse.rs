//! Tiles of products by packed 2:4 sparse weights by `wgmma.mma_async.sp` with TMA, for sm_90a: their sizes and expected times. The
//! tiles are in `sparse_table.rs`.
//!
//! Weights are the instruction's first operand: its rows are columns of the result.

use super::{BLOCKS, STAGE_BYTES, gates, has_functions, moments};
use crate::frame::strided;
use crate::kernels::constants::{constants, structure};
use crate::kernels::conv::bias;
use crate::kernels::cost::{Device, LAUNCH_NS, Product};
use crate::kernels::mma::Kind;
use crate::tiles;
use kiln_backend::{BackendError, Target};
use kiln_codegen::site::{Site, unsupported};
use kiln_codegen::{Blocks, Body, Entry, Grid, Launch, Map};

/// Bytes of values in a chunk of the depth.
const VALUE_BYTES: usize = STAGE_BYTES / 2;

/// Work of a block: rows of the result; warpgroups with so many parts of 64 columns each; buffers of rows, of which one has a chunk
/// of the depth; the number of blocks that share the depth, and of those that share a multiprocessor.
#[derive(Debug)]
pub struct Tile {
    pub rows: usize,
    pub groups: usize,
    pub parts: usize,
    pub stages: usize,
    pub split: usize,
    pub resident: u64,
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
            beside: Some(self.resident as usize),
        }
    }

    /// Columns of a tile.
    pub fn columns(&self) -> usize {
        self.groups * self.parts * 64
    }

    /// Whether a thread has so many sums that it wants registers of other warps.
    fn lent(&self) -> bool {
        self.groups * self.parts * self.rows > 512
    }

    /// The warpgroups that multiply, and the warp that copies.
    pub fn threads(&self) -> usize {
        self.groups * 128 + if self.lent() { 128 } else { 32 }
    }

    /// Bytes that a chunk of the depth takes of each column: values, and places of two chunks in their half of a buffer.
    fn column_bytes(kind: Kind) -> usize {
        VALUE_BYTES + 16 / kind.size
    }

    /// Rows, half as many and one buffers of two chunks of values and places, barriers, and room to start at a multiple of 1024.
    pub fn shared(&self, kind: Kind) -> usize {
        let weights = self.stages / 2 + 1;
        let rows = self.stages * (self.rows * STAGE_BYTES + 16);
        rows + weights * (self.columns() * 2 * Tile::column_bytes(kind) + 16) + 1024
    }

    /// Refuses a target whose blocks have less shared memory.
    pub fn check(&self, site: &Site<'_>, kind: Kind) -> Result<(), BackendError> {
        let needs = self.shared(kind) as u64;
        match site.target.numbers.get("shared_memory") {
            Some(&has) if has < needs => {
                unsupported(format!("{needs} bytes of shared memory, there are {has}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the body: the kernel file, constants and entry points.
    pub fn body(&self, site: &Site<'_>, kind: Kind) -> Body {
        let numbers = [
            ("GROUPS", self.groups),
            ("PARTS", self.parts),
            ("COLUMNS", self.rows),
            ("STAGES", self.stages),
            ("SPLIT", self.split),
            ("CLUSTER", 1),
            ("SIZE", kind.size),
            ("RESIDENT", self.resident as usize),
            ("LINE", STAGE_BYTES),
        ];
        // `WgmmaTiles` asks for all of these.
        let flags = [
            ("IN_TURNS", false),
            ("EXCHANGE", false),
            ("LENT", self.lent()),
            ("ACROSS_B", false),
            ("SPREAD", false),
        ];
        let own = [("LOOPED", has_functions(site)), ("ONE_BY_ONE", strided(site))];
        let code = structure("Tile", &numbers, &flags, &multiply_sparse(self.rows, kind))
            + &constants(&[], &own)
            + &bias(site)
            + &gates::members(site)
            + &moments::members(site);
        let (split, threads) = (self.split > 1, self.threads() as u32);
        let beside = (self.resident > 1).then_some(self.resident as u32);
        let blocks = Blocks { early: true, beside, ..Blocks::of("sparse_groups", threads) };
        let mut entries = vec![Entry::Blocks(blocks)];
        entries.extend(split.then_some(Entry::Element(0, "sparse_sum")));
        let shared = self.shared(kind) as u32;
        Body { shared, maps: 2, scratch: split, ..Body::of("matmul/sparse_wgmma", entries) }.with(code)
    }

    /// Launches for so many rows and columns.
    pub fn launches(&self, rows: usize, columns: usize, words: Vec<u32>, maps: Vec<Map>) -> Vec<Launch> {
        let tiles = rows.div_ceil(self.rows) * columns.div_ceil(self.columns()) * self.split;
        let blocks = (tiles as u64).min(BLOCKS * self.resident);
        let first = Launch { maps, ..Launch::map(0, words.clone()).on(Grid::Groups(blocks)) };
        if self.split == 1 {
            return vec![first];
        }
        let bytes = (self.split * rows * columns * 4) as u64;
        vec![first.scratch(bytes), Launch::map(1, words).scratch(bytes)]
    }

    /// The nanoseconds that a product is expected to take, in a chain of launches that overlap.
    pub fn estimate(&self, product: &Product, target: &Target, kind: Kind) -> f64 {
        // Those of launches, results and memory are from dense products by `wgmma`.
        /// Nanoseconds of a launch.
        const CHAINED_NS: f64 = 1300.0;
        /// Clocks before the first product.
        const START: f64 = 3000.0;
        /// Clocks from the copy of a chunk to its products.
        const LATENCY: f64 = 1400.0;
        /// Clocks around a tile's results.
        const AROUND: f64 = 240.0;
        /// Clocks for a result of a thread.
        const RESULT: f64 = 40.0;
        /// Times that a product takes what it takes at best.
        const SLOWER: f64 = 1.3;
        /// Bytes that a multiprocessor gets in a clock.
        const INTAKE: f64 = 59.0;
        /// Reached part of the memory's nominal bandwidth.
        const MEMORY: f64 = 0.65;
        /// Bandwidth of the L2 as a multiple of the memory's nominal one.
        const L2: f64 = 2.0;
        let [m, n, k, count] = product.size;
        let Device { sm_count, ghz, bandwidth } = Device::of(target);
        let (rows, cols, split) = (self.rows as f64, self.columns() as f64, self.split as f64);
        let chunks = (k * kind.size as f64 / STAGE_BYTES as f64 / split).ceil().max(1.0);
        let tiles = product.tiles(self.rows, self.columns()) * split;
        let each = (tiles / sm_count).ceil().max(1.0);
        let beside = each.min(self.resident as f64);
        let bytes = rows * STAGE_BYTES as f64 + cols * Tile::column_bytes(kind) as f64;
        // An instruction reads 2 KiB of values and 64 bytes of each row from shared memory, 128 bytes a clock.
        let multiply = cols / 64.0 * 2.0 * (16.0 + rows / 2.0) * SLOWER;
        let on_their_way = (self.stages as f64 - 1.0) * beside;
        let products = chunks * multiply.max(bytes / INTAKE).max(LATENCY / on_their_way);
        let results = AROUND + RESULT * rows * cols / (self.groups * 128) as f64;
        let clocks =
            START + each * products.max((products + results) / beside) + results * (1.0 - 1.0 / beside);
        let memory = product.bytes / (bandwidth * MEMORY);
        let sums = if self.split > 1 { LAUNCH_NS + m * n * count * 8.0 * split / bandwidth } else { 0.0 };
        let (busy, traffic) = (clocks / ghz, tiles * chunks * bytes / (bandwidth * L2));
        CHAINED_NS + busy.max(memory).max(traffic) + 0.1 * busy + 0.05 * traffic + sums
    }
}

/// The type of sums, and the function of one instruction: 64 x `n` sums from 32 bytes of values by 64 bytes of rows, on top of those
/// that are there unless `more` is 0. `places` are a lane's, SELECT the lanes of four that have them.
fn multiply_sparse(n: usize, kind: Kind) -> String {
    let all = n / 2;
    let sums: Vec<String> = (0..all).map(|i| format!("%{i}")).collect();
    let registers: Vec<String> = (0..all).map(|i| format!("\"+{}\"(d[{i}])", kind.sums.2)).collect();
    // Signs of floats, and which operands lie across the depth.
    let more = match (kind.size, kind.sums.2) {
        (2, _) => ", 1, 1, 0, 0",
        (_, "f") => ", 1, 1",
        _ => "",
    };
    let (a, b, places, one, select) = (all, all + 1, all + 2, all + 3, all + 4);
    format!(
        "    typedef {sum} Sum;\n    template <u32 SELECT> DEV static void multiply({sum} (&d)[{all}], u64 a, u64 b, u32 places, u32 \
         more) {{\n    asm volatile(\"{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{one}, \
         0;\\nwgmma.mma_async.sp.sync.aligned.m64n{n}k{depth}.{to}.{weights}.{rows} {{{sums}}}, %{a}, %{b}, %{places}, %{select}, \
         p{more};\\n}}\"\n        : {registers}\n        : \"l\"(a), \"l\"(b), \"r\"(places), \"r\"(more), \"n\"(SELECT));\n}}\n",
        sum = kind.sums.0,
        depth = VALUE_BYTES / kind.size,
        to = kind.sums.1,
        weights = kind.types.1,
        rows = kind.types.0,
        sums = sums.join(", "),
        registers = registers.join(", "),
    )
}
