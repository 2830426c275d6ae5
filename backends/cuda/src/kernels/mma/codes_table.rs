//! Tiles of products by weights that stay codes (`mma.sync`): rows of the table that the tuner chooses from.
//!
//! Stages have 128 bytes of a row, hence 64 elements of 16 bits of the depth, or 32 of f32.

use super::tile::{Row, Tile};
use crate::kernels::matmul::codes as matmul_codes;
use kiln_codegen::Kernel;

/// A tile whose depth so many blocks share.
const fn shared(m: usize, n: usize, warps: (usize, usize), stages: usize, split: usize) -> Row {
    Row { tile: Tile { m, n, bytes: 128, warps, stages }, split }
}

#[rustfmt::skip]
tile_kernels! { Row, "mma_":
    "256x128" [matmul_codes] shared(256, 128, (4, 2), 3, 1);
    "128x256" [matmul_codes] shared(128, 256, (2, 4), 3, 1);
    "128x128" [matmul_codes] shared(128, 128, (2, 4), 4, 1);
    "64x128" [matmul_codes] shared(64, 128, (1, 4), 4, 1);
    "64x64" [matmul_codes] shared(64, 64, (2, 2), 4, 1);
    "32x128" [matmul_codes] shared(32, 128, (1, 4), 4, 1);
    "16x128" [matmul_codes] shared(16, 128, (1, 4), 4, 1);
    "64x128_split4" [matmul_codes] shared(64, 128, (1, 4), 4, 4);
    "32x128_split4" [matmul_codes] shared(32, 128, (1, 4), 4, 4);
    "16x128_split4" [matmul_codes] shared(16, 128, (1, 4), 4, 4);
    "16x128_split12" [matmul_codes] shared(16, 128, (1, 4), 4, 12);
}
