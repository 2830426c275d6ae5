//! The table of tiles by `wgmma`, the largest first.

use super::{STAGE_BYTES, Tile};
use crate::kernels::conv::wgmma as conv;
use crate::kernels::matmul::{gated::wgmma as gated_matmul, normed::wgmma as norm_matmul, wgmma as matmul};
use kiln_codegen::Kernel;

/// A tile whose depth no blocks share, and whose warpgroups work on it together.
const ALONE: Tile = Tile {
    groups: 1,
    in_turns: false,
    parts: 1,
    n: 64,
    stages: 4,
    split: 1,
    exchange: false,
    cluster: 1,
    resident: 1,
    line: STAGE_BYTES,
};
/// Tiles of blocks of a cluster, which share the depth and exchange their sums.
const SHARED: Tile = Tile { groups: 2, split: 2, exchange: true, ..ALONE };
/// Tiles for channels that would leave the second half of a line empty.
const HALF: Tile = Tile { groups: 2, line: STAGE_BYTES / 2, ..ALONE };
/// Tiles of two blocks, which share copies of columns.
const PAIR: Tile = Tile { groups: 2, cluster: 2, ..ALONE };

#[rustfmt::skip]
tile_kernels! { Tile, "wgmma_":
    "128x256" [matmul conv norm_matmul gated_matmul] Tile { groups: 2, parts: 1, n: 256, stages: 4, resident: 1, ..ALONE };
    "256x128" [matmul conv norm_matmul gated_matmul] Tile { groups: 2, parts: 2, n: 128, stages: 4, resident: 1, ..ALONE };
    "192x128" [matmul conv norm_matmul gated_matmul] Tile { groups: 3, parts: 1, n: 128, stages: 5, resident: 1, ..ALONE };
    "128x192" [matmul conv norm_matmul gated_matmul] Tile { groups: 2, parts: 1, n: 192, stages: 5, resident: 1, ..ALONE };
    "128x128_turns" [matmul conv norm_matmul gated_matmul] Tile { groups: 2, in_turns: true, parts: 2, n: 128, stages: 6, resident: 1, ..ALONE };
    "128x128" [matmul conv norm_matmul gated_matmul] Tile { groups: 2, parts: 1, n: 128, stages: 6, resident: 1, ..ALONE };
    "64x192_turns" [matmul conv norm_matmul gated_matmul] Tile { groups: 2, in_turns: true, parts: 1, n: 192, stages: 7, resident: 1, ..ALONE };
    "128x64_turns" [matmul conv norm_matmul gated_matmul] Tile { groups: 2, in_turns: true, parts: 2, n: 64, stages: 8, resident: 1, ..ALONE };
    "128x64" [matmul conv norm_matmul gated_matmul] Tile { groups: 2, parts: 1, n: 64, stages: 4, resident: 2, ..ALONE };
    "64x128_turns" [matmul conv norm_matmul gated_matmul] Tile { groups: 2, in_turns: true, parts: 1, n: 128, stages: 8, resident: 1, ..ALONE };
    "64x128" [matmul conv norm_matmul gated_matmul] Tile { groups: 1, parts: 1, n: 128, stages: 4, resident: 2, ..ALONE };
    "64x64_turns" [matmul conv norm_matmul gated_matmul] Tile { groups: 2, in_turns: true, parts: 1, n: 64, stages: 6, resident: 2, ..ALONE };
    "64x64" [matmul conv norm_matmul gated_matmul] Tile { groups: 1, parts: 1, n: 64, stages: 4, resident: 3, ..ALONE };
    "64x32" [matmul conv norm_matmul] Tile { groups: 1, parts: 1, n: 32, stages: 8, resident: 2, ..ALONE };
    "128x256_pair" [matmul conv norm_matmul gated_matmul] Tile { n: 256, stages: 4, ..PAIR };
    "256x128_pair" [matmul conv norm_matmul gated_matmul] Tile { parts: 2, n: 128, stages: 4, ..PAIR };
    "192x128_pair" [matmul conv norm_matmul gated_matmul] Tile { groups: 3, n: 128, stages: 5, ..PAIR };
    "128x192_pair" [matmul conv norm_matmul gated_matmul] Tile { n: 192, stages: 5, ..PAIR };
    "128x128_turns_pair" [matmul conv norm_matmul gated_matmul] Tile { in_turns: true, parts: 2, n: 128, stages: 6, ..PAIR };
    "128x128_pair" [matmul conv norm_matmul gated_matmul] Tile { n: 128, stages: 6, ..PAIR };
    "128x128_shared2" [matmul conv] Tile { n: 128, stages: 6, ..SHARED };
    "128x128_shared2_pair" [matmul conv] Tile { n: 128, stages: 6, cluster: 2, ..SHARED };
    "128x64_shared2" [matmul conv] Tile { n: 64, stages: 7, ..SHARED };
    "64x128_shared2" [matmul conv] Tile { groups: 1, n: 128, stages: 7, ..SHARED };
    "64x128_shared4" [matmul conv] Tile { groups: 1, n: 128, stages: 7, split: 4, ..SHARED };
    "128x128_turns_half" [conv] Tile { in_turns: true, parts: 2, n: 128, stages: 12, ..HALF };
    "128x64_turns_half" [conv] Tile { in_turns: true, parts: 2, n: 64, stages: 14, ..HALF };
    "128x64_half" [conv] Tile { n: 64, stages: 8, resident: 2, ..HALF };
    "64x64_half" [conv] Tile { groups: 1, n: 64, stages: 8, resident: 3, ..HALF };
    "64x32_half" [conv] Tile { groups: 1, n: 32, stages: 12, resident: 2, ..HALF };
    "64x128_split4" [matmul conv] Tile { groups: 1, parts: 1, n: 128, stages: 4, split: 4, resident: 2, ..ALONE };
    "64x64_split2" [matmul conv] Tile { groups: 1, parts: 1, n: 64, stages: 4, split: 2, resident: 3, ..ALONE };
    "64x64_split4" [matmul conv] Tile { groups: 1, parts: 1, n: 64, stages: 4, split: 4, resident: 3, ..ALONE };
    "64x32_split8" [matmul conv] Tile { groups: 1, parts: 1, n: 32, stages: 8, split: 8, resident: 2, ..ALONE };
}
