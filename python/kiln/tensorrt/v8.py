"""The interface of TensorRT 8 over the same objects: bindings by index, `build_engine`, settings of the builder.

`import kiln.tensorrt.v8 as trt`, or `python -m kiln.tensorrt --v8 program.py`. All other names are those of `kiln.tensorrt`.
"""

from __future__ import annotations

from typing import Any

import kiln.tensorrt as _new
from kiln.tensorrt import *  # noqa: F403
from kiln.tensorrt import enums as _enums
from kiln.tensorrt._config import IBuilderConfig as _Config
from kiln.tensorrt._context import IExecutionContext as _Context
from kiln.tensorrt._engine import ICudaEngine as _Engine
from kiln.tensorrt._hints import hint as _hint
from kiln.tensorrt._layers import CLASSES as _CLASSES
from kiln.tensorrt._log import fail as _fail
from kiln.tensorrt._log import no_effect as _no_effect
from kiln.tensorrt._values import Dims, dims
from kiln.tensorrt.enums import MemoryPoolType, TensorIOMode

__version__ = "8.6.1"


class BuilderFlag8(_enums._Enum):
    """The flags of the original with their numbers in TensorRT 8."""

    FP16 = 0
    INT8 = 1
    DEBUG = 2
    GPU_FALLBACK = 3
    STRICT_TYPES = 4
    REFIT = 5
    DISABLE_TIMING_CACHE = 6
    TF32 = 7
    SPARSE_WEIGHTS = 8
    SAFETY_SCOPE = 9
    OBEY_PRECISION_CONSTRAINTS = 10
    PREFER_PRECISION_CONSTRAINTS = 11
    DIRECT_IO = 12
    REJECT_EMPTY_ALGORITHMS = 13
    ENABLE_TACTIC_HEURISTIC = 14
    VERSION_COMPATIBLE = 15
    EXCLUDE_LEAN_RUNTIME = 16
    FP8 = 17


_RENAMED = {"STRICT_TYPES": "OBEY_PRECISION_CONSTRAINTS"}
globals()["BuilderFlag"] = BuilderFlag8
BuilderFlag8.__name__ = BuilderFlag8.__qualname__ = "BuilderFlag"


def _modern(flag: Any) -> Any:
    if not isinstance(flag, BuilderFlag8):
        raise TypeError(f"flag: wants a tensorrt.BuilderFlag, found {flag!r}")
    return _new.BuilderFlag.__members__.get(_RENAMED.get(flag.name, flag.name))


class IBuilderConfig(_Config):
    """Settings of a build."""

    @property
    def max_workspace_size(self) -> int:
        return self.get_memory_pool_limit(MemoryPoolType.WORKSPACE)

    @max_workspace_size.setter
    def max_workspace_size(self, size: int) -> None:
        self.set_memory_pool_limit(MemoryPoolType.WORKSPACE, size)

    @property
    def min_timing_iterations(self) -> int:
        return self.avg_timing_iterations

    @min_timing_iterations.setter
    def min_timing_iterations(self, count: int) -> None:
        self.avg_timing_iterations = count

    def set_flag(self, flag: Any) -> None:
        new = _modern(flag)
        if new is None:
            _no_effect(self, f"BuilderFlag.{flag.name}", "tactics are timed")
        else:
            super().set_flag(new)

    def clear_flag(self, flag: Any) -> None:
        new = _modern(flag)
        if new is not None:
            super().clear_flag(new)

    def get_flag(self, flag: Any) -> bool:
        new = _modern(flag) if isinstance(flag, BuilderFlag8) else flag
        return new is not None and super().get_flag(new)

    @property
    def flags(self) -> int:
        return sum(1 << int(f) for f in BuilderFlag8 if f.name not in _RENAMED and self.get_flag(f))

    @flags.setter
    def flags(self, flags: int) -> None:
        for flag in BuilderFlag8:
            (self.set_flag if int(flags) >> int(flag) & 1 else self.clear_flag)(flag)


class IExecutionContext(_Context):
    """Memory of one run at a time, with bindings by index."""

    def set_binding_shape(self, binding: int, shape: Any) -> bool:
        return self.set_input_shape(_at(self._engine, binding), dims(shape))

    def get_binding_shape(self, binding: int) -> Dims:
        return self.get_tensor_shape(_at(self._engine, binding))

    def get_strides(self, binding: int) -> Dims:
        return self.get_tensor_strides(_at(self._engine, binding))

    def set_shape_input(self, binding: int, shape: Any) -> bool:
        import numpy as np

        name = _at(self._engine, binding)
        kind = "int64" if self._engine._io[name].dtype == "i64" else "int32"
        self._kept[f"shape {name}"] = array = np.array([int(n) for n in shape], dtype=kind)
        if -1 in (self._native.input_shape(name) or self._engine._io[name].shape):
            self._native.set_input_shape(name, [array.size])
        return self.set_tensor_address(name, array.ctypes.data)

    @property
    def active_optimization_profile(self) -> int:
        return self._profile

    @active_optimization_profile.setter
    def active_optimization_profile(self, index: int) -> None:
        self.set_optimization_profile_async(index, 0)

    def execute(self, batch_size: int = 1, bindings: Any = ()) -> bool:
        return self.execute_v2(bindings)

    def execute_async(self, batch_size: int = 1, bindings: Any = (), stream_handle: int = 0, input_consumed: Any = None) -> bool:
        return self.execute_async_v2(bindings, stream_handle, input_consumed)

    def execute_async_v2(self, bindings: Any, stream_handle: int, input_consumed: Any = None) -> bool:
        given = [int(b) for b in bindings]
        names = self._engine._names
        if len(given) < len(names):
            return _fail(self, f"execute_async_v2: {len(given)} addresses for {len(names)} bindings", False)
        count = len(names)
        start = self._profile * count if len(given) >= (self._profile + 1) * count else 0
        for name, address in zip(names, given[start:]):
            self._addresses[name] = address
        return self.execute_async_v3(stream_handle)

    def execute_v2(self, bindings: Any) -> bool:
        count = self._engine.num_io_tensors
        given = [int(b) for b in bindings]
        start = self._profile * count if len(given) >= (self._profile + 1) * count else 0
        return super().execute_v2(given[start : start + count])


def _at(engine: Any, binding: Any) -> str:
    """The name of a binding by its index, as in the original over all profiles, or by its name."""
    if isinstance(binding, str):
        return binding
    count = engine.num_io_tensors
    if not 0 <= binding < engine.num_bindings:
        raise IndexError(f"there is no binding {binding}; the engine has {engine.num_bindings}")
    return engine[binding % count]


class ICudaEngine(_Engine):
    """A network on a device, with bindings by index."""

    @property
    def num_bindings(self) -> int:
        return self.num_io_tensors * self.num_optimization_profiles

    def __len__(self) -> int:
        return self.num_bindings

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            return self.get_binding_index(index)
        count = self.num_io_tensors
        if not 0 <= index < self.num_bindings:
            raise IndexError(f"there is no binding {index}")
        profile = index // count
        name = self._names[index % count]
        return f"{name} [profile {profile}]" if profile else name

    def get_binding_name(self, index: int) -> str:
        return self[index]

    def get_binding_index(self, name: str) -> int:
        return self._names.index(name) if name in self._io else -1

    def get_binding_shape(self, binding: Any) -> Dims:
        return self.get_tensor_shape(_at(self, binding))

    def get_binding_dtype(self, binding: Any) -> Any:
        return self.get_tensor_dtype(_at(self, binding))

    def binding_is_input(self, binding: Any) -> bool:
        return self.get_tensor_mode(_at(self, binding)) == TensorIOMode.INPUT

    def get_binding_format(self, index: int) -> Any:
        return self.get_tensor_format(_at(self, index))

    def get_binding_format_desc(self, index: int) -> str:
        return self.get_tensor_format_desc(_at(self, index))

    def get_binding_vectorized_dim(self, index: int) -> int:
        return self.get_tensor_vectorized_dim(_at(self, index))

    def get_binding_components_per_element(self, index: int) -> int:
        return self.get_tensor_components_per_element(_at(self, index))

    def get_binding_bytes_per_component(self, index: int) -> int:
        return self.get_tensor_bytes_per_component(_at(self, index))

    def get_location(self, binding: Any) -> Any:
        return self.get_tensor_location(_at(self, binding))

    def is_shape_binding(self, binding: int) -> bool:
        return self.is_shape_inference_io(_at(self, binding))

    def is_execution_binding(self, binding: int) -> bool:
        return not self.is_shape_binding(binding)

    def get_profile_shape(self, profile_index: int, binding: Any) -> list[Dims]:
        return self.get_tensor_profile_shape(_at(self, binding), profile_index)

    def get_profile_shape_input(self, profile_index: int, binding: Any) -> list[list[int]]:
        return self.get_tensor_profile_values(_at(self, binding), profile_index)

    @property
    def max_batch_size(self) -> int:
        return 1

    @property
    def max_workspace_size(self) -> int:
        return self.device_memory_size

    def create_execution_context(self, strategy: Any = None, runtime_config: Any = None) -> Any:
        made = super().create_execution_context(strategy, runtime_config)
        if made is not None:
            made.__class__ = IExecutionContext
        return made


class Runtime(_new.Runtime):
    """Loads plans."""

    def deserialize_cuda_engine(self, serialized_engine: Any = None, **readers: Any) -> Any:
        made = super().deserialize_cuda_engine(serialized_engine, **readers)
        if made is not None:
            made.__class__ = ICudaEngine
        return made


class Builder(_new.Builder):
    """Builds engines of networks."""

    def __init__(self, logger: Any) -> None:
        super().__init__(logger)
        self._own = IBuilderConfig(self)
        self._batch = 1

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig(self)

    @property
    def max_batch_size(self) -> int:
        return self._batch

    @max_batch_size.setter
    def max_batch_size(self, size: int) -> None:
        if int(size) != 1:
            _no_effect(self, "Builder.max_batch_size", "batches are explicit")
        self._batch = int(size)

    @property
    def max_workspace_size(self) -> int:
        return self._own.max_workspace_size

    @max_workspace_size.setter
    def max_workspace_size(self, size: int) -> None:
        self._own.max_workspace_size = size

    def build_engine(self, network: Any, config: Any = None) -> Any:
        plan = self.build_serialized_network(network, self._own if config is None else config)
        return None if plan is None else Runtime(self._logger).deserialize_cuda_engine(plan)

    def build_cuda_engine(self, network: Any) -> Any:
        return self.build_engine(network)

    def build_engine_with_config(self, network: Any, config: Any) -> Any:
        return self.build_engine(network, config)


def _mode(flag: str) -> property:
    def get(self: Builder) -> bool:
        return self._own.get_flag(BuilderFlag8[flag])

    def set_(self: Builder, on: bool) -> None:
        (self._own.set_flag if on else self._own.clear_flag)(BuilderFlag8[flag])

    return property(get, set_)


Builder.fp16_mode = _mode("FP16")
Builder.int8_mode = _mode("INT8")
Builder.strict_type_constraints = _mode("STRICT_TYPES")
Builder.int8_calibrator = property(
    lambda self: self._own.int8_calibrator, lambda self, value: setattr(self._own, "int8_calibrator", value)
)


class INetworkDefinition(_new.INetworkDefinition):
    """A network, with the methods for two dimensions."""

    def add_convolution(self, input: Any, num_output_maps: int, kernel_shape: Any, kernel: Any, bias: Any = None) -> Any:
        return self.add_convolution_nd(input, num_output_maps, kernel_shape, kernel, bias)

    def add_deconvolution(self, input: Any, num_output_maps: int, kernel_shape: Any, kernel: Any, bias: Any = None) -> Any:
        return self.add_deconvolution_nd(input, num_output_maps, kernel_shape, kernel, bias)

    def add_pooling(self, input: Any, type: Any, window_size: Any) -> Any:
        return self.add_pooling_nd(input, type, window_size)

    def add_padding(self, input: Any, pre_padding: Any, post_padding: Any) -> Any:
        return self.add_padding_nd(input, pre_padding, post_padding)

    def add_fully_connected(self, input: Any, num_outputs: int, kernel: Any, bias: Any = None) -> Any:
        w, b = _new._values.weights(kernel), _new._values.weights(bias)
        layer = self._add(
            "IIdentityLayer", "fully_connected", [input], outputs=int(num_outputs),
            kernel=w._value([num_outputs, len(w) // num_outputs]), bias=b._value() if b else None,
        )
        return self._held(layer, kernel=kernel, bias=bias)


def _create_network(self: Builder, flags: int = 0) -> INetworkDefinition:
    return INetworkDefinition(self, flags)


Builder.create_network = _create_network


def _old(cls: str, old: str, new: str) -> None:
    """Another name of a property."""
    setattr(_CLASSES[cls], old, property(lambda s: getattr(s, new), lambda s, v: setattr(s, new, v)))


_OLD_NAMES = {
    "IConvolutionLayer": ("stride", "padding", "dilation", "kernel_size"),
    "IDeconvolutionLayer": ("stride", "padding", "kernel_size"),
    "IPoolingLayer": ("stride", "padding", "window_size"),
}
for _cls, _names in _OLD_NAMES.items():
    for _name in _names:
        _old(_cls, _name, f"{_name}_nd")
DimsCHW = _new.Dims3
ResizeMode = _enums.InterpolationMode
SliceMode = _enums.SampleMode
DimsNCHW = _new.Dims4


def __getattr__(name: str) -> Any:
    raise AttributeError(_hint("module", name))
