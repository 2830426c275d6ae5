//! Transposes byte by byte, in tiles.

use kiln_ir::infer::normalize_axis;
use kiln_ir::{DType, Op, Tensor};
use kiln_ops::transpose::TRANSPOSE;
use rayon::prelude::*;

/// Bytes of a result that are worth a thread.
const SHARE: usize = 1 << 17;
/// Rows and columns of a tile: its lines stay in the nearest cache.
const TILE: usize = 32;

/// An axis of a result: its length, and how far its places are apart in the source, in elements.
type Axis = (usize, usize);

/// Result of a `transpose`; none of other operators.
pub fn transposed(op: &Op, x: &Tensor) -> Option<Tensor> {
    let perm = order(op, x.shape().len())?;
    if x.dtype() == DType::I4 {
        // Elements that share bytes get one each on the way.
        let each = x.bytes().iter().flat_map(|b| [b & 15, b >> 4]).take(x.len());
        let turned = transposed(op, &Tensor::from_bytes(DType::U8, x.shape(), each.collect::<Vec<u8>>())?)?;
        let pairs = turned.bytes().chunks(2).map(|p| p[0] | p.get(1).map_or(0, |high| high << 4));
        return Tensor::from_bytes(DType::I4, turned.shape(), pairs.collect::<Vec<u8>>());
    }
    let shape: Vec<usize> = perm.iter().filter_map(|&p| x.shape().get(p).copied()).collect();
    let axes = joined(&perm, x.shape());
    if x.is_empty() || axes.iter().all(|a| a.1 == 1) {
        return x.reshaped(&shape);
    }
    let bytes = match x.dtype().bits() {
        8 => moved::<1>(x.bytes(), &axes),
        16 => moved::<2>(x.bytes(), &axes),
        32 => moved::<4>(x.bytes(), &axes),
        64 => moved::<8>(x.bytes(), &axes),
        _ => return None,
    };
    Tensor::from_bytes(x.dtype(), &shape, bytes)
}

/// Axis of the operand for each axis of the result.
fn order(op: &Op, rank: usize) -> Option<Vec<usize>> {
    let perm: Vec<usize> = match op.attrs().ints("perm").ok().filter(|_| op.is(TRANSPOSE))? {
        [] => (0..rank).rev().collect(),
        perm => perm.iter().map(|&p| normalize_axis(p, rank, "perm").ok()).collect::<Option<_>>()?,
    };
    (perm.len() == rank && (0..rank).all(|a| perm.contains(&a))).then_some(perm)
}

/// The axes of the result. Those of one place are left out, and those that lie together in both tensors are one.
fn joined(perm: &[usize], from: &[usize]) -> Vec<Axis> {
    let mut stride = 1;
    let mut strides = vec![0; from.len()];
    for (s, &n) in strides.iter_mut().zip(from).rev() {
        *s = stride;
        stride *= n;
    }
    let mut axes: Vec<Axis> = Vec::new();
    for (n, step) in perm.iter().map(|&p| (from[p], strides[p])).filter(|a| a.0 != 1) {
        match axes.last_mut().filter(|last| last.1 == n * step) {
            Some(last) => *last = (last.0 * n, step),
            None => axes.push((n, step)),
        }
    }
    axes
}

/// The bytes of the result, elements of `N` bytes. The axes are not empty.
fn moved<const N: usize>(from: &[u8], axes: &[Axis]) -> Vec<u8> {
    let (from, _) = from.as_chunks::<N>();
    let mut out = vec![[0; N]; from.len()];
    let Some((&(count, step), inner)) = axes.split_first() else { return Vec::new() };
    let each: usize = inner.iter().map(|a| a.0).product();
    let some = (SHARE / N / each.max(1)).clamp(1, count);
    out.par_chunks_mut(each * some).enumerate().for_each(|(k, out)| {
        let rows = out.len() / each.max(1);
        let part: Vec<Axis> = std::iter::once((rows, step)).chain(inner.iter().copied()).collect();
        piece(from, k * some * step, &part, out);
    });
    out.into_flattened()
}

/// Writes one piece of the result, whose elements are dense.
fn piece<const N: usize>(from: &[[u8; N]], start: usize, axes: &[Axis], out: &mut [[u8; N]]) {
    let Some((&last, front)) = axes.split_last() else { return };
    // The axis whose neighbours are neighbours in the source, walked in tiles together with the last one.
    let near = front.iter().position(|a| a.1 == 1);
    let steps: Vec<usize> = front
        .iter()
        .enumerate()
        .map(|(i, _)| front.iter().skip(i + 1).map(|a| a.0).product::<usize>() * last.0)
        .collect();
    let tiled = near.map(|i| (front[i], steps[i]));
    let outer: Vec<(Axis, usize)> = front
        .iter()
        .copied()
        .zip(steps)
        .enumerate()
        .filter(|(i, _)| Some(*i) != near)
        .map(|(_, a)| a)
        .collect();
    let mut index = vec![0; outer.len()];
    let (mut at, mut to) = (start, 0);
    loop {
        match tiled {
            Some(rows) => tiles(from, at, out, to, rows, last),
            None => line(from, at, last.1, out.get_mut(to..to + last.0).unwrap_or_default()),
        }
        let mut ended = true;
        for (i, &((n, step), write)) in index.iter_mut().zip(&outer).rev() {
            *i += 1;
            (at, to) = (at + step, to + write);
            if *i < n {
                ended = false;
                break;
            }
            (at, to, *i) = (at - n * step, to - n * write, 0);
        }
        if ended {
            return;
        }
    }
}

/// Copies elements that are `step` apart.
fn line<const N: usize>(from: &[[u8; N]], at: usize, step: usize, out: &mut [[u8; N]]) {
    let Some(from) = from.get(at..) else { return };
    match step {
        1 => out.iter_mut().zip(from).for_each(|(y, x)| *y = *x),
        step => out.iter_mut().zip(from.iter().step_by(step)).for_each(|(y, x)| *y = *x),
    }
}

/// Copies rows that are neighbours in the source, `write` apart in the result, by columns of the last axis.
fn tiles<const N: usize>(
    from: &[[u8; N]],
    at: usize,
    out: &mut [[u8; N]],
    to: usize,
    ((rows, _), write): (Axis, usize),
    (columns, step): Axis,
) {
    for r in (0..rows).step_by(TILE) {
        for c in (0..columns).step_by(TILE) {
            for row in r..rows.min(r + TILE) {
                let start = to + row * write + c;
                let end = start + TILE.min(columns - c);
                line(from, at + row + c * step, step, out.get_mut(start..end).unwrap_or_default());
            }
        }
    }
}
