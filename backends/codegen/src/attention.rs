//! Attention: scores, softmax and weighted sum, one pass each, with the weights in scratch memory.

pub mod kv_cache;
pub mod linear;
pub mod rotary;

use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;

/// The input with biases of scores.
pub const MASK: usize = 3;
const PAST: usize = 4;
const NONPAD: usize = 6;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "attention",
    ops: &["attention"],
    epilogue: true,
    views: Views::Rows,
    side_results: false,
    tactics: |site| {
        unmoved(site)?;
        Ok(vec![Tactic { leaves_unread: true, ..Tactic::plain("attention") }])
    },
    source,
    launch,
}];

/// Refuses moves in front of lengths, which kernels do not look through.
pub fn unmoved(site: &Site<'_>) -> Result<(), BackendError> {
    match site.moves.get(NONPAD) {
        Some(moves) if !moves.is_empty() => unsupported("lengths that were moved"),
        _ => Ok(()),
    }
}

crate::params! {
    /// Attention in passes.
    pub struct AttentionParams {
        /// Components of queries and keys.
        size: u32,
        /// Components of values.
        v_size: u32,
        /// Number of keys, those of the past first.
        keys: u32,
        /// Number of queries.
        queries: u32,
        /// Heads of the queries.
        q_heads: u32,
        /// Heads of keys and values.
        kv_heads: u32,
        /// Number of batch entries.
        batch: u32,
        /// Keys of the past.
        past: u32,
        /// Whether the result has heads behind positions.
        flat: u32,
        /// Whether a query sees only the keys up to its own position.
        causal: u32,
        /// The factor of products.
        scale: f32,
        /// Bound that scores are capped at; 0 for no cap.
        cap: f32,
        /// Length of a line of the mask.
        mask_keys: u32,
        /// The first element of the mask.
        mask_offset: u32,
        /// Elements of the mask from one batch entry to the next.
        mask_batch: u32,
        /// Elements from one head to the next.
        mask_head: u32,
        /// Elements from one query to the next.
        mask_query: u32,
        /// Elements from one key to the next.
        mask_key: u32,
        /// The first element of queries.
        q_offset: u32,
        /// Elements from one batch entry to the next.
        q_batch: u32,
        /// Elements from one head to the next.
        q_head: u32,
        /// Elements from one position to the next.
        q_position: u32,
        /// The first element of keys.
        k_offset: u32,
        /// Elements from one batch entry to the next.
        k_batch: u32,
        /// Elements from one head to the next.
        k_head: u32,
        /// Elements from one position to the next.
        k_position: u32,
        /// The first element of values.
        v_offset: u32,
        /// Elements from one batch entry to the next.
        v_batch: u32,
        /// Elements from one head to the next.
        v_head: u32,
        /// Elements from one position to the next.
        v_position: u32,
        /// The first element of the past keys.
        past_k_offset: u32,
        /// Elements from one batch entry to the next.
        past_k_batch: u32,
        /// Elements from one head to the next.
        past_k_head: u32,
        /// Elements from one position to the next.
        past_k_position: u32,
        /// The first element of the past values.
        past_v_offset: u32,
        /// Elements from one batch entry to the next.
        past_v_batch: u32,
        /// Elements from one head to the next.
        past_v_head: u32,
        /// Elements from one position to the next.
        past_v_position: u32,
    }
}

/// Windows from here on are wider than any tensor: their bound is left out.
const WIDEST: i64 = 1 << 30;

/// Whether attention sees keys by the positions of queries among keys that lengths number, or within windows.
pub fn is_positioned(site: &Site<'_>) -> Result<bool, BackendError> {
    let attrs = site.op()?.attrs();
    let window = |name| Ok::<_, BackendError>(attrs.int(name).map_err(op_error)? >= 0);
    let causal = attrs.bool("causal").map_err(op_error)?;
    Ok(window("window_left")? || window("window_right")? || (causal && site.dtype(NONPAD).is_some()))
}

/// Distance that a query sees to one side, -1 without a bound.
fn window(site: &Site<'_>, name: &str) -> Result<i64, BackendError> {
    let bound = site.op()?.attrs().int(name).map_err(op_error)?;
    Ok(if (0..WIDEST).contains(&bound) { bound } else { -1 })
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let unwritten = (1..4).filter(|&j| !site.wanted(j)).collect();
    Ok(Body { unwritten, ..body(site)? })
}

/// The score of keys that a bool mask hides, if it is not −∞.
pub fn hidden_score(site: &Site<'_>) -> Result<Option<f32>, BackendError> {
    let x = site.op()?.attrs().float("hidden_score").map_err(op_error)?;
    Ok((x != f64::NEG_INFINITY).then_some(x as f32))
}

/// The kernels, with their entries: scores, weights, mixed values, keys, values, the output of scores. Where loops are cut, a
/// block weighs a row, else a thread.
pub fn body(site: &Site<'_>) -> Result<Body, BackendError> {
    let has = |i: usize| site.dtype(i).is_some();
    let hidden = hidden_score(site)?;
    let masked = match site.dtype(MASK) {
        Some(DType::Bool) if hidden.is_some() => "select(cf(0x7f800000u), 0.0f, x3(at))",
        Some(DType::Bool) => "select(cf(0xff800000u), 0.0f, x3(at))",
        Some(_) => "x3(at)",
        None => "0.0f",
    };
    let flag = |name: &str, on: bool| site.constant(name, "bool", on);
    let attr = |name: &str| site.op()?.attrs().bool(name).map_err(op_error);
    let (zero_nan, zero_empty) = (attr("zero_nan")?, attr("zero_empty")?);
    let qk = site.op()?.attrs().int("qk_output").map_err(op_error)?.clamp(0, 3);
    let code = flag("HAS_PAST", has(PAST))
        + &flag("HAS_MASK", has(MASK))
        + &flag("HAS_LENGTHS", has(NONPAD))
        + &flag("HIDES", hidden.is_some())
        + &site.constant("HIDDEN", "u32", format_args!("0x{:08x}u", hidden.unwrap_or(0.0).to_bits()))
        + &site.constant("LEFT", "i32", window(site, "window_left")?)
        + &site.constant("RIGHT", "i32", window(site, "window_right")?)
        + &flag("ZERO_NAN", zero_nan)
        + &flag("ZERO_EMPTY", zero_nan || zero_empty)
        + &site.constant("QK", "u32", format_args!("{qk}u"))
        + &site.function("masked", &[("at", "u32")], "f32", masked);
    let weigh = if site.cut() { Entry::blocks("weigh", 64) } else { Entry::threads("weigh") };
    let [scores, mix, keys, values, qk] = ["scores", "mix", "keys", "values", "qk"].map(Entry::threads);
    let body = Body::of("attention/attention", vec![scores, weigh, mix, keys, values, qk]);
    Ok(Body { scratch: true, ..body.with(code) })
}

/// The numbers of one attention, however its inputs lie.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Batch.
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Queries.
    pub queries: usize,
    /// Keys, those of the past first.
    pub keys: usize,
    /// Components of queries and keys.
    pub size: usize,
    /// Components of values.
    pub v_size: usize,
    /// Keys of the past.
    pub past: usize,
    /// Whether the result is [batch, queries, heads·size], with heads after positions.
    pub flat: bool,
    /// Keys that the mask covers; 0 without a mask.
    pub mask_len: usize,
    /// Offset of the mask's first element.
    pub mask_offset: usize,
    /// Elements of the mask from one to the next: batch, head, query, key.
    pub mask: [usize; 4],
    /// Factor of the products.
    pub scale: f32,
    /// Bound that scores are capped at; 0 for no cap.
    pub cap: f32,
    /// The score of keys that a bool mask hides.
    pub hidden: f32,
    /// Whether a query sees only the keys up to its own position.
    pub causal: bool,
    /// Offset and strides of q, k, v, past keys and past values over batch, head and position; zeros for absent ones.
    pub inputs: [[usize; 4]; 5],
}

impl Problem {
    /// Reads the problem from a launch.
    pub fn of(cx: &Cx<'_>) -> Result<Problem, BackendError> {
        let attrs = cx.op()?.attrs();
        let (keys, values, qk) = (cx.out_shape(1)?, cx.out_shape(2)?, cx.out_shape(3)?);
        let (&[batch, heads, queries, total], &[_, kv_heads, _, size], &[_, _, _, v_size]) =
            (&qk[..], &keys[..], &values[..])
        else {
            return Err(BackendError::Internal("attention scores and caches are 4-D".into()));
        };
        let past = if cx.has(PAST) { cx.shape(PAST)?[2] } else { 0 };
        let (mut mask_len, mut mask_offset, mut mask) = (0, 0, [0; 4]);
        if cx.has(MASK) {
            let v = cx.view(MASK)?;
            (mask_len, mask_offset) = (v.shape.last().copied().unwrap_or(0), v.offset);
            let lengths = v.shape.iter().zip(&v.strides).rev();
            for (to, (&n, &step)) in mask.iter_mut().rev().zip(lengths) {
                *to = if n == 1 { 0 } else { step };
            }
        }
        let mut inputs = [[0; 4]; 5];
        for (to, (i, size)) in
            inputs.iter_mut().zip([(0, size), (1, size), (2, v_size), (PAST, size), (PAST + 1, v_size)])
        {
            if cx.has(i) {
                *to = lies(cx, i, size)?;
            }
        }
        let scale = match attrs.float("scale").map_err(op_error)? {
            0.0 => 1.0 / (size as f64).sqrt(),
            s => s,
        };
        Ok(Problem {
            batch,
            heads,
            kv_heads,
            queries,
            keys: total,
            size,
            v_size,
            past,
            flat: cx.shape(0)?.len() == 3,
            mask_len,
            mask_offset,
            mask,
            scale: scale as f32,
            cap: attrs.float("softcap").map_err(op_error)? as f32,
            hidden: attrs.float("hidden_score").map_err(op_error)? as f32,
            causal: attrs.bool("causal").map_err(op_error)?,
            inputs,
        })
    }

    /// Parameters of the generic kernels.
    pub fn params(&self) -> AttentionParams {
        let [q, k, v, past_k, past_v] = self.inputs;
        let [mask_batch, mask_head, mask_query, mask_key] = self.mask;
        AttentionParams {
            size: self.size,
            v_size: self.v_size,
            keys: self.keys,
            queries: self.queries,
            q_heads: self.heads,
            kv_heads: self.kv_heads,
            batch: self.batch,
            past: self.past,
            flat: usize::from(self.flat),
            causal: usize::from(self.causal),
            scale: self.scale,
            cap: self.cap,
            mask_keys: self.mask_len,
            mask_offset: self.mask_offset,
            mask_batch,
            mask_head,
            mask_query,
            mask_key,
            q_offset: q[0],
            q_batch: q[1],
            q_head: q[2],
            q_position: q[3],
            k_offset: k[0],
            k_batch: k[1],
            k_head: k[2],
            k_position: k[3],
            v_offset: v[0],
            v_batch: v[1],
            v_head: v[2],
            v_position: v[3],
            past_k_offset: past_k[0],
            past_k_batch: past_k[1],
            past_k_head: past_k[2],
            past_k_position: past_k[3],
            past_v_offset: past_v[0],
            past_v_batch: past_v[1],
            past_v_head: past_v[2],
            past_v_position: past_v[3],
        }
    }
}

/// Offset and strides of an input over batch, head and position; heads of `size` lie in the last of three dimensions.
fn lies(cx: &Cx<'_>, i: usize, size: usize) -> Result<[usize; 4], BackendError> {
    let v = cx.view(i)?;
    match v.strides[..] {
        [b, h, s, _] => Ok([v.offset, b, h, s]),
        [b, s, _] => Ok([v.offset, b, size, s]),
        _ => {
            Err(BackendError::Internal(format!("an input of attention with {} dimensions", v.strides.len())))
        }
    }
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let p = Problem::of(cx)?;
    let w = p.params().words()?;
    let count = |shape: &[usize]| shape.iter().map(|&d| d as u64).product::<u64>();
    let rows = count(&[p.batch, p.heads, p.queries]);
    let scores = rows * p.keys as u64;
    let cache = count(&[p.batch, p.kv_heads, p.keys]);
    let grids =
        [scores, rows, rows * p.v_size as u64, cache * p.size as u64, cache * p.v_size as u64, scores];
    // The outputs that the entries are for.
    let outputs = [None, None, None, Some(1), Some(2), Some(3)];
    let wanted = |j: Option<usize>| j.is_none_or(|j| cx.wanted.get(j).copied().unwrap_or(true));
    let launches = grids.into_iter().enumerate().filter(|&(k, _)| wanted(outputs[k]));
    Ok(launches
        .map(|(k, n)| Launch::map(k, w.clone()).on(Grid::Threads(n)).scratch((scores * 4).max(4)))
        .collect())
}
