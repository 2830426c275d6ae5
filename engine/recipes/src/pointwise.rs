//! Pointwise operators: their expression, many elements at a time.

use crate::lanes::{LANES, Lanes, floats};
use half::{bf16, f16};
use kiln_ir::dtype::Kind;
use kiln_ir::expr::{Expr, Inst, Reg, Scalar};
use kiln_ir::{DType, Dim, Fact, Op, Tensor, TensorType, float};
use kiln_ops::util::broadcast_strides;
use rayon::prelude::*;

/// Elements that are worth a thread.
const SHARE: usize = 1 << 15;

/// Elements that are not yet computed: an expression of tensors, which broadcast to a shape.
pub struct Pending {
    expr: Expr,
    inputs: Vec<Tensor>,
    shape: Vec<usize>,
}

/// A constant, or one that is not yet computed.
pub enum Value {
    Ready(Tensor),
    Pending(Pending),
}

/// An operand: its elements, and how far they are apart along the axes that are walked.
struct Operand<'a> {
    dtype: DType,
    bytes: &'a [u8],
    outer: Vec<usize>,
    inner: usize,
}

/// Result of a pointwise operator; none of others, and of those whose elements share bytes.
pub fn computed(op: &Op, inputs: &[Option<Tensor>]) -> Option<Tensor> {
    let inputs = inputs.iter().map(|t| t.clone().map(Value::Ready)).collect();
    pending(op, inputs).ok()?.computed()
}

/// The expression of a pointwise operator, with those of inputs that are not yet computed in it. Where there is none, the inputs.
pub fn pending(op: &Op, inputs: Vec<Option<Value>>) -> Result<Pending, Vec<Option<Value>>> {
    match outline(op, &inputs) {
        Some((expr, shape)) => Ok(join(expr, shape, inputs)),
        None => Err(inputs),
    }
}

/// The expression of the operator alone and the shape of its result, where all inputs fit.
fn outline(op: &Op, inputs: &[Option<Value>]) -> Option<(Expr, Vec<usize>)> {
    let make = op.def().expr?;
    let present: Vec<&Value> = inputs.iter().map_while(Option::as_ref).collect();
    if present.is_empty() || inputs.iter().skip(present.len()).any(Option::is_some) {
        return None;
    }
    let types: Vec<DType> = present.iter().map(|v| v.ty().dtype).collect();
    if types.contains(&DType::I4) {
        return None;
    }
    let expr = make(op.attrs(), &types).ok()?;
    let dtype = expr.result_type();
    let float = *floats(&expr)?.get(usize::from(expr.result))?;
    if dtype == DType::I4 || float != (dtype.kind() == Kind::Float) {
        return None;
    }
    // Shapes are those that inference finds, which refuses others.
    let facts: Vec<_> = inputs.iter().map(|v| v.as_ref().map(|v| Fact::of(v.ty()))).collect();
    let shape = op.infer(&facts, "").ok()?.first().filter(|f| f.ty.dtype == dtype)?.ty.static_dims()?;
    // Elements that are stretched would be computed again and again.
    let whole = |v: &&Value| matches!(v, Value::Pending(p) if p.shape != shape);
    (!present.iter().any(whole) && expr.inputs.len() == present.len()).then_some((expr, shape))
}

/// One expression of the operator's and of those of its inputs.
fn join(own: Expr, shape: Vec<usize>, inputs: Vec<Option<Value>>) -> Pending {
    let (mut types, mut insts, mut tensors) = (Vec::new(), Vec::new(), Vec::new());
    // Registers of the inputs' results, and positions of inputs that are tensors.
    let mut results: Vec<Result<Reg, u16>> = Vec::new();
    for value in inputs.into_iter().flatten() {
        match value {
            Value::Ready(t) => {
                results.push(Err(tensors.len() as u16));
                types.push(t.dtype());
                tensors.push(t);
            }
            Value::Pending(p) => {
                let (first, input) = (insts.len() as Reg, tensors.len() as u16);
                insts.extend(p.expr.insts.iter().map(|i| moved(*i, first, |n| Scalar::Input(n + input))));
                results.push(Ok(first + p.expr.result));
                types.extend(p.expr.inputs);
                tensors.extend(p.inputs);
            }
        }
    }
    let first = insts.len() as Reg;
    for inst in &own.insts {
        insts.push(moved(*inst, first, |n| match results.get(usize::from(n)) {
            // The element as it would be stored, which the type of the inner result says.
            Some(Ok(register)) => Scalar::Select(*register, *register, *register),
            Some(Err(tensor)) => Scalar::Input(*tensor),
            None => Scalar::Input(n),
        }));
    }
    Pending { expr: Expr { inputs: types, insts, result: first + own.result }, inputs: tensors, shape }
}

/// An instruction whose registers are counted from another one on.
fn moved(inst: Inst, first: Reg, input: impl Fn(u16) -> Scalar) -> Inst {
    let op = match inst.op {
        Scalar::Input(n) => input(n),
        Scalar::Un(op, a) => Scalar::Un(op, a + first),
        Scalar::Bin(op, a, b) => Scalar::Bin(op, a + first, b + first),
        Scalar::Cmp(op, a, b) => Scalar::Cmp(op, a + first, b + first),
        Scalar::Select(c, a, b) => Scalar::Select(c + first, a + first, b + first),
        Scalar::Cast(a) => Scalar::Cast(a + first),
        constant => constant,
    };
    Inst { op, ty: inst.ty }
}

impl Value {
    pub fn ty(&self) -> TensorType {
        match self {
            Value::Ready(t) => t.ty(),
            Value::Pending(p) => {
                TensorType::new(p.expr.result_type(), p.shape.iter().map(|&d| Dim::new(d as i64)))
            }
        }
    }
}

impl Pending {
    /// Computes the elements.
    pub fn computed(&self) -> Option<Tensor> {
        let Pending { expr, inputs, shape } = self;
        let dtype = expr.result_type();
        let strides: Vec<_> = inputs.iter().map(|t| broadcast_strides(t.shape(), shape)).collect();
        let (outer, inner, strides) = walked(shape, &strides);
        let operands: Vec<Operand<'_>> = inputs
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
            let mut lanes = Lanes::new(expr)?;
            for (j, out) in out.chunks_mut(LANES * width).enumerate() {
                let (start, n) = (k * SHARE + j * LANES, out.len() / width);
                for (i, operand) in operands.iter().enumerate() {
                    lanes.load(i, |f, integers| operand.load(start, n, (&outer, inner), f, integers));
                }
                lanes.run(n);
                lanes.store(n, out);
            }
            Some(())
        });
        done?;
        Tensor::from_bytes(dtype, shape, out)
    }
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
