"""The builder."""

from __future__ import annotations

import os
import time
from typing import Any

from kiln import _kiln
from kiln._options import BuildOptions

from ._calibration import calibrate, takes_device_addresses
from ._callbacks import IErrorRecorder, IProgressMonitor, IStreamWriter
from ._config import IBuilderConfig, IOptimizationProfile, build_options
from ._log import Scoped, Severity, call, check_logger, fail, log
from ._members import Ignored, Recorder, WriteOnly
from ._network import INetworkDefinition, check_waiting
from ._plugin_python import Prepared
from ._plugins import IPluginRegistry, get_plugin_registry
from ._selector import Selector
from ._strict import Strict
from ._values import IHostMemory
from .enums import BuilderFlag


def backend() -> str | None:
    """The backend that KILN_BACKEND names; None for the best one that has a device."""
    return os.environ.get("KILN_BACKEND") or None


class _Monitor:
    """A progress monitor whose exceptions are printed and end the build."""

    def __init__(self, monitor: IProgressMonitor) -> None:
        self._monitor = monitor

    def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
        call(self._monitor.phase_start, phase, parent, steps)

    def step_complete(self, phase: str, step: int) -> bool:
        return bool(call(self._monitor.step_complete, phase, step, default=False))

    def phase_finish(self, phase: str) -> None:
        call(self._monitor.phase_finish, phase)


class Builder(Strict, Scoped):
    """Builds plans of networks."""

    def __init__(self, logger: Any) -> None:
        self._logger = check_logger(logger, "Builder")
        self._recorder: IErrorRecorder | None = None

    @property
    def logger(self) -> Any:
        return self._logger

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        return INetworkDefinition(self, flags)

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig(self)

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    @property
    def platform_has_tf32(self) -> bool:
        return takes_device_addresses(backend())

    @property
    def platform_has_fast_fp16(self) -> bool:
        """True on every device: the search takes the type only where it is faster."""
        return True

    @property
    def platform_has_fast_int8(self) -> bool:
        """True on every device: the search takes the type only where it is faster."""
        return True

    @property
    def max_DLA_batch_size(self) -> int:
        return 0

    @property
    def num_DLA_cores(self) -> int:
        return 0

    error_recorder = Recorder()

    gpu_allocator = WriteOnly("the backend allocates memory of the device")

    max_threads = Ignored(1, "the backend decides on its threads", int)

    def reset(self) -> None:
        return None

    def get_plugin_registry(self) -> IPluginRegistry:
        return get_plugin_registry()

    def build_serialized_network(self, network: INetworkDefinition, config: IBuilderConfig) -> IHostMemory | None:
        _check(network, config)
        try:
            return IHostMemory(self._build(network, config).plan)
        except TypeError:
            raise
        except Exception as e:
            return fail(self, e, None)

    def build_engine_with_config(self, network: INetworkDefinition, config: IBuilderConfig) -> Any:
        from ._runtime import Runtime

        plan = self.build_serialized_network(network, config)
        if plan is None:
            return None
        runtime = Runtime(self._logger)
        runtime._recorder = self._recorder
        return runtime.deserialize_cuda_engine(plan)

    def build_serialized_network_to_stream(
        self, network: INetworkDefinition, config: IBuilderConfig, writer: IStreamWriter
    ) -> bool:
        plan = self.build_serialized_network(network, config)
        if plan is None:
            return False
        rest = memoryview(plan)
        while len(rest):
            written = call(writer.write, bytes(rest), default=0)
            if not isinstance(written, int) or not 0 < written <= len(rest):
                return fail(self, f"the stream writer took {written!r} of {len(rest)} bytes", False)
            rest = rest[written:]
        return True

    def is_network_supported(self, network: INetworkDefinition, config: IBuilderConfig) -> bool:
        _check(network, config)
        try:
            self._build(network, config, estimates=True)
        except TypeError:
            raise
        except Exception as e:
            return fail(self, e, False)
        return True

    def _build(self, network: INetworkDefinition, config: IBuilderConfig, **more: Any) -> Any:
        if not network.num_outputs:
            raise ValueError("the network has no outputs; call INetworkDefinition.mark_output")
        for layer in network._kernels.values():
            raise ValueError(f"layer {layer.name!r} has no kernel: give it weights, or a tensor by set_input(1, tensor)")
        check_waiting(network)
        prepared = Prepared(network._native, network._python)
        try:
            if prepared and takes_device_addresses(backend()):
                raise ValueError(
                    "plug-ins that are written in Python run in host memory: build for a backend of the processor or wgpu "
                    "(KILN_BACKEND), or write the layer as a Kiln plug-in with a native form for CUDA"
                )
            return self._build_model(network, config, more)
        finally:
            prepared.end()

    def _build_model(self, network: INetworkDefinition, config: IBuilderConfig, more: dict[str, Any]) -> Any:
        model = _kiln.Model.of_network(network._native)
        _check_profiles(model, config)
        options = {"backend": backend(), **build_options(config, network), **more}
        if config._monitor is not None:
            options["monitor"] = _Monitor(config._monitor)
        if config._selector is not None:
            options["selector"] = Selector(config._selector, self._logger)
        if config._calibrator is not None and config.get_flag(BuilderFlag.INT8):
            table = calibrate(self, model, config, options)
            if table is not None:
                options["calibration"] = table
        began = time.monotonic()
        built = _kiln.build_native(model, BuildOptions(**options))
        _tell(self._logger, built.report, time.monotonic() - began)
        for name, shape in built.report.assumed:
            log(self._logger, Severity.WARNING, f"input {name!r} got the shape {tuple(shape)}")
        if config._cache is not None and not config.get_flag(BuilderFlag.DISABLE_TIMING_CACHE):
            config._cache._data = built.times
        return built


def _tell(logger: Any, report: Any, seconds: float) -> None:
    """Tells a logger what a build did: a line for each pass and layer, notes, the time."""
    for name, changes in report.passes:
        if changes:
            log(logger, Severity.VERBOSE, f"pass {name}: {changes} changes")
    for step in report.steps:
        time_of = "not timed" if step.ns is None else f"{step.ns / 1000:.3f} us, of {step.candidates} tactics"
        log(logger, Severity.VERBOSE, f"layer {step.name!r} ({step.ops}): tactic {step.tactic}, {time_of}")
        if step.note:
            log(logger, Severity.INFO, f"layer {step.name!r}: {step.note}")
    for note in report.notes:
        log(logger, Severity.INFO, note)
    if report.fell_back is not None:
        log(logger, Severity.WARNING, f"the build fell back from {report.fell_back[0]}: {report.fell_back[1]}")
    device = report.target.device
    log(logger, Severity.INFO, f"Engine generation completed in {seconds:.3f} seconds, for {report.backend} ({device})")


def _check(network: Any, config: Any) -> None:
    if not isinstance(network, INetworkDefinition):
        raise TypeError(f"network: wants an INetworkDefinition, found {type(network).__name__}")
    if not isinstance(config, IBuilderConfig):
        raise TypeError(f"config: wants an IBuilderConfig, found {type(config).__name__}")


def _check_profiles(model: Any, config: IBuilderConfig) -> None:
    """Dynamic inputs need a profile, as in the original."""
    for t in model.io:
        if not t.is_input or (-1 not in t.shape and not t.is_shape_input):
            continue
        if not config._profiles:
            raise ValueError(
                f"input {t.name!r} has the shape {t.shape}: network has dynamic or shape inputs, but no optimization "
                "profile has been defined; call IBuilderConfig.add_optimization_profile"
            )
        for i, p in enumerate(config._profiles):
            known = p._values if t.is_shape_input else p._shapes
            if t.name not in known:
                method = "set_shape_input" if t.is_shape_input else "set_shape"
                raise ValueError(f"optimization profile {i} says nothing of input {t.name!r} {t.shape}; call {method}")


__all__ = ["Builder", "backend"]
