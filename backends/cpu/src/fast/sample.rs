//! `resize` and `grid_sample`: interpolation between elements.

use super::copy::{self, Map};
use super::element::with_element;
use super::lines::Lines;
use super::simd::vectorized;
use super::{NodeCx, Types};
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::sample::grid_sample::Sampler;
use kiln_ops::sample::resize::coord::{Filter, Mode, ResizeAxis};
use kiln_ops::sample::resize::plan::{Given, axes};
use kiln_ops::sample::{self, Interpolation, Padding};
use kiln_ops::util::strides;
use std::ops::{Add, Mul};

/// Elements that one task computes at least.
const TASK: usize = 8 << 10;

/// Whether the kernel covers a `resize`: nearest elements of any type, other interpolation of floats inside of the tensor.
pub fn covers_resize(t: &Types<'_>) -> bool {
    let Ok(filter) = Filter::of(t.node.op.attrs()) else { return false };
    match filter.mode {
        Mode::Nearest(_) => {
            t.input(0).is_some_and(|x| with_element!(x.dtype, T => size_of::<T>() > 0, else false))
        }
        _ => t.all_real() && t.node.op.attrs().str("coord") != Ok("tf_crop_and_resize"),
    }
}

/// A `resize` at the shapes of a run.
pub struct Resized {
    /// Sizes of the input.
    pub dims: Vec<usize>,
    /// Sizes of the output.
    pub shape: Vec<usize>,
    /// The weights of neighbours.
    pub filter: Filter,
    /// The mapping of each dimension.
    pub axes: Vec<ResizeAxis>,
}

impl Resized {
    /// The node's; none where its sizes are not known, or an input cannot be read.
    pub fn of(cx: &NodeCx<'_>) -> Option<Resized> {
        let attrs = cx.node.op.attrs();
        let (dims, shape, filter) = (cx.shape(0).to_vec(), cx.out_shape(0)?, Filter::of(attrs).ok()?);
        let sizes = if cx.has(3) { cx.ints(3) } else { None };
        let given = Given { roi: numbers(cx, 1), scales: numbers(cx, 2), sizes };
        let axes = axes(attrs, &dims, &shape, &given).ok()?;
        Some(Resized { dims, shape, filter, axes })
    }
}

/// All elements of an input.
fn numbers(cx: &NodeCx<'_>, input: usize) -> Option<Vec<f64>> {
    Some(cx.args.get(input)?.as_ref()?.tensor().ok()?.to_f64())
}

pub fn resize(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let Some(Resized { dims, shape, filter, axes }) = Resized::of(cx) else { return Ok(false) };
    if let Mode::Nearest(rounding) = filter.mode {
        let own = strides(&dims);
        let place = |d: usize, o: usize| filter.nearest(rounding, &axes[d], o);
        let map = |d: usize| match axes[d].is_identity() {
            true => Map::all(shape[d], own[d]),
            false => Map::indices(own[d], (0..shape[d]).map(|o| place(d, o))),
        };
        let extrapolation = cx.node.op.attrs().float("extrapolation").unwrap_or(0.0);
        let Some(t) = cx.out_dtype(0) else { return Ok(false) };
        let fill = kiln_ir::Tensor::from_elems(t, &[1], &kiln_ir::Elems::F(vec![extrapolation]));
        let fill = fill.map(|t| t.bytes().to_vec()).unwrap_or_default();
        return copy::run(cx, 0, 0, (0..dims.len()).map(map).collect(), &fill);
    }
    let Some(x) = cx.floats(0) else { return Ok(false) };
    cx.write_floats(0, &shape, |y| {
        let taps: Vec<_> = axes.iter().map(|a| a.neighbours(&filter, |w| w as f32)).collect();
        interpolated(&x, &dims, &shape, &order(&dims, &shape, &axes), |d| &taps[d], y);
        Ok(())
    })
}

/// The dimensions along which something changes, that which shrinks most first.
pub fn order(dims: &[usize], shape: &[usize], axes: &[ResizeAxis]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..dims.len()).filter(|&d| !axes[d].is_identity()).collect();
    let ratio = |d: usize| shape[d] as f64 / dims[d].max(1) as f64;
    order.sort_by(|&a, &b| ratio(a).total_cmp(&ratio(b)));
    order
}

/// Elements and weights of each element of a dimension; none outside of the region.
pub type Neighbours<T> = Vec<Vec<(usize, T)>>;

/// Neighbours along a dimension.
pub trait Along {
    /// The elements and weights of each element of the result; nothing where all stay as they are.
    fn neighbours<T>(&self, filter: &Filter, weight: impl Fn(f64) -> T) -> Neighbours<T>;
}

impl Along for ResizeAxis {
    fn neighbours<T>(&self, filter: &Filter, weight: impl Fn(f64) -> T) -> Neighbours<T> {
        if self.is_identity() {
            return Vec::new();
        }
        let of =
            |o| filter.taps(self, o).unwrap_or_default().into_iter().map(|(i, w)| (i, weight(w))).collect();
        (0..self.output).map(of).collect()
    }
}

/// Interpolates along some dimensions, one after the other.
pub fn interpolated<'a, T: Real + 'a>(
    x: &[T],
    dims: &[usize],
    shape: &[usize],
    order: &[usize],
    taps: impl Fn(usize) -> &'a Neighbours<T>,
    y: &mut [T],
) {
    let Some((&last, others)) = order.split_last() else { return y.copy_from_slice(x) };
    let mut now = dims.to_vec();
    let mut from: Option<Vec<T>> = None;
    for &d in others {
        let lines = Lines::of(&now, d, d + 1);
        now[d] = shape[d];
        let mut to = vec![T::default(); now.iter().product()];
        along(from.as_deref().unwrap_or(x), lines, taps(d), &mut to);
        from = Some(to);
    }
    along(from.as_deref().unwrap_or(x), Lines::of(&now, last, last + 1), taps(last), y);
}

/// Numbers that are interpolated.
pub trait Real: Copy + Default + Send + Sync + Add<Output = Self> + Mul<Output = Self> {
    /// Half of the number.
    fn half(self) -> Self;
}

impl Real for f32 {
    fn half(self) -> f32 {
        self / 2.0
    }
}

impl Real for f64 {
    fn half(self) -> f64 {
        self / 2.0
    }
}

/// Interpolates along one dimension.
fn along<T: Real>(x: &[T], l: Lines, taps: &Neighbours<T>, y: &mut [T]) {
    let points = Checkpoints::here();
    let m = taps.len();
    if l.inner == 1 {
        let two: Option<Vec<[(usize, T); 2]>> = taps
            .iter()
            .map(|t| match t[..] {
                [a, b] => Some([a, b]),
                // An element whose neighbour has no weight counts half twice: exact, and without a branch.
                [(i, w)] => Some([(i, w.half()); 2]),
                _ => None,
            })
            .collect();
        threads::chunks(y, m, TASK.div_ceil(m.max(1)), |row, y| {
            points.pass();
            let x = &x[row * l.n..(row + 1) * l.n];
            match &two {
                Some(two) => y.iter_mut().zip(two).for_each(|(y, [a, b])| *y = x[a.0] * a.1 + x[b.0] * b.1),
                None => y.iter_mut().zip(taps).for_each(|(y, t)| {
                    *y = t.iter().fold(T::default(), |sum, &(i, w)| sum + x[i] * w);
                }),
            }
        });
        return;
    }
    threads::chunks(y, l.inner, TASK.div_ceil(l.inner), |row, y| {
        points.pass();
        let (o, i) = (row / m, row % m);
        combined(&x[o * l.n * l.inner..(o + 1) * l.n * l.inner], &taps[i], y);
    });
}

vectorized! {
    /// Σ weight·row.
    fn combined<T: Real>(x: &[T], taps: &[(usize, T)], y: &mut [T]) {
        let n = y.len();
        match taps {
            [(i, v), (j, w)] => {
                let (a, b) = (&x[i * n..(i + 1) * n], &x[j * n..(j + 1) * n]);
                for (y, (a, b)) in y.iter_mut().zip(a.iter().zip(b)) {
                    *y = *a * *v + *b * *w;
                }
            }
            _ => {
                y.fill(T::default());
                for &(i, w) in taps {
                    for (y, x) in y.iter_mut().zip(&x[i * n..(i + 1) * n]) {
                        *y = *y + *x * w;
                    }
                }
            }
        }
    }
}

/// Elements around one coordinate of one dimension, with weights.
pub struct Taps {
    pub at: [Option<usize>; 4],
    pub weight: [f32; 4],
    pub len: usize,
}

impl Taps {
    /// As [`Sampler::taps`] says, without memory of its own.
    pub fn of(s: Sampler, n: f32, size: i64) -> Taps {
        let mut x = sample::unnormalize(n, size, s.align_corners);
        if s.how == Interpolation::Nearest {
            x = x.round_ties_even();
        }
        let x = match (s.how, s.padding) {
            (Interpolation::Cubic, Padding::Border) => x.clamp(-2.0, size as f32 + 1.0),
            _ => sample::bring_inside(x, size, s.padding, s.align_corners),
        };
        let floor = x.floor();
        let (i, f) = (floor as i64, f64::from(x - floor));
        let element = |i: i64| Some(sample::element(i, size, s.padding, s.align_corners)? as usize);
        match s.how {
            Interpolation::Nearest => {
                let i = x.round_ties_even() as i64;
                Taps { at: [element(i), None, None, None], weight: [1.0, 0.0, 0.0, 0.0], len: 1 }
            }
            Interpolation::Linear => Taps {
                at: [element(i), element(i.saturating_add(1)), None, None],
                weight: [(1.0 - f) as f32, f as f32, 0.0, 0.0],
                len: 2,
            },
            Interpolation::Cubic => Taps {
                at: std::array::from_fn(|k| element(i.saturating_add(k as i64 - 1))),
                weight: sample::cubic(f, -0.75).map(|w| w as f32),
                len: 4,
            },
        }
    }
}

/// Whether the kernel covers a `grid_sample`: floats, images of two dimensions.
pub fn covers_grid(t: &Types<'_>) -> bool {
    t.all_real() && t.input(0).is_some_and(|x| x.dims.len() == 4)
}

pub fn grid_sample(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(x), Some(grid), Some(shape)) = (cx.floats(0), cx.floats(1), cx.out_shape(0)) else {
        return Ok(false);
    };
    let Ok(sampler) = Sampler::of(cx.node.op.attrs()) else { return Ok(false) };
    let [_, channels, h, w] = *cx.shape(0) else { return Ok(false) };
    let points_of_image: usize = shape[2..].iter().product();
    cx.write_floats(0, &shape, |y| {
        let blocks = points_of_image.div_ceil(BLOCK);
        let stop = Checkpoints::here();
        let count = y.len() / (channels * points_of_image).max(1) * blocks;
        let parts = Parts::new(y);
        threads::each(count, |task| {
            stop.pass();
            let (image, first) = (task / blocks, task % blocks * BLOCK);
            let end = points_of_image.min(first + BLOCK);
            let (mut table, mut ends) =
                (Vec::with_capacity(4 * (end - first)), Vec::with_capacity(end - first));
            for p in first..end {
                let at = &grid[(image * points_of_image + p) * 2..][..2];
                let (rows, columns) =
                    (Taps::of(sampler, at[1], h as i64), Taps::of(sampler, at[0], w as i64));
                around(rows, columns, w, &mut table);
                ends.push(table.len());
            }
            for c in 0..channels {
                let plane = image * channels + c;
                let x = &x[plane * h * w..(plane + 1) * h * w];
                let start = plane * points_of_image;
                // SAFETY: each block of points of each plane belongs to one task.
                let y = unsafe { parts.part(start + first, start + end) };
                let mut begin = 0;
                for (y, &end) in y.iter_mut().zip(&ends) {
                    *y = table[begin..end].iter().map(|&(i, w): &(usize, f32)| x[i] * w).sum();
                    begin = end;
                }
            }
        });
        Ok(())
    })
}

/// Points whose elements are found together, for all channels.
const BLOCK: usize = 512;

/// Adds the elements around a point of a plane of this width.
fn around(rows: Taps, columns: Taps, width: usize, all: &mut Vec<(usize, f32)>) {
    for (r, v) in rows.at.iter().zip(rows.weight).take(rows.len) {
        for (c, w) in columns.at.iter().zip(columns.weight).take(columns.len) {
            if let (Some(r), Some(c)) = (r, c) {
                all.push((r * width + c, v * w));
            }
        }
    }
}
