//! Blocks of products of few rows by weights that stay codes: rows of the table that the tuner chooses from, named by their rows and
//! the warps that share the depth.

use crate::kernels::matmul::codes_rows as matmul_codes;
use crate::kernels::matmul::codes_rows::Tile;
use kiln_codegen::Kernel;

#[rustfmt::skip]
tile_kernels! { Tile, "rows_":
    "8x4" [matmul_codes] Tile { tiles: 1, warps: 4 };
    "8x8" [matmul_codes] Tile { tiles: 1, warps: 8 };
    "8x16" [matmul_codes] Tile { tiles: 1, warps: 16 };
    "16x8" [matmul_codes] Tile { tiles: 2, warps: 8 };
    "32x8" [matmul_codes] Tile { tiles: 4, warps: 8 };
}
