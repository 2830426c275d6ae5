//! `one_hot`: all `off`, but for one place of each index.

use super::copy::element;
use super::{NodeCx, Types};
use crate::threads;
use crate::value::Out;
use kiln_backend::BackendError;
use kiln_ir::infer::normalize_axis;

/// Bytes that one task fills at least.
const TASK: usize = 64 << 10;

/// Whether the kernel covers a node: values of whole bytes.
pub fn covers(t: &Types<'_>) -> bool {
    t.input(2).is_some_and(|t| t.dtype.bits() >= 8)
}

pub fn one_hot(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(shape), Some(size), Some(indices)) = (cx.out_shape(0), element(cx, 2), cx.ints(0)) else {
        return Ok(false);
    };
    let axis = cx.node.op.attrs().int("axis").ok().and_then(|a| normalize_axis(a, shape.len(), "axis").ok());
    let (Some(axis), Some(values)) = (axis, cx.args[2].clone()) else { return Ok(false) };
    if values.bytes().len() != 2 * size {
        return Ok(false);
    }
    let (off, on) = values.bytes().split_at(size);
    let (depth, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let mut out = Out::new(cx.pool, values.dtype(), &shape, &cx.node.name)?;
    let slice = depth * inner * size;
    threads::chunks(out.bytes_mut(), slice, TASK.div_ceil(slice.max(1)), |outer, y| {
        match off.iter().all(|&b| b == off[0]) {
            true => y.fill(off[0]),
            false => y.chunks_exact_mut(size).for_each(|y| y.copy_from_slice(off)),
        }
        for (low, &k) in indices[outer * inner..(outer + 1) * inner].iter().enumerate() {
            let k = if k < 0 { k.saturating_add(depth as i64) } else { k };
            if (0..depth as i64).contains(&k) {
                let at = (k as usize * inner + low) * size;
                y[at..at + size].copy_from_slice(on);
            }
        }
    });
    cx.push(out.done());
    Ok(true)
}
