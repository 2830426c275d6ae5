"""Kiln compiles neural networks into engines and runs them.

    import kiln

    engine = kiln.Engine.open("model.onnx")
    outputs = engine.run({"input": image})          # NumPy, PyTorch, anything with DLPack or a buffer
    logits = outputs["logits"].numpy()
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kiln import _kiln
from kiln._kiln import (
    BackendInfo,
    BuildReport,
    Built,
    Cancelled,
    ContextInUse,
    Engine,
    Error,
    ExecutionContext,
    FailedAllocation,
    FailedComputation,
    FailedExecution,
    FailedInitialization,
    InternalError,
    InvalidArgument,
    InvalidConfig,
    InvalidState,
    IoTensor,
    Layer,
    Model,
    NamedWeight,
    Network,
    NetworkTensor,
    PlanHeader,
    PluginLayer,
    RefitReport,
    RefitTask,
    Refitter,
    StepReport,
    Target,
    Tensor,
    TimedOut,
    UnsupportedState,
    __version__,
    backends,
    define_layer,
    element_types,
    load_plugin,
    memory_limit,
    plugin_layers,
    read_calibration,
    set_log,
    strip_plan,
    undefine_layer,
)
from kiln._libraries import backend_libraries, compiler_of_kernels
from kiln._log import log_to
from kiln._options import BuildOptions, IoSpec, LayerTypes, Monitor, Profile, Range, Selector, options_of
from kiln._types import ModelLike, OutputAllocator

if TYPE_CHECKING:
    from typing import Unpack

    from kiln._options import OptionNames

_kiln.add_libraries(backend_libraries())
compiler_of_kernels()


def model(source: ModelLike) -> Model:
    """The model of a file, of the bytes of one, or of a network."""
    if isinstance(source, Model):
        return source
    if isinstance(source, Network):
        return Model.of_network(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Model.from_bytes(source)
    return Model.open(source)


def build(source: ModelLike, options: BuildOptions | None = None, **changes: Unpack[OptionNames]) -> Built:
    """Builds a plan of a model, a network, a file or the bytes of one. Keywords change single options."""
    return _kiln.build_native(model(source), options_of(options, changes))


def calibrate(
    source: ModelLike,
    batches: Iterable[Mapping[str, Any]],
    algorithm: str = "entropy",
    options: BuildOptions | None = None,
    **changes: Unpack[OptionNames],
) -> str:
    """Runs batches of inputs and returns a calibration table, which `BuildOptions.calibration` takes.

    `algorithm` is "entropy", "minmax", or "percentile" or "legacy", with a part of all elements behind a colon: "percentile:0.999".
    """
    return _kiln.calibrate_native(model(source), batches, algorithm, options_of(options, changes))


def refused_layers(
    source: ModelLike, options: BuildOptions | None = None, **changes: Unpack[OptionNames]
) -> list[tuple[str, str]]:
    """The layers that the backend refuses, with the reasons; none where it runs the whole network. Nothing is built."""
    return _kiln.refused_layers_native(model(source), options_of(options, changes))


def compare(
    source: ModelLike,
    inputs: Mapping[str, Any],
    against: str = "reference",
    *,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    bisect: bool = True,
    options: BuildOptions | None = None,
    **changes: Unpack[OptionNames],
) -> dict[str, Any]:
    """Builds and runs a model by the options, and on another backend that is right, and compares the results.

    The dictionary has the keys of `kiln compare --json`: `agrees`, `outputs`, `layers` (tensors between the kernels of the engine),
    `first_layer_that_differs`, and with `bisect` also `at_fault`: the layers at fault inside of that kernel, found by further builds.
    """
    report = _kiln.compare_native(model(source), inputs, against, rtol, atol, bisect, options_of(options, changes))
    found: dict[str, Any] = json.loads(report)
    return found


def refit(engine: Engine, weights: Mapping[str, Any] | str) -> RefitReport:
    """Replaces weights of an engine: by name, or those of a file (safetensors, NPZ, ONNX)."""
    refitter = engine.refitter()
    if isinstance(weights, Mapping):
        for name, data in weights.items():
            refitter.set(name, data)
    else:
        refitter.set_from_file(weights)
    return refitter.refit()


__all__ = [
    "BackendInfo",
    "BuildOptions",
    "BuildReport",
    "Built",
    "Cancelled",
    "ContextInUse",
    "Engine",
    "Error",
    "ExecutionContext",
    "FailedAllocation",
    "FailedComputation",
    "FailedExecution",
    "FailedInitialization",
    "InternalError",
    "InvalidArgument",
    "InvalidConfig",
    "InvalidState",
    "IoSpec",
    "IoTensor",
    "Layer",
    "LayerTypes",
    "Model",
    "Monitor",
    "NamedWeight",
    "Network",
    "NetworkTensor",
    "OutputAllocator",
    "PlanHeader",
    "PluginLayer",
    "Profile",
    "Range",
    "RefitReport",
    "RefitTask",
    "Refitter",
    "Selector",
    "StepReport",
    "Target",
    "Tensor",
    "TimedOut",
    "UnsupportedState",
    "__version__",
    "backends",
    "build",
    "calibrate",
    "compare",
    "define_layer",
    "element_types",
    "load_plugin",
    "log_to",
    "memory_limit",
    "model",
    "plugin_layers",
    "read_calibration",
    "refit",
    "refused_layers",
    "set_log",
    "strip_plan",
    "undefine_layer",
]
