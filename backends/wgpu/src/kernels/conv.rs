//! Convolutions: as products of cooperative matrices, in tiles or blocks, packed products of bytes, and one thread an element.

mod depthwise;

use super::block::{block_body, block_of, block_tactics};
use super::cooperative::{CooperativeTile, Lines};
use super::cost::Work;
use super::matmul::{bytes, times};
use super::tile::{direct_tactic, launches, tile_body, tile_of, tile_tactics};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::conv::{WINDOWS, direct, hooks};
use kiln_codegen::long::continued;
use kiln_codegen::scalar::register;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::window::{channels_last, conv_params, groups};
use kiln_codegen::{Body, Grid, Kernel, Launch, Views};
use kiln_ops::layout::Layout;

pub const KERNELS: &[Kernel] = &[
    depthwise::KERNEL,
    Kernel {
        name: "conv.cooperative",
        ops: &["conv"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |site| many(site).and_then(|()| CooperativeTile::tactics(site, "conv.cooperative")),
        source: cooperative_source,
        launch: cooperative_launch,
    },
    Kernel {
        name: "conv.tiled",
        ops: &["conv"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |site| many(site).and_then(|()| tile_tactics(site, "conv.tiled")),
        source: tiled_source,
        launch: tiled_launch,
    },
    Kernel {
        name: "conv.dot",
        ops: &["conv"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: |site| bytes(site).map(|_| block_tactics(site, "conv.dot", Work::of(site), DOT_SHARE)),
        source: dot_source,
        launch: dot_launch,
    },
    Kernel {
        name: "conv.block",
        ops: &["conv"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |site| Ok(block_tactics(site, "conv.block", Work::of(site), 1.0)),
        source: block_source,
        launch: block_launch,
    },
    Kernel {
        name: "conv.direct",
        ops: &["conv"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |site| direct_tactic(site, "conv.direct"),
        source: |site, _| Ok(direct(site)),
        launch: |cx| {
            let g = geometry(cx)?;
            continued(cx, g.words, g.depth, 1)
        },
    },
];

/// Cost of a packed product of a convolution, as a part of a plain block's: bytes of the image are gathered
/// one by one.
const DOT_SHARE: f64 = 0.8;

/// Refuses groups of few output channels, which leave most of a tile empty.
fn many(site: &Site<'_>) -> Result<(), BackendError> {
    let channels = site.input(1).and_then(|w| site.graph.ty(w).dims.first()?.as_const());
    let groups = site.op()?.attrs().int("groups").map_err(op_error)?.max(1);
    match channels.map(|c| c / groups) {
        Some(n) if n < 4 => unsupported(format!("tiles for {n} channels of a group")),
        _ => Ok(()),
    }
}

struct Geometry {
    words: Vec<u32>,
    /// Output channels of a group, windows, groups of all images, taps of all channels.
    rows: usize,
    cols: usize,
    batch: usize,
    depth: usize,
    /// Channels of a group.
    channels: usize,
}

fn geometry(cx: &Cx<'_>) -> Result<Geometry, BackendError> {
    let layout = Layout::of(cx.op()?.attrs());
    let linear = |d: Vec<usize>| layout.to_linear(&d);
    let (x, k, y) = (linear(cx.shape(0)?), linear(cx.shape(1)?), linear(cx.out_shape(0)?));
    let groups = groups(cx)?;
    let rows = k[0] / groups;
    let depth = k[1..].iter().product::<usize>();
    let (cols, batch) = (y[2..].iter().product(), x[0] * groups);
    Ok(Geometry { words: conv_params(cx)?.words()?, rows, cols, batch, depth, channels: k[1] })
}

fn cooperative_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (g, t) = (geometry(cx)?, CooperativeTile::of(cx.tactic)?);
    let groups = t.groups(g.rows, g.cols, g.batch);
    launches(cx, Launch::map(0, g.words).on(Grid::Groups(groups)), g.depth, (t.k, t.cost()))
}

fn tiled_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (g, t) = (geometry(cx)?, tile_of(cx.tactic)?);
    let groups = t.groups(g.rows, g.cols, g.batch);
    launches(cx, Launch::map(0, g.words).on(Grid::Groups(groups)), g.depth, (t.k, t.cost()))
}

/// Threads that compute blocks of results.
fn blocks(g: &Geometry, (m, n): (usize, usize)) -> Grid {
    Grid::Threads(g.rows.div_ceil(m) as u64 * g.cols.div_ceil(n) as u64 * g.batch as u64)
}

fn block_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (g, block) = (geometry(cx)?, block_of(cx.tactic)?);
    let grid = blocks(&g, block);
    // Each tap takes a round of the outer loop and one more of the inner loop.
    let cost = 1 + 2usize.div_ceil(g.channels.max(1));
    launches(cx, Launch::map(0, g.words).on(grid), g.depth, (1, cost))
}

fn dot_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (g, block) = (geometry(cx)?, block_of(cx.tactic)?);
    let grid = blocks(&g, block);
    // Packing weights takes a loop for every row.
    launches(cx, Launch::map(0, g.words).on(grid), g.depth, (4, 1 + 5 * block.0))
}

/// The body with the files and hooks of windows.
fn windowed(site: &Site<'_>, body: Body) -> Body {
    let files = body.files.iter().copied().chain([WINDOWS, "conv/product"]).collect();
    Body { files, ..body }.with(hooks(site))
}

fn cooperative_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    let last = channels_last(site);
    let lines = Lines { a: true, b: last, by_columns: last };
    Ok(windowed(site, CooperativeTile::of(t)?.body(site, ("conv/operands", [1, 0]), &lines)))
}

fn tiled_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    Ok(windowed(site, tile_body(site, "conv/tiled", "conv_tiled", tile_of(t)?)))
}

fn block_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    let operand = register(site.out_dtype(0));
    Ok(windowed(site, block_body(site, "conv/block", "conv_block", block_of(t)?, operand)))
}

fn dot_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    let (x, w) = bytes(site)?;
    let body = block_body(site, "conv/dot", "conv_dot", block_of(t)?, "u32");
    Ok(windowed(site, body.with(times(site, w, x))))
}
