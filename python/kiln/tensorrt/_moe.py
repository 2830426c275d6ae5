"""Mixtures of experts: a layer that is made once its weights are known."""

from __future__ import annotations

from typing import Any

from ._layers import ILayer
from ._log import fail
from ._tensor import ITensor, tensor
from .enums import LayerType, MoEActType


class IMoELayer(ILayer):
    """A mixture of experts. `set_gated_weights` comes before `get_output`."""

    def __init__(self, network: Any, inputs: list[ITensor]) -> None:
        super().__init__(network, None)
        self._inputs, self._params, self._biases = inputs, {}, None

    @property
    def type(self) -> Any:
        return LayerType.MOE

    @property
    def activation_type(self) -> MoEActType:
        return MoEActType.SILU

    @activation_type.setter
    def activation_type(self, kind: MoEActType) -> None:
        if MoEActType(kind) != MoEActType.SILU:
            fail(self._network, "IMoELayer.activation_type: experts are gated by SILU", None)

    def set_gated_weights(
        self, fc_gate_weights: ITensor, fc_up_weights: ITensor, fc_down_weights: ITensor,
        activation_type: MoEActType = MoEActType.SILU,
    ) -> None:
        self.activation_type = activation_type
        weights = [tensor(t, "weights") for t in (fc_gate_weights, fc_up_weights, fc_down_weights)]
        natives = [t._native for t in self._inputs + weights]

        def add() -> None:
            self._native = self._network._native.add("moe", *natives, **self._params)

        self._try(add)
        if self._native is not None and self._biases is not None:
            self._apply_biases()

    def set_gated_biases(self, fc_gate_biases: ITensor, fc_up_biases: ITensor, fc_down_biases: ITensor) -> None:
        self._biases = [tensor(t, "biases")._native for t in (fc_gate_biases, fc_up_biases, fc_down_biases)]
        if self._native is not None:
            self._apply_biases()

    def _apply_biases(self) -> None:
        self._try(lambda: self._native.set_inputs({6 + i: t for i, t in enumerate(self._biases)}))

    def set_swiglu_params(self, limit: float, alpha: float, beta: float) -> None:
        self._params = {"limit": float(limit), "alpha": float(alpha), "beta": float(beta)}
        if self._native is not None:
            self._set(**self._params)

    def _swiglu(self, name: str, default: float) -> float:
        return self._params.get(name, default)

    swiglu_limit = property(lambda self: self._swiglu("limit", float("inf")), lambda self, v: self._one("limit", v))
    swiglu_alpha = property(lambda self: self._swiglu("alpha", 1.0), lambda self, v: self._one("alpha", v))
    swiglu_beta = property(lambda self: self._swiglu("beta", 0.0), lambda self, v: self._one("beta", v))

    def _one(self, name: str, value: float) -> None:
        self._params[name] = float(value)
        if self._native is not None:
            self._set(**{name: float(value)})

    def get_output(self, index: int) -> ITensor | None:
        if self._native is None:
            return fail(self._network, "IMoELayer.get_output: call set_gated_weights first", None)
        return super().get_output(index)
