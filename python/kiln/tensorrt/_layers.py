"""Layers of a network. Their properties are those of the table in `_properties`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import enums
from ._log import fail, no_effect
from ._properties import LAYER_TYPES, PROPERTIES
from ._strict import Strict
from ._tensor import ITensor, tensor
from ._values import Dims, Permutation, Weights, dims, volume, weights
from .enums import DataType, LayerType, from_kiln, native, to_kiln


class ILayer(Strict):
    """A layer of a network."""

    def __init__(self, network: Any, native: Any) -> None:
        self._network, self._native = network, native

    @property
    def _logger(self) -> Any:
        return self._network._logger

    def _try(self, action: Callable[[], Any], result: Any = None) -> Any:
        try:
            return action()
        except TypeError:
            raise
        except Exception as e:
            return fail(self._network, e, result)

    def _set(self, **params: Any) -> None:
        """Sets parameters. Programs set them one by one: those that do not fit yet wait for others, at most until a build."""
        waiting = self._network._waiting
        wanted = {**waiting.get(self._native, {}), **params}
        try:
            self._native.set(**wanted)
        except TypeError:
            raise
        except Exception:
            waiting[self._native] = wanted
        else:
            waiting.pop(self._native, None)

    @property
    def _shown(self) -> dict[str, Any]:
        """All parameters, those that wait included."""
        return {**self._native.params, **self._network._waiting.get(self._native, {})}

    @property
    def name(self) -> str:
        return self._network._shown_names.get(self._native, self._native.name)

    @name.setter
    def name(self, name: str) -> None:
        shown = self._network._shown_names
        shown.pop(self._native, None)
        try:
            self._native.name = name
        except TypeError:
            raise
        except Exception as e:
            # A tensor may have the name of another layer in the original.
            if not name or self._network._layer_named(name) is not None:
                fail(self._network, e, None)
                return
            self._native.name = self._network._beside(name)
            shown[self._native] = name

    @property
    def metadata(self) -> str:
        return self._native.metadata

    @metadata.setter
    def metadata(self, text: str) -> None:
        self._native.metadata = text

    @property
    def type(self) -> Any:
        return LAYER_TYPES.get(self._native.kind, LayerType.PLUGIN_V3)

    @property
    def num_inputs(self) -> int:
        return len(self._native.inputs)

    @property
    def num_outputs(self) -> int:
        return len(self._native.outputs)

    def get_input(self, index: int) -> ITensor | None:
        inputs = self._native.inputs
        found = inputs[index] if 0 <= index < len(inputs) else None
        return None if found is None else ITensor(self._network, found)

    def get_output(self, index: int) -> ITensor | None:
        outputs = self._native.outputs
        return ITensor(self._network, outputs[index]) if 0 <= index < len(outputs) else None

    def set_input(self, index: int, tensor: ITensor) -> None:
        value = _tensor(tensor)
        self._try(lambda: self._native.set_inputs({index: value._native}))

    @property
    def precision(self) -> DataType:
        asked = self._native.precision
        if asked is not None:
            return from_kiln(asked)
        out = self.get_output(0)
        return out.dtype if out is not None else DataType.FLOAT

    @precision.setter
    def precision(self, dtype: DataType) -> None:
        value = to_kiln(dtype)
        self._try(lambda: setattr(self._native, "precision", value))

    @property
    def precision_is_set(self) -> bool:
        return self._native.precision is not None

    def reset_precision(self) -> None:
        self._native.precision = None

    def set_output_type(self, index: int, dtype: DataType) -> None:
        value = to_kiln(dtype)
        out = self.get_output(index)
        if dtype == DataType.INT8 and out is not None and out.dtype == DataType.FLOAT:
            # A tensor between layers is of eight bits where its range is known and the next layer takes it so.
            self._network._eight_bits.add((self._native, index))
            return
        self._network._eight_bits.discard((self._native, index))
        self._try(lambda: self._native.set_output_type(index, value))

    def get_output_type(self, index: int) -> DataType:
        if (self._native, index) in self._network._eight_bits:
            return DataType.INT8
        asked = self._native.output_type(index)
        out = self.get_output(index)
        return from_kiln(asked) if asked else out.dtype if out is not None else DataType.FLOAT

    def output_type_is_set(self, index: int) -> bool:
        return (self._native, index) in self._network._eight_bits or self._native.output_type(index) is not None

    def reset_output_type(self, index: int) -> None:
        self._network._eight_bits.discard((self._native, index))
        self._try(lambda: self._native.set_output_type(index, None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ILayer) and self._native == other._native

    def __hash__(self) -> int:
        return hash(self._native)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


_tensor = lambda value: tensor(value, "tensor")  # noqa: E731


def _identity(value: Any) -> Any:
    return value


def _enum(name: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    kind = getattr(enums, name)

    def read(value: Any) -> str:
        if not isinstance(value, kind):
            raise TypeError(f"wants a tensorrt.{name}, found {value!r}")
        return native(value)

    return read, lambda text: kind[text.upper()]


CONVERT: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "int": (int, _identity),
    "float": (float, _identity),
    "bool": (bool, _identity),
    "str": (str, _identity),
    "dims": (dims, lambda v: Dims(v or ())),
    "permutation": (lambda v: [int(x) for x in v], lambda v: Permutation(v or ())),
    "dtype": (to_kiln, from_kiln),
}


def converters(kind: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """How a property's value goes to Kiln and comes back."""
    return CONVERT[kind] if kind in CONVERT else _enum(kind)


# What the original returns for each axis of a window where nothing was set.
_EACH_AXIS = {"stride": 1, "dilation": 1, "pre_padding": 0, "post_padding": 0}


def _property(param: str, kind: str) -> property:
    to, back = converters(kind)

    def get(self: ILayer) -> Any:
        value = self._shown.get(param)
        if not value and param in _EACH_AXIS:
            window = self._shown.get("kernel_size") or self._shown.get("window_size") or ()
            return Dims([_EACH_AXIS[param]] * len(window))
        if value is None and kind not in ("dims", "permutation"):
            return _default(self, param)
        return back(value)

    def set_(self: ILayer, value: Any) -> None:
        self._set(**{param: to(value)})

    return property(get, set_)


def _default(layer: ILayer, param: str) -> Any:
    """What the original returns for a parameter that was never set."""
    rank = len(layer.get_input(0).shape) if layer.num_inputs else 0
    if param == "groups":
        return 1
    if layer._native.kind == "softmax":
        return 1 << max(rank - 3, 0)
    if layer._native.kind == "scale":
        return 1
    return max(rank - 3, 0) if layer._native.kind == "concatenation" else -1


def _weights(param: str) -> property:
    def get(self: ILayer) -> Any:
        value = self._shown.get(param)
        return (Weights._of(value) if value is not None else Weights()).numpy()

    def set_(self: ILayer, value: Any) -> None:
        given = weights(value)
        self._set(**{param: given._value(self._weights_shape(param, given)) if given else None})
        self._network._hold(self, param, value)

    return property(get, set_)


class _Windowed(ILayer):
    """Layers with windows: a padding on both sides at once."""

    @property
    def padding_nd(self) -> Dims:
        return self.pre_padding  # type: ignore[attr-defined]

    @padding_nd.setter
    def padding_nd(self, value: Any) -> None:
        both = dims(value)
        self._set(pre_padding=both, post_padding=both)


class _Conv(_Windowed):
    kernel, bias = _weights("kernel"), _weights("bias")

    def _weights_shape(self, param: str, given: Weights) -> list[int]:
        if param == "bias":
            return [len(given)]
        self._network._kernels.pop(self._native.index, None)
        p = self._shown
        return conv_shape(self._native.kind, p["maps"], p["kernel_size"], p["groups"] or 1, self.get_input(0), given)

    @property
    def num_groups(self) -> int:
        return self._shown["groups"] or 1

    @num_groups.setter
    def num_groups(self, groups: int) -> None:
        if self._native.index in self._network._kernels:
            # No kernel is there yet: the one that holds its place has to fit.
            p, x = self._shown, self.get_input(0)
            self._set(groups=int(groups), kernel=zeros(self._native.kind, p["maps"], p["kernel_size"], int(groups), x))
        else:
            self._set(groups=int(groups))

    def set_input(self, index: int, tensor: ITensor) -> None:
        """Sets an input; kernel and bias that come from tensors replace those that the layer holds."""
        value = _tensor(tensor)
        if index not in (1, 2):
            super().set_input(index, tensor)
            return
        held = {1: "kernel", 2: "bias"}[index]
        self._try(lambda: self._native.set_inputs({index: value._native}, **{held: None}))
        if index == 1:
            self._network._kernels.pop(self._native.index, None)


def zeros(kind: str, maps: int, kernel: list[int], groups: int, x: Any) -> tuple[str, list[int], bytes]:
    """A kernel that holds the place of one that an input brings."""
    channels = x.shape[1]
    shape = [channels, maps // groups] if kind == "deconvolution" else [maps, channels // groups]
    shape += kernel
    return x._native.dtype, shape, bytes(volume(shape) * int(x.dtype.itemsize))


def conv_shape(kind: str, maps: int, kernel: list[int], groups: int, x: Any, given: Weights) -> list[int]:
    """The shape of a convolution's kernel, from the number of its elements where groups are not known yet."""
    area = volume(kernel)
    if kind == "deconvolution":
        channels = x.shape[1]
        return [channels, len(given) // max(channels * area, 1), *kernel]
    return [maps, len(given) // max(maps * area, 1), *kernel]


class _Scale(ILayer):
    shift, scale, power = _weights("shift"), _weights("scale"), _weights("power")

    def _weights_shape(self, param: str, given: Weights) -> list[int]:
        return [len(given)]


class IConstantLayer(ILayer):
    """A constant."""

    weights = _weights("weights")

    def _weights_shape(self, param: str, given: Weights) -> list[int]:
        return list(self.get_output(0).shape)

    @property
    def shape(self) -> Dims:
        return self.get_output(0).shape

    @shape.setter
    def shape(self, value: Any) -> None:
        dtype, _, data = self._shown["weights"]
        self._set(weights=(dtype, dims(value), data))



def _matrix_op(index: int) -> property:
    to, back = converters("MatrixOperation")

    def get(self: ILayer) -> Any:
        return back(self._shown["ops"][index])

    def set_(self: ILayer, value: Any) -> None:
        ops = list(self._shown["ops"])
        ops[index] = to(value)
        self._set(ops=tuple(ops))

    return property(get, set_)


class IMatrixMultiplyLayer(ILayer):
    """A matrix product."""

    op0, op1 = _matrix_op(0), _matrix_op(1)


class _Resize(ILayer):
    @property
    def shape(self) -> Dims:
        kind, value = self._shown["size"] or ("", [])
        return Dims(value if kind == "dims" else ())

    @shape.setter
    def shape(self, value: Any) -> None:
        self._set(size=("dims", dims(value)))

    @property
    def scales(self) -> list[float]:
        kind, value = self._shown["size"] or ("", [])
        return list(value) if kind == "scales" else []

    @scales.setter
    def scales(self, value: Any) -> None:
        self._set(size=("scales", [float(v) for v in value]))


class _Fill(ILayer):
    def set_alpha_int64(self, alpha: int) -> None:
        self._set(alpha=int(alpha))

    def set_beta_int64(self, beta: int) -> None:
        self._set(beta=int(beta))

    def is_alpha_beta_int64(self) -> bool:
        return isinstance(self._shown["alpha"], int)

    alpha = property(
        lambda self: self._shown["alpha"], lambda self, v: self._set(alpha=v if isinstance(v, int) else float(v))
    )
    beta = property(
        lambda self: self._shown["beta"], lambda self, v: self._set(beta=v if isinstance(v, int) else float(v))
    )

    def set_input(self, index: int, tensor: ITensor) -> None:
        """Sets an input; those for alpha and beta go together, so the first of them waits for the second."""
        value = _tensor(tensor)
        waiting = self.__dict__.setdefault("_waiting", {})
        if index in (1, 2) and len(self._native.inputs) < 3:
            waiting[index] = value._native
            if len(waiting) < 2:
                return
            both, params = dict(waiting), self._network._waiting.pop(self._native, {})
            waiting.clear()
            self._try(lambda: self._native.set_inputs(both, **params))
            return
        super().set_input(index, tensor)


class _Cumulative(ILayer):
    @property
    def op(self) -> Any:
        return enums.CumulativeOperation.SUM

    @op.setter
    def op(self, value: Any) -> None:
        enums.CumulativeOperation(value)


class _Normalization(ILayer):
    @property
    def compute_precision(self) -> DataType:
        return DataType.FLOAT

    @compute_precision.setter
    def compute_precision(self, dtype: DataType) -> None:
        if dtype != DataType.FLOAT:
            no_effect(self, "INormalizationLayer.compute_precision", "sums are of float32 in any case")


class _KVCache(ILayer):
    @property
    def cache_mode(self) -> Any:
        return enums.KVCacheMode.LINEAR


_BASES = {
    "IConvolutionLayer": _Conv,
    "IDeconvolutionLayer": _Conv,
    "IPoolingLayer": _Windowed,
    "IScaleLayer": _Scale,
    "IResizeLayer": _Resize,
    "IFillLayer": _Fill,
    "ICumulativeLayer": _Cumulative,
    "INormalizationLayer": _Normalization,
    "IKVCacheUpdateLayer": _KVCache,
}

CLASSES: dict[str, type[ILayer]] = {
    "IConstantLayer": IConstantLayer,
    "IMatrixMultiplyLayer": IMatrixMultiplyLayer,
}
for _name, _table in PROPERTIES.items():
    _members: dict[str, Any] = {prop: _property(*spec) for prop, spec in _table.items()}
    _members["__module__"] = "kiln.tensorrt"
    CLASSES[_name] = type(_name, (_BASES.get(_name, ILayer),), _members)
