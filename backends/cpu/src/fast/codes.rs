//! `matmul_codes`: products by weights that stay codes of 4 or 8 bits in memory.
//!
//! For few rows each output's codes are widened block by block and multiplied at once, so that memory is read once and narrow. For
//! many rows the product of floats packs its panels from codes.

use super::gemm::{Bias, How, Size, Strided, gemm_into};
use super::sides::Right;
use super::simd::vectorized;
use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads;
use crate::value::Val;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::matmul::codes::{MATMUL_CODES, shared};
use std::ops::Range;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(MATMUL_CODES, run, covers)];

/// Rows up to which outputs are made one at a time.
const FEW: usize = 8;
/// Elements that are widened at once.
const WIDE: usize = 256;
/// Products of a task.
const TASK: usize = 128 << 10;

fn covers(t: &Types<'_>) -> bool {
    t.input(1).is_some_and(|t| matches!(t.dtype, DType::I4 | DType::I8 | DType::U8))
}

/// Codes with what they stand for.
struct Weights<'a> {
    codes: &'a [u8],
    dtype: DType,
    depth: usize,
    scale: &'a [f32],
    /// Zero points as numbers, empty where they are 0.
    zero: Vec<i32>,
    /// Scales of an output.
    wide: usize,
    along: usize,
    across: usize,
}

impl Weights<'_> {
    /// Scale and zero point of output `j` at element `k` of the depth.
    fn part(&self, j: usize, k: usize) -> (f32, i32) {
        let at = j / self.across * self.wide + k / self.along;
        (self.scale[at], self.zero.get(at).copied().unwrap_or(0))
    }

    /// Stretches of the depth that share a scale, each of at most [`WIDE`] elements.
    fn stretches(&self, depth: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (along, end) = (self.along, depth.end);
        let mut from = depth.start;
        std::iter::from_fn(move || {
            let to = end.min((from / along + 1).saturating_mul(along)).min(from + WIDE);
            let now = from..to;
            from = to;
            (!now.is_empty()).then_some(now)
        })
    }

    /// The codes of output `j` at some of its elements, less a zero point, as floats.
    fn widened(&self, j: usize, k: &Range<usize>, zero: i32, to: &mut [f32]) {
        let at = j * self.depth + k.start;
        match self.dtype {
            DType::I4 => {
                // The first of an odd place is the upper half of a byte.
                let odd = at % 2;
                let (head, to) = to.split_at_mut(odd.min(to.len()));
                if let Some(first) = head.first_mut() {
                    *first = (i32::from(self.codes[at / 2] as i8 >> 4) - zero) as f32;
                }
                halves(&self.codes[(at + odd) / 2..], zero, to);
            }
            DType::U8 => unsigned(&self.codes[at..], zero, to),
            _ => signed(&self.codes[at..], zero, to),
        }
    }
}

vectorized! {
    fn halves(from: &[u8], zero: i32, to: &mut [f32]) {
        let mut pairs = to.chunks_exact_mut(2);
        let mut at = 0;
        for (pair, &b) in pairs.by_ref().zip(from) {
            pair[0] = (i32::from((b << 4) as i8 >> 4) - zero) as f32;
            pair[1] = (i32::from(b as i8 >> 4) - zero) as f32;
            at += 1;
        }
        if let ([last], Some(&b)) = (pairs.into_remainder(), from.get(at)) {
            *last = (i32::from((b << 4) as i8 >> 4) - zero) as f32;
        }
    }
}

vectorized! {
    fn unsigned(from: &[u8], zero: i32, to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(y, &b)| *y = (i32::from(b) - zero) as f32);
    }
}

vectorized! {
    fn signed(from: &[u8], zero: i32, to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(y, &b)| *y = (i32::from(b as i8) - zero) as f32);
    }
}

vectorized! {
    /// The sum of products, in sixteen sums that the compiler keeps in vectors.
    fn dot(x: &[f32], y: &[f32]) -> f32 {
        let mut sums = [0f32; 16];
        let (xs, ys) = (x.chunks_exact(16), y.chunks_exact(16));
        let rest: f32 = xs.remainder().iter().zip(ys.remainder()).map(|(x, y)| x * y).sum();
        for (x, y) in xs.zip(ys) {
            for (s, (x, y)) in sums.iter_mut().zip(x.iter().zip(y)) {
                *s = if FMA { x.mul_add(*y, *s) } else { *s + x * y };
            }
        }
        rest + sums.iter().sum::<f32>()
    }
}

impl Right for Weights<'_> {
    fn pack(&self, k: Range<usize>, cols: Range<usize>, nr: usize, out: &mut [f32]) {
        if cols.len() < nr {
            out.fill(0.0);
        }
        let mut room = [0f32; WIDE];
        for (i, j) in cols.enumerate() {
            for now in self.stretches(k.clone()) {
                let (scale, zero) = self.part(j, now.start);
                let room = &mut room[..now.len()];
                self.widened(j, &now, zero, room);
                let lines = out[(now.start - k.start) * nr..].chunks_mut(nr);
                lines.zip(room).for_each(|(line, x)| line[i] = *x * scale);
            }
        }
    }
}

fn zeros(zero: Option<&Val>) -> Result<Vec<i32>, BackendError> {
    let Some(zero) = zero else { return Ok(Vec::new()) };
    Ok(zero.tensor()?.to_i64().into_iter().map(|z| z as i32).collect())
}

fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(a), Some(scale), Some(out)) = (cx.floats(0), cx.floats(2), cx.out_shape(0)) else {
        return Ok(false);
    };
    let Some(codes) = cx.args[1].clone() else { return Ok(false) };
    let (&[n, depth], Ok([along, across])) = (codes.shape(), shared(cx.node.op.attrs())) else {
        return Ok(false);
    };
    let weights = Weights {
        codes: codes.bytes(),
        dtype: codes.dtype(),
        depth,
        scale: &scale,
        zero: zeros(cx.args.get(3).and_then(Option::as_ref))?,
        wide: cx.shape(2).get(1).copied().unwrap_or(0),
        along: usize::try_from(along).unwrap_or(usize::MAX),
        across: usize::try_from(across).unwrap_or(usize::MAX),
    };
    let (pool, kept_depth) = (cx.pool.clone(), cx.depth);
    cx.write_floats(0, &out, |c| {
        let rows = c.len().checked_div(n).unwrap_or(0);
        if rows > FEW {
            let s = Size { m: rows, n, k: depth };
            let left = Strided { data: &a, row: depth, col: 1 };
            return gemm_into(
                s,
                (&left, &weights, Bias::None),
                c,
                (n, 0),
                How { depth: kept_depth, pool: &pool, kept: None, tail: None },
            );
        }
        few(&weights, &a, n, rows, c);
        Ok(())
    })
}

/// Few rows: tasks make some outputs for all of them.
fn few(w: &Weights<'_>, a: &[f32], n: usize, rows: usize, c: &mut [f32]) {
    // Outputs by rows, so that tasks write what lies together.
    let mut turned = vec![0f32; n * rows];
    let points = Checkpoints::here();
    let outputs = (TASK / (w.depth * rows).max(1)).clamp(1, n.max(1));
    threads::chunks(&mut turned, outputs * rows.max(1), 1, |task, y| {
        points.pass();
        let mut room = [0f32; WIDE];
        for (i, y) in y.chunks_exact_mut(rows.max(1)).enumerate() {
            let j = task * outputs + i;
            for now in w.stretches(0..w.depth) {
                let (scale, zero) = w.part(j, now.start);
                let room = &mut room[..now.len()];
                w.widened(j, &now, zero, room);
                for (r, y) in y.iter_mut().enumerate() {
                    *y += scale * dot(&a[r * w.depth + now.start..r * w.depth + now.end], room);
                }
            }
        }
    });
    for (j, y) in turned.chunks_exact(rows.max(1)).enumerate() {
        for (r, y) in y.iter().enumerate() {
            c[r * n + j] = *y;
        }
    }
}
