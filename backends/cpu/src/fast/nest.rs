//! Sums of products of integers under any strides: `einsum` and `matmul` of types that no packed product has. Integers wrap.

use super::element::{Element, has, with_element};
use super::operand::operand;
use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads;
use crate::value::Out;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::matmul::MATMUL;
use kiln_ops::matmul::einsum::{EINSUM, walk};
use kiln_ops::util::{broadcast_strides, strides};

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(EINSUM, einsum, covers), kernel(MATMUL, matmul, covers)];

/// Products that one task sums up at least.
const TASK: usize = 1 << 13;

fn covers(t: &Types<'_>) -> bool {
    let integer = |t: DType| has(t) && !t.is_float();
    (0..t.node.inputs.len()).all(|i| t.input(i).is_some_and(|x| integer(x.dtype)))
}

/// The dimensions of a result and those that are summed, with the strides of every operand along both.
struct Nest {
    outer: Vec<usize>,
    inner: Vec<usize>,
    steps: Vec<(Vec<usize>, Vec<usize>)>,
}

impl Nest {
    /// Makes the node's result.
    fn run(&self, cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
        let Some(dtype) = cx.out_dtype(0) else { return Ok(false) };
        let operands: Option<Vec<Vec<i64>>> = (0..self.steps.len()).map(|i| cx.ints(i)).collect();
        let Some(operands) = operands else { return Ok(false) };
        let mut out = Out::new(cx.pool, dtype, &self.outer, &cx.node.name)?;
        with_element!(dtype, T => self.sums::<T>(&operands, out.elems_mut()), else return Ok(false));
        cx.push(out.done());
        Ok(true)
    }

    fn sums<T: Element>(&self, operands: &[Vec<i64>], y: &mut [T]) {
        let own = strides(&self.outer);
        let terms: usize = self.inner.iter().product();
        let points = Checkpoints::here();
        threads::chunks(y, 1, 1 + TASK / terms.max(1), |i, y| {
            points.pass();
            let base = |steps: &[usize]| -> usize {
                own.iter().zip(&self.outer).zip(steps).map(|((s, n), step)| i / s % n * step).sum()
            };
            let bases: Vec<usize> = self.steps.iter().map(|(outer, _)| base(outer)).collect();
            y[0] = T::from_i64(self.sum(operands, &bases, terms));
        });
    }

    /// The sum of one element: the last dimension in a loop of its own.
    fn sum(&self, operands: &[Vec<i64>], bases: &[usize], terms: usize) -> i64 {
        if terms == 0 {
            return 0;
        }
        let last = self.inner.last().copied().unwrap_or(1);
        let lead = &self.inner[..self.inner.len().saturating_sub(1)];
        let own = strides(lead);
        let mut sum = 0i64;
        for row in 0..terms / last {
            let at = |(base, (_, steps)): (&usize, &(Vec<usize>, Vec<usize>))| -> (usize, usize) {
                let along = own.iter().zip(lead).zip(steps).map(|((s, n), step)| row / s % n * step);
                (base + along.sum::<usize>(), steps.last().copied().unwrap_or(0))
            };
            let places: Vec<(usize, usize)> = bases.iter().zip(&self.steps).map(at).collect();
            for k in 0..last {
                let factors = operands.iter().zip(&places).map(|(x, (from, step))| x[from + k * step]);
                sum = sum.wrapping_add(factors.fold(1, i64::wrapping_mul));
            }
        }
        sum
    }
}

fn einsum(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Ok(equation), Some(outer)) = (cx.node.op.attrs().str("equation"), cx.out_shape(0)) else {
        return Ok(false);
    };
    let shapes: Vec<&[usize]> = (0..cx.args.len()).map(|i| cx.shape(i)).collect();
    let Ok(walk) = walk(equation, &shapes) else { return Ok(false) };
    let steps = walk.outer.into_iter().zip(walk.within).collect();
    Nest { outer, inner: walk.inner, steps }.run(cx)
}

fn matmul(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (ta, tb) = (attrs.bool("trans_a").unwrap_or(false), attrs.bool("trans_b").unwrap_or(false));
    let (sa, sb) = (cx.shape(0).to_vec(), cx.shape(1).to_vec());
    let (Some(l), Some(r), Some(outer)) = (operand(&sa, ta, true), operand(&sb, tb, false), cx.out_shape(0))
    else {
        return Ok(false);
    };
    // A vector has no dimension of its own in the result.
    let (rows, columns) = (sa.len() > 1, sb.len() > 1);
    let lead = outer.len().saturating_sub(usize::from(rows) + usize::from(columns));
    let scaled = |batch: &[usize], size: usize| -> Vec<usize> {
        broadcast_strides(batch, &outer[..lead]).into_iter().map(|s| s * size).collect()
    };
    let own = |present: bool, step: usize| present.then_some(step);
    let left = [own(rows, l.row), own(columns, 0)].into_iter().flatten();
    let right = [own(rows, 0), own(columns, r.col)].into_iter().flatten();
    let a = scaled(&l.batch, l.rows * l.cols).into_iter().chain(left).collect();
    let b = scaled(&r.batch, r.rows * r.cols).into_iter().chain(right).collect();
    Nest { outer, inner: vec![l.cols], steps: vec![(a, vec![l.col]), (b, vec![r.row])] }.run(cx)
}
