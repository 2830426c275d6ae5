//! `attention` of floats without a past: scores, softmax and sums of values, row by row.

use super::gemm::{floats, floats_mut, scratch};
use super::{Floats, NodeCx, Types, rows};
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::util::{broadcast_strides, is_real};

const MASK: usize = 3;
/// The cache and the lengths of unpadded keys, which this path does not cover.
const OTHERS: std::ops::RangeInclusive<usize> = 4..=6;

/// Rows of one input by batch, head and position, in either layout.
struct Heads {
    data: Floats,
    /// Batch, heads, length, size.
    shape: [usize; 4],
    /// Elements from batch to batch, head to head, position to position.
    strides: [usize; 3],
}

impl Heads {
    fn of(cx: &NodeCx<'_>, i: usize, heads: &str) -> Option<Heads> {
        let data = cx.floats(i)?;
        match *cx.shape(i) {
            [b, h, s, d] => Some(Heads { data, shape: [b, h, s, d], strides: [h * s * d, s * d, d] }),
            [b, s, hidden] => {
                let h = usize::try_from(cx.node.op.attrs().int(heads).ok()?).ok().filter(|&h| h > 0)?;
                let d = hidden / h;
                Some(Heads { data, shape: [b, h, s, d], strides: [s * hidden, d, hidden] })
            }
            _ => None,
        }
    }

    fn row(&self, b: usize, h: usize, s: usize) -> &[f32] {
        let at = b * self.strides[0] + h * self.strides[1] + s * self.strides[2];
        &self.data[at..at + self.shape[3]]
    }

    /// All rows as [batch, heads, length, size].
    fn write(&self, out: &mut [f32]) {
        let [_, h, s, d] = self.shape;
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
}

impl Bias {
    fn of(cx: &NodeCx<'_>, q: &[usize; 4]) -> Option<Bias> {
        let attrs = cx.node.op.attrs();
        let causal = attrs.bool("causal").ok()?;
        let [left, right] = [attrs.int("window_left").ok()?, attrs.int("window_right").ok()?];
        let window = [left, right].map(|n| usize::try_from(n).ok());
        let hidden = attrs.float("hidden_score").ok()? as f32;
        let Some(Some(v)) = cx.args.get(MASK) else {
            return Some(Bias { mask: Mask::None, strides: Vec::new(), keys: 0, causal, window, hidden });
        };
        let keys = *v.shape().last()?;
        let strides = broadcast_strides(v.shape(), &[q[0], q[1], q[2], keys]);
        let mask = match v.dtype() {
            DType::Bool => Mask::Bools(v.bytes().to_vec()),
            _ => Mask::Floats(cx.floats(MASK)?),
        };
        Some(Bias { mask, strides, keys, causal, window, hidden })
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
            Mask::Floats(m) => seen.iter_mut().enumerate().for_each(|(j, x)| match m[from + j * step] {
                f32::NEG_INFINITY => *x = f32::NEG_INFINITY,
                bias => *x += bias,
            }),
        }
        let [left, right] = self.window;
        let right = if self.causal { Some(0) } else { right };
        let first = left.map_or(0, |n| at[2].saturating_sub(n)).min(total);
        scores[..first].fill(f32::NEG_INFINITY);
        if let Some(end) = right.and_then(|n| at[2].checked_add(n)?.checked_add(1)) {
            scores[end.min(total)..].fill(f32::NEG_INFINITY);
        }
    }
}

/// Σ aᵢ·bᵢ in lanes.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(s, (a, b))| *s += a * b);
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
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
        let bias = Bias::of(cx, &q.shape)?;
        let scale = match attrs.float("scale").ok()? {
            0.0 => 1.0 / (q.shape[3] as f64).sqrt(),
            s => s,
        };
        let (cap, mode) = (attrs.float("softcap").ok()? as f32, attrs.int("qk_output").ok()?);
        let (zero_nan, zero_empty) = (attrs.bool("zero_nan").ok()?, attrs.bool("zero_empty").ok()?);
        Some(Job { q, k, v, bias, scale: scale as f32, cap, mode, zero_nan, zero_empty })
    }

    /// One query of one head: its scores as the operator returns them, and its result.
    fn query(&self, [b, h, i]: [usize; 3], qk: &mut [f32], weights: &mut [f32], y: &mut [f32]) {
        let kv = h * self.k.shape[1] / self.q.shape[1];
        let q = self.q.row(b, h, i);
        let mut show = |stage: i64, values: &[f32]| {
            if self.mode == stage {
                qk.copy_from_slice(values);
            }
        };
        weights.iter_mut().enumerate().for_each(|(j, x)| *x = self.scale * dot(q, self.k.row(b, kv, j)));
        show(0, weights);
        if self.cap > 0.0 {
            weights.iter_mut().for_each(|x| *x = self.cap * (*x / self.cap).tanh());
        }
        show(1, weights);
        self.bias.add([b, h, i], weights);
        show(2, weights);
        let scores = weights.to_vec();
        rows::row(&scores, weights);
        if self.zero_empty && scores.iter().all(|x| *x == f32::NEG_INFINITY) {
            weights.fill(0.0);
        }
        if self.zero_nan {
            weights.iter_mut().filter(|w| w.is_nan()).for_each(|w| *w = 0.0);
        }
        show(3, weights);
        y.fill(0.0);
        for (j, &w) in weights.iter().enumerate() {
            y.iter_mut().zip(self.v.row(b, kv, j)).for_each(|(y, v)| *y += w * v);
        }
    }
}

/// Whether the kernel covers a node: floats, without a cache.
pub fn covers(t: &Types<'_>) -> bool {
    let real = |i: usize| t.input(i).is_some_and(|t| is_real(t.dtype));
    (0..3).all(real) && OTHERS.into_iter().all(|i| t.input(i).is_none())
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    if OTHERS.into_iter().any(|i| cx.has(i)) {
        return Ok(false);
    }
    let Some(job) = Job::of(cx) else { return Ok(false) };
    let ([batch, heads, len, _], total, size) = (job.q.shape, job.k.shape[2], job.v.shape[3]);
    let Some(shape) = cx.out_shape(0).filter(|s| !s.contains(&0) && total > 0) else { return Ok(false) };
    let queries = batch * heads * len;
    let mut qk = scratch(cx.pool, queries * total, "scores of attention")?;
    let mut weights = scratch(cx.pool, queries * total, "weights of attention")?;
    let mut y = scratch(cx.pool, queries * size, "results of attention")?;
    let points = Checkpoints::here();
    let (all_qk, all_weights) = (Parts::new(floats_mut(&mut qk)), Parts::new(floats_mut(&mut weights)));
    threads::chunks(floats_mut(&mut y), size, 1, |r, y| {
        points.pass();
        let span = (r * total, (r + 1) * total);
        // SAFETY: each row belongs to one query.
        let (qk, w) = unsafe { (all_qk.part(span.0, span.1), all_weights.part(span.0, span.1)) };
        job.query([r / (heads * len), r / len % heads, r % len], qk, w, y);
    });
    let outputs = cx.node.outputs.len();
    let flat = shape.len() == 3;
    let mut done = cx.write_floats(0, &shape, |out| {
        for (r, row) in floats(&y).chunks_exact(size).enumerate() {
            let (b, h, i) = (r / (heads * len), r / len % heads, r % len);
            let to = if flat { (b * len + i) * heads + h } else { r };
            out[to * size..(to + 1) * size].copy_from_slice(row);
        }
        Ok(())
    })?;
    for i in 1..outputs {
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
