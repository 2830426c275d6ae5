//! Pooling of planes with channels last, eight channels a thread.

use super::shape::{from_end, input, moving, traffic};
use crate::frame::{cell, load};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::template::fill;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, words};
use kiln_ops::conv::window::{dims, known};
use kiln_ops::layout::Layout;
use kiln_ops::pool::{PoolOp, geometry};

const TEXT: &str = include_str!("../../../../kernels/window/pool.cuh");

pub const KERNELS: &[Kernel] = &[Kernel {
    name: "pool.channels",
    ops: &["pool"],
    epilogue: true,
    tactics,
    source: |site, _| source(site),
    launch,
}];

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let attrs = site.op()?.attrs();
    let Some(x) = input(site, 0).filter(|x| x.rank() == 4) else {
        return unsupported("pooling by channels of other than planes");
    };
    let eights = from_end(x, 0).is_some_and(|c| c > 0 && c.is_multiple_of(8));
    if Layout::of(attrs) != Layout::ChannelsLast || !eights || !site.first_dtype().is_float() {
        return unsupported("pooling by channels of floats that lie otherwise, or not in eights");
    }
    let include = attrs.bool("count_include_pad").map_err(op_error)?;
    match PoolOp::of(attrs) {
        PoolOp::Max => {}
        PoolOp::Average if !include => {}
        _ => return unsupported("pooling by channels of norms, or averages with the padding"),
    }
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 1.5));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain("pool.channels") }])
}

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let (start, step, last) = match PoolOp::of(site.op()?.attrs()) {
        PoolOp::Max => ("cf(0xff800000u)", "kmax(acc, v)", ""),
        _ => ("0.0f", "acc + v", "sums[j] = count == 0u ? 0.0f : sums[j] / f32(count);"),
    };
    let value = load(site.first_dtype(), "r.v", "j");
    let pairs = [
        ("CELL", cell(site.first_dtype())),
        ("VALUE", &*value),
        ("START", start),
        ("STEP", step),
        ("LAST", last),
    ];
    Ok(Body { code: fill(TEXT, &pairs), entries: vec![Entry::Free("pool")], ..Body::default() })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let axes = known(&geometry(cx.op()?.attrs(), &dims(&x)).map_err(op_error)?).map_err(op_error)?;
    let (&[n, oh, ow, c], [down, across]) = (&y[..], &axes[..]) else {
        return Err(BackendError::Internal("pooling of no plane".into()));
    };
    let mut w = words([x[1], x[2], oh, ow])?;
    let each = |a: i64| i32::try_from(a).map(|v| v as u32);
    for (a, b) in [
        (down.kernel, across.kernel),
        (down.stride, across.stride),
        (down.dilation, across.dilation),
        (down.begin, across.begin),
    ] {
        for v in [a, b] {
            let v = each(v).map_err(|_| BackendError::Unsupported(format!("a window of size {v}")))?;
            w.push(v);
        }
    }
    w.extend(words([c / 8])?);
    Ok(vec![Launch::map(0, w).on(Grid::Threads((n * oh * ow * (c / 8)) as u64))])
}
