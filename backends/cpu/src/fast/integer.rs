//! Products of integers: of 8 bits, and of 32 that fit 16, as words whose products are exact in 32 bits; of others element by element.

use super::NodeCx;
use super::operand::{Operand, operand};
use super::reduce_folds::Whole;
use super::simd::vectorized;
use super::words::{self, Size, Stored, Strided, Target};
use crate::threads::{self, Parts};
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::util::{broadcast_strides, for_each_index, offset};

/// Products that a task makes at least.
const TASK: usize = 32 << 10;

/// A product of batches of matrices.
struct Batches {
    left: Operand,
    right: Operand,
    shape: Vec<usize>,
    batch: Vec<usize>,
}

impl Batches {
    fn of(cx: &NodeCx<'_>) -> Option<Batches> {
        let attrs = cx.node.op.attrs();
        let (ta, tb) = (attrs.bool("trans_a").unwrap_or(false), attrs.bool("trans_b").unwrap_or(false));
        let (left, right) = (operand(cx.shape(0), ta, true)?, operand(cx.shape(1), tb, false)?);
        let vectors = usize::from(cx.shape(0).len() == 1) + usize::from(cx.shape(1).len() == 1);
        let made = |d| matches!(d, DType::I32 | DType::I64);
        let shape = cx.out_shape(0).filter(|_| cx.out_dtype(0).is_some_and(made))?;
        let batch = shape[..(shape.len() + vectors).saturating_sub(2).min(shape.len())].to_vec();
        Some(Batches { left, right, shape, batch })
    }

    /// Calls `f` with each matrix of c, and the places of the first elements of those of a and b.
    fn each<T>(
        &self,
        c: &mut [T],
        mut f: impl FnMut(usize, usize, &mut [T]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let (m, n, k) = (self.left.rows, self.right.cols, self.left.cols);
        let strides = [&self.left, &self.right].map(|o| broadcast_strides(&o.batch, &self.batch));
        let mut matrices = c.chunks_exact_mut((m * n).max(1));
        let mut result = Ok(());
        for_each_index(&self.batch, |at| {
            if let (Some(c), Ok(())) = (matrices.next(), &result) {
                result = f(offset(at, &strides[0]) * m * k, offset(at, &strides[1]) * k * n, c);
            }
        });
        result
    }
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(Some(a)), Some(Some(b))) = (cx.args.first().cloned(), cx.args.get(1).cloned()) else {
        return Ok(false);
    };
    let Some(all) = Batches::of(cx) else { return Ok(false) };
    let (l, r) = (&all.left, &all.right);
    let s = Size { m: l.rows, n: r.cols, k: l.cols };
    if a.dtype() == DType::I64 {
        return wide(cx, &all, (&a, &b));
    }
    let single = r.batch.iter().product::<usize>() == 1 && a.shape().len() > 1 && l.col == 1;
    // Weights of 32 bits are only read until they are packed.
    let packed = single && b.dtype() == DType::I32 && words::kept(cx.kept, 1);
    let right = if packed { Some(Stored::Words(Vec::new())) } else { Stored::of(&b) };
    let (Some(x), Some(y)) = (Stored::of(&a), right) else { return wide(cx, &all, (&a, &b)) };
    let (x, y) = (x.narrow(), y.narrow());
    let tail = if single { cx.take_tail(DType::I32) } else { None };
    let mut out = Out::new(cx.pool, tail.map_or(DType::I32, |t| t.result()), &all.shape, &cx.node.name)?;
    let left = |x| Strided { data: x, row: l.row, col: l.col };
    let right = |y| Strided { data: y, row: r.row, col: r.col };
    if single {
        // One right matrix for all: the rows of the batch are rows of one product.
        let s = Size { m: all.shape.iter().product::<usize>() / s.n.max(1), ..s };
        let panels = words::panels(s, (&left(x), &right(y)), cx.kept.map(|k| (k, 0)))?;
        words::product(s, &left(x), &panels, None, &Target::of(&mut out, tail, s.n));
    } else {
        all.each(out.elems_mut(), |i, j, c| {
            let rows = left(x.from(i));
            let panels = words::panels(s, (&rows, &right(y.from(j))), None)?;
            words::product(s, &rows, &panels, None, &Target::dense(c, s.n));
            Ok(())
        })?;
    }
    cx.push(out.done());
    Ok(true)
}

/// Products of integers of 32 or 64 bits.
fn wide(cx: &mut NodeCx<'_>, all: &Batches, (a, b): (&Val, &Val)) -> Result<bool, BackendError> {
    fn products<T: Whole>(all: &Batches, a: &Val, b: &Val, c: &mut [T]) -> Result<bool, BackendError> {
        let (Some(x), Some(y)) = (a.view::<T>(), b.view::<T>()) else { return Ok(false) };
        let (l, r) = (&all.left, &all.right);
        let s = Size { m: l.rows, n: r.cols, k: l.cols };
        all.each(c, |i, j, c| {
            wide_product(s, (&x[i..], l), (&y[j..], r), c);
            Ok(())
        })?;
        Ok(true)
    }
    if a.dtype() != b.dtype() || cx.out_dtype(0) != Some(a.dtype()) {
        return Ok(false);
    }
    let mut out = Out::new(cx.pool, a.dtype(), &all.shape, &cx.node.name)?;
    let done = match a.dtype() {
        DType::I32 => products::<i32>(all, a, b, out.elems_mut())?,
        DType::I64 => products::<i64>(all, a, b, out.elems_mut())?,
        _ => false,
    };
    if done {
        cx.push(out.done());
    }
    Ok(done)
}

/// Columns of the result that are summed together.
const COLUMNS: usize = 256;

/// c = a by b, of integers that wrap.
fn wide_product<T: Whole>(s: Size, (x, l): (&[T], &Operand), (y, r): (&[T], &Operand), c: &mut [T]) {
    if s.k == 0 {
        return c.fill(T::ZERO);
    }
    let points = Checkpoints::here();
    let parts = Parts::new(c);
    threads::ranges(s.m, TASK.div_ceil((s.n * s.k).max(1)), |rows| {
        for i in rows {
            points.pass();
            // SAFETY: each row belongs to one range.
            let c = unsafe { parts.part(i * s.n, (i + 1) * s.n) };
            c.fill(T::ZERO);
            for (block, c) in c.chunks_mut(COLUMNS).enumerate() {
                let x = x[i * l.row..].iter().step_by(l.col.max(1)).take(s.k);
                for (k, f) in x.enumerate() {
                    let row = &y[k * r.row + block * COLUMNS * r.col..];
                    add_products(*f, row, r.col, c);
                }
            }
        }
    });
}

vectorized! {
    /// Adds the products of a factor by elements, `step` apart.
    fn add_products<T: Whole>(f: T, y: &[T], step: usize, c: &mut [T]) {
        match step {
            1 => {
                for (c, &y) in c.iter_mut().zip(y) {
                    *c = c.plus(f.times(y));
                }
            }
            _ => {
                for (j, c) in c.iter_mut().enumerate() {
                    *c = c.plus(f.times(y[j * step]));
                }
            }
        }
    }
}
