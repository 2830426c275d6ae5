//! `pool` that adds up codes of 8 bits.

use super::windows::{Spatial, spatial, volume};
use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::threads;
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_backend::stop::Checkpoints;
use kiln_ir::DType;
use kiln_ops::conv::window;
use kiln_ops::layout::Layout;
use kiln_ops::pool::{POOL, PoolOp, geometry};

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(POOL, run, covers)];

/// Elements that one task adds at least.
const TASK: usize = 1 << 12;

fn covers(t: &Types<'_>) -> bool {
    PoolOp::of(t.node.op.attrs()) == PoolOp::Sum
}

fn run(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (Some(x), Some(shape)) = (cx.args[0].clone(), cx.out_shape(0)) else { return Ok(false) };
    let axes = geometry(attrs, &window::dims(x.shape())).ok().and_then(|a| window::numbers(&a));
    let Some(axes) = axes.and_then(spatial) else { return Ok(false) };
    let last = Layout::of(attrs) == Layout::ChannelsLast;
    let mut y = Out::new(cx.pool, DType::I32, &shape, &cx.node.name)?;
    let line = if last { shape.last().copied().unwrap_or(0) } else { 1 };
    match x.dtype() {
        DType::I8 => sums::<i8>(&x, &axes, line, y.elems_mut()),
        DType::U8 => sums::<u8>(&x, &axes, line, y.elems_mut()),
        _ => return Ok(false),
    }
    cx.push(y.done());
    Ok(true)
}

/// Sums of windows of planes, or of images of lines of so many channels. A task has rows of windows.
fn sums<T: bytemuck::Pod + Into<i32> + Sync>(x: &Val, axes: &Spatial, line: usize, y: &mut [i32]) {
    let Some(x) = x.view::<T>().filter(|_| !y.is_empty()) else { return };
    let inputs = volume(axes, |a| a.input);
    let [a, b, c] = axes;
    let [_, high, wide] = [a, b, c].map(|a| a.input as usize);
    let row = c.output as usize * line;
    let taps = volume(axes, |a| a.kernel);
    let points = Checkpoints::here();
    threads::chunks(y, row, TASK.div_ceil((row * taps).max(1)), |at, y| {
        points.pass();
        y.fill(0);
        let (at, j) = (at / b.output as usize, (at % b.output as usize) as i64);
        let (plane, i) = (at / a.output as usize, (at % a.output as usize) as i64);
        let x = &x[plane * inputs * line..][..inputs * line];
        for (_, i) in a.taps(i) {
            for (_, j) in b.taps(j) {
                let x = &x[(i as usize * high + j as usize) * wide * line..][..wide * line];
                for (o, y) in y.chunks_exact_mut(line).enumerate() {
                    for (_, k) in c.taps(o as i64) {
                        let from = &x[k as usize * line..][..line];
                        y.iter_mut().zip(from).for_each(|(y, &x)| *y += x.into());
                    }
                }
            }
        }
    });
}
