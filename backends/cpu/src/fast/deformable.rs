//! `deform_conv`: values under moved taps as columns, which matrix products combine.

use super::gemm::{Bias, Size, Strided, floats, floats_mut, gemm, scratch};
use super::{Floats, Kernel, NodeCx, TABLES, kernel};
use crate::threads;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::conv::deformable::DEFORM_CONV;
use kiln_ops::conv::geometry;
use kiln_ops::conv::window::{self, Axis};
use kiln_ops::sample::{self, Padding};

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(DEFORM_CONV, run, |t| t.all_real())];

/// Elements of the columns that are made at once, about.
const ROOM: usize = 1 << 20;

struct Job {
    x: Floats,
    offset: Floats,
    mask: Option<Floats>,
    axes: Vec<Axis<i64>>,
    channels: usize,
    offset_groups: usize,
    taps: usize,
    /// Windows of an image.
    windows: usize,
}

fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (dims, kernel, attrs) = (cx.shape(0).to_vec(), cx.shape(1).to_vec(), cx.node.op.attrs());
    let all = (cx.floats(0), cx.floats(1), cx.floats(2), cx.out_shape(0));
    let (Some(x), Some(w), Some(offset), Some(shape)) = all else { return Ok(false) };
    let [bias, mask] = [3, 4].map(|i| if cx.has(i) { cx.floats(i) } else { None });
    let axes = geometry(attrs, &window::dims(&dims), &window::dims(&kernel)).ok();
    let Some(axes) = axes.and_then(|a| window::numbers(&a)) else { return Ok(false) };
    let (Ok(groups), Ok(moved)) = (attrs.int("groups"), attrs.int("offset_groups")) else { return Ok(false) };
    let (groups, m) = (groups.max(1) as usize, kernel[0]);
    let job = Job {
        x,
        offset,
        mask,
        axes,
        channels: dims[1],
        offset_groups: moved.max(1) as usize,
        taps: kernel[2..].iter().product(),
        windows: shape[2..].iter().product(),
    };
    let (rows, depth, per) = (job.channels * job.taps, kernel[1] * job.taps, m / groups);
    let block = (ROOM / rows.max(1)).clamp(64, job.windows.max(64));
    let (pool, how) = (cx.pool.clone(), cx.depth);
    cx.write_floats(0, &shape, |y| {
        let mut columns = scratch(&pool, rows * block, "columns of a deformable convolution")?;
        let mut products = scratch(&pool, per * block, "products of a deformable convolution")?;
        for image in 0..dims[0] {
            for first in (0..job.windows).step_by(block) {
                let n = block.min(job.windows - first);
                job.columns(image, first, n, &mut floats_mut(&mut columns)[..rows * n]);
                for g in 0..groups {
                    let left = Strided { data: &w[g * per * depth..], row: depth, col: 1 };
                    let right = Strided { data: &floats(&columns)[g * depth * n..], row: n, col: 1 };
                    let c = &mut floats_mut(&mut products)[..per * n];
                    gemm(Size { m: per, n, k: depth }, &left, &right, Bias::None, c, (how, &pool))?;
                    for (k, row) in c.chunks_exact(n).enumerate() {
                        let channel = g * per + k;
                        let add = bias.as_ref().map_or(0.0, |b| b[channel]);
                        let at = (image * m + channel) * job.windows + first;
                        y[at..at + n].iter_mut().zip(row).for_each(|(y, x)| *y = x + add);
                    }
                }
            }
        }
        Ok(())
    })
}

/// The two elements around a tap that is moved, and their weights: those outside have none.
fn around(base: i64, offset: f32, size: i64) -> [(usize, f32); 2] {
    // One addition in f32, as on every backend.
    let at = base as f32 + offset;
    let floor = at.floor();
    let (i, f) = (floor as i64, at - floor);
    let element = |i: i64, w: f32| match sample::element(i, size, Padding::Zeros, true) {
        Some(i) => (i as usize, w),
        None => (0, 0.0),
    };
    [element(i, 1.0 - f), element(i.saturating_add(1), f)]
}

impl Job {
    /// The values under all taps of windows `first..first + n`: a row for each tap of each channel.
    fn columns(&self, image: usize, first: usize, n: usize, to: &mut [f32]) {
        let r = self.axes.len();
        let volume: usize = self.axes.iter().map(|a| a.input as usize).product();
        let per_group = self.channels.div_ceil(self.offset_groups).max(1);
        let points = Checkpoints::here();
        threads::chunks(to, n, 1 + 4096 / n, |row, y| {
            points.pass();
            let (c, tap) = (row / self.taps, row % self.taps);
            let slot = (image * self.offset_groups + c / per_group) * self.taps + tap;
            let plane = &self.x[(image * self.channels + c) * volume..][..volume];
            for (k, y) in y.iter_mut().enumerate() {
                let o = first + k;
                let (mut o_rest, mut tap_rest) = (o, tap);
                let mut near = [[(0usize, 0f32); 2]; 3];
                for d in (0..r).rev() {
                    let a = &self.axes[d];
                    let (window, k) = (o_rest % a.output as usize, tap_rest % a.kernel as usize);
                    (o_rest, tap_rest) = (o_rest / a.output as usize, tap_rest / a.kernel as usize);
                    let base = window as i64 * a.stride + k as i64 * a.dilation - a.begin;
                    near[d] = around(base, self.offset[(slot * r + d) * self.windows + o], a.input);
                }
                let mut sum = 0f32;
                for corner in 0..1usize << r {
                    let (mut place, mut weight) = (0, 1f32);
                    for (d, a) in self.axes.iter().enumerate() {
                        let (i, w) = near[d][corner >> d & 1];
                        place = place * a.input as usize + i;
                        weight *= w;
                    }
                    if weight != 0.0 {
                        sum += weight * plane[place];
                    }
                }
                *y = sum * self.mask.as_ref().map_or(1.0, |m| m[slot * self.windows + o]);
            }
        });
    }
}
