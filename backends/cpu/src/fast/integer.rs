//! Products of integers: of 8 bits, and of 32 that fit 16, as words whose products are exact in 32 bits; of others element by element.

use super::NodeCx;
use super::operand::{Operand, operand};
use super::wide::{self, Wide};
use super::words::{self, Size, Stored, Strided, Target};
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_ir::DType;
use kiln_ops::util::{broadcast_strides, for_each_index, offset};

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

    /// Whether rows of all left matrices `a` are rows of one, which is multiplied by the only right matrix.
    fn single(&self, a: &Val) -> bool {
        self.right.batch.iter().product::<usize>() == 1 && a.shape().len() > 1 && self.left.col == 1
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
        return whole(cx, &all, (&a, &b));
    }
    let single = all.single(&a);
    // Weights of 32 bits are only read until they are packed.
    let packed = single && b.dtype() == DType::I32 && words::kept(cx.kept, 1);
    let right = if packed { Some(Stored::Words(Vec::new())) } else { Stored::of(&b) };
    let (Some(x), Some(y)) = (Stored::of(&a), right) else { return whole(cx, &all, (&a, &b)) };
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
fn whole(cx: &mut NodeCx<'_>, all: &Batches, (a, b): (&Val, &Val)) -> Result<bool, BackendError> {
    fn products<T: Wide>(all: &Batches, a: &Val, b: &Val, c: &mut [T]) -> Result<bool, BackendError> {
        let (Some(x), Some(y)) = (a.view::<T>(), b.view::<T>()) else { return Ok(false) };
        let (l, r) = (&all.left, &all.right);
        let s = Size { m: l.rows, n: r.cols, k: l.cols };
        if all.single(a) {
            let s = Size { m: c.len() / s.n.max(1), ..s };
            wide::product(s, (x, l), (y, r), c);
            return Ok(true);
        }
        all.each(c, |i, j, c| {
            wide::product(s, (&x[i..], l), (&y[j..], r), c);
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
