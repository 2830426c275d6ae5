//! `nll_loss`.

use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads;
use kiln_backend::BackendError;
use kiln_ops::loss::NLL_LOSS;
use kiln_ops::util::is_real;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(NLL_LOSS, nll, covers)];

/// Targets that one task takes.
const TASK: usize = 1 << 12;

fn covers(t: &Types<'_>) -> bool {
    t.input(0).is_some_and(|x| is_real(x.dtype))
}

fn nll(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (dims, attrs) = (cx.shape(0).to_vec(), cx.node.op.attrs());
    let (Some(x), Some(targets), Some(shape)) = (cx.floats(0), cx.ints(1), cx.out_shape(0)) else {
        return Ok(false);
    };
    let weight = if cx.has(2) { cx.floats(2) } else { None };
    let flags = (attrs.bool("use_ignore"), attrs.int("ignore_index"), attrs.str("reduction"));
    let (Ok(ignores), Ok(ignored), Ok(reduction)) = flags else { return Ok(false) };
    let (Some(&classes), inner) = (dims.get(1), dims[2..].iter().product::<usize>()) else {
        return Ok(false);
    };
    // The loss and the weight of each target.
    let mut each = vec![(0f64, 0f64); targets.len()];
    threads::chunks(&mut each, TASK, 1, |c, each| {
        for (k, e) in each.iter_mut().enumerate() {
            let i = c * TASK + k;
            let class = targets[i];
            let known =
                usize::try_from(class).ok().filter(|&c| c < classes && !(ignores && class == ignored));
            if let Some(class) = known {
                let w = weight.as_ref().map_or(1.0, |w| f64::from(w[class]));
                *e = (-w * f64::from(x[(i / inner * classes + class) * inner + i % inner]), w);
            }
        }
    });
    let total = |pick: fn(&(f64, f64)) -> f64| each.iter().map(pick).sum::<f64>();
    let one = match reduction {
        "none" => None,
        "sum" => Some(total(|e| e.0)),
        _ => Some(total(|e| e.0) / total(|e| e.1)),
    };
    cx.write_floats(0, &shape, |y| {
        match one {
            Some(one) => y.fill(one as f32),
            None => y.iter_mut().zip(&each).for_each(|(y, e)| *y = e.0 as f32),
        }
        Ok(())
    })
}
