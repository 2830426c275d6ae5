//! `affine_grid`: points of an even grid, moved by a matrix for each image.

use super::{Kernel, NodeCx, TABLES, kernel};
use crate::threads;
use kiln_backend::BackendError;
use kiln_ops::sample::grid_sample::AFFINE_GRID;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(AFFINE_GRID, affine_grid, |t| t.all_real())];

/// Points that one task takes at least.
const TASK: usize = 1 << 11;

/// The coordinates along one dimension.
fn coordinates(n: usize, align_corners: bool) -> Vec<f64> {
    let at = |i: usize| match (align_corners, n) {
        (true, 1) => -1.0,
        (true, n) => 2.0 * i as f64 / (n - 1) as f64 - 1.0,
        (false, n) => (2 * i + 1) as f64 / n as f64 - 1.0,
    };
    (0..n).map(at).collect()
}

fn affine_grid(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(theta), Some(shape), Ok(align)) =
        (cx.floats(0), cx.out_shape(0), cx.node.op.attrs().bool("align_corners"))
    else {
        return Ok(false);
    };
    let [_, sizes @ .., r] = &shape[..] else { return Ok(false) };
    let (r, width) = (*r, sizes.last().copied().unwrap_or(0));
    if sizes.len() != r || r > 3 {
        return Ok(false);
    }
    let along: Vec<Vec<f64>> = sizes.iter().map(|&n| coordinates(n, align)).collect();
    let rows: usize = sizes[..r - 1].iter().product();
    cx.write_floats(0, &shape, |y| {
        threads::chunks(y, width * r, TASK.div_ceil(width.max(1)), |row, y| {
            let (image, mut rest) = (row / rows, row % rows);
            let matrix = &theta[image * r * (r + 1)..][..r * (r + 1)];
            // Innermost dimension first, then 1.
            let mut point = [0.0, 0.0, 0.0, 0.0];
            point[r] = 1.0;
            for d in (0..r - 1).rev() {
                point[r - 1 - d] = along[d][rest % sizes[d]];
                rest /= sizes[d];
            }
            for (y, &x) in y.chunks_exact_mut(r).zip(&along[r - 1]) {
                point[0] = x;
                for (y, m) in y.iter_mut().zip(matrix.chunks_exact(r + 1)) {
                    *y = m.iter().zip(point).map(|(&a, b)| f64::from(a) * b).sum::<f64>() as f32;
                }
            }
        });
        Ok(())
    })
}
