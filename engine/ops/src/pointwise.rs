//! Rules that all pointwise operators share: numpy broadcasting, the result type of the expression, the
//! scalar oracle.

pub mod activation;
pub mod binary;
pub mod clip;
pub mod select;
pub mod swiglu;
pub mod unary;

use crate::util::{broadcast_strides, for_each_index, offset};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::expr::{Expr, Num};
use kiln_ir::infer::{Fact, InferCx, MAX_CONTENT, broadcast_all, differ};
use kiln_ir::op::Op;
use kiln_ir::op::OpName;
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor, volume};
use kiln_ir::ty::{TensorType, dims_text};

/// The rule of every pointwise operator: shapes broadcast, the expression sets the type.
pub fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let given = given(cx.len(), |i| cx.has(i));
    let types = (0..given).map(|i| cx.dtype(i)).collect::<Result<Vec<_>, _>>()?;
    let dims = broadcast_all((0..given).map(|i| cx.dims(i)).collect::<Result<Vec<_>, _>>()?)?;
    let expr = expr_of(cx.def.expr, cx.attrs, &types)?;
    Ok(vec![Fact::of(TensorType { dtype: expr.result_type(), dims })])
}

/// Number of inputs up to the last that is present.
fn given(len: usize, has: impl Fn(usize) -> bool) -> usize {
    (0..len).rev().find(|&i| has(i)).map_or(0, |i| i + 1)
}

/// As [`infer`], but the other inputs are stretched to the shape of the first, never the first to theirs.
pub fn infer_like_first(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let out = infer(cx)?;
    let (dims, x) = (&out[0].ty.dims, cx.dims(0)?);
    if dims.len() == x.len() && !dims.iter().zip(x).any(|(a, b)| differ(a, b)) {
        return Ok(vec![Fact::of(TensorType { dtype: out[0].ty.dtype, dims: x.to_vec() })]);
    }
    Err(OpError::Mismatch {
        a: dims_text(x),
        b: cx.dims(1).map(dims_text).unwrap_or_default(),
        wanted: "the second must broadcast to the first".into(),
    })
}

/// As [`infer`], and follows the contents of integer tensors through `f`.
pub fn infer_with(cx: &mut InferCx<'_>, f: impl Fn(&Dim, &Dim) -> Dim) -> Result<Vec<Fact>, OpError> {
    let mut out = infer(cx)?;
    if matches!(out[0].ty.dtype, DType::I32 | DType::I64)
        && let Some(v) = follow(cx, &out[0].ty, |a, b| Some(f(a, b)))
    {
        out[0] = Fact::contents(out[0].ty.clone(), v);
    }
    Ok(out)
}

/// As [`infer`], for a comparison: its result is known where that of all elements is certain, whatever the values of
/// their symbols.
pub fn infer_compare(
    cx: &mut InferCx<'_>,
    certain: impl Fn(&Dim, &Dim) -> Option<bool>,
) -> Result<Vec<Fact>, OpError> {
    let mut out = infer(cx)?;
    if let Some(v) = follow(cx, &out[0].ty, |a, b| Some(Dim::new(certain(a, b)?.into()))) {
        out[0] = Fact::contents(out[0].ty.clone(), v);
    }
    Ok(out)
}

/// `f` of the contents of two inputs, broadcast to `ty`; `None` if they are not known or too many, or `f` has none.
fn follow(cx: &InferCx<'_>, ty: &TensorType, f: impl Fn(&Dim, &Dim) -> Option<Dim>) -> Option<Vec<Dim>> {
    let (a, b) = (cx.contents(0)?, cx.contents(1)?);
    let shape = ty.static_dims()?;
    ty.static_volume().filter(|&n| n <= MAX_CONTENT)?;
    let stretch = |i: usize| Some(broadcast_strides(&cx.fact(i)?.ty.static_dims()?, &shape));
    let (ta, tb) = (stretch(0)?, stretch(1)?);
    let mut v = Vec::new();
    for_each_index(&shape, |at| v.push(f(&a[offset(at, &ta)], &b[offset(at, &tb)])));
    v.into_iter().collect()
}

type ExprFn = fn(&kiln_ir::Attrs, &[DType]) -> Result<Expr, OpError>;

fn expr_of(f: Option<ExprFn>, attrs: &kiln_ir::Attrs, types: &[DType]) -> Result<Expr, OpError> {
    f.ok_or_else(|| OpError::Unsupported("no scalar expression".into()))?(attrs, types)
}

/// The oracle of every pointwise operator: the expression, element by element. Holds no more than the result and some
/// elements in between, as the weights of whole networks are folded by it.
pub fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let shape = cx.out_shape(0)?;
    let mut out = Writer::new(cx.out_dtype(0)?, &shape)?;
    let mut scratch = Vec::new();
    for_each_element(cx.op, cx.inputs, &shape, |expr, args| out.push(expr.eval(args, &mut scratch)))?;
    Ok(vec![out.finish(&shape)?])
}

/// Calls `f` with the expression of a pointwise operator and one element of each input. It does so for all
/// elements of a result of this shape, in row-major order.
pub fn for_each_element(
    op: &Op,
    inputs: &[Option<Tensor>],
    shape: &[usize],
    mut f: impl FnMut(&Expr, &[Num]),
) -> Result<(), OpError> {
    let present = given(inputs.len(), |i| inputs[i].is_some());
    let missing =
        |i: usize| OpError::MissingInput { input: i, name: op.port(i).map_or("", |p| p.name).into() };
    let ins = (0..present).map(|i| inputs[i].as_ref().ok_or_else(|| missing(i)));
    let ins = ins.collect::<Result<Vec<_>, _>>()?;
    let types: Vec<_> = ins.iter().map(|t| t.dtype()).collect();
    let expr = expr_of(op.def().expr, op.attrs(), &types)?;
    let strides: Vec<_> = ins.iter().map(|t| broadcast_strides(t.shape(), shape)).collect();
    let (outer, inner, strides) = collapse(shape, &strides);
    let columns: Vec<_> = ins.iter().map(|t| Column::of(t)).collect();
    let mut args = vec![Num::I(0); ins.len()];
    for_each_index(&outer, |at| {
        for i in 0..inner {
            for ((arg, c), s) in args.iter_mut().zip(&columns).zip(&strides) {
                *arg = c.at(offset(at, &s[..outer.len()]) + i * s[outer.len()]);
            }
            f(&expr, &args);
        }
    });
    Ok(())
}

/// The shape with axes joined that lie together in all operands: outer dimensions, the innermost one, and the strides of
/// every operand along them.
fn collapse(shape: &[usize], strides: &[Vec<usize>]) -> (Vec<usize>, usize, Vec<Vec<usize>>) {
    let mut dims: Vec<usize> = Vec::new();
    let mut joined: Vec<Vec<usize>> = vec![Vec::new(); strides.len()];
    for (axis, &n) in shape.iter().enumerate().filter(|(_, n)| **n != 1) {
        let mut pairs = strides.iter().zip(&joined);
        let together = pairs.all(|(s, j)| j.last() == Some(&(s[axis] * n)));
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

/// The elements of an operand, f32 where they lie.
enum Column<'a> {
    F32(&'a [[u8; 4]]),
    Wide(Elems),
}

impl Column<'_> {
    fn of(t: &Tensor) -> Column<'_> {
        match t.dtype() {
            DType::F32 => Column::F32(t.bytes().as_chunks().0),
            _ => Column::Wide(t.elems()),
        }
    }

    #[inline]
    fn at(&self, i: usize) -> Num {
        match self {
            Column::F32(v) => Num::F(f32::from_le_bytes(v[i]).into()),
            Column::Wide(Elems::F(v)) => Num::F(v[i]),
            Column::Wide(Elems::I(v)) => Num::I(v[i]),
        }
    }
}

/// Writes elements in order, so many at a time as bytes: an even number, so that halves of bytes fit.
struct Writer {
    dtype: DType,
    some: Elems,
    bytes: Vec<u8>,
}

const SOME: usize = 1 << 12;

impl Writer {
    fn new(dtype: DType, shape: &[usize]) -> Result<Writer, OpError> {
        let bytes =
            volume(shape).and_then(|n| dtype.bytes_for(n as u64)).and_then(|n| usize::try_from(n).ok());
        let mut out = Vec::new();
        let room = bytes.is_some_and(|n| out.try_reserve_exact(n).is_ok());
        let some = if dtype.is_float() { Elems::F(Vec::new()) } else { Elems::I(Vec::new()) };
        match room {
            true => Ok(Writer { dtype, some, bytes: out }),
            false => Err(OpError::TooLarge(format!("{dtype}{shape:?}"))),
        }
    }

    fn push(&mut self, x: Num) {
        let full = match (&mut self.some, x) {
            (Elems::F(v), x) => {
                v.push(if let Num::F(x) = x { x } else { f64::NAN });
                v.len() == SOME
            }
            (Elems::I(v), x) => {
                v.push(if let Num::I(x) = x { x } else { 0 });
                v.len() == SOME
            }
        };
        if full {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let n = match &self.some {
            Elems::F(v) => v.len(),
            Elems::I(v) => v.len(),
        };
        if let Some(t) = Tensor::from_elems(self.dtype, &[n], &self.some) {
            self.bytes.extend_from_slice(t.bytes());
        }
        match &mut self.some {
            Elems::F(v) => v.clear(),
            Elems::I(v) => v.clear(),
        }
    }

    fn finish(mut self, shape: &[usize]) -> Result<Tensor, OpError> {
        self.flush();
        let wrong = || OpError::Value(format!("wrong number of elements for {}{shape:?}", self.dtype));
        Tensor::from_bytes(self.dtype, shape, std::mem::take(&mut self.bytes)).ok_or_else(wrong)
    }
}

/// Problems for an operator of `arity` inputs of one type: odd sizes, scalar, empty, broadcast, special floats.
pub fn problems(name: OpName, arity: usize, types: &[DType], rng: &mut Rng) -> Vec<Problem> {
    problems_of(&kiln_ir::problem::op(name, kiln_ir::Attrs::new()), arity, types, rng)
}

/// As [`problems`], for an operator with its attributes.
pub fn problems_of(op: &Op, arity: usize, types: &[DType], rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for &t in types {
        let shapes: &[(&str, &[usize], &[usize])] = &[
            ("odd sizes", &[3, 7, 5], &[3, 7, 5]),
            ("scalar", &[], &[]),
            ("empty", &[0, 3], &[0, 3]),
            ("broadcast", &[4, 1, 5], &[3, 1]),
            ("one", &[1], &[1, 1]),
        ];
        for (label, a, b) in shapes {
            let ins = (0..arity).map(|i| rng.tensor(t, if i == 0 { a } else { b })).collect::<Vec<_>>();
            out.push(Problem::new(&format!("{label} {t}"), op.clone(), ins));
        }
        if t.is_float() {
            let ins = (0..arity).map(|_| rng.edge_floats(t, 19)).collect::<Vec<_>>();
            out.push(Problem::new(&format!("special values {t}"), op.clone(), ins));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_lie_together_are_one() {
        // A convolution's weights [8, 4, 3, 3] by one factor for each output channel.
        let shape = [8, 4, 3, 3];
        let strides = [broadcast_strides(&shape, &shape), broadcast_strides(&[8, 1, 1, 1], &shape)];
        assert_eq!(collapse(&shape, &strides), (vec![8], 36, vec![vec![36, 1], vec![1, 0]]));
        assert_eq!(collapse(&[], &[vec![]]), (vec![], 1, vec![vec![0]]));
        assert_eq!(collapse(&[1, 1], &[vec![0, 0]]), (vec![], 1, vec![vec![0]]));
        assert_eq!(collapse(&[2, 0, 3], &[vec![0, 3, 1]]), (vec![], 0, vec![vec![1]]));
    }

    #[test]
    fn results_of_many_elements_are_whole() {
        let n = SOME * 2 + 3;
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let x = Tensor::f32(&[n], &x).unwrap();
        let op = Op::new("neg", kiln_ir::Attrs::new()).unwrap();
        let y = op.eval(&[Some(x)]).unwrap()[0].to_f64();
        assert_eq!(y.len(), n);
        assert!(y.iter().enumerate().all(|(i, &y)| y == -(i as f64)));
    }
}
