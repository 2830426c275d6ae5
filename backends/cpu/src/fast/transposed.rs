//! `conv_transpose` of floats: a product of the weights with the operand, whose rows are added to the result tap by tap.

use super::NodeCx;
use super::copy::{self, Map};
use super::gemm::{Bias, Size, Strided, floats, floats_mut, gemm, scratch};
use super::windows::{Spatial, spatial, volume};
use crate::buffer::Pool;
use crate::threads;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::conv::transposed::geometry;
use kiln_ops::conv::window;
use kiln_ops::layout::Layout;
use kiln_ops::util::strides;
use std::ops::Deref;
use std::sync::Arc;

/// Elements of a tensor with channels second: its own, or a copy.
enum Image<'a> {
    Own(&'a [f32]),
    Copy(Vec<f32>),
}

impl Deref for Image<'_> {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        match self {
            Image::Own(x) => x,
            Image::Copy(x) => x,
        }
    }
}

/// A tensor of this shape with its last dimension moved to the second place.
fn channels_second<'a>(x: &'a [f32], shape: &[usize], last: bool) -> Image<'a> {
    if !last {
        return Image::Own(x);
    }
    let own = strides(shape);
    let rank = shape.len();
    let order = [0, rank - 1].into_iter().chain(1..rank - 1);
    let mut y = vec![0f32; x.len()];
    let maps = order.map(|d| Map::all(shape[d], own[d])).collect();
    copy::bytes(4, bytemuck::cast_slice(x), bytemuck::cast_slice_mut(&mut y), 0, maps, &[]);
    Image::Copy(y)
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let last = Layout::of(attrs) == Layout::ChannelsLast;
    let (Some(x), Some(w), Some(out)) = (cx.floats(0), cx.floats(1), cx.out_shape(0)) else {
        return Ok(false);
    };
    let bias = if cx.has(2) { cx.floats(2) } else { None };
    let linear = |s: &[usize]| if last { Layout::ChannelsLast.to_linear(s) } else { s.to_vec() };
    let (sx, sw, sy) = (linear(cx.shape(0)), cx.shape(1).to_vec(), linear(&out));
    let axes = geometry(attrs, &window::dims(cx.shape(0)), &window::dims(&sw)).ok();
    let Some(axes) = axes.and_then(|a| window::numbers(&a)).and_then(spatial) else { return Ok(false) };
    let Ok(groups) = attrs.int("groups") else { return Ok(false) };
    let x = channels_second(&x, cx.shape(0), last);
    let job = Job {
        x: &x,
        w: &w,
        bias: bias.as_deref(),
        axes,
        groups: groups as usize,
        channels: sx[1],
        depth: sw[1],
    };
    let pool = cx.pool.clone();
    let how = (cx.depth, &pool);
    cx.write_floats(0, &out, |y| {
        if !last {
            return job.run(y, how);
        }
        let mut rows = scratch(&pool, y.len(), "channels of a transposed convolution")?;
        job.run(floats_mut(&mut rows), how)?;
        let own = strides(&sy);
        let order = [0].into_iter().chain(2..sy.len()).chain([1]);
        let maps = order.map(|d| Map::all(sy[d], own[d])).collect();
        copy::bytes(4, bytemuck::cast_slice(floats(&rows)), bytemuck::cast_slice_mut(y), 0, maps, &[]);
        Ok(())
    })
}

/// A transposed convolution with channels second.
struct Job<'a> {
    x: &'a [f32],
    w: &'a [f32],
    bias: Option<&'a [f32]>,
    /// Windows over the result; one for each element of the operand.
    axes: Spatial,
    groups: usize,
    /// Channels of x, and of the result in a group.
    channels: usize,
    depth: usize,
}

impl Job<'_> {
    fn run(&self, y: &mut [f32], how: (usize, &Arc<Pool>)) -> Result<(), BackendError> {
        let (inputs, outputs) = (volume(&self.axes, |a| a.output), volume(&self.axes, |a| a.input));
        let taps = volume(&self.axes, |a| a.kernel);
        let per_group = self.channels / self.groups.max(1);
        let s = Size { m: self.depth * taps, n: inputs, k: per_group };
        let mut products = scratch(how.1, s.m * s.n, "products of a transposed convolution")?;
        for (i, y) in y.chunks_exact_mut((self.depth * outputs).max(1)).enumerate() {
            let (image, g) = (i / self.groups, i % self.groups);
            let first = image * self.channels + g * per_group;
            let right = Strided { data: &self.x[first * inputs..], row: inputs, col: 1 };
            let left = Strided { data: &self.w[g * per_group * s.m..], row: 1, col: s.m };
            gemm(s, &left, &right, Bias::None, floats_mut(&mut products), how)?;
            let products = floats(&products);
            let points = Checkpoints::here();
            threads::chunks(y, outputs, 1, |m, y| {
                points.pass();
                y.fill(self.bias.map_or(0.0, |b| b[g * self.depth + m]));
                for (tap, row) in
                    products[m * taps * inputs..][..taps * inputs].chunks_exact(inputs).enumerate()
                {
                    self.add(tap, row, y);
                }
            });
        }
        Ok(())
    }

    /// Adds the products of one tap, one for each element of the operand, where the tap reaches.
    fn add(&self, tap: usize, row: &[f32], y: &mut [f32]) {
        let [d, h, w] = &self.axes;
        let kernel = [h.kernel as usize, w.kernel as usize];
        let at = [tap / kernel[1] / kernel[0], tap / kernel[1] % kernel[0], tap % kernel[1]];
        let place = |a: &window::Axis<i64>, i: usize, k: usize| {
            let p = i as i64 * a.stride + k as i64 * a.dilation - a.begin;
            (0..a.input).contains(&p).then_some(p as usize)
        };
        let wide = w.output as usize;
        for (line, row) in row.chunks_exact(wide.max(1)).enumerate() {
            let (z, yy) = (line / h.output as usize, line % h.output as usize);
            let (Some(z), Some(yy)) = (place(d, z, at[0]), place(h, yy, at[1])) else { continue };
            let start = (z * h.input as usize + yy) * w.input as usize;
            let y = &mut y[start..start + w.input as usize];
            // Elements of the operand that reach the line: stride·i + offset is in it.
            let offset = at[2] as i64 * w.dilation - w.begin;
            let first = (-offset).max(0).div_ceil_to(w.stride);
            let end = (w.input - offset).max(0).div_ceil_to(w.stride).min(w.output);
            if first >= end {
                continue;
            }
            let from = &row[first as usize..end as usize];
            let to = &mut y[(first * w.stride + offset) as usize..];
            match w.stride {
                1 => to.iter_mut().zip(from).for_each(|(y, x)| *y += x),
                s => to.iter_mut().step_by(s as usize).zip(from).for_each(|(y, x)| *y += x),
            }
        }
    }
}

/// Division of numbers that are not negative, rounded up.
trait DivCeil {
    fn div_ceil_to(self, by: i64) -> i64;
}

impl DivCeil for i64 {
    fn div_ceil_to(self, by: i64) -> i64 {
        (self + by - 1) / by
    }
}
