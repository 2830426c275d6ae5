//! `attention` of floats: blocks of queries times all keys, softmax by row, then times the values.

use super::gemm::{Size, Strided, Target, alone, floats, floats_mut, scratch};
use super::simd::vectorized;
use super::{Floats, NodeCx, Types, rows};
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::util::{broadcast_strides, is_real};
use std::ops::Range;

const MASK: usize = 3;
const PAST_KEY: usize = 4;
const PAST_VALUE: usize = 5;
const NONPAD: usize = 6;
/// Queries of one head that are computed together.
const QUERIES: usize = 128;

/// Rows of one input by batch, head and position, in either layout.
struct Heads {
    data: Floats,
    /// Batch, heads, length, size.
    shape: [usize; 4],
    /// Elements from batch to batch, head to head, position to position.
    strides: [usize; 3],
    /// Rows of a cache before these, [batch, heads, length, size], and their number in each head.
    cache: Option<Floats>,
    kept: usize,
}

impl Heads {
    fn of(cx: &NodeCx<'_>, i: usize, heads: &str) -> Option<Heads> {
        let (data, cache, kept) = (cx.floats(i)?, None, 0);
        match *cx.shape(i) {
            [b, h, s, d] => {
                Some(Heads { data, shape: [b, h, s, d], strides: [h * s * d, s * d, d], cache, kept })
            }
            [b, s, hidden] => {
                let h = usize::try_from(cx.node.op.attrs().int(heads).ok()?).ok().filter(|&h| h > 0)?;
                let d = hidden / h;
                Some(Heads { data, shape: [b, h, s, d], strides: [s * hidden, d, hidden], cache, kept })
            }
            _ => None,
        }
    }

    /// The rows behind those of a cache, [batch, heads, length, size].
    fn after(self, cx: &NodeCx<'_>, past: usize) -> Option<Heads> {
        if !cx.has(past) {
            return Some(self);
        }
        let kept = *cx.shape(past).get(2)?;
        Some(Heads { cache: Some(cx.floats(past)?), kept, ..self })
    }

    /// Rows of a head, those of the cache too.
    fn len(&self) -> usize {
        self.kept + self.shape[2]
    }

    /// The matrix of one head, from one of its own rows on.
    fn head(&self, b: usize, h: usize, first: usize) -> Strided<'_> {
        let at = b * self.strides[0] + h * self.strides[1] + first * self.strides[2];
        Strided { data: self.data.get(at..).unwrap_or_default(), row: self.strides[2], col: 1 }
    }

    /// The rows of one head: those of the cache, and its own, each with their places among all.
    fn parts(&self, b: usize, h: usize) -> impl Iterator<Item = (Range<usize>, Strided<'_>)> {
        let [_, heads, _, d] = self.shape;
        let from = |cache: &'_ Floats| (b * heads + h) * self.kept * d..cache.len();
        let old = self.cache.as_ref().map(|c| Strided { data: &c[from(c)], row: d, col: 1 });
        let own = (self.kept..self.len(), self.head(b, h, 0));
        old.map(|old| (0..self.kept, old)).into_iter().chain([own]).filter(|(at, _)| !at.is_empty())
    }

    fn row(&self, b: usize, h: usize, s: usize) -> &[f32] {
        let [_, heads, _, d] = self.shape;
        if let Some(cache) = self.cache.as_ref().filter(|_| s < self.kept) {
            return &cache[((b * heads + h) * self.kept + s) * d..][..d];
        }
        let at = b * self.strides[0] + h * self.strides[1] + (s - self.kept) * self.strides[2];
        &self.data[at..at + d]
    }

    /// All rows as [batch, heads, length, size].
    fn write(&self, out: &mut [f32]) {
        let ([_, h, _, d], s) = (self.shape, self.len());
        let rows = out.chunks_exact_mut(d.max(1)).enumerate();
        rows.for_each(|(i, out)| out.copy_from_slice(self.row(i / (h * s), i / s % h, i % s)));
    }
}

/// Summand of scores.
enum Mask {
    None,
    /// True takes part.
    Bools(Vec<u8>),
    Floats(Floats),
}

struct Bias {
    mask: Mask,
    strides: Vec<usize>,
    /// Keys that the mask covers.
    keys: usize,
    causal: bool,
    /// Keys that a query sees before and after its own position.
    window: [Option<usize>; 2],
    /// The score of a key that a bool mask hides.
    hidden: f32,
    /// Position of the first query of each batch entry.
    first: Vec<i64>,
    /// Keys of each batch entry that are not padding.
    lengths: Option<Vec<i64>>,
}

impl Bias {
    fn of(cx: &NodeCx<'_>, q: &[usize; 4]) -> Option<Bias> {
        let attrs = cx.node.op.attrs();
        let causal = attrs.bool("causal").ok()?;
        let [left, right] = [attrs.int("window_left").ok()?, attrs.int("window_right").ok()?];
        let window = [left, right].map(|n| usize::try_from(n).ok());
        let hidden = attrs.float("hidden_score").ok()? as f32;
        let lengths = if cx.has(NONPAD) { Some(cx.ints(NONPAD)?) } else { None };
        let past = if cx.has(PAST_KEY) { *cx.shape(PAST_KEY).get(2)? as i64 } else { 0 };
        let first = match &lengths {
            Some(all) => all.iter().map(|n| n - q[2] as i64).collect(),
            None => vec![past; q[0]],
        };
        let Some(Some(v)) = cx.args.get(MASK) else {
            let strides = Vec::new();
            return Some(Bias { mask: Mask::None, strides, keys: 0, causal, window, hidden, first, lengths });
        };
        let keys = *v.shape().last()?;
        let strides = broadcast_strides(v.shape(), &[q[0], q[1], q[2], keys]);
        let mask = match v.dtype() {
            DType::Bool => Mask::Bools(v.bytes().to_vec()),
            _ => Mask::Floats(cx.floats(MASK)?),
        };
        Some(Bias { mask, strides, keys, causal, window, hidden, first, lengths })
    }

    /// Adds to the scores of one query.
    fn add(&self, at: [usize; 3], scores: &mut [f32]) {
        let from: usize = at.iter().zip(&self.strides).map(|(i, s)| i * s).sum();
        let step = self.strides.get(3).copied().unwrap_or(0);
        let total = scores.len();
        let (seen, beyond) = match self.mask {
            Mask::None => scores.split_at_mut(total),
            _ => scores.split_at_mut(self.keys.min(total)),
        };
        beyond.fill(f32::NEG_INFINITY);
        match &self.mask {
            Mask::None => {}
            Mask::Bools(m) => {
                let out = seen.iter_mut().enumerate().filter(|(j, _)| m[from + j * step] == 0);
                out.for_each(|(_, x)| *x = self.hidden);
            }
            Mask::Floats(m) if step == 1 => add_mask(&m[from..from + seen.len()], seen),
            Mask::Floats(m) => seen.iter_mut().enumerate().for_each(|(j, x)| match m[from + j * step] {
                f32::NEG_INFINITY => *x = f32::NEG_INFINITY,
                bias => *x += bias,
            }),
        }
        let [left, right] = self.window;
        let right = if self.causal { Some(0) } else { right };
        let position = at[2] as i64 + self.first[at[0]];
        let inside = |n: i64| n.clamp(0, total as i64) as usize;
        let saturated = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let first = left.map_or(0, |n| inside(position.saturating_sub(saturated(n))));
        scores[..first].fill(f32::NEG_INFINITY);
        if let Some(n) = right {
            scores[inside(position.saturating_add(saturated(n)).saturating_add(1))..].fill(f32::NEG_INFINITY);
        }
        if let Some(all) = &self.lengths {
            scores[inside(all[at[0]])..].fill(f32::NEG_INFINITY);
        }
    }
}

vectorized! {
    fn scale(x: &mut [f32], by: f32) {
        for x in x {
            *x *= by;
        }
    }
}

vectorized! {
    /// Adds a mask; -∞ hides even what is not a number.
    fn add_mask(mask: &[f32], scores: &mut [f32]) {
        for (x, &bias) in scores.iter_mut().zip(mask) {
            *x = if bias == f32::NEG_INFINITY { bias } else { *x + bias };
        }
    }
}

struct Job {
    q: Heads,
    k: Heads,
    v: Heads,
    bias: Bias,
    scale: f32,
    cap: f32,
    mode: i64,
    zero_nan: bool,
    zero_empty: bool,
}

impl Job {
    fn of(cx: &NodeCx<'_>) -> Option<Job> {
        let attrs = cx.node.op.attrs();
        let [q, k, v] =
            [Heads::of(cx, 0, "q_heads")?, Heads::of(cx, 1, "kv_heads")?, Heads::of(cx, 2, "kv_heads")?];
        let (k, v) = (k.after(cx, PAST_KEY)?, v.after(cx, PAST_VALUE)?);
        let bias = Bias::of(cx, &q.shape)?;
        let scale = match attrs.float("scale").ok()? {
            0.0 => 1.0 / (q.shape[3] as f64).sqrt(),
            s => s,
        };
        let (cap, mode) = (attrs.float("softcap").ok()? as f32, attrs.int("qk_output").ok()?);
        let (zero_nan, zero_empty) = (attrs.bool("zero_nan").ok()?, attrs.bool("zero_empty").ok()?);
        Some(Job { q, k, v, bias, scale: scale as f32, cap, mode, zero_nan, zero_empty })
    }

    /// Some queries of one head, from `first` on: their scores as the operator returns them, and their results.
    ///
    /// # Safety
    /// Nobody else has the rows of y now.
    unsafe fn queries(
        &self,
        [b, h, first]: [usize; 3],
        rows: usize,
        qk: Option<&mut [f32]>,
        y: Target<'_>,
        room: &mut Room,
    ) {
        let kv = h * self.k.shape[1] / self.q.shape[1];
        let (total, depth, size) = (self.k.len(), self.q.shape[3], self.v.shape[3]);
        let weights = &mut room.weights;
        weights.resize(rows * total, 0.0);
        let q = self.q.head(b, h, first);
        let parts = Parts::new(weights);
        for (at, k) in self.k.parts(b, kv) {
            let k = Strided { row: 1, col: k.row, ..k };
            let s = Size { m: rows, n: at.len(), k: depth };
            // SAFETY: the weights are this task's.
            unsafe { alone(s, &q, &k, Target::new(&parts, total, at.start), &mut room.packed) };
        }
        let mut shown = qk;
        for (i, row) in weights.chunks_exact_mut(total).enumerate() {
            let shown = shown.as_mut().map(|all| &mut all[i * total..(i + 1) * total]);
            self.weigh([b, h, first + i], row, shown);
        }
        for (i, (at, v)) in self.v.parts(b, kv).enumerate() {
            let w = Strided { data: &weights[at.start..], row: total, col: 1 };
            let s = Size { m: rows, n: size, k: at.len() };
            if i == 0 {
                // SAFETY: as the contract says.
                unsafe { alone(s, &w, &v, y, &mut room.packed) };
                continue;
            }
            room.more.resize(rows * size, 0.0);
            let more = Parts::new(&mut room.more);
            // SAFETY: the room is this task's.
            unsafe { alone(s, &w, &v, Target::new(&more, size, 0), &mut room.packed) };
            for (r, more) in room.more.chunks_exact(size.max(1)).enumerate() {
                // SAFETY: as the contract says.
                let to = unsafe { y.row(r, 0..size) };
                to.iter_mut().zip(more).for_each(|(to, x)| *to += x);
            }
        }
    }

    /// Turns the products of one query into weights.
    fn weigh(&self, at: [usize; 3], weights: &mut [f32], mut shown: Option<&mut [f32]>) {
        let mut show = |stage: i64, values: &[f32]| {
            if let Some(qk) = shown.as_mut().filter(|_| self.mode == stage) {
                qk.copy_from_slice(values);
            }
        };
        scale(weights, self.scale);
        show(0, weights);
        if self.cap > 0.0 {
            weights.iter_mut().for_each(|x| *x = self.cap * (*x / self.cap).tanh());
        }
        show(1, weights);
        self.bias.add(at, weights);
        show(2, weights);
        let empty = self.zero_empty && weights.iter().all(|x| *x == f32::NEG_INFINITY);
        rows::row_in_place(weights);
        if empty {
            weights.fill(0.0);
        }
        if self.zero_nan {
            weights.iter_mut().filter(|w| w.is_nan()).for_each(|w| *w = 0.0);
        }
        show(3, weights);
    }
}

/// Memory of one task.
#[derive(Default)]
struct Room {
    weights: Vec<f32>,
    packed: Vec<f32>,
    more: Vec<f32>,
}

/// Whether the kernel covers a node: floats.
pub fn covers(t: &Types<'_>) -> bool {
    let real = |i: usize| t.input(i).is_some_and(|t| is_real(t.dtype));
    (0..3).all(real)
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Some(job) = Job::of(cx) else { return Ok(false) };
    let ([batch, heads, len, _], total, size) = (job.q.shape, job.k.len(), job.v.shape[3]);
    let Some(shape) = cx.out_shape(0) else { return Ok(false) };
    let queries = batch * heads * len;
    let wanted = cx.node.outputs.len() > 3 && cx.wanted(3);
    let mut qk = scratch(cx.pool, if wanted { queries * total } else { 0 }, "scores of attention")?;
    let points = Checkpoints::here();
    let blocks = len.div_ceil(QUERIES);
    let flat = shape.len() == 3;
    let mut done = cx.write_floats(0, &shape, |out| {
        if total == 0 {
            // Every sum is empty.
            out.fill(0.0);
            return Ok(());
        }
        let (all_qk, all_y) = (Parts::new(floats_mut(&mut qk)), Parts::new(out));
        threads::ranges(batch * heads * blocks, 1, |range| {
            let mut room = Room::default();
            for task in range {
                points.pass();
                let (head, first) = (task / blocks, task % blocks * QUERIES);
                let rows = head * len + first..head * len + len.min(first + QUERIES);
                let (b, h) = (head / heads, head % heads);
                let y = match flat {
                    true => Target::new(&all_y, heads * size, ((b * len + first) * heads + h) * size),
                    false => Target::new(&all_y, size, rows.start * size),
                };
                // SAFETY: each query of each head belongs to one task.
                unsafe {
                    let qk = wanted.then(|| all_qk.part(rows.start * total, rows.end * total));
                    job.queries([b, h, first], rows.len(), qk, y, &mut room);
                }
            }
        });
        Ok(())
    })?;
    let outputs = cx.node.outputs.len();
    for i in 1..outputs {
        if !cx.wanted(i) {
            cx.skip(i)?;
            continue;
        }
        let Some(shape) = cx.out_shape(i) else { return Ok(false) };
        done &= cx.write_floats(i, &shape, |out| {
            match i {
                1 => job.k.write(out),
                2 => job.v.write(out),
                _ => out.copy_from_slice(floats(&qk)),
            }
            Ok(())
        })?;
    }
    Ok(done)
}
