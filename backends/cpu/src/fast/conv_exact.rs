//! `conv` of integers that are so small that all sums of their products are exact in f32, by the kernels of floats. It is for few channels a
//! group, of which [`super::conv_integer`] makes no product.

use super::NodeCx;
use super::conv;
use super::element::{Element, with_element};
use super::gemm::{How, floats, floats_mut, scratch};
use super::simd::vectorized;
use super::windows::{Conv, spatial, volume};
use crate::threads::{self, Parts};
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::conv::geometry;
use kiln_ops::conv::window;
use kiln_ops::layout::Layout;

/// All integers up to this one have an f32.
const EXACT: u64 = 1 << 24;
/// Elements that are converted at once.
const PIECE: usize = 4 << 10;

/// The greatest magnitude of integers of 8 or 32 bits: that of their type, or that of the elements.
fn most(v: &Val) -> Option<u64> {
    match v.dtype() {
        DType::I8 => Some(128),
        DType::U8 => Some(255),
        DType::I32 => Some(magnitude(v.view()?).into()),
        _ => None,
    }
}

vectorized! {
    fn magnitude(x: &[i32]) -> u32 {
        let mut most = 0;
        for x in x {
            most = most.max(x.unsigned_abs());
        }
        most
    }
}

vectorized! {
    fn converted<T: Element>(x: &[T], y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = x.to_i64() as f32;
        }
    }
}

vectorized! {
    /// Writes floats that are integers up to [`EXACT`]. Others, of which there are none, would become some integer.
    fn back(x: &[f32], y: &mut [i32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            let x = x.clamp(-(EXACT as f32), EXACT as f32);
            // SAFETY: the number is within these bounds or NaN, which is 0.
            *y = unsafe { (if x.is_nan() { 0.0 } else { x }).to_int_unchecked() };
        }
    }
}

/// Writes integers as floats.
fn write(v: &Val, y: &mut [f32]) -> Option<()> {
    fn all<T: Element>(v: &Val, y: &mut [f32]) -> Option<()> {
        let x = v.view::<T>().filter(|x| x.len() == y.len())?;
        threads::chunks(y, PIECE, 4, |i, y| converted(&x[i * PIECE..][..y.len()], y));
        Some(())
    }
    with_element!(v.dtype(), T => all::<T>(v, y), else None)
}

/// Elements of a channel that lie side by side, of so many channels.
#[derive(Clone, Copy)]
struct Channels<'a> {
    bias: &'a [i32],
    beside: usize,
}

impl Channels<'_> {
    /// Adds each channel's number to elements from one on.
    fn add(&self, first: usize, y: &mut [i32]) {
        let mut at = 0;
        while at < y.len() {
            let channel = (first + at) / self.beside % self.bias.len();
            if self.beside == 1 {
                let count = (self.bias.len() - channel).min(y.len() - at);
                let bias = &self.bias[channel..channel + count];
                y[at..at + count].iter_mut().zip(bias).for_each(|(y, b)| *y = y.wrapping_add(*b));
                at += count;
            } else {
                let count = (self.beside - (first + at) % self.beside).min(y.len() - at);
                y[at..at + count].iter_mut().for_each(|y| *y = y.wrapping_add(self.bias[channel]));
                at += count;
            }
        }
    }
}

/// Computes a convolution whose result is of i32; false where sums may not be exact.
pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let layout = Layout::of(attrs);
    let (Some(vx), Some(vw)) = (cx.args[0].clone(), cx.args[1].clone()) else { return Ok(false) };
    let (sx, sw) = (vx.shape(), vw.shape());
    let axes = geometry(attrs, &window::dims(sx), &window::dims(sw)).ok();
    let Some(axes) = axes.and_then(|a| window::numbers(&a)).and_then(spatial) else { return Ok(false) };
    let (Some(shape), Ok(groups)) = (cx.out_shape(0), attrs.int("groups")) else { return Ok(false) };
    let vb = cx.args.get(2).cloned().flatten();
    let bias: Option<&[i32]> = match vb.as_ref().map(|v| v.view()) {
        Some(None) => return Ok(false),
        bias => bias.flatten(),
    };
    let (channels, depth) = (sx[layout.channel_axis(sx.len())], sw[layout.channel_axis(sw.len())]);
    let products = (depth * volume(&axes, |a| a.kernel)) as u64;
    let exact = most(&vx).zip(most(&vw)).and_then(|(x, w)| x.checked_mul(w)?.checked_mul(products));
    if depth == 0 || shape.contains(&0) || exact.is_none_or(|sum| sum > EXACT) {
        return Ok(false);
    }
    let pool = cx.pool.clone();
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    let [mut x, mut w, mut y] = [
        scratch(&pool, count(sx), "integers as floats")?,
        scratch(&pool, count(sw), "weights as floats")?,
        scratch(&pool, count(&shape), "sums as floats")?,
    ];
    if write(&vx, floats_mut(&mut x)).and(write(&vw, floats_mut(&mut w))).is_none() {
        return Ok(false);
    }
    let beside = match layout {
        Layout::Linear => volume(&axes, |a| a.output),
        Layout::ChannelsLast => 1,
    };
    let job = Conv {
        x: floats(&x),
        w: floats(&w),
        bias: None,
        axes,
        groups: groups as usize,
        channels,
        m: sw[0],
        depth,
    };
    conv::floats(&job, layout, floats_mut(&mut y), How { kept: None, ..cx.how(0) })?;
    let bias = bias.map(|bias| Channels { bias, beside });
    let tail = cx.take_tail(DType::I32);
    let mut out = Out::new(&pool, tail.map_or(DType::I32, |t| t.result()), &shape, &cx.node.name)?;
    let size = out.size();
    let (y, parts, points) = (floats(&y), Parts::new(out.bytes_mut()), Checkpoints::here());
    threads::ranges(y.len().div_ceil(PIECE), 4, |pieces| {
        let mut room = tail.map(|t| t.room());
        let mut sums = vec![0i32; PIECE.min(y.len())];
        for piece in pieces {
            points.pass();
            let range = piece * PIECE..y.len().min((piece + 1) * PIECE);
            let sums = &mut sums[..range.len()];
            back(&y[range.clone()], sums);
            if let Some(bias) = bias {
                bias.add(range.start, sums);
            }
            // SAFETY: each piece belongs to one range.
            let to = unsafe { parts.part(range.start * size, range.end * size) };
            match (tail, &mut room) {
                (Some(tail), Some(room)) => tail.convert(room, range.start, sums, to),
                _ => to.copy_from_slice(bytemuck::cast_slice(sums)),
            }
        }
    });
    cx.push(out.done());
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_has_its_own_number() {
        for (beside, first, wanted) in
            [(1, 2, [30, 10, 20, 30, 10]), (2, 3, [20, 30, 30, 10, 10]), (5, 4, [10, 20, 20, 20, 20])]
        {
            let mut y = [0; 5];
            Channels { bias: &[10, 20, 30], beside }.add(first, &mut y);
            assert_eq!(y, wanted, "{beside}");
        }
    }
}
