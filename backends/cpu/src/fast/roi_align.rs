//! `roi_align`: samples of each region, found once for all channels.

use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::sample::roi_align::{Bins, ROI_ALIGN, around};
use kiln_ops::util::is_real;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(ROI_ALIGN, roi_align, covers)];

fn covers(t: &Types<'_>) -> bool {
    (0..2).all(|i| t.input(i).is_some_and(|x| is_real(x.dtype)))
}

/// Channels that one task takes.
const CHANNELS: usize = 16;

/// The two elements around a coordinate, and the weight of the second.
type Around = Option<(usize, usize, f64)>;

/// The elements around the samples of each bin along one dimension.
fn table(bins: Bins, count: usize, size: usize) -> Vec<Vec<Around>> {
    let one = |bin: usize, i: i64| {
        around(bins.at(bin as i64, i), size as i64).map(|(a, b, f)| (a as usize, b as usize, f64::from(f)))
    };
    (0..count).map(|bin| (0..bins.samples).map(|i| one(bin, i)).collect()).collect()
}

fn roi_align(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (dims, attrs) = (cx.shape(0).to_vec(), cx.node.op.attrs());
    let all = (cx.floats(0), cx.floats(1), cx.ints(2), cx.out_shape(0));
    let (Some(x), Some(rois), Some(images), Some(shape)) = all else { return Ok(false) };
    let numbers = (attrs.float("spatial_scale"), attrs.bool("half_pixel"), attrs.int("sampling_ratio"));
    let (Ok(scale), Ok(half), Ok(ratio)) = numbers else { return Ok(false) };
    let ([count, channels, height, width], [regions, _, rows, columns]) = (&dims[..], &shape[..]) else {
        return Ok(false);
    };
    let [count, channels, height, width, regions, rows, columns] =
        [*count, *channels, *height, *width, *regions, *rows, *columns];
    let mean = attrs.str("mode") == Ok("avg");
    let blocks = channels.div_ceil(CHANNELS);
    cx.write_floats(0, &shape, |y| {
        let (y, points) = (Parts::new(y), Checkpoints::here());
        threads::each(regions * blocks, |task| {
            points.pass();
            let (r, first) = (task / blocks, task % blocks * CHANNELS);
            let roi = &rois[r * 4..r * 4 + 4];
            let bins =
                |k: usize, n: usize| Bins::new(roi[k], roi[k + 2], scale as f32, half, n as i64, ratio);
            let (v, h) = (table(bins(1, rows), rows, height), table(bins(0, columns), columns, width));
            let image = usize::try_from(images[r]).ok().filter(|&i| i < count);
            for c in first..channels.min(first + CHANNELS) {
                let at = (r * channels + c) * rows * columns;
                // SAFETY: each channel of each region belongs to one task.
                let y = unsafe { y.part(at, at + rows * columns) };
                let Some(image) = image else {
                    y.fill(0.0);
                    continue;
                };
                let plane = &x[(image * channels + c) * height * width..][..height * width];
                for (i, y) in y.iter_mut().enumerate() {
                    *y = bin(plane, width, &v[i / columns], &h[i % columns], mean) as f32;
                }
            }
        });
        Ok(())
    })
}

/// The mean of a bin's samples, or the greatest of their weighted corners; 0 without samples.
fn bin(plane: &[f32], width: usize, v: &[Around], h: &[Around], mean: bool) -> f64 {
    let (mut sum, mut top) = (0f64, None::<f64>);
    for a in v {
        for b in h {
            let corners = match (a, b) {
                (Some((y0, y1, fy)), Some((x0, x1, fx))) => {
                    let at = |y: usize, x: usize| f64::from(plane[y * width + x]);
                    [
                        (1.0 - fy) * (1.0 - fx) * at(*y0, *x0),
                        (1.0 - fy) * fx * at(*y0, *x1),
                        fy * (1.0 - fx) * at(*y1, *x0),
                        fy * fx * at(*y1, *x1),
                    ]
                }
                _ => [0.0; 4],
            };
            sum += corners.iter().sum::<f64>();
            top = corners.into_iter().chain(top).reduce(f64::max);
        }
    }
    match mean {
        true if v.is_empty() || h.is_empty() => 0.0,
        true => sum / (v.len() * h.len()) as f64,
        false => top.unwrap_or(0.0),
    }
}
