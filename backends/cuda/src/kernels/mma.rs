//! Tiles of products by `mma.sync`, for every element type that it takes.

use crate::tiles;
use kiln_backend::BackendError;
use kiln_codegen::site::{Site, unsupported};
use kiln_codegen::template::{fill, section};
use kiln_ir::DType;

const TEXT: &str = include_str!("../../../../kernels/mma/core.cuh");

/// What a block computes: rows, columns, bytes of K in a stage, how its warps share it, buffers.
#[derive(Debug)]
pub struct Tile {
    pub m: usize,
    pub n: usize,
    pub bytes: usize,
    pub warps: (usize, usize),
    pub stages: usize,
}

const fn tile(m: usize, n: usize, bytes: usize, warps: (usize, usize), stages: usize) -> Tile {
    Tile { m, n, bytes, warps, stages }
}

/// The tiles; plans name them by their numbers.
pub const TILES: [Tile; 9] = [
    tile(256, 128, 128, (4, 2), 3),
    tile(128, 128, 128, (2, 2), 3),
    tile(128, 128, 64, (2, 4), 4),
    tile(128, 64, 64, (2, 2), 4),
    tile(64, 128, 64, (2, 2), 4),
    tile(64, 64, 128, (2, 2), 4),
    tile(32, 64, 128, (1, 4), 4),
    tile(16, 128, 128, (1, 4), 4),
    tile(128, 256, 128, (2, 4), 3),
];

/// How an instruction takes a pair of operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// Bytes of an element.
    pub size: usize,
    /// Rows, columns and depth of the instruction.
    shape: &'static str,
    /// The types of its operands.
    pub types: (&'static str, &'static str),
    /// Sums: the type in the source, for the instruction, and its kind of register.
    pub sums: (&'static str, &'static str, &'static str),
    /// Times as fast as 16-bit floats.
    pub speed: f64,
}

impl Kind {
    /// For a site's operands; f32 goes by TF32 where the target allows it.
    pub fn of(site: &Site<'_>) -> Result<Kind, BackendError> {
        match site.dtype(0) {
            Some(DType::F32) if !site.target.has("tf32") => unsupported("tensor cores for f32 without TF32"),
            _ => Kind::of_types(site),
        }
    }

    /// The same, whatever is allowed.
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
            _ => unsupported("tensor cores for other operands than f16, bf16, f32 as TF32, i8 and u8"),
        }
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

    /// Refuses a target whose blocks have less shared memory.
    pub fn check(&self, site: &Site<'_>, kind: Kind, across: (bool, bool)) -> Result<(), BackendError> {
        let (needs, has) = (self.shared(kind, across) as u64, site.target.numbers.get("shared_memory"));
        match has {
            Some(&has) if has < needs => {
                unsupported(format!("{needs} bytes of shared memory, there are {has}"))
            }
            _ => Ok(()),
        }
    }

    /// Sections of `text` behind the shared part, filled in.
    pub fn source(&self, kind: Kind, across: (bool, bool), text: &str, pairs: &[(&str, &str)]) -> String {
        let numbers = [
            ("BM", self.m),
            ("BN", self.n),
            ("KB", self.bytes),
            ("WARPS_M", self.warps.0),
            ("WARPS_N", self.warps.1),
            ("STAGES", self.stages),
            ("SIZE", kind.size),
        ];
        let mut code = String::new();
        for (name, n) in numbers {
            code += &format!("static constexpr u32 {name} = {n}u;\n");
        }
        for (name, yes) in [("ACROSS_A", across.0), ("ACROSS_B", across.1)] {
            code += &format!("static constexpr bool {name} = {yes};\n");
        }
        let rounds = if kind.types.0 == "tf32" { "rounded_operand" } else { "plain_operand" };
        code += section(TEXT, rounds);
        code += section(TEXT, "core");
        code += text;
        let threads = self.threads().to_string();
        let mut all = vec![
            ("ACC", kind.sums.0),
            ("MMA_SHAPE", kind.shape),
            ("MMA_A", kind.types.0),
            ("MMA_B", kind.types.1),
            ("MMA_ACC", kind.sums.1),
            ("+MMA_REG", if kind.sums.2 == "f" { "+f" } else { "+r" }),
            ("THREADS_OF_BLOCK", &*threads),
        ];
        all.extend(pairs);
        fill(&code, &all)
    }
}
