//! Kernels: one file a family of operators, each listing its kernels. Those that other backends run as they are come from
//! `kiln-codegen`.

mod attention;
mod block;
mod conv;
mod cooperative;
mod cost;
mod generate;
mod lines;
mod loss;
mod matmul;
mod norm;
mod recurrent;
mod reduce;
mod sample;
mod scatter;
mod select;
mod slice;
mod softmax;
mod sort;
mod tile;
mod transpose;

use kiln_codegen::{Kernel, cast, gather, pointwise, shape, signal, text};

/// Kernels of this backend alone.
#[rustfmt::skip]
pub const OWN: &[&[Kernel]] = &[
    attention::cooperative::KERNELS,
    attention::KERNELS,
    conv::KERNELS,
    generate::KERNELS,
    lines::KERNELS,
    loss::KERNELS,
    matmul::KERNELS,
    matmul::codes::KERNELS,
    matmul::det::KERNELS,
    matmul::rows::KERNELS,
    norm::KERNELS,
    recurrent::KERNELS,
    recurrent::steps::KERNELS,
    reduce::KERNELS,
    sample::KERNELS,
    scatter::KERNELS,
    select::KERNELS,
    select::nms::KERNELS,
    select::unique::KERNELS,
    slice::KERNELS,
    softmax::KERNELS,
    sort::KERNELS,
    transpose::KERNELS,
];

/// Kernels that it shares.
#[rustfmt::skip]
pub const SHARED: &[&[Kernel]] = &[
    pointwise::KERNELS,
    kiln_codegen::attention::kv_cache::KERNELS,
    kiln_codegen::attention::linear::KERNELS,
    kiln_codegen::attention::rotary::KERNELS,
    cast::KERNELS,
    kiln_codegen::conv::deformable::KERNELS,
    gather::KERNELS,
    kiln_codegen::generate::KERNELS,
    kiln_codegen::matmul::einsum::KERNELS,
    kiln_codegen::matmul::gated::KERNELS,
    kiln_codegen::matmul::normed::KERNELS,
    kiln_codegen::norm::KERNELS,
    kiln_codegen::reduce::argreduce::KERNELS,
    kiln_codegen::reduce::cumulative::KERNELS,
    kiln_codegen::sample::KERNELS,
    kiln_codegen::scatter::KERNELS,
    shape::KERNELS,
    signal::KERNELS,
    kiln_codegen::slice::KERNELS,
    kiln_codegen::slice::insert::KERNELS,
    text::KERNELS,
    kiln_codegen::transpose::KERNELS,
    kiln_codegen::conv::transposed::KERNELS,
    kiln_codegen::pool::KERNELS,
];
