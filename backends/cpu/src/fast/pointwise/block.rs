//! Blocks of elements of an expression, from where its inputs are.

use super::code::{Code, Short};
use super::lanes::{BLOCK, Lanes};
use super::walk::Walk;
use crate::value::Val;
use kiln_ir::DType;
use kiln_ir::expr::Expr;

/// An expression with its steps.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) expr: Expr,
    pub(super) code: Option<Code>,
    /// The expression as a sum or a bound of floats, if it is one.
    pub(super) short: Option<Short>,
}

impl Made {
    /// Takes an expression apart.
    pub(crate) fn new(expr: Expr) -> Made {
        let code = Code::of(&expr);
        let floats = expr.inputs.iter().chain([&expr.result_type()]).all(|&t| t == DType::F32);
        let short = code.as_ref().filter(|_| floats).and_then(Code::short);
        let short = short.filter(|s| expr.inputs.len() == 1 + usize::from(s.sum));
        Made { expr, code, short }
    }
}

/// Storage of an input's elements.
pub(super) enum Source<'a> {
    /// Memory of the output, or of the kernel before, element by element.
    Output,
    /// Elsewhere.
    Given(&'a Val, Walk),
    /// Elements that come again after so many, with a block of them behind.
    Again(&'a Val, usize),
}

/// Computes a block of elements, from one on. The kernel's result is read from other memory if that is given.
pub(super) fn block<'a>(
    expr: &Expr,
    sources: &[Source<'a>],
    lanes: &mut Lanes<'a>,
    (start, own): (usize, Option<&[u8]>),
    chunk: &mut [u8],
) {
    let size = (expr.result_type().bits() as usize / 8).max(1);
    let n = chunk.len() / size;
    for (i, s) in sources.iter().enumerate() {
        let ty = expr.inputs[i];
        match s {
            Source::Output => lanes.load(i, ty, own.unwrap_or(chunk), 0, 0, n),
            Source::Again(v, period) => {
                let (v, from): (&'a Val, usize) = (v, start % period);
                if !lanes.refer(i, ty, v.bytes(), from, n) {
                    lanes.load(i, ty, v.bytes(), 0, from, n);
                }
            }
            Source::Given(v, walk) => {
                let v: &'a Val = v;
                let again = walk.period().is_some_and(|p| p < BLOCK && lanes.holds(i, start % p, n));
                if again {
                    continue;
                }
                walk.segments(start, n, |at, from, len, step| match step {
                    0 => lanes.fill(i, ty, v.bytes(), at, from, len),
                    _ if len == n && lanes.refer(i, ty, v.bytes(), from, n) => {}
                    _ => lanes.load(i, ty, v.bytes(), at, from, len),
                });
            }
        }
    }
    lanes.eval(expr, n, chunk);
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::expr::{BinOp, Builder};

    #[test]
    fn sums_and_bounds_are_found() {
        let of = |ops: &[(BinOp, bool)], bound: f64, ty: DType| {
            let inputs = 1 + usize::from(ops.iter().any(|(_, other)| *other));
            let mut b = Builder::new(&vec![ty; inputs]);
            let mut made = b.input(0);
            for &(op, other) in ops {
                let y = if other { b.input(1) } else { b.constant(bound, ty) };
                made = b.bin(op, made, y);
            }
            Made::new(b.finish(made, ty)).short
        };
        let raised = |sum: bool, bound: f32| Some(Short { sum, bound });
        assert_eq!(of(&[(BinOp::Max, false)], 0.5, DType::F32), raised(false, 0.5));
        assert_eq!(of(&[(BinOp::Add, true)], 0.5, DType::F32), raised(true, f32::NEG_INFINITY));
        assert_eq!(of(&[(BinOp::Add, true), (BinOp::Max, false)], 0.5, DType::F32), raised(true, 0.5));
        assert_eq!(of(&[(BinOp::Min, false)], 0.5, DType::F32), None);
        assert_eq!(of(&[(BinOp::Add, true), (BinOp::Mul, false)], 0.5, DType::F32), None);
        assert_eq!(of(&[(BinOp::Max, false), (BinOp::Add, true)], 0.5, DType::F32), None);
        assert_eq!(of(&[(BinOp::Max, false)], 0.5, DType::F16), None);
    }
}
