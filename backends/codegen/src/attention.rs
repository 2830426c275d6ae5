//! Attention: scores, softmax and weighted sum, one pass each, with the weights in scratch memory.

pub mod kv_cache;
pub mod rotary;

use crate::site::{Cx, Site, op_error, unsupported};
use crate::template::{fill, sections};
use crate::{Body, Entry, Grid, Kernel, Launch, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;

const MASK: usize = 3;
const PAST: usize = 4;
const NONPAD: usize = 6;

pub const KERNELS: &[Kernel] = &[Kernel {
    name: "attention",
    ops: &["attention"],
    epilogue: false,
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

/// Where elements lie, as expressions.
pub struct Places {
    /// Of a past key, given `b`, `h`, `j` and `d`.
    pub past_key: &'static str,
    /// Of a past value.
    pub past_value: &'static str,
    /// Of the mask, given `b`, `h`, `i` and `j`.
    pub mask: &'static str,
}

/// Inputs lie as the words behind those of [`Problem::words`] tell.
const VIEWED: Places = Places {
    past_key: "lies(29u, b, h, j, d)",
    past_value: "lies(33u, b, h, j, d)",
    mask: "m(37u) + b * m(10u) + h * m(11u) + i * m(12u) + j * m(13u)",
};

const NONPAD_TEST: &str = "if (j >= u32(max(near6(b), 0))) { return out; }";

/// Windows from here on are wider than any tensor: their bound is left out.
const WIDEST: i64 = 1 << 30;

/// Whether attention sees keys by the positions of queries among keys that lengths number, or within windows.
pub fn is_positioned(site: &Site<'_>) -> Result<bool, BackendError> {
    let attrs = site.op()?.attrs();
    let window = |name| Ok::<_, BackendError>(attrs.int(name).map_err(op_error)? >= 0);
    let causal = attrs.bool("causal").map_err(op_error)?;
    Ok(window("window_left")? || window("window_right")? || (causal && site.dtype(NONPAD).is_some()))
}

/// Tests of a key's distance from the position of its query, `own`.
fn window_tests(site: &Site<'_>) -> Result<String, BackendError> {
    let attrs = site.op()?.attrs();
    let mut tests = String::new();
    for (name, distance) in [("window_left", "own - i32(j)"), ("window_right", "i32(j) - own")] {
        let bound = attrs.int(name).map_err(op_error)?;
        if (0..WIDEST).contains(&bound) {
            tests += &format!("if ({distance} > {bound}) {{ return out; }}\n    ");
        }
    }
    Ok(tests)
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let unwritten = (1..4).filter(|&j| !site.wanted(j)).collect();
    Ok(Body { unwritten, ..body(site, &VIEWED)? })
}

/// The score of keys that a bool mask hides, if it is not −∞.
pub fn hidden_score(site: &Site<'_>) -> Result<Option<f32>, BackendError> {
    let x = site.op()?.attrs().float("hidden_score").map_err(op_error)?;
    Ok((x != f64::NEG_INFINITY).then_some(x as f32))
}

/// The template, filled in, with its entries: scores, weights, mixed values, keys, values, the output of scores.
pub fn body(site: &Site<'_>, at: &Places) -> Result<Body, BackendError> {
    let given = |i, text: String| if site.dtype(i).is_some() { text } else { String::new() };
    let past = |x: &str, place: &str| format!("if (j < m(7u)) {{ return {x}({place}); }}");
    let hidden = hidden_score(site)?;
    let mask = match site.dtype(MASK) {
        Some(DType::Bool) if hidden.is_some() => format!("select(cf(0x7f800000u), 0.0f, x3({}))", at.mask),
        Some(DType::Bool) => format!("select(out, 0.0f, x3({}))", at.mask),
        _ => format!("x3({})", at.mask),
    };
    let mask = given(MASK, format!("if (j >= m(9u)) {{ return out; }}\n    return {mask};"));
    let qk = match site.op()?.attrs().int("qk_output").map_err(op_error)? {
        0 => "product(b, h, i, j)",
        1 => "capped(product(b, h, i, j))",
        2 => "score(b, h, i, j)",
        _ => "bitcast<f32>(scratch[t])",
    };
    let flag = |name| site.op()?.attrs().bool(name).map_err(op_error);
    let empty = match (flag("zero_nan")?, flag("zero_empty")?) {
        (true, _) => "0u, none || (w & 0x7fffffffu) > 0x7f800000u",
        (false, true) => "0u, none",
        (false, false) => "0x7fc00000u, none",
    };
    let own = match site.dtype(NONPAD) {
        Some(_) => "max(near6(b), 0) + (i32(i) - i32(m(3u)))",
        None => "i32(i + m(7u))",
    };
    let windows = window_tests(site)?;
    // Only what is hidden behind a number has a bias above 0.
    let hides = hidden
        .map_or_else(String::new, |x| format!("if (added > 0.0f) {{ return cf(0x{:08x}u); }}", x.to_bits()));
    let pairs = [
        ("HIDDEN", &*hides),
        ("EMPTY", empty),
        ("PAST_KEY", &*given(PAST, past("x4", at.past_key))),
        ("PAST_VALUE", &*given(PAST, past("x5", at.past_value))),
        ("OWN", own),
        ("WINDOW", &*windows),
        ("NONPAD", &*given(NONPAD, NONPAD_TEST.into())),
        ("MASK", &*mask),
        ("QK", qk),
    ];
    let code = fill(&sections(site.text("attention"), &["common", "entries"]), &pairs);
    let entries = ["scores", "weigh", "mix", "keys", "values", "qk"].map(Entry::Free).into();
    Ok(Body { code, entries, scratch: true, ..Body::default() })
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
    /// Is the result [batch, queries, heads·size], with heads behind positions?
    pub flat: bool,
    /// Keys that the mask speaks of; 0 without a mask.
    pub mask_len: usize,
    /// Where the mask begins.
    pub mask_offset: usize,
    /// Elements of the mask from one to the next: batch, head, query, key.
    pub mask: [usize; 4],
    /// Factor of the products.
    pub scale: f32,
    /// What scores are capped at; 0 for no cap.
    pub cap: f32,
    /// The score of keys that a bool mask hides.
    pub hidden: f32,
    /// Does a query see only the keys up to its own position?
    pub causal: bool,
    /// Offset and strides of q, k, v, past keys and past values over batch, head and position; zeros for absent ones.
    pub inputs: [[usize; 4]; 5],
}

impl Problem {
    /// Of a launch.
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

    /// The words of the generic kernels: numbers, mask, scale, cap, is it causal.
    pub fn words(&self) -> Result<Vec<u32>, BackendError> {
        let mut w = words([
            self.batch,
            self.heads,
            self.kv_heads,
            self.queries,
            self.keys,
            self.size,
            self.v_size,
            self.past,
            usize::from(self.flat),
        ])?;
        w.extend(words([self.mask_len].into_iter().chain(self.mask))?);
        w.extend([self.scale.to_bits(), self.cap.to_bits(), u32::from(self.causal)]);
        Ok(w)
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
    let mut w = p.words()?;
    w.extend(words(p.inputs.into_iter().flatten().chain([p.mask_offset]))?);
    let count = |shape: &[usize]| shape.iter().map(|&d| d as u64).product::<u64>();
    let rows = count(&[p.batch, p.heads, p.queries]);
    let scores = rows * p.keys as u64;
    let cache = count(&[p.batch, p.kv_heads, p.keys]);
    let grids =
        [scores, rows, rows * p.v_size as u64, cache * p.size as u64, cache * p.v_size as u64, scores];
    // Which outputs the entries are for.
    let outputs = [None, None, None, Some(1), Some(2), Some(3)];
    let wanted = |j: Option<usize>| j.is_none_or(|j| cx.wanted.get(j).copied().unwrap_or(true));
    let launches = grids.into_iter().enumerate().filter(|&(k, _)| wanted(outputs[k]));
    Ok(launches
        .map(|(k, n)| Launch::map(k, w.clone()).on(Grid::Threads(n)).scratch((scores * 4).max(4)))
        .collect())
}
