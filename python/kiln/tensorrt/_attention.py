"""Attention: one object over the layer."""

from __future__ import annotations

from typing import Any

from . import enums
from ._layers import ILayer
from ._log import fail
from ._strict import Strict
from ._tensor import ITensor, tensor
from .enums import DataType, from_kiln, native, to_kiln


class IAttentionBoundaryLayer(ILayer):
    """A layer at the boundary of an attention."""

    @property
    def attention(self) -> IAttention:
        return IAttention(self._network, self._native)


class IAttentionInputLayer(IAttentionBoundaryLayer):
    """The inputs of an attention."""


class IAttentionOutputLayer(IAttentionBoundaryLayer):
    """The output of an attention."""


class IAttention(Strict):
    """norm(query·keyᵀ + mask)·value."""

    def __init__(self, network: Any, native_: Any) -> None:
        self._network, self._native = network, native_
        self._decomposable = True
        self._quantize: tuple[Any, Any] = (None, None)

    def _try(self, action: Any, result: Any = None) -> Any:
        try:
            return action()
        except TypeError:
            raise
        except Exception as e:
            return fail(self._network, e, result)

    @property
    def name(self) -> str:
        return self._native.name

    @name.setter
    def name(self, name: str) -> None:
        self._try(lambda: setattr(self._native, "name", name))

    @property
    def metadata(self) -> str:
        return self._native.metadata

    @metadata.setter
    def metadata(self, text: str) -> None:
        self._native.metadata = text

    @property
    def norm_op(self) -> Any:
        return enums.AttentionNormalizationOp[self._native.params["norm"].upper()]

    @norm_op.setter
    def norm_op(self, op: Any) -> None:
        self._try(lambda: self._native.set(norm=native(enums.AttentionNormalizationOp(op))))

    @property
    def causal(self) -> bool:
        return self._native.params["causal"] != "none"

    @causal.setter
    def causal(self, causal: bool) -> None:
        self._try(lambda: self._native.set(causal="upper_left" if causal else "none"))

    @property
    def causal_kind(self) -> Any:
        return enums.CausalMaskKind[self._native.params["causal"].upper()]

    @causal_kind.setter
    def causal_kind(self, kind: Any) -> None:
        self._try(lambda: self._native.set(causal=native(enums.CausalMaskKind(kind))))

    @property
    def decomposable(self) -> bool:
        return self._decomposable

    @decomposable.setter
    def decomposable(self, value: bool) -> None:
        # Kiln always has kernels of single steps to fall back on, so False asks for nothing that could fail.
        self._decomposable = bool(value)

    @property
    def mask(self) -> ITensor | None:
        return self.get_input(3)

    @mask.setter
    def mask(self, mask: ITensor) -> None:
        self.set_input(3, mask)

    @property
    def normalization_quantize_scale(self) -> ITensor | None:
        return self.get_input(4)

    @normalization_quantize_scale.setter
    def normalization_quantize_scale(self, scale: ITensor) -> None:
        self._quantize = (tensor(scale, "scale"), self._quantize[1])
        self._apply()

    @property
    def normalization_quantize_to_type(self) -> DataType:
        found = self._native.params["quantize"]
        return from_kiln(found) if found else self._quantize[1] or DataType.FP8

    @normalization_quantize_to_type.setter
    def normalization_quantize_to_type(self, dtype: DataType) -> None:
        to_kiln(dtype)
        self._quantize = (self._quantize[0], dtype)
        self._apply()

    def _apply(self) -> None:
        scale, dtype = self._quantize
        if scale is not None:
            kind = to_kiln(dtype or DataType.FP8)
            self._try(lambda: self._native.set_normalization_quantize(kind, scale._native))

    @property
    def num_inputs(self) -> int:
        return len(self._native.inputs)

    @property
    def num_outputs(self) -> int:
        return len(self._native.outputs)

    def set_input(self, index: int, input: ITensor) -> bool:
        value = tensor(input, "input")
        return self._try(lambda: self._native.set_inputs({index: value._native}) or True, False)

    def get_input(self, index: int) -> ITensor | None:
        inputs = self._native.inputs
        found = inputs[index] if 0 <= index < len(inputs) else None
        return None if found is None else ITensor(self._network, found)

    def get_output(self, index: int) -> ITensor | None:
        outputs = self._native.outputs
        return ITensor(self._network, outputs[index]) if 0 <= index < len(outputs) else None
