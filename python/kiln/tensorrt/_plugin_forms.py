"""Both interfaces of plug-ins that are written in Python, called in one way."""

from __future__ import annotations

from typing import Any

from ._plugin_classes import (
    DynamicPluginTensorDesc,
    IPluginResourceContext,
    IPluginV2DynamicExt,
    IPluginV3,
    PluginTensorDesc,
)
from ._plugin_shapes import DimsExprs, IExprBuilder, elements_of, shape_of
from ._plugin_state import fields_of, pack_fields, unpack_fields
from .enums import DataType, PluginCapabilityType, TensorRTPhase

# An input or output: element type and dimensions.
Tensor = tuple[DataType, tuple[int, ...]]


class V3:
    """A plug-in of the third interface."""

    describe = DynamicPluginTensorDesc

    def __init__(self, plugin: Any) -> None:
        self.plugin = plugin
        self._build = plugin.get_capability_interface(PluginCapabilityType.BUILD)
        self._runtime = plugin.get_capability_interface(PluginCapabilityType.RUNTIME)
        self._shapes: Any = None

    @staticmethod
    def name_of(plugin: Any) -> tuple[str, str, str]:
        core = plugin.get_capability_interface(PluginCapabilityType.CORE)
        return core.plugin_namespace, core.plugin_name, str(core.plugin_version)

    @property
    def num_outputs(self) -> int:
        return int(self._build.num_outputs)

    def types(self, inputs: list[DataType]) -> list[DataType]:
        return list(self._build.get_output_data_types(inputs))

    def shapes(self, inputs: list[DimsExprs], shape_inputs: list[DimsExprs]) -> list[DimsExprs]:
        return list(self._build.get_output_shapes(inputs, shape_inputs, IExprBuilder()))

    def takes(self, pos: int, tensors: list[Any], count: int) -> bool:
        return bool(self._build.supports_format_combination(pos, tensors, count))

    def configure(self, inputs: list[Any], outputs: list[Any]) -> None:
        self._build.configure_plugin(inputs, outputs)

    def aliases(self) -> dict[int, int]:
        ask = getattr(self._build, "get_aliased_input", None)
        found = {} if ask is None else {i: int(ask(i)) for i in range(self.num_outputs)}
        return {output: input_ for output, input_ in found.items() if input_ >= 0}

    def state(self) -> bytes:
        return pack_fields(self._runtime.get_fields_to_serialize())

    @classmethod
    def of_state(cls, creator: Any, name: str, data: bytes) -> V3:
        return cls(creator.create_plugin(name, unpack_fields(data), TensorRTPhase.RUNTIME))

    @classmethod
    def of_attributes(cls, creator: Any, name: str, attributes: dict[str, Any]) -> V3:
        fields = fields_of(attributes, getattr(creator, "field_names", None))
        return cls(creator.create_plugin(name, fields, TensorRTPhase.BUILD))

    def attached(self) -> V3:
        """The plug-in as a context has it."""
        attached = self._runtime.attach_to_context(IPluginResourceContext())
        made = self if attached is None else V3(attached)
        tactics = list(made._build.get_valid_tactics() or ())
        if tactics:
            made._runtime.set_tactic(int(tactics[0]))
        return made

    def run(self, inputs: list[Any], outputs: list[Any], places: tuple[list[int], list[int]], workspace: Any) -> None:
        shapes = [tuple(d.dims) for d in (*inputs, *outputs)]
        if shapes != self._shapes:
            self._runtime.on_shape_change(inputs, outputs)
            self._shapes = shapes
        size = int(self._build.get_workspace_size(*map(dynamic, (inputs, outputs))) or 0)
        check(self._runtime.enqueue(inputs, outputs, *places, workspace(size), 0))


class V2:
    """A plug-in of the second interface."""

    describe = PluginTensorDesc

    def __init__(self, plugin: Any) -> None:
        self.plugin = plugin

    @staticmethod
    def name_of(plugin: Any) -> tuple[str, str, str]:
        return plugin.plugin_namespace, plugin.plugin_type, str(plugin.plugin_version)

    @property
    def num_outputs(self) -> int:
        return int(self.plugin.num_outputs)

    def types(self, inputs: list[DataType]) -> list[DataType]:
        return [self.plugin.get_output_datatype(i, inputs) for i in range(self.num_outputs)]

    def shapes(self, inputs: list[DimsExprs], shape_inputs: list[DimsExprs]) -> list[DimsExprs]:
        builder = IExprBuilder()
        return [self.plugin.get_output_dimensions(i, inputs, builder) for i in range(self.num_outputs)]

    def takes(self, pos: int, tensors: list[Any], count: int) -> bool:
        return bool(self.plugin.supports_format_combination(pos, tensors, count))

    def configure(self, inputs: list[Any], outputs: list[Any]) -> None:
        self.plugin.configure_plugin(inputs, outputs)

    def aliases(self) -> dict[int, int]:
        return {}

    def state(self) -> bytes:
        data = self.plugin.serialize()
        return data.encode() if isinstance(data, str) else bytes(data)

    @classmethod
    def of_state(cls, creator: Any, name: str, data: bytes) -> V2:
        return cls(creator.deserialize_plugin(name, data))

    @classmethod
    def of_attributes(cls, creator: Any, name: str, attributes: dict[str, Any]) -> V2:
        return cls(creator.create_plugin(name, fields_of(attributes, getattr(creator, "field_names", None))))

    def attached(self) -> V2:
        """The plug-in as a context has it."""
        made = V2(self.plugin.clone())
        if made.plugin.initialize():
            raise RuntimeError(f"initialize() of the plug-in {made.plugin.plugin_type} failed")
        return made

    def run(self, inputs: list[Any], outputs: list[Any], places: tuple[list[int], list[int]], workspace: Any) -> None:
        size = int(self.plugin.get_workspace_size(inputs, outputs) or 0)
        check(self.plugin.enqueue(inputs, outputs, *places, workspace(size), 0))


def form_of(plugin: Any) -> V2 | V3 | None:
    """How a plug-in is called; None of what is no plug-in of Python."""
    if isinstance(plugin, IPluginV3):
        return V3(plugin)
    return V2(plugin) if isinstance(plugin, IPluginV2DynamicExt) else None


def dynamic(tensors: list[PluginTensorDesc]) -> list[DynamicPluginTensorDesc]:
    """Descriptions of a build for tensors whose dimensions are known."""
    return [DynamicPluginTensorDesc(t.dims, t.type) for t in tensors]


def check(status: Any) -> None:
    """Refuses a status of enqueue that is not 0."""
    if isinstance(status, int) and status:
        raise RuntimeError(f"enqueue returned {status}")


def symbols(inputs: list[Tensor], shape_inputs: int) -> tuple[list[DimsExprs], list[DimsExprs]]:
    """Dimensions of inputs, and elements of those that only shapes depend on, which are the last."""
    plain = len(inputs) - shape_inputs
    shapes = [shape_of(i, dims) for i, (_, dims) in enumerate(inputs[:plain])]
    elements = []
    for i, (_, dims) in enumerate(inputs[plain:], plain):
        count = 1
        for n in dims:
            count *= n
        if count < 0:
            raise ValueError(f"shape input {i - plain} has a number of elements that is not known")
        elements.append(elements_of(i, count))
    return shapes, elements
