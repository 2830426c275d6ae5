"""A stand-in for `pycuda` over host memory: the driver, arrays on a device, contexts."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ._host_memory import address_of, allocate, copy, do, fill, free, handle
from ._host_modules import AnyNames, module

TOTAL = 1 << 34
VERSION = (2024, 1)


class PointerHolderBase:
    """Objects of a program that stand for an address."""

    def get_pointer(self) -> int:
        raise NotImplementedError

    def __int__(self) -> int:
        return int(self.get_pointer())

    __index__ = __int__


class DeviceAllocation:
    """An allocation that ends with the object."""

    def __init__(self, size: int) -> None:
        self._address, self.size = allocate(size), size

    def __int__(self) -> int:
        return self._address

    __index__ = __int__

    def __add__(self, offset: int) -> int:
        return self._address + int(offset)

    def free(self) -> None:
        free(self._address)

    def as_buffer(self, size: int, offset: int = 0) -> memoryview:
        import ctypes

        return memoryview((ctypes.c_ubyte * size).from_address(self._address + offset))

    def __del__(self) -> None:
        free(self._address)


class HostAllocation:
    """Memory of the host that a device reaches; the base of arrays in it."""

    def __init__(self, shape: Any, dtype: Any, order: str) -> None:
        kind = np.dtype(dtype)
        count = int(np.prod(shape))
        self._memory = DeviceAllocation(max(count * kind.itemsize, 1))
        flat = np.frombuffer(self._memory.as_buffer(count * kind.itemsize), dtype=kind)
        self.__array_interface__ = flat.reshape(shape, order=order).__array_interface__

    def get_device_pointer(self) -> int:
        return int(self._memory)


class Stream:
    """A stream on which everything is done at once."""

    def __init__(self, flags: int = 0) -> None:
        self.handle = self.ptr = int(handle())

    def synchronize(self) -> None:
        return None

    def is_done(self) -> bool:
        return True

    def wait_for_event(self, event: Any) -> None:
        return None

    def __int__(self) -> int:
        return self.handle


class Event:
    """A point in time."""

    def __init__(self, flags: int = 0) -> None:
        self.handle = int(handle())
        self._at = 0.0

    def record(self, stream: Any = None) -> Event:
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
    def attach(flags: int = 0) -> Context:
        return Context()

    @staticmethod
    def pop() -> None:
        return None

    @staticmethod
    def get_current() -> Context:
        return Context()

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

    def pci_bus_id(self) -> str:
        return "0000:00:00.0"

    def compute_capability(self) -> tuple[int, int]:
        return (0, 0)

    def total_memory(self) -> int:
        return TOTAL

    def get_attribute(self, attribute: Any) -> int:
        return 0

    def get_attributes(self) -> dict[Any, int]:
        return {}


def _pagelocked(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> np.ndarray:
    return np.asarray(HostAllocation(shape, dtype, order))


def _pagelocked_zeros(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> np.ndarray:
    made = _pagelocked(shape, dtype, order)
    made.fill(0)
    return made


def _htod(dest: Any, src: Any, stream: Any = None) -> None:
    array = np.ascontiguousarray(src) if not isinstance(src, (bytes, bytearray, memoryview)) else np.frombuffer(src, np.uint8)
    do(stream, lambda: copy(address_of(dest), array.ctypes.data, array.nbytes))


def _dtoh(dest: Any, src: Any, stream: Any = None) -> None:
    view = np.asarray(dest)
    if not view.flags.c_contiguous:
        raise ValueError("the array to copy to must be contiguous")
    do(stream, lambda: copy(view.ctypes.data, address_of(src), view.nbytes))


def _dtod(dest: Any, src: Any, size: int, stream: Any = None) -> None:
    do(stream, lambda: copy(address_of(dest), address_of(src), size))


def _memset(width: int) -> Any:
    def run(dest: Any, value: int, count: int, stream: Any = None) -> None:
        pattern = np.full(int(count), value, dtype=f"u{width}")
        do(stream, lambda: copy(address_of(dest), pattern.ctypes.data, pattern.nbytes))

    return run


def _to_device(array: Any) -> DeviceAllocation:
    made = DeviceAllocation(max(np.asarray(array).nbytes, 1))
    _htod(made, array)
    return made


def _from_device(ptr: Any, shape: Any, dtype: Any, order: str = "C") -> np.ndarray:
    made = np.empty(shape, dtype=dtype, order=order)
    copy(made.ctypes.data, address_of(ptr), made.nbytes)
    return made


class GPUArray:
    """An array in an allocation of the stand-in."""

    def __init__(self, shape: Any, dtype: Any, allocator: Any = None, gpudata: Any = None, **_: Any) -> None:
        self.shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self.size = int(np.prod(self.shape))
        self.nbytes = self.mem_size = self.size * self.dtype.itemsize
        self.gpudata = gpudata if gpudata is not None else (allocator or DeviceAllocation)(max(self.nbytes, 1))

    @property
    def ptr(self) -> int:
        return int(self.gpudata)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def get(self, ary: Any = None, async_: bool = False, stream: Any = None) -> np.ndarray:
        target = np.empty(self.shape, self.dtype) if ary is None else ary
        _dtoh(target, self.gpudata, stream)
        return target

    def get_async(self, stream: Any = None, ary: Any = None) -> np.ndarray:
        return self.get(ary, stream=stream)

    def set(self, ary: Any, async_: bool = False, stream: Any = None) -> None:
        if np.asarray(ary).nbytes != self.nbytes:
            raise ValueError(f"an array of {np.asarray(ary).nbytes} bytes does not fill one of {self.nbytes}")
        _htod(self.gpudata, ary, stream)

    def set_async(self, ary: Any, stream: Any = None) -> None:
        self.set(ary, stream=stream)

    def fill(self, value: Any, stream: Any = None) -> GPUArray:
        self.set(np.full(self.shape, value, self.dtype), stream=stream)
        return self

    def reshape(self, *shape: Any) -> GPUArray:
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return GPUArray(np.empty(self.shape, np.bool_).reshape(wanted).shape, self.dtype, gpudata=self.gpudata)

    def ravel(self) -> GPUArray:
        return self.reshape(self.size)

    def copy(self) -> GPUArray:
        return _to_gpu(self.get())


def _to_gpu(array: Any, allocator: Any = None) -> GPUArray:
    source = np.asarray(array)
    made = GPUArray(source.shape, source.dtype, allocator)
    made.set(source)
    return made


def _zeros(shape: Any, dtype: Any = np.float64, allocator: Any = None, **_: Any) -> GPUArray:
    return GPUArray(shape, dtype, allocator).fill(0)


def install() -> None:
    """Puts the stand-in in place of `pycuda`."""
    module("pycuda", VERSION=VERSION, VERSION_TEXT="2024.1")
    flags = type("flags", (), {"DEVICEMAP": 0, "PORTABLE": 1, "WRITECOMBINED": 4})
    module(
        "pycuda.driver",
        mem_alloc=DeviceAllocation,
        to_device=_to_device,
        from_device=_from_device,
        from_device_like=lambda ptr, other: _from_device(ptr, other.shape, other.dtype),
        pagelocked_empty=_pagelocked,
        pagelocked_zeros=_pagelocked_zeros,
        pagelocked_empty_like=lambda array, mem_flags=0: _pagelocked(array.shape, array.dtype),
        pagelocked_zeros_like=lambda array, mem_flags=0: _pagelocked_zeros(array.shape, array.dtype),
        managed_empty=_pagelocked,
        managed_zeros=_pagelocked_zeros,
        aligned_empty=lambda shape, dtype, order="C", alignment=4096: _pagelocked(shape, dtype, order),
        register_host_memory=lambda array, flags=0: array,
        memcpy_htod=_htod,
        memcpy_htod_async=_htod,
        memcpy_dtoh=_dtoh,
        memcpy_dtoh_async=_dtoh,
        memcpy_dtod=_dtod,
        memcpy_dtod_async=_dtod,
        memset_d8=lambda dest, byte, count: fill(address_of(dest), byte, count),
        memset_d16=_memset(2),
        memset_d32=_memset(4),
        memset_d8_async=_memset(1),
        memset_d16_async=_memset(2),
        memset_d32_async=_memset(4),
        mem_get_info=lambda: (TOTAL, TOTAL),
        init=lambda flags=0: None,
        get_version=lambda: (13, 0, 0),
        get_driver_version=lambda: 13000,
        Stream=Stream,
        Event=Event,
        Device=Device,
        Context=Context,
        DeviceAllocation=DeviceAllocation,
        HostAllocation=HostAllocation,
        PointerHolderBase=PointerHolderBase,
        host_alloc_flags=flags,
        mem_host_register_flags=flags,
        mem_attach_flags=type("mem_attach_flags", (), {"GLOBAL": 1, "HOST": 2, "SINGLE": 4}),
        ctx_flags=AnyNames("ctx_flags"),
        event_flags=AnyNames("event_flags"),
        device_attribute=AnyNames("device_attribute"),
        LogicError=type("LogicError", (RuntimeError,), {}),
        MemoryError=type("MemoryError", (RuntimeError,), {}),
        Error=RuntimeError,
    )
    module("pycuda.gpuarray", GPUArray=GPUArray, to_gpu=_to_gpu, to_gpu_async=lambda a, allocator=None, stream=None: _to_gpu(a),
           empty=GPUArray, zeros=_zeros, empty_like=lambda a: GPUArray(a.shape, a.dtype), zeros_like=lambda a: _zeros(a.shape, a.dtype))
    module("pycuda.autoinit", device=Device(0), context=Context())
    module("pycuda.autoprimaryctx", device=Device(0), context=Context())
    module("pycuda.tools", make_default_context=lambda *_: Context(), clear_context_caches=lambda: None,
           DeviceMemoryPool=type("DeviceMemoryPool", (), {"allocate": staticmethod(DeviceAllocation)}))
