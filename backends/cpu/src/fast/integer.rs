//! `matmul` of integers: numbers of 8 bits as words of 16, whose products are exact in 32, and numbers of 32 bits. Sums
//! wrap in 32 bits.

use super::NodeCx;
use super::operand::{Operand, operand};
use crate::threads;
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::util::{broadcast_strides, for_each_index, offset};

/// Rows by which a column is read once.
const ROWS: usize = 8;

/// Integer type of a product's operands.
trait Word: Copy + Send + Sync {
    /// The word of an element; `None` if it does not fit.
    fn read(v: &Val) -> Option<Box<dyn Fn(usize) -> Self + Sync + '_>>;
    fn dot(a: &[Self], b: &[Self]) -> i32;
}

impl Word for i16 {
    fn read(v: &Val) -> Option<Box<dyn Fn(usize) -> i16 + Sync + '_>> {
        let bytes = v.bytes();
        match v.dtype() {
            DType::I8 => Some(Box::new(move |i| (bytes[i] as i8).into())),
            DType::U8 => Some(Box::new(move |i| bytes[i].into())),
            _ => None,
        }
    }

    fn dot(a: &[i16], b: &[i16]) -> i32 {
        a.iter().zip(b).fold(0, |s: i32, (&a, &b)| s.wrapping_add(i32::from(a) * i32::from(b)))
    }
}

impl Word for i32 {
    fn read(v: &Val) -> Option<Box<dyn Fn(usize) -> i32 + Sync + '_>> {
        let words = v.view::<i32>().filter(|_| v.dtype() == DType::I32)?;
        Some(Box::new(move |i| words[i]))
    }

    fn dot(a: &[i32], b: &[i32]) -> i32 {
        a.iter().zip(b).fold(0, |s: i32, (&a, &b)| s.wrapping_add(a.wrapping_mul(b)))
    }
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    Ok(product::<i16>(cx)? || product::<i32>(cx)?)
}

/// Vectors of `len` words each, one after the other; the words of one lie `step` apart, vectors begin `next` apart.
fn pack<T: Word>(read: &dyn Fn(usize) -> T, from: usize, [count, next, len, step]: [usize; 4]) -> Vec<T> {
    let mut out = Vec::with_capacity(count * len);
    (0..count).for_each(|v| out.extend((0..len).map(|p| read(from + v * next + p * step))));
    out
}

fn product<T: Word>(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (ta, tb) = (attrs.bool("trans_a").unwrap_or(false), attrs.bool("trans_b").unwrap_or(false));
    let (Some(Some(a)), Some(Some(b))) = (cx.args.first(), cx.args.get(1)) else { return Ok(false) };
    let (Some(read_a), Some(read_b)) = (T::read(a), T::read(b)) else { return Ok(false) };
    let operands = (operand(a.shape(), ta, true), operand(b.shape(), tb, false));
    let ((Some(l), Some(r)), Some(shape)) = (operands, cx.out_shape(0)) else { return Ok(false) };
    if cx.out_dtype(0) != Some(DType::I32) {
        return Ok(false);
    }
    let vectors = usize::from(a.shape().len() == 1) + usize::from(b.shape().len() == 1);
    let batch = &shape[..(shape.len() + vectors).saturating_sub(2).min(shape.len())];
    let (m, n, k) = (l.rows, r.cols, l.cols);
    let mut out = Out::new(cx.pool, DType::I32, &shape, &cx.node.name)?;
    let c = out.elems_mut::<i32>();
    if k == 0 {
        c.fill(0);
    } else if !c.is_empty() {
        let strides = [&l, &r].map(|o: &Operand| broadcast_strides(&o.batch, batch));
        let mut matrices = c.chunks_exact_mut(m * n);
        for_each_index(batch, |at| {
            let (from_a, from_b) = (offset(at, &strides[0]) * m * k, offset(at, &strides[1]) * k * n);
            let rows = pack(&*read_a, from_a, [m, l.row, k, l.col]);
            let columns = pack(&*read_b, from_b, [n, r.col, k, r.row]);
            if let Some(c) = matrices.next() {
                multiply(&rows, &columns, [n, k], c);
            }
        });
    }
    drop((read_a, read_b));
    cx.push(out.done());
    Ok(true)
}

/// c = rows by columns, each of `k` words; c has rows of `n`.
fn multiply<T: Word>(rows: &[T], columns: &[T], [n, k]: [usize; 2], c: &mut [i32]) {
    let points = Checkpoints::here();
    threads::chunks(c, ROWS * n, 1, |i, c| {
        let rows = &rows[i * ROWS * k..rows.len().min((i + 1) * ROWS * k)];
        points.pass();
        for (j, column) in columns.chunks_exact(k).enumerate() {
            for (c, row) in c.chunks_exact_mut(n).zip(rows.chunks_exact(k)) {
                c[j] = T::dot(row, column);
            }
        }
    });
}
