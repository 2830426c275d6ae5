//! `ragged_softmax`: rows up to their bounds.

use super::rows::row;
use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads;
use kiln_backend::BackendError;
use kiln_ops::softmax::ragged::RAGGED_SOFTMAX;
use kiln_ops::util::is_real;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(RAGGED_SOFTMAX, softmax, covers)];

fn covers(t: &Types<'_>) -> bool {
    t.input(0).is_some_and(|x| is_real(x.dtype))
}

fn softmax(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let (Some(x), Some(bounds), Some(&n)) = (cx.floats(0), cx.ints(1), shape.last()) else {
        return Ok(false);
    };
    cx.write_floats(0, &shape, |y| {
        threads::chunks(y, n, 1 + 4096 / n.max(1), |r, y| {
            let (head, rest) = y.split_at_mut(bounds[r].clamp(0, n as i64) as usize);
            if !head.is_empty() {
                row(&x[r * n..][..head.len()], head);
            }
            rest.fill(0.0);
        });
        Ok(())
    })
}
