//! `pool` of floats: greatest and mean.

use super::NodeCx;
use super::conv::{Spatial, spatial};
use kiln_backend::BackendError;
use kiln_ir::ops::pool::{PoolOp, geometry};
use kiln_ir::ops::window;
use rayon::prelude::*;

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
    let inputs: usize = shape[2..].iter().product();
    let windows: usize = out[2..].iter().product();
    cx.write_floats(0, &out, |y| {
        y.par_chunks_mut(windows).zip(x.par_chunks(inputs)).for_each(|(y, x)| match op {
            PoolOp::Max => plane(&axes, y, |d, h, w| max(&axes, x, d, h, w)),
            _ => plane(&axes, y, |d, h, w| mean(&axes, x, d, h, w, include_pad)),
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
