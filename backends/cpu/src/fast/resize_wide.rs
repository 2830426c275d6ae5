//! `resize` by interpolation of integers, and of regions beyond the tensor: in f64, some planes at a time.

use super::reduce_folds::Whole;
use super::sample::{Along, Neighbours, Resized, interpolated, order};
use super::simd::vectorized;
use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads;
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::sample::resize::RESIZE;
use kiln_ops::sample::resize::coord::{Filter, Mode};
use kiln_ops::util::strides;
use std::ops::Range;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(RESIZE, resize, covers)];

/// Elements that one task computes at least.
const TASK: usize = 1 << 12;

fn covers(t: &Types<'_>) -> bool {
    let interpolates = Filter::of(t.node.op.attrs()).is_ok_and(|f| !matches!(f.mode, Mode::Nearest(_)));
    interpolates && t.whole_bytes()
}

fn resize(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Ok(beyond) = cx.node.op.attrs().float("extrapolation") else { return Ok(false) };
    let (Some(resized), Some(dtype), Some(x)) = (Resized::of(cx), cx.out_dtype(0), cx.args[0].clone()) else {
        return Ok(false);
    };
    let job = Job::of(resized, beyond);
    if dtype.is_float() {
        let floats = cx.floats(0);
        return cx.write_floats(0, &job.shape, |y| {
            let store = |x: &[f64], y: &mut [f32]| y.iter_mut().zip(x).for_each(|(y, x)| *y = *x as f32);
            match (floats, x.dtype()) {
                (Some(x), _) => job.run(&x, |x| f64::from(*x), store, y),
                (_, DType::I8) => job.run(x.view().unwrap_or_default(), |x: &i8| f64::from(*x), store, y),
                (_, _) => job.run(x.view().unwrap_or_default(), |x: &u8| f64::from(*x), store, y),
            }
            Ok(())
        });
    }
    let mut out = Out::new(cx.pool, dtype, &job.shape, &cx.node.name)?;
    fn integers<T: Whole>(job: &Job, dtype: DType, x: &Val, y: &mut [T]) {
        let range = dtype.int_range().unwrap_or((0, 1));
        job.run(x.view().unwrap_or_default(), |x: &T| x.wide(), |x, y| rounded(x, range.0, range.1, y), y);
    }
    match dtype {
        DType::I8 => integers::<i8>(&job, dtype, &x, out.elems_mut()),
        DType::U8 | DType::Bool => integers::<u8>(&job, dtype, &x, out.elems_mut()),
        DType::I32 => integers::<i32>(&job, dtype, &x, out.elems_mut()),
        DType::I64 => integers::<i64>(&job, dtype, &x, out.elems_mut()),
        _ => return Ok(false),
    }
    cx.push(out.done());
    Ok(true)
}

vectorized! {
    /// Rounds to even, and cuts to a range.
    fn rounded<T: Whole>(x: &[f64], low: i64, high: i64, y: &mut [T]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = T::from_i64((x.round_ties_even() as i64).clamp(low, high));
        }
    }
}

/// A resize of planes, of dimensions along which nothing changes in front of them.
struct Job {
    shape: Vec<usize>,
    /// Number of planes, and the sizes of one, of the input and of the result.
    planes: usize,
    from: Vec<usize>,
    to: Vec<usize>,
    order: Vec<usize>,
    taps: Vec<Neighbours<f64>>,
    /// Elements of a plane that are outside of the region, and their value.
    outside: Vec<usize>,
    beyond: f64,
}

impl Job {
    fn of(r: Resized, beyond: f64) -> Job {
        let Resized { dims, shape, filter, axes } = r;
        let lead = axes.iter().take_while(|a| a.is_identity()).count();
        let (from, to, axes) = (dims[lead..].to_vec(), shape[lead..].to_vec(), &axes[lead..]);
        let missing = |d: usize| -> Vec<bool> {
            let axis = &axes[d];
            (0..axis.output).map(|o| !axis.is_identity() && filter.taps(axis, o).is_none()).collect()
        };
        let missing: Vec<Vec<bool>> = (0..to.len()).map(missing).collect();
        let own = strides(&to);
        let is_outside = |i: &usize| (0..to.len()).any(|d| missing[d][i / own[d] % to[d]]);
        let outside = match missing.iter().flatten().any(|m| *m) {
            true => (0..to.iter().product()).filter(is_outside).collect(),
            false => Vec::new(),
        };
        let taps = axes.iter().map(|a| a.neighbours(&filter, |w| w)).collect();
        let order = order(&from, &to, axes);
        Job { planes: dims[..lead].iter().product(), shape, order, taps, outside, beyond, from, to }
    }

    fn run<T: Sync, R: Send>(
        &self,
        x: &[T],
        load: impl Fn(&T) -> f64 + Sync,
        store: impl Fn(&[f64], &mut [R]) + Sync,
        y: &mut [R],
    ) {
        let [n, m] = [&self.from, &self.to].map(|s| s.iter().product::<usize>());
        if m == 0 || self.planes == 0 {
            return;
        }
        let many = (TASK / m).clamp(1, self.planes);
        let order: Vec<usize> = self.order.iter().map(|d| d + 1).collect();
        let points = Checkpoints::here();
        threads::chunks(y, many * m, 1, |i, y| {
            points.pass();
            let planes: Range<usize> = i * many..self.planes.min((i + 1) * many);
            let wide: Vec<f64> = x[planes.start * n..planes.end * n].iter().map(&load).collect();
            let mut made = vec![0f64; planes.len() * m];
            let with = |shape: &[usize]| [&[planes.len()], shape].concat();
            interpolated(&wide, &with(&self.from), &with(&self.to), &order, |d| &self.taps[d - 1], &mut made);
            for plane in made.chunks_exact_mut(m) {
                self.outside.iter().for_each(|&i| plane[i] = self.beyond);
            }
            store(&made, y);
        });
    }
}
