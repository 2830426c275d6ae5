//! `max_pool_indices`: the greatest element of every window, and its place.

use super::element::{Element, has, with_element};
use super::windows::{Spatial, spatial, volume};
use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads::{self, Parts};
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::{DType, Elems, Tensor};
use kiln_ops::conv::window::{self, Axis};
use kiln_ops::pool::{MAX_POOL_INDICES, geometry};

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(MAX_POOL_INDICES, run, covers)];

/// Taps that one task visits at least.
const TASK: usize = 16 << 10;

fn covers(t: &Types<'_>) -> bool {
    t.input(0).is_some_and(|x| has(x.dtype))
}

/// The element of a window without elements: the least of the type.
fn least(t: DType) -> Option<Vec<u8>> {
    let elems = match t.int_range() {
        Some((low, _)) => Elems::I(vec![low]),
        None => Elems::F(vec![f64::NEG_INFINITY]),
    };
    Some(Tensor::from_elems(t, &[1], &elems)?.bytes().to_vec())
}

fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (Some(x), Some(shape), Ok(order)) = (cx.args[0].clone(), cx.out_shape(0), attrs.int("storage_order"))
    else {
        return Ok(false);
    };
    let axes = geometry(attrs, &window::dims(x.shape())).ok().and_then(|a| window::numbers(&a));
    let (Some(axes), Some(fill)) = (axes.and_then(spatial), least(x.dtype())) else { return Ok(false) };
    let mut y = Out::new(cx.pool, x.dtype(), &shape, &cx.node.name)?;
    let mut at = Out::new(cx.pool, DType::I64, &shape, "places of maxima")?;
    with_element!(x.dtype(), T => {
        let fill = bytemuck::try_cast_slice::<u8, T>(&fill).ok().and_then(|f| f.first().copied());
        let fill = fill.unwrap_or(T::from_i64(0));
        planes::<T>(&x, &axes, order == 1, fill, y.elems_mut(), at.elems_mut());
    }, else return Ok(false));
    cx.push(y.done());
    cx.push(at.done());
    Ok(true)
}

/// Taps of a window along a dimension: the place of the first, their number, and places from one to the next.
#[derive(Clone, Copy)]
struct Taps {
    first: usize,
    count: usize,
    step: usize,
}

impl Taps {
    /// The taps of all windows along a dimension.
    fn all(axis: &Axis<i64>) -> Vec<Taps> {
        let of = |window: i64| {
            let mut taps = axis.taps(window).map(|(_, place)| place as usize);
            let first = taps.next();
            Taps {
                first: first.unwrap_or(0),
                count: usize::from(first.is_some()) + taps.count(),
                step: axis.dilation as usize,
            }
        };
        (0..axis.output).map(of).collect()
    }
}

fn planes<T: Element>(x: &Val, axes: &Spatial, columns: bool, fill: T, y: &mut [T], at: &mut [i64]) {
    let Some(x) = x.view::<T>() else { return };
    let (inputs, windows) = (volume(axes, |a| a.input), volume(axes, |a| a.output));
    let taps = axes.each_ref().map(Taps::all);
    let sizes = axes.each_ref().map(|a| a.input as usize);
    let work = windows.saturating_mul(volume(axes, |a| a.kernel));
    let points = Checkpoints::here();
    let at = Parts::new(at);
    threads::chunks(y, windows, TASK.div_ceil(work.max(1)), |plane, y| {
        points.pass();
        // SAFETY: each plane belongs to one task.
        let at = unsafe { at.part(plane * windows, (plane + 1) * windows) };
        let x = &x[plane * inputs..(plane + 1) * inputs];
        let wide = taps[2].len();
        let lines = taps[0].iter().flat_map(|a| taps[1].iter().map(move |b| (a, b)));
        for ((a, b), (y, at)) in lines.zip(y.chunks_mut(wide).zip(at.chunks_mut(wide))) {
            for (c, (y, at)) in taps[2].iter().zip(y.iter_mut().zip(at)) {
                (*y, *at) = match greatest(x, sizes, [*a, *b, *c]) {
                    None => (fill, -1),
                    Some((top, p)) => {
                        let within = if columns { by_columns(p, sizes) } else { p };
                        (top, (plane * inputs + within) as i64)
                    }
                };
            }
        }
    });
}

/// The place of an element where the first dimension has neighbours.
fn by_columns(p: usize, [deep, high, wide]: [usize; 3]) -> usize {
    let line = p / wide;
    (p % wide * high + line % high) * deep + line / high
}

/// The first of the greatest elements of a window, and its place in the plane; `None` without elements.
#[inline(always)]
fn greatest<T: Element>(x: &[T], [_, high, wide]: [usize; 3], [a, b, c]: [Taps; 3]) -> Option<(T, usize)> {
    let first = (a.first * high + b.first) * wide + c.first;
    let mut best = (a.count * b.count * c.count > 0).then(|| (x[first].key(), first))?;
    for i in 0..a.count {
        for j in 0..b.count {
            let line = ((a.first + i * a.step) * high + b.first + j * b.step) * wide + c.first;
            for k in 0..c.count {
                let p = line + k * c.step;
                let key = x[p].key();
                best = if key > best.0 { (key, p) } else { best };
            }
        }
    }
    Some((x[best.1], best.1))
}
