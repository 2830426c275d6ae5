"""The name `tensorrt` for this module, so that programs run unchanged."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

ALIASES = ("tensorrt", "tensorrt_bindings", "tensorrt_lean", "tensorrt_dispatch")
"""Names of the wheels whose interface this is."""

_PREFIXES = tuple(f"{name}." for name in ALIASES)
_OWN = "kiln.tensorrt"


class _Alias(importlib.abc.Loader):
    """Yields a module of Kiln under another name."""

    def __init__(self, target: str) -> None:
        self._target = target

    def create_module(self, spec: Any) -> ModuleType:
        return importlib.import_module(self._target)

    def exec_module(self, module: ModuleType) -> None:
        return None


class _Finder(importlib.abc.MetaPathFinder):
    """Finds parts of `tensorrt`; without it they would be loaded twice, from the same files."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        for prefix in _PREFIXES:
            if fullname.startswith(prefix):
                own = f"{_OWN}.{fullname[len(prefix) :]}"
                found = importlib.util.find_spec(own)
                if found is not None:
                    return importlib.machinery.ModuleSpec(fullname, _Alias(own), origin=found.origin)
        return None


_FINDER = _Finder()


def install(host_cuda: bool = False, v8: bool = False) -> None:
    """Makes `import tensorrt` import this module, in this process.

    `v8` takes the module with the interface of TensorRT 8 instead. `host_cuda` also offers `pycuda` and `cuda` (cuda-python) over host
    memory, for programs that copy by them on a machine without CUDA.
    """
    module = importlib.import_module(f"{_OWN}.v8" if v8 else _OWN)
    for name in ALIASES:
        sys.modules[name] = module
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    if host_cuda:
        from ._host_cuda import install_host

        install_host()
