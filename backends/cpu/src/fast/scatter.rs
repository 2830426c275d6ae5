//! `scatter_elements` and `scatter_nd` that replace, and selections by content: `nonzero` and `compress`.

use super::copy::element;
use super::element::{Element, has, with_element};
use super::{NodeCx, Types};
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;
use kiln_ops::indices::wrap_index;
use kiln_ops::util::{for_each_index, strides};

/// Whether the kernels cover a node: without a reduction.
pub fn covers(t: &Types<'_>) -> bool {
    t.whole_bytes() && t.node.op.attrs().str("reduction") == Ok("none")
}

/// The memory of x where nobody else holds it, or a copy.
pub fn started(cx: &mut NodeCx<'_>) -> Result<Option<Out>, BackendError> {
    let Some(x) = cx.args[0].take() else { return Ok(None) };
    let (dtype, shape) = (x.dtype(), x.shape().to_vec());
    Ok(Some(match Out::reuse(x, dtype, &shape) {
        Ok(out) => out,
        Err(x) => {
            let mut out = Out::new(cx.pool, dtype, &shape, &cx.node.name)?;
            out.bytes_mut().copy_from_slice(x.bytes());
            out
        }
    }))
}

pub fn elements(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let axis = cx.node.op.attrs().int("axis").ok().and_then(|a| normalize_axis(a, shape.len(), "axis").ok());
    let (Some(axis), Some(indices), Some(size)) = (axis, cx.ints(1), element(cx, 0)) else {
        return Ok(false);
    };
    let (at_shape, Some(updates)) = (cx.shape(1).to_vec(), cx.args[2].clone()) else { return Ok(false) };
    let Some(mut out) = started(cx)? else { return Ok(false) };
    let own = strides(&shape);
    let (y, updates) = (out.bytes_mut(), updates.bytes());
    let Some((&n, lead)) = at_shape.split_last() else { return Ok(false) };
    let last = shape.len() - 1;
    let mut row = 0;
    for_each_index(lead, |at| {
        let base: usize =
            at.iter().zip(&own).enumerate().map(|(d, (i, s))| if d == axis { 0 } else { i * s }).sum();
        for i in 0..n {
            let k = row * n + i;
            let p = wrap_index(indices[k], shape[axis]).unwrap_or(0) * own[axis];
            let to = (base + p + if axis == last { 0 } else { i }) * size;
            y[to..to + size].copy_from_slice(&updates[k * size..(k + 1) * size]);
        }
        row += 1;
    });
    cx.push(out.done());
    Ok(true)
}

pub fn nd(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let (Some(indices), Some(size), Some(updates)) = (cx.ints(1), element(cx, 0), cx.args[2].clone()) else {
        return Ok(false);
    };
    let Some(&depth) = cx.shape(1).last() else { return Ok(false) };
    let tuples: usize = cx.shape(1)[..cx.shape(1).len() - 1].iter().product();
    let own = strides(&shape);
    let slice = shape[depth..].iter().product::<usize>() * size;
    let Some(mut out) = started(cx)? else { return Ok(false) };
    let (y, updates) = (out.bytes_mut(), updates.bytes());
    for t in 0..tuples {
        let tuple = &indices[t * depth..(t + 1) * depth];
        let place = |(d, &i): (usize, &i64)| wrap_index(i, shape[d]).unwrap_or(0) * own[d];
        let to = tuple.iter().enumerate().map(place).sum::<usize>() * size;
        y[to..to + slice].copy_from_slice(&updates[t * slice..(t + 1) * slice]);
    }
    cx.push(out.done());
    Ok(true)
}

/// Whether the kernel covers a `nonzero`.
pub fn covers_nonzero(t: &Types<'_>) -> bool {
    t.input(0).is_some_and(|x| has(x.dtype))
}

pub fn nonzero(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Some(x) = cx.args[0].clone() else { return Ok(false) };
    fn places<T: Element>(x: &Val) -> Vec<usize> {
        let zero = T::from_i64(0).key();
        let all = x.view::<T>().unwrap_or_default().iter().enumerate();
        all.filter(|(_, x)| x.key() != zero).map(|(i, _)| i).collect()
    }
    let found = with_element!(x.dtype(), T => places::<T>(&x), else return Ok(false));
    let (shape, n) = (x.shape(), found.len());
    let mut out = Out::new(cx.pool, DType::I64, &[shape.len(), n], &cx.node.name)?;
    let own = strides(shape);
    let rows = out.elems_mut::<i64>().chunks_exact_mut(n.max(1));
    for (row, (&s, &d)) in rows.zip(own.iter().zip(shape)) {
        row.iter_mut().zip(&found).for_each(|(y, p)| *y = (p / s % d) as i64);
    }
    cx.push(out.done());
    Ok(true)
}

pub fn compress(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (Ok(flatten), Ok(axis)) = (attrs.bool("flatten"), attrs.int("axis")) else { return Ok(false) };
    let (Some(x), Some(mask), Some(size)) = (cx.args[0].clone(), cx.args[1].clone(), element(cx, 0)) else {
        return Ok(false);
    };
    let shape = if flatten { vec![x.shape().iter().product()] } else { x.shape().to_vec() };
    let Ok(axis) = normalize_axis(if flatten { 0 } else { axis }, shape.len(), "axis") else {
        return Ok(false);
    };
    let n = shape[axis];
    let kept: Vec<usize> =
        mask.bytes().iter().take(n).enumerate().filter(|(_, m)| **m != 0).map(|(i, _)| i).collect();
    let mut to = shape.clone();
    to[axis] = kept.len();
    let inner = shape[axis + 1..].iter().product::<usize>() * size;
    let mut out = Out::new(cx.pool, x.dtype(), &to, &cx.node.name)?;
    let outer: usize = shape[..axis].iter().product();
    if inner > 0 && !kept.is_empty() {
        let mut slices = out.bytes_mut().chunks_exact_mut(inner);
        for o in 0..outer {
            for (k, to) in kept.iter().zip(&mut slices) {
                to.copy_from_slice(&x.bytes()[(o * n + k) * inner..][..inner]);
            }
        }
    }
    cx.push(out.done());
    Ok(true)
}
