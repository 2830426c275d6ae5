//! Convolutions: in tiles, or one thread an element.

pub mod deformable;
pub mod transposed;

use crate::long::long_sum;
use crate::scalar::{register, zero};
use crate::site::{Cx, Site, unsupported};
use crate::window::{channels_last, conv_params, groups};
use crate::{Body, Entry, Grid, Kernel, Launch, Views, plain};
use kiln_backend::{BackendError, Tactic};
use kiln_ops::conv::col2im::COL2IM;
use kiln_ops::layout::Layout;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "conv.tiled",
        ops: &["conv"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: tiled_tactics,
        source: |site, _| Ok(Body { entries: vec![Entry::blocks("conv_tiled", 256)], ..direct(site) }),
        launch: conv_tiled,
    },
    Kernel {
        name: "conv.direct",
        ops: &["conv"],
        epilogue: true,
        views: Views::Framed,
        side_results: false,
        tactics: |_| plain("conv.direct"),
        source: |site, _| Ok(direct(site)),
        launch: |cx| Ok(vec![Launch::map(0, conv_params(cx)?.words()?)]),
    },
];

/// The kernel file of windows.
pub const WINDOWS: &str = "conv/windows";

/// The hooks of every convolution: `LAST`, `bias(channel)`.
pub fn hooks(site: &Site<'_>) -> String {
    let t = site.out_dtype(0);
    let biased = site.dtype(2).is_some() && !site.op().is_ok_and(|op| op.is(COL2IM));
    let bias = if biased { "x2(channel)" } else { zero(t) };
    site.constant("LAST", "bool", channels_last(site))
        + &site.function("bias", &[("channel", "u32")], register(t), bias)
}

/// Sums of products under windows by functions of a file: the element's, and where there are spans that of its sum.
fn windowed(site: &Site<'_>, file: &'static str, of: (&'static str, &str)) -> Body {
    let t = site.out_dtype(0);
    let code = site.alias("Value", t) + &hooks(site);
    Body { files: vec![WINDOWS, file], ..long_sum(site, file, of, t).with(code) }
}

/// A convolution, one thread an element.
pub fn direct(site: &Site<'_>) -> Body {
    windowed(site, "conv/conv", ("conv_direct", "conv_sum"))
}

fn tiled_tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    if !site.out_dtype(0).is_float() {
        return unsupported("tiles of integers");
    }
    if site.target.numbers.get("workgroup_threads").is_none_or(|&n| n < 256) {
        return unsupported("workgroups of fewer than 256 threads");
    }
    // A group of few output channels leaves most of a tile empty.
    let few = site.anchor.and_then(|(_, n)| {
        let w = site.graph.ty((*n.inputs.get(1)?)?).dims.first()?.as_const()?;
        Some(w / n.op.attrs().int("groups").ok()?.max(1) < 8)
    });
    if few == Some(true) {
        unsupported("tiles for fewer than 8 channels of a group")
    } else {
        plain("conv.tiled")
    }
}

fn conv_tiled(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let g = groups(cx)?;
    let y = Layout::of(cx.op()?.attrs()).to_linear(&cx.out_shape(0)?);
    let (rows, columns) = (y[1] / g, y[2..].iter().product::<usize>());
    let tiles = rows.div_ceil(64) * columns.div_ceil(64) * y[0] * g;
    Ok(vec![Launch::map(0, conv_params(cx)?.words()?).on(Grid::Groups(tiles as u64))])
}
