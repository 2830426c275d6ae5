//! `hardmax`: 1 at the first greatest element of each line, 0 elsewhere.

use super::argreduce::places;
use super::element::{Element, with_element};
use super::lines::Lines;
use super::{Kernel, NodeCx, TABLES, kernel};
use crate::threads;
use crate::value::Out;
use kiln_backend::BackendError;
use kiln_ops::softmax::HARDMAX;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(HARDMAX, hardmax, |t| t.all_real())];

fn hardmax(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let (Some(x), Some(axis)) = (cx.args[0].clone(), cx.axis("axis", shape.len())) else { return Ok(false) };
    let l = Lines::of(&shape, axis, axis + 1);
    if i32::try_from(l.n).is_err() {
        return Ok(false);
    }
    let mut best = vec![0i64; l.outer * l.inner];
    let mut out = Out::new(cx.pool, x.dtype(), &shape, &cx.node.name)?;
    if shape.contains(&0) {
        cx.push(out.done());
        return Ok(true);
    }
    with_element!(x.dtype(), T => {
        places::<T>(&x, l, (false, false), &mut best);
        mark::<T>(out.elems_mut(), l, &best);
    }, else return Ok(false));
    cx.push(out.done());
    Ok(true)
}

fn mark<T: Element>(y: &mut [T], l: Lines, best: &[i64]) {
    let slice = l.n * l.inner;
    threads::chunks(y, slice, (1 << 14) / slice.max(1) + 1, |o, y| {
        y.fill(T::from_i64(0));
        for (i, &b) in best[o * l.inner..(o + 1) * l.inner].iter().enumerate() {
            y[b as usize * l.inner + i] = T::from_i64(1);
        }
    });
}
