"""Tables of layers: their types by Kiln's kinds, and which property is which parameter of Kiln's layer."""

from __future__ import annotations

from .enums import LayerType

_TYPES = {
    "convolution": "conv matmul_sparse",
    "cast": "bitcast",
    "activation": "relu sigmoid tanh leaky_relu elu selu softsign softplus clip hard_sigmoid scaled_tanh "
    "thresholded_relu gelu celu hard_swish mish shrink swish",
    "pooling": "pool max_pool_indices",
    "lrn": "",
    "scale": "batch_norm",
    "softmax": "log_softmax hardmax",
    "deconvolution": "conv_transpose",
    "concatenation": "concat",
    "elementwise": "add mul sub div pow floor_div mod rem max min and or xor equal greater less greater_equal "
    "less_equal bit_and bit_or bit_xor shl shr",
    "unary": "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor isinf isnan log neg not recip round "
    "sign sin sinh sqrt tan trunc bit_not",
    "padding": "",
    "shuffle": "reshape transpose depth_to_space space_to_depth",
    "reduce": "lp_norm",
    "topk": "argmax argmin",
    "gather": "gather_elements gather_nd",
    "matrix_multiply": "matmul fully_connected",
    "ragged_softmax": "",
    "constant": "eye_like none",
    "identity": "",
    "slice": "expand pad tile center_crop_pad trilu",
    "shape": "size",
    "parametric_relu": "prelu",
    "resize": "cubic",
    "trip_limit": "",
    "recurrence": "",
    "iterator": "",
    "loop_output": "",
    "select": "",
    "fill": "range random",
    "quantize": "",
    "dequantize": "",
    "condition": "",
    "conditional_input": "if_input",
    "conditional_output": "if_output",
    "scatter": "scatter_elements scatter_nd insert_slice",
    "einsum": "",
    "assertion": "",
    "one_hot": "",
    "non_zero": "nonzero",
    "grid_sample": "affine_grid",
    "nms": "",
    "reverse_sequence": "",
    "normalization": "layer_norm group_norm rms_norm",
    "squeeze": "",
    "unsqueeze": "",
    "cumulative": "",
    "dynamic_quantize": "",
    "attention_output": "attention linear_attention",
    "rotary_embedding": "",
    "kvcache_update": "kv_cache_update",
    "moe": "",
    "plugin_v3": "plugin",
}
LAYER_TYPES = {
    kind: LayerType[name.upper()] for name, others in _TYPES.items() for kind in (name, *others.split())
}
"""The layer type of each kind of Kiln; other operators are plug-ins."""

PROPERTIES: dict[str, dict[str, tuple[str, str]]] = {
    "IActivationLayer": {
        "type": ("type", "ActivationType"),
        "alpha": ("alpha", "float"),
        "beta": ("beta", "float"),
    },
    "IAssertionLayer": {"message": ("message", "str")},
    "ICastLayer": {"to_type": ("to", "dtype")},
    "IConcatenationLayer": {"axis": ("axis", "int")},
    "IConvolutionLayer": {
        "num_output_maps": ("maps", "int"),
        "kernel_size_nd": ("kernel_size", "dims"),
        "stride_nd": ("stride", "dims"),
        "pre_padding": ("pre_padding", "dims"),
        "post_padding": ("post_padding", "dims"),
        "padding_mode": ("padding_mode", "PaddingMode"),
        "dilation_nd": ("dilation", "dims"),
    },
    "ICumulativeLayer": {"exclusive": ("exclusive", "bool"), "reverse": ("reverse", "bool")},
    "IQuantizeLayer": {"axis": ("axis", "int"), "to_type": ("to", "dtype")},
    "IDequantizeLayer": {"axis": ("axis", "int"), "to_type": ("to", "dtype")},
    "IDynamicQuantizeLayer": {
        "axis": ("axis", "int"),
        "block_size": ("block", "int"),
        "to_type": ("to", "dtype"),
        "scale_type": ("scale_type", "dtype"),
    },
    "IEinsumLayer": {"equation": ("equation", "str")},
    "IElementWiseLayer": {"op": ("op", "ElementWiseOperation")},
    "IFillLayer": {"shape": ("shape", "dims"), "operation": ("op", "FillOperation"), "to_type": ("to", "dtype")},
    "IGatherLayer": {
        "axis": ("axis", "int"),
        "num_elementwise_dims": ("elementwise_dims", "int"),
        "mode": ("mode", "GatherMode"),
    },
    "IGridSampleLayer": {
        "interpolation_mode": ("mode", "InterpolationMode"),
        "align_corners": ("align_corners", "bool"),
        "sample_mode": ("outside", "SampleMode"),
    },
    "ILRNLayer": {
        "window_size": ("window", "int"),
        "alpha": ("alpha", "float"),
        "beta": ("beta", "float"),
        "k": ("k", "float"),
    },
    "INMSLayer": {
        "bounding_box_format": ("format", "BoundingBoxFormat"),
        "topk_box_limit": ("topk_box_limit", "int"),
        "indices_type": ("indices_type", "dtype"),
    },
    "INonZeroLayer": {"indices_type": ("indices_type", "dtype")},
    "INormalizationLayer": {
        "epsilon": ("epsilon", "float"),
        "axes": ("axes", "int"),
        "num_groups": ("groups", "int"),
    },
    "IOneHotLayer": {"axis": ("axis", "int")},
    "IPaddingLayer": {"pre_padding_nd": ("pre_padding", "dims"), "post_padding_nd": ("post_padding", "dims")},
    "IPoolingLayer": {
        "type": ("type", "PoolingType"),
        "window_size_nd": ("window_size", "dims"),
        "stride_nd": ("stride", "dims"),
        "pre_padding": ("pre_padding", "dims"),
        "post_padding": ("post_padding", "dims"),
        "padding_mode": ("padding_mode", "PaddingMode"),
        "blend_factor": ("blend", "float"),
        "average_count_excludes_padding": ("excludes_padding", "bool"),
    },
    "IReduceLayer": {
        "op": ("op", "ReduceOperation"),
        "axes": ("axes", "int"),
        "keep_dims": ("keep_dims", "bool"),
    },
    "IResizeLayer": {
        "resize_mode": ("mode", "InterpolationMode"),
        "coordinate_transformation": ("coordinates", "ResizeCoordinateTransformation"),
        "selector_for_single_pixel": ("selector", "ResizeSelector"),
        "nearest_rounding": ("rounding", "ResizeRoundMode"),
        "exclude_outside": ("exclude_outside", "bool"),
        "cubic_coeff": ("cubic_coeff", "float"),
    },
    "IReverseSequenceLayer": {"batch_axis": ("batch_axis", "int"), "sequence_axis": ("sequence_axis", "int")},
    "IRotaryEmbeddingLayer": {
        "interleaved": ("interleaved", "bool"),
        "rotary_embedding_dim": ("rotary_dim", "int"),
    },
    "IScaleLayer": {"mode": ("mode", "ScaleMode"), "channel_axis": ("channel_axis", "int")},
    "IScatterLayer": {"axis": ("axis", "int"), "mode": ("mode", "ScatterMode")},
    "IShuffleLayer": {
        "first_transpose": ("first_transpose", "permutation"),
        "reshape_dims": ("reshape_dims", "dims"),
        "second_transpose": ("second_transpose", "permutation"),
        "zero_is_placeholder": ("zero_is_placeholder", "bool"),
    },
    "ISliceLayer": {
        "start": ("start", "dims"),
        "shape": ("size", "dims"),
        "stride": ("stride", "dims"),
        "axes": ("axes", "dims"),
        "mode": ("mode", "SampleMode"),
    },
    "ISoftMaxLayer": {"axes": ("axes", "int")},
    "ITopKLayer": {
        "op": ("op", "TopKOperation"),
        "k": ("k", "int"),
        "axes": ("axes", "int"),
        "indices_type": ("indices_type", "dtype"),
    },
    "IUnaryLayer": {"op": ("op", "UnaryOperation")},
    "IIdentityLayer": {},
    "IKVCacheUpdateLayer": {},
    "IParametricReLULayer": {},
    "IRaggedSoftMaxLayer": {},
    "ISelectLayer": {},
    "IShapeLayer": {},
    "ISqueezeLayer": {},
    "IUnsqueezeLayer": {},
}
PROPERTIES["IDeconvolutionLayer"] = PROPERTIES["IConvolutionLayer"]

_WORDS = {"elementwise": "ElementWise", "topk": "TopK", "softmax": "Softmax", "lrn": "LRN", "nms": "NMS", "einsum": "Einsum"}


def unnamed(kind: str, index: int) -> str:
    """The name that a layer has as long as the program gives it none; programs name tensors `softmax` or `shape` themselves."""
    words = _WORDS.get(kind) or " ".join(word.capitalize() for word in kind.split("_"))
    return f"(Unnamed Layer* {index}) [{words}]"
