//! `lrn`: normalization by the squares of neighbouring channels.

use super::{Kernel, NodeCx, TABLES, kernel};
use crate::threads;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::layout::Layout;
use kiln_ops::norm::lrn::LRN;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(LRN, lrn, |t| t.all_real())];

/// Elements that one task takes at least.
const TASK: usize = 1 << 12;

struct Response {
    alpha: f64,
    beta: f64,
    bias: f64,
}

impl Response {
    /// The factor of an element whose neighbours have squares of this sum.
    fn factor(&self, energy: f64) -> f64 {
        let base = self.bias + self.alpha * energy;
        match self.beta {
            0.75 => {
                let root = base.sqrt();
                1.0 / (root * root.sqrt())
            }
            0.5 => 1.0 / base.sqrt(),
            1.0 => 1.0 / base,
            beta => base.powf(-beta),
        }
    }
}

fn lrn(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (shape, attrs) = (cx.shape(0).to_vec(), cx.node.op.attrs());
    let numbers = (attrs.int("size"), attrs.float("alpha"), attrs.float("beta"), attrs.float("bias"));
    let (Some(x), (Ok(size), Ok(alpha), Ok(beta), Ok(bias))) = (cx.floats(0), numbers) else {
        return Ok(false);
    };
    let Ok(size) = usize::try_from(size) else { return Ok(false) };
    if size == 0 || shape.len() < 2 {
        return Ok(false);
    }
    let (before, after) = ((size - 1) / 2, size / 2);
    let r = Response { alpha: alpha / size as f64, beta, bias };
    // Channels last are rows of channels, of images of one element.
    let axis = Layout::of(attrs).channel_axis(shape.len());
    let (channels, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    cx.write_floats(0, &shape, |y| {
        let points = Checkpoints::here();
        threads::chunks(y, inner, TASK.div_ceil(inner.max(1)), |plane, y| {
            points.pass();
            let (image, c) = (plane / channels, plane % channels);
            let row = |c: usize| &x[(image * channels + c) * inner..][..inner];
            let near = c.saturating_sub(before)..c.saturating_add(after).saturating_add(1).min(channels);
            let mut energy = vec![0f64; inner];
            for k in near {
                energy.iter_mut().zip(row(k)).for_each(|(e, &x)| *e += f64::from(x) * f64::from(x));
            }
            for ((y, &x), e) in y.iter_mut().zip(row(c)).zip(energy) {
                *y = (f64::from(x) * r.factor(e)) as f32;
            }
        });
        Ok(())
    })
}
