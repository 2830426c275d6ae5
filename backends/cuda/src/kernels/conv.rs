//! Convolutions: on tensor cores where channels are last and many, directly where groups have few.

pub mod depthwise;
pub mod few;
pub mod grouped;
pub mod groups;
pub mod lines;
pub mod mma;
pub mod wgmma;

use super::constants::alias;
use crate::frame::{cell, load};
use kiln_backend::BackendError;
use kiln_codegen::scalar::register;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_ir::{DType, Op};
use kiln_ops::conv::geometry;
use kiln_ops::conv::window::{Axis, dims, known};
use kiln_ops::layout::Layout;
use kiln_ops::matmul::codes::MATMUL_CODES;
use kiln_ops::matmul::normed::NORM_MATMUL;
use kiln_ops::matmul::sparse::MATMUL_SPARSE;

/// Channels and output channels of a group, which the weights tell.
pub fn of_group(site: &Site<'_>) -> Option<(i64, i64)> {
    let (_, n) = site.anchor?;
    let dims = &site.graph.ty((*n.inputs.get(1)?)?).dims;
    let groups = n.op.attrs().int("groups").ok()?.max(1);
    Some((dims.last()?.as_const()?, dims.first()?.as_const()? / groups))
}

/// The members that `conv/bias.cuh` asks for. Input 2 of products by codes holds scales, that of products by sparse weights places.
pub fn bias(site: &Site<'_>) -> String {
    let other = |op: &Op| [MATMUL_CODES, MATMUL_SPARSE, NORM_MATMUL].iter().any(|name| op.is(*name));
    let t = site.dtype(2).filter(|_| !site.op().is_ok_and(other));
    let has = format!("    static constexpr bool HAS_BIAS = {};\n", t.is_some());
    let (of, value) = match t {
        Some(t) => (cell(t), load(t, "v", "i")),
        None => ("u8", "0".to_owned()),
    };
    let sum = register(t.unwrap_or(DType::I32));
    let function = format!("    DEV static {sum} bias_value(const {of}* v, u32 i) {{ return {value}; }}\n");
    has + &alias("BiasCell", of) + &function
}

/// The sizes of a convolution at launch.
pub struct Geometry {
    /// The spatial dimensions, fewer than three led by windows of one element.
    pub axes: [Axis<i64>; 3],
    /// Channels of the image.
    pub channels: usize,
    /// Output channels.
    pub outputs: usize,
    /// Channels of a group.
    pub group_channels: usize,
    /// Output channels of a group.
    pub group_outputs: usize,
}

impl Geometry {
    /// The sizes of the anchor's inputs.
    pub fn of(cx: &Cx<'_>) -> Result<Geometry, BackendError> {
        let attrs = cx.op()?.attrs();
        let (x, k) = (cx.shape(0)?, cx.shape(1)?);
        let axes = geometry(attrs, &dims(&x), &dims(&k)).map_err(op_error)?;
        let axes = known(&axes).map_err(op_error)?;
        let groups = attrs.int("groups").map_err(op_error)?.max(1) as usize;
        let [x, k] = [&x, &k].map(|d| Layout::of(attrs).to_linear(d));
        let one = Axis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, begin: 0, end: 0 };
        let mut all = [one.clone(), one.clone(), one];
        let Some(first) = all.len().checked_sub(axes.len()) else {
            return unsupported(format!("convolutions of {} spatial dimensions", axes.len()));
        };
        for (to, from) in all[first..].iter_mut().zip(axes) {
            let sizes =
                [from.input, from.output, from.kernel, from.stride, from.dilation, from.begin, from.end];
            if let Some(n) = sizes.iter().find(|n| i32::try_from(**n).is_err()) {
                return unsupported(format!("a window of size {n}"));
            }
            *to = from;
        }
        Ok(Geometry {
            axes: all,
            channels: x[1],
            outputs: k[0],
            group_channels: k[1],
            group_outputs: k[0] / groups,
        })
    }
}

/// A size that is known not to be negative.
pub fn size(n: i64) -> usize {
    n.max(0) as usize
}
