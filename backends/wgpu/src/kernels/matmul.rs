//! Matrix products: cooperative matrices, tiles of workgroup memory, blocks of registers, packed products of bytes, and one thread an element.

pub mod codes;
pub mod det;
pub mod rows;

use super::block::{RUN, block_body, block_of, block_tactics};
use super::cooperative::{CooperativeTile, Lines};
use super::cost::Work;
use super::tile::{Tile, direct_tactic, launches, tile_body, tile_of, tile_tactics};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::continued;
use kiln_codegen::matmul::codes::factor;
use kiln_codegen::matmul::{Product, naive, product};
use kiln_codegen::rows::RowTile;
use kiln_codegen::scalar::register;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Grid, Kernel, Launch, Views};
use kiln_ir::DType;

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "matmul.cooperative",
        ops: &["matmul"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |site| CooperativeTile::tactics(site, "matmul.cooperative"),
        source: |site, t| {
            let attrs = site.op()?.attrs();
            let turned = |name| attrs.bool(name).map_err(op_error);
            let lines = Lines { a: !turned("trans_a")?, b: turned("trans_b")?, by_columns: false };
            Ok(CooperativeTile::of(t)?.body(site, ("matmul/operands", [0, 1]), &lines))
        },
        launch: cooperative_launch,
    },
    Kernel {
        name: "matmul.tiled",
        ops: &["matmul"],
        epilogue: true,
        views: Views::Framed,
        side_results: true,
        tactics: |site| RowTile::check(site).and_then(|()| tile_tactics(site, "matmul.tiled")),
        source: |site, t| {
            let entry = if site.side.is_some() { "matmul_tiled_rows" } else { "matmul_tiled" };
            let tile = tile_of(t)?;
            Ok(tile_body(site, "matmul/tiled", entry, tile)
                .with(row_tile(tile).constants(site) + &factor(site)?))
        },
        launch: tiled_launch,
    },
    Kernel {
        name: "matmul.dot",
        ops: &["matmul"],
        epilogue: true,
        views: Views::Whole,
        side_results: false,
        tactics: |site| bytes(site).map(|_| block_tactics(site, "matmul.dot", Work::of(site), DOT_SHARE)),
        source: dot_source,
        launch: |cx| block_launch(cx, 4, 6),
    },
    Kernel {
        name: "matmul.block",
        ops: &["matmul"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |site| Ok(block_tactics(site, "matmul.block", Work::of(site), 1.0)),
        source: |site, t| {
            Ok(block_body(site, "matmul/block", "matmul_block", block_of(t)?, register(site.out_dtype(0))))
        },
        launch: |cx| block_launch(cx, 1, 1),
    },
    Kernel {
        name: "matmul.naive",
        ops: &["matmul"],
        epilogue: true,
        views: Views::Framed,
        side_results: true,
        tactics: |site| direct_tactic(site, "matmul.naive"),
        source: |site, _| naive(site),
        launch: |cx| {
            let p = product(cx)?;
            continued(cx, p.params.words()?, p.k, 1)
        },
    },
];

/// The rows that a tile finds.
fn row_tile(t: Tile) -> RowTile {
    RowTile { rows: t.m, columns: t.n, chunk: 4 }
}

/// Cost of a packed product, as a part of a plain block's.
const DOT_SHARE: f64 = 0.4;

/// Types of two operands of bytes.
pub fn bytes(site: &Site<'_>) -> Result<(DType, DType), BackendError> {
    match (site.dtype(0), site.dtype(1)) {
        (Some(a @ (DType::I8 | DType::U8)), Some(b @ (DType::I8 | DType::U8))) => Ok((a, b)),
        _ => unsupported("packed products of other types than i8 and u8"),
    }
}

/// `times(row, columns)`: the products of four packed bytes of a row and of four columns. A u8 beside an i8 is moved down by 128,
/// which is added again.
pub fn times(site: &Site<'_>, a: DType, b: DType) -> String {
    let dot = match (a == DType::I8, b == DType::I8) {
        (true, true) => "dot4I8Packed(row, LANE)",
        (false, false) => "bitcast<i32>(dot4U8Packed(row, LANE))",
        (false, true) => "dot4I8Packed(row ^ 0x80808080u, LANE) + 128 * dot4I8Packed(0x01010101u, LANE)",
        (true, false) => "dot4I8Packed(row, LANE ^ 0x80808080u) + 128 * dot4I8Packed(row, 0x01010101u)",
    };
    let lanes = ["x", "y", "z", "w"].map(|lane| dot.replace("LANE", &format!("columns.{lane}")));
    let value = format!("vec4<i32>({})", lanes.join(", "));
    site.function("times", &[("row", "u32"), ("columns", "vec4<u32>")], "vec4<i32>", &value)
}

fn dot_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    let (a, b) = bytes(site)?;
    Ok(block_body(site, "matmul/dot", "matmul_dot", block_of(t)?, "u32").with(times(site, a, b)))
}

fn cooperative_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let p = product(cx)?;
    let t = CooperativeTile::of(cx.tactic)?;
    let launch = Launch::map(0, p.params.words()?).on(Grid::Groups(t.groups(p.m, p.n, p.batch)));
    launches(cx, launch, p.k, (t.k, t.cost()))
}

fn tiled_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    tile_launches(cx, &product(cx)?)
}

/// Launches of a product's tiles.
fn tile_launches(cx: &Cx<'_>, p: &Product) -> Result<Vec<Launch>, BackendError> {
    let t = tile_of(cx.tactic)?;
    let groups = t.groups(p.m, p.n, p.batch);
    let all = launches(cx, Launch::map(0, p.params.words()?).on(Grid::Groups(groups)), p.k, (t.k, t.cost()))?;
    Ok(row_tile(t).launches(cx, 1, all))
}

fn block_launch(cx: &Cx<'_>, step: usize, cost: usize) -> Result<Vec<Launch>, BackendError> {
    let (p, (m, n)) = (product(cx)?, block_of(cx.tactic)?);
    let threads = p.m.div_ceil(m) as u64 * p.n.div_ceil(n) as u64 * p.batch as u64;
    // A run of products takes a round of the outer loop too; packing bytes, a loop for every row and column.
    let rounds = if step > 1 { (step, cost * (m + n) + 1) } else { (RUN, RUN * cost + 2) };
    launches(cx, Launch::map(0, p.params.words()?).on(Grid::Threads(threads)), p.k, rounds)
}
