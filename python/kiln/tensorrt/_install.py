"""The name `tensorrt` for this module, so that programs run unchanged."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import pathlib
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


class _Distribution(importlib.metadata.Distribution):
    """What `importlib.metadata` says of `tensorrt`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str | None:
        version = sys.modules[self._name].__version__
        return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {version}\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return pathlib.Path(__file__).parent / path


class _Finder(importlib.metadata.DistributionFinder):
    """Finds parts of `tensorrt`, which would be loaded twice otherwise, and its version."""

    def find_distributions(self, context: Any = importlib.metadata.DistributionFinder.Context()) -> Any:
        return [_Distribution(context.name)] if context.name in ALIASES else []

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

    `v8` takes the module with the interface of TensorRT 8 instead. `host_cuda` also offers `pycuda`, `cuda` (cuda-python) and
    `cupy` over host memory, for programs that copy by them on a machine without CUDA.
    """
    module = importlib.import_module(f"{_OWN}.v8" if v8 else _OWN)
    for name in ALIASES:
        sys.modules[name] = module
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    if host_cuda:
        from ._host_cuda import install_host

        install_host()
