//! `grid_sample` of images of one or three dimensions: elements around each point, found once for all channels.

use super::sample::Taps;
use super::{Kernel, NodeCx, TABLES, kernel};
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::sample::grid_sample::{GRID_SAMPLE, Sampler};

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(GRID_SAMPLE, grid_sample, |t| t.all_real())];

/// Points whose elements are found together.
const BLOCK: usize = 256;

/// Places and weights around a point, of all combinations of one tap a dimension.
pub fn combined(taps: &[Taps], sizes: &[usize]) -> Vec<(usize, f32)> {
    let mut all = vec![(0usize, 1f32)];
    for (t, &n) in taps.iter().zip(sizes) {
        let along = t.at.iter().zip(t.weight).take(t.len).filter_map(|(at, w)| Some(((*at)?, w)));
        let along: Vec<(usize, f32)> = along.collect();
        all = all.iter().flat_map(|&(p, w)| along.iter().map(move |&(i, v)| (p * n + i, w * v))).collect();
    }
    all
}

fn grid_sample(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(x), Some(grid), Some(shape)) = (cx.floats(0), cx.floats(1), cx.out_shape(0)) else {
        return Ok(false);
    };
    let Ok(sampler) = Sampler::of(cx.node.op.attrs()) else { return Ok(false) };
    let [images, channels, sizes @ ..] = cx.shape(0) else { return Ok(false) };
    let (images, channels, sizes) = (*images, *channels, sizes.to_vec());
    let (r, volume) = (sizes.len(), sizes.iter().product::<usize>());
    let count: usize = shape[2..].iter().product();
    cx.write_floats(0, &shape, |y| {
        let (y, points) = (Parts::new(y), Checkpoints::here());
        let blocks = count.div_ceil(BLOCK);
        threads::each(images * blocks, |task| {
            points.pass();
            let (image, first) = (task / blocks, task % blocks * BLOCK);
            let end = count.min(first + BLOCK);
            let table: Vec<Vec<(usize, f32)>> = (first..end)
                .map(|p| {
                    let at = &grid[(image * count + p) * r..][..r];
                    let taps = |d: usize| Taps::of(sampler, at[r - 1 - d], sizes[d] as i64);
                    combined(&(0..r).map(taps).collect::<Vec<_>>(), &sizes)
                })
                .collect();
            for plane in image * channels..(image + 1) * channels {
                let x = &x[plane * volume..(plane + 1) * volume];
                // SAFETY: each block of points of each plane belongs to one task.
                let y = unsafe { y.part(plane * count + first, plane * count + end) };
                for (y, taps) in y.iter_mut().zip(&table) {
                    *y = taps.iter().map(|&(i, w)| x[i] * w).sum();
                }
            }
        });
        Ok(())
    })
}
