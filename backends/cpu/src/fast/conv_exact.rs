//! `conv` of integers that are so small that all sums of their products are exact in f32, by the kernels of floats. It is for few channels a
//! group, of which [`super::conv_integer`] makes no product.

use super::NodeCx;
use super::conv;
use super::depthwise;
use super::element::{Element, with_element};
use super::gemm::{How, floats, floats_mut, scratch};
use super::plane::Real;
use super::pointwise::tail::{Lanes, Results};
use super::simd::vectorized;
use super::windows::{Conv, spatial, volume};
use crate::threads;
use crate::value::{Out, Val};
use bytemuck::Pod;
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

/// Writes integers as floats; `None` where there are not as many.
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

/// The way from sums to results.
struct Last<'a> {
    bias: Option<Channels<'a>>,
    to: Results<'a>,
}

/// Memory of a task: sums as integers, and that of layers behind.
type Room<'a> = (Vec<i32>, Option<Lanes<'a>>);

impl<'a> Last<'a> {
    /// Memory of a task that writes at most so many results at once.
    fn room(&self, most: usize) -> Room<'a> {
        (vec![0; PIECE.min(most)], self.to.room())
    }

    /// Makes results of sums, from one on.
    ///
    /// # Safety
    /// Nobody else writes them now.
    unsafe fn write(&self, first: usize, y: &[f32], (sums, room): &mut Room<'a>) {
        for (i, y) in y.chunks(PIECE).enumerate() {
            let (first, sums) = (first + i * PIECE, &mut sums[..y.len()]);
            back(y, sums);
            if let Some(bias) = self.bias {
                bias.add(first, sums);
            }
            // SAFETY: as the contract says.
            unsafe { self.to.write(first, sums, room) };
        }
    }
}

/// Computes a convolution whose channels are all alone plane by plane, each in the thread's cache; `None` where elements are missing.
fn planes(c: &Conv<'_>, x: &Val, count: usize, last: &Last<'_>) -> Option<()> {
    fn all<T: Real + Pod>(c: &Conv<'_>, x: &Val, count: usize, last: &Last<'_>) -> Option<()> {
        let windows = volume(&c.axes, |a| a.output);
        let room = || (vec![0f32; windows], last.room(windows));
        let x =
            x.view::<T>().filter(|x| x.len() == count / c.m * c.channels * volume(&c.axes, |a| a.input))?;
        depthwise::each_plane(c, x, count, room, |(y, room), i, write| {
            write(y);
            // SAFETY: each plane is taken once.
            unsafe { last.write(i * windows, y, room) };
        });
        Some(())
    }
    match x.dtype() {
        DType::I8 => all::<i8>(c, x, count, last),
        DType::U8 => all::<u8>(c, x, count, last),
        _ => all::<i32>(c, x, count, last),
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
    let mut w = scratch(&pool, count(sw), "weights as floats")?;
    if write(&vw, floats_mut(&mut w)).is_none() {
        return Ok(false);
    }
    let windows = volume(&axes, |a| a.output);
    let beside = if layout == Layout::Linear { windows } else { 1 };
    let bias = bias.map(|bias| Channels { bias, beside });
    let (w, how, groups, m) = (floats(&w), How { kept: None, ..cx.how(0) }, groups as usize, sw[0]);
    let conv = Conv { x: &[], w, bias: None, axes, groups, channels, m, depth };
    let tail = cx.take_tail(DType::I32);
    let mut out = Out::new(&pool, tail.map_or(DType::I32, |t| t.result()), &shape, &cx.node.name)?;
    let last = Last { bias, to: Results::of(&mut out, tail) };
    let missing =
        || BackendError::Internal(format!("{}: integers of {sx:?} are not all there", cx.node.name));
    if layout == Layout::Linear && depth == 1 && groups > 1 {
        planes(&conv, &vx, count(&shape) / windows, &last).ok_or_else(missing)?;
    } else {
        let mut x = scratch(&pool, count(sx), "integers as floats")?;
        let mut y = scratch(&pool, count(&shape), "sums as floats")?;
        write(&vx, floats_mut(&mut x)).ok_or_else(missing)?;
        conv::floats(&Conv { x: floats(&x), ..conv }, layout, floats_mut(&mut y), how)?;
        let (y, points) = (floats(&y), Checkpoints::here());
        threads::ranges(y.len().div_ceil(PIECE), 4, |pieces| {
            let mut room = last.room(PIECE);
            for piece in pieces {
                points.pass();
                let range = piece * PIECE..y.len().min((piece + 1) * PIECE);
                // SAFETY: each piece belongs to one range.
                unsafe { last.write(range.start, &y[range], &mut room) };
            }
        });
    }
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
