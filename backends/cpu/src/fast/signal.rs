//! `dft` and `stft` by fast transforms of any length, in f32. Roots of unity are computed in f64.

use super::NodeCx;
use super::lines::Lines;
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::signal::dft::to_real;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};
use std::collections::HashMap;
use std::f64::consts::PI;
use std::sync::{Arc, Mutex, PoisonError};

type Number = Complex<f32>;

/// The transform of lines of a length.
struct Plan {
    /// The transform of the line, or of its pairs of numbers as complex ones.
    fft: Arc<dyn Fft<f32>>,
    /// The first roots of unity, up to a quarter, where numbers are pairs.
    roots: Vec<Number>,
}

/// Transforms by length, direction, and whether lines are pairs. They are planned once; when there are too many, all are forgotten.
static PLANNED: Mutex<Option<HashMap<(usize, bool, bool), Arc<Plan>>>> = Mutex::new(None);
/// Transforms that are kept.
const KEPT: usize = 64;

/// The transform of lines of n numbers; real ones of even length are half as many pairs.
fn planned(n: usize, inverse: bool, real: bool) -> Arc<Plan> {
    let paired = real && n.is_multiple_of(2);
    let key = (n, inverse, paired);
    let mut all = PLANNED.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_with(HashMap::new);
    if all.len() >= KEPT && !all.contains_key(&key) {
        all.clear();
    }
    let plan = || {
        let (len, count) = if paired { (n / 2, n / 4 + 1) } else { (n, 0) };
        let (fft, turn) = match inverse {
            true => (FftPlanner::new().plan_fft_inverse(len), 2.0 * PI),
            false => (FftPlanner::new().plan_fft_forward(len), -2.0 * PI),
        };
        let root = |k: usize| {
            let root = Complex::cis(turn * k as f64 / n as f64);
            Complex::new(root.re as f32, root.im as f32)
        };
        Arc::new(Plan { fft, roots: (0..count).map(root).collect() })
    };
    all.entry(key).or_insert_with(plan).clone()
}

impl Plan {
    /// Writes so many numbers of a line: real ones that lie side by side where `beside` has them, else those of `number`.
    #[inline(always)]
    fn write(
        &self,
        line: &mut [Number],
        count: usize,
        beside: Option<&[f32]>,
        number: impl Fn(usize) -> Number,
    ) {
        if self.roots.is_empty() {
            return line.iter_mut().enumerate().take(count).for_each(|(k, to)| *to = number(k));
        }
        let pairs = line.iter_mut().take(count / 2);
        match beside.map(|x| x[..count].as_chunks::<2>().0) {
            Some(x) => pairs.zip(x).for_each(|(z, &[re, im])| *z = Complex::new(re, im)),
            None => {
                pairs.enumerate().for_each(|(k, z)| *z = Complex::new(number(2 * k).re, number(2 * k + 1).re))
            }
        }
        if !count.is_multiple_of(2) {
            line[count / 2] = Complex::new(number(count - 1).re, 0.0);
        }
    }

    /// The transform of a line from what the passes made of it: all of it, or of real numbers the half with the middle one.
    fn read(&self, z: &[Number], y: &mut [[f32; 2]]) {
        if self.roots.is_empty() {
            return y.iter_mut().zip(z).for_each(|(y, v)| *y = [v.re, v.im]);
        }
        let (h, Some(first)) = (z.len(), z.first()) else { return };
        let (low, high) = y.split_at_mut(h.min(y.len()));
        low[0] = [first.re + first.im, 0.0];
        high[0] = [first.re - first.im, 0.0];
        // Numbers k and h - k of both halves: the last of them is one number where h is even.
        let pairs = (h - 1) / 2;
        let (up, down) = low[1..].split_at_mut(h - 1 - pairs);
        let down = &mut down[..pairs];
        let both = |a: Number, b: Number, root: Number| {
            let (even, odd) = ((a + b.conj()) * 0.5, (a - b.conj()) * Complex::new(0.0, -0.5));
            let turned = root * odd;
            (even + turned, even - turned)
        };
        let numbers = z[1..].iter().zip(z.iter().rev()).zip(&self.roots[1..]);
        for ((up, down), ((&a, &b), &root)) in up.iter_mut().zip(down.iter_mut().rev()).zip(numbers) {
            let (sum, difference) = both(a, b, root);
            (*up, *down) = ([sum.re, sum.im], [difference.re, -difference.im]);
        }
        if let (Some(middle), true) = (up.last_mut(), h.is_multiple_of(2)) {
            let (sum, _) = both(z[h / 2], z[h / 2], self.roots[h / 2]);
            *middle = [sum.re, sum.im];
        }
        // The other half is the conjugate of this one backwards.
        let mirrored = high[1..].iter_mut().zip(low[1..].iter().rev());
        mirrored.for_each(|(to, from)| *to = [from[0], -from[1]]);
    }
}

/// An element of one part or two.
fn number(x: &[f32], at: usize, parts: usize) -> Number {
    let im = if parts == 2 { x[at * 2 + 1] } else { 0.0 };
    Complex::new(x[at * parts], im)
}

pub fn dft(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (Some(x), Some(shape)) = (cx.floats(0), cx.out_shape(0)) else { return Ok(false) };
    let scalar = |i: usize| cx.ints(i).and_then(|v| v.first().copied()).filter(|_| cx.has(i));
    let (dims, rank) = (cx.shape(0).to_vec(), cx.shape(0).len());
    let axis = scalar(2).unwrap_or(-2);
    let axis =
        usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok().filter(|&a| a + 1 < rank);
    let (Some(axis), Ok(inverse), Ok(to_real)) = (axis, attrs.bool("inverse"), to_real(attrs)) else {
        return Ok(false);
    };
    let parts = dims[rank - 1];
    let length = scalar(1).and_then(|n| usize::try_from(n).ok());
    let n = if to_real { shape[axis] } else { length.unwrap_or(dims[axis]) };
    if n == 0 || shape.contains(&0) {
        return Ok(false);
    }
    let from = Lines::of(&dims[..rank - 1], axis, axis + 1);
    let to = Lines::of(&shape[..rank - 1], axis, axis + 1);
    let plan = planned(n, inverse, parts == 1 && !to_real);
    let fft = &plan.fft;
    let scale = if inverse { 1.0 / n as f32 } else { 1.0 };
    cx.write_floats(0, &shape, |y| {
        let x: &[f32] = &x;
        let written = Parts::new(y);
        let points = Checkpoints::here();
        threads::ranges(from.outer * from.inner, 1 + 4096 / n, |lines| {
            let mut line = vec![Number::default(); fft.len()];
            let mut room = vec![Number::default(); fft.get_inplace_scratch_len()];
            let mut made = vec![[0f32; 2]; if to.inner == 1 { 0 } else { to.n }];
            for l in lines {
                points.pass();
                let (o, i) = (l / from.inner, l % from.inner);
                line.fill(Number::default());
                let most = if to_real { n / 2 + 1 } else { n };
                let place = |k: usize| (o * from.n + k) * from.inner + i;
                let beside = (from.inner == 1 && parts == 1).then(|| &x[place(0)..]);
                plan.write(&mut line, from.n.min(most), beside, |k| number(x, place(k), parts));
                if to_real {
                    mirror(&mut line);
                }
                fft.process_with_scratch(&mut line, &mut room);
                if to_real {
                    for (k, v) in line.iter().enumerate().take(to.n) {
                        let at = (o * to.n + k) * to.inner + i;
                        // SAFETY: each line has elements of its own.
                        unsafe { written.part(at, at + 1)[0] = v.re * scale };
                    }
                    continue;
                }
                let first = 2 * (o * to.n * to.inner + i);
                let alone = to.inner == 1;
                // SAFETY: each line has elements of its own, side by side where none is between them.
                let own = unsafe { written.part(first, first + if alone { 2 * to.n } else { 0 }) };
                let made = if alone { own.as_chunks_mut::<2>().0 } else { &mut made };
                plan.read(&line, made);
                if inverse {
                    made.as_flattened_mut().iter_mut().for_each(|v| *v *= scale);
                }
                for (k, v) in made.iter().enumerate().take(if alone { 0 } else { to.n }) {
                    let at = first + 2 * k * to.inner;
                    // SAFETY: as above.
                    unsafe { written.part(at, at + 2) }.copy_from_slice(v);
                }
            }
        });
        Ok(())
    })
}

/// Completes the first half of a real signal's transform by its conjugate.
fn mirror(line: &mut [Number]) {
    let n = line.len();
    line[0].im = 0.0;
    if n.is_multiple_of(2) {
        line[n / 2].im = 0.0;
    }
    for k in 1..n.div_ceil(2) {
        line[n - k] = line[k].conj();
    }
}

pub fn stft(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let (Some(x), Some(shape)) = (cx.floats(0), cx.out_shape(0)) else { return Ok(false) };
    let window = if cx.has(2) { cx.floats(2) } else { None };
    let [_, len, parts] = *cx.shape(0) else { return Ok(false) };
    let host = |i: usize| cx.ints(i).filter(|_| cx.has(i)).and_then(|v| usize::try_from(*v.first()?).ok());
    let step = host(1).unwrap_or(1);
    let n = host(3).unwrap_or(window.as_ref().map_or(len, |w| w.len()));
    if n == 0 || shape.contains(&0) {
        return Ok(false);
    }
    let (frames, bins) = (shape[1], shape[2]);
    let plan = planned(n, false, parts == 1);
    cx.write_floats(0, &shape, |y| {
        let (x, window): (&[f32], Option<&[f32]>) = (&x, window.as_deref());
        let points = Checkpoints::here();
        threads::chunks(y, bins * 2, 1 + 4096 / n, |f, y| {
            points.pass();
            let (b, f) = (f / frames, f % frames);
            let mut frame = vec![Number::default(); plan.fft.len()];
            let weight = |k: usize| window.map_or(1.0, |w| w.get(k).copied().unwrap_or(0.0));
            let value = |k: usize| number(x, b * len + f * step + k, parts) * weight(k);
            plan.write(&mut frame, n.min(len.saturating_sub(f * step)), None, value);
            plan.fft.process(&mut frame);
            plan.read(&frame, y.as_chunks_mut::<2>().0);
        });
        Ok(())
    })
}
