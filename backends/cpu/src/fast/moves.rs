//! Operators that only move elements: copies by index maps, row gathers, and new shapes of the same memory.

use super::NodeCx;
use super::concat::rows_of;
use super::copy::{self, Map, element};
use crate::threads::{self, Parts};
use crate::value::Out;
use kiln_backend::BackendError;
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;
use kiln_ops::indices::wrap_index;
use kiln_ops::slice::insert::Placed;
use kiln_ops::slice::pad::source;
use kiln_ops::slice::window::window;
use kiln_ops::util::{broadcast_strides, strides};

/// Bytes that one task copies at least.
const TASK: usize = 32 << 10;
/// Bytes of a piece of a long row.
const PIECE: usize = 64 << 10;

/// Reshapes to the output's shape without a copy.
pub fn reshape(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Some(shape) = cx.out_shape(0) else { return Ok(false) };
    let Some(x) = cx.args.first_mut().and_then(Option::take) else { return Ok(false) };
    let kept = x.clone();
    match x.reshaped(&shape) {
        Some(y) => {
            drop(kept);
            cx.push(y);
            Ok(true)
        }
        None => {
            cx.args[0] = Some(kept);
            Ok(false)
        }
    }
}

pub fn transpose(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (dims, own) = (cx.shape(0).to_vec(), strides(cx.shape(0)));
    let Ok(perm) = cx.node.op.attrs().ints("perm") else { return Ok(false) };
    let perm: Option<Vec<usize>> = match perm.is_empty() {
        true => Some((0..own.len()).rev().collect()),
        false => perm.iter().map(|&p| normalize_axis(p, own.len(), "perm").ok()).collect(),
    };
    let Some(perm) = perm else { return Ok(false) };
    copy::run(cx, 0, 0, perm.iter().map(|&p| Map::all(dims[p], own[p])).collect(), &[])
}

pub fn expand(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Some(shape) = cx.out_shape(0) else { return Ok(false) };
    let steps = broadcast_strides(cx.shape(0), &shape);
    copy::run(cx, 0, 0, shape.iter().zip(steps).map(|(&n, s)| Map::all(n, s)).collect(), &[])
}

pub fn tile(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (dims, Some(shape)) = (cx.shape(0).to_vec(), cx.out_shape(0)) else { return Ok(false) };
    // Each dimension as two: the repetitions, and the elements.
    let mut maps = Vec::new();
    for ((&n, &to), s) in dims.iter().zip(&shape).zip(strides(&dims)) {
        maps.extend([Map::all(to.checked_div(n).unwrap_or(0), 0), Map::all(n, s)]);
    }
    copy::run_as(cx, 0, 0, maps, &[], &shape)
}

pub fn slice(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let dims = cx.shape(0).to_vec();
    let (Some(starts), Some(ends), Some(shape)) = (cx.ints(1), cx.ints(2), cx.out_shape(0)) else {
        return Ok(false);
    };
    let axes = if cx.has(3) { cx.ints(3) } else { Some((0..starts.len() as i64).collect()) };
    let steps = if cx.has(4) { cx.ints(4) } else { Some(vec![1; starts.len()]) };
    let (Some(axes), Some(steps)) = (axes, steps) else { return Ok(false) };
    let own = strides(&dims);
    let mut maps: Vec<Map> = shape.iter().zip(&own).map(|(&n, &s)| Map::all(n, s)).collect();
    let mut base = 0isize;
    for (((&start, &end), &axis), &by) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let Ok(axis) = normalize_axis(axis, dims.len(), "axes") else { return Ok(false) };
        let w = window(dims[axis] as i64, start, end, by);
        if w.len as usize != shape[axis] {
            return Ok(false);
        }
        // A step of an axis that takes one element may be too great to multiply.
        let step = if w.len > 1 { w.step as isize * own[axis] as isize } else { 0 };
        base += w.first.max(0) as isize * own[axis] as isize;
        maps[axis] = Map::Step { len: shape[axis], step };
    }
    copy::run(cx, 0, base, maps, &[])
}

pub fn pad(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let dims = cx.shape(0).to_vec();
    let (Some(pads), Some(shape)) = (cx.ints(1), cx.out_shape(0)) else { return Ok(false) };
    let axes = if cx.has(3) { cx.ints(3) } else { Some((0..dims.len() as i64).collect()) };
    let (Some(axes), Ok(mode)) = (axes, cx.node.op.attrs().str("mode")) else { return Ok(false) };
    let value = cx.args.get(2).and_then(Option::as_ref).map(|v| v.bytes().to_vec()).unwrap_or_default();
    let mode = mode.to_owned();
    let mut before = vec![0; dims.len()];
    for (&a, &p) in axes.iter().zip(&pads) {
        let Ok(a) = normalize_axis(a, dims.len(), "axes") else { return Ok(false) };
        before[a] = p;
    }
    let own = strides(&dims);
    let map = |d: usize| {
        let at = |i: usize| Some(source(&mode, i as i64 - before[d], dims[d] as i64)? as usize);
        // The elements of the tensor itself.
        let place = |i: i64| i.clamp(0, shape[d] as i64) as usize;
        let inside = place(before[d])..place(before[d].saturating_add(dims[d] as i64));
        Map::edged(own[d], shape[d], inside, at)
    };
    copy::run(cx, 0, 0, (0..dims.len()).map(map).collect(), &value)
}

pub fn center_crop_pad(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (dims, Some(shape)) = (cx.shape(0).to_vec(), cx.out_shape(0)) else { return Ok(false) };
    let own = strides(&dims);
    let map = |d: usize| {
        let (from, to) = (dims[d], shape[d]);
        let shift = if from >= to { ((from - to) / 2) as i64 } else { -(((to - from) / 2) as i64) };
        let at = |i: usize| usize::try_from(i as i64 + shift).ok().filter(|&i| i < from);
        Map::indices(own[d], (0..to).map(at))
    };
    copy::run(cx, 0, 0, (0..dims.len()).map(map).collect(), &[])
}

/// Swaps blocks of channels with blocks of height and width: six dimensions, of which both sides see four.
fn blocks(cx: &mut NodeCx<'_>, to_space: bool) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (Ok(b), Ok(mode)) = (attrs.int("block"), attrs.str("mode")) else { return Ok(false) };
    let [n, c, h, w] = *cx.shape(0) else { return Ok(false) };
    let Some(to) = cx.out_shape(0) else { return Ok(false) };
    let (b, crd) = (b as usize, mode == "CRD");
    let maps = if to_space {
        let channels = to[1];
        // The block's row, its column, and the channel, as parts of the input's channels.
        let plane = h * w;
        let [row, column, channel] = match crd {
            true => [b * plane, plane, b * b * plane],
            false => [b * channels * plane, channels * plane, plane],
        };
        vec![(n, c * plane), (channels, channel), (h, w), (b, row), (w, 1), (b, column)]
    } else {
        let (rows, columns) = (h / b, w / b);
        let (row, column, channel) = ((b, w), (b, 1), (c, h * w));
        let order = if crd { [channel, row, column] } else { [row, column, channel] };
        [&[(n, c * h * w)][..], &order, &[(rows, b * w), (columns, b)]].concat()
    };
    copy::run_as(cx, 0, 0, maps.into_iter().map(|(n, s)| Map::all(n, s)).collect(), &[], &to)
}

pub fn depth_to_space(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    blocks(cx, true)
}

pub fn space_to_depth(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    blocks(cx, false)
}

/// Zeros on one side of a diagonal.
pub fn trilu(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let k = if cx.has(1) { cx.ints(1).and_then(|k| k.first().copied()) } else { Some(0) };
    let (Some(k), Ok(upper), Some(size)) = (k, cx.node.op.attrs().bool("upper"), element(cx, 0)) else {
        return Ok(false);
    };
    let Some(x) = cx.args[0].clone() else { return Ok(false) };
    let [.., rows, columns] = *x.shape() else { return Ok(false) };
    let mut out = Out::new(cx.pool, x.dtype(), x.shape(), &cx.node.name)?;
    let n = columns * size;
    threads::chunks(out.bytes_mut(), n, TASK.div_ceil(n.max(1)), |i, to| {
        // The first column of the upper part of this row.
        let edge = k.saturating_add((i % rows) as i64);
        let edge = if upper { edge } else { edge.saturating_add(1) }.clamp(0, columns as i64) as usize * size;
        let from = &x.bytes()[i * n..(i + 1) * n];
        let (kept, zero) = if upper { (edge..n, 0..edge) } else { (0..edge, edge..n) };
        to[kept.clone()].copy_from_slice(&from[kept]);
        to[zero].fill(0);
    });
    cx.push(out.done());
    Ok(true)
}

pub fn reverse_sequence(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (Some(size), Some(lens), Some(x)) = (element(cx, 0), cx.ints(1), cx.args[0].clone()) else {
        return Ok(false);
    };
    let shape = x.shape();
    let axis = |name: &str| attrs.int(name).ok().and_then(|a| normalize_axis(a, shape.len(), name).ok());
    let (Some(batch), Some(time)) = (axis("batch_axis"), axis("time_axis")) else { return Ok(false) };
    let own = strides(shape);
    let inner = own[batch.max(time)];
    let n = inner * size;
    let mut out = Out::new(cx.pool, x.dtype(), shape, &cx.node.name)?;
    threads::chunks(out.bytes_mut(), n, TASK.div_ceil(n.max(1)), |i, to| {
        let at = i * inner;
        let (b, t) = (at / own[batch] % shape[batch], at / own[time] % shape[time]);
        let len = lens[b] as usize;
        let from = if t < len { len - 1 - t } else { t };
        let from = (at - t * own[time] + from * own[time]) * size;
        to.copy_from_slice(&x.bytes()[from..from + n]);
    });
    cx.push(out.done());
    Ok(true)
}

pub fn concat(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let rank = cx.shape(0).len();
    let axis = cx.node.op.attrs().int("axis").ok().and_then(|a| normalize_axis(a, rank, "axis").ok());
    let (Some(axis), Some(size), Some(shape)) = (axis, element(cx, 0), cx.out_shape(0)) else {
        return Ok(false);
    };
    let Some(first) = cx.args.first().and_then(Option::as_ref) else { return Ok(false) };
    let mut out = Out::new(cx.pool, first.dtype(), &shape, &cx.node.name)?;
    let inner = |s: &[usize]| s.get(axis..).map_or(0, |s| s.iter().product::<usize>()) * size;
    let row = inner(&shape);
    let mut at = 0;
    let parts: Vec<(usize, usize, &[u8])> = cx
        .args
        .iter()
        .flatten()
        .map(|x| {
            let n = inner(x.shape());
            at += n;
            (at - n, n, x.bytes())
        })
        .collect();
    if row > PIECE {
        // Few long rows: pieces of them are shared among the threads.
        let mut pieces = Vec::new();
        for i in 0..shape[..axis].iter().product::<usize>() {
            for &(at, n, from) in &parts {
                let all = (0..n).step_by(PIECE).map(|p| (p, PIECE.min(n - p)));
                pieces.extend(all.map(|(p, len)| (i * row + at + p, &from[i * n + p..][..len])));
            }
        }
        let to = Parts::new(out.bytes_mut());
        threads::each(pieces.len(), |i| {
            let (at, from) = pieces[i];
            // SAFETY: pieces are disjoint.
            unsafe { to.part(at, at + from.len()) }.copy_from_slice(from);
        });
    } else {
        rows_of(&parts, row, out.bytes_mut());
    }
    cx.push(out.done());
    Ok(true)
}

/// Writes the part into the memory of what it is inserted into, or into a copy where others hold that.
pub fn insert_slice(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(size), Some(shape)) = (copy::element(cx, 1), cx.out_shape(0)) else { return Ok(false) };
    let Some(part) = cx.args.get(1).cloned().flatten() else { return Ok(false) };
    let Ok(placed) = Placed::of(cx.node.op.attrs(), part.shape(), &shape) else { return Ok(false) };
    let mut out = match cx.args[0].take().map(|v| Out::reuse(v, part.dtype(), &shape)) {
        Some(Ok(out)) => out,
        Some(Err(v)) => {
            let mut out = Out::new(cx.pool, part.dtype(), &shape, &cx.node.name)?;
            out.bytes_mut().copy_from_slice(v.bytes());
            out
        }
        None => {
            let mut out = Out::new(cx.pool, part.dtype(), &shape, &cx.node.name)?;
            if cx.node.op.attrs().bool("unset") != Ok(true) {
                out.bytes_mut().fill(0);
            }
            out
        }
    };
    let (run, pitch, offset) = (placed.run * size, placed.pitch * size, placed.offset * size);
    if run > 0 {
        let rows = out.bytes_mut().chunks_mut(pitch).zip(part.bytes().chunks_exact(run));
        rows.for_each(|(to, from)| to[offset..offset + run].copy_from_slice(from));
    }
    cx.push(out.done());
    Ok(true)
}

/// Places of the results' rows in x, in elements.
type Rows<'a> = dyn Fn(usize) -> Option<usize> + Sync + 'a;

/// Makes output 0 of rows of `n` elements of x.
fn pick(cx: &mut NodeCx<'_>, shape: &[usize], n: usize, rows: &Rows<'_>) -> Result<bool, BackendError> {
    let (Some(size), Some(x)) = (element(cx, 0), cx.args[0].clone()) else { return Ok(false) };
    let mut y = Out::new(cx.pool, x.dtype(), shape, &cx.node.name)?;
    fn elements<const N: usize>(from: &[u8], to: &mut [u8], rows: &Rows<'_>) {
        let from = from.as_chunks::<N>().0;
        threads::chunks(to.as_chunks_mut::<N>().0, TASK / N, 1, |c, to| {
            for (i, y) in to.iter_mut().enumerate() {
                *y = rows(c * (TASK / N) + i).and_then(|p| from.get(p)).copied().unwrap_or([0; N]);
            }
        });
    }
    let (from, to) = (x.bytes(), y.bytes_mut());
    match (n, size) {
        (1, 1) => elements::<1>(from, to, rows),
        (1, 2) => elements::<2>(from, to, rows),
        (1, 4) => elements::<4>(from, to, rows),
        (1, 8) => elements::<8>(from, to, rows),
        _ => threads::chunks(to, n * size, TASK.div_ceil((n * size).max(1)), |i, to| match rows(i) {
            Some(p) => to.copy_from_slice(&from[p * size..(p + n) * size]),
            None => to.fill(0),
        }),
    }
    cx.push(y.done());
    Ok(true)
}

pub fn gather(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let shape = cx.shape(0).to_vec();
    let axis = attrs.int("axis").ok().and_then(|a| normalize_axis(a, shape.len(), "axis").ok());
    let batch = attrs.int("batch_dims").ok().and_then(|b| usize::try_from(b).ok());
    let (Some(axis), Some(batch), Some(out), Some(indices)) = (axis, batch, cx.out_shape(0), cx.ints(1))
    else {
        return Ok(false);
    };
    let (d, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let count: usize = cx.shape(1)[batch..].iter().product();
    // Rows between one batch and the next.
    let per_batch = shape[batch..axis].iter().product::<usize>();
    pick(cx, &out, inner, &|row| {
        let (o, k) = (row / count, row % count);
        let i = wrap_index(*indices.get(o / per_batch * count + k)?, d)?;
        Some((o * d + i) * inner)
    })
}

pub fn gather_nd(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let batch = cx.node.op.attrs().int("batch_dims").ok().and_then(|b| usize::try_from(b).ok());
    let (Some(batch), Some(out), Some(indices)) = (batch, cx.out_shape(0), cx.ints(1)) else {
        return Ok(false);
    };
    let Some((&depth, lead)) = cx.shape(1).split_last() else { return Ok(false) };
    let per_batch: usize = lead[batch..].iter().product();
    let own = strides(&shape);
    let slice: usize = shape[batch + depth..].iter().product();
    let batch_size: usize = shape[batch..].iter().product();
    pick(cx, &out, slice, &|t| {
        let tuple = indices.get(t * depth..(t + 1) * depth)?;
        let places = tuple.iter().enumerate();
        let place = places.map(|(d, &i)| Some(wrap_index(i, shape[batch + d])? * own[batch + d]));
        Some(place.sum::<Option<usize>>()? + t / per_batch.max(1) * batch_size)
    })
}

/// Integers of an index input as they are stored.
enum Indices<'a> {
    Long(&'a [i64]),
    Short(&'a [i32]),
}

pub fn gather_elements(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let axis = cx.node.op.attrs().int("axis").ok().and_then(|a| normalize_axis(a, shape.len(), "axis").ok());
    let (Some(axis), Some(size), Some(x)) = (axis, element(cx, 0), cx.args[0].clone()) else {
        return Ok(false);
    };
    let Some(v) = cx.args.get(1).cloned().flatten() else { return Ok(false) };
    let indices = match (v.dtype(), v.view::<i64>(), v.view::<i32>()) {
        (DType::I64, Some(v), _) => Indices::Long(v),
        (DType::I32, _, Some(v)) => Indices::Short(v),
        _ => return Ok(false),
    };
    let to = v.shape().to_vec();
    let mut y = Out::new(cx.pool, x.dtype(), &to, &cx.node.name)?;
    let job = Elements { indices, to: &to, own: strides(&shape), axis, d: shape[axis] };
    match size {
        1 => job.run::<1>(x.bytes(), y.bytes_mut()),
        2 => job.run::<2>(x.bytes(), y.bytes_mut()),
        4 => job.run::<4>(x.bytes(), y.bytes_mut()),
        _ => job.run::<8>(x.bytes(), y.bytes_mut()),
    }
    cx.push(y.done());
    Ok(true)
}

/// A `gather_elements`: for each element an index along one axis.
struct Elements<'a> {
    indices: Indices<'a>,
    to: &'a [usize],
    /// Strides of x.
    own: Vec<usize>,
    axis: usize,
    d: usize,
}

impl Elements<'_> {
    fn run<const N: usize>(&self, from: &[u8], to: &mut [u8]) {
        let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
        let last = self.to.len() - 1;
        let n = self.to[last];
        threads::chunks(to, n, TASK.div_ceil(8 * n.max(1)), |row, to| {
            let (mut base, mut rest) = (0, row);
            for d in (0..last).rev() {
                base += if d == self.axis { 0 } else { rest % self.to[d] * self.own[d] };
                rest /= self.to[d];
            }
            match &self.indices {
                Indices::Long(v) => self.row(from, base, &v[row * n..(row + 1) * n], to),
                Indices::Short(v) => self.row(from, base, &v[row * n..(row + 1) * n], to),
            }
        });
    }

    /// A row of the result. Elements of indices out of range, which checks refuse before, are zero.
    fn row<const N: usize, I: Copy + Into<i64>>(
        &self,
        from: &[[u8; N]],
        base: usize,
        v: &[I],
        to: &mut [[u8; N]],
    ) {
        let (d, along) = (self.d, self.own[self.axis]);
        let step = if self.axis + 1 == self.to.len() { 0 } else { self.own[self.to.len() - 1] };
        for (i, (y, &k)) in to.iter_mut().zip(v).enumerate() {
            let k = wrapped(k.into(), d);
            let place = if k < d { base + i * step + k * along } else { usize::MAX };
            *y = from.get(place).copied().unwrap_or([0; N]);
        }
    }
}

/// An index that may count from the end.
#[inline(always)]
fn wrapped(i: i64, d: usize) -> usize {
    (if i < 0 { i.wrapping_add(d as i64) } else { i }) as usize
}
