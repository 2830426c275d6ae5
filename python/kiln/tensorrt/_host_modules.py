"""Modules that stand in for others."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class AnyNames:
    """A table of flags or attributes, each of which is 0 to a stand-in."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> int:
        if name.startswith("_"):
            raise AttributeError(name)
        return 0

    def __repr__(self) -> str:
        return f"<{self._name} of a stand-in>"


def module(name: str, **members: Any) -> ModuleType:
    """Puts a module in place; a missing member is an error that says what stands there."""
    made = ModuleType(name, "A stand-in of kiln.tensorrt over host memory.")

    def missing(member: str) -> Any:
        raise AttributeError(f"module {name!r}, a stand-in of kiln.tensorrt over host memory, has no {member!r}")

    made.__dict__.update(members)
    made.__dict__["__path__"] = []
    made.__dict__["__getattr__"] = missing
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, made)
    return made
