//! Operators that only move elements: copies by strides, row gathers, and new shapes of the same memory.

use super::NodeCx;
use crate::value::Out;
use kiln_backend::BackendError;
use kiln_ir::infer::normalize_axis;
use kiln_ops::util::{broadcast_strides, strides};
use rayon::prelude::*;

/// Reshapes to the output's shape without a copy.
pub fn reshape(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Some(shape) = cx.out_shape(0) else { return Ok(false) };
    let Some(x) = cx.args.first_mut().and_then(Option::take) else { return Ok(false) };
    let kept = x.clone();
    match x.reshaped(&shape) {
        Some(y) => {
            drop(kept);
            cx.push(y);
            Ok(true)
        }
        None => {
            cx.args[0] = Some(kept);
            Ok(false)
        }
    }
}

/// Bytes of an element, if elements are whole bytes.
fn element(cx: &NodeCx<'_>) -> Option<usize> {
    let bits = cx.args.first()?.as_ref()?.dtype().bits() as usize;
    (bits >= 8).then_some(bits / 8)
}

/// Makes the output by reading the input at `base` plus index times `step`, in elements.
fn copy(cx: &mut NodeCx<'_>, base: usize, step: &[isize], shape: &[usize]) -> Result<bool, BackendError> {
    let Some(size) = element(cx) else { return Ok(false) };
    let Some(x) = cx.args.first().cloned().flatten() else { return Ok(false) };
    let mut out = Out::new(cx.pool, x.dtype(), shape, &cx.node.name)?;
    let (from, to) = (x.bytes(), out.bytes_mut());
    match size {
        1 => strided::<1>(from, to, base, step, shape),
        2 => strided::<2>(from, to, base, step, shape),
        4 => strided::<4>(from, to, base, step, shape),
        8 => strided::<8>(from, to, base, step, shape),
        _ => return Ok(false),
    }
    cx.push(out.done());
    Ok(true)
}

fn strided<const N: usize>(from: &[u8], to: &mut [u8], base: usize, step: &[isize], shape: &[usize]) {
    let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
    let (dims, steps) = merge(shape, step);
    let (Some((&n, outer)), Some((&s, outer_steps))) = (dims.split_last(), steps.split_last()) else {
        return;
    };
    let rows = to.par_chunks_mut(n.max(1)).enumerate().with_min_len(1 + 8192 / n.max(1));
    rows.for_each(|(mut row, to)| {
        let mut at = base as isize;
        for (&d, &s) in outer.iter().zip(outer_steps).rev() {
            at += (row % d) as isize * s;
            row /= d;
        }
        let start = at as usize;
        match s {
            1 => to.copy_from_slice(&from[start..start + to.len()]),
            0 => to.fill(from[start]),
            s => to.iter_mut().enumerate().for_each(|(i, y)| *y = from[(at + i as isize * s) as usize]),
        }
    });
}

/// Merges dimensions that are walked as one; at least one is left.
fn merge(shape: &[usize], step: &[isize]) -> (Vec<usize>, Vec<isize>) {
    let (mut dims, mut steps): (Vec<usize>, Vec<isize>) = (Vec::new(), Vec::new());
    for (&n, &s) in shape.iter().zip(step) {
        match (dims.last_mut(), steps.last_mut()) {
            _ if n == 1 => {}
            (Some(d), Some(last)) if *last == s * n as isize => (*d, *last) = (*d * n, s),
            _ => {
                dims.push(n);
                steps.push(s);
            }
        }
    }
    if dims.is_empty() {
        return (vec![1], vec![1]);
    }
    (dims, steps)
}

fn signed(strides: Vec<usize>) -> Vec<isize> {
    strides.into_iter().map(|s| s as isize).collect()
}

pub fn transpose(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let own = strides(cx.shape(0));
    let Ok(perm) = cx.node.op.attrs().ints("perm") else { return Ok(false) };
    let perm: Option<Vec<usize>> = match perm.is_empty() {
        true => Some((0..own.len()).rev().collect()),
        false => perm.iter().map(|&p| normalize_axis(p, own.len(), "perm").ok()).collect(),
    };
    let (Some(perm), Some(shape)) = (perm, cx.out_shape(0)) else { return Ok(false) };
    let step: Vec<usize> = perm.iter().map(|&p| own[p]).collect();
    copy(cx, 0, &signed(step), &shape)
}

pub fn expand(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Some(shape) = cx.out_shape(0) else { return Ok(false) };
    let step = signed(broadcast_strides(cx.shape(0), &shape));
    copy(cx, 0, &step, &shape)
}

pub fn slice(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let dims = cx.shape(0).to_vec();
    let (Some(starts), Some(shape)) = (cx.ints(1), cx.out_shape(0)) else { return Ok(false) };
    let axes = if cx.has(3) { cx.ints(3) } else { Some((0..starts.len() as i64).collect()) };
    let steps = if cx.has(4) { cx.ints(4) } else { Some(vec![1; starts.len()]) };
    let (Some(axes), Some(steps)) = (axes, steps) else { return Ok(false) };
    let mut step = signed(strides(&dims));
    let mut base = 0isize;
    for ((&start, &axis), &by) in starts.iter().zip(&axes).zip(&steps) {
        let Ok(axis) = normalize_axis(axis, dims.len(), "axes") else { return Ok(false) };
        let d = dims[axis] as i64;
        let start = if start < 0 { start.saturating_add(d) } else { start };
        let last = if by < 0 { d - 1 } else { d };
        base += start.clamp(0, last.max(0)) as isize * step[axis];
        step[axis] *= by as isize;
    }
    if shape.contains(&0) {
        return copy(cx, 0, &step, &shape);
    }
    copy(cx, base as usize, &step, &shape)
}

pub fn concat(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let rank = cx.shape(0).len();
    let axis = cx.node.op.attrs().int("axis").ok().and_then(|a| normalize_axis(a, rank, "axis").ok());
    let (Some(axis), Some(size), Some(shape)) = (axis, element(cx), cx.out_shape(0)) else {
        return Ok(false);
    };
    let Some(first) = cx.args.first().and_then(Option::as_ref) else { return Ok(false) };
    let mut out = Out::new(cx.pool, first.dtype(), &shape, &cx.node.name)?;
    let inner = |s: &[usize]| s.get(axis..).map_or(0, |s| s.iter().product::<usize>()) * size;
    let row = inner(&shape);
    let mut at = 0;
    for x in cx.args.iter().flatten() {
        let n = inner(x.shape());
        if n > 0 {
            let rows = out.bytes_mut().chunks_exact_mut(row).zip(x.bytes().chunks_exact(n));
            rows.for_each(|(to, from)| to[at..at + n].copy_from_slice(from));
        }
        at += n;
    }
    cx.push(out.done());
    Ok(true)
}

pub fn gather(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let shape = cx.shape(0).to_vec();
    let axis = attrs.int("axis").ok().and_then(|a| normalize_axis(a, shape.len(), "axis").ok());
    let plain = attrs.int("batch_dims") == Ok(0);
    let (Some(axis), Some(size), Some(out)) = (axis.filter(|_| plain), element(cx), cx.out_shape(0)) else {
        return Ok(false);
    };
    let (Some(x), Some(indices)) = (cx.args.first().cloned().flatten(), cx.ints(1)) else { return Ok(false) };
    let d = shape[axis];
    let inner = shape[axis + 1..].iter().product::<usize>() * size;
    let mut y = Out::new(cx.pool, x.dtype(), &out, &cx.node.name)?;
    if inner > 0 && !indices.is_empty() {
        let blocks = y.bytes_mut().par_chunks_mut(indices.len() * inner);
        blocks.enumerate().for_each(|(o, block)| {
            for (to, &i) in block.chunks_exact_mut(inner).zip(&indices) {
                let i = if i < 0 { i.saturating_add(d as i64) } else { i };
                match usize::try_from(i).ok().filter(|&i| i < d) {
                    Some(i) => to.copy_from_slice(&x.bytes()[(o * d + i) * inner..][..inner]),
                    None => to.fill(0),
                }
            }
        });
    }
    cx.push(y.done());
    Ok(true)
}
