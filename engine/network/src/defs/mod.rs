//! The kinds of layers, one file per idea: parameters, checks, the operators that they stand for, and the `add_…`
//! methods of [`Network`].

mod activation;
mod attention;
mod constant;
mod conv;
mod fill;
mod gather;
mod matmul;
mod moe;
mod nms;
mod norm;
mod operator;
mod packed;
mod plugin;
mod pointwise;
mod pool;
mod quantize;
mod reduce;
mod resize;
mod scale;
mod shuffle;
mod slice;
#[cfg(test)]
mod tests;
mod window;

pub use activation::{Activation, ActivationKind};
pub use attention::{Attention, AttentionNorm, CausalMask, KvCacheUpdate, RotaryEmbedding};
pub use constant::{Assertion, Cast, Constant, Identity, Shape};
pub use conv::{Conv, Convolution, Deconvolution, Weights};
pub use fill::{Fill, FillOp, FillValue};
pub use gather::{Gather, GatherMode, NonZero, OneHot, Scatter, ScatterMode};
pub use matmul::{Einsum, FullyConnected, MatrixMultiply, MatrixOp};
pub use moe::Moe;
pub use nms::{BoundingBoxFormat, MAX_TOPK_BOXES, Nms};
pub use norm::Normalization;
pub use operator::Operator;
pub use packed::PackedAttention;
pub use plugin::{Plugin, PluginSpec};
pub use pointwise::{Elementwise, ElementwiseOp, ParametricRelu, Select, Unary, UnaryOp};
pub use pool::{Pooling, PoolingKind};
pub use quantize::{Dequantize, DynamicQuantize, Quantize};
pub use reduce::{Cumulative, MAX_TOPK, RaggedSoftmax, Reduce, ReduceOp, Softmax, TopK, TopKOp};
pub use resize::{
    GridSample, InterpolationMode, Resize, ResizeCoordinates, ResizeRounding, ResizeSelector, ResizeTarget,
};
pub use scale::{Lrn, Scale, ScaleMode};
pub use shuffle::{Concatenation, Padding, ReverseSequence, Shuffle, Squeeze, Unsqueeze};
pub use slice::{SampleMode, Slice};
pub use window::{PaddingMode, Window};

use super::{Layer, LayerDef, Network, TensorId};
use crate::NetworkError;
use std::sync::Arc;

impl Network {
    /// Adds a layer whose inputs are all present.
    pub(super) fn add_kind<P: LayerDef>(
        &mut self,
        def: P,
        inputs: &[TensorId],
    ) -> Result<Layer<'_, P>, NetworkError> {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        self.add_kind_opt(def, &inputs)
    }

    /// Adds a layer by its parameters. Some inputs may be absent; trailing ones are dropped.
    pub fn add_kind_opt<P: LayerDef>(
        &mut self,
        def: P,
        inputs: &[Option<TensorId>],
    ) -> Result<Layer<'_, P>, NetworkError> {
        let last = inputs.iter().rposition(Option::is_some).map_or(0, |i| i + 1);
        let id = self.add_def("", Arc::new(def), &inputs[..last])?;
        Ok(Layer::new(self, id))
    }
}
