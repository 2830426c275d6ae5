"""A stand-in for the library libcudart over host memory, for programs that call it by ctypes."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

from ._host_memory import allocate, copy, copy_rows, do, fill, free, handle
from ._host_pycuda import TOTAL

_CDLL = ctypes.CDLL
_TEXTS = {0: b"no error", 1: b"invalid argument"}
_events: dict[int, float] = {}


def _number(value: Any) -> int:
    return int(getattr(value, "value", value) or 0)


class _Function:
    """A function that takes what ctypes functions take, and has their attributes."""

    def __init__(self, run: Any) -> None:
        self._run, self.argtypes, self.restype = run, None, ctypes.c_int

    def __call__(self, *args: Any) -> int:
        return self._run(*args)


def _put(pointer: Any, value: float) -> int:
    target = getattr(pointer, "_obj", None)
    if target is None:
        target = pointer.contents
    target.value = value
    return 0


def _malloc(pointer: Any, size: Any, *_: Any) -> int:
    return _put(pointer, allocate(_number(size)))


def _free(address: Any, *_: Any) -> int:
    return 0 if not _number(address) or free(_number(address)) else 1


def _memcpy(target: Any, source: Any, size: Any, kind: Any = None, stream: Any = None) -> int:
    do(stream, lambda: copy(_number(target), _number(source), _number(size)))
    return 0


def _memcpy_rows(target: Any, pitch: Any, source: Any, other: Any, width: Any, rows: Any, *_: Any) -> int:
    copy_rows(*(_number(n) for n in (target, pitch, source, other, width, rows)))
    return 0


def _memset(target: Any, byte: Any, size: Any, stream: Any = None) -> int:
    do(stream, lambda: fill(_number(target), _number(byte), _number(size)))
    return 0


def _record(event: Any, stream: Any = None) -> int:
    _events[_number(event)] = time.perf_counter()
    return 0


def _elapsed(pointer: Any, start: Any, end: Any) -> int:
    return _put(pointer, (_events.get(_number(end), 0.0) - _events.get(_number(start), 0.0)) * 1e3)


def _text(code: Any) -> bytes:
    return _TEXTS.get(_number(code), b"unknown error")


def _sizes(free_bytes: Any, total: Any) -> int:
    return _put(free_bytes, TOTAL) or _put(total, TOTAL)


class HostRuntime:
    """The functions of libcudart that programs call."""

    _name = "libcudart.so"

    def __init__(self) -> None:
        done = _Function(lambda *_: 0)
        made = _Function(lambda pointer, *_: _put(pointer, handle()))
        for name in ("cudaMalloc", "cudaMallocHost", "cudaHostAlloc", "cudaMallocManaged", "cudaMallocAsync"):
            setattr(self, name, _Function(_malloc))
        for name in ("cudaFree", "cudaFreeHost", "cudaFreeAsync"):
            setattr(self, name, _Function(_free))
        for name in ("cudaMemcpy", "cudaMemcpyAsync"):
            setattr(self, name, _Function(_memcpy))
        for name in ("cudaMemset", "cudaMemsetAsync"):
            setattr(self, name, _Function(_memset))
        for name in ("cudaMemcpy2D", "cudaMemcpy2DAsync"):
            setattr(self, name, _Function(_memcpy_rows))
        for name in (
            "cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority cudaEventCreate cudaEventCreateWithFlags"
        ).split():
            setattr(self, name, made)
        for name in (
            "cudaStreamSynchronize cudaStreamDestroy cudaStreamQuery cudaStreamWaitEvent cudaDeviceSynchronize cudaSetDevice "
            "cudaGetLastError cudaPeekAtLastError cudaEventSynchronize cudaEventQuery cudaEventDestroy cudaHostRegister "
            "cudaHostUnregister cudaProfilerStart cudaProfilerStop"
        ).split():
            setattr(self, name, done)
        self.cudaEventRecord = _Function(_record)
        self.cudaEventElapsedTime = _Function(_elapsed)
        self.cudaGetErrorString = self.cudaGetErrorName = _Function(_text)
        self.cudaMemGetInfo = _Function(_sizes)
        self.cudaRuntimeGetVersion = self.cudaDriverGetVersion = _Function(lambda pointer: _put(pointer, 13000))
        self.cudaGetDeviceCount = _Function(lambda pointer: _put(pointer, 1))
        self.cudaGetDevice = _Function(lambda pointer: _put(pointer, 0))


class _Library(_CDLL):
    """ctypes.CDLL, but for libcudart."""

    def __new__(cls, name: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(name, (str, os.PathLike)) and os.path.basename(os.fspath(name)).startswith("libcudart"):
            return HostRuntime()
        return object.__new__(cls)


def install_library() -> None:
    """Lets ctypes.CDLL open the stand-in where a program asks for libcudart."""
    ctypes.CDLL = _Library  # type: ignore[misc]
    ctypes.cdll = ctypes.LibraryLoader(_Library)
