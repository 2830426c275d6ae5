"""Bases of plug-ins that are written in Python, and the descriptions of tensors that they are given."""

from __future__ import annotations

from typing import Any

from ._callbacks import IVersionedInterface, _Base
from ._values import Dims, PluginFieldCollection
from .enums import DataType, PluginCapabilityType, TensorFormat


def _wanted(owner: Any, method: str) -> NotImplementedError:
    return NotImplementedError(f"a plug-in of class {type(owner).__name__} needs a method {method}")


class PluginTensorDesc:
    """Type, format and dimensions of a tensor."""

    def __init__(self, dims: Any = (), type: DataType = DataType.FLOAT) -> None:
        self.dims, self.type, self.format, self.scale = Dims(dims), type, TensorFormat.LINEAR, 1.0


class DynamicPluginTensorDesc:
    """Description of a tensor of a build, with the least, the usual and the greatest dimensions."""

    def __init__(self, dims: Any = (), type: DataType = DataType.FLOAT) -> None:
        self.desc = PluginTensorDesc(dims, type)
        self.min, self.opt, self.max = Dims(dims), Dims(dims), Dims(dims)


class IPluginCapability(IVersionedInterface):
    """Base of the parts of a plug-in."""


class IPluginResourceContext(_Base):
    """Resources of a context; Kiln has none."""


class IPluginResource(IVersionedInterface):
    """A resource that plug-ins share by the registry."""

    def clone(self) -> IPluginResource:
        raise _wanted(self, "clone()")

    def release(self) -> None:
        return None


class IPluginV3(IVersionedInterface):
    """A plug-in of the third interface: hands out the objects that describe and run it."""

    def get_capability_interface(self, type: PluginCapabilityType) -> Any:
        return self

    def clone(self) -> IPluginV3:
        raise _wanted(self, "clone()")

    def destroy(self) -> None:
        return None


class IPluginV3OneCore(IPluginCapability):
    """Name, version and namespace."""

    plugin_name = ""
    plugin_version = "1"
    plugin_namespace = ""


class IPluginV3OneBuild(IPluginCapability):
    """Types, shapes and needs."""

    num_outputs = 1
    format_combination_limit = 100
    metadata_string = ""
    timing_cache_id = ""

    def configure_plugin(self, in_: list[Any], out: list[Any]) -> None:
        return None

    def get_output_data_types(self, input_types: list[DataType]) -> list[DataType]:
        raise _wanted(self, "get_output_data_types(input_types)")

    def get_output_shapes(self, inputs: list[Any], shape_inputs: list[Any], expr_builder: Any) -> list[Any]:
        raise _wanted(self, "get_output_shapes(inputs, shape_inputs, exprBuilder)")

    def supports_format_combination(self, pos: int, in_out: list[Any], num_inputs: int) -> bool:
        raise _wanted(self, "supports_format_combination(pos, in_out, num_inputs)")

    def get_workspace_size(self, in_: list[Any], out: list[Any]) -> int:
        return 0

    def get_valid_tactics(self) -> list[int]:
        return []


class IPluginV3OneBuildV2(IPluginV3OneBuild):
    """As the first version, with outputs that are the memory of inputs."""

    def get_aliased_input(self, output_index: int) -> int:
        return -1


class IPluginV3OneRuntime(IPluginCapability):
    """Runs, and keeps what a plan holds of the plug-in."""

    def attach_to_context(self, resource_context: IPluginResourceContext) -> IPluginV3 | None:
        return self.clone() if isinstance(self, IPluginV3) else None

    def get_fields_to_serialize(self) -> PluginFieldCollection:
        raise _wanted(self, "get_fields_to_serialize()")

    def on_shape_change(self, in_: list[Any], out: list[Any]) -> None:
        return None

    def set_tactic(self, tactic: int) -> None:
        return None

    def enqueue(
        self, input_desc: list[Any], output_desc: list[Any], inputs: list[int], outputs: list[int], workspace: int,
        stream: int,
    ) -> Any:
        raise _wanted(self, "enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)")


class IPluginV2(_Base):
    """A plug-in of the second interface; Kiln's own libraries make these."""


class IPluginV2Ext(IPluginV2):
    """Named for programs that ask for the class; write an IPluginV2DynamicExt."""


class IPluginV2DynamicExtBase(IPluginV2):
    """What all plug-ins with dimensions that vary have."""


class IPluginV2DynamicExt(IPluginV2DynamicExtBase):
    """A plug-in of the second interface that a program writes."""

    num_outputs = 1
    plugin_type = ""
    plugin_version = "1"
    plugin_namespace = ""
    tensorrt_version = 101600

    @property
    def serialization_size(self) -> int:
        return self.get_serialization_size()

    def initialize(self) -> int:
        return 0

    def terminate(self) -> None:
        return None

    def destroy(self) -> None:
        return None

    def clone(self) -> IPluginV2DynamicExt:
        raise _wanted(self, "clone()")

    def serialize(self) -> bytes:
        return b""

    def get_serialization_size(self) -> int:
        return len(self.serialize())

    def get_output_datatype(self, index: int, input_types: list[DataType]) -> DataType:
        raise _wanted(self, "get_output_datatype(index, input_types)")

    def get_output_dimensions(self, output_index: int, inputs: list[Any], expr_builder: Any) -> Any:
        raise _wanted(self, "get_output_dimensions(output_index, inputs, exprBuilder)")

    def supports_format_combination(self, pos: int, in_out: list[Any], num_inputs: int) -> bool:
        raise _wanted(self, "supports_format_combination(pos, in_out, num_inputs)")

    def configure_plugin(self, in_: list[Any], out: list[Any]) -> None:
        return None

    def get_workspace_size(self, in_: list[Any], out: list[Any]) -> int:
        return 0

    def enqueue(
        self, input_desc: list[Any], output_desc: list[Any], inputs: list[int], outputs: list[int], workspace: int,
        stream: int,
    ) -> Any:
        raise _wanted(self, "enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)")
