//! Products of integers: of 8 bits as words of 16, whose products are exact in 32, and of 32 bits. Sums wrap in 32 bits.

use super::NodeCx;
use super::operand::{Operand, operand};
use super::words::{self, Narrow, Size, Strided, Target};
use crate::threads::{self, Parts};
use crate::value::Out;
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
        let shape = cx.out_shape(0).filter(|_| cx.out_dtype(0) == Some(DType::I32))?;
        let batch = shape[..(shape.len() + vectors).saturating_sub(2).min(shape.len())].to_vec();
        Some(Batches { left, right, shape, batch })
    }

    /// Calls `f` with each matrix of c, and the places of the first elements of those of a and b.
    fn each(
        &self,
        c: &mut [i32],
        mut f: impl FnMut(usize, usize, &mut [i32]) -> Result<(), BackendError>,
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
    let single = r.batch.iter().product::<usize>() == 1 && a.shape().len() > 1 && l.col == 1;
    let tail = if single && b.dtype().bits() == 8 { cx.take_tail(DType::I32) } else { None };
    let mut out = Out::new(cx.pool, tail.map_or(DType::I32, |t| t.result()), &all.shape, &cx.node.name)?;
    if let (Some(x), Some(y)) = (Narrow::of(a.dtype(), a.bytes()), Narrow::of(b.dtype(), b.bytes())) {
        let (left, right) = (
            |x| Strided { data: x, row: l.row, col: l.col },
            |y| Strided { data: y, row: r.row, col: r.col },
        );
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
    } else {
        let wide = |v: &crate::value::Val| v.dtype() == DType::I32;
        let (Some(x), Some(y)) = (a.view::<i32>().filter(|_| wide(&a)), b.view::<i32>().filter(|_| wide(&b)))
        else {
            return Ok(false);
        };
        all.each(out.elems_mut(), |i, j, c| {
            wide_product(s, (&x[i..], l), (&y[j..], r), c);
            Ok(())
        })?;
    }
    cx.push(out.done());
    Ok(true)
}

/// c = a by b, of numbers of 32 bits.
fn wide_product(s: Size, (x, l): (&[i32], &Operand), (y, r): (&[i32], &Operand), c: &mut [i32]) {
    let points = Checkpoints::here();
    let parts = Parts::new(c);
    threads::ranges(s.m, TASK.div_ceil((s.n * s.k).max(1)), |rows| {
        for i in rows {
            points.pass();
            // SAFETY: each row belongs to one range.
            let c = unsafe { parts.part(i * s.n, (i + 1) * s.n) };
            c.fill(0);
            for k in 0..s.k {
                let f = x[i * l.row + k * l.col];
                let row = &y[k * r.row..];
                match r.col {
                    1 => c.iter_mut().zip(row).for_each(|(c, &y)| *c = c.wrapping_add(f.wrapping_mul(y))),
                    step => c.iter_mut().enumerate().for_each(|(j, c)| {
                        *c = c.wrapping_add(f.wrapping_mul(row[j * step]));
                    }),
                }
            }
        }
    });
}
