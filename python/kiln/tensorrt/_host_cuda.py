"""Stand-ins for `pycuda`, cuda-python and libcudart over host memory, put in place on request only."""

from __future__ import annotations

import enum
import os
import sys
from types import ModuleType
from typing import Any

import numpy as np

from ._host_cudart import install_library
from ._host_memory import address_of, allocate, copy, fill, free

_TOTAL = 1 << 34


class DeviceAllocation:
    """An allocation that ends with the object."""

    def __init__(self, size: int) -> None:
        self._address, self.size = allocate(size), size

    def __int__(self) -> int:
        return self._address

    __index__ = __int__

    def free(self) -> None:
        free(self._address)

    def as_buffer(self, size: int, offset: int = 0) -> memoryview:
        import ctypes

        return memoryview((ctypes.c_ubyte * size).from_address(self._address + offset))

    def __del__(self) -> None:
        free(self._address)


class Stream:
    """A stream on which everything is done at once."""

    def __init__(self, flags: int = 0) -> None:
        self.handle = 0
        self.ptr = 0

    def synchronize(self) -> None:
        return None

    def is_done(self) -> bool:
        return True

    def wait_for_event(self, event: Any) -> None:
        return None

    def __int__(self) -> int:
        return 0


class Event:
    """A point in time."""

    def __init__(self, flags: int = 0) -> None:
        self.handle = 0
        self._at = 0.0

    def record(self, stream: Any = None) -> Event:
        import time

        self._at = time.perf_counter()
        return self

    def synchronize(self) -> Event:
        return self

    def query(self) -> bool:
        return True

    def time_since(self, event: Event) -> float:
        return (self._at - event._at) * 1e3

    def time_till(self, event: Event) -> float:
        return (event._at - self._at) * 1e3


class Context:
    """A context that does nothing."""

    def push(self) -> None:
        return None

    @staticmethod
    def pop() -> None:
        return None

    def detach(self) -> None:
        return None

    @staticmethod
    def synchronize() -> None:
        return None

    @staticmethod
    def get_device() -> Device:
        return Device(0)


class Device:
    """The host."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    @staticmethod
    def count() -> int:
        return 1

    def make_context(self, flags: int = 0) -> Context:
        return Context()

    retain_primary_context = make_context

    def name(self) -> str:
        return "host"

    def compute_capability(self) -> tuple[int, int]:
        return (0, 0)

    def total_memory(self) -> int:
        return _TOTAL


def _pagelocked_empty(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> np.ndarray:
    return np.empty(shape, dtype=dtype, order=order)


def _htod(dest: Any, src: Any, stream: Any = None) -> None:
    array = np.ascontiguousarray(src)
    copy(address_of(dest), array.ctypes.data, array.nbytes)


def _dtoh(dest: Any, src: Any, stream: Any = None) -> None:
    view = np.asarray(dest)
    if not view.flags.c_contiguous:
        raise ValueError("the array to copy to must be contiguous")
    copy(view.ctypes.data, address_of(src), view.nbytes)


def _dtod(dest: Any, src: Any, size: int, stream: Any = None) -> None:
    copy(address_of(dest), address_of(src), size)


def _to_device(array: Any) -> DeviceAllocation:
    made = DeviceAllocation(max(np.asarray(array).nbytes, 1))
    _htod(made, array)
    return made


def _module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name, "A stand-in of kiln.tensorrt over host memory.")
    made.__dict__.update(members)
    made.__dict__["__path__"] = []
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, made)
    return made


def _pycuda() -> None:
    _module("pycuda", VERSION=(2024, 1), VERSION_TEXT="2024.1")
    _module(
        "pycuda.driver",
        mem_alloc=DeviceAllocation,
        to_device=_to_device,
        pagelocked_empty=_pagelocked_empty,
        pagelocked_zeros=lambda shape, dtype, order="C", mem_flags=0: np.zeros(shape, dtype=dtype, order=order),
        pagelocked_empty_like=lambda array, mem_flags=0: np.empty_like(array),
        register_host_memory=lambda array, flags=0: array,
        memcpy_htod=_htod,
        memcpy_htod_async=_htod,
        memcpy_dtoh=_dtoh,
        memcpy_dtoh_async=_dtoh,
        memcpy_dtod=_dtod,
        memcpy_dtod_async=_dtod,
        memset_d8=lambda dest, byte, count: fill(address_of(dest), byte, count),
        memset_d8_async=lambda dest, byte, count, stream=None: fill(address_of(dest), byte, count),
        mem_get_info=lambda: (_TOTAL, _TOTAL),
        init=lambda flags=0: None,
        Stream=Stream,
        Event=Event,
        Device=Device,
        Context=Context,
        DeviceAllocation=DeviceAllocation,
        host_alloc_flags=type("host_alloc_flags", (), {"DEVICEMAP": 0, "PORTABLE": 1, "WRITECOMBINED": 4}),
        LogicError=type("LogicError", (RuntimeError,), {}),
        Error=RuntimeError,
    )
    _module("pycuda.autoinit", device=Device(0), context=Context())
    _module("pycuda.autoprimaryctx", device=Device(0), context=Context())
    _module("pycuda.tools", make_default_context=Context, clear_context_caches=lambda: None)


class cudaError_t(enum.IntEnum):
    """Results of calls."""

    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2


class cudaMemcpyKind(enum.IntEnum):
    """Directions of copies."""

    cudaMemcpyHostToHost = 0
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3
    cudaMemcpyDefault = 4


class _Properties:
    name = b"host"
    major = minor = 0
    totalGlobalMem = _TOTAL
    multiProcessorCount = 1


_OK = cudaError_t.cudaSuccess


def _malloc(size: int, *_: Any) -> tuple[Any, ...]:
    return _OK, allocate(size)


def _free(address: Any, *_: Any) -> tuple[Any, ...]:
    return (_OK if not address or free(address_of(address)) else cudaError_t.cudaErrorInvalidValue,)


def _memcpy(dst: Any, src: Any, count: int, kind: Any = None, stream: Any = None) -> tuple[Any, ...]:
    copy(address_of(dst), address_of(src), count)
    return (_OK,)


def _memset(dst: Any, value: int, count: int, *_: Any) -> tuple[Any, ...]:
    fill(address_of(dst), value, count)
    return (_OK,)


def _done(*_: Any) -> tuple[Any, ...]:
    return (_OK,)


def _value(value: Any) -> Any:
    return lambda *_: (_OK, value)


def _cuda_python() -> None:
    runtime = {
        "cudaError_t": cudaError_t,
        "cudaMemcpyKind": cudaMemcpyKind,
        "cudaMalloc": _malloc,
        "cudaMallocHost": _malloc,
        "cudaHostAlloc": _malloc,
        "cudaMallocManaged": _malloc,
        "cudaMallocAsync": _malloc,
        "cudaFree": _free,
        "cudaFreeHost": _free,
        "cudaFreeAsync": _free,
        "cudaMemcpy": _memcpy,
        "cudaMemcpyAsync": _memcpy,
        "cudaMemset": _memset,
        "cudaMemsetAsync": _memset,
        "cudaStreamCreate": _value(1),
        "cudaStreamCreateWithFlags": _value(1),
        "cudaStreamDestroy": _done,
        "cudaStreamSynchronize": _done,
        "cudaDeviceSynchronize": _done,
        "cudaEventCreate": _value(0),
        "cudaEventDestroy": _done,
        "cudaEventRecord": _done,
        "cudaEventSynchronize": _done,
        "cudaSetDevice": _done,
        "cudaGetDevice": _value(0),
        "cudaGetDeviceCount": _value(1),
        "cudaGetDeviceProperties": _value(_Properties()),
        "cudaMemGetInfo": lambda *_: (_OK, _TOTAL, _TOTAL),
        "cudaGetLastError": _done,
        "cudaGetErrorName": lambda error: (_OK, cudaError_t(error).name.encode()),
        "cudaGetErrorString": lambda error: (_OK, cudaError_t(error).name.encode()),
        "cudaHostAllocDefault": 0,
        "cudaStreamNonBlocking": 1,
    }

    class CUresult(enum.IntEnum):
        CUDA_SUCCESS = 0
        CUDA_ERROR_INVALID_VALUE = 1

    driver = {
        "CUresult": CUresult,
        "cuInit": lambda flags=0: (CUresult.CUDA_SUCCESS,),
        "cuDeviceGet": lambda number=0: (CUresult.CUDA_SUCCESS, number),
        "cuDeviceGetCount": lambda: (CUresult.CUDA_SUCCESS, 1),
        "cuGetErrorName": lambda error: (CUresult.CUDA_SUCCESS, CUresult(error).name.encode()),
    }
    _module("cuda", __version__="13.0.0")
    _module("cuda.bindings", __version__="13.0.0")
    for name, members in (("runtime", runtime), ("driver", driver)):
        _module(f"cuda.bindings.{name}", **members)
    _module("cuda.cudart", **runtime)
    _module("cuda.cuda", **driver)


def install_host() -> None:
    """Puts the stand-ins in place of `pycuda`, `cuda` and libcudart."""
    # Memory of the host is of no use to a GPU.
    os.environ.setdefault("KILN_BACKEND", "cpu")
    _pycuda()
    _cuda_python()
    install_library()
