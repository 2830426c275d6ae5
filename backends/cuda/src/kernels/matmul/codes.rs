//! Products by weights that stay codes, by `mma.sync`: a main loop that dequantizes words of codes between shared memory and the
//! instruction.

use crate::frame::cell;
use crate::kernels::constants::{alias, constants};
use crate::kernels::cost::Product;
use crate::kernels::mma::{Kind, Row, Tile};
use crate::kernels::shape::input;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::matmul::codes::{CodesParams, codes_of_word, sharing};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Entry, Grid, Launch};
use kiln_ir::DType;

/// Elements of the depth that four lanes take at once.
const ROUND: usize = 32;
/// Elements that a lane takes of them, which share a scale.
const NEIGHBOURS: i64 = 8;
/// Products in the time of one of floats: codes are made floats meanwhile.
const SLOWER: f64 = 0.85;

/// Whether a kernel of the table takes a side result.
pub const fn side_results(_: &Row) -> bool {
    false
}

/// The instruction for rows of a type.
pub fn kind(of: Option<DType>) -> Result<Kind, BackendError> {
    match of {
        Some(t @ (DType::F16 | DType::BF16)) => Ok(Kind::of_halves(t)),
        Some(DType::F32) => Ok(Kind {
            size: 4,
            shape: "m16n8k8",
            types: ("tf32", "tf32"),
            sums: ("f32", "f32", "f"),
            speed: 0.5,
        }),
        _ => unsupported("products by codes of other rows than f32, f16 and bf16"),
    }
}

/// The depth, and how many of its elements share a scale: whole rounds, and whole words of codes of a lane.
pub fn depth(site: &Site<'_>) -> Result<(usize, i64), BackendError> {
    let [along, _] = sharing(site.op()?.attrs())?;
    let depth = input(site, 1).and_then(|t| t.dims.last()?.as_const());
    let Some(depth) = depth.filter(|&n| n > 0 && n % ROUND as i64 == 0) else {
        return unsupported(format!("a depth that is not known to be a multiple of {ROUND}"));
    };
    if along % NEIGHBOURS != 0 && along < depth {
        return unsupported(format!("blocks of {along} elements, which runs of {NEIGHBOURS} cross"));
    }
    Ok((depth as usize, along))
}

/// Constants about the codes of a site, whose stages have so many elements of the depth.
pub fn of_codes(site: &Site<'_>, stage: usize) -> Result<String, BackendError> {
    let [along, across] = sharing(site.op()?.attrs())?.map(|n| n.min(i64::from(u32::MAX / 2)) as usize);
    let codes = codes_of_word(site.dtype(1)) as usize;
    let zero = site.input(3).is_some();
    let one_part = depth(site).is_ok_and(|(depth, _)| along >= depth) || along % stage == 0;
    let flags = [("SIGNED", site.dtype(1) != Some(DType::U8)), ("HAS_ZERO", zero), ("ONE_PART", one_part)];
    let zero_at = site.function("zero_at", &[("at", "u32")], "i32", if zero { "x3(at)" } else { "0" });
    Ok(constants(&[("CODES", codes), ("ALONG", along), ("ACROSS", across)], &flags) + &zero_at)
}

/// Bytes of shared memory of a block.
fn shared(tile: &Tile, kind: Kind, codes: i64) -> usize {
    let rounds = tile.bytes / kind.size / ROUND;
    let line = (rounds | 1) * ROUND * 4 / codes as usize;
    let stages = tile.stages * (tile.m * (tile.bytes + 16) + tile.n * line);
    let sums = tile.threads() / 32 * 16 * (tile.n / tile.warps.1 + 4) * 4;
    stages.max(sums)
}

/// The tactic of a row of the table.
pub fn tactics(site: &Site<'_>, name: &str, row: &Row) -> Result<Vec<Tactic>, BackendError> {
    if site.dtype(0) == Some(DType::F32) && !site.target.has("tf32") {
        return unsupported("tensor cores for f32 without TF32");
    }
    let kind = kind(site.dtype(0))?;
    depth(site)?;
    let needs = shared(&row.tile, kind, codes_of_word(site.dtype(1))) as u64;
    if let Some(&has) = site.target.numbers.get("shared_memory").filter(|has| **has < needs) {
        return unsupported(format!("{needs} bytes of shared memory, there are {has}"));
    }
    let slower = Kind { speed: kind.speed * SLOWER, ..kind };
    let estimate_ns = Product::of(site).map(|p| row.tile.estimate(&p, site.target, slower, row.split));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// Returns the body: kernel files, constants and entry points.
pub fn source(site: &Site<'_>, Row { tile, split }: &Row) -> Result<Body, BackendError> {
    let kind = kind(site.dtype(0))?;
    let code = tile.constants(kind, (false, false))
        + &constants(&[("SPLIT", *split)], &[])
        + &of_codes(site, tile.bytes / kind.size)?
        + &alias("CellX", site.dtype(0).map_or("u8", cell));
    let mut entries = vec![Entry::blocks("codes_gemm", tile.threads() as u32)];
    entries.extend((*split > 1).then_some(Entry::Element(0, "codes_sum")));
    let shared = shared(tile, kind, codes_of_word(site.dtype(1))) as u32;
    Ok(Body { shared, scratch: *split > 1, ..Body::of("matmul/codes_mma", entries) }.with(code))
}

/// The parameters of a product.
pub fn params(cx: &Cx<'_>) -> Result<CodesParams, BackendError> {
    let (codes, scale, out) = (cx.shape(1)?, cx.shape(2)?, cx.out_shape(0)?);
    let at = |shape: &[usize], i: usize| shape.get(i).copied().unwrap_or(0);
    let (columns, depth) = (at(&codes, 0), at(&codes, 1));
    let rows = out.iter().product::<usize>().checked_div(columns).unwrap_or(0);
    let per_word = codes_of_word(cx.inputs.get(1).copied().flatten().map(|f| f.ty.dtype)) as usize;
    Ok(CodesParams { rows, columns, depth, length: depth / per_word, scales: at(&scale, 1) })
}

/// The product, then its sums where blocks share the depth.
pub fn launch(cx: &Cx<'_>, Row { tile, split }: &Row) -> Result<Vec<Launch>, BackendError> {
    let p = params(cx)?;
    let words = p.words()?;
    let blocks = p.rows.div_ceil(tile.m) * p.columns.div_ceil(tile.n) * split;
    let gemm = Launch::map(0, words.clone()).on(Grid::Groups(blocks as u64));
    if *split == 1 {
        return Ok(vec![gemm]);
    }
    let bytes = (split * p.rows * p.columns * 4) as u64;
    Ok(vec![gemm.scratch(bytes), Launch::map(1, words).scratch(bytes)])
}
