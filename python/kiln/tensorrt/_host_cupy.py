"""A stand-in for `cupy` over host memory: arrays of numpy's functions that have an address."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

from ._host_memory import allocate, copy, free, handle
from ._host_modules import module
from ._host_pycuda import TOTAL, Event


class MemoryPointer:
    """An address within an allocation."""

    def __init__(self, owner: Any, address: int) -> None:
        self.mem, self.ptr = owner, address

    def __int__(self) -> int:
        return self.ptr


class Allocation:
    """An allocation that ends with the object."""

    def __init__(self, size: int) -> None:
        self.size, self.ptr = size, allocate(size)

    def __del__(self) -> None:
        free(self.ptr)


class ndarray(np.ndarray):
    """An array with the members of cupy's, in memory at a multiple of 256."""

    def __new__(cls, shape: Any, dtype: Any = float, memptr: Any = None, order: str = "C", **_: Any) -> ndarray:
        if memptr is not None:
            kind = np.dtype(dtype)
            size = int(np.prod(shape)) * kind.itemsize
            import ctypes

            memory = np.frombuffer((ctypes.c_ubyte * size).from_address(int(memptr)), dtype=kind)
            made = memory.reshape(shape).view(cls)
            made._owner = memptr
            return made
        return _own(np.empty(shape, dtype, order))

    def __array_finalize__(self, other: Any) -> None:
        self._owner = getattr(other, "_owner", None)

    @property
    def data(self) -> MemoryPointer:  # type: ignore[override]
        return MemoryPointer(self, self.ctypes.data)

    @property
    def device(self) -> Any:
        return Device(0)

    def get(self, stream: Any = None, order: str = "C", out: Any = None) -> np.ndarray:
        plain = np.array(self.view(np.ndarray), order=order)
        if out is None:
            return plain
        np.copyto(out, plain)
        return out

    def set(self, array: Any, stream: Any = None) -> None:
        np.copyto(self.view(np.ndarray), array)


def _own(array: Any) -> ndarray:
    """A copy in memory at a multiple of 256, which numpy's own may not be."""
    plain = np.asarray(array)
    memory = Allocation(max(plain.nbytes, 1))
    dense = np.ascontiguousarray(plain)
    copy(memory.ptr, dense.ctypes.data, dense.nbytes)
    return ndarray(plain.shape, plain.dtype, MemoryPointer(memory, memory.ptr))


class Stream:
    """A stream on which everything is done at once."""

    null: Any = None

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self.ptr = 0 if null else int(handle())

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def use(self) -> Stream:
        return self

    def synchronize(self) -> None:
        return None

    def record(self, event: Any = None) -> Any:
        return (event or Event()).record(self)


Stream.null = Stream(null=True)


class Device:
    """The host."""

    def __init__(self, device: int = 0) -> None:
        self.id = int(device)
        self.compute_capability = "00"
        self.mem_info = (TOTAL, TOTAL)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def use(self) -> None:
        return None

    def synchronize(self) -> None:
        return None


def _wrapped(function: Any) -> Any:
    def call(*args: Any, **keywords: Any) -> Any:
        found = function(*args, **keywords)
        return _own(found) if isinstance(found, (np.ndarray, np.generic)) else found

    return call


def _member(name: str) -> Any:
    found = getattr(np, name, None)
    if found is None:
        raise AttributeError(f"module 'cupy', a stand-in of kiln.tensorrt over host memory, has no {name!r}")
    return found if isinstance(found, (type, ModuleType)) or not callable(found) else _wrapped(found)


def _asnumpy(array: Any, stream: Any = None, order: str = "C", out: Any = None) -> np.ndarray:
    return array.get(stream, order, out) if isinstance(array, ndarray) else np.asarray(array)


def install() -> None:
    """Puts the stand-in in place of `cupy`."""
    made = module("cupy", __version__="13.0.0", ndarray=ndarray, asnumpy=_asnumpy, get_array_module=_array_module)
    for name in ("asarray", "array", "ascontiguousarray", "from_dlpack"):
        setattr(made, name, _wrapped(getattr(np, name)))
    made.__dict__["__getattr__"] = _member
    module(
        "cupy.cuda", Stream=Stream, Device=Device, Event=Event, MemoryPointer=MemoryPointer,
        alloc=lambda size: _pointer(size), get_current_stream=lambda: Stream.null,
    )
    module("cupy.cuda.runtime", deviceSynchronize=lambda: None, getDeviceCount=lambda: 1, getDevice=lambda: 0, setDevice=lambda n: None)


def _pointer(size: int) -> MemoryPointer:
    memory = Allocation(size)
    return MemoryPointer(memory, memory.ptr)


def _array_module(*arrays: Any) -> Any:
    return sys.modules["cupy"] if any(isinstance(a, ndarray) for a in arrays) else np
