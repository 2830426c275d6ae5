//! `conv` of integers of 32 and 64 bits, and of any others that [`super::conv_integer`] leaves: tap by tap, rows of windows at once.
//! Integers wrap.

use super::element::{Element, with_element};
use super::folds::{place, within};
use super::simd::vectorized;
use super::windows::{Spatial, spatial, volume};
use super::{Kernel, NodeCx, TABLES, Types, conv, conv_exact, kernel};
use crate::threads::{self, Parts};
use crate::value::{Out, Val};
use bytemuck::Pod;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::conv::window;
use kiln_ops::conv::{CONV, geometry};
use kiln_ops::layout::Layout;
use kiln_ops::util::strides;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[
    kernel(CONV, run, |t| both(t, |d| !d.is_float() && d.bits() >= 8)),
    kernel(CONV, conv::run, |t| both(t, |d| d == DType::F8E4M3)),
];

/// Elements that one task reads.
const READ: usize = 16 << 10;

fn both(t: &Types<'_>, has: fn(DType) -> bool) -> bool {
    (0..2).all(|i| t.input(i).is_some_and(|x| has(x.dtype)))
}

/// Integers that products are summed in.
trait Ring: Pod + Send + Sync {
    fn of(x: i64) -> Self;
    fn plus_product(self, a: Self, b: Self) -> Self;
}

macro_rules! rings {
    ($($t:ty),*) => {$(
        impl Ring for $t {
            #[inline(always)]
            fn of(x: i64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn plus_product(self, a: $t, b: $t) -> $t {
                self.wrapping_add(a.wrapping_mul(b))
            }
        }
    )*};
}
rings!(i8, u8, i32, i64);

/// A convolution under strides of x, weights and result: of the image or output channel, the channel, and three dimensions.
struct Job<T> {
    x: Vec<T>,
    w: Vec<T>,
    bias: Option<Vec<T>>,
    axes: Spatial,
    steps: [[usize; 5]; 3],
    /// Output channels, those of a group, and the input channels of a group.
    m: usize,
    per_group: usize,
    depth: usize,
}

/// Strides of a tensor in the order of the linear layout, dimensions of size 1 put in front of the spatial ones.
fn steps(shape: &[usize], layout: Layout) -> Option<[usize; 5]> {
    let own = layout.to_linear(&strides(shape));
    let (lead, rest) = own.split_at_checked(2)?;
    let missing = 3usize.checked_sub(rest.len())?;
    let all = lead.iter().copied().chain(std::iter::repeat_n(0, missing)).chain(rest.iter().copied());
    all.collect::<Vec<_>>().try_into().ok()
}

fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    match cx.out_dtype(0) {
        Some(DType::I32) => Ok(conv_exact::run(cx)? || typed::<i32>(cx)?),
        Some(DType::I64) => typed::<i64>(cx),
        Some(DType::I8) => typed::<i8>(cx),
        Some(DType::U8) => typed::<u8>(cx),
        _ => Ok(false),
    }
}

fn read<T: Ring>(v: &Val) -> Option<Vec<T>> {
    fn all<U: Element, T: Ring>(v: &Val) -> Option<Vec<T>> {
        let x = v.view::<U>()?;
        let mut y = vec![T::of(0); x.len()];
        threads::chunks(&mut y, READ, 1, |i, y| converted(&x[i * READ..], y));
        Some(y)
    }
    with_element!(v.dtype(), U => all::<U, T>(v), else None)
}

vectorized! {
    fn converted<U: Element, T: Ring>(x: &[U], y: &mut [T]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = T::of(x.to_i64());
        }
    }
}

fn typed<T: Ring>(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let layout = Layout::of(attrs);
    let (sx, sw) = (cx.shape(0).to_vec(), cx.shape(1).to_vec());
    let value = |i: usize| cx.args.get(i)?.as_ref().and_then(read::<T>);
    let axes = geometry(attrs, &window::dims(&sx), &window::dims(&sw)).ok();
    let Some(axes) = axes.and_then(|a| window::numbers(&a)).and_then(spatial) else { return Ok(false) };
    let (Some(x), Some(w), Some(shape), Ok(groups)) =
        (value(0), value(1), cx.out_shape(0), attrs.int("groups"))
    else {
        return Ok(false);
    };
    let bias = if cx.has(2) { value(2) } else { None };
    let [Some(from), Some(weights), Some(to)] = [&sx, &sw, &shape].map(|s| steps(s, layout)) else {
        return Ok(false);
    };
    let Some(dtype) = cx.out_dtype(0) else { return Ok(false) };
    let depth = sw[layout.channel_axis(sw.len())];
    let per_group = sw[0] / (groups.max(1) as usize);
    let job = Job { x, w, bias, axes, steps: [from, weights, to], m: sw[0], per_group, depth };
    let mut out = Out::new(cx.pool, dtype, &shape, &cx.node.name)?;
    job.run(sx[0], out.elems_mut());
    cx.push(out.done());
    Ok(true)
}

vectorized! {
    /// Adds the products of one output channel of an image.
    fn add_plane<T: Ring>(job: &Job<T>, image: usize, m: usize, plane: &mut [T]) {
        job.plane(image, m, plane);
    }
}

impl<T: Ring> Job<T> {
    fn run(&self, images: usize, y: &mut [T]) {
        let points = Checkpoints::here();
        let y = Parts::new(y);
        let windows = volume(&self.axes, |a| a.output);
        let [rows, width] = [self.axes[1].output as usize, self.axes[2].output as usize];
        let to = self.steps[2];
        threads::each(images * self.m, |task| {
            points.pass();
            let (image, m) = (task / self.m, task % self.m);
            let start = self.bias.as_ref().map_or(T::of(0), |b| b[m]);
            let first = image * to[0] + m * to[1];
            if to[4] == 1 && to[3] == width {
                // SAFETY: each output channel of each image belongs to one task.
                let plane = unsafe { y.part(first, first + windows) };
                plane.fill(start);
                return add_plane(self, image, m, plane);
            }
            let mut plane = vec![start; windows];
            add_plane(self, image, m, &mut plane);
            for (i, &v) in plane.iter().enumerate() {
                let at = [i / width / rows, i / width % rows, i % width];
                let place = first + at.iter().zip(&to[2..]).map(|(a, s)| a * s).sum::<usize>();
                // SAFETY: as above.
                let own = unsafe { y.part(place, place + 1) };
                own[0] = v;
            }
        });
    }

    #[inline(always)]
    fn plane(&self, image: usize, m: usize, plane: &mut [T]) {
        let [a, b, c] = &self.axes;
        let [from, weights, _] = self.steps;
        let width = c.output as usize;
        for channel in 0..self.depth {
            let base = image * from[0] + (m / self.per_group.max(1) * self.depth + channel) * from[1];
            let kernel = m * weights[0] + channel * weights[1];
            for ka in 0..a.kernel {
                for kb in 0..b.kernel {
                    for kc in 0..c.kernel {
                        let tap = [ka, kb, kc].into_iter().zip(&weights[2..]).map(|(k, s)| k as usize * s);
                        let w = self.w[kernel + tap.sum::<usize>()];
                        let along = within(c, kc);
                        if along.is_empty() {
                            continue;
                        }
                        let (first, step) = (place(c, along.start, kc), c.stride as usize * from[4]);
                        for oa in within(a, ka) {
                            for ob in within(b, kb) {
                                let row = (oa * b.output as usize + ob) * width;
                                let x = base
                                    + place(a, oa, ka) * from[2]
                                    + place(b, ob, kb) * from[3]
                                    + first * from[4];
                                let y = &mut plane[row + along.start..row + along.end];
                                match step {
                                    0 | 1 => {
                                        for (y, x) in y.iter_mut().zip(&self.x[x..]) {
                                            *y = y.plus_product(w, *x);
                                        }
                                    }
                                    _ => {
                                        for (y, x) in y.iter_mut().zip(self.x[x..].iter().step_by(step)) {
                                            *y = y.plus_product(w, *x);
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
