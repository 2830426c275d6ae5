"""Plug-ins that decorators define, as plug-ins of the third interface."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ._plugin_classes import DynamicPluginTensorDesc, IPluginV3, IPluginV3OneBuildV2, IPluginV3OneCore, IPluginV3OneRuntime
from ._plugin_shapes import DimsExprs, IDimensionExpr, IExprBuilder, expression
from ._plugins import IPluginCreatorV3Quick
from ._tensor import ITensor
from ._values import PluginField, PluginFieldCollection
from .enums import DataType, TensorFormat
from .enums import DimensionOperation as Op

_BUILDER = IExprBuilder()
_TYPES = {"FP32": "FLOAT", "FP16": "HALF", "BF16": "BF16", "FP8": "FP8", "INT8": "INT8", "INT32": "INT32", "INT64": "INT64",
          "BOOL": "BOOL", "UINT8": "UINT8"}


class ShapeExpr:
    """A size that is known, or follows from those of inputs."""

    def __init__(self, value: Any = 0) -> None:
        self._expr = value._expr if isinstance(value, ShapeExpr) else expression(value)

    def _with(self, op: Op, a: Any, b: Any) -> ShapeExpr:
        return ShapeExpr(_BUILDER.operation(op, ShapeExpr(a)._expr, ShapeExpr(b)._expr))

    @property
    def is_fake(self) -> bool:
        return False

    @property
    def is_size_tensor(self) -> bool:
        return self._expr.is_size_tensor()

    @property
    def is_constant(self) -> bool:
        return self._expr.is_constant()

    def constant_value(self) -> int:
        if self._expr._value is None:
            raise ValueError(f"the size {self._expr._text} is not known yet")
        return self._expr._value

    def clone(self) -> ShapeExpr:
        return ShapeExpr(self)

    def __repr__(self) -> str:
        return f"ShapeExpr({self._expr._text if self._expr._value is None else self._expr._value})"


def _operator(op: Op) -> tuple[Any, Any]:
    return lambda self, other: self._with(op, self, other), lambda self, other: self._with(op, other, self)


for _name, _op in (("add", Op.SUM), ("sub", Op.SUB), ("mul", Op.PROD), ("floordiv", Op.FLOOR_DIV)):
    _forward, _backward = _operator(_op)
    setattr(ShapeExpr, f"__{_name}__", _forward)
    setattr(ShapeExpr, f"__r{_name}__", _backward)
ShapeExpr.__lt__ = _operator(Op.LESS)[0]  # type: ignore[attr-defined]


class ShapeExprs:
    """Sizes of a tensor."""

    def __init__(self, dims: Any = ()) -> None:
        self._v = [ShapeExpr(d) for d in ([0] * dims if isinstance(dims, int) else dims)]

    def __len__(self) -> int:
        return len(self._v)

    def __iter__(self) -> Iterator[ShapeExpr]:
        return iter(self._v)

    def __getitem__(self, index: int) -> ShapeExpr:
        return self._v[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self._v[index] = ShapeExpr(value)

    def numel(self) -> ShapeExpr:
        total = ShapeExpr(1)
        for d in self._v:
            total = total * d  # type: ignore[operator]
        return total

    def clone(self) -> ShapeExprs:
        return ShapeExprs(self._v)


class Shape(tuple):
    """Sizes that are known."""

    def numel(self) -> int:
        return math.prod(self)


class TensorDesc:
    """Type, format and sizes of a tensor, before a run."""

    def __init__(self, dtype: DataType, shape_expr: ShapeExprs, aliased: TensorDesc | None = None) -> None:
        self.dtype, self.shape_expr, self.format, self.scale = dtype, shape_expr, TensorFormat.LINEAR, 1.0
        self._aliased = aliased

    @property
    def ndim(self) -> int:
        return len(self.shape_expr)

    @property
    def is_size_tensor(self) -> bool:
        return False

    @property
    def shape(self) -> Shape:
        return Shape(d.constant_value() for d in self.shape_expr)

    def numel(self) -> int:
        return self.shape.numel()

    def like(self) -> TensorDesc:
        return TensorDesc(self.dtype, self.shape_expr.clone())

    def aliased(self) -> TensorDesc:
        return TensorDesc(self.dtype, self.shape_expr.clone(), self)

    def get_aliased(self) -> TensorDesc | None:
        return self._aliased

    def has_shape(self) -> bool:
        return all(d.is_constant for d in self.shape_expr)


class Tensor:
    """Elements in host memory during a run."""

    def __init__(self, desc: Any, address: int) -> None:
        self.dtype, self.format, self.scale = desc.type, desc.format, desc.scale
        self.shape = Shape(desc.dims)
        self._address = address

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(self.ndim))

    @property
    def data_ptr(self) -> int:
        return self._address

    def numel(self) -> int:
        return self.shape.numel()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        kind = {"FLOAT": "<f4", "HALF": "<f2", "INT8": "|i1", "INT32": "<i4", "BOOL": "|b1", "UINT8": "|u1", "INT64": "<i8"}
        if self.dtype.name not in kind:
            raise AttributeError(f"NumPy has no elements of {self.dtype}")
        return {"shape": tuple(self.shape), "typestr": kind[self.dtype.name], "data": (self._address, False), "version": 3}

    def __dlpack__(self, **options: Any) -> Any:
        return np.asarray(self).__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Definition:
    """A plug-in of one name: what describes it, and what computes it."""

    def __init__(self, space: str, name: str, describe: Callable[..., Any]) -> None:
        self.space, self.name, self.describe = space, name, describe
        self.implementation: Callable[..., Any] | None = None
        self.combinations: Callable[..., Any] | None = None
        parameters = inspect.signature(describe).parameters.values()
        hints = inspect.get_annotations(describe, eval_str=True)
        self.inputs = [p.name for p in parameters if hints.get(p.name) is TensorDesc]
        self.attributes = {p.name: hints.get(p.name) for p in parameters if p.name not in self.inputs}
        if not self.inputs:
            raise ValueError(f"plug-in {space}::{name}: no argument is annotated as a TensorDesc")
        self.creator = Creator(self)

    def call(self, *args: Any, **kwargs: Any) -> tuple[list[ITensor], list[ITensor], Plugin]:
        """Inputs and plug-in, as INetworkDefinition.add_plugin takes them."""
        bound = inspect.signature(self.describe).bind(*args, **kwargs)
        bound.apply_defaults()
        inputs = [bound.arguments[name] for name in self.inputs]
        for name, value in zip(self.inputs, inputs, strict=True):
            if not isinstance(value, ITensor):
                raise TypeError(f"{self.space}::{self.name}: {name} wants a tensorrt.ITensor, found {type(value).__name__}")
        return inputs, [], Plugin(self, {name: bound.arguments[name] for name in self.attributes})


class Creator(IPluginCreatorV3Quick):
    """Makes plug-ins of a definition from fields."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        self._definition = definition
        self.name, self.plugin_version, self.plugin_namespace = definition.name, "1", definition.space
        self.field_names = PluginFieldCollection([PluginField(name) for name in definition.attributes])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Plugin:
        values = {f.name: f.data for f in field_collection}
        signature = inspect.signature(self._definition.describe).parameters
        attributes = {}
        for attribute, hint in self._definition.attributes.items():
            default = signature[attribute].default
            if attribute not in values and default is inspect.Parameter.empty:
                raise ValueError(f"plug-in {self._definition.space}::{name}: the attribute {attribute} is missing")
            attributes[attribute] = _of_field(values[attribute], hint) if attribute in values else default
        return Plugin(self._definition, attributes)


def _of_field(data: Any, hint: Any) -> Any:
    """A field's value as the type that the description asks for."""
    if hint is str:
        return bytes(data).decode()
    if hint is bytes:
        return bytes(data)
    if hint in (int, float, bool):
        return hint(np.asarray(data).reshape(-1)[0])
    return data


class Plugin(IPluginV3, IPluginV3OneCore, IPluginV3OneBuildV2, IPluginV3OneRuntime):
    """A plug-in with its attributes."""

    def __init__(self, definition: Definition, attributes: dict[str, Any]) -> None:
        super().__init__()
        self._definition, self._attributes, self._tactic = definition, attributes, 0
        self._types: list[DataType] = []
        self._outputs: list[TensorDesc] = []
        self._aliases: list[int] = []
        self.plugin_name, self.plugin_namespace = definition.name, definition.space

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        if not self._aliases:
            # Their number does not depend on types.
            self.get_output_data_types([DataType.FLOAT] * len(self._definition.inputs))
        return len(self._aliases)

    def clone(self) -> Plugin:
        made = Plugin(self._definition, self._attributes)
        made._types, made._aliases, made._tactic = self._types, self._aliases, self._tactic
        return made

    def _described(self, inputs: list[TensorDesc]) -> list[TensorDesc]:
        made = self._definition.describe(**dict(zip(self._definition.inputs, inputs, strict=True)), **self._attributes)
        outputs = list(made) if isinstance(made, (tuple, list)) else [made]
        places = {id(d): i for i, d in enumerate(inputs)}
        self._aliases = [-1 if d.get_aliased() is None else places[id(d.get_aliased())] for d in outputs]
        return outputs

    def get_output_data_types(self, input_types: list[DataType]) -> list[DataType]:
        self._types = list(input_types)
        # Types do not depend on sizes: any will do.
        unknown = [ShapeExprs([IDimensionExpr(f"i{i}.d{n}") for n in range(8)]) for i in range(len(input_types))]
        return [d.dtype for d in self._described([TensorDesc(t, s) for t, s in zip(input_types, unknown, strict=True)])]

    def get_output_shapes(self, inputs: list[Any], shape_inputs: list[Any], expr_builder: Any) -> list[Any]:
        types = self._types or [DataType.FLOAT] * len(inputs)
        made = self._described([TensorDesc(t, ShapeExprs(dims)) for t, dims in zip(types, inputs, strict=True)])
        return [DimsExprs([d._expr for d in desc.shape_expr]) for desc in made]

    def get_aliased_input(self, output_index: int) -> int:
        return self._aliases[output_index]

    def supports_format_combination(self, pos: int, in_out: list[Any], num_inputs: int) -> bool:
        if self._definition.combinations is None:
            return True
        descs = [TensorDesc(t.desc.type, ShapeExprs(list(t.desc.dims))) for t in in_out]
        arguments = {**dict(zip(self._definition.inputs, descs, strict=False)), **self._attributes}
        arguments["outputs"] = tuple(descs[num_inputs:])
        names = inspect.signature(self._definition.combinations).parameters
        listed = self._definition.combinations(**{n: v for n, v in arguments.items() if n in names})
        found = [c for c in listed if self._takes(c, [t.desc.type for t in in_out])]
        if found and found[0].tactics:
            self._tactic = found[0].tactics[0]
        return bool(found)

    @staticmethod
    def _takes(combination: Any, types: list[DataType]) -> bool:
        if len(combination.io_types) != len(types):
            return False
        return all(
            any(_TYPES.get(word) == dtype.name for word in words) and "LINEAR" in layouts
            for words, layouts, dtype in zip(combination.io_types, combination.layouts, types, strict=True)
        )

    def get_fields_to_serialize(self) -> PluginFieldCollection:
        return PluginFieldCollection([PluginField(name, _as_field(value)) for name, value in self._attributes.items()])

    def on_shape_change(self, in_: list[Any], out: list[Any]) -> None:
        self._types = [d.type for d in in_]
        # The tactic of the first combination that takes these types.
        described = [DynamicPluginTensorDesc(d.dims, d.type) for d in (*in_, *out)]
        self.supports_format_combination(0, described, len(in_))

    def enqueue(
        self, input_desc: list[Any], output_desc: list[Any], inputs: list[int], outputs: list[int], workspace: int,
        stream: int,
    ) -> None:
        function = self._definition.implementation
        if function is None:
            space, name = self._definition.space, self._definition.name
            raise ValueError(f"plug-in {space}::{name} has no implementation; decorate one with tensorrt.plugin.impl")
        given = [Tensor(d, a) for d, a in zip(input_desc, inputs, strict=True)]
        arguments = {**dict(zip(self._definition.inputs, given, strict=True)), **self._attributes}
        arguments["outputs"] = tuple(Tensor(d, a) for d, a in zip(output_desc, outputs, strict=True))
        arguments.update(stream=stream, tactic=self._tactic)
        names = inspect.signature(function).parameters
        function(**{n: v for n, v in arguments.items() if n in names})


def _as_field(value: Any) -> Any:
    """An attribute as the elements of a field."""
    if isinstance(value, (str, bytes)):
        return value.encode() if isinstance(value, str) else value
    if isinstance(value, (bool, int)):
        return np.array([value], np.int64)
    return np.array([value], np.float64) if isinstance(value, float) else np.asarray(value)
