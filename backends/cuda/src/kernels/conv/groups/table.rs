//! Blocks of convolutions with few channels a group: rows of the table that the tuner chooses from.
//!
//! A block has `warps` of `parts` times 16 windows, and `image` bytes of the image.

use super::{self as conv, Row};
use kiln_codegen::Kernel;

#[rustfmt::skip]
tile_kernels! { Row, "mma_groups_":
    "256" [conv] Row { warps: 8, parts: 2, image: 64 << 10 };
    "128" [conv] Row { warps: 4, parts: 2, image: 36 << 10 };
    "128_w8" [conv] Row { warps: 8, parts: 1, image: 36 << 10 };
    "64" [conv] Row { warps: 4, parts: 1, image: 24 << 10 };
}
