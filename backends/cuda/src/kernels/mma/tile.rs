//! Tiles of products by `mma.sync` as numbers, and how long they are expected to take.

use crate::kernels::constants::structure;
use crate::kernels::cost::{Device, LAUNCH_NS, Product};
use crate::target::capability;
use crate::tiles;
use kiln_backend::{BackendError, Target};
use kiln_codegen::site::{Site, unsupported};
use kiln_ir::DType;

/// Work of a block: rows, columns, bytes of K in a stage, its division among warps, buffers.
#[derive(Debug)]
pub struct Tile {
    pub m: usize,
    pub n: usize,
    pub bytes: usize,
    pub warps: (usize, usize),
    pub stages: usize,
}

/// A row of the table: a tile, and how many blocks share its depth.
#[derive(Debug)]
pub struct Row {
    pub tile: Tile,
    pub split: usize,
}

/// Instruction form of a pair of operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// Bytes of an element.
    pub size: usize,
    /// Rows, columns and depth of the instruction.
    pub shape: &'static str,
    /// The types of its operands.
    pub types: (&'static str, &'static str),
    /// Sums: the type in the source, for the instruction, and its kind of register.
    pub sums: (&'static str, &'static str, &'static str),
    /// Times as fast as 16-bit floats.
    pub speed: f64,
}

impl Kind {
    /// The kind for a site's operands; f32 goes by TF32 where the target allows it.
    pub fn of(site: &Site<'_>) -> Result<Kind, BackendError> {
        match site.dtype(0) {
            Some(DType::F32) if !site.target.has("tf32") => unsupported("tensor cores for f32 without TF32"),
            Some(DType::F8E4M3) if !site.target.has("f8") => {
                unsupported("tensor cores for f8e4m3 before sm_89: products are made in f32")
            }
            _ => Kind::of_types(site),
        }
    }

    /// The kind for a site's operands, whatever the target allows.
    pub fn of_types(site: &Site<'_>) -> Result<Kind, BackendError> {
        let floats =
            |size, shape, of, speed| Kind { size, shape, types: (of, of), sums: ("f32", "f32", "f"), speed };
        let small = |t| if t == DType::U8 { "u8" } else { "s8" };
        match (site.dtype(0), site.dtype(1)) {
            (Some(DType::F16), Some(DType::F16)) => Ok(floats(2, "m16n8k16", "f16", 1.0)),
            (Some(DType::BF16), Some(DType::BF16)) => Ok(floats(2, "m16n8k16", "bf16", 1.0)),
            (Some(DType::F32), Some(DType::F32)) => Ok(floats(4, "m16n8k8", "tf32", 0.5)),
            (Some(a @ (DType::I8 | DType::U8)), Some(b @ (DType::I8 | DType::U8))) => Ok(Kind {
                size: 1,
                shape: "m16n8k32",
                types: (small(a), small(b)),
                sums: ("i32", "s32", "r"),
                speed: 2.0,
            }),
            (Some(DType::F8E4M3), Some(DType::F8E4M3)) => Ok(floats(1, "m16n8k32", "e4m3", 2.0)),
            _ => {
                unsupported("tensor cores for other operands than f16, bf16, f32 as TF32, f8e4m3, i8 and u8")
            }
        }
    }

    /// The kind of f16 or bf16.
    pub fn of_halves(t: DType) -> Kind {
        let of = if t == DType::BF16 { "bf16" } else { "f16" };
        Kind { size: 2, shape: "m16n8k16", types: (of, of), sums: ("f32", "f32", "f"), speed: 1.0 }
    }

    /// The structure of the instruction in `mma/instruction.cuh`.
    pub fn instruction(&self) -> String {
        format!("kernels::mma_{}_{}", self.types.0, self.types.1)
    }
}

impl Tile {
    /// The tile as a row of the list of all.
    pub fn listed(&self, tactic: &'static str, split: usize) -> tiles::Tile {
        tiles::Tile {
            tactic,
            rows: self.m,
            columns: self.n,
            threads: self.threads(),
            stages: Some(self.stages),
            stage_bytes: Some(self.bytes),
            split,
            beside: None,
        }
    }

    /// Sums of a warp.
    fn of_warp(&self) -> usize {
        (self.m / self.warps.0) * (self.n / self.warps.1)
    }

    /// Threads of a block.
    pub fn threads(&self) -> usize {
        self.warps.0 * self.warps.1 * 32
    }

    /// Shared memory of a block in bytes; `across` says which operands lie across K.
    pub fn shared(&self, kind: Kind, across: (bool, bool)) -> usize {
        let skew = if kind.size == 4 { 32 } else { 16 };
        let operand = |lines: usize, across: bool| match across {
            true => self.bytes / kind.size * (lines * kind.size + skew),
            false => lines * (self.bytes + 16),
        };
        let stages = self.stages * (operand(self.m, across.0) + operand(self.n, across.1));
        // The sums of 16 rows of every warp go through the same memory.
        let sums = self.threads() / 32 * 16 * (self.n / self.warps.1 + 4) * 4;
        stages.max(sums)
    }

    /// Refuses a target whose blocks have less shared memory than the tile's and so many bytes.
    pub fn check(
        &self,
        site: &Site<'_>,
        kind: Kind,
        across: (bool, bool),
        more: usize,
    ) -> Result<(), BackendError> {
        if kind.types.0 == "e4m3" && capability(&site.target.arch) == 90 && self.of_warp() >= 64 * 64 {
            return unsupported(
                "large tiles of f8e4m3, which sm_90 multiplies as 16-bit floats in more registers",
            );
        }
        let needs = (self.shared(kind, across) + more) as u64;
        let has = site.target.numbers.get("shared_memory");
        match has {
            Some(&has) if has < needs => {
                unsupported(format!("{needs} bytes of shared memory, there are {has}"))
            }
            _ => Ok(()),
        }
    }

    /// The structure of constants that `mma/tiles.cuh` calls a tile.
    pub fn constants(&self, kind: Kind, across: (bool, bool)) -> String {
        self.with_instruction(&kind.instruction(), across)
    }

    /// The structure of a tile with that of an instruction.
    pub fn with_instruction(&self, instruction: &str, across: (bool, bool)) -> String {
        let numbers = [
            ("ROWS", self.m),
            ("COLUMNS", self.n),
            ("BYTES", self.bytes),
            ("WARPS_M", self.warps.0),
            ("WARPS_N", self.warps.1),
            ("STAGES", self.stages),
        ];
        let flags = [("ACROSS_A", across.0), ("ACROSS_B", across.1)];
        structure("Tile", &numbers, &flags, &format!("    typedef {instruction} Mma;\n"))
    }

    /// The nanoseconds that a product is expected to take, `split` blocks sharing the depth of a tile.
    pub fn estimate(&self, product: &Product, target: &Target, kind: Kind, split: usize) -> f64 {
        // Larger tiles of a warp read shared memory less often.
        let reuse = (self.of_warp() as f64 / 4096.0).powf(0.3);
        let rate = per_clock(&target.arch) * kind.speed * reuse;
        // Longer stages wait less often for each other.
        let rate = rate * if self.bytes < 128 { 0.7 } else { 1.0 };
        // Larger tiles of a block leave the L2 more time.
        let rate = rate * if self.m * self.n > 128 * 128 { 1.15 } else { 1.0 };
        self.by_stages(product, target, kind, split, rate) + self.by_words(product, target)
    }

    /// The nanoseconds of stages at a rate in operations a clock.
    fn by_stages(&self, product: &Product, target: &Target, kind: Kind, split: usize, rate: f64) -> f64 {
        /// Clocks that a stage takes at least, however small the tile.
        const STEP_CLOCKS: f64 = 300.0;
        /// Clocks of a multiprocessor for a result that goes through shared memory.
        const RESULT_CLOCKS: f64 = 0.45;
        let [m, n, k, count] = product.size;
        let (rows, cols) = (self.m as f64, self.n as f64);
        let (step, parts) = ((self.bytes / kind.size) as f64, split as f64);
        let tiles = (m / rows).ceil() * (n / cols).ceil() * count * parts;
        let steps = (k / parts / step).ceil().max(1.0);
        let traffic = tiles * steps * step * (rows + cols) * kind.size as f64;
        let products = (2.0 * rows * cols * steps * step / rate).max(steps * STEP_CLOCKS);
        let each = products + rows * cols * RESULT_CLOCKS;
        let (sums, more) = if split > 1 { (m * n * count * 8.0 * parts, LAUNCH_NS) } else { (0.0, 0.0) };
        product.by_blocks(target, tiles, each, traffic, sums) + more
    }

    /// The nanoseconds that operands take longer whose lines start anywhere: they are copied by words, through registers.
    fn by_words(&self, product: &Product, target: &Target) -> f64 {
        /// Clocks of a multiprocessor for an element.
        const ELEMENT: f64 = 0.3;
        let (rows, cols) = (self.m as f64, self.n as f64);
        let [m, n, k, count] = product.size;
        let device = Device::of(target);
        let lines = [rows, cols].iter().zip(product.uneven).filter(|(_, u)| *u).map(|(l, _)| l).sum::<f64>();
        let tiles = (m / rows).ceil() * (n / cols).ceil() * count;
        tiles * lines * k * ELEMENT / device.sm_count / device.ghz
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
