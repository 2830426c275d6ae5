//! `pool` of floats: greatest and mean.

use super::windows::{Spatial, spatial};
use super::{NodeCx, Types};
use crate::threads;
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ops::conv::window;
use kiln_ops::layout::Layout;
use kiln_ops::pool::{PoolOp, geometry};

/// Whether the kernel covers a node: floats, and no p-norms.
pub fn covers(t: &Types<'_>) -> bool {
    t.all_real() && PoolOp::of(t.node.op.attrs()) != PoolOp::Lp
}

pub fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let op = PoolOp::of(attrs);
    let shape = cx.shape(0).to_vec();
    let axes = geometry(attrs, &window::dims(&shape)).ok();
    let axes = axes.and_then(|a| window::numbers(&a)).and_then(spatial);
    let (Some(axes), Some(x), Some(out)) = (axes, cx.floats(0), cx.out_shape(0)) else { return Ok(false) };
    if op == PoolOp::Lp || out.contains(&0) || shape.contains(&0) {
        return Ok(false);
    }
    let include_pad = attrs.bool("count_include_pad").unwrap_or(false);
    if Layout::of(attrs) == Layout::ChannelsLast {
        let channels = shape[shape.len() - 1];
        return cx.write_floats(0, &out, |y| {
            let last = Last { x: &x, axes: &axes, channels };
            let row = axes[2].output as usize * channels;
            let points = Checkpoints::here();
            threads::chunks(y, row, 1, |i, y| {
                points.pass();
                match op {
                    PoolOp::Max => last.max(i, y),
                    _ => last.mean(i, y, include_pad),
                }
            });
            Ok(())
        });
    }
    let inputs: usize = shape[2..].iter().product();
    let windows: usize = out[2..].iter().product();
    cx.write_floats(0, &out, |y| {
        let points = Checkpoints::here();
        threads::chunks(y, windows, 1, |i, y| {
            let x = &x[i * inputs..(i + 1) * inputs];
            points.pass();
            match op {
                PoolOp::Max => plane(&axes, y, |d, h, w| max(&axes, x, d, h, w)),
                _ => plane(&axes, y, |d, h, w| mean(&axes, x, d, h, w, include_pad)),
            }
        });
        Ok(())
    })
}

fn plane(axes: &Spatial, y: &mut [f32], f: impl Fn(i64, i64, i64) -> f32) {
    let [_, h, w] = axes;
    for (row, y) in y.chunks_exact_mut(w.output as usize).enumerate() {
        let (od, oh) = (row as i64 / h.output, row as i64 % h.output);
        y.iter_mut().enumerate().for_each(|(ow, y)| *y = f(od, oh, ow as i64));
    }
}

/// Calls `f` with every element under a window.
fn under(axes: &Spatial, x: &[f32], at: [i64; 3], mut f: impl FnMut(f32)) {
    let [d, h, w] = axes;
    for (_, z) in d.taps(at[0]) {
        for (_, y) in h.taps(at[1]) {
            let row = &x[((z * h.input + y) * w.input) as usize..][..w.input as usize];
            w.taps(at[2]).for_each(|(_, p)| f(row[p as usize]));
        }
    }
}

fn max(axes: &Spatial, x: &[f32], d: i64, h: i64, w: i64) -> f32 {
    let mut top = f32::NEG_INFINITY;
    under(axes, x, [d, h, w], |x| top = if x > top || x.is_nan() { x } else { top });
    top
}

fn mean(axes: &Spatial, x: &[f32], d: i64, h: i64, w: i64, include_pad: bool) -> f32 {
    let (mut sum, mut count) = (0f64, 0i64);
    under(axes, x, [d, h, w], |x| {
        sum += f64::from(x);
        count += 1;
    });
    let padded = [d, h, w].iter().zip(axes).map(|(&o, a)| a.padded_taps(o)).product();
    let divisor = if include_pad { padded } else { count };
    if divisor == 0 { 0.0 } else { (sum / divisor as f64) as f32 }
}

/// Images with channels last: the channels of a window side by side.
struct Last<'a> {
    x: &'a [f32],
    axes: &'a Spatial,
    channels: usize,
}

impl Last<'_> {
    /// Calls `f` with the channels of every element under window `w` of a row of the output.
    fn under(&self, row: usize, w: usize, mut f: impl FnMut(&[f32])) -> [i64; 3] {
        let [d, h, wide] = self.axes;
        let row = row as i64;
        let image = row / (d.output * h.output);
        let at = [row / h.output % d.output, row % h.output, w as i64];
        for (_, z) in d.taps(at[0]) {
            for (_, y) in h.taps(at[1]) {
                for (_, x) in wide.taps(at[2]) {
                    let position = ((image * d.input + z) * h.input + y) * wide.input + x;
                    f(&self.x[position as usize * self.channels..][..self.channels]);
                }
            }
        }
        at
    }

    fn max(&self, row: usize, y: &mut [f32]) {
        for (w, y) in y.chunks_exact_mut(self.channels).enumerate() {
            y.fill(f32::NEG_INFINITY);
            self.under(row, w, |x| {
                y.iter_mut().zip(x).for_each(|(y, &x)| *y = if x > *y || x.is_nan() { x } else { *y });
            });
        }
    }

    fn mean(&self, row: usize, y: &mut [f32], include_pad: bool) {
        let mut sums = vec![0f64; self.channels];
        for (w, y) in y.chunks_exact_mut(self.channels).enumerate() {
            sums.fill(0.0);
            let mut count = 0i64;
            let at = self.under(row, w, |x| {
                sums.iter_mut().zip(x).for_each(|(s, &x)| *s += f64::from(x));
                count += 1;
            });
            let padded = at.iter().zip(self.axes).map(|(&o, a)| a.padded_taps(o)).product();
            let divisor = if include_pad { padded } else { count };
            let scale = |s: f64| if divisor == 0 { 0.0 } else { (s / divisor as f64) as f32 };
            y.iter_mut().zip(&sums).for_each(|(y, &s)| *y = scale(s));
        }
    }
}
