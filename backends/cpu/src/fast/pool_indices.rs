//! `max_pool_indices`: the greatest element of every window, and its place.

use super::element::{Element, has, with_element};
use super::windows::{Spatial, spatial, volume};
use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads::{self, Parts};
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::{DType, Elems, Tensor};
use kiln_ops::conv::window;
use kiln_ops::pool::{MAX_POOL_INDICES, geometry};

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(MAX_POOL_INDICES, run, covers)];

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

fn planes<T: Element>(x: &Val, axes: &Spatial, columns: bool, fill: T, y: &mut [T], at: &mut [i64]) {
    let Some(x) = x.view::<T>() else { return };
    let (inputs, windows) = (volume(axes, |a| a.input), volume(axes, |a| a.output));
    let [a, b, c] = axes;
    let [_, nb, nc] = [a, b, c].map(|a| a.input as usize);
    let points = Checkpoints::here();
    let at = Parts::new(at);
    threads::chunks(y, windows, 1, |plane, y| {
        points.pass();
        // SAFETY: each plane belongs to one task.
        let at = unsafe { at.part(plane * windows, (plane + 1) * windows) };
        let x = &x[plane * inputs..(plane + 1) * inputs];
        for (w, (y, at)) in y.iter_mut().zip(at).enumerate() {
            let of = [w as i64 / c.output / b.output, w as i64 / c.output % b.output, w as i64 % c.output];
            let mut best: Option<(T::Key, [usize; 3])> = None;
            for (_, i) in a.taps(of[0]) {
                for (_, j) in b.taps(of[1]) {
                    for (_, k) in c.taps(of[2]) {
                        let p = [i as usize, j as usize, k as usize];
                        let key = x[(p[0] * nb + p[1]) * nc + p[2]].key();
                        if best.is_none_or(|(top, _)| key > top) {
                            best = Some((key, p));
                        }
                    }
                }
            }
            (*y, *at) = match best {
                None => (fill, -1),
                Some((_, p)) => {
                    let within = match columns {
                        false => (p[0] * nb + p[1]) * nc + p[2],
                        true => (p[2] * nb + p[1]) * a.input as usize + p[0],
                    };
                    (x[(p[0] * nb + p[1]) * nc + p[2]], (plane * inputs + within) as i64)
                }
            };
        }
    });
}
