//! Products with few rows by `wgmma` with TMA, for sm_90a: matrix products by weights, and convolutions of images with
//! channels last. The weights are the first operand of the instruction; blocks of a cluster share the depth.

use super::conv::bias_value;
use super::cost;
use super::gemm::across;
use super::mma::Kind;
use super::wgmma::{self, multiply};
use crate::tiles;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::template::{fill, section, sections};
use kiln_codegen::window::conv_words;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Map, words};
use std::fmt::Write;

const TEXT: &str = include_str!("../../../../kernels/wgmma/few.cuh");

/// Columns of a block's tile: rows of the instruction.
const COLUMNS: usize = 64;
/// Bytes of K in a part of a stage.
const PART_BYTES: usize = 128;
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

/// What a block computes: rows, and how many blocks share the depth.
#[derive(Debug)]
pub struct Tile {
    pub rows: usize,
    pub split: usize,
    matmul: &'static str,
    conv: &'static str,
}

macro_rules! tiles {
    ($($rows:literal x $split:literal),*) => {
        [$(Tile {
            rows: $rows,
            split: $split,
            matmul: concat!("matmul.wgmma_few_", $rows, "x", $split),
            conv: concat!("conv.wgmma_few_", $rows, "x", $split),
        }),*]
    };
}

const TILES: [Tile; 18] = tiles!(
    8 x 1, 8 x 4, 16 x 1, 16 x 4, 32 x 1, 32 x 2, 32 x 4, 56 x 1, 64 x 1, 64 x 2, 64 x 4, 64 x 8, 104 x 1, 104 x 2,
    104 x 4, 128 x 1, 128 x 4, 208 x 1
);

pub const KERNELS: &[Kernel] = kernels_of!(
    matmul[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17]
    conv[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17]
);
const _: () = assert!(KERNELS.len() == 2 * TILES.len());

by_tile!(matmul, product_tactics, product_source, product_launch);
by_tile!(conv, conv_tactics, conv_source, conv_launch);

/// The tables as a list.
pub fn tiles() -> Vec<tiles::Tile> {
    let listed = |t: &Tile, tactic| tiles::Tile {
        tactic,
        rows: t.rows,
        columns: COLUMNS,
        threads: THREADS,
        stages: None,
        stage_bytes: Some(PART_BYTES),
        split: t.split,
        beside: None,
    };
    tiles::of_both(&TILES, |t| [t.matmul, t.conv], listed)
}

/// How a block's share of the depth is cut.
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
    fn shared(&self, cut: Cut) -> usize {
        (cut.stages * cut.chunk * self.part_bytes()).max(self.rows * PITCH * 4) + self.fixed()
    }

    /// A tactic where the depth, of so many elements, can be cut.
    fn tactic(
        &self,
        site: &Site<'_>,
        name: &str,
        kind: Kind,
        depth: Option<usize>,
    ) -> Result<Vec<Tactic>, BackendError> {
        if kind.size == 1 && self.rows > 32 && !self.rows.is_multiple_of(16) {
            return unsupported("wgmma of bytes with so many columns");
        }
        let Some(cut) = self.cut_of(site, kind, depth) else {
            return unsupported("depths that are not known, or no multiple of the blocks that share them");
        };
        let resident = (shared_memory(site) / (self.shared(cut) + 1024)).clamp(1, 8);
        let product = cost::Product::of(site);
        let at_once = site.target.numbers.get("sm_count").map_or(0, |&n| n as usize) * resident;
        let blocks = product.as_ref().map(|p| p.tiles(self.rows, COLUMNS) * self.split as f64);
        // Clusters that use stages again have been checked only where all of them run at once.
        if self.split > 1 && cut.stages < cut.steps && blocks.is_none_or(|n| n > at_once as f64) {
            return unsupported("clusters whose stages are used again, of more blocks than run at once");
        }
        let estimate_ns = product.map(|p| p.by_few(site.target, self, cut, kind, resident));
        Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
    }

    fn cut_of(&self, site: &Site<'_>, kind: Kind, depth: Option<usize>) -> Option<Cut> {
        let bytes = depth.filter(|&d| d > 0)?.checked_mul(kind.size)?;
        let parts = bytes / PART_BYTES;
        bytes.is_multiple_of(PART_BYTES).then(|| self.cut(parts, shared_memory(site)))?
    }

    fn body(
        &self,
        site: &Site<'_>,
        across_w: bool,
        depth: Option<usize>,
        text: &str,
        pairs: &[(&str, &str)],
    ) -> Result<Body, BackendError> {
        let kind = Kind::of_types(site)?;
        let Some(cut) = self.cut_of(site, kind, depth) else { return unsupported("this depth") };
        let mut code = String::new();
        for (name, n) in [
            ("BN", self.rows),
            ("SPLIT", self.split),
            ("SIZE", kind.size),
            ("STEPS", cut.steps),
            ("CHUNK", cut.chunk),
            ("STAGES", cut.stages),
        ] {
            let _ = writeln!(code, "static constexpr u32 {name} = {n}u;");
        }
        let _ = writeln!(code, "static constexpr bool ACROSS_W = {across_w};");
        code += wgmma::shared_text();
        code += &section(TEXT, "few").replace("+ACC_REG", &format!("+{}", kind.sums.2));
        code += &multiply(self.rows, kind, (kind.types.1, kind.types.0), (across_w, false));
        code += text;
        let threads = THREADS.to_string();
        let mut all = vec![("ACC", kind.sums.0), ("THREADS_OF_BLOCK", &*threads)];
        all.extend(pairs);
        let shared = self.shared(cut) as u32;
        Ok(Body {
            code: fill(&code, &all),
            entries: vec![if self.split > 1 {
                Entry::Cluster("few", self.split as u32)
            } else {
                Entry::Free("few")
            }],
            shared,
            maps: 2,
            ..Body::default()
        })
    }

    fn launches(&self, rows: usize, cols: usize, words: Vec<u32>, maps: Vec<Map>) -> Vec<Launch> {
        let tiles = rows.div_ceil(self.rows) * cols.div_ceil(COLUMNS);
        vec![Launch { maps, ..Launch::map(0, words).on(Grid::Groups((tiles * self.split) as u64)) }]
    }
}

fn shared_memory(site: &Site<'_>) -> usize {
    site.target.numbers.get("shared_memory").map_or(0, |&n| n as usize)
}

/// Dimensions of the weights, those that are known.
fn weights(site: &Site<'_>) -> Option<Vec<Option<usize>>> {
    let (_, n) = site.anchor?;
    let dims = &site.graph.ty((*n.inputs.get(1)?)?).dims;
    Some(dims.iter().map(|d| d.as_const().and_then(|d| usize::try_from(d).ok())).collect())
}

/// The depth of a product by a matrix.
fn product_depth(site: &Site<'_>, across_b: bool) -> Option<usize> {
    let dims = weights(site)?;
    *dims.get(usize::from(!across_b))?
}

/// The depth of a convolution: taps by channels.
fn conv_depth(site: &Site<'_>) -> Option<usize> {
    weights(site)?.get(1..)?.iter().try_fold(1usize, |p, d| p.checked_mul((*d)?))
}

/// The elements of a part, where a map of a box with as many lines of the depth's parts as the cut's chunk is wanted.
fn chunk_of(tile: &Tile, parts: usize, shared: usize) -> Result<u32, BackendError> {
    match tile.cut(parts, shared) {
        Some(cut) => Ok(cut.chunk as u32),
        None => unsupported(format!("a depth of {parts} parts")),
    }
}

fn product_tactics(site: &Site<'_>, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    wgmma::has_wgmma(site.target)?;
    let kind = Kind::of(site)?;
    let (across_a, across_b) = across(site)?;
    if across_a || (across_b && kind.size != 2) {
        return unsupported("wgmma of operands that lie across the depth");
    }
    if site.rank(1) != Some(2) || site.rank(0).is_none_or(|r| r < 2) {
        return unsupported("few rows by other weights than a matrix");
    }
    let columns = weights(site).and_then(|d| *d.get(usize::from(across_b))?);
    if across_b && columns.is_none_or(|n| n == 0 || !(n * kind.size).is_multiple_of(16)) {
        return unsupported("TMA of rows that are not known to be multiples of 16 bytes");
    }
    tile.tactic(site, tile.matmul, kind, product_depth(site, across_b))
}

fn product_source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let across_b = across(site)?.1;
    let text = wgmma::text(&["no_bias", "whole"]) + &sections(TEXT, &["matmul"]);
    tile.body(site, across_b, product_depth(site, across_b), &text, &[])
}

/// Bytes of shared memory of a block on every device of sm_90a.
const SHARED: usize = 227 << 10;

/// The map of lines along the depth, cut into parts: a box has `lines` lines of `chunk` parts.
fn along(input: usize, size: usize, depth: usize, lines: usize, block: [usize; 2]) -> Map {
    let step = PART_BYTES / size;
    Map {
        input,
        size,
        dims: [step, lines, depth / step].map(|d| d as u64).to_vec(),
        strides: [depth, step].map(|d| d as u64).to_vec(),
        block: [step, block[0], block[1]].map(|d| d as u32).to_vec(),
        windows: None,
    }
}

fn element_bytes(cx: &Cx<'_>) -> usize {
    cx.inputs.first().copied().flatten().map_or(2, |f| f.ty.dtype.bits() as usize / 8)
}

fn product_launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let (a, b) = (cx.shape(0)?, cx.shape(1)?);
    let trans = cx.op()?.attrs().bool("trans_b").map_err(op_error)?;
    let (&[.., k], &[r, c]) = (&a[..], &b[..]) else { return unsupported("few rows of vectors") };
    let n = if trans { r } else { c };
    let rows = a.iter().product::<usize>() / k.max(1);
    let size = element_bytes(cx);
    let step = PART_BYTES / size;
    let chunk = chunk_of(tile, k / step, SHARED)? as usize;
    let of_b = match trans {
        true => along(1, size, k, n, [COLUMNS, chunk]),
        false => Map {
            input: 1,
            size,
            dims: [n, k, 1].map(|d| d as u64).to_vec(),
            strides: [n, n * k].map(|d| d as u64).to_vec(),
            block: [COLUMNS, chunk * step, 1].map(|d| d as u32).to_vec(),
            windows: None,
        },
    };
    let w = words([rows, n, cx.constant(1)])?;
    Ok(tile.launches(rows, n, w, vec![along(0, size, k, rows, [tile.rows, chunk]), of_b]))
}

fn conv_tactics(site: &Site<'_>, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    let (kind, channels) = wgmma::conv::windows(site)?;
    if !(channels * kind.size).is_multiple_of(PART_BYTES) {
        return unsupported("channels that are no multiple of 128 bytes");
    }
    tile.tactic(site, tile.conv, kind, conv_depth(site))
}

fn conv_source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let bias = if site.dtype(2).is_some() { "bias" } else { "no_bias" };
    let text = wgmma::windows_text().to_owned() + &wgmma::text(&[bias, "whole"]) + section(TEXT, "conv");
    let cell = site.dtype(2).map_or("u8", crate::frame::cell);
    tile.body(site, false, conv_depth(site), &text, &[("CELL_C", cell), ("BIAS_VALUE", &bias_value(site))])
}

fn conv_launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let (x, k, y) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let mut w = conv_words(cx)?;
    let (&[_, kh, kw, channels], &[images, oh, ow, outputs]) = (&k[..], &y[..]) else {
        return unsupported("wgmma of images of other than two dimensions");
    };
    let (rows, depth, size) = (images * oh * ow, kh * kw * channels, element_bytes(cx));
    let image = wgmma::conv::image(&x, &y, &w, size, tile.rows)?;
    w.extend(words([rows, cx.constant(1)])?);
    let chunk = chunk_of(tile, depth * size / PART_BYTES, SHARED)? as usize;
    let lines = along(1, size, depth, outputs, [COLUMNS, chunk]);
    Ok(tile.launches(rows, outputs, w, vec![image, lines]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_cut_into_what_fits() {
        let tile = |rows: usize, split: usize| TILES.iter().find(|t| (t.rows, t.split) == (rows, split));
        let cut = |rows, split, parts| tile(rows, split).and_then(|t| t.cut(parts, SHARED));
        assert_eq!(cut(32, 1, 12), Some(Cut { steps: 3, chunk: 4, stages: 3 }));
        assert_eq!(cut(32, 1, 1), Some(Cut { steps: 1, chunk: 1, stages: 1 }));
        assert_eq!(cut(8, 4, 48), Some(Cut { steps: 3, chunk: 4, stages: 3 }));
        assert!(cut(104, 4, 48).is_some_and(|c| c.steps * c.chunk == 12 && c.stages < c.steps));
        assert_eq!(cut(64, 4, 6), None);
        assert_eq!(cut(64, 1, 1000), None);
        assert!(cut(104, 1, 72).is_some_and(|c| c.steps * c.chunk == 72 && c.stages >= 3));
        for t in &TILES {
            for parts in 0..200 {
                let Some(c) = t.cut(parts, SHARED) else { continue };
                assert_eq!(c.steps * c.chunk * t.split, parts);
                assert!(t.shared(c) <= SHARED && c.stages >= 1 && c.stages <= c.steps, "{t:?} {c:?}");
            }
        }
    }
}
