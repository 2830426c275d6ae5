//! Windows of few channels, whose elements are copied from images with padding.

use super::gemm::{Left, floats, floats_mut, scratch, slices};
use super::micro::MAX_ROWS;
use super::windows::{Conv, Spatial};
use crate::buffer::{Buf, Pool};
use crate::threads;
use kiln_backend::BackendError;
use kiln_ops::conv::window::Axis;
use std::ops::Range;
use std::sync::Arc;

/// Elements that are copied at once; there is room for so many behind the images.
const CHUNK: usize = 8;
/// Neighbouring elements of a window from which on images are not copied for their padding, and windows not at all.
const SHORT: usize = 64;
const LONG: usize = 128;
/// Elements of a window at most.
const DEEP: usize = 512;
/// Elements that a task copies at least.
const COPIED: usize = 16 << 10;

/// The elements under windows as a matrix: a row for each window, a column for each tap and channel.
pub struct Few<'a> {
    x: Source<'a>,
    axes: &'a Spatial,
    /// Elements from window to window along each dimension, and from image to image.
    steps: [usize; 4],
    /// Places of stretches of elements from the first one of a window on, and their length.
    stretches: Vec<usize>,
    len: usize,
}

/// Images as they are, or with padding.
enum Source<'a> {
    Given(&'a [f32]),
    Padded(Buf),
}

/// Elements of a dimension that windows reach.
fn reached(a: &Axis<i64>) -> usize {
    ((a.output - 1) * a.stride + (a.kernel - 1) * a.dilation + 1) as usize
}

impl<'a> Few<'a> {
    /// The windows of a convolution of one group, if they have few elements side by side.
    pub fn new(c: &'a Conv<'_>, pool: &Arc<Pool>) -> Result<Option<Few<'a>>, BackendError> {
        let [d, h, w] = &c.axes;
        let run = if w.dilation == 1 { w.kernel as usize } else { 1 };
        let (len, taps) = (run * c.depth, (d.kernel * h.kernel * w.kernel) as usize);
        let inside = c.axes.iter().all(|a| a.begin == 0 && reached(a) <= a.input as usize);
        if len >= if inside { LONG } else { SHORT } || taps * c.depth > DEEP || taps < 2 {
            return Ok(None);
        }
        let sizes = c.axes.each_ref().map(|a| if inside { a.input as usize } else { reached(a) });
        let [_, high, wide] = sizes;
        let line = wide * c.channels;
        let image = sizes[0] * high * line;
        let x = match inside {
            true => Source::Given(c.x),
            false => {
                let images = c.x.len() / (d.input * h.input * w.input) as usize / c.channels;
                let room = images.saturating_mul(image).saturating_add(CHUNK);
                let mut padded = scratch(pool, room, "images with their padding")?;
                pad(c, sizes, floats_mut(&mut padded));
                Source::Padded(padded)
            }
        };
        let mut stretches = Vec::new();
        for (z, y) in (0..d.kernel * d.dilation).step_by(d.dilation as usize).flat_map(|z| {
            (0..h.kernel * h.dilation).step_by(h.dilation as usize).map(move |y| (z as usize, y as usize))
        }) {
            let at = |k: i64| (z * high + y) * line + (k * w.dilation) as usize * c.channels;
            stretches.extend((0..w.kernel).step_by(run).map(at));
        }
        let along = c.axes.each_ref().map(|a| a.stride as usize);
        let steps = [along[0] * high * line, along[1] * line, along[2] * c.channels, image];
        Ok(Some(Few { x, axes: &c.axes, steps, stretches, len }))
    }
}

/// Copies images into those with padding.
fn pad(c: &Conv<'_>, sizes: [usize; 3], to: &mut [f32]) {
    let [d, h, w] = &c.axes;
    let [deep, high, wide] = sizes;
    let line = wide * c.channels;
    let inside = |a: &Axis<i64>, i: usize| Some(i as i64 - a.begin).filter(|p| (0..a.input).contains(p));
    // Columns of x that lie inside.
    let first = (-w.begin).clamp(0, w.input);
    let end = (wide as i64 - w.begin).clamp(first, w.input);
    let (first, len) = (first as usize, (end - first) as usize * c.channels);
    let lead = (first as i64 + w.begin) as usize * c.channels;
    threads::chunks(to, line, COPIED.div_ceil(line), |row, to| {
        let (image, z, y) = (row / (deep * high), row / high % deep, row % high);
        let (Some(z), Some(y)) = (inside(d, z), inside(h, y)) else { return to.fill(0.0) };
        let row = ((image as i64 * d.input + z) * h.input + y) * w.input;
        // The last elements are the room behind the images.
        let Some(from) = c.x.get((row as usize + first) * c.channels..).and_then(|x| x.get(..len)) else {
            return to.fill(0.0);
        };
        if to.len() < line {
            return to.fill(0.0);
        }
        to[..lead].fill(0.0);
        to[lead..lead + len].copy_from_slice(from);
        to[lead + len..].fill(0.0);
    });
}

impl Left for Few<'_> {
    fn rows<'r>(
        &'r self,
        rows: Range<usize>,
        depth: Range<usize>,
        room: &'r mut [f32],
    ) -> [&'r [f32]; MAX_ROWS] {
        let x = match &self.x {
            Source::Given(x) => x,
            Source::Padded(b) => floats(b),
        };
        let [d, h, w] = self.axes.each_ref().map(|a| a.output as usize);
        let (count, size) = (rows.len(), depth.len());
        let mut at = [rows.start / (w * h) % d, rows.start / w % h, rows.start % w];
        let mut image = rows.start / (w * h * d);
        for i in 0..count {
            let first =
                image * self.steps[3] + at.iter().zip(&self.steps).map(|(at, step)| at * step).sum::<usize>();
            self.copy(&x[first..], &mut room[i * size..]);
            at[2] += 1;
            if at[2] == w {
                at = [at[0], at[1] + 1, 0];
            }
            if at[1] == h {
                at = [at[0] + 1, 0, 0];
            }
            if at[0] == d {
                (at, image) = ([0; 3], image + 1);
            }
        }
        slices(room, size, count)
    }
}

impl Few<'_> {
    /// Copies a window, each stretch with the elements behind it where there is room. The next stretch is written over those.
    #[inline(always)]
    fn copy(&self, from: &[f32], to: &mut [f32]) {
        let padded = self.len.next_multiple_of(CHUNK);
        let last = self.stretches.last().copied().unwrap_or_default();
        let inside =
            (self.stretches.len() - 1) * self.len + padded <= to.len() && last + padded <= from.len();
        for (k, &stretch) in self.stretches.iter().enumerate() {
            if !inside {
                to[k * self.len..(k + 1) * self.len].copy_from_slice(&from[stretch..stretch + self.len]);
                continue;
            }
            for i in (0..padded).step_by(CHUNK) {
                // SAFETY: stretches are in order, and the last one, with what lies behind it, is inside of both slices.
                unsafe {
                    let chunk = from.as_ptr().add(stretch + i).cast::<[f32; CHUNK]>();
                    to.as_mut_ptr().add(k * self.len + i).cast::<[f32; CHUNK]>().write(*chunk);
                }
            }
        }
    }
}
