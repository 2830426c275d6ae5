//! Tiles of products by packed 2:4 sparse weights, by `wgmma.mma_async.sp`: rows of the table that the tuner chooses from.

use super::sparse::Tile;
use crate::kernels::matmul::sparse_wgmma as matmul_sparse;
use kiln_codegen::Kernel;

/// A tile whose depth no blocks share.
const ALONE: Tile = Tile { rows: 64, groups: 1, parts: 1, stages: 4, split: 1, resident: 1 };

#[rustfmt::skip]
tile_kernels! { Tile, "wgmma_":
    "192x256" [matmul_sparse] Tile { rows: 192, groups: 2, parts: 2, stages: 4, ..ALONE };
    "128x256" [matmul_sparse] Tile { rows: 128, groups: 2, parts: 2, stages: 5, ..ALONE };
    "256x128" [matmul_sparse] Tile { rows: 256, groups: 2, stages: 5, ..ALONE };
    "192x128" [matmul_sparse] Tile { rows: 192, groups: 2, stages: 6, ..ALONE };
    "128x128" [matmul_sparse] Tile { rows: 128, groups: 2, stages: 3, resident: 2, ..ALONE };
    "128x64" [matmul_sparse] Tile { rows: 128, stages: 4, resident: 2, ..ALONE };
    "64x128" [matmul_sparse] Tile { groups: 2, stages: 5, resident: 2, ..ALONE };
    "64x64" [matmul_sparse] Tile { stages: 4, resident: 3, ..ALONE };
    "32x64" [matmul_sparse] Tile { rows: 32, stages: 8, resident: 2, ..ALONE };
    "16x64" [matmul_sparse] Tile { rows: 16, stages: 10, resident: 2, ..ALONE };
    "64x64_split2" [matmul_sparse] Tile { stages: 4, split: 2, resident: 3, ..ALONE };
    "64x64_split4" [matmul_sparse] Tile { stages: 4, split: 4, resident: 3, ..ALONE };
    "32x64_split4" [matmul_sparse] Tile { rows: 32, stages: 8, split: 4, resident: 2, ..ALONE };
    "16x64_split4" [matmul_sparse] Tile { rows: 16, stages: 10, split: 4, resident: 2, ..ALONE };
    "16x64_split8" [matmul_sparse] Tile { rows: 16, stages: 10, split: 8, resident: 2, ..ALONE };
}
