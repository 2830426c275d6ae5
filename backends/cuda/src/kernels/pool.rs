//! Pooling with channels last, eight channels a thread.

pub mod planes;

use super::shape::{from_end, input, moving, traffic};
use crate::frame::element;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::pool::pool_hooks;
use kiln_codegen::scalar::register;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::window::WindowsParams;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ops::conv::window::dims;
use kiln_ops::layout::Layout;
use kiln_ops::pool::{KERNEL, geometry};

/// Taps of a window at most, as one thread reads them all.
const MOST_TAPS: i64 = 1 << 16;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "pool.channels",
    ops: &["pool"],
    epilogue: true,
    views: Views::Whole,
    side_results: false,
    tactics,
    source: |site, _| source(site),
    launch,
}];

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let attrs = site.op()?.attrs();
    let Some(x) = input(site, 0) else {
        return unsupported("pooling by channels of an unknown shape");
    };
    let eights = from_end(x, 0).is_some_and(|c| c > 0 && c.is_multiple_of(8));
    if Layout::of(attrs) != Layout::ChannelsLast || !eights {
        return unsupported("pooling by channels that are not last, or not in eights");
    }
    let t = site.first_dtype();
    if !(8..=32).contains(&t.bits()) {
        return unsupported(format!("pooling by channels of {t}"));
    }
    taps_across(site)?;
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 1.5));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain("pool.channels") }])
}

/// Taps of a window along the last spatial dimension.
fn taps_across(site: &Site<'_>) -> Result<i64, BackendError> {
    let kernel = site.op()?.attrs().ints(KERNEL.name).map_err(op_error)?;
    let taps = kernel.iter().fold(1, |n: i64, &k| n.saturating_mul(k));
    match kernel.last() {
        Some(&n) if n > 0 && (1..=MOST_TAPS).contains(&taps) => Ok(n),
        _ => unsupported(format!("pooling by channels with windows of {kernel:?}")),
    }
}

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let (hooks, t) = (pool_hooks(site)?, site.out_dtype(0));
    let code = element("Cell", "wide", site.first_dtype())
        + &site.alias("Value", t)
        + &site.constant("X_TAPS", "u32", format_args!("{}u", taps_across(site)?))
        + &site.function("first", &[], register(t), &hooks.first)
        + &hooks.code;
    Ok(Body::of("pool/channels", vec![Entry::threads("pool_channels")]).with(code))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let axes = geometry(cx.op()?.attrs(), &dims(&x)).map_err(op_error)?;
    let channels = y.last().copied().unwrap_or(0);
    let params = WindowsParams { channels, ..WindowsParams::of(&axes)? };
    let threads = y.iter().product::<usize>() / 8;
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Threads(threads as u64))])
}
