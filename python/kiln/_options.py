"""Options of builds, and what they are made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypedDict

if TYPE_CHECKING:
    from kiln._kiln import Target

Path: TypeAlias = str | os.PathLike[str]
Dims: TypeAlias = Sequence[int]


class Range(NamedTuple):
    """The least, the usual and the greatest dimensions (or elements) of an input. `None` is taken from the nearest of the others."""

    min: tuple[int, ...] | None
    opt: tuple[int, ...] | None
    max: tuple[int, ...] | None


# One shape, or the least, the usual and the greatest.
ShapeRange: TypeAlias = Dims | Range | tuple[Dims | None, Dims | None, Dims | None]


@dataclass(frozen=True)
class Profile:
    """Shapes of dynamic inputs, and elements of shape inputs, that an engine is built for."""

    shapes: Mapping[str, ShapeRange] = field(default_factory=dict)
    values: Mapping[str, ShapeRange] = field(default_factory=dict)


@dataclass(frozen=True)
class IoSpec:
    """Type and formats of an input or output, as the caller has it in memory."""

    dtype: Any = None
    formats: Sequence[str] = ()


@dataclass(frozen=True)
class LayerTypes:
    """Types asked of layers: a name, or a pattern in which `*` stands for any characters."""

    layers: str
    precision: Any = None
    outputs: Sequence[Any] = ()


class Monitor(Protocol):
    """Follows the phases of a build. Any object with these methods is one."""

    def phase_start(self, phase: str, parent: str | None, steps: int, /) -> object: ...
    def step_complete(self, phase: str, step: int, /) -> bool | None:
        """`False` cancels the build."""
    def phase_finish(self, phase: str, /) -> object: ...


class Selector(Protocol):
    """Chooses among the algorithms of each layer; None refuses the layer in these formats. Any object with these methods is one."""

    def select(self, layer: dict[str, Any], choices: list[dict[str, Any]], /) -> Sequence[int] | None: ...
    def report(self, layers: list[Any], /) -> object: ...


Progress: TypeAlias = bool | Callable[[str, int, int], bool | None]
Batches: TypeAlias = Iterable[Mapping[str, Any]]


class OptionNames(TypedDict, total=False):
    """Options by keyword; `BuildOptions` describes them."""

    backend: str | None
    fallback: str | None
    device: int | str | None
    target: Target | None
    plugins: Sequence[Path]
    plugin_policy: str
    load_embedded: bool
    weight_budget: int | str | None
    external_weights: Sequence[Path]
    types: Sequence[Any]
    narrowing: str
    ranges: Mapping[str, tuple[float, float]]
    calibration: str | Batches | None
    calibration_algorithm: str
    layer_types: Sequence[LayerTypes]
    constraints: str
    strong_types: bool
    tf32: bool
    sparsity: str
    io: Mapping[str, IoSpec]
    io_type: Any
    direct_io: bool
    shapes: Mapping[str, ShapeRange]
    values: Mapping[str, ShapeRange]
    profiles: Sequence[Profile]
    max_batch: int | None
    optimization_level: int | None
    search: bool | None
    estimates: bool | None
    share_times: bool | None
    max_tactics: int | None
    estimate_limit: float | None
    samples: int | None
    fold: bool
    fold_limit: int
    fold_budget: int
    fuse: bool
    deterministic: bool
    excluded_tactics: Sequence[str]
    tactic_rules: Sequence[str]
    tactic_sources: Sequence[str]
    selector: Selector | None
    reject_empty: bool
    pools: Mapping[str, int]
    timing_cache: Path | bytes | None
    strict_times: bool
    locked: bool
    replay: str | None
    refit: str | Iterable[str]
    strip_weights: bool
    version_compatible: bool
    hardware_compatibility: str
    shape_buckets: int
    max_aux_streams: int
    limit: Mapping[str, int]
    portable: bool
    embed_plugins: bool
    verbosity: str
    debug_tensors: Sequence[str]
    strict: bool
    replace_by_plugins: Sequence[str]
    progress: Progress
    monitor: Monitor | None
    error_recorder: Callable[[int, str], object] | None


@dataclass(kw_only=True)
class BuildOptions:
    """Options of a build. Those that are `None` are decided by others, or by Kiln."""

    # Backend: "cuda", "wgpu", "cpu", "reference"; `None` takes the best one that has a device.
    backend: str | None = None
    # Backend that takes the whole network if the first refuses a layer.
    fallback: str | None = None
    # Device of the backend: its number, best first, or its UUID; `None` takes the best one.
    device: int | str | None = None
    # Device to build for instead of one of this machine.
    target: Target | None = None
    # Libraries of plug-ins, or folders of them, beside those of the search path.
    plugins: Sequence[Path] = ()
    # "any", "manifest" (libraries must have one), "off" (linked backends alone).
    plugin_policy: str = "any"
    # Load the libraries that a plan holds: code of its author runs in this process.
    load_embedded: bool = False
    # Bytes of weights that may be on the device at a time; others are copied to it in each run. "auto" leaves room for a context.
    weight_budget: int | str | None = None
    # Files with weights (safetensors, NPZ, ONNX) that fill a stripped plan as it is loaded.
    external_weights: Sequence[Path] = ()

    # Types that layers of f32 may run in: "f16", "bf16", "i8", "f8e4m3".
    types: Sequence[Any] = ()
    # "faster": where it is faster; "everywhere": wherever it is possible.
    narrowing: str = "faster"
    # Least and greatest value of tensors, for types of 8 bits.
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    # Calibration table, or batches of inputs to make one of. `ranges` go before it.
    calibration: str | Batches | None = None
    # How batches become ranges: "entropy", "minmax" …
    calibration_algorithm: str = "entropy"
    layer_types: Sequence[LayerTypes] = ()
    # Strictness of types that layers ask for: "none", "prefer", "obey".
    constraints: str = "none"
    strong_types: bool = False
    tf32: bool = True
    # 2:4 sparse weights: "disable", "enable", "force".
    sparsity: str = "disable"
    io: Mapping[str, IoSpec] = field(default_factory=dict)
    io_type: Any = None
    direct_io: bool = False

    # Shapes of dynamic inputs: one shape, or (min, opt, max). Dimensions that nobody sets are 1.
    shapes: Mapping[str, ShapeRange] = field(default_factory=dict)
    # Elements of shape inputs, in the same form.
    values: Mapping[str, ShapeRange] = field(default_factory=dict)
    # Further optimization profiles, behind that of `shapes` and `values`.
    profiles: Sequence[Profile] = ()
    # Greatest batch of a network with an implicit batch; kernels are chosen for it.
    max_batch: int | None = None

    # Effort of the search, 0 to 5; the usual is 3. The six options behind it change single settings of the level.
    optimization_level: int | None = None
    search: bool | None = None
    estimates: bool | None = None
    share_times: bool | None = None
    max_tactics: int | None = None
    estimate_limit: float | None = None
    samples: int | None = None
    fold: bool = True
    fold_limit: int = 1 << 30
    fold_budget: int = 1 << 34
    fuse: bool = True
    deterministic: bool = False
    excluded_tactics: Sequence[str] = ()
    # "layer=tactic" forces, "layer=!tactic" forbids.
    tactic_rules: Sequence[str] = ()
    # Libraries that tactics may come from: "cublaslt", "cudnn".
    tactic_sources: Sequence[str] = ()
    selector: Selector | None = None
    reject_empty: bool = False
    # Bytes by pool: "workspace", "tactic-dram", "tactic-shared-memory".
    pools: Mapping[str, int] = field(default_factory=dict)

    # File of times, which the build adds to, or times in memory.
    timing_cache: Path | bytes | None = None
    strict_times: bool = False
    locked: bool = False
    # Choices of another build: `Built.record`.
    replay: str | None = None

    # Weights that can be replaced: "off", "all", "identical", or names.
    refit: str | Iterable[str] = "off"
    strip_weights: bool = False
    version_compatible: bool = False
    # Other devices that run the plan: "none", or "ampere_plus" for every NVIDIA GPU from sm_80 on.
    hardware_compatibility: str = "none"
    # Shapes of each profile that kernels are chosen for: 1, 3, 5 or 9.
    shape_buckets: int = 1
    # Streams beside the main one that layers may be put into: branches run at the same time on CUDA.
    max_aux_streams: int = 0
    # The part of the device that the plan is for: "sms", and "memory" in bytes.
    limit: Mapping[str, int] = field(default_factory=dict)
    # Keep the network in the plan, so that it can be built for another device.
    portable: bool = False
    embed_plugins: bool = False
    # Layers that the plan describes: "none", "names", "detailed".
    verbosity: str = "names"
    debug_tensors: Sequence[str] = ()
    # Refuse networks whose runs need the host in between.
    strict: bool = False
    # Plug-in layers that replace what their patterns describe.
    replace_by_plugins: Sequence[str] = ()

    # `True` shows a bar; a function receives phase, steps done and steps in all, and cancels by returning `False`.
    progress: Progress = False
    monitor: Monitor | None = None
    # Receives number and text of each error, beside the exception.
    error_recorder: Callable[[int, str], object] | None = None


def options_of(options: BuildOptions | None, changes: Mapping[str, Any]) -> BuildOptions:
    """Options with changes by keyword."""
    names = [f.name for f in fields(BuildOptions)]
    for name in changes:
        if name not in names:
            raise TypeError(f"there is no option {name!r}; there are {', '.join(names)}")
    given = {} if options is None else {name: getattr(options, name) for name in names}
    return BuildOptions(**{**given, **changes})


# Options that count when a plan is loaded; all others say how it is built.
_OF_LOADS = frozenset(
    (
        "backend",
        "device",
        "plugins",
        "plugin_policy",
        "load_embedded",
        "weight_budget",
        "external_weights",
        "progress",
        "monitor",
        "error_recorder",
    )
)


def build_option(options: BuildOptions) -> str | None:
    """An option that is set and says how to build, so that a plan cannot follow it."""
    usual = BuildOptions()
    for f in fields(BuildOptions):
        if f.name not in _OF_LOADS and getattr(options, f.name) != getattr(usual, f.name):
            return f.name
    return None


def _three(name: str, given: ShapeRange) -> tuple[list[int] | None, list[int] | None, list[int] | None]:
    """Least, usual and greatest of one shape or of three."""
    items: list[Any] = list(given)
    if any(item is None or not hasattr(item, "__index__") for item in items):
        if len(items) != 3:
            raise TypeError(f"{name!r} has {len(items)} shapes; wanted one shape, or the least, the usual and the greatest")
        least, usual, greatest = (None if item is None else [int(n) for n in item] for item in items)
        return least, usual, greatest
    only = [int(n) for n in items]
    return only, only, only


def native_profile(profile: Profile) -> tuple[dict[str, Any], dict[str, Any]]:
    """A profile as the native half takes it."""
    shapes = {name: _three(name, given) for name, given in profile.shapes.items()}
    values = {name: _three(name, given) for name, given in profile.values.items()}
    return shapes, values
