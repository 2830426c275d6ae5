"""Settings of a build and optimization profiles."""

from __future__ import annotations

import operator
import os
from typing import Any

from kiln._options import IoSpec, Profile, Range

from . import _routes
from . import enums as e
from ._callbacks import IProgressMonitor, _Calibrator
from ._log import Scoped, fail, no_effect, refuse
from ._members import Ignored
from ._selector import IAlgorithmSelector
from ._strict import Strict
from ._timing import ITimingCache
from ._values import Dims, dims
from .enums import BuilderFlag, MemoryPoolType

_NO_EFFECT_FLAGS = {
    "DEBUG": "runs report their errors where they happen",
    "GPU_FALLBACK": "there is no DLA to fall back from",
    "DIRECT_IO": "formats of inputs and outputs are kept in any case",
    "EXCLUDE_LEAN_RUNTIME": "plans hold no runtime",
    "DISABLE_COMPILATION_CACHE": "compiled kernels are part of the plan",
    "WEIGHT_STREAMING": "every engine of a GPU can stream its weights",
    "INT4": "four-bit weights come from quantize layers",
    "FP4": "there are no four-bit floats",
    "STRICT_NANS": "kernels keep NaN",
    "MONITOR_MEMORY": "the build report has the memory",
    "DISTRIBUTIVE_INDEPENDENCE": "kernels are chosen by shape alone",
    "REQUIRE_USER_ALLOCATION": "contexts allocate their memory themselves",
}

_TYPES = {"FP16": "f16", "BF16": "bf16", "INT8": "i8", "FP8": "f8e4m3"}
_POOLS = {
    MemoryPoolType.WORKSPACE: "workspace",
    MemoryPoolType.TACTIC_DRAM: "tactic-dram",
    MemoryPoolType.TACTIC_SHARED_MEMORY: "tactic-shared-memory",
}
# Plans run on all devices of their architecture anyway.
_COMPATIBILITY = {"NONE": "none", "SAME_COMPUTE_CAPABILITY": "none", "AMPERE_PLUS": "ampere_plus"}
_VERBOSITY = {"LAYER_NAMES_ONLY": "names", "NONE": "none", "DETAILED": "detailed"}


class IOptimizationProfile(Strict):
    """The least, the usual and the greatest shapes of inputs."""

    def __init__(self) -> None:
        self._shapes: dict[str, Range] = {}
        self._values: dict[str, Range] = {}
        self._extra = 1.0

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        given = [tuple(dims(d)) for d in (min, opt, max)]
        _in_order("set_shape", input, given)
        if any(n < 0 for d in given for n in d):
            raise RuntimeError(f"set_shape({input!r}): dimensions of a profile are 0 or more, found {given}")
        self._shapes[input] = Range(*given)

    def get_shape(self, input: str) -> list[Dims]:
        found = self._shapes.get(input)
        return [] if found is None else [Dims(d) for d in found]

    def set_shape_input(self, input: str, min: Any, opt: Any, max: Any) -> None:
        given = [tuple(dims(d)) for d in (min, opt, max)]
        _in_order("set_shape_input", input, given)
        self._values[input] = Range(*given)

    def get_shape_input(self, input: str) -> list[list[int]]:
        found = self._values.get(input)
        return [] if found is None else [list(d) for d in found]

    @property
    def extra_memory_target(self) -> float:
        return self._extra

    @extra_memory_target.setter
    def extra_memory_target(self, value: float) -> None:
        no_effect(self, "IOptimizationProfile.extra_memory_target", "memory is planned for the profile's bounds")
        self._extra = float(value)

    def __bool__(self) -> bool:
        return bool(self._shapes or self._values)

    def _native(self) -> Profile:
        return Profile(shapes=dict(self._shapes), values=dict(self._values))


def _in_order(what: str, name: str, given: list[tuple[int, ...]]) -> None:
    low, usual, high = given
    if not len(low) == len(usual) == len(high):
        raise RuntimeError(f"{what}({name!r}): min, opt and max differ in length: {low}, {usual}, {high}")
    if any(not a <= b <= c for a, b, c in zip(low, usual, high)):
        raise RuntimeError(f"{what}({name!r}): wants min <= opt <= max, found {low}, {usual}, {high}")


class IBuilderConfig(Strict, Scoped):
    """Settings of a build."""

    def __init__(self, builder: Any = None) -> None:
        self._builder = builder
        self.reset()

    def reset(self) -> None:
        """Sets everything as it is at first."""
        self._flags = 1 << BuilderFlag.TF32
        self._pools: dict[MemoryPoolType, int] = {}
        self._profiles: list[IOptimizationProfile] = []
        self._calibrator: Any = None
        self._calibration_profile: IOptimizationProfile | None = None
        self._cache: ITimingCache | None = None
        self._monitor: IProgressMonitor | None = None
        self._selector: IAlgorithmSelector | None = None
        self._level: int | None = None
        self._samples: int | None = None
        self._tactics: int | None = None
        self._verbosity = e.ProfilingVerbosity.LAYER_NAMES_ONLY
        self._sources: int = (1 << 5) - 1
        self._preview: set[Any] = set()
        self._quantization = 0
        self._compatibility = e.HardwareCompatibilityLevel.NONE
        self._streams = 0
        self._plugins: list[str] = []
        self._route = ""
        for key in [k for k in self.__dict__ if k.startswith("_ignored_")]:
            del self.__dict__[key]

    @property
    def _logger(self) -> Any:
        return getattr(self._builder, "_logger", None)

    # Flags.

    @property
    def flags(self) -> int:
        return self._flags

    @flags.setter
    def flags(self, flags: int) -> None:
        for flag in BuilderFlag:
            if flags >> int(flag) & 1:
                self._check_flag(flag)
        self._flags = int(flags)

    def _check_flag(self, flag: BuilderFlag) -> None:
        if flag == BuilderFlag.SAFETY_SCOPE:
            raise refuse("BuilderFlag.SAFETY_SCOPE", "there is no safety runtime")
        if flag.name in _NO_EFFECT_FLAGS:
            no_effect(self, f"BuilderFlag.{flag.name}", _NO_EFFECT_FLAGS[flag.name])

    def set_flag(self, flag: BuilderFlag) -> None:
        self._check_flag(_flag(flag))
        self._flags |= 1 << int(flag)

    def clear_flag(self, flag: BuilderFlag) -> None:
        self._flags &= ~(1 << int(_flag(flag)))

    def get_flag(self, flag: BuilderFlag) -> bool:
        return bool(self._flags >> int(_flag(flag)) & 1)

    # Memory and effort.

    def set_memory_pool_limit(self, pool: MemoryPoolType, pool_size: int) -> None:
        if not isinstance(pool, MemoryPoolType):
            raise TypeError(f"pool: wants a tensorrt.MemoryPoolType, found {pool!r}")
        if pool not in _POOLS:
            no_effect(self, f"MemoryPoolType.{pool.name}", "there is no DLA")
        self._pools[pool] = operator.index(pool_size)

    def get_memory_pool_limit(self, pool: MemoryPoolType) -> int:
        """The limit; where none is set, the memory of the machine."""
        default = _memory() if pool in (MemoryPoolType.WORKSPACE, MemoryPoolType.TACTIC_DRAM) else 0
        return self._pools.get(MemoryPoolType(pool), default)

    @property
    def builder_optimization_level(self) -> int:
        return 3 if self._level is None else self._level

    @builder_optimization_level.setter
    def builder_optimization_level(self, level: int) -> None:
        if not 0 <= int(level) <= 5:
            fail(self._builder, f"builder_optimization_level is 0 to 5, found {level}", None)
            return
        self._level = int(level)

    @property
    def max_aux_streams(self) -> int:
        return self._streams

    @max_aux_streams.setter
    def max_aux_streams(self, count: int) -> None:
        if int(count) < 0:
            fail(self._builder, f"max_aux_streams is 0 or more, found {count}", None)
            return
        self._streams = int(count)

    @property
    def avg_timing_iterations(self) -> int:
        return 1 if self._samples is None else self._samples

    @avg_timing_iterations.setter
    def avg_timing_iterations(self, count: int) -> None:
        self._samples = int(count)

    @property
    def max_num_tactics(self) -> int:
        return -1 if self._tactics is None else self._tactics

    @max_num_tactics.setter
    def max_num_tactics(self, count: int) -> None:
        self._tactics = int(count) if int(count) > 0 else None

    # Profiles and calibration.

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        if not isinstance(profile, IOptimizationProfile):
            raise TypeError(f"profile: wants an IOptimizationProfile, found {type(profile).__name__}")
        self._profiles.append(profile)
        return len(self._profiles) - 1

    @property
    def num_optimization_profiles(self) -> int:
        return len(self._profiles)

    @property
    def int8_calibrator(self) -> Any:
        return self._calibrator

    @int8_calibrator.setter
    def int8_calibrator(self, calibrator: Any) -> None:
        if calibrator is not None and not isinstance(calibrator, _Calibrator):
            raise TypeError(f"int8_calibrator: wants a subclass of IInt8Calibrator, found {type(calibrator).__name__}")
        self._calibrator = calibrator

    def set_calibration_profile(self, profile: IOptimizationProfile) -> bool:
        self._calibration_profile = profile
        return True

    def get_calibration_profile(self) -> IOptimizationProfile | None:
        return self._calibration_profile

    # The timing cache, followers of the build, descriptions.

    def create_timing_cache(self, serialized_timing_cache: Any) -> ITimingCache | None:
        try:
            return ITimingCache(bytes(serialized_timing_cache or b""), self._builder)
        except TypeError:
            raise
        except Exception as error:
            return fail(self._builder, error, None)

    def set_timing_cache(self, cache: ITimingCache | None, ignore_mismatch: bool = False) -> bool:
        if cache is not None and not isinstance(cache, ITimingCache):
            raise TypeError(f"cache: wants an ITimingCache, found {type(cache).__name__}")
        self._cache = cache
        return True

    def get_timing_cache(self) -> ITimingCache | None:
        return self._cache

    @property
    def algorithm_selector(self) -> IAlgorithmSelector | None:
        return self._selector

    @algorithm_selector.setter
    def algorithm_selector(self, selector: IAlgorithmSelector | None) -> None:
        if selector is not None and not hasattr(selector, "select_algorithms"):
            raise TypeError(f"algorithm_selector: wants an IAlgorithmSelector, found {type(selector).__name__}")
        self._selector = selector

    @property
    def progress_monitor(self) -> IProgressMonitor | None:
        return self._monitor

    @progress_monitor.setter
    def progress_monitor(self, monitor: IProgressMonitor | None) -> None:
        if monitor is not None and not isinstance(monitor, IProgressMonitor):
            raise TypeError(f"progress_monitor: wants an IProgressMonitor, found {type(monitor).__name__}")
        self._monitor = monitor

    @property
    def profiling_verbosity(self) -> Any:
        return self._verbosity

    @profiling_verbosity.setter
    def profiling_verbosity(self, verbosity: Any) -> None:
        self._verbosity = e.ProfilingVerbosity(verbosity)

    @property
    def plugins_to_serialize(self) -> list[str]:
        return list(self._plugins)

    @plugins_to_serialize.setter
    def plugins_to_serialize(self, paths: list[str]) -> None:
        self._plugins = [str(p) for p in paths]

    # What is accepted without effect.

    def set_tactic_sources(self, tactic_sources: int) -> bool:
        no_effect(self, "IBuilderConfig.set_tactic_sources", "tactics come from the backend's own kernels")
        self._sources = int(tactic_sources)
        return True

    def get_tactic_sources(self) -> int:
        return self._sources

    def set_preview_feature(self, feature: Any, enable: bool) -> None:
        no_effect(self, f"PreviewFeature.{e.PreviewFeature(feature).name}", "Kiln has no preview features")
        (self._preview.add if enable else self._preview.discard)(feature)

    def get_preview_feature(self, feature: Any) -> bool:
        return feature in self._preview

    quantization_flags = Ignored(0, "calibration runs on the network as written")

    def set_quantization_flag(self, flag: Any) -> None:
        self.quantization_flags = self.quantization_flags | 1 << int(flag)

    def clear_quantization_flag(self, flag: Any) -> None:
        self.quantization_flags = self.quantization_flags & ~(1 << int(flag))

    def get_quantization_flag(self, flag: Any) -> bool:
        return bool(self.quantization_flags >> int(flag) & 1)

    @property
    def hardware_compatibility_level(self) -> Any:
        return self._compatibility

    @hardware_compatibility_level.setter
    def hardware_compatibility_level(self, level: Any) -> None:
        self._compatibility = e.HardwareCompatibilityLevel(level)

    runtime_platform = Ignored(e.RuntimePlatform.SAME_AS_BUILD, "plans do not depend on the operating system")
    profile_stream = Ignored(0, "tactics are timed on a stream of the backend")
    l2_limit_for_tiling = Ignored(0, "tiles are chosen by time")
    tiling_optimization_level = Ignored(e.TilingOptimizationLevel.NONE, "tiles are chosen by time")
    remote_auto_tuning_config = Ignored("", "tactics are timed on this machine")

    # Settings of the build by name.

    @property
    def build_route(self) -> str:
        return self._route

    @build_route.setter
    def build_route(self, route: str) -> None:
        try:
            _routes.read(str(route))
        except ValueError as error:
            fail(self._builder, error, None)
            return
        self._route = str(route)

    @property
    def all_build_routes(self) -> list[str]:
        return _routes.everything()

    # What is refused.

    @property
    def engine_capability(self) -> Any:
        return e.EngineCapability.STANDARD

    @engine_capability.setter
    def engine_capability(self, capability: Any) -> None:
        if e.EngineCapability(capability) != e.EngineCapability.STANDARD:
            raise refuse(f"EngineCapability.{e.EngineCapability(capability).name}", "use EngineCapability.STANDARD")

    @property
    def default_device_type(self) -> Any:
        return e.DeviceType.GPU

    @default_device_type.setter
    def default_device_type(self, device: Any) -> None:
        _no_dla(device)

    @property
    def DLA_core(self) -> int:
        return -1

    @DLA_core.setter
    def DLA_core(self, core: int) -> None:
        if int(core) >= 0:
            raise refuse("IBuilderConfig.DLA_core", "there is no DLA; num_DLA_cores is 0")

    def set_device_type(self, layer: Any, device_type: Any) -> None:
        _no_dla(device_type)

    def get_device_type(self, layer: Any) -> Any:
        return e.DeviceType.GPU

    def is_device_type_set(self, layer: Any) -> bool:
        return False

    def reset_device_type(self, layer: Any) -> None:
        return None

    def can_run_on_DLA(self, layer: Any) -> bool:
        return False


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _no_dla(device: Any) -> None:
    if e.DeviceType(device) == e.DeviceType.DLA:
        raise refuse("DeviceType.DLA", "there is no DLA; num_DLA_cores is 0")


def _flag(flag: Any) -> BuilderFlag:
    if not isinstance(flag, BuilderFlag):
        raise TypeError(f"flag: wants a tensorrt.BuilderFlag, found {flag!r}")
    return flag


def build_options(config: IBuilderConfig, network: Any) -> dict[str, Any]:
    """The options of Kiln's build for a configuration."""

    def on(name: str) -> bool:
        return config.get_flag(BuilderFlag[name])

    refit: Any = "all" if on("REFIT") else "identical" if on("REFIT_IDENTICAL") else "off"
    if on("REFIT_INDIVIDUAL"):
        refit = list(network._refittable)
    options: dict[str, Any] = {
        "types": [kiln for name, kiln in _TYPES.items() if on(name)],
        "constraints": "obey" if on("OBEY_PRECISION_CONSTRAINTS") else "prefer" if on("PREFER_PRECISION_CONSTRAINTS") else "none",
        "tf32": on("TF32"),
        "sparsity": "enable" if on("SPARSE_WEIGHTS") else "disable",
        "refit": refit,
        "strip_weights": on("STRIP_PLAN"),
        "version_compatible": on("VERSION_COMPATIBLE"),
        "hardware_compatibility": _COMPATIBILITY[config._compatibility.name],
        "max_aux_streams": config._streams,
        "locked": on("ERROR_ON_TIMING_CACHE_MISS"),
        "reject_empty": on("REJECT_EMPTY_ALGORITHMS"),
        "pools": {_POOLS[pool]: size for pool, size in config._pools.items() if pool in _POOLS},
        "profiles": [p._native() for p in config._profiles],
        "verbosity": _VERBOSITY[config._verbosity.name],
        "embed_plugins": bool(config._plugins),
        "io": {t.name: IoSpec(dtype=kind) for t, kind in network._boundary_types.items()},
        "strong_types": network.get_flag(e.NetworkDefinitionCreationFlag.STRONGLY_TYPED),
    }
    if on("DISABLE_TIMING_CACHE"):
        options["share_times"] = False
    elif config._cache is not None and config._cache._data:
        options["timing_cache"] = config._cache._data
    given = {"optimization_level": config._level, "samples": config._samples, "max_tactics": config._tactics}
    options.update((name, value) for name, value in given.items() if value is not None)
    _routes.apply(config._route, options)
    return options


__all__ = ["IBuilderConfig", "IOptimizationProfile", "build_options"]
