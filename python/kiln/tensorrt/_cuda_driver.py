"""Copies by CUDA's driver for programs with buffers on a GPU: batches to the host, buffers at odd addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ALIGNMENT = 16
"""Addresses that are bound on CUDA are multiples of so many bytes."""


class Driver:
    """The functions of libcuda that are needed."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", ctypes.c_uint(0))

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._lib, name)(*args)
        if status:
            text = ctypes.c_char_p()
            self._lib.cuGetErrorString(status, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'unknown error').decode()} ({status})")

    @contextmanager
    def context(self) -> Iterator[None]:
        """The context of this thread, or that of the first device where there is none."""
        current = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(current))
        if current.value:
            yield
            return
        device, primary = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(primary), device)
        self._call("cuCtxPushCurrent_v2", primary)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
            self._call("cuDevicePrimaryCtxRelease_v2", device)

    def to_host(self, address: int, size: int) -> bytes:
        """The bytes at an address of the device, once work on the device is done."""
        data = (ctypes.c_ubyte * size)()
        with self.context():
            self._call("cuCtxSynchronize")
            self._call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return bytes(data)

    def knows(self, address: int) -> bool:
        """Whether an address is one of memory that the driver knows: of a device, managed, or page-locked."""
        kind, memory_type = ctypes.c_uint(), 2
        with self.context():
            get = self._lib.cuPointerGetAttribute
            return get(ctypes.byref(kind), ctypes.c_int(memory_type), ctypes.c_uint64(address)) == 0

    def synchronize(self) -> None:
        """Waits for the work of the default stream."""
        with self.context():
            self._call("cuStreamSynchronize", ctypes.c_void_p(0))

    def allocate(self, size: int) -> int:
        """The address of so many bytes of the device."""
        address = ctypes.c_uint64()
        with self.context():
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address: int) -> None:
        """Ends an allocation."""
        with self.context():
            self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """Copies within the device, in the order of a stream."""
        with self.context():
            self._call(
                "cuMemcpyDtoDAsync_v2", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size),
                ctypes.c_void_p(stream),
            )


_driver: Driver | None = None


def driver() -> Driver:
    """The driver, opened at the first use."""
    global _driver
    if _driver is None:
        _driver = Driver()
    return _driver


class Stand:
    """An aligned buffer of the device in place of one at an odd address."""

    def __init__(self, size: int) -> None:
        self.size, self.address = size, driver().allocate(size)

    def __del__(self) -> None:
        try:
            driver().free(self.address)
        except Exception:
            # The process or its context may be gone already, and the memory with it.
            return
