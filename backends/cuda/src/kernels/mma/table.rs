//! The table of tiles by `mma.sync`.

use super::tile::{Row, Tile};
use crate::kernels::{conv::mma as conv, matmul::mma as matmul};
use kiln_codegen::Kernel;

/// A tile that no blocks share.
const fn alone(tile: Tile) -> Row {
    Row { tile, split: 1 }
}

#[rustfmt::skip]
tile_kernels! { Row, "mma_":
    "256x128" [matmul conv] alone(Tile { m: 256, n: 128, bytes: 128, warps: (4, 2), stages: 3 });
    "128x256" [matmul conv] alone(Tile { m: 128, n: 256, bytes: 128, warps: (2, 4), stages: 3 });
    "128x128" [matmul conv] alone(Tile { m: 128, n: 128, bytes: 128, warps: (2, 2), stages: 3 });
    "128x128_w8" [matmul conv] alone(Tile { m: 128, n: 128, bytes: 64, warps: (2, 4), stages: 4 });
    "128x64" [matmul conv] alone(Tile { m: 128, n: 64, bytes: 64, warps: (2, 2), stages: 4 });
    "64x128" [matmul conv] alone(Tile { m: 64, n: 128, bytes: 64, warps: (2, 2), stages: 4 });
    "64x64" [matmul conv] alone(Tile { m: 64, n: 64, bytes: 128, warps: (2, 2), stages: 4 });
    "128x32" [matmul conv] alone(Tile { m: 128, n: 32, bytes: 64, warps: (4, 1), stages: 4 });
    "128x16" [matmul conv] alone(Tile { m: 128, n: 16, bytes: 64, warps: (4, 1), stages: 5 });
    "32x64" [matmul conv] alone(Tile { m: 32, n: 64, bytes: 128, warps: (1, 4), stages: 4 });
    "16x128" [matmul conv] alone(Tile { m: 16, n: 128, bytes: 128, warps: (1, 4), stages: 4 });
    "64x64_split2" [matmul] Row { tile: Tile { m: 64, n: 64, bytes: 128, warps: (2, 2), stages: 4 }, split: 2 };
    "64x64_split4" [matmul] Row { tile: Tile { m: 64, n: 64, bytes: 128, warps: (2, 2), stages: 4 }, split: 4 };
    "32x64_split4" [matmul] Row { tile: Tile { m: 32, n: 64, bytes: 128, warps: (1, 4), stages: 4 }, split: 4 };
    "32x64_split8" [matmul] Row { tile: Tile { m: 32, n: 64, bytes: 128, warps: (1, 4), stages: 4 }, split: 8 };
    "16x128_split4" [matmul] Row { tile: Tile { m: 16, n: 128, bytes: 128, warps: (1, 4), stages: 4 }, split: 4 };
    "16x128_split12" [matmul] Row { tile: Tile { m: 16, n: 128, bytes: 128, warps: (1, 4), stages: 4 }, split: 12 };
}
