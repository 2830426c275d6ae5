//! Kernels: one file a family of operators, each listing its kernels. Those that other backends run as they are come from
//! `kiln-families`, whose templates [`crate::dialect`] has in WGSL.

mod attention;
mod block;
mod conv;
mod cost;
mod deform;
mod einsum;
mod matmul;
mod norm;
mod recurrent;
mod reduce;
mod rows;
mod sample;
mod scatter;
mod select;
mod sequence;
mod sort;
mod text;
mod tile;
mod window;

use kiln_families::{Kernel, affine, host, moves, pointwise};

/// Kernels of this backend alone.
#[rustfmt::skip]
pub const OWN: &[&[Kernel]] = &[
    attention::KERNELS,
    conv::KERNELS,
    deform::KERNELS,
    einsum::KERNELS,
    matmul::KERNELS,
    norm::KERNELS,
    recurrent::KERNELS,
    reduce::KERNELS,
    rows::KERNELS,
    sample::KERNELS,
    scatter::KERNELS,
    select::KERNELS,
    sequence::KERNELS,
    text::KERNELS,
    window::KERNELS,
];

/// Kernels that it shares.
#[rustfmt::skip]
pub const SHARED: &[&[Kernel]] = &[
    pointwise::KERNELS,
    affine::KERNELS,
    host::KERNELS,
    moves::KERNELS,
];

/// Templates that several families use.
const MOVES: &str = include_str!("../../../../shaders/moves.wgsl");
