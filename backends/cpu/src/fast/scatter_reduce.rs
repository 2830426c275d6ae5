//! Updates of elements at given places, replaced or combined, in the order of the updates: `scatter_elements` and `scatter_nd` with a
//! reduction, `max_unpool`; and `kv_cache_update`, whose rows are whole.

use super::copy::element;
use super::element::with_element;
use super::scatter::started;
use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads::{self, Parts};
use crate::value::{Out, Val};
use bytemuck::Pod;
use half::{bf16, f16};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::attention::kv_cache::KV_CACHE_UPDATE;
use kiln_ops::conv::window;
use kiln_ops::indices::wrap_index;
use kiln_ops::pool::max_unpool::{MAX_UNPOOL, geometry};
use kiln_ops::scatter::{SCATTER_ELEMENTS, SCATTER_ND};
use kiln_ops::util::{for_each_index, strides};

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[
    kernel(SCATTER_ELEMENTS, elements, covers),
    kernel(SCATTER_ND, nd, covers),
    kernel(MAX_UNPOOL, max_unpool, |t| t.whole_bytes()),
    kernel(KV_CACHE_UPDATE, kv_cache, |t| t.whole_bytes()),
];

fn covers(t: &Types<'_>) -> bool {
    t.whole_bytes() && t.node.op.attrs().str("reduction") != Ok("none")
}

/// The way in which an update and what is there become one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Replace,
    Add,
    Multiply,
    Max,
    Min,
}

impl How {
    fn of(cx: &NodeCx<'_>) -> How {
        match cx.node.op.attrs().str("reduction") {
            Ok("add") => How::Add,
            Ok("mul") => How::Multiply,
            Ok("max") => How::Max,
            Ok("min") => How::Min,
            _ => How::Replace,
        }
    }
}

/// Elements that are combined.
trait Combined: Pod + Send + Sync {
    fn sum(self, new: Self) -> Self;
    fn product(self, new: Self) -> Self;
    fn greater(self, new: Self) -> Self;
    fn lesser(self, new: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Combined for $t {
            #[inline(always)]
            fn sum(self, new: $t) -> $t {
                self.wrapping_add(new)
            }
            #[inline(always)]
            fn product(self, new: $t) -> $t {
                self.wrapping_mul(new)
            }
            #[inline(always)]
            fn greater(self, new: $t) -> $t {
                self.max(new)
            }
            #[inline(always)]
            fn lesser(self, new: $t) -> $t {
                self.min(new)
            }
        }
    )*};
}
integers!(i8, u8, i32, i64);

/// One of two elements; a NaN, whichever it is.
#[inline(always)]
fn pick<T>([own, new]: [T; 2], [a, b]: [f32; 2], first: bool) -> T {
    let own_stays = if a.is_nan() || b.is_nan() { a.is_nan() } else { first };
    if own_stays { own } else { new }
}

macro_rules! floats {
    ($($t:ty, $wide:expr, $narrow:expr);*) => {$(
        impl Combined for $t {
            #[inline(always)]
            fn sum(self, new: $t) -> $t {
                $narrow($wide(self) + $wide(new))
            }
            #[inline(always)]
            fn product(self, new: $t) -> $t {
                $narrow($wide(self) * $wide(new))
            }
            #[inline(always)]
            fn greater(self, new: $t) -> $t {
                let all: [f32; 2] = [$wide(self), $wide(new)];
                pick([self, new], all, all[0] >= all[1])
            }
            #[inline(always)]
            fn lesser(self, new: $t) -> $t {
                let all: [f32; 2] = [$wide(self), $wide(new)];
                pick([self, new], all, all[0] <= all[1])
            }
        }
    )*};
}
floats!(f32, f32::from, f32::from; f16, f16::to_f32, f16::from_f32; bf16, bf16::to_f32, bf16::from_f32);

/// Writes update `i`, a run of `run` elements, to the elements from `targets[i]` on.
fn apply<T: Combined>(y: &mut [T], targets: &[usize], run: usize, updates: &Val, how: How) {
    let Some(u) = updates.view::<T>() else { return };
    match how {
        How::Replace => combine(y, targets, run, u, |_, new| new),
        How::Add => combine(y, targets, run, u, T::sum),
        How::Multiply => combine(y, targets, run, u, T::product),
        How::Max => combine(y, targets, run, u, T::greater),
        How::Min => combine(y, targets, run, u, T::lesser),
    }
}

/// Each thread has a part of the result, for which it goes through all updates in their order.
fn combine<T: Combined>(y: &mut [T], targets: &[usize], run: usize, u: &[T], f: impl Fn(T, T) -> T + Sync) {
    if targets.is_empty() || run == 0 {
        return;
    }
    let work = targets.len() * run;
    let tasks = if work < 1 << 14 { 1 } else { threads::count() };
    let points = Checkpoints::here();
    let size = y.len().div_ceil(tasks);
    threads::chunks(y, size, 1, |c, y| {
        points.pass();
        let from = c * size;
        let to = from + y.len();
        if run == 1 {
            for (&t, &u) in targets.iter().zip(u) {
                if let Some(y) = y.get_mut(t.wrapping_sub(from)) {
                    *y = f(*y, u);
                }
            }
            return;
        }
        for (&t, u) in targets.iter().zip(u.chunks_exact(run)) {
            let (low, high) = (t.max(from), (t + run).min(to));
            if low < high {
                let own = &mut y[low - from..high - from];
                own.iter_mut().zip(&u[low - t..high - t]).for_each(|(y, &u)| *y = f(*y, u));
            }
        }
    });
}

/// Finishes a scatter whose targets are known, in memory of x or a copy.
fn finish(cx: &mut NodeCx<'_>, targets: &[usize], run: usize) -> Result<bool, BackendError> {
    let (Some(updates), how) = (cx.args[2].clone(), How::of(cx)) else { return Ok(false) };
    let dtype = updates.dtype();
    if !with_element!(dtype, T => size_of::<T>() > 0, else false) {
        return Ok(false);
    }
    let Some(mut out) = started(cx)? else { return Ok(false) };
    with_element!(dtype, T => apply::<T>(out.elems_mut(), targets, run, &updates, how), else {});
    cx.push(out.done());
    Ok(true)
}

fn elements(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let (Some(axis), Some(indices)) = (cx.axis("axis", shape.len()), cx.ints(1)) else { return Ok(false) };
    let own = strides(&shape);
    let mut targets = Vec::with_capacity(indices.len());
    let Some((&n, lead)) = cx.shape(1).split_last() else { return Ok(false) };
    let (size, step, along) = (shape[axis], own[axis], usize::from(axis + 1 < shape.len()));
    for_each_index(lead, |at| {
        let places = at.iter().zip(&own).enumerate();
        let base: usize = places.map(|(d, (i, s))| if d == axis { 0 } else { i * s }).sum();
        let row = &indices[targets.len()..][..n];
        let place = |(i, &p): (usize, &i64)| base + wrap_index(p, size).unwrap_or(0) * step + i * along;
        targets.extend(row.iter().enumerate().map(place));
    });
    finish(cx, &targets, 1)
}

fn nd(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let shape = cx.shape(0).to_vec();
    let (Some(indices), Some(&depth)) = (cx.ints(1), cx.shape(1).last()) else { return Ok(false) };
    let tuples: usize = cx.shape(1)[..cx.shape(1).len() - 1].iter().product();
    let own = strides(&shape);
    let place = |(d, &i): (usize, &i64)| wrap_index(i, shape[d]).unwrap_or(0) * own[d];
    let target = |t: usize| indices[t * depth..(t + 1) * depth].iter().enumerate().map(place).sum();
    let targets: Vec<usize> = (0..tuples).map(target).collect();
    finish(cx, &targets, shape[depth..].iter().product())
}

fn max_unpool(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(x), Some(indices), Some(shape)) = (cx.args[0].clone(), cx.ints(1), cx.out_shape(0)) else {
        return Ok(false);
    };
    let axes = geometry(cx.node.op.attrs(), &window::dims(x.shape())).ok();
    let Some(axes) = axes.and_then(|a| window::numbers(&a)) else { return Ok(false) };
    let pooled: Vec<usize> =
        x.shape()[..2].iter().copied().chain(axes.iter().map(|a| a.input as usize)).collect();
    let (from, to) = (strides(&pooled), strides(&shape));
    // An element of a pooled tensor that the result lacks is left out.
    let place = |i: i64| -> Option<usize> {
        let mut rest = usize::try_from(i).ok()?;
        let mut at = 0;
        let sizes = pooled.iter().zip(&shape);
        for ((from, to), (size, kept)) in from.iter().zip(&to).zip(sizes) {
            let index = rest.checked_div(*from)?;
            (index < *size && index < *kept).then_some(())?;
            rest -= index * from;
            at += index * to;
        }
        Some(at)
    };
    let mut out = Out::new(cx.pool, x.dtype(), &shape, &cx.node.name)?;
    out.bytes_mut().fill(0);
    let Some(size) = element(cx, 0) else { return Ok(false) };
    let (y, x) = (out.bytes_mut(), x.bytes());
    for (&i, x) in indices.iter().zip(x.chunks_exact(size)) {
        if let Some(at) = place(i) {
            y[at * size..(at + 1) * size].copy_from_slice(x);
        }
    }
    cx.push(out.done());
    Ok(true)
}

fn kv_cache(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (shape, update) = (cx.shape(0).to_vec(), cx.shape(1).to_vec());
    let (Some(axis), Some(u), Some(size)) =
        (cx.axis("axis", shape.len()), cx.args[1].clone(), element(cx, 0))
    else {
        return Ok(false);
    };
    let starts = if cx.has(2) { cx.ints(2) } else { None };
    let circular = cx.node.op.attrs().str("mode") == Ok("circular");
    let (len, new) = (shape[axis], update[axis]);
    let row = shape[axis + 1..].iter().product::<usize>() * size;
    let outer: usize = shape[..axis].iter().product();
    let per_entry = outer.checked_div(shape[0]).unwrap_or(1).max(1);
    let Some(mut out) = started(cx)? else { return Ok(false) };
    let (bytes, parts) = (u.bytes(), Parts::new(out.bytes_mut()));
    threads::ranges(outer, 1 + (1 << 14) / (new * row).max(1), |range| {
        for o in range {
            // SAFETY: each range has slices of its own.
            let cache = unsafe { parts.part(o * len * row, (o + 1) * len * row) };
            let start = starts.as_ref().map_or(0, |v| v[o / per_entry]);
            for s in 0..new {
                let to = start.saturating_add(s as i64);
                let to = if circular && len > 0 { to.rem_euclid(len as i64) } else { to };
                if let Some(to) = usize::try_from(to).ok().filter(|&t| t < len) {
                    cache[to * row..(to + 1) * row].copy_from_slice(&bytes[(o * new + s) * row..][..row]);
                }
            }
        }
    });
    cx.push(out.done());
    Ok(true)
}
