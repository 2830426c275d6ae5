//! Tiles of products by `wgmma` with TMA, for sm_90a: matrix products, and convolutions of images with channels last.

pub mod codes_table;
pub mod few;
pub mod few_table;
pub mod floats_table;
mod gates;
pub mod moments;
pub mod operands;
pub mod sparse;
pub mod sparse_table;
pub mod table;

use self::operands::Lies;
pub use self::operands::STAGE_BYTES;
use super::constants::{constants, structure};
use super::conv::bias;
use super::cost::{Device, LAUNCH_NS, Product};
use super::mma::Kind;
use crate::frame::strided;
use crate::tiles;
use kiln_backend::{BackendError, Tactic, Target};
use kiln_codegen::site::{Site, unsupported};
use kiln_codegen::{Blocks, Body, Entry, Grid, Launch, Map};
use kiln_ir::expr::{BinOp, Scalar, UnOp};

/// Blocks that go on from tile to tile: as many as the largest device of sm_90a has multiprocessors.
pub const BLOCKS: u64 = 132;

/// Work of a block: warpgroups one below the other or in turns, parts of 64 rows of each, columns, buffers,
/// and the number of blocks that share a multiprocessor.
#[derive(Debug)]
pub struct Tile {
    pub groups: usize,
    /// Whether every warpgroup has tiles of its own, which it stores while others multiply.
    pub in_turns: bool,
    pub parts: usize,
    pub n: usize,
    pub stages: usize,
    /// Blocks that share the depth.
    pub split: usize,
    /// Whether these are of one cluster, and exchange sums so that each stores a share of the tile; else another launch adds them.
    pub exchange: bool,
    /// Blocks whose tiles lie one below the other, and that copy their columns together.
    pub cluster: usize,
    pub resident: u64,
    /// Bytes of the depth in a stage: 128, or 64 for depths that would leave half of that empty.
    pub line: usize,
}

/// The files of an operator: their name, the entry point, and the function that adds up parts of a sum.
pub struct Files {
    pub name: &'static str,
    pub entry: &'static str,
    pub sum: &'static str,
}

impl Tile {
    /// The tile as a row of the list of all.
    pub fn listed(&self, tactic: &'static str) -> tiles::Tile {
        tiles::Tile {
            tactic,
            rows: self.m(),
            columns: self.n,
            threads: self.threads(),
            stages: Some(self.stages),
            stage_bytes: Some(self.line),
            split: self.split,
            beside: Some(self.resident as usize),
        }
    }

    /// Rows of a tile.
    pub fn m(&self) -> usize {
        let side_by_side = if self.in_turns { 1 } else { self.groups };
        side_by_side * self.parts * 64
    }

    /// Columns of a box that a block copies.
    pub fn share(&self) -> usize {
        self.n / self.cluster
    }

    /// Tiles of a result, those of whole clusters.
    pub fn count(&self, rows: usize, columns: usize, batch: usize) -> usize {
        rows.div_ceil(self.m() * self.cluster) * self.cluster * columns.div_ceil(self.n) * batch
    }

    /// Refuses what takes more registers than there are: sums that lanes exchange beside many of their own. Boxes across the depth have
    /// 64 columns, and lines of 128 bytes.
    pub fn check(&self, lies: Lies) -> Result<(), BackendError> {
        match lies {
            Lies::Across if self.line != STAGE_BYTES || !self.share().is_multiple_of(64) => {
                unsupported("lines of 64 bytes, or shares of less than 64 columns, across the depth")
            }
            Lies::Along if self.in_turns && self.parts * self.n > 128 => {
                unsupported("warpgroups with many sums in turns, of columns that are no multiple of 32")
            }
            _ => Ok(()),
        }
    }

    /// Threads that share the results of a tile.
    pub fn storing_threads(&self) -> usize {
        if self.in_turns { 128 } else { self.groups * 128 }
    }

    /// Whether a thread has so many sums that their epilogue wants registers of other warps. There must be
    /// room for these.
    fn lent(&self) -> bool {
        self.parts * self.n == 256 && self.groups == 2 && self.resident == 1
    }

    /// The warpgroups that multiply, and the warp that copies.
    pub fn threads(&self) -> usize {
        self.groups * 128 + if self.lent() { 128 } else { 32 }
    }

    /// Whether sums of a part of the depth go through memory.
    pub const fn leaves_parts(&self) -> bool {
        self.split > 1 && !self.exchange
    }

    /// Stages, two barriers of each, and room to start at a multiple of 1024; where sums are exchanged, those of others, and a barrier.
    /// `normed`: where rows are normalized, their moments.
    fn shared(&self, normed: bool) -> u32 {
        let others =
            if self.exchange { self.m() * self.n * 4 / self.split * (self.split - 1) + 8 } else { 0 };
        let moments = if normed { 8 + self.groups * self.parts * 64 * 8 } else { 0 };
        (self.stages * ((self.m() + self.n) * self.line + 16) + 1024 + others + moments) as u32
    }

    /// Launches for so many tiles and sums.
    pub fn launches(&self, tiles: usize, sums: usize, words: Vec<u32>, maps: Vec<Map>) -> Vec<Launch> {
        let all = (tiles * self.split) as u64;
        let blocks = if self.exchange { all } else { all.min(BLOCKS * self.resident) };
        let first = Launch { maps, ..Launch::map(0, words.clone()).on(Grid::Groups(blocks)) };
        if !self.leaves_parts() {
            return vec![first];
        }
        let bytes = (self.split * sums * 4) as u64;
        vec![first.scratch(bytes), Launch::map(1, words).scratch(bytes)]
    }

    /// Returns the body: the files of an operator, constants and entry points.
    pub fn body(&self, site: &Site<'_>, kind: Kind, lies: Lies, files: &Files) -> Body {
        let numbers = [
            ("GROUPS", self.groups),
            ("PARTS", self.parts),
            ("COLUMNS", self.n),
            ("STAGES", self.stages),
            ("SPLIT", self.split),
            ("CLUSTER", self.cluster),
            ("SIZE", kind.size),
            ("RESIDENT", self.resident as usize),
            ("LINE", self.line),
        ];
        let flags = [
            ("IN_TURNS", self.in_turns),
            ("EXCHANGE", self.exchange),
            ("LENT", self.lent()),
            ("ACROSS_B", lies == Lies::Across),
            ("SPREAD", lies == Lies::Spread),
        ];
        let own = [("LOOPED", self.lent() && has_functions(site)), ("ONE_BY_ONE", strided(site))];
        let more = multiply(self.n, kind, kind.types, (false, lies == Lies::Across));
        let code = structure("Tile", &numbers, &flags, &more)
            + &constants(&[], &own)
            + &bias(site)
            + &gates::members(site)
            + &moments::members(site);
        let (split, threads) = (self.leaves_parts(), self.threads() as u32);
        let cluster = (self.cluster * if self.exchange { self.split } else { 1 }) as u32;
        let blocks = Blocks { early: true, cluster, ..Blocks::of(files.entry, threads) };
        let mut entries = vec![Entry::Blocks(blocks)];
        entries.extend(split.then_some(Entry::Element(0, files.sum)));
        Body {
            shared: self.shared(moments::is(site)),
            maps: 2,
            scratch: split,
            ..Body::of(files.name, entries)
        }
        .with(code)
    }

    /// A tactic for a product, if its sizes are known.
    pub fn tactic(&self, name: &str, target: &Target, kind: Kind, product: Option<Product>) -> Vec<Tactic> {
        let estimate_ns = product.map(|p| self.estimate(&p, target, kind));
        vec![Tactic { estimate_ns, ..Tactic::plain(name) }]
    }

    /// The nanoseconds that a product is expected to take, in a chain of launches that overlap.
    fn estimate(&self, product: &Product, target: &Target, kind: Kind) -> f64 {
        // Fitted to 194 times of 23 shapes on an H200: one in three is off by more than an eighth.
        /// Nanoseconds of a launch.
        const CHAINED_NS: f64 = 1300.0;
        /// Clocks before the first product.
        const START: f64 = 3000.0;
        /// Clocks from the copy of a stage to its products.
        const LATENCY: f64 = 2300.0;
        /// Clocks around a tile's results.
        const AROUND: f64 = 240.0;
        /// Clocks for a result of a thread.
        const RESULT: f64 = 37.5;
        /// Clocks of an exchange of sums, for each block of it.
        const EXCHANGE: f64 = 1000.0;
        /// Times that a product takes what it takes at best.
        const SLOWER: f64 = 1.23;
        /// Bytes that a multiprocessor gets in a clock.
        const INTAKE: f64 = 59.0;
        /// Reached part of the memory's nominal bandwidth.
        const MEMORY: f64 = 0.65;
        /// Bandwidth of the L2 as a multiple of the memory's nominal one.
        const L2: f64 = 2.0;
        let [m, n, k, count] = product.size;
        let Device { sm_count, ghz, bandwidth } = Device::of(target);
        let (rows, cols) = (self.m() as f64, self.n as f64);
        let line = self.line as f64;
        let steps = (k * kind.size as f64 / line / self.split as f64).ceil().max(1.0);
        let shared = self.cluster as f64;
        let tiles = product.tiles(self.m() * self.cluster, self.n).max(1.0) * shared * self.split as f64;
        let each = (tiles / sm_count).ceil();
        let bytes = (rows + self.share() as f64) * line;
        let on_their_way = (self.stages as f64 - 1.0).max(1.0) * each.min(self.resident as f64);
        let multiply = rows / 16.0 * (cols / 2.0).max(16.0 + cols / 4.0) * SLOWER * line / 128.0;
        let products = steps * multiply.max(bytes / INTAKE).max(LATENCY / on_their_way);
        let results = AROUND + RESULT * rows * cols / self.storing_threads() as f64;
        let split = self.split as f64;
        let results = if self.exchange { EXCHANGE * split + results / split } else { results };
        let turns = if self.in_turns { self.groups as f64 } else { 1.0 };
        let beside = each.min(self.resident as f64 * turns);
        let clocks =
            START + each * products.max((products + results) / beside) + results * (1.0 - 1.0 / beside);
        let memory = product.bytes / (bandwidth * MEMORY);
        // Sums of several blocks go through memory, and another launch adds them.
        let sums = if self.leaves_parts() {
            LAUNCH_NS + m * n * count * 8.0 * self.split as f64 / bandwidth
        } else {
            0.0
        };
        let (busy, traffic) = (clocks / ghz, tiles * steps * bytes / (bandwidth * L2));
        // Memory bounds many tiles alike; the last terms prefer the tile with the least work and traffic.
        CHAINED_NS + busy.max(memory).max(traffic) + 0.1 * busy + 0.05 * traffic + sums
    }
}

/// Whether the fused expression takes many instructions for an element.
fn has_functions(site: &Site<'_>) -> bool {
    let long = |op: &Scalar| match op {
        Scalar::Un(op, _) => !matches!(op, UnOp::Neg | UnOp::Abs),
        Scalar::Bin(op, ..) => matches!(op, BinOp::Pow | BinOp::Mod | BinOp::Rem | BinOp::FloorDiv),
        _ => false,
    };
    gates::have_functions(site) || site.fused.as_ref().is_some_and(|e| e.insts.iter().any(|i| long(&i.op)))
}

/// The type of sums, and the function of one instruction: 64 x `n` sums from 32 bytes of K, on top of those that are there, of
/// operands of these types; `across` says which lie across K.
pub fn multiply(n: usize, kind: Kind, types: (&str, &str), across: (bool, bool)) -> String {
    let sums: Vec<String> = (0..n / 2).map(|i| format!("%{i}")).collect();
    let places: Vec<String> = (0..n / 2).map(|i| format!("\"+{}\"(d[{i}])", kind.sums.2)).collect();
    // Signs of floats, and which operands lie across K: only 16-bit floats can.
    let signs = match kind.size {
        2 => format!(", 1, 1, {}, {}", u32::from(across.0), u32::from(across.1)),
        4 => ", 1, 1".to_owned(),
        _ if kind.sums.2 == "f" => ", 1, 1".to_owned(),
        _ => String::new(),
    };
    let (a, b, sum) = (n / 2, n / 2 + 1, kind.sums.0);
    format!(
        "    typedef {sum} Sum;\n    DEV static void multiply({sum} (&d)[{}], u64 a, u64 b) {{\n    asm volatile(\"{{\\n.reg .pred p;\\nsetp.eq.u32 p, 0, \
         0;\\nwgmma.mma_async.sync.aligned.m64n{n}k{}.{}.{}.{} {{{}}}, %{a}, %{b}, p{signs};\\n}}\"\n        : {}\n  \
         : \"l\"(a), \"l\"(b));\n}}\n",
        n / 2,
        32 / kind.size,
        kind.sums.1,
        types.0,
        types.1,
        sums.join(", "),
        places.join(", "),
    )
}

/// The functions of one instruction of 16-bit floats along the depth: `begin` sets 64 x `n` sums, `multiply` adds to them.
pub fn begin_and_multiply(n: usize, kind: Kind, types: (&str, &str)) -> String {
    let sums: Vec<String> = (0..n / 2).map(|i| format!("%{i}")).collect();
    let function = |name: &str, place: &str, more: u32| {
        let places: Vec<String> = (0..n / 2).map(|i| format!("\"{place}{}\"(d[{i}])", kind.sums.2)).collect();
        format!(
            "    DEV static void {name}({} (&d)[{}], u64 a, u64 b) {{\n    asm volatile(\"{{\\n.reg .pred p;\\nsetp.ne.u32 p, {more}, \
             0;\\nwgmma.mma_async.sync.aligned.m64n{n}k16.{}.{}.{} {{{}}}, %{}, %{}, p, 1, 1, 0, 0;\\n}}\"\n        : {}\n        : \
             \"l\"(a), \"l\"(b));\n}}\n",
            kind.sums.0,
            n / 2,
            kind.sums.1,
            types.0,
            types.1,
            sums.join(", "),
            n / 2,
            n / 2 + 1,
            places.join(", "),
        )
    };
    function("begin", "=", 0) + &function("multiply", "+", 1)
}

/// The function of one instruction whose first operand is in registers: 64 x `n` sums from 16 of the depth, on top of those that
/// are there. `across` says whether the second operand is stored across the depth.
pub fn multiply_registers(n: usize, kind: Kind, types: (&str, &str), across: bool) -> String {
    let sums: Vec<String> = (0..n / 2).map(|i| format!("%{i}")).collect();
    let places: Vec<String> = (0..n / 2).map(|i| format!("\"+{}\"(d[{i}])", kind.sums.2)).collect();
    let a: Vec<String> = (n / 2..n / 2 + 4).map(|i| format!("%{i}")).collect();
    format!(
        "    DEV static void multiply({} (&d)[{}], const u32 (&a)[4], u64 b) {{\n    asm volatile(\"{{\\n.reg .pred p;\\nsetp.eq.u32 p, 0, \
         0;\\nwgmma.mma_async.sync.aligned.m64n{n}k16.{}.{}.{} {{{}}}, {{{}}}, %{}, p, 1, 1, {};\\n}}\"\n        : {}\n        : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b));\n}}\n",
        kind.sums.0,
        n / 2,
        kind.sums.1,
        types.0,
        types.1,
        sums.join(", "),
        a.join(", "),
        n / 2 + 4,
        u32::from(across),
        places.join(", "),
    )
}

/// Refuses targets without the instruction.
pub fn has_wgmma(target: &Target) -> Result<(), BackendError> {
    if target.arch == "sm_90a" { Ok(()) } else { unsupported("wgmma on another target than sm_90a") }
}
