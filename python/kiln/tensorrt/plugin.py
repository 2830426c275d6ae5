"""Plug-ins that are written in Python with decorators: named, and refused where they are used."""

from __future__ import annotations

from typing import Any

from ._callbacks import _refused
from ._log import refuse

_INSTEAD = "write the layer as a Kiln plug-in (docs/tensorrt.md) and load its library by the plug-in registry"


def _refuses(name: str) -> Any:
    def use(*_: Any, **__: Any) -> Any:
        raise refuse(f"tensorrt.plugin.{name}", _INSTEAD)

    use.__name__ = name
    use.__doc__ = f"Not available in Kiln: {_INSTEAD}"
    return use


register, impl, aot_impl, autotune = map(_refuses, ("register", "impl", "aot_impl", "autotune"))
add_plugin_attributes = _refuses("add_plugin_attributes")
AutoTuneCombination = _refused("AutoTuneCombination", _INSTEAD)
KernelLaunchParams = _refused("KernelLaunchParams", _INSTEAD)
ShapeExpr = _refused("ShapeExpr", _INSTEAD)
ShapeExprs = _refused("ShapeExprs", _INSTEAD)
SymExprs = _refused("SymExprs", _INSTEAD)
SymInt32 = _refused("SymInt32", _INSTEAD)
Shape = _refused("Shape", _INSTEAD)
Tensor = _refused("Tensor", _INSTEAD)
TensorDesc = _refused("TensorDesc", _INSTEAD)
IDimensionExpr = _refused("IDimensionExpr", _INSTEAD)
op: Any = type("_Operators", (), {"__getattr__": lambda self, name: _refuses(f"op.{name}")()})()
