//! Tiles of products by `wgmma` with TMA, for sm_90a: matrix products, and convolutions of images with channels last.

use super::conv::{bias_value, of_group};
use super::cost;
use super::gemm::across;
use super::mma::Kind;
use crate::frame::strided;
use crate::tiles;
use kiln_backend::{BackendError, Tactic, Target};
use kiln_families::site::{Cx, Site, op_error, unsupported};
use kiln_families::template::{fill, section, sections};
use kiln_families::window::conv_words;
use kiln_families::{Body, Entry, Grid, Kernel, Launch, Map, Windows, words};
use kiln_ir::expr::{BinOp, Scalar, UnOp};
use kiln_ir::ops::layout::Layout;
use std::fmt::Write;

const TEXT: &str = include_str!("../../../../kernels/wgmma/core.cuh");
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
    sections(TEXT, names)
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
    product: &'static str,
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
            product: concat!("matmul.wgmma_", $name),
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

pub const KERNELS: &[Kernel] = kernels_of!(product[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18] conv[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18]);
const _: () = assert!(KERNELS.len() == 2 * TILES.len());

const fn product<const T: usize>() -> Kernel {
    Kernel {
        name: TILES[T].product,
        ops: &["matmul"],
        epilogue: true,
        tactics: |site| product_tactics(site, &TILES[T]),
        source: |site, _| product_source(site, &TILES[T]),
        launch: |cx| product_launch(cx, &TILES[T]),
    }
}

const fn conv<const T: usize>() -> Kernel {
    Kernel {
        name: TILES[T].conv,
        ops: &["conv"],
        epilogue: true,
        tactics: |site| conv_tactics(site, &TILES[T]),
        source: |site, _| conv_source(site, &TILES[T]),
        launch: |cx| conv_launch(cx, &TILES[T]),
    }
}

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
    let products = TILES.iter().map(|t| listed(t, t.product));
    products.chain(TILES.iter().map(|t| listed(t, t.conv))).collect()
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

/// How B lies in a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lies {
    Along,
    Across,
    /// Along the depth, so that a lane has the sums of neighbouring columns.
    Spread,
}

impl Lies {
    /// For a B along the depth, whose parts of a stage follow each other.
    fn along(columns: usize) -> Lies {
        if columns.is_multiple_of(32) { Lies::Spread } else { Lies::Along }
    }
}

/// The map of `lines` along the depth in the order that gives each lane sums of eight neighbours; a box has `columns` of them.
fn spread_map(size: usize, depth: usize, lines: usize, columns: usize) -> Map {
    Map {
        input: 1,
        size,
        dims: [depth, 2, 4, 4, lines / 32].map(|d| d as u64).to_vec(),
        strides: [1, 8, 2, 32].map(|s| (s * depth) as u64).to_vec(),
        block: [STAGE_BYTES / size, 2, 4, 4, columns / 32].map(|d| d as u32).to_vec(),
        windows: None,
    }
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

fn product_tactics(site: &Site<'_>, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    has_wgmma(site.target)?;
    let kind = Kind::of(site)?;
    let (across_a, across_b) = across(site)?;
    if across_a || (across_b && kind.size != 2) || tile.n < 64 && across_b {
        return unsupported("wgmma of operands that lie across the depth");
    }
    let Some((_, node)) = site.anchor else { return unsupported("a region without an anchor") };
    let ty = |i: usize| node.inputs.get(i).copied().flatten().map(|v| site.graph.ty(v));
    let (Some(a), Some(b)) = (ty(0), ty(1)) else { return unsupported("a product without operands") };
    let batch = |d: &[kiln_ir::Dim]| d.get(..d.len().saturating_sub(2)).unwrap_or_default().to_vec();
    if a.rank() < 2 || b.rank() < 2 || (b.rank() > 2 && batch(&a.dims) != batch(&b.dims)) {
        return unsupported("wgmma of vectors, or of batches that broadcast");
    }
    // Depth, and what is contiguous in B.
    let dims = [a.dims.last(), b.dims.last()].map(|d| d.and_then(|d| d.as_const()).unwrap_or(0));
    if dims.iter().any(|&d| d <= 0 || d * kind.size as i64 % 16 != 0) {
        return unsupported("TMA of rows that are not known to be multiples of 16 bytes");
    }
    tile.check(lies(site)?)?;
    Ok(tile.tactic(site, tile.product, kind))
}

/// How B lies in the stages of a product, if that is known: by the columns of one matrix along the depth.
fn lies(site: &Site<'_>) -> Result<Lies, BackendError> {
    if across(site)?.1 {
        return Ok(Lies::Across);
    }
    let b = site.anchor.and_then(|(_, n)| Some(site.graph.ty((*n.inputs.get(1)?)?)));
    match b.map(|t| (t.rank(), t.dims.first().and_then(|d| d.as_const()))) {
        Some((2, Some(columns))) => Ok(Lies::along(columns.max(0) as usize)),
        Some((2, None)) => unsupported("wgmma of a matrix of unknown columns"),
        _ => Ok(Lies::Along),
    }
}

fn product_source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let text = sections(TEXT, &["no_bias", tile.end(), "stores", "matmul"]);
    let code = tile.source(site, Kind::of_types(site)?, lies(site)?, &text);
    Ok(tile.body(code, "matmul"))
}

fn product_launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let (a, b, out) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let trans = cx.op()?.attrs().bool("trans_b").map_err(op_error)?;
    let (&[.., m, k], &[.., r, c]) = (&a[..], &b[..]) else { return unsupported("wgmma of vectors") };
    let n = if trans { r } else { c };
    let volume: usize = out.iter().product();
    // One B for all: the rows of a whole batch are those of one matrix.
    let shared = b.len() == 2;
    let rows = if shared { volume / n.max(1) } else { m };
    let batch = volume / (rows * n).max(1);
    let size = cx.inputs.first().copied().flatten().map_or(2, |f| f.ty.dtype.bits() as usize / 8);
    let step = STAGE_BYTES / size;
    let map = |input, dims: [usize; 3], block: [usize; 3]| Map {
        input,
        size,
        dims: dims.map(|d| d as u64).to_vec(),
        strides: vec![dims[0] as u64, (dims[0] * dims[1]) as u64],
        block: block.map(|b| b as u32).to_vec(),
        windows: None,
    };
    let of_b = match (trans, Lies::along(n)) {
        (true, Lies::Spread) if shared => spread_map(size, k, n, tile.n),
        (true, _) => map(1, [c, r, batch], [step, tile.n, 1]),
        _ => map(1, [c, r, batch], [64, step, 1]),
    };
    let maps = vec![map(0, [k, rows, batch], [step, tile.m(), 1]), of_b];
    let tiles = rows.div_ceil(tile.m()) * n.div_ceil(tile.n) * batch;
    let w = words([rows, n, k, batch, 1, usize::from(!shared), volume, cx.constant(1)])?;
    Ok(tile.launches(tiles, volume, w, maps))
}

fn conv_tactics(site: &Site<'_>, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    let (kind, channels) = windows(site)?;
    tile.check(weights_lie(channels, of_group(site).map_or(0, |(_, n)| n.max(0) as usize), kind.size))?;
    Ok(tile.tactic(site, tile.conv, kind))
}

/// How elements are taken, and the channels; refuses convolutions whose windows TMA cannot copy.
pub fn windows(site: &Site<'_>) -> Result<(Kind, usize), BackendError> {
    has_wgmma(site.target)?;
    let attrs = site.op()?.attrs();
    if Layout::of(attrs) != Layout::ChannelsLast || site.rank(0) != Some(4) {
        return unsupported("wgmma of other images than those of two dimensions with channels last");
    }
    if attrs.int("groups").map_err(op_error)? != 1 {
        return unsupported("wgmma of groups");
    }
    let kind = Kind::of(site)?;
    let channels = of_group(site).map_or(0, |c| c.0);
    if channels == 0 || channels * kind.size as i64 % 16 != 0 {
        return unsupported("TMA of channels that are not known to be a multiple of 16 bytes");
    }
    // Corners of the box of windows, and taps, have eight bits.
    let most = |name: &str| -> Result<i64, BackendError> {
        Ok(attrs.ints(name).map_err(op_error)?.iter().copied().max().unwrap_or(1).max(1))
    };
    let Some((_, node)) = site.anchor else { return unsupported("a region without an anchor") };
    let kernel = node.inputs.get(1).copied().flatten().map(|w| site.graph.ty(w).dims.clone());
    let side =
        kernel.and_then(|d| Some(d.get(1)?.as_const()?.max(d.get(2)?.as_const()?))).unwrap_or(i64::MAX);
    let reach = (side - 1).saturating_mul(most("dilations")?).saturating_add(most("strides")?);
    if reach > 127 || most("strides")? > 8 || most("pads")? > 127 {
        return unsupported("TMA of windows of more than 127 places or strides above 8");
    }
    Ok((kind, channels as usize))
}

/// How the weights of a convolution lie in stages: lines of whole taps may be spread.
fn weights_lie(channels: usize, outputs: usize, size: usize) -> Lies {
    if (channels * size).is_multiple_of(STAGE_BYTES) { Lies::along(outputs) } else { Lies::Along }
}

fn conv_source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let bias = if site.dtype(2).is_some() { "bias" } else { "no_bias" };
    let text = windows_text().to_owned() + &sections(TEXT, &[bias, tile.end(), "stores", "conv"]);
    let kind = Kind::of_types(site)?;
    let Some((channels, outputs)) = of_group(site) else { return unsupported("weights of unknown shape") };
    let lies = weights_lie(channels.max(0) as usize, outputs.max(0) as usize, kind.size);
    let code = tile.source(site, kind, lies, &text);
    let cell = site.dtype(2).map_or("u8", crate::frame::cell);
    let code = fill(&code, &[("CELL_C", cell), ("BIAS_VALUE", &bias_value(site))]);
    Ok(tile.body(code, "conv"))
}

/// The map of an image x under the windows of the result y: a box has `rows` windows. `w` are the words of a convolution.
pub fn image(x: &[usize], y: &[usize], w: &[u32], size: usize, rows: usize) -> Result<Map, BackendError> {
    let (&[images, height, width, channels], &[_, oh, ow, _]) = (x, y) else {
        return unsupported("wgmma of images of other than two dimensions");
    };
    // Innermost first: where the first window starts, and where the last one does, seen from the last element.
    let at = |word: usize| w.get(word).map_or(0, |&n| n as i32);
    let lower = [-at(19), -at(12)];
    let upper = [
        lower[0] + (ow as i32 - 1) * at(17) - (width as i32 - 1),
        lower[1] + (oh as i32 - 1) * at(10) - (height as i32 - 1),
    ];
    let row = width * channels;
    Ok(Map {
        input: 0,
        size,
        dims: [channels, width, height, images].map(|d| d as u64).to_vec(),
        strides: [channels, row, row * height].map(|d| d as u64).to_vec(),
        block: vec![(STAGE_BYTES / size) as u32, rows as u32],
        windows: Some(Windows { lower, upper, steps: [at(17) as u32, at(10) as u32] }),
    })
}

fn conv_launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let (x, k, y) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let mut w = conv_words(cx)?;
    let (&[_, kh, kw, channels], &[images, oh, ow, outputs]) = (&k[..], &y[..]) else {
        return unsupported("wgmma of images of other than two dimensions");
    };
    let rows = images * oh * ow;
    let size = cx.inputs.first().copied().flatten().map_or(2, |f| f.ty.dtype.bits() as usize / 8);
    let image = image(&x, &y, &w, size, tile.m())?;
    w.extend(words([rows, rows * outputs, cx.constant(1)])?);
    let taps = kh * kw;
    let apart = || Map {
        input: 1,
        size,
        dims: [channels, taps, outputs].map(|d| d as u64).to_vec(),
        strides: [channels, channels * taps].map(|d| d as u64).to_vec(),
        block: vec![(STAGE_BYTES / size) as u32, 1, tile.n as u32],
        windows: None,
    };
    let weights = match weights_lie(channels, outputs, size) {
        Lies::Spread => spread_map(size, taps * channels, outputs, tile.n),
        _ => apart(),
    };
    let tiles = rows.div_ceil(tile.m()) * outputs.div_ceil(tile.n);
    Ok(tile.launches(tiles, rows * outputs, w, vec![image, weights]))
}
