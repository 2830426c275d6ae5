//! `resize` by interpolation of integers, and of regions beyond the tensor: in f64, along one dimension after another.

use super::made::fill;
use super::reduce::Lines;
use super::sample::{Resized, numbers};
use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::expr::Num;
use kiln_ops::sample::resize::RESIZE;
use kiln_ops::sample::resize::coord::{Filter, Mode};
use kiln_ops::util::strides;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(RESIZE, resize, covers)];

/// Elements that one task computes at least.
const TASK: usize = 1 << 12;

fn covers(t: &Types<'_>) -> bool {
    let interpolates = Filter::of(t.node.op.attrs()).is_ok_and(|f| !matches!(f.mode, Mode::Nearest(_)));
    interpolates && t.whole_bytes()
}

/// Elements and weights of each element of a dimension; `None` outside of the region.
type Taps = Vec<Option<Vec<(usize, f64)>>>;

fn resize(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let beyond = cx.node.op.attrs().float("extrapolation");
    let (Some(resized), Some(mut now), Ok(beyond), Some(dtype)) =
        (Resized::of(cx), numbers(cx, 0), beyond, cx.out_dtype(0))
    else {
        return Ok(false);
    };
    let Resized { dims, shape, filter, axes } = resized;
    let taps: Vec<Taps> = axes
        .iter()
        .map(|a| match a.is_identity() {
            true => (0..a.output).map(|o| Some(vec![(o, 1.0)])).collect(),
            false => (0..a.output).map(|o| filter.taps(a, o)).collect(),
        })
        .collect();
    let mut sizes = dims;
    for d in (0..sizes.len()).filter(|&d| !axes[d].is_identity()) {
        let lines = Lines::of(&sizes, d, d + 1);
        sizes[d] = shape[d];
        now = along(&now, lines, &taps[d]);
    }
    let own = strides(&shape);
    let outside = |i: usize| taps.iter().zip(&own).zip(&shape).any(|((t, s), n)| t[i / s % n].is_none());
    let range = dtype.int_range();
    fill(cx, &shape, |i| {
        let x = if outside(i) { beyond } else { now[i] };
        match range {
            Some((low, high)) => Num::I((x.round_ties_even() as i64).clamp(low, high)),
            None => Num::F(x),
        }
    })
}

/// Interpolates along one dimension; 0 outside of the region.
fn along(x: &[f64], l: Lines, taps: &Taps) -> Vec<f64> {
    let mut y = vec![0f64; l.outer * taps.len() * l.inner];
    let points = Checkpoints::here();
    threads::chunks(&mut y, l.inner, TASK.div_ceil(l.inner.max(1)), |row, y| {
        points.pass();
        let (o, k) = (row / taps.len(), row % taps.len());
        for &(i, w) in taps[k].iter().flatten() {
            let from = &x[(o * l.n + i) * l.inner..][..l.inner];
            y.iter_mut().zip(from).for_each(|(y, x)| *y += w * x);
        }
    });
    y
}
