//! Blocks of elements of an expression, from where its inputs are.

use super::code::Code;
use super::lanes::{BLOCK, Lanes};
use super::walk::Walk;
use crate::value::Val;
use kiln_ir::expr::Expr;

/// An expression with its steps.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) expr: Expr,
    pub(super) code: Option<Code>,
}

impl Made {
    /// Takes an expression apart.
    pub(crate) fn new(expr: Expr) -> Made {
        let code = Code::of(&expr);
        Made { expr, code }
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
