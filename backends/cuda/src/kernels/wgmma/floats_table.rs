//! Tiles of products by weights that are made floats in front, by `wgmma`: rows of the table that the tuner chooses from.

use super::{STAGE_BYTES, Tile};
use crate::kernels::matmul::codes_floats as matmul_codes;
use kiln_codegen::Kernel;

/// A tile whose warpgroups work on it together.
const ALONE: Tile = Tile {
    groups: 2,
    in_turns: false,
    parts: 1,
    n: 128,
    stages: 4,
    split: 1,
    exchange: false,
    cluster: 1,
    resident: 1,
    line: STAGE_BYTES,
};

#[rustfmt::skip]
tile_kernels! { Tile, "floats_":
    "128x256" [matmul_codes] Tile { n: 256, ..ALONE };
    "256x128" [matmul_codes] Tile { parts: 2, ..ALONE };
    "128x192" [matmul_codes] Tile { n: 192, stages: 5, ..ALONE };
    "128x128" [matmul_codes] Tile { stages: 6, ..ALONE };
    "64x128_turns" [matmul_codes] Tile { in_turns: true, stages: 8, ..ALONE };
}
