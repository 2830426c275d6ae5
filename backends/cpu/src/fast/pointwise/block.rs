//! Blocks of elements of an expression, from where its inputs are.

use super::code::Code;
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
    /// The bound, where all of the expression is that floats are raised to one.
    pub(super) floor: Option<f32>,
}

impl Made {
    /// Takes an expression apart.
    pub(crate) fn new(expr: Expr) -> Made {
        let code = Code::of(&expr);
        let floor = match expr.inputs[..] {
            [DType::F32] if expr.result_type() == DType::F32 => code.as_ref().and_then(Code::floor),
            _ => None,
        };
        Made { expr, code, floor }
    }
}

/// Storage of an input's elements.
pub(super) enum Source<'a> {
    /// Memory of the output, or of the kernel before, element by element.
    Output,
    /// Elsewhere.
    Given(&'a Val, Walk),
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
    use kiln_ir::expr::{BinOp, Inst, Scalar};

    #[test]
    fn a_single_bound_from_below_is_found() {
        let made = |op: BinOp, bound: f64, ty: DType| {
            let inst = |op: Scalar| Inst { op, ty };
            let insts = vec![inst(Scalar::Input(0)), inst(Scalar::Float(bound)), inst(Scalar::Bin(op, 0, 1))];
            Made::new(Expr { inputs: vec![ty], insts, result: 2 }).floor
        };
        assert_eq!(made(BinOp::Max, 0.5, DType::F32), Some(0.5));
        assert_eq!(made(BinOp::Min, 0.5, DType::F32), None);
        assert_eq!(made(BinOp::Max, 0.5, DType::F16), None);
    }
}
