//! Regions of pointwise operators only: the fused expression is the kernel.

use crate::{Body, Kernel, Launch, Views, plain};

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "pointwise",
    ops: &[],
    epilogue: true,
    views: Views::Whole,
    side_results: true,
    tactics: |_| plain("pointwise"),
    source: |_, _| Ok(Body::expression()),
    launch: |_| Ok(vec![Launch::map(0, Vec::new())]),
}];
