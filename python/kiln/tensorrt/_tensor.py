"""Tensors of a network."""

from __future__ import annotations

from typing import Any

from ._log import fail, no_effect, refuse
from ._strict import Strict
from ._values import Dims, dims
from .enums import DataType, NetworkDefinitionCreationFlag, TensorFormat, TensorLocation, from_kiln, to_kiln

DLA_FORMATS = 1 << TensorFormat.DLA_LINEAR | 1 << TensorFormat.DLA_HWC4


class ITensor(Strict):
    """A tensor of a network."""

    def __init__(self, network: Any, native: Any) -> None:
        self._network, self._native = network, native

    @property
    def _logger(self) -> Any:
        return self._network._logger

    def _try(self, action: Any) -> Any:
        try:
            return action()
        except TypeError:
            raise
        except Exception as e:
            return fail(self._network, e, None)

    @property
    def name(self) -> str:
        return self._native.name

    @name.setter
    def name(self, name: str) -> None:
        try:
            self._native.name = name
        except TypeError:
            raise
        except Exception as e:
            # A tensor may have the name of another layer in the original, which gives way here.
            if not self._network._give_way(name, self._native):
                fail(self._network, e, None)
                return
            self._try(lambda: setattr(self._native, "name", name))
        self._network._named.add(self._native)

    @property
    def shape(self) -> Dims:
        return Dims(self._native.shape)

    @shape.setter
    def shape(self, shape: Any) -> None:
        value = dims(shape)
        self._try(lambda: setattr(self._native, "shape", value))

    @property
    def dtype(self) -> DataType:
        return from_kiln(self._network._boundary_types.get(self._native, self._native.dtype))

    @dtype.setter
    def dtype(self, dtype: DataType) -> None:
        value, boundary = to_kiln(dtype), self._network._boundary_types
        boundary.pop(self._native, None)
        try:
            self._native.dtype = value
        except Exception as e:
            # An input whose readers want its own type changes at the boundary alone, but for a network that is strongly typed.
            if not self.is_network_input or self._network.get_flag(NetworkDefinitionCreationFlag.STRONGLY_TYPED):
                fail(self._network, e, None)
            else:
                boundary[self._native] = value

    @property
    def broadcast_across_batch(self) -> bool:
        return False

    @broadcast_across_batch.setter
    def broadcast_across_batch(self, value: bool) -> None:
        no_effect(self, "ITensor.broadcast_across_batch", "batches are explicit")

    @property
    def location(self) -> TensorLocation:
        return TensorLocation.HOST if self.is_network_input and self.is_shape_tensor else TensorLocation.DEVICE

    @location.setter
    def location(self, location: TensorLocation) -> None:
        if TensorLocation(location) != self.location:
            no_effect(self, "ITensor.location", "Kiln finds out which inputs the host must know")

    @property
    def allowed_formats(self) -> int:
        return self._native.allowed_formats

    @allowed_formats.setter
    def allowed_formats(self, formats: int) -> None:
        if int(formats) & DLA_FORMATS:
            raise refuse("TensorFormat.DLA_LINEAR and DLA_HWC4", "there is no DLA; use LINEAR or HWC")
        self._try(lambda: setattr(self._native, "allowed_formats", int(formats)))

    @property
    def is_network_input(self) -> bool:
        return self._native.is_input

    @property
    def is_network_output(self) -> bool:
        return self._native.is_output

    @property
    def is_shape_tensor(self) -> bool:
        return self._native.is_shape

    @property
    def is_execution_tensor(self) -> bool:
        return not self._native.is_shape

    @property
    def dynamic_range(self) -> tuple[float, float] | None:
        return self._native.dynamic_range

    @dynamic_range.setter
    def dynamic_range(self, value: Any) -> None:
        low, high = value
        self.set_dynamic_range(low, high)

    def set_dynamic_range(self, min: float, max: float) -> bool:
        try:
            self._native.dynamic_range = (float(min), float(max))
        except Exception as e:
            return fail(self._network, e, False)
        return True

    def reset_dynamic_range(self) -> None:
        self._try(lambda: setattr(self._native, "dynamic_range", None))

    def set_dimension_name(self, index: int, name: str) -> None:
        self._try(lambda: self._native.set_dimension_name(index, name))

    def get_dimension_name(self, index: int) -> str | None:
        text = self._native.dims[index]
        own = (f"{self.name}.{index}", f"{self.name}.d{index}")
        return None if self._native.shape[index] != -1 or text in own else text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ITensor) and self._native == other._native

    def __hash__(self) -> int:
        return hash(self._native)

    def __repr__(self) -> str:
        return f"<ITensor {self.name!r} {self.dtype} {self.shape}>"


def tensor(value: Any, what: str) -> ITensor:
    """A tensor argument; TypeError for anything else, None included."""
    if not isinstance(value, ITensor):
        raise TypeError(f"{what}: wants a tensorrt.ITensor, found {type(value).__name__}")
    return value
