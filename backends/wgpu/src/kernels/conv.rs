//! Convolutions: as products of matrices in tiles or blocks, packed products of bytes, and one thread an element.

use super::long::continued;
use super::matmul::{bytes, dot};
use super::tile::{
    Unrolled, block_body, block_of, block_tactics, few_products, launches, tile_body, tile_of, tile_tactics,
};
use super::window::{axis_words, sums, text};
use super::{Body, Grid, Kernel, Launch, plain, word, words};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::wgsl::types::zero;
use kiln_backend::{BackendError, Tactic};
use kiln_ir::ops::{conv, window::dims};

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "conv.tiled",
        ops: &["conv"],
        epilogue: true,
        tactics: |site| many(site).and_then(|()| tile_tactics(site, "conv.tiled")),
        source: tiled_source,
        launch: tiled_launch,
    },
    Kernel {
        name: "conv.dot",
        ops: &["conv"],
        epilogue: true,
        tactics: |site| bytes(site).map(|_| block_tactics("conv.dot")),
        source: dot_source,
        launch: |cx| block_launch(cx, 4),
    },
    Kernel {
        name: "conv.block",
        ops: &["conv"],
        epilogue: true,
        tactics: |site| many(site).map(|()| block_tactics("conv.block")),
        source: block_source,
        launch: |cx| block_launch(cx, 1),
    },
    Kernel {
        name: "conv.direct",
        ops: &["conv"],
        epilogue: true,
        tactics: direct_tactics,
        source: |site, _| Ok(sums(site, "conv")),
        launch: |cx| {
            let g = geometry(cx)?;
            continued(cx, g.words, g.depth, 1)
        },
    },
];

/// Refuses groups of few output channels, which leave most of a tile or block empty.
fn many(site: &Site<'_>) -> Result<(), BackendError> {
    let channels = site.input(1).and_then(|w| site.graph.ty(w).dims.first()?.as_const());
    let groups = site.op()?.attrs().int("groups").map_err(op_error)?.max(1);
    match channels.map(|c| c / groups) {
        Some(n) if n < 4 => unsupported(format!("blocks for {n} channels of a group")),
        _ => Ok(()),
    }
}

fn direct_tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    if many(site).is_ok() {
        let w = site.input(1).and_then(|w| site.graph.ty(w).static_dims());
        few_products(site, w.map(|w| w.iter().skip(1).product()))?;
    }
    plain("conv.direct")
}

struct Geometry {
    words: Vec<u32>,
    /// Output channels of a group, windows, groups of all images, taps of all channels.
    rows: usize,
    cols: usize,
    batch: usize,
    depth: usize,
}

fn geometry(cx: &Cx<'_>) -> Result<Geometry, BackendError> {
    let (x, k, y) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let attrs = cx.op()?.attrs();
    let axes = conv::geometry(attrs, &dims(&x), &dims(&k)).map_err(op_error)?;
    let groups = attrs.int("groups").map_err(op_error)?.max(1) as usize;
    let rows = k[0] / groups;
    let depth = k[1..].iter().product::<usize>();
    let mut w = axis_words(&axes)?;
    w.extend(words([x[1], k[0], k[1], rows])?);
    w.push(word(usize::from(depth.is_multiple_of(4)))?);
    Ok(Geometry { words: w, rows, cols: y[2..].iter().product(), batch: x[0] * groups, depth })
}

fn tiled_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (g, t) = (geometry(cx)?, tile_of(cx.tactic)?);
    let groups = t.groups(g.rows, g.cols, g.batch);
    launches(cx, Launch::map(0, g.words).on(Grid::Groups(groups)), g.depth, (t.k, t.cost()))
}

fn block_launch(cx: &Cx<'_>, step: usize) -> Result<Vec<Launch>, BackendError> {
    let (g, (m, n)) = (geometry(cx)?, block_of(cx.tactic)?);
    let threads = g.rows.div_ceil(m) as u64 * g.cols.div_ceil(n) as u64 * g.batch as u64;
    // Packing weights takes a loop for every row.
    let cost = if step > 1 { 1 + (step + 1) * m } else { 1 };
    launches(cx, Launch::map(0, g.words).on(Grid::Threads(threads)), g.depth, (step, cost))
}

fn bias(site: &Site<'_>) -> &'static str {
    if site.dtype(2).is_some() { "x2(ch)" } else { zero(site.out_dtype(0)) }
}

fn tiled_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    Ok(tile_body(
        site,
        &text(&["conv_product", "conv_tiled"]),
        tile_of(t)?,
        ", size",
        &[("BIAS", bias(site))],
    ))
}

/// The taps after the first of four.
const FOUR_TAPS: &str =
    "let b = next_tap(tap, kernel); let c = next_tap(b, kernel); let d = next_tap(c, kernel);";

/// What a column of a block is: a window.
const COLUMN: &str = "fn column_of(j: u32, base: u32) -> vec3<i32> { return window_at(j); }\n";

fn block_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    let text = text(&["conv_product", "conv_elements", "conv_block"]) + COLUMN;
    let more =
        [("BIAS", bias(site)), ("DEPTH", "1u"), ("PREPARE", ""), ("STEP", "tap = next_tap(tap, kernel);")];
    let unrolled = Unrolled {
        left: "left(ROW, k)",
        right: "element(base_b, COLUMN + tap.k * step, tap.channel, size)",
        product: "LEFT * RIGHT",
    };
    Ok(block_body(site, &text, block_of(t)?, &unrolled, &more))
}

fn dot_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    let (x, w) = bytes(site)?;
    let text = text(&["conv_product", "conv_elements", "conv_packed", "conv_block"]) + COLUMN;
    let more = [
        ("BIAS", bias(site)),
        ("DEPTH", "4u"),
        ("PREPARE", FOUR_TAPS),
        ("STEP", "tap = next_tap(d, kernel);"),
    ];
    let unrolled = Unrolled {
        left: "left_packed(ROW, k)",
        right: "byte_of(base_b, COLUMN + tap.k * step, tap.channel, size, k) \
                | (byte_of(base_b, COLUMN + b.k * step, b.channel, size, k + 1u) << 8u) \
                | (byte_of(base_b, COLUMN + c.k * step, c.channel, size, k + 2u) << 16u) \
                | (byte_of(base_b, COLUMN + d.k * step, d.channel, size, k + 3u) << 24u)",
        product: dot(w, x),
    };
    Ok(block_body(site, &text, block_of(t)?, &unrolled, &more))
}
