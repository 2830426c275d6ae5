//! Convolutions: in tiles, or one thread an element.

use crate::site::{Cx, Site, unsupported};
use crate::window::{conv_words, groups, sums};
use crate::{Body, Entry, Grid, Kernel, Launch, plain};
use kiln_backend::{BackendError, Tactic};
use kiln_ops::layout::Layout;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "conv.tiled",
        ops: &["conv"],
        epilogue: true,
        tactics: tiled_tactics,
        source: |site, _| Ok(Body { entries: vec![Entry::Free("tiled")], ..sums(site, "conv_tiled") }),
        launch: conv_tiled,
    },
    Kernel {
        name: "conv.direct",
        ops: &["conv"],
        epilogue: true,
        tactics: |_| plain("conv.direct"),
        source: |site, _| Ok(sums(site, "conv")),
        launch: |cx| Ok(vec![Launch::map(0, conv_words(cx)?)]),
    },
];

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
    Ok(vec![Launch::map(0, conv_words(cx)?).on(Grid::Groups(tiles as u64))])
}
