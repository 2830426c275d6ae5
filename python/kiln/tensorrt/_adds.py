"""The `add_…` methods of a network, with the names of arguments that TensorRT has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import enums as e
from ._attention import IAttention
from ._flow import IIfConditional, ILoop
from ._layers import CLASSES, IConstantLayer, ILayer, conv_shape, converters, zeros
from ._log import fail
from ._moe import IMoELayer
from ._properties import unnamed
from ._tensor import ITensor, tensor
from ._values import Weights, dims, weights
from .enums import DataType, to_kiln


def _op(kind: str, value: Any) -> str:
    return converters(kind)[0](value)


class Adds:
    """The methods that add layers. What does not fit is logged and returns None."""

    _native: Any
    _kernels: dict[int, ILayer]
    _waiting: dict[Any, dict[str, Any]]

    def _add(self, cls: str, kind: str, inputs: Iterable[Any], **params: Any) -> Any:
        return self._added(cls, kind, inputs, params, ())

    def _added(self, cls: str, kind: str, inputs: Iterable[Any], params: dict[str, Any], later: Iterable[Any]) -> Any:
        """Adds a layer. Where it does not fit as it is, the first parameters of `later` that fit hold the place of those that the
        program sets next: (what is set for now, what waits)."""
        natives = [tensor(t, "input")._native for t in inputs]
        first: Exception | None = None
        for now, waiting in (({}, {}), *later):
            try:
                layer = self._native.add(kind, *natives, **{**params, **now})
            except TypeError:
                raise
            except Exception as error:
                first = first or error
                continue
            layer.name = unnamed(kind, layer.index)
            if waiting:
                self._waiting[layer] = dict(waiting)
            return CLASSES[cls](self, layer)
        return fail(self, first or "", None)

    def _windowed(self, cls: str, kind: str, x: ITensor, window: list[int], **params: Any) -> Any:
        """Adds a layer with windows. One that is larger than the input waits for its padding."""
        sizes = list(x.shape)[len(x.shape) - len(window) :]
        if any(0 <= n < k for n, k in zip(sizes, window, strict=False)) and kind != "deconvolution":
            room, none = [max(k - 1, 0) for k in window], [0] * len(window)
            layer = self._add(cls, kind, [x], **params, pre_padding=room, post_padding=room)
            if layer is not None:
                self._waiting[layer._native] = {"pre_padding": none, "post_padding": none}
            return layer
        return self._add(cls, kind, [x], **params)

    def _scaled(self, cls: str, kind: str, x: Any, scale: Any, to: DataType) -> Any:
        """Adds a layer with a scale. One scale a slice waits for its axis, which is set later on."""
        natives, extents = [tensor(x, "input"), tensor(scale, "scale")], tuple(scale.shape)
        axes = [i for i, n in enumerate(x.shape) if len(extents) == 1 and n == extents[0] != 1]
        if not axes:
            return self._add(cls, kind, natives, to=to_kiln(to))
        layer = self._add(cls, kind, natives, to=to_kiln(to), axis=axes[0])
        if layer is not None:
            self._waiting[layer._native] = {"axis": None}
        return layer

    def add_input(self, name: str, dtype: DataType, shape: Any) -> ITensor | None:
        kind, extents = to_kiln(dtype), dims(shape)
        try:
            return ITensor(self, self._native.add_input(name, kind, extents))
        except TypeError:
            raise
        except Exception as error:
            return fail(self, error, None)

    def _conv(self, cls: str, kind: str, input: Any, maps: int, shape: Any, kernel: Any, bias: Any) -> Any:
        x, extents, w, b = tensor(input, "input"), dims(shape, "kernel_shape"), weights(kernel), weights(bias)
        try:
            shape_of = conv_shape(kind, maps, extents, 1, x, w) if w else None
            layer_kernel = w._value(shape_of) if w else zeros(kind, maps, extents, 1, x)
        except Exception as error:
            return fail(self, error, None)
        layer = self._windowed(
            cls, kind, x, extents, maps=int(maps), kernel_size=extents, kernel=layer_kernel,
            bias=b._value() if b else None,
        )
        if layer is not None and not w:
            self._kernels[layer._native.index] = layer
        return self._held(layer, kernel=kernel, bias=bias)

    def add_convolution_nd(self, input: ITensor, num_output_maps: int, kernel_shape: Any, kernel: Any = None,
                           bias: Any = None) -> Any:
        return self._conv("IConvolutionLayer", "convolution", input, num_output_maps, kernel_shape, kernel, bias)

    def add_deconvolution_nd(self, input: ITensor, num_output_maps: int, kernel_shape: Any, kernel: Any = None,
                             bias: Any = None) -> Any:
        return self._conv("IDeconvolutionLayer", "deconvolution", input, num_output_maps, kernel_shape, kernel, bias)

    def add_activation(self, input: ITensor, type: Any) -> Any:
        return self._add("IActivationLayer", "activation", [input], type=_op("ActivationType", type))

    def add_pooling_nd(self, input: ITensor, type: Any, window_size: Any) -> Any:
        extents = dims(window_size)
        return self._windowed(
            "IPoolingLayer", "pooling", tensor(input, "input"), extents, type=_op("PoolingType", type), window_size=extents
        )

    def add_lrn(self, input: ITensor, window: int, alpha: float, beta: float, k: float) -> Any:
        return self._add("ILRNLayer", "lrn", [input], window=window, alpha=alpha, beta=beta, k=k)

    def add_scale(self, input: ITensor, mode: Any, shift: Any = None, scale: Any = None, power: Any = None) -> Any:
        return self._scale(input, mode, shift, scale, power, {})

    def add_scale_nd(self, input: ITensor, mode: Any, shift: Any = None, scale: Any = None, power: Any = None,
                     channel_axis: int = 1) -> Any:
        return self._scale(input, mode, shift, scale, power, {"channel_axis": int(channel_axis)})

    def _scale(self, input: Any, mode: Any, shift: Any, scale: Any, power: Any, more: dict[str, int]) -> Any:
        given = {"shift": shift, "scale": scale, "power": power}
        values = {name: weights(value) for name, value in given.items()}
        params = {name: value._value() for name, value in values.items() if value}
        layer = self._add("IScaleLayer", "scale", [input], mode=_op("ScaleMode", mode), **params, **more)
        return self._held(layer, **given)

    def add_softmax(self, input: ITensor) -> Any:
        return self._add("ISoftMaxLayer", "softmax", [input])

    def add_concatenation(self, inputs: Iterable[ITensor]) -> Any:
        given = list(inputs)
        rank = len(tensor(given[0], "inputs").shape) if given else 0
        default = max(rank - 3, 0)
        later = [({"axis": axis}, {"axis": default}) for axis in range(rank) if axis != default]
        return self._added("IConcatenationLayer", "concatenation", given, {}, later)

    def add_elementwise(self, input1: ITensor, input2: ITensor, op: Any) -> Any:
        return self._add("IElementWiseLayer", "elementwise", [input1, input2], op=_op("ElementWiseOperation", op))

    def add_unary(self, input: ITensor, op: Any) -> Any:
        return self._add("IUnaryLayer", "unary", [input], op=_op("UnaryOperation", op))

    def add_padding_nd(self, input: ITensor, pre_padding: Any, post_padding: Any) -> Any:
        return self._add(
            "IPaddingLayer", "padding", [input], pre_padding=dims(pre_padding), post_padding=dims(post_padding)
        )

    def add_shuffle(self, input: ITensor) -> Any:
        return self._add("IShuffleLayer", "shuffle", [input])

    def add_slice(self, input: ITensor, start: Any, shape: Any, stride: Any) -> Any:
        given = {"start": dims(start), "size": dims(shape), "stride": dims(stride)}
        # Elements beyond the input want another mode, which is set next.
        beyond = [({"mode": "clamp"}, {"mode": "strict_bounds"})]
        return self._added("ISliceLayer", "slice", [input], given, beyond)

    def add_reduce(self, input: ITensor, op: Any, axes: int, keep_dims: bool) -> Any:
        return self._add(
            "IReduceLayer", "reduce", [input], op=_op("ReduceOperation", op), axes=int(axes), keep_dims=bool(keep_dims)
        )

    def add_topk(self, input: ITensor, op: Any, k: int, axes: int, indices_type: DataType = DataType.INT32) -> Any:
        return self._add(
            "ITopKLayer", "topk", [input], op=_op("TopKOperation", op), k=int(k), axes=int(axes),
            indices_type=to_kiln(indices_type),
        )

    def add_gather(self, input: ITensor, indices: ITensor, axis: int) -> Any:
        return self._add("IGatherLayer", "gather", [input, indices], axis=int(axis))

    def add_gather_v2(self, input: ITensor, indices: ITensor, mode: Any) -> Any:
        what = "elementwise_dims" if mode == e.GatherMode.ND else "axis"
        later = [({what: axis}, {what: 0}) for axis in range(1, len(tensor(input, "input").shape))]
        return self._added("IGatherLayer", "gather", [input, indices], {"mode": _op("GatherMode", mode)}, later)

    def add_scatter(self, data: ITensor, indices: ITensor, updates: ITensor, mode: Any) -> Any:
        axes = [({"axis": axis}, {"axis": 0}) for axis in range(1, len(tensor(data, "data").shape))]
        later = axes if mode == e.ScatterMode.ELEMENT else []
        return self._added("IScatterLayer", "scatter", [data, indices, updates], {"mode": _op("ScatterMode", mode)}, later)

    def add_ragged_softmax(self, input: ITensor, bounds: ITensor) -> Any:
        return self._add("IRaggedSoftMaxLayer", "ragged_softmax", [input, bounds])

    def add_matrix_multiply(self, input0: ITensor, op0: Any, input1: ITensor, op1: Any) -> Any:
        ops = (_op("MatrixOperation", op0), _op("MatrixOperation", op1))
        return self._add("IMatrixMultiplyLayer", "matrix_multiply", [input0, input1], ops=ops)

    def add_constant(self, shape: Any, weights: Any) -> IConstantLayer | None:
        given = weights if isinstance(weights, Weights) else _array(weights)
        layer = self._add("IConstantLayer", "constant", [], weights=given._value(dims(shape)))
        return self._held(layer, weights=weights)

    def add_identity(self, input: ITensor) -> Any:
        return self._add("IIdentityLayer", "identity", [input])

    def add_cast(self, input: ITensor, to_type: DataType) -> Any:
        return self._add("ICastLayer", "cast", [input], to=to_kiln(to_type))

    def add_parametric_relu(self, input: ITensor, slopes: ITensor) -> Any:
        return self._add("IParametricReLULayer", "parametric_relu", [input, slopes])

    def add_resize(self, input: ITensor) -> Any:
        return self._add("IResizeLayer", "resize", [input])

    def add_shape(self, input: ITensor) -> Any:
        return self._add("IShapeLayer", "shape", [input])

    def add_select(self, condition: ITensor, then_input: ITensor, else_input: ITensor) -> Any:
        return self._add("ISelectLayer", "select", [condition, then_input, else_input])

    def add_assertion(self, condition: ITensor, message: str) -> Any:
        return self._add("IAssertionLayer", "assertion", [condition], message=message)

    def add_grid_sample(self, input: ITensor, grid: ITensor) -> Any:
        return self._add("IGridSampleLayer", "grid_sample", [input, grid])

    def add_nms(self, boxes: ITensor, scores: ITensor, max_output_boxes_per_class: ITensor,
                indices_type: DataType = DataType.INT32) -> Any:
        return self._add(
            "INMSLayer", "nms", [boxes, scores, max_output_boxes_per_class], indices_type=to_kiln(indices_type)
        )

    def add_fill(self, shape: Any, op: Any, output_type: DataType = DataType.FLOAT) -> Any:
        kind = to_kiln(output_type)
        ints = {"alpha": 0, "beta": 1} if kind in ("i32", "i64") else {}
        params = {"shape": dims(shape), "op": _op("FillOperation", op), "to": kind, **ints}
        # A ramp of several dimensions wants its start and steps as inputs, which are set next.
        later = [({"op": "random_uniform"}, {"op": "linspace"})] if op == e.FillOperation.LINSPACE else []
        return self._added("IFillLayer", "fill", [], params, later)

    def add_quantize(self, input: ITensor, scale: ITensor, output_type: DataType = DataType.INT8) -> Any:
        return self._scaled("IQuantizeLayer", "quantize", input, scale, output_type)

    def add_dequantize(self, input: ITensor, scale: ITensor, output_type: DataType = DataType.FLOAT) -> Any:
        return self._scaled("IDequantizeLayer", "dequantize", input, scale, output_type)

    def add_dynamic_quantize(self, input: ITensor, axis: int, block_size: int, output_type: DataType,
                             scale_type: DataType) -> Any:
        return self._add(
            "IDynamicQuantizeLayer", "dynamic_quantize", [input], axis=int(axis), block=int(block_size),
            to=to_kiln(output_type), scale_type=to_kiln(scale_type),
        )

    def add_dynamic_quantize_v2(self, input: ITensor, block_shape: Any, output_type: DataType,
                                scale_type: DataType) -> Any:
        extents = dims(block_shape)
        blocked = [i for i, n in enumerate(extents) if n != 1]
        if len(blocked) != 1:
            return fail(self, f"block_shape {tuple(extents)}: Kiln quantizes blocks along one axis", None)
        axis = blocked[0]
        return self.add_dynamic_quantize(input, axis, extents[axis], output_type, scale_type)

    def add_einsum(self, inputs: Iterable[ITensor], equation: str) -> Any:
        return self._add("IEinsumLayer", "einsum", list(inputs), equation=equation)

    def add_one_hot(self, indices: ITensor, values: ITensor, depth: ITensor, axis: int) -> Any:
        return self._add("IOneHotLayer", "one_hot", [indices, values, depth], axis=int(axis))

    def add_non_zero(self, input: ITensor, indices_type: DataType = DataType.INT32) -> Any:
        return self._add("INonZeroLayer", "non_zero", [input], indices_type=to_kiln(indices_type))

    def add_reverse_sequence(self, input: ITensor, sequence_lens: ITensor) -> Any:
        swapped = [({"batch_axis": 0, "sequence_axis": 1}, {"batch_axis": 1, "sequence_axis": 0})]
        return self._added("IReverseSequenceLayer", "reverse_sequence", [input, sequence_lens], {}, swapped)

    def add_normalization(self, input: ITensor, scale: ITensor, bias: ITensor, axesMask: int) -> Any:
        # One scale for each group of channels wants the number of groups, which is set next.
        inputs = [tensor(input, "input"), tensor(scale, "scale"), tensor(bias, "bias")]
        extents = tuple(scale.shape)
        groups = extents[1] if len(extents) > 1 else 1
        later = [({"groups": groups}, {"groups": 1})] if groups > 1 else []
        return self._added("INormalizationLayer", "normalization", inputs, {"axes": int(axesMask)}, later)

    def add_normalization_v2(self, input: ITensor, scale: ITensor, bias: ITensor, axesMask: int) -> Any:
        return self._add(
            "INormalizationLayer", "normalization", [input, scale, bias], axes=int(axesMask), by_group=False
        )

    def add_cumulative(self, input: ITensor, axis: ITensor, op: Any, exclusive: bool, reverse: bool) -> Any:
        e.CumulativeOperation(op)
        return self._add(
            "ICumulativeLayer", "cumulative", [input, axis], exclusive=bool(exclusive), reverse=bool(reverse)
        )

    def add_squeeze(self, input: ITensor, axes: ITensor) -> Any:
        return self._add("ISqueezeLayer", "squeeze", [input, axes])

    def add_unsqueeze(self, input: ITensor, axes: ITensor) -> Any:
        return self._add("IUnsqueezeLayer", "unsqueeze", [input, axes])

    def add_attention(self, query: ITensor, key: ITensor, value: ITensor, norm_op: Any, causal: bool) -> Any:
        kind = e.CausalMaskKind.UPPER_LEFT if causal else e.CausalMaskKind.NONE
        return self._attention(query, key, value, norm_op, kind)

    def _attention(self, query: Any, key: Any, value: Any, norm_op: Any, causal: Any) -> Any:
        layer = self._add(
            "IIdentityLayer", "attention", [query, key, value], norm=_op("AttentionNormalizationOp", norm_op),
            causal=_op("CausalMaskKind", causal),
        )
        return None if layer is None else IAttention(self, layer._native)

    def add_attention_v2(self, query: ITensor, key: ITensor, value: ITensor, norm_op: Any,
                         causal_kind: Any = None, io_form: Any = None) -> Any:
        if io_form not in (None, e.AttentionIOForm.PADDED_BHND):
            text = f"add_attention_v2: {io_form} is not available; use PADDED_BHND, or add_packed_attention of kiln.Network"
            return fail(self, text, None)
        return self._attention(query, key, value, norm_op, e.CausalMaskKind.NONE if causal_kind is None else causal_kind)

    def add_rotary_embedding(self, input: ITensor, cos_cache: ITensor, sin_cache: ITensor, interleaved: bool,
                             rotary_embedding_dim: int) -> Any:
        return self._add(
            "IRotaryEmbeddingLayer", "rotary_embedding", [input, cos_cache, sin_cache],
            interleaved=bool(interleaved), rotary_dim=int(rotary_embedding_dim),
        )

    def add_kv_cache_update(self, cache: ITensor, update: ITensor, write_indices: ITensor, cache_mode: Any = None) -> Any:
        if cache_mode is not None:
            e.KVCacheMode(cache_mode)
        return self._add("IKVCacheUpdateLayer", "kv_cache_update", [cache, update, write_indices])

    def add_moe(self, hidden_states: ITensor, selected_experts_for_tokens: ITensor,
                scores_for_selected_experts: ITensor) -> IMoELayer:
        inputs = (hidden_states, selected_experts_for_tokens, scores_for_selected_experts)
        return IMoELayer(self, [tensor(t, "input") for t in inputs])

    def add_dist_collective(self, *args: Any, **kwargs: Any) -> Any:
        return fail(self, "add_dist_collective is not available in Kiln: an engine runs on one device", None)

    def add_loop(self) -> ILoop | None:
        try:
            return ILoop(self, self._native.add_loop())
        except Exception as error:
            return fail(self, error, None)

    def add_if_conditional(self) -> IIfConditional | None:
        try:
            return IIfConditional(self, self._native.add_conditional())
        except Exception as error:
            return fail(self, error, None)

    def _held(self, layer: ILayer | None, **given: Any) -> Any:
        for param, value in given.items():
            if layer is not None and value is not None:
                self._hold(layer, param, value)
        return layer

    def _hold(self, layer: ILayer, param: str, value: Any) -> None:
        raise NotImplementedError


def _array(value: Any) -> Weights:
    import numpy as np

    return Weights(np.ascontiguousarray(value))
