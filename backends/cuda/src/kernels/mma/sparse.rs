//! Products by packed 2:4 sparse weights, by `mma.sp`: what they take and need. The tiles are in `sparse_table.rs`.
//!
//! Weights are the instruction's first operand: its rows are columns of the result.

use super::tile::{Kind, Tile};
use crate::kernels::cost::Product;
use crate::target::capability;
use kiln_backend::{BackendError, Target};
use kiln_codegen::site::{Site, unsupported};

/// Bytes of the depth whose places lie together.
pub const CHUNK_BYTES: usize = 128;
/// Operations of `mma.sp` in the time of one of `mma.sync`, with what it reads more.
const GAIN: f64 = 1.6;

/// The kind of a product of the first input by the packed weights behind it.
pub fn kind(site: &Site<'_>) -> Result<Kind, BackendError> {
    let kind = Kind::of_types(site)?;
    match kind.size {
        1 | 2 => Ok(kind),
        n => unsupported(format!("2:4 sparse weights of {n} bytes")),
    }
}

/// Refuses 8-bit floats where the compiler makes the instruction of others: only sm_89 and consumer chips behind it have it.
pub fn check_native(site: &Site<'_>, kind: Kind) -> Result<(), BackendError> {
    let arch = capability(&site.target.arch);
    match kind.types.0 == "e4m3" && arch != 89 && arch < 120 {
        true => unsupported(format!("2:4 sparse weights of f8e4m3 on {}", site.target.arch)),
        false => Ok(()),
    }
}

/// The structure of the instruction in `mma/sparse.cuh`.
pub fn instruction(kind: Kind) -> String {
    format!("kernels::mma_sp_{}_{}", kind.types.1, kind.types.0)
}

impl Tile {
    /// Shared memory of a block in bytes, weights packed.
    pub fn shared_sparse(&self, kind: Kind) -> usize {
        let places = self.n / 16 * (self.bytes / CHUNK_BYTES) * (256 / kind.size);
        let stage = self.m * (self.bytes + 16) + self.n * (self.bytes / 2 + 16) + places;
        let sums = self.threads() / 32 * 8 * (self.n / self.warps.1 + 4) * 4;
        (self.stages * stage).max(sums)
    }

    /// Refuses a target whose blocks have less shared memory.
    pub fn check_sparse(&self, site: &Site<'_>, kind: Kind) -> Result<(), BackendError> {
        let needs = self.shared_sparse(kind) as u64;
        match site.target.numbers.get("shared_memory") {
            Some(&has) if has < needs => {
                unsupported(format!("{needs} bytes of shared memory, there are {has}"))
            }
            _ => Ok(()),
        }
    }

    /// The nanoseconds that a product by packed weights is expected to take.
    pub fn estimate_sparse(&self, product: &Product, target: &Target, kind: Kind) -> f64 {
        self.estimate(product, target, Kind { speed: kind.speed * GAIN, ..kind }, 1)
    }
}
