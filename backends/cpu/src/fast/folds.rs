//! `col2im`: columns of blocks added up to an image, plane by plane.

use super::element::{Element, has, with_element};
use super::windows::{Spatial, spatial, volume};
use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads;
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::Dim;
use kiln_ops::conv::col2im::{COL2IM, geometry};
use kiln_ops::conv::window::{self, Axis};
use std::ops::Range;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(COL2IM, col2im, covers)];

fn covers(t: &Types<'_>) -> bool {
    t.input(0).is_some_and(|x| has(x.dtype) || x.dtype.is_float())
}

/// The windows of which a tap is on an element.
pub fn within(a: &Axis<i64>, tap: i64) -> Range<usize> {
    let before = a.begin - tap * a.dilation;
    let first = if before > 0 { (before + a.stride - 1) / a.stride } else { 0 };
    let end = if a.input + before > 0 { (a.input - 1 + before) / a.stride + 1 } else { 0 };
    let end = end.clamp(0, a.output);
    first.min(end) as usize..end as usize
}

/// The index of the element under a tap of a window that [`within`] has.
pub fn place(a: &Axis<i64>, window: usize, tap: i64) -> usize {
    (window as i64 * a.stride + tap * a.dilation - a.begin).max(0) as usize
}

fn col2im(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(x), Some(shape), Some(block)) = (cx.args[0].clone(), cx.out_shape(0), cx.ints(2)) else {
        return Ok(false);
    };
    let block: Vec<Dim> = block.into_iter().map(Dim::new).collect();
    let axes = geometry(cx.node.op.attrs(), &window::dims(&shape[2..]), &block).ok();
    let axes = axes.and_then(|a| window::numbers(&a));
    let Some(axes) = axes else { return Ok(false) };
    let Some(axes) = spatial(axes) else { return Ok(false) };
    if let Some(x) = cx.floats(0) {
        return cx.write_floats(0, &shape, |y| {
            add_up(&x, &axes, y, |a, b| a + b, 0.0);
            Ok(())
        });
    }
    fn integers<T: Element>(x: &Val, axes: &Spatial, y: &mut [T]) {
        let Some(x) = x.view::<T>() else { return };
        let wide: Vec<i64> = x.iter().map(|x| x.to_i64()).collect();
        let mut sums = vec![0i64; y.len()];
        add_up(&wide, axes, &mut sums, i64::wrapping_add, 0);
        y.iter_mut().zip(sums).for_each(|(y, s)| *y = T::from_i64(s));
    }
    let mut out = Out::new(cx.pool, x.dtype(), &shape, &cx.node.name)?;
    with_element!(x.dtype(), T => integers::<T>(&x, &axes, out.elems_mut()), else return Ok(false));
    cx.push(out.done());
    Ok(true)
}

/// Adds the blocks of each plane, tap by tap: windows along the last dimension are side by side in x.
fn add_up<T: Copy + Send + Sync>(
    x: &[T],
    axes: &Spatial,
    y: &mut [T],
    add: impl Fn(T, T) -> T + Sync,
    zero: T,
) {
    let [image, taps, windows] =
        [volume(axes, |a| a.input), volume(axes, |a| a.kernel), volume(axes, |a| a.output)];
    let [a, b, c] = axes;
    let points = Checkpoints::here();
    threads::chunks(y, image, 1, |plane, y| {
        y.fill(zero);
        let x = &x[plane * taps * windows..];
        for tap in 0..taps {
            points.pass();
            let at = tap as i64;
            let [ka, kb, kc] = [at / c.kernel / b.kernel, at / c.kernel % b.kernel, at % c.kernel];
            let along = within(c, kc);
            for oa in within(a, ka) {
                for ob in within(b, kb) {
                    let row = (place(a, oa, ka) * b.input as usize + place(b, ob, kb)) * c.input as usize;
                    let from = tap * windows + (oa * b.output as usize + ob) * c.output as usize;
                    if along.is_empty() {
                        continue;
                    }
                    let (x, y) =
                        (&x[from + along.start..from + along.end], &mut y[row + place(c, along.start, kc)..]);
                    match c.stride {
                        1 => y.iter_mut().zip(x).for_each(|(y, x)| *y = add(*y, *x)),
                        step => {
                            let to = y.iter_mut().step_by(step as usize);
                            to.zip(x).for_each(|(y, x)| *y = add(*y, *x));
                        }
                    }
                }
            }
        }
    });
}
