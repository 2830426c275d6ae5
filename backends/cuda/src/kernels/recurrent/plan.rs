//! Ways to run a recurrence: blocks that share a sequence, and the tile of the input's product.

use crate::kernels::mma::Tile;
use kiln_backend::BackendError;
use kiln_codegen::site::{Site, op_error, unsupported};
use kiln_ir::{Attrs, DType, Op};
use kiln_ops::recurrent::GRU;

/// A way to run a recurrence.
#[derive(Debug)]
pub struct Plan {
    /// Blocks of a cluster.
    pub cluster: usize,
    /// Whether the blocks are those of a grid that all run at once.
    pub grid: bool,
    /// The tile of the input's product.
    pub tile: Tile,
}

/// Tiles of the input's product.
pub const SMALL: Tile = Tile { m: 64, n: 64, bytes: 128, warps: (2, 2), stages: 4 };
const LARGE: Tile = Tile { m: 128, n: 128, bytes: 64, warps: (2, 4), stages: 4 };

/// A plan of clusters of `cluster` blocks.
pub const fn cluster(cluster: usize) -> Plan {
    Plan { cluster, grid: false, tile: SMALL }
}

/// A plan of clusters of `cluster` blocks with the large tile.
pub const fn cluster_large(cluster: usize) -> Plan {
    Plan { cluster, grid: false, tile: LARGE }
}

/// A plan of `blocks` blocks of a grid.
pub const fn grid(blocks: usize) -> Plan {
    Plan { cluster: blocks, grid: true, tile: SMALL }
}

/// Blocks that run at once in clusters: a cluster is in one part of the device, and not all parts have as many
/// multiprocessors as they may.
pub const RESIDENT: usize = 112;
/// Blocks of grids whose blocks wait for each other.
pub const AT_ONCE: usize = 128;
/// The side of the tile of the input's product in f32.
pub const SIDE: usize = 32;
/// Whether operands of the input's product are laid out across its depth: neither is.
pub const ALONG: (bool, bool) = (false, false);

impl Plan {
    /// Clusters that run at once.
    pub fn at_once(&self) -> usize {
        (if self.grid { AT_ONCE } else { RESIDENT } / self.cluster).max(1)
    }

    /// Sequences of one cluster, at most `most`, so that all clusters run at once if they can.
    pub fn columns(&self, dirs: usize, batch: usize, most: usize) -> usize {
        let clusters = (self.at_once() / dirs.max(1)).max(1);
        batch.div_ceil(clusters).clamp(1, most)
    }
}

/// Number of directions.
pub fn directions(a: &Attrs) -> usize {
    if a.str("direction") == Ok("bidirectional") { 2 } else { 1 }
}

/// Gates of an operator.
pub fn gates(op: &str) -> usize {
    match op {
        "lstm" => 4,
        "gru" => 3,
        _ => 1,
    }
}

/// Whether the reset gate of a GRU comes before the product with the state.
pub fn reset_first(op: &Op) -> Result<bool, BackendError> {
    Ok(op.is(GRU) && !op.attrs().bool("linear_before_reset").map_err(op_error)?)
}

/// The number of hidden units, which the weights tell.
pub fn hidden(site: &Site<'_>) -> Result<usize, BackendError> {
    let own = || site.graph.ty((*site.anchor?.1.inputs.get(2)?)?).dims.get(2)?.as_const();
    match own().and_then(|n| usize::try_from(n).ok()) {
        Some(n) if n > 0 => Ok(n),
        _ => unsupported("recurrent weights of unknown shape, or without units"),
    }
}

/// Whether the products go by tensor cores.
pub fn narrow(site: &Site<'_>) -> Result<bool, BackendError> {
    match site.dtype(0) {
        Some(DType::F32) => Ok(false),
        Some(DType::F16 | DType::BF16) => Ok(true),
        _ => unsupported("recurrent weights on the chip of other types than f32, f16 and bf16"),
    }
}
