//! The kernel of attention in one pass over the keys: its constants, and its launches.

use super::boxes::{self, Boxes};
use super::tile::{Heads, MASK, Tile, element_type};
use crate::frame::element;
use crate::kernels::constants::structure;
use crate::kernels::divisor::cells;
use crate::kernels::mma::Kind;
use crate::kernels::wgmma::{BLOCKS, begin_and_multiply, multiply_registers};
use kiln_backend::BackendError;
use kiln_codegen::attention::{Problem, hidden_score};
use kiln_codegen::site::{Cx, Site, op_error};
use kiln_codegen::{Blocks, Body, Entry, Grid, Launch};
use kiln_ir::DType;

/// Threads of a block that merges parts of rows.
const MERGE_THREADS: usize = 128;
/// The input that is the past keys.
const PAST: usize = 4;
/// The input that is the number of keys that are not padding.
const NONPAD: usize = 6;

kiln_codegen::params! {
    /// Attention in one pass over the keys. Offsets and strides count elements.
    struct FlashParams {
        /// Batch.
        batch: u32,
        /// Heads of queries.
        heads: u32,
        /// Heads of keys.
        kv_heads: u32,
        /// Queries.
        queries: u32,
        /// Keys, those of the past first.
        keys: u32,
        /// Components of queries and keys.
        size: u32,
        /// Components of values.
        value_size: u32,
        /// Keys of the past.
        past: u32,
        /// Keys that the mask has.
        mask_length: u32,
        /// Stride of the mask over the batch.
        mask_batch: u32,
        /// Stride of the mask over heads.
        mask_head: u32,
        /// Stride of the mask over queries.
        mask_query: u32,
        /// Stride of the mask over keys.
        mask_key: u32,
        /// Factor of the mask.
        mask_scale: f32,
        /// Factor of scores that makes them powers of 2.
        power: f32,
        /// Cap of scores.
        cap: f32,
        /// Factor of scores before they are capped.
        cap_scale: f32,
        /// Bits: which operands may be copied by 16 bytes, and how the mask may be read.
        whole: u32,
        /// Offset of the queries, or the number of their first head in the map of boxes; so of keys and values.
        q_offset: u32,
        /// Their stride over the batch.
        q_batch: u32,
        /// Their stride over heads.
        q_head: u32,
        /// Their stride over positions.
        q_step: u32,
        /// Offset of the keys.
        k_offset: u32,
        /// Their stride over the batch.
        k_batch: u32,
        /// Their stride over heads.
        k_head: u32,
        /// Their stride over positions.
        k_step: u32,
        /// Offset of the values.
        v_offset: u32,
        /// Their stride over the batch.
        v_batch: u32,
        /// Their stride over heads.
        v_head: u32,
        /// Their stride over positions.
        v_step: u32,
        /// Offset of the past keys.
        past_k_offset: u32,
        /// Their stride over the batch.
        past_k_batch: u32,
        /// Their stride over heads.
        past_k_head: u32,
        /// Their stride over positions.
        past_k_step: u32,
        /// Offset of the past values.
        past_v_offset: u32,
        /// Their stride over the batch.
        past_v_batch: u32,
        /// Their stride over heads.
        past_v_head: u32,
        /// Their stride over positions.
        past_v_step: u32,
        /// Rows of the result from one batch entry to the next.
        y_batch: u32,
        /// Rows of the result from one head to the next.
        y_head: u32,
        /// Rows of the result from one query to the next.
        y_query: u32,
        /// Parts of the keys.
        parts: u32,
        /// Keys of a part.
        part_keys: u32,
        /// Offset of the mask.
        mask_offset: u32,
        /// The least that a mask adds, in the units of the scores that it meets.
        least: f32,
        /// The score of keys that a bool mask hides, in the same units.
        hidden: f32,
        /// Whether keys and values of the past may be read before the kernels in front are done.
        past_given: u32,
        /// Heads of queries that read one of keys, where boxes are copied and every head of queries has blocks of its own.
        share: u32,
    }
}

/// Whether keys and values are outputs.
pub fn present(site: &Site<'_>) -> bool {
    site.wanted(1) || site.wanted(2)
}

/// The kernel for a tile.
pub fn source(site: &Site<'_>, tile: &Tile) -> Result<Body, BackendError> {
    let (t, heads) = (element_type(site)?, Heads::of(site)?);
    let attrs = site.op()?.attrs();
    let flag = |name| attrs.bool(name).map_err(op_error);
    let mask = site.dtype(MASK);
    let split = tile.split > 1;
    let boxes = if tile.boxes { Some(Boxes::at(site, tile)?) } else { None };
    let masked = boxes.as_ref().is_some_and(Boxes::masked);
    let of_keys = boxes.as_ref().is_some_and(|b| b.mask_of_keys);
    let (lent, left) = tile.lent();
    let mut code = cells(site);
    if let Some(mask) = mask {
        code += &element("MaskCell", "mask_value", mask);
    }
    for (name, n) in [
        ("BM", tile.rows),
        ("BN", tile.keys),
        ("WARPS_M", tile.warps.0),
        ("WARPS_K", tile.warps.1),
        ("STAGES", tile.stages),
        ("DQ", heads.of_keys),
        ("DV", heads.of_values),
        ("ALL_KEYS", if tile.groups { 0 } else { tile.all_keys(&heads).unwrap_or(0) }),
        ("LENT", lent),
        ("LEFT", left),
    ] {
        code += &site.constant(name, "u32", format_args!("{n}u"));
    }
    for (name, yes) in [
        ("BF16", t == DType::BF16),
        ("CAUSAL", flag("causal")?),
        ("CAPPED", attrs.float("softcap").map_err(op_error)? > 0.0),
        ("PAST", site.dtype(PAST).is_some()),
        ("LENGTHS", site.dtype(NONPAD).is_some()),
        ("PRESENT", present(site)),
        // With boxes every head of queries has blocks of its own.
        ("GROUPED", heads.grouped && !tile.boxes),
        ("SPLIT", split),
        ("MASK", mask.is_some()),
        ("BOOL_MASK", mask == Some(DType::Bool)),
        ("MASK_WIDE", matches!(mask, Some(DType::F32 | DType::BF16))),
        ("HIDES", hidden_score(site)?.is_some()),
        ("ZERO_NAN", flag("zero_nan")?),
        ("ZERO_EMPTY", flag("zero_empty")?),
        ("SWIZZLED", tile.groups),
        ("IN_TURNS", tile.order.in_turns()),
        ("BESIDE", tile.order.beside()),
        ("BOXES", tile.boxes),
        ("BOXED_MASK", masked),
        ("MASK_OF_KEYS", of_keys),
        ("AT_ONCE", tile.boxes && tile.at_once.is_some()),
    ] {
        code += &site.constant(name, "bool", yes);
    }
    if tile.groups {
        code += &steps(t, tile.keys, heads.of_values);
    }
    let (file, entry) =
        if tile.groups { ("attention/wgmma", "flash_wgmma") } else { ("attention/flash", "flash") };
    // A warpgroup that copies lends its registers, of which a block has all.
    // Where keys are stored as well, the compiler spills registers unless it may let a multiprocessor hold a single block.
    let beside = tile.resident().or(present(site).then_some(1)).map(|n| n as u32);
    let mut entries = vec![Entry::Blocks(Blocks {
        beside,
        early: !tile.groups,
        ..Blocks::of(entry, tile.threads() as u32)
    })];
    entries.extend(split.then_some(Entry::blocks("merge_parts", MERGE_THREADS as u32)));
    let unwritten = (1..4).filter(|&j| j == 3 || !present(site)).collect();
    let shared = tile.shared(&heads, masked) as u32;
    let maps = boxes.map_or(0, |b| b.maps.len() as u32);
    Ok(Body { shared, maps, scratch: split, unwritten, ..Body::of(file, entries).with(code) })
}

/// The instructions of a warpgroup: 64 rows of scores of `keys` keys, and of `components` of weighted values.
fn steps(t: DType, keys: usize, components: usize) -> String {
    let kind = Kind::of_halves(t);
    let types = (kind.types.0, kind.types.1);
    structure("ScoreStep", &[], &[], &begin_and_multiply(keys, kind, types))
        + &structure("ValueStep", &[], &[], &multiply_registers(components, kind, types, true))
}

/// The bits of `whole`.
fn whole(cx: &Cx<'_>, p: &Problem) -> usize {
    let per_copy =
        16 / cx.inputs.first().copied().flatten().map_or(2, |f| (f.ty.dtype.bits() as usize / 8).max(1));
    let aligned = |n: &usize| n.is_multiple_of(per_copy);
    let whole = |i: usize, size: usize| aligned(&size) && p.inputs[i].iter().all(aligned);
    let [of_batch, of_head, of_query, of_key] = p.mask;
    let bits = [
        whole(0, p.size),
        whole(1, p.size) && whole(3, p.size),
        whole(2, p.v_size) && whole(4, p.v_size),
        aligned(&p.v_size),
        of_key == 1,
        of_key == 1 && [p.mask_offset, of_batch, of_head, of_query].iter().all(|n| n.is_multiple_of(2)),
    ];
    bits.iter().enumerate().map(|(i, yes)| usize::from(*yes) << i).sum()
}

/// The launches of a tile's kernel.
pub fn launch(cx: &Cx<'_>, tile: &Tile) -> Result<Vec<Launch>, BackendError> {
    let p = Problem::of(cx)?;
    let log2e = std::f32::consts::LOG2_E;
    // Scores that are capped have their scale when the mask is added to them.
    let (mask_scale, power, cap_scale) = match p.cap > 0.0 {
        true => (1.0, log2e, p.scale / p.cap),
        false => (1.0 / p.scale, p.scale * log2e, 0.0),
    };
    // Scores of this size are finite as powers of 2, whatever their factor.
    let least = -1e38 / power.max(1.0);
    let (y_batch, y_head, y_query) =
        if p.flat { (p.queries * p.heads, 1, p.heads) } else { (p.heads * p.queries, p.queries, 1) };
    let (parts, part_keys) = tile.parts(p.keys);
    let [mask_batch, mask_head, mask_query, mask_key] = p.mask;
    let [q, k, v, past_k, past_v] = p.inputs;
    let boxes = if tile.boxes { Some(Boxes::launched(cx, &p, tile)?) } else { None };
    // Heads with blocks of their own.
    let shared_by = p.heads.checked_div(p.kv_heads).unwrap_or(0);
    let kv_heads = if tile.boxes { p.heads } else { p.kv_heads };
    // Boxes begin with the number of a head, other copies with an element.
    let [first_q, first_k, first_v] = boxes.as_ref().map_or([q[0], k[0], v[0]], |b| b.first);
    let params = FlashParams {
        batch: p.batch,
        heads: p.heads,
        kv_heads,
        queries: p.queries,
        keys: p.keys,
        size: p.size,
        value_size: p.v_size,
        past: p.past,
        mask_length: p.mask_len,
        mask_batch,
        mask_head,
        mask_query,
        mask_key,
        mask_scale,
        power,
        cap: p.cap,
        cap_scale,
        whole: whole(cx, &p),
        q_offset: first_q,
        q_batch: q[1],
        q_head: q[2],
        q_step: q[3],
        k_offset: first_k,
        k_batch: k[1],
        k_head: k[2],
        k_step: k[3],
        v_offset: first_v,
        v_batch: v[1],
        v_head: v[2],
        v_step: v[3],
        past_k_offset: past_k[0],
        past_k_batch: past_k[1],
        past_k_head: past_k[2],
        past_k_step: past_k[3],
        past_v_offset: past_v[0],
        past_v_batch: past_v[1],
        past_v_head: past_v[2],
        past_v_step: past_v[3],
        y_batch,
        y_head,
        y_query,
        parts,
        part_keys,
        mask_offset: p.mask_offset,
        least,
        hidden: (p.hidden * mask_scale).max(least),
        past_given: [PAST, PAST + 1].into_iter().map(|i| cx.given(i)).product(),
        share: shared_by.max(1),
    };
    let words = params.words()?;
    let rows = p.heads.checked_div(kv_heads).unwrap_or(0) * p.queries;
    let blocks = p.batch * kv_heads * rows.div_ceil(tile.rows).max(1) * parts;
    let shared = tile.shared(&Heads::launched(boxes::SIZE, &p), boxes.as_ref().is_some_and(Boxes::masked));
    let blocks = tile.persistent(BLOCKS as usize, shared).map_or(blocks, |most| blocks.min(most));
    let maps = boxes.map_or_else(Vec::new, |b| b.maps);
    let flash = Launch { maps, ..Launch::map(0, words.clone()).on(Grid::Groups(blocks as u64)) };
    if tile.split == 1 {
        return Ok(vec![flash]);
    }
    let rows = p.batch * p.heads * p.queries;
    let bytes = (rows * parts * (p.v_size + 2) * 4) as u64;
    let merge = Launch::map(1, words).on(Grid::Groups(rows.div_ceil(rows_merged(p.v_size, parts)) as u64));
    Ok(vec![flash.scratch(bytes), merge.scratch(bytes)])
}

/// Rows that a block merges from their parts.
fn rows_merged(size: usize, parts: usize) -> usize {
    let threads = MERGE_THREADS / size.div_ceil(8).max(1);
    threads / parts.clamp(1, threads.max(1))
}
