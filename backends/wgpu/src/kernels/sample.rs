//! Resizing by tables of taps of the axes that change: what stays as it is needs no table.

use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::{continued, long_sum};
use kiln_codegen::sample::{Taps, resized_value};
use kiln_codegen::site::{Cx, Site, op_error};
use kiln_codegen::{Body, Kernel, Launch};
use kiln_ir::DType;
use kiln_ops::util::strides;

pub const KERNELS: &[Kernel] = &[Kernel::of("resize", &["resize"], source, launch)];

kiln_codegen::params! {
    /// Resizing by tables of taps, of two axes at least.
    struct TappedResizeParams {
        /// Combinations of taps.
        combinations: u32,
        /// The result where it is outside of x.
        outside: f32,
        /// Elements behind the axes that have taps.
        inner: u32,
        /// Elements of x from one index in front of the axes to the next.
        outer_stride: u32,
        /// Dimensions of the result that have taps.
        dims: [u32],
        /// Strides of x along them.
        strides: [u32],
        /// Taps of a place, for each of them.
        taps: [u32],
        /// Start of the taps of each of them in the table.
        starts: [u32],
        /// For every place in turn its taps: element and weight.
        table: [u32],
    }
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let body = long_sum(site, "sample/resize", ("resize", "resize_sum"), DType::F32);
    Ok(Body { inputs: Some(vec![0]), ..body.with(resized_value(site)) })
}

/// The table of an axis, and its number of taps.
fn table(all: &Taps, d: usize) -> (Vec<usize>, usize) {
    let mut table = Vec::new();
    let taps = all.add(&all.axes[d], 1, &mut table);
    (table, taps)
}

/// Whether an axis stays as it is: each place has the element of its number.
fn stays(n: usize, (table, taps): &(Vec<usize>, usize)) -> bool {
    let one = 1f32.to_bits() as usize;
    *taps == 1 && table.len() == 2 * n && table.chunks(2).enumerate().all(|(o, t)| *t == [o, one])
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let all = Taps::of(cx)?;
    let tables: Vec<_> = (0..y.len()).map(|d| table(&all, d)).collect();
    let changes = |d: &usize| x[*d] != y[*d] || !stays(y[*d], &tables[*d]);
    let first = (0..y.len()).find(changes).unwrap_or(y.len());
    let end = (first..y.len()).rev().find(changes).map_or(first, |d| d + 1);
    let own = strides(&x);
    let mut p = TappedResizeParams {
        outside: cx.op()?.attrs().float("extrapolation").map_err(op_error)? as f32,
        inner: y[end..].iter().product(),
        outer_stride: x[first..].iter().product(),
        ..TappedResizeParams::default()
    };
    // Axes of one place stand for those that two axes lack.
    let missing = 2usize.saturating_sub(end - first);
    let none = || (vec![0, 1f32.to_bits() as usize], 1, 1, 0);
    let given = (first..end).map(|d| (tables[d].0.clone(), tables[d].1, y[d], own[d]));
    for (table, taps, n, stride) in (0..missing).map(|_| none()).chain(given) {
        p.starts.push(p.table.len());
        p.taps.push(taps);
        p.dims.push(n);
        p.strides.push(stride);
        p.table.extend(table);
    }
    p.combinations = p.taps.iter().fold(1_usize, |n, &t| n.saturating_mul(t));
    let (combinations, rank) = (p.combinations, p.dims.len());
    // Two axes are summed by a loop in a loop.
    continued(cx, p.words()?, combinations, 4 + rank)
}
