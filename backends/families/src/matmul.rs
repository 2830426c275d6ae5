//! Matrix products: a naive kernel for every type, a tiled one for floats.

use crate::scalar::{register, zero};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::template::{fill, section};
use crate::{Body, Entry, Grid, Kernel, Launch, plain, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::ops::util::broadcast_strides;

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "matmul.tiled",
        ops: &["matmul"],
        epilogue: true,
        tactics: tiled_tactics,
        source: |site, _| tiled_source(site),
        launch: tiled_launch,
    },
    Kernel {
        name: "matmul.naive",
        ops: &["matmul"],
        epilogue: true,
        tactics: |_| plain("matmul.naive"),
        source: |site, _| Ok(Body::map(part(site, "naive"))),
        launch: |cx| Ok(vec![Launch::map(0, geometry(cx, 1, 1)?.0)]),
    },
];

fn part(site: &Site<'_>, name: &str) -> String {
    let text = site.text("matmul");
    let shared = text.split_once("// ---- ").map_or("", |p| p.0);
    let t = site.out_dtype(0);
    fill(&(shared.to_owned() + section(text, name)), &[("ACC", register(t)), ("ZERO", zero(t))])
}

fn tiled_tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    if !site.out_dtype(0).is_float() {
        return unsupported("tiles of integers");
    }
    if site.target.numbers.get("workgroup_threads").is_none_or(|&n| n < 256) {
        return unsupported("workgroups of fewer than 256 threads");
    }
    plain("matmul.tiled")
}

fn tiled_source(site: &Site<'_>) -> Result<Body, BackendError> {
    let code = part(site, "tiled");
    Ok(Body { code, entries: vec![Entry::Free("tiled")], ..Body::default() })
}

fn tiled_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (words, tiles) = geometry(cx, 64, 64)?;
    Ok(vec![Launch::map(0, words).on(Grid::Groups(tiles))])
}

/// The words of a product, and how many tiles of `rows` x `cols` cover its results: m, n, k, row and column strides of A,
/// row and column strides of B, rank of the batch, its dimensions, its strides in A and in B.
pub fn geometry(cx: &Cx<'_>, rows: usize, cols: usize) -> Result<(Vec<u32>, u64), BackendError> {
    let (a, b, out) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let attrs = cx.op()?.attrs();
    let trans = |name| attrs.bool(name).map_err(op_error);
    let (ra, ca, ba) = matrix(&a, trans("trans_a")?, true);
    let (rb, cb, bb) = matrix(&b, trans("trans_b")?, false);
    let (m, k, n) = (ra.0, ca.0, cb.0);
    let own = usize::from(a.len() > 1) + usize::from(b.len() > 1);
    let batch = &out[..out.len().saturating_sub(own)];
    let scaled = |own: &[usize], size| -> Vec<usize> {
        broadcast_strides(own, batch).into_iter().map(|s| s * size).collect()
    };
    let mut w = words([m, n, k, ra.1, ca.1, rb.1, cb.1, batch.len()])?;
    w.extend(words(batch.iter().copied())?);
    w.extend(words(scaled(ba, m * k))?);
    w.extend(words(scaled(bb, k * n))?);
    let tiles = m.div_ceil(rows) * n.div_ceil(cols) * batch.iter().product::<usize>();
    Ok((w, tiles as u64))
}

/// Rows and columns of an operand as (size, stride), and its batch dimensions. A vector is a row on the left and a
/// column on the right.
fn matrix(dims: &[usize], trans: bool, left: bool) -> ((usize, usize), (usize, usize), &[usize]) {
    match dims {
        [n] if left => ((1, *n), (*n, 1), &[]),
        [n] => ((*n, 1), (1, 1), &[]),
        [batch @ .., r, c] if trans => ((*c, 1), (*r, *c), batch),
        [batch @ .., r, c] => ((*r, *c), (*c, 1), batch),
        [] => ((1, 1), (1, 1), &[]),
    }
}
