//! Matrix products: tiles of workgroup memory, blocks of registers, packed products of bytes, and one thread an element.

pub mod det;

use super::block::{RUN, Unrolled, block_body, block_of, block_tactics};
use super::cost::Work;
use super::tile::{direct_tactic, launches, tile_body, tile_of, tile_tactics};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::{continued, summed};
use kiln_codegen::matmul::{Product, product};
use kiln_codegen::scalar::{register, zero};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::template::{fill, sections};
use kiln_codegen::{Body, Grid, Kernel, Launch, word};
use kiln_ir::DType;

const TEXT: &str = include_str!("../../../../shaders/matmul.wgsl");

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "matmul.tiled",
        ops: &["matmul"],
        epilogue: true,
        tactics: |site| tile_tactics(site, "matmul.tiled"),
        source: tiled_source,
        launch: tiled_launch,
    },
    Kernel {
        name: "matmul.dot",
        ops: &["matmul"],
        epilogue: true,
        tactics: |site| bytes(site).map(|_| block_tactics(site, "matmul.dot", Work::of(site), DOT_SHARE)),
        source: dot_source,
        launch: |cx| block_launch(cx, 4, 6),
    },
    Kernel {
        name: "matmul.block",
        ops: &["matmul"],
        epilogue: true,
        tactics: |site| Ok(block_tactics(site, "matmul.block", Work::of(site), 1.0)),
        source: block_source,
        launch: |cx| block_launch(cx, 1, 1),
    },
    Kernel {
        name: "matmul.naive",
        ops: &["matmul"],
        epilogue: true,
        tactics: |site| direct_tactic(site, "matmul.naive"),
        source: naive_source,
        launch: |cx| {
            let g = geometry(cx)?;
            continued(cx, g.words, g.k, 1)
        },
    },
];

/// What a packed product costs of one of a plain block.
const DOT_SHARE: f64 = 0.4;

/// These sections under what all share.
fn text(names: &[&str]) -> String {
    TEXT.split_once("// ---- ").map_or("", |p| p.0).to_owned() + &sections(TEXT, names)
}

fn naive_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let code = fill(&text(&["naive"]), &[("ACC", register(t)), ("ZERO", zero(t))]);
    Ok(summed(site, code, t))
}

fn tiled_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    Ok(tile_body(site, &text(&["tiled"]), tile_of(t)?, "", &[]))
}

/// What rows and columns of all blocks are.
const BLOCK: Unrolled = Unrolled {
    row: "base_a + min(i0 + #u, rows - 1u) * row_a",
    column: "base_b + min(j0 + #u, cols - 1u) * column_b",
    place: "",
    start: "ZERO",
    left: "x0(a# + at_a)",
    right: "x1(b# + at_b)",
    product: "LEFT * RIGHT",
};

fn block_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    let more = [("DEPTH", "1u"), ("PREPARE", "")];
    Ok(block_body(site, &text(&["block"]), block_of(t)?, &BLOCK, &more))
}

/// Types of two operands of bytes.
pub fn bytes(site: &Site<'_>) -> Result<(DType, DType), BackendError> {
    match (site.dtype(0), site.dtype(1)) {
        (Some(a @ (DType::I8 | DType::U8)), Some(b @ (DType::I8 | DType::U8))) => Ok((a, b)),
        _ => unsupported("packed products of other types than i8 and u8"),
    }
}

/// The product of four packed pairs, LEFT and RIGHT. A u8 beside an i8 is moved down by 128, which is added again.
pub fn dot(a: DType, b: DType) -> &'static str {
    let (a, b) = (a == DType::I8, b == DType::I8);
    match (a, b) {
        (true, true) => "dot4I8Packed(LEFT, RIGHT)",
        (false, false) => "bitcast<i32>(dot4U8Packed(LEFT, RIGHT))",
        (false, true) => "dot4I8Packed(LEFT ^ 0x80808080u, RIGHT) + 128 * dot4I8Packed(0x01010101u, RIGHT)",
        (true, false) => "dot4I8Packed(LEFT, RIGHT ^ 0x80808080u) + 128 * dot4I8Packed(LEFT, 0x01010101u)",
    }
}

fn dot_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    let (a, b) = bytes(site)?;
    let prepare = "let whole_a = (packed() & 1u) != 0u; let whole_b = (packed() & 2u) != 0u;";
    let unrolled = Unrolled {
        left: "left(a# + at_a, next_a, depth - k, whole_a)",
        right: "right(b# + at_b, next_b, depth - k, whole_b)",
        product: dot(a, b),
        ..BLOCK
    };
    let more = [("DEPTH", "4u"), ("PREPARE", prepare)];
    Ok(block_body(site, &text(&["packed", "block"]), block_of(t)?, &unrolled, &more))
}

fn tiled_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (g, t) = (geometry(cx)?, tile_of(cx.tactic)?);
    let groups = t.groups(g.m, g.n, g.batch);
    launches(cx, Launch::map(0, g.words).on(Grid::Groups(groups)), g.k, (t.k, t.cost()))
}

fn block_launch(cx: &Cx<'_>, step: usize, cost: usize) -> Result<Vec<Launch>, BackendError> {
    let (g, (m, n)) = (geometry(cx)?, block_of(cx.tactic)?);
    let threads = g.m.div_ceil(m) as u64 * g.n.div_ceil(n) as u64 * g.batch as u64;
    // A run of products takes a round of the outer loop too; packing bytes, a loop for every row and column.
    let trips = if step > 1 { (step, cost * (m + n) + 1) } else { (RUN, RUN * cost + 2) };
    launches(cx, Launch::map(0, g.words).on(Grid::Threads(threads)), g.k, trips)
}

/// A product, with a word behind the others: which operands have lines along k that lie in whole words, for packed products.
fn geometry(cx: &Cx<'_>) -> Result<Product, BackendError> {
    let mut p = product(cx)?;
    let whole =
        |(along, across): (usize, usize)| along == 1 && across.is_multiple_of(4) && p.k.is_multiple_of(4);
    let packed = usize::from(whole(p.left)) + 2 * usize::from(whole(p.right));
    p.words.push(word(packed)?);
    Ok(p)
}
