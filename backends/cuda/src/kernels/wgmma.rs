//! Tiles of products by `wgmma` with TMA, for sm_90a: matrix products, and convolutions of images with channels last.

pub mod conv;
mod operands;
mod product;

use self::operands::Lies;
use super::cost;
use super::mma::Kind;
use crate::frame::strided;
use crate::tiles;
use kiln_backend::{BackendError, Tactic, Target};
use kiln_codegen::site::{Site, unsupported};
use kiln_codegen::template::{fill, section, sections};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Map};
use kiln_ir::expr::{BinOp, Scalar, UnOp};
use std::fmt::Write;

const TEXT: &str = include_str!("../../../../kernels/wgmma/core.cuh");
const STORES: &str = include_str!("../../../../kernels/wgmma/stores.cuh");
const ASYNC: &str = include_str!("../../../../kernels/wgmma/async.cuh");

/// Barriers, copies and descriptors.
pub fn shared_text() -> &'static str {
    section(ASYNC, "async")
}

/// Copies of what lies under the taps of windows.
pub fn windows_text() -> &'static str {
    section(ASYNC, "windows")
}

/// Sections that other kernels of results share.
pub fn text(names: &[&str]) -> String {
    sections(STORES, names)
}

/// Blocks that go on from tile to tile: as many as the largest device of sm_90a has multiprocessors.
const BLOCKS: u64 = 132;
/// Bytes of K in a stage.
const STAGE_BYTES: usize = 128;

/// What a block computes: warpgroups one below the other or in turns, parts of 64 rows of each, columns, buffers, and how many
/// blocks share a multiprocessor.
#[derive(Debug)]
pub struct Tile {
    groups: usize,
    /// Does every warpgroup have tiles of its own, that it stores while others multiply?
    pub in_turns: bool,
    parts: usize,
    pub n: usize,
    pub stages: usize,
    /// Blocks that share the depth.
    pub split: usize,
    pub resident: u64,
    matmul: &'static str,
    conv: &'static str,
}

macro_rules! tile {
    ($name:literal, $groups:literal, $parts:literal, $n:literal, $stages:literal, $split:literal, $resident:literal) => {
        tile!($name, $groups, false, $parts, $n, $stages, $split, $resident)
    };
    ($name:literal, $groups:literal, $turns:literal, $parts:literal, $n:literal, $stages:literal, $split:literal,
     $resident:literal) => {
        Tile {
            groups: $groups,
            in_turns: $turns,
            parts: $parts,
            n: $n,
            stages: $stages,
            split: $split,
            resident: $resident,
            matmul: concat!("matmul.wgmma_", $name),
            conv: concat!("conv.wgmma_", $name),
        }
    };
}

/// The tiles, the largest first.
const TILES: [Tile; 19] = [
    tile!("128x256", 2, 1, 256, 4, 1, 1),
    tile!("256x128", 2, 2, 128, 4, 1, 1),
    tile!("192x128", 3, 1, 128, 5, 1, 1),
    tile!("128x192", 2, 1, 192, 5, 1, 1),
    tile!("128x128_turns", 2, true, 2, 128, 6, 1, 1),
    tile!("128x128", 2, 1, 128, 6, 1, 1),
    tile!("64x192_turns", 2, true, 1, 192, 7, 1, 1),
    tile!("128x64_turns", 2, true, 2, 64, 8, 1, 1),
    tile!("128x64", 2, 1, 64, 4, 1, 2),
    tile!("64x128_turns", 2, true, 1, 128, 8, 1, 1),
    tile!("64x128", 1, 1, 128, 4, 1, 2),
    tile!("64x64_turns", 2, true, 1, 64, 6, 1, 2),
    tile!("64x64", 1, 1, 64, 4, 1, 3),
    tile!("64x32", 1, 1, 32, 8, 1, 2),
    tile!("128x128_split3", 2, 1, 128, 6, 3, 1),
    tile!("64x128_split4", 1, 1, 128, 4, 4, 2),
    tile!("64x64_split2", 1, 1, 64, 4, 2, 3),
    tile!("64x64_split4", 1, 1, 64, 4, 4, 3),
    tile!("64x32_split8", 1, 1, 32, 8, 8, 2),
];

pub const KERNELS: &[Kernel] = kernels_of!(matmul[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18] conv[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18]);
const _: () = assert!(KERNELS.len() == 2 * TILES.len());

by_tile!(matmul, product::tactics, product::source, product::launch);
by_tile!(conv, conv::tactics, conv::source, conv::launch);

/// The tables as a list.
pub fn tiles() -> Vec<tiles::Tile> {
    let listed = |t: &Tile, tactic| tiles::Tile {
        tactic,
        rows: t.m(),
        columns: t.n,
        threads: t.threads(),
        stages: Some(t.stages),
        stage_bytes: Some(STAGE_BYTES),
        split: t.split,
        beside: Some(t.resident as usize),
    };
    tiles::of_both(&TILES, |t| [t.matmul, t.conv], listed)
}

impl Tile {
    pub fn m(&self) -> usize {
        let side_by_side = if self.in_turns { 1 } else { self.groups };
        side_by_side * self.parts * 64
    }

    /// Refuses what takes more registers than there are: sums that lanes exchange beside many of their own.
    fn check(&self, lies: Lies) -> Result<(), BackendError> {
        match lies {
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

    /// Does a thread have so many sums that their epilogue wants registers of other warps? There must be room for these.
    fn lent(&self) -> bool {
        self.parts * self.n == 256 && self.groups == 2 && self.resident == 1
    }

    /// The warpgroups that multiply, and the warp that copies.
    fn threads(&self) -> usize {
        self.groups * 128 + if self.lent() { 128 } else { 32 }
    }

    /// Stages, two barriers of each, and room to start at a multiple of 1024.
    fn shared(&self) -> u32 {
        (self.stages * ((self.m() + self.n) * STAGE_BYTES + 16) + 1024) as u32
    }

    /// Launches for so many tiles and sums.
    fn launches(&self, tiles: usize, sums: usize, words: Vec<u32>, maps: Vec<Map>) -> Vec<Launch> {
        let blocks = ((tiles * self.split) as u64).min(BLOCKS * self.resident);
        let first = Launch { maps, ..Launch::map(0, words.clone()).on(Grid::Groups(blocks)) };
        if self.split == 1 {
            return vec![first];
        }
        let bytes = (self.split * sums * 4) as u64;
        vec![first.scratch(bytes), Launch::map(1, words).scratch(bytes)]
    }

    /// The part of a source that knows where sums go.
    fn end(&self) -> &'static str {
        if self.split == 1 { "whole" } else { "split" }
    }

    fn body(&self, code: String, entry: &'static str) -> Body {
        let split = self.split > 1;
        let mut entries = vec![Entry::Free(entry)];
        entries.extend(split.then_some(Entry::Map(0)));
        Body { code, entries, shared: self.shared(), maps: 2, scratch: split, ..Body::default() }
    }

    /// A tactic, if the target has the instructions.
    fn tactic(&self, site: &Site<'_>, name: &str, kind: Kind) -> Vec<Tactic> {
        let estimate_ns = cost::Product::of(site).map(|p| p.by_wgmma(site.target, self, kind));
        vec![Tactic { estimate_ns, ..Tactic::plain(name) }]
    }

    fn source(&self, site: &Site<'_>, kind: Kind, lies: Lies, text: &str) -> String {
        let mut code = String::new();
        let numbers = [
            ("GROUPS_M", self.groups),
            ("PARTS", self.parts),
            ("BN", self.n),
            ("STAGES", self.stages),
            ("SPLIT", self.split),
            ("SIZE", kind.size),
        ];
        for (name, n) in numbers {
            let _ = writeln!(code, "static constexpr u32 {name} = {n}u;");
        }
        let flags = [
            ("IN_TURNS", self.in_turns),
            ("LENT", self.lent()),
            ("LOOPED", self.lent() && has_functions(site)),
            ("ACROSS_B", lies == Lies::Across),
            ("SPREAD", lies == Lies::Spread),
            ("ONE_BY_ONE", strided(site)),
        ];
        for (name, yes) in flags {
            let _ = writeln!(code, "static constexpr bool {name} = {yes};");
        }
        code += shared_text();
        code += &section(TEXT, "core").replace("+ACC_REG", &format!("+{}", kind.sums.2));
        code += &multiply(self.n, kind, kind.types, (false, lies == Lies::Across));
        code += text;
        let threads = self.threads().to_string();
        fill(&code, &[("ACC", kind.sums.0), ("THREADS_OF_BLOCK", &threads)])
    }
}

/// Does the fused expression take many instructions for an element?
fn has_functions(site: &Site<'_>) -> bool {
    let long = |op: &Scalar| match op {
        Scalar::Un(op, _) => !matches!(op, UnOp::Neg | UnOp::Abs),
        Scalar::Bin(op, ..) => matches!(op, BinOp::Pow | BinOp::Mod | BinOp::Rem | BinOp::FloorDiv),
        _ => false,
    };
    site.fused.as_ref().is_some_and(|e| e.insts.iter().any(|i| long(&i.op)))
}

/// The function of one instruction: 64 x `n` sums from 32 bytes of K, on top of those that are there unless `more` is 0, of
/// operands of these types; which lie across K?
pub fn multiply(n: usize, kind: Kind, types: (&str, &str), across: (bool, bool)) -> String {
    let sums: Vec<String> = (0..n / 2).map(|i| format!("%{i}")).collect();
    let places: Vec<String> = (0..n / 2).map(|i| format!("\"+{}\"(d[{i}])", kind.sums.2)).collect();
    // Signs of the operands, and which lie across K: only 16-bit floats can.
    let more = match kind.size {
        2 => format!(", 1, 1, {}, {}", u32::from(across.0), u32::from(across.1)),
        4 => ", 1, 1".to_owned(),
        _ => String::new(),
    };
    let (a, b, one) = (n / 2, n / 2 + 1, n / 2 + 2);
    format!(
        "DEV static void multiply(ACC (&d)[SUMS], u64 a, u64 b, u32 more = 1u) {{\n    asm volatile(\"{{\\n.reg .pred p;\\nsetp.ne.b32 p, \
         %{one}, 0;\\nwgmma.mma_async.sync.aligned.m64n{n}k{}.{}.{}.{} {{{}}}, %{a}, %{b}, p{more};\\n}}\"\n        : {}\n  \
         : \"l\"(a), \"l\"(b), \"r\"(more));\n}}\n",
        32 / kind.size,
        kind.sums.1,
        types.0,
        types.1,
        sums.join(", "),
        places.join(", "),
    )
}

/// Refuses targets without the instruction.
pub fn has_wgmma(target: &Target) -> Result<(), BackendError> {
    if target.arch == "sm_90a" { Ok(()) } else { unsupported("wgmma on another target than sm_90a") }
}
