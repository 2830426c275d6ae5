//! `dft` and `stft` by fast transforms of any length, in f64.

use super::NodeCx;
use super::lines::Lines;
use crate::threads::{self, Parts};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::signal::dft::to_real;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

type Number = Complex<f64>;

/// Transforms by length and direction. They are planned once; when there are too many, all are forgotten.
static PLANNED: Mutex<Option<HashMap<(usize, bool), Arc<dyn Fft<f64>>>>> = Mutex::new(None);
/// Transforms that are kept.
const KEPT: usize = 64;

fn planned(n: usize, inverse: bool) -> Arc<dyn Fft<f64>> {
    let mut all = PLANNED.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_with(HashMap::new);
    if all.len() >= KEPT && !all.contains_key(&(n, inverse)) {
        all.clear();
    }
    let plan = || match inverse {
        true => FftPlanner::new().plan_fft_inverse(n),
        false => FftPlanner::new().plan_fft_forward(n),
    };
    all.entry((n, inverse)).or_insert_with(plan).clone()
}

/// An element of one part or two.
fn number(x: &[f32], at: usize, parts: usize) -> Number {
    let im = if parts == 2 { x[at * 2 + 1].into() } else { 0.0 };
    Complex::new(x[at * parts].into(), im)
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
    let fft = planned(n, inverse);
    let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
    cx.write_floats(0, &shape, |y| {
        let written = Parts::new(y);
        let points = Checkpoints::here();
        threads::ranges(from.outer * from.inner, 1 + 4096 / n, |lines| {
            let mut line = vec![Number::default(); n];
            let mut room = vec![Number::default(); fft.get_inplace_scratch_len()];
            for l in lines {
                points.pass();
                let (o, i) = (l / from.inner, l % from.inner);
                line.fill(Number::default());
                let most = if to_real { n / 2 + 1 } else { n };
                for (k, place) in line.iter_mut().enumerate().take(from.n.min(most)) {
                    *place = number(&x, (o * from.n + k) * from.inner + i, parts);
                }
                if to_real {
                    mirror(&mut line);
                }
                fft.process_with_scratch(&mut line, &mut room);
                for (k, v) in line.iter().enumerate().take(to.n) {
                    let at = (o * to.n + k) * to.inner + i;
                    let v = v * scale;
                    // SAFETY: each line has elements of its own.
                    unsafe {
                        match to_real {
                            true => written.part(at, at + 1)[0] = v.re as f32,
                            false => {
                                written.part(2 * at, 2 * at + 2).copy_from_slice(&[v.re as f32, v.im as f32])
                            }
                        }
                    }
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
    let fft = planned(n, false);
    cx.write_floats(0, &shape, |y| {
        let points = Checkpoints::here();
        threads::chunks(y, bins * 2, 1 + 4096 / n, |f, y| {
            points.pass();
            let (b, f) = (f / frames, f % frames);
            let mut frame = vec![Number::default(); n];
            for (k, v) in frame.iter_mut().enumerate().take(len.saturating_sub(f * step)) {
                let weight = window.as_ref().map_or(1.0, |w| w.get(k).copied().unwrap_or(0.0));
                *v = number(&x, b * len + f * step + k, parts) * f64::from(weight);
            }
            fft.process(&mut frame);
            y.as_chunks_mut::<2>()
                .0
                .iter_mut()
                .zip(&frame)
                .for_each(|(y, v)| *y = [v.re as f32, v.im as f32]);
        });
        Ok(())
    })
}
