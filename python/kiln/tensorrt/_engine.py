"""Engines, their inspector and their configurations."""

from __future__ import annotations

import json
from typing import Any

from kiln import _kiln

from . import enums as e
from ._context import IExecutionContext
from ._log import Scoped, fail
from ._members import Recorder
from ._strict import Strict
from ._values import Dims, IHostMemory
from .enums import DataType, SerializationFlag, TensorFormat, TensorIOMode, TensorLocation, from_kiln


class IRuntimeConfig(Strict):
    """Settings of contexts."""

    def __init__(self) -> None:
        self._strategy = e.ExecutionContextAllocationStrategy.STATIC

    def set_execution_context_allocation_strategy(self, strategy: Any = None) -> None:
        self._strategy = e.ExecutionContextAllocationStrategy(strategy or 0)

    def get_execution_context_allocation_strategy(self) -> Any:
        return self._strategy


class ISerializationConfig(Strict):
    """What a serialized engine holds."""

    def __init__(self) -> None:
        self._flags = 0

    @property
    def flags(self) -> int:
        return self._flags

    @flags.setter
    def flags(self, flags: int) -> None:
        self._flags = int(flags)

    def set_flag(self, flag: SerializationFlag) -> bool:
        self._flags |= 1 << int(SerializationFlag(flag))
        return True

    def clear_flag(self, flag: SerializationFlag) -> bool:
        self._flags &= ~(1 << int(SerializationFlag(flag)))
        return True

    def get_flag(self, flag: SerializationFlag) -> bool:
        return bool(self._flags >> int(SerializationFlag(flag)) & 1)


class ICudaEngine(Strict, Scoped):
    """A network on a device, ready to make contexts."""

    def __init__(self, runtime: Any, native: Any) -> None:
        self._runtime, self._native, self._recorder = runtime, native, runtime._recorder
        self._io = {t.name: t for t in native.io}
        self._names = list(self._io)

    @property
    def _logger(self) -> Any:
        return self._runtime._logger

    def _find(self, name: str) -> Any:
        if not isinstance(name, str):
            raise TypeError(f"name: wants a str, found {type(name).__name__}")
        found = self._io.get(name)
        if found is None:
            fail(self, f"there is no input or output {name!r}; there are {', '.join(self._names)}", None)
        return found

    # Inputs and outputs.

    @property
    def num_io_tensors(self) -> int:
        return len(self._names)

    def get_tensor_name(self, index: int) -> str | None:
        if 0 <= index < len(self._names):
            return self._names[index]
        return fail(self, f"there is no input or output {index}; the engine has {len(self._names)}", None)

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self._names):
            raise IndexError(f"there is no input or output {index}")
        return self._names[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        found = self._find(name)
        if found is None:
            return TensorIOMode.NONE
        return TensorIOMode.INPUT if found.is_input else TensorIOMode.OUTPUT

    def get_tensor_shape(self, name: str) -> Dims:
        found = self._find(name)
        return Dims() if found is None else Dims(found.shape)

    def get_tensor_dtype(self, name: str) -> DataType:
        found = self._find(name)
        return DataType.FLOAT if found is None else from_kiln(found.dtype)

    def get_tensor_location(self, name: str) -> TensorLocation:
        found = self._find(name)
        return TensorLocation.HOST if found is not None and found.is_shape_input else TensorLocation.DEVICE

    def is_shape_inference_io(self, name: str) -> bool:
        found = self._find(name)
        return found is not None and found.is_shape_input

    def get_tensor_format(self, name: str, profile_index: int = 0) -> TensorFormat:
        found = self._find(name)
        if found is None:
            return TensorFormat.LINEAR
        return next(f for f in TensorFormat if f.name.lower() == found.format.lower())

    def get_tensor_format_desc(self, name: str, profile_index: int = 0) -> str:
        found = self._find(name)
        return "" if found is None else found.format_description

    def get_tensor_vectorized_dim(self, name: str, profile_index: int = 0) -> int:
        return _or(-1, self._find(name), "vectorized_dim")

    def get_tensor_components_per_element(self, name: str, profile_index: int = 0) -> int:
        return _or(-1, self._find(name), "components_per_element")

    def get_tensor_bytes_per_component(self, name: str, profile_index: int = 0) -> int:
        return _or(-1, self._find(name), "bytes_per_component")

    def get_aliased_input_tensor(self, name: str) -> str | None:
        self._find(name)
        return None

    # Profiles.

    @property
    def num_optimization_profiles(self) -> int:
        return max(len(self._native.profiles), 1)

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]:
        found = self._find(name)
        if found is None or not self._profile_exists(profile_index):
            return []
        if not found.is_input:
            return fail(self, f"{name!r} is an output; profiles have shapes of inputs", [])
        known = self._range(profile_index, "shapes", name)
        return [Dims(found.shape)] * 3 if known is None else [Dims(d) for d in known]

    def get_tensor_profile_values(self, name: Any, profile_index: Any) -> list[list[int]]:
        if isinstance(name, int):
            name, profile_index = profile_index, name
        if self._find(name) is None or not self._profile_exists(profile_index):
            return []
        known = self._range(profile_index, "values", name)
        return [] if known is None else [list(d) for d in known]

    def _profile_exists(self, index: int) -> bool:
        if 0 <= index < self.num_optimization_profiles:
            return True
        return fail(self, f"there is no profile {index}; the engine has {self.num_optimization_profiles}", False)

    def _range(self, index: int, what: str, name: str) -> Any:
        profiles = self._native.profiles
        return getattr(profiles[index], what).get(name) if profiles else None

    # Facts.

    @property
    def name(self) -> str:
        return self._native.name

    @property
    def num_layers(self) -> int:
        return len(layers(self._native.layers_json()))

    @property
    def refittable(self) -> bool:
        return self._native.refittable

    @property
    def has_implicit_batch_dimension(self) -> bool:
        return False

    @property
    def engine_capability(self) -> Any:
        return e.EngineCapability.STANDARD

    @property
    def device_memory_size(self) -> int:
        return self._native.context_memory

    device_memory_size_v2 = device_memory_size

    def get_device_memory_size_for_profile(self, profile_index: int) -> int:
        return self._native.context_memory if self._profile_exists(profile_index) else 0

    get_device_memory_size_for_profile_v2 = get_device_memory_size_for_profile

    @property
    def tactic_sources(self) -> int:
        return 0

    @property
    def profiling_verbosity(self) -> Any:
        text = self._native.header.verbosity
        return e.ProfilingVerbosity["LAYER_NAMES_ONLY" if text == "names" else text.upper()]

    @property
    def hardware_compatibility_level(self) -> Any:
        later = self._native.header.target.arch.endswith("+")
        return e.HardwareCompatibilityLevel["AMPERE_PLUS" if later else "NONE"]

    @property
    def num_aux_streams(self) -> int:
        return self._native.aux_streams

    def get_engine_stat(self, stat: Any = e.EngineStat.TOTAL_WEIGHTS_SIZE) -> int:
        """Bytes of weights; -1 for what was stripped of an engine that was not."""
        if e.EngineStat(stat) == e.EngineStat.TOTAL_WEIGHTS_SIZE:
            return self._native.weights_size
        stripped = self._native.stripped_weights_size
        return -1 if stripped is None else stripped

    def is_debug_tensor(self, name: str) -> bool:
        return name in self._native.debug_tensors

    # Weight streaming.

    @property
    def streamable_weights_size(self) -> int:
        return _kiln.weight_streaming_sizes(self._native)[0]

    @property
    def minimum_weight_streaming_budget(self) -> int:
        return _kiln.weight_streaming_sizes(self._native)[1]

    @property
    def weight_streaming_budget_v2(self) -> int:
        """Bytes of weights on the device; all of them where no budget is set."""
        budget = _kiln.weight_budget(self._native)
        return self.streamable_weights_size if budget is None else budget

    @weight_streaming_budget_v2.setter
    def weight_streaming_budget_v2(self, budget: int) -> None:
        size, least = _kiln.weight_streaming_sizes(self._native)
        try:
            _kiln.set_weight_budget(self._native, None if int(budget) >= size else max(int(budget), least))
        except Exception as error:
            fail(self, error, None)

    weight_streaming_budget = weight_streaming_budget_v2

    @property
    def weight_streaming_scratch_memory_size(self) -> int:
        """The least budget has the memory for weights on their way."""
        return 0

    def get_weight_streaming_automatic_budget(self) -> int:
        return self.streamable_weights_size

    # What an engine makes.

    def serialize(self) -> IHostMemory | None:
        try:
            return IHostMemory(self._native.plan())
        except Exception as error:
            return fail(self, error, None)

    def create_serialization_config(self) -> ISerializationConfig:
        return ISerializationConfig()

    def serialize_with_config(self, config: ISerializationConfig) -> IHostMemory | None:
        try:
            plan = self._native.plan()
            if config.get_flag(SerializationFlag.EXCLUDE_WEIGHTS):
                plan = _kiln.strip_plan(plan)
            return IHostMemory(plan)
        except Exception as error:
            return fail(self, error, None)

    def create_execution_context(self, strategy: Any = None, runtime_config: Any = None) -> IExecutionContext | None:
        config = runtime_config or (strategy if isinstance(strategy, IRuntimeConfig) else None)
        if config is None:
            config = IRuntimeConfig()
            config.set_execution_context_allocation_strategy(strategy)
        managed = config._strategy == e.ExecutionContextAllocationStrategy.USER_MANAGED
        own = not (managed and self._native.takes_device_addresses)
        try:
            return IExecutionContext(self, self._native.create_context(memory=own), config, own)
        except Exception as error:
            return fail(self, error, None)

    def create_execution_context_without_device_memory(self) -> IExecutionContext | None:
        return self.create_execution_context(e.ExecutionContextAllocationStrategy.USER_MANAGED)

    def create_runtime_config(self) -> IRuntimeConfig:
        return IRuntimeConfig()

    def create_engine_inspector(self) -> EngineInspector:
        return EngineInspector(self)

    error_recorder = Recorder()


def _or(default: int, found: Any, attribute: str) -> int:
    value = getattr(found, attribute) if found is not None else None
    return default if value is None else value


def layers(text: str) -> list[Any]:
    """The layers of an inspector's JSON."""
    return json.loads(text)["Layers"]


class EngineInspector(Strict):
    """Describes the layers of an engine."""

    def __init__(self, engine: ICudaEngine) -> None:
        self._engine, self._context, self._recorder = engine, None, None

    @property
    def _logger(self) -> Any:
        return self._engine._logger

    @property
    def execution_context(self) -> Any:
        return self._context

    @execution_context.setter
    def execution_context(self, context: Any) -> None:
        self._context = context

    error_recorder = Recorder()

    def _json(self) -> str:
        """The layers at the shapes of the context, where these are set."""
        context = self._context
        known = context is not None and not context._native.underspecified()
        return (context if known else self._engine)._native.layers_json()

    def get_layer_information(self, layer_index: int, format: Any) -> str | None:
        try:
            found = layers(self._json())
        except Exception as error:
            return fail(self, error, None)
        if not 0 <= layer_index < len(found):
            return fail(self, f"there is no layer {layer_index}; the engine has {len(found)}", None)
        return _show(found[layer_index], format)

    def get_engine_information(self, format: Any) -> str | None:
        try:
            text = self._json()
        except Exception as error:
            return fail(self, error, None)
        if e.LayerInformationFormat(format) == e.LayerInformationFormat.JSON:
            described = json.loads(text)
            described.setdefault("Bindings", list(self._engine._names))
            return json.dumps(described, indent=2)
        return "Layers:\n" + "".join(_show(layer, format) for layer in layers(text))


def _show(layer: Any, format: Any) -> str:
    if e.LayerInformationFormat(format) == e.LayerInformationFormat.JSON:
        return json.dumps(layer, indent=2)
    if isinstance(layer, str):
        return f"{layer}\n"
    return f"{layer.get('Name', '')}: " + ", ".join(f"{k}: {v}" for k, v in layer.items() if k != "Name") + "\n"
