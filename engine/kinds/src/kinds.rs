//! The table of layer kinds.

/// Hands the kinds to a macro, in rows of `"name" Type = parameters of a new layer => { "parameter" field, … }`.
#[macro_export]
macro_rules! layer_kinds {
    ($then:ident) => {
        $then! {
            "activation" Activation = Activation { kind: ActivationKind::Relu, alpha: 0.0, beta: 0.0 }
                => { "type" kind, "alpha" alpha, "beta" beta }
            "assertion" Assertion = Assertion { message: String::new() } => { "message" message }
            "attention" Attention
                = Attention { norm: AttentionNorm::Softmax, causal: CausalMask::None, scale: 1.0, quantize: None }
                => { "norm" norm, "causal" causal, "scale" scale, "quantize" quantize }
            "cast" Cast = Cast { to: DType::F32 } => { "to" to }
            "concatenation" Concatenation = Concatenation { axis: None } => { "axis" axis }
            "constant" Constant = Constant { weights: empty()? } => { "weights" weights }
            "convolution" Convolution = $crate::convolution() => {
                "maps" maps, "kernel_size" kernel, "kernel" weights, "bias" bias, "stride" window.stride,
                "pre_padding" window.pre, "post_padding" window.post, "padding_mode" window.mode,
                "dilation" dilation, "groups" groups
            }
            "cumulative" Cumulative = Cumulative { exclusive: false, reverse: false }
                => { "exclusive" exclusive, "reverse" reverse }
            "deconvolution" Deconvolution = $crate::convolution() => {
                "maps" maps, "kernel_size" kernel, "kernel" weights, "bias" bias, "stride" window.stride,
                "pre_padding" window.pre, "post_padding" window.post, "padding_mode" window.mode,
                "dilation" dilation, "groups" groups
            }
            "dequantize" Dequantize = Dequantize { to: DType::F32, axis: None } => { "to" to, "axis" axis }
            "dynamic_quantize" DynamicQuantize
                = DynamicQuantize { axis: -1, block: 16, to: DType::F8E4M3, scale_type: DType::F32 }
                => { "axis" axis, "block" block, "to" to, "scale_type" scale_type }
            "einsum" Einsum = Einsum { equation: String::new() } => { "equation" equation }
            "elementwise" Elementwise = Elementwise { op: ElementwiseOp::Sum } => { "op" op }
            "fill" Fill = Fill {
                    dims: Vec::new(), op: FillOp::Linspace, to: DType::F32, alpha: FillValue::Float(0.0),
                    beta: FillValue::Float(1.0), seed: 0,
                } => { "shape" dims, "op" op, "to" to, "alpha" alpha, "beta" beta, "seed" seed }
            "fully_connected" FullyConnected = FullyConnected { outputs: 0, kernel: empty()?, bias: None }
                => { "outputs" outputs, "kernel" kernel, "bias" bias }
            "gather" Gather = Gather { mode: GatherMode::Default, axis: 0, elementwise_dims: 0 }
                => { "mode" mode, "axis" axis, "elementwise_dims" elementwise_dims }
            "grid_sample" GridSample
                = GridSample { mode: InterpolationMode::Linear, align_corners: false, outside: SampleMode::Fill }
                => { "mode" mode, "align_corners" align_corners, "outside" outside }
            "identity" Identity = Identity => {}
            "kv_cache_update" KvCacheUpdate = KvCacheUpdate => {}
            "lrn" Lrn = Lrn { window: 1, alpha: 1e-4, beta: 0.75, k: 1.0 }
                => { "window" window, "alpha" alpha, "beta" beta, "k" k }
            "matrix_multiply" MatrixMultiply = MatrixMultiply { ops: [MatrixOp::None; 2] } => { "ops" ops }
            "moe" Moe = Moe { limit: f64::INFINITY, alpha: 1.0, beta: 0.0 }
                => { "limit" limit, "alpha" alpha, "beta" beta }
            "nms" Nms = Nms { format: BoundingBoxFormat::CornerPairs, topk: 0, indices: DType::I32 }
                => { "format" format, "topk_box_limit" topk, "indices_type" indices }
            "non_zero" NonZero = NonZero { indices: DType::I32 } => { "indices_type" indices }
            "normalization" Normalization = Normalization { axes: 0, epsilon: 1e-5, groups: 1, by_group: true }
                => { "axes" axes, "epsilon" epsilon, "groups" groups, "by_group" by_group }
            "one_hot" OneHot = OneHot { axis: -1 } => { "axis" axis }
            "packed_attention" PackedAttention = PackedAttention { causal: CausalMask::None, scale: 1.0 }
                => { "causal" causal, "scale" scale }
            "padding" Padding = Padding { pre: Vec::new(), post: Vec::new() }
                => { "pre_padding" pre, "post_padding" post }
            "parametric_relu" ParametricRelu = ParametricRelu => {}
            "pooling" Pooling = Pooling {
                    kind: PoolingKind::Max, size: Vec::new(), window: Window::default(), blend: 0.0,
                    excludes_padding: true,
                } => {
                "type" kind, "window_size" size, "stride" window.stride, "pre_padding" window.pre,
                "post_padding" window.post, "padding_mode" window.mode, "blend" blend,
                "excludes_padding" excludes_padding
            }
            "quantize" Quantize = Quantize { to: DType::I8, axis: None } => { "to" to, "axis" axis }
            "ragged_softmax" RaggedSoftmax = RaggedSoftmax => {}
            "reduce" Reduce = Reduce { op: ReduceOp::Sum, axes: 0, keep_dims: false }
                => { "op" op, "axes" axes, "keep_dims" keep_dims }
            "resize" Resize = Resize {
                    to: ResizeTarget::Same, mode: InterpolationMode::Nearest, coordinates: ResizeCoordinates::Asymmetric,
                    selector: ResizeSelector::Formula, rounding: ResizeRounding::Floor, exclude_outside: false,
                    cubic_coeff: -0.75,
                } => {
                "size" to, "mode" mode, "coordinates" coordinates, "selector" selector, "rounding" rounding,
                "exclude_outside" exclude_outside, "cubic_coeff" cubic_coeff
            }
            "reverse_sequence" ReverseSequence = ReverseSequence { batch_axis: 1, sequence_axis: 0 }
                => { "batch_axis" batch_axis, "sequence_axis" sequence_axis }
            "rotary_embedding" RotaryEmbedding = RotaryEmbedding { interleaved: false, rotary_dim: 0 }
                => { "interleaved" interleaved, "rotary_dim" rotary_dim }
            "scale" Scale
                = Scale { mode: ScaleMode::Uniform, shift: None, scale: None, power: None, channel_axis: None }
                => { "mode" mode, "shift" shift, "scale" scale, "power" power, "channel_axis" channel_axis }
            "scatter" Scatter = Scatter { mode: ScatterMode::Element, axis: 0 } => { "mode" mode, "axis" axis }
            "select" Select = Select => {}
            "shape" Shape = Shape => {}
            "shuffle" Shuffle = Shuffle { first: None, reshape: None, second: None, zero_is_placeholder: true } => {
                "first_transpose" first, "reshape_dims" reshape, "second_transpose" second,
                "zero_is_placeholder" zero_is_placeholder
            }
            "slice" Slice = Slice {
                    start: Vec::new(), size: Vec::new(), stride: Vec::new(), axes: None,
                    mode: SampleMode::StrictBounds,
                } => { "start" start, "size" size, "stride" stride, "axes" axes, "mode" mode }
            "softmax" Softmax = Softmax { axes: None } => { "axes" axes }
            "squeeze" Squeeze = Squeeze => {}
            "topk" TopK = TopK { op: TopKOp::Max, k: 1, axes: 0, indices: DType::I32 }
                => { "op" op, "k" k, "axes" axes, "indices_type" indices }
            "unary" Unary = Unary { op: UnaryOp::Exp } => { "op" op }
            "unsqueeze" Unsqueeze = Unsqueeze => {}
        }
    };
}
