"""Memory of the host in place of a device's: allocations by address, copies."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

_ALIGN = 256
_live: dict[int, np.ndarray] = {}
_lock = threading.Lock()


def allocate(size: int) -> int:
    """The address of so many bytes, aligned to 256."""
    if size < 0:
        raise ValueError(f"{size} bytes can't be allocated")
    memory = np.empty(int(size) + _ALIGN, dtype=np.uint8)
    start = memory.ctypes.data
    address = start + (-start) % _ALIGN
    with _lock:
        _live[address] = memory
    return address


def free(address: int) -> bool:
    """Ends an allocation; False if there is none at this address."""
    with _lock:
        return _live.pop(int(address), None) is not None


def address_of(value: Any) -> int:
    """The address of an allocation, an array, a buffer or an integer."""
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, np.ndarray):
        return value.ctypes.data
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    if hasattr(value, "__int__"):
        return int(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return np.frombuffer(value, dtype=np.uint8).ctypes.data
    raise TypeError(f"{type(value).__name__} has no address")


def copy(target: int, source: int, size: int) -> None:
    """Copies bytes from an address to another."""
    if size:
        ctypes.memmove(target, source, int(size))


def fill(target: int, byte: int, size: int) -> None:
    """Sets bytes."""
    if size:
        ctypes.memset(target, byte, int(size))
