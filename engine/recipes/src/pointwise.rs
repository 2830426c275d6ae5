//! Pointwise operators: their expression, many elements at a time.

use crate::lanes::{LANES, Lanes, floats, store, store_integers};
use half::{bf16, f16};
use kiln_ir::dtype::Kind;
use kiln_ir::{DType, Op, Tensor, float};
use kiln_ops::util::broadcast_strides;
use rayon::prelude::*;

/// Elements that are worth a thread.
const SHARE: usize = 1 << 15;

/// An operand: its elements, and how far they are apart along the axes that are walked.
struct Operand<'a> {
    dtype: DType,
    bytes: &'a [u8],
    outer: Vec<usize>,
    inner: usize,
}

/// Result of a pointwise operator; none of others, and of those whose elements share bytes.
pub fn computed(op: &Op, inputs: &[Option<Tensor>]) -> Option<Tensor> {
    let make = op.def().expr?;
    let present: Vec<&Tensor> = inputs.iter().map_while(Option::as_ref).collect();
    if present.is_empty() || inputs.iter().skip(present.len()).any(Option::is_some) {
        return None;
    }
    let types: Vec<DType> = present.iter().map(|t| t.dtype()).collect();
    if types.contains(&DType::I4) {
        return None;
    }
    let expr = make(op.attrs(), &types).ok()?;
    let dtype = expr.result_type();
    let kind = *floats(&expr)?.get(usize::from(expr.result))?;
    if dtype == DType::I4 || kind != (dtype.kind() == Kind::Float) {
        return None;
    }
    // Shapes are those that inference finds, which refuses others.
    let facts: Vec<_> = inputs.iter().map(|t| t.as_ref().map(|t| kiln_ir::Fact::of(t.ty()))).collect();
    let shape = op.infer(&facts, "").ok()?.first().filter(|f| f.ty.dtype == dtype)?.ty.static_dims()?;
    let strides: Vec<_> = present.iter().map(|t| broadcast_strides(t.shape(), &shape)).collect();
    let (outer, inner, strides) = walked(&shape, &strides);
    let operands: Vec<Operand<'_>> = present
        .iter()
        .zip(strides)
        .map(|(t, mut s)| {
            let inner = s.pop().unwrap_or(0);
            Operand { dtype: t.dtype(), bytes: t.bytes(), outer: s, inner }
        })
        .collect();
    let width = (dtype.bits() / 8) as usize;
    let mut out = vec![0; shape.iter().product::<usize>() * width];
    let done = out.par_chunks_mut(SHARE * width).enumerate().try_for_each(|(k, out)| {
        let mut lanes = Lanes::new(&expr)?;
        for (j, out) in out.chunks_mut(LANES * width).enumerate() {
            let (start, n) = (k * SHARE + j * LANES, out.len() / width);
            for (i, operand) in operands.iter().enumerate() {
                lanes.load(i, |f, integers| operand.load(start, n, (&outer, inner), f, integers));
            }
            lanes.run(n);
            match (kind, lanes.result(n)) {
                (true, (floats, _)) => store(dtype, floats, out),
                (false, (_, integers)) => store_integers(dtype, integers, out),
            }
        }
        Some(())
    });
    done?;
    Tensor::from_bytes(dtype, &shape, out)
}

/// The axes that are walked: those that lie together in all operands are one. Outer ones, the innermost, and the strides of each operand
/// along all of them.
fn walked(shape: &[usize], strides: &[Vec<usize>]) -> (Vec<usize>, usize, Vec<Vec<usize>>) {
    let mut dims: Vec<usize> = Vec::new();
    let mut joined: Vec<Vec<usize>> = vec![Vec::new(); strides.len()];
    for (axis, &n) in shape.iter().enumerate().filter(|(_, n)| **n != 1) {
        let together = strides.iter().zip(&joined).all(|(s, j)| j.last() == Some(&(s[axis] * n)));
        match dims.last_mut().filter(|_| together) {
            Some(last) => {
                *last *= n;
                joined.iter_mut().for_each(|j| j.truncate(j.len().saturating_sub(1)));
            }
            None => dims.push(n),
        }
        joined.iter_mut().zip(strides).for_each(|(j, s)| j.push(s[axis]));
    }
    match dims.pop() {
        Some(inner) => (dims, inner, joined),
        None => (dims, 1, vec![vec![0]; strides.len()]),
    }
}

impl Operand<'_> {
    /// Widens the elements for `n` places of the result from `start` on.
    fn load(
        &self,
        start: usize,
        n: usize,
        (dims, inner): (&[usize], usize),
        floats: &mut [f64],
        integers: &mut [i64],
    ) {
        let mut done = 0;
        while done < n {
            let (mut row, at) = ((start + done) / inner, (start + done) % inner);
            let count = (n - done).min(inner - at);
            let mut from = at * self.inner;
            for (&d, s) in dims.iter().zip(&self.outer).rev() {
                from += row % d * s;
                row /= d;
            }
            let (f, i) = (&mut floats[done..done + count], &mut integers[done..done + count]);
            match self.dtype {
                DType::F32 => self.each(from, f, |c| f32::from_le_bytes(c).into()),
                DType::F16 => self.each(from, f, |c| f16::from_le_bytes(c).into()),
                DType::BF16 => self.each(from, f, |c| bf16::from_le_bytes(c).into()),
                DType::F8E4M3 => self.each(from, f, |[c]| float::f8e4m3_to_f64(c)),
                DType::I64 => self.each(from, i, i64::from_le_bytes),
                DType::I32 => self.each(from, i, |c| i32::from_le_bytes(c).into()),
                DType::I8 => self.each(from, i, |[c]| i64::from(c as i8)),
                DType::Bool => self.each(from, i, |[c]| i64::from(c != 0)),
                _ => self.each(from, i, |[c]| i64::from(c)),
            }
            done += count;
        }
    }

    /// Elements from `at` on.
    fn each<T: Copy, const N: usize>(&self, at: usize, out: &mut [T], f: impl Fn([u8; N]) -> T) {
        let Some(from) = self.bytes.as_chunks::<N>().0.get(at..) else { return };
        match self.inner {
            0 => {
                if let Some(x) = from.first() {
                    out.fill(f(*x));
                }
            }
            1 => out.iter_mut().zip(from).for_each(|(y, x)| *y = f(*x)),
            step => out.iter_mut().zip(from.iter().step_by(step)).for_each(|(y, x)| *y = f(*x)),
        }
    }
}
