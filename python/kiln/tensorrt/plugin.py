"""Plug-ins that are written in Python with decorators: `register` describes outputs, `impl` computes them.

On backends of the processor a tensor's memory is that of the host: `numpy.asarray(tensor)` and `torch.from_dlpack(tensor)` share it.
Plug-ins of compiled kernels (`aot_impl`) are refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


from ._callbacks import _refused
from ._log import refuse
from ._plugin_quick import Definition, Shape, ShapeExpr, ShapeExprs, Tensor, TensorDesc
from ._plugins import get_plugin_registry

_INSTEAD = "compiled kernels run on CUDA by a library: write the layer as a Kiln plug-in (docs/tensorrt.md)"
_definitions: dict[str, Definition] = {}


class _Namespace:
    """The plug-ins of one namespace, or the namespaces."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self._what} has no plug-in {name!r}; register it first")


op: Any = _Namespace("tensorrt.plugin.op")


def _definition(plugin_id: str) -> Definition:
    found = _definitions.get(plugin_id)
    if found is None:
        raise ValueError(f"there is no plug-in {plugin_id!r}; register describes it first")
    return found


def register(plugin_id: str, lazy_register: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Describes a plug-in "namespace::name" by a function from descriptions of inputs, and attributes, to those of outputs."""
    space, colons, name = plugin_id.partition("::")
    if not (colons and space.isidentifier() and name.isidentifier()):
        raise ValueError(f"plug-in {plugin_id!r}: wants a namespace and a name, as in \"sample::add\"")
    if plugin_id in _definitions:
        raise ValueError(f"plug-in {plugin_id!r} is registered already")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        definition = Definition(space, name, function)
        if not get_plugin_registry().register_creator(definition.creator, space):
            raise ValueError(f"plug-in {plugin_id!r}: {space!r} has a layer {name!r} already")
        _definitions[plugin_id] = definition
        if space not in op.__dict__:
            op.__dict__[space] = _Namespace(f"namespace {space!r}")
        op.__dict__[space].__dict__[name] = definition.call
        return function

    return decorate


def impl(plugin_id: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Computes a plug-in: a function of tensors, attributes by name, outputs, stream, and tactic if it has that argument."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        definition = _definition(plugin_id)
        names = set(inspect.signature(function).parameters)
        known = set(definition.inputs) | set(definition.attributes) | {"outputs", "stream", "tactic"}
        if "outputs" not in names or names - known:
            wanted = ", ".join(sorted(known))
            raise ValueError(f"impl of {plugin_id!r} takes {', '.join(sorted(names))}; wants outputs, and may take {wanted}")
        definition.implementation = function
        return function

    return decorate


def autotune(plugin_id: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Lists the types and formats that a plug-in takes."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _definition(plugin_id).combinations = function
        return function

    return decorate


def aot_impl(plugin_id: str) -> Any:
    """Refuses compiled kernels."""
    raise refuse(f"tensorrt.plugin.aot_impl({plugin_id!r})", _INSTEAD)


class AutoTuneCombination:
    """Types of inputs and outputs, "FP32|FP16, FP32|FP16", with formats and tactics."""

    def __init__(self, io_types: str = "", layouts: str = "LINEAR", tactics: Any = ()) -> None:
        self.io_types = [set(part.strip().split("|")) for part in io_types.split(",")] if io_types else []
        parts = [set(part.strip().split("|")) for part in layouts.split(",")]
        self.layouts = parts * max(len(self.io_types), 1) if len(parts) == 1 else parts
        self.tactics = [int(t) for t in tactics]

    def pos(self, pos: Any, io_types: str = "", layouts: str = "LINEAR") -> None:
        """Sets types and formats of some positions."""
        for at in [pos] if isinstance(pos, int) else pos:
            while len(self.io_types) <= at:
                self.io_types.append(set())
                self.layouts.append({"LINEAR"})
            self.io_types[at], self.layouts[at] = set(io_types.split("|")), set(layouts.split("|"))

    def add_tactics(self, tactics: Any) -> None:
        self.tactics += [int(t) for t in tactics]


KernelLaunchParams = _refused("KernelLaunchParams", _INSTEAD)
SymExprs = _refused("SymExprs", _INSTEAD)
SymInt32 = _refused("SymInt32", _INSTEAD)

__all__ = [
    "AutoTuneCombination",
    "KernelLaunchParams",
    "Shape",
    "ShapeExpr",
    "ShapeExprs",
    "SymExprs",
    "SymInt32",
    "Tensor",
    "TensorDesc",
    "aot_impl",
    "autotune",
    "impl",
    "op",
    "register",
]
