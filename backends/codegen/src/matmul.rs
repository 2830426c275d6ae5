//! Matrix products: a naive kernel for every type, a tiled one for floats.

pub mod codes;
pub mod det;
pub mod einsum;
pub mod gated;
pub mod normed;
pub mod sparse;

use crate::long::long_sum;
use crate::rows::RowTile;
use crate::scalar::zero;
use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Body, Entry, Grid, Kernel, Launch, Views, plain};
use kiln_backend::{BackendError, Tactic};
use kiln_ops::matmul::codes::MATMUL_CODES;
use kiln_ops::util::broadcast_strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "matmul.tiled",
        ops: &["matmul"],
        epilogue: true,
        views: Views::Framed,
        side_results: true,
        tactics: tiled_tactics,
        source: |site, _| {
            let side = site.constant("SIDE", "bool", site.side.is_some());
            let code = TILE.constants(site) + &side + &codes::factor(site)?;
            Ok(Body::of(FILE, vec![Entry::blocks("matmul_tiled", 256)]).with(code))
        },
        launch: tiled_launch,
    },
    Kernel {
        name: "matmul.naive",
        ops: &["matmul"],
        epilogue: true,
        views: Views::Framed,
        side_results: true,
        tactics: |_| plain("matmul.naive"),
        source: |site, _| naive(site),
        launch: |cx| Ok(vec![Launch::map(0, product(cx)?.params.words()?)]),
    },
];

const FILE: &str = "matmul/matmul";

const TILE: RowTile = RowTile { rows: 64, columns: 64, chunk: 4 };

crate::params! {
    /// A product of matrices [m, k] and [k, n].
    pub struct MatmulParams {
        /// Rows of the result.
        m: u32,
        /// Its columns.
        n: u32,
        /// Products that an element sums.
        k: u32,
        /// Elements of A from one row to the next.
        a_row: u32,
        /// Elements of A from one column to the next.
        a_column: u32,
        /// Elements of B from one row to the next.
        b_row: u32,
        /// Elements of B from one column to the next.
        b_column: u32,
        /// Dimensions of the batch.
        batch: [u32],
        /// Strides of A along them.
        a_batch: [u32],
        /// Strides of B along them.
        b_batch: [u32],
    }
}

/// A product, one thread an element.
pub fn naive(site: &Site<'_>) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let code = site.alias("Value", t) + &site.constant("ZERO", "Value", zero(t)) + &codes::factor(site)?;
    Ok(long_sum(site, FILE, ("matmul_naive", "matmul_sum"), t).with(code))
}

fn tiled_tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    if !site.out_dtype(0).is_float() {
        return unsupported("tiles of integers");
    }
    if site.target.numbers.get("workgroup_threads").is_none_or(|&n| n < 256) {
        return unsupported("workgroups of fewer than 256 threads");
    }
    RowTile::check(site)?;
    plain("matmul.tiled")
}

fn tiled_launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    tiles(cx, product(cx)?)
}

/// Launches of the tiles of a product.
fn tiles(cx: &Cx<'_>, p: Product) -> Result<Vec<Launch>, BackendError> {
    let tiles = p.m.div_ceil(64) * p.n.div_ceil(64) * p.batch;
    let launch = Launch::map(0, p.params.words()?).on(Grid::Groups(tiles as u64));
    Ok(TILE.launches(cx, 1, vec![launch]))
}

/// A product at launch.
pub struct Product {
    /// Parameters of the generic kernels.
    pub params: MatmulParams,
    /// Rows of the result.
    pub m: usize,
    /// Its columns.
    pub n: usize,
    /// Products that are summed up.
    pub k: usize,
    /// Results.
    pub batch: usize,
    /// Strides of A along k and across.
    pub left: (usize, usize),
    /// Strides of B along k and across.
    pub right: (usize, usize),
}

/// Operands and sizes of a launch's product.
pub fn product(cx: &Cx<'_>) -> Result<Product, BackendError> {
    let (a, b, out) = (cx.shape(0)?, cx.shape(1)?, cx.out_shape(0)?);
    let op = cx.op()?;
    let trans = |name| op.attrs().bool(name).map_err(op_error);
    // Rows of codes are outputs.
    let [turn_a, turn_b] =
        if op.is(MATMUL_CODES) { [false, true] } else { [trans("trans_a")?, trans("trans_b")?] };
    let (ra, ca, ba) = matrix(&a, turn_a, true);
    let (rb, cb, bb) = matrix(&b, turn_b, false);
    let (m, k, n) = (ra.0, ca.0, cb.0);
    let own = usize::from(a.len() > 1) + usize::from(b.len() > 1);
    let batch = &out[..out.len().saturating_sub(own)];
    let scaled = |own: &[usize], size| -> Vec<usize> {
        broadcast_strides(own, batch).into_iter().map(|s| s * size).collect()
    };
    let params = MatmulParams {
        m,
        n,
        k,
        a_row: ra.1,
        a_column: ca.1,
        b_row: rb.1,
        b_column: cb.1,
        batch: batch.to_vec(),
        a_batch: scaled(ba, m * k),
        b_batch: scaled(bb, k * n),
    };
    let batch = batch.iter().product();
    Ok(Product { params, m, n, k, batch, left: (ca.1, ra.1), right: (rb.1, cb.1) })
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
