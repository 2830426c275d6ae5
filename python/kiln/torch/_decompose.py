"""Operators that PyTorch's exporter to ONNX does not know, as others that it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = Any
_aten = torch.ops.aten


def attention(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
    out_weight: Tensor, out_bias: Tensor, mask: Tensor | None = None, need_weights: bool = True,
    average_weights: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The fast path of `torch.nn.MultiheadAttention`: the result and the weights of heads."""
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    given = (query, key, value)
    parts = [torch.nn.functional.linear(x, w, b) for x, w, b in zip(given, weights, biases, strict=True)]
    q, k, v = (x.reshape(x.shape[0], x.shape[1], heads, embed_dim // heads).transpose(1, 2) for x in parts)
    scores = q @ k.transpose(-1, -2) * (embed_dim // heads) ** -0.5
    if mask is not None:
        # A mask of kind 1 has a row of keys for each sequence; others have one entry for each query and key.
        wide = mask[:, None, None, :] if mask_type == 1 else mask
        scores = scores.masked_fill(wide, float("-inf")) if mask.dtype == torch.bool else scores + wide
    shares = scores.softmax(-1)
    mixed = (shares @ v).transpose(1, 2).reshape(query.shape[0], query.shape[1], embed_dim)
    return torch.nn.functional.linear(mixed, out_weight, out_bias), shares.mean(1) if average_weights else shares


def encoder_layer(
    source: Tensor, embed_dim: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, out_weight: Tensor,
    out_bias: Tensor, gelu: bool, norm_first: bool, epsilon: float, norm1_weight: Tensor, norm1_bias: Tensor,
    norm2_weight: Tensor, norm2_bias: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor,
    mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor:
    """The fast path of `torch.nn.TransformerEncoderLayer`."""
    functional = torch.nn.functional

    def first(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm1_weight, norm1_bias, epsilon)

    def second(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm2_weight, norm2_bias, epsilon)

    def attend(x: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, out_weight, out_bias)
        return attention(x, x, x, embed_dim, heads, *weights, mask, False, True, mask_type)[0]

    def forward(x: Tensor) -> Tensor:
        hidden = functional.linear(x, weight1, bias1)
        return functional.linear(functional.gelu(hidden) if gelu else functional.relu(hidden), weight2, bias2)

    if norm_first:
        source = source + attend(first(source))
        return source + forward(second(source))
    source = first(source + attend(source))
    return second(source + forward(source))


def adaptive_average(x: Tensor, output_size: Any) -> Tensor:
    """Means over as many parts of each of the last axes as asked for."""
    for axis, count in enumerate(output_size, start=x.ndim - len(output_size)):
        size = x.shape[axis]
        ends = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
        x = torch.cat([x.narrow(axis, a, b - a).mean(axis, keepdim=True) for a, b in ends], axis)
    return x


STAND_INS: dict[Any, Callable[..., Any]] = {
    _aten._native_multi_head_attention.default: attention,
    _aten._transformer_encoder_layer_fwd.default: encoder_layer,
    _aten._adaptive_avg_pool2d.default: adaptive_average,
    _aten._adaptive_avg_pool3d.default: adaptive_average,
    _aten.adaptive_avg_pool1d.default: adaptive_average,
    _aten.adaptive_avg_pool2d.default: adaptive_average,
    _aten.adaptive_avg_pool3d.default: adaptive_average,
}
