"""Memory of the host in place of a device's: allocations by address, copies, and work of streams that is kept for later."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

_ALIGN = 256
_live: dict[int, np.ndarray] = {}
_lock = threading.Lock()
_numbers = itertools.count(1 << 12)
_captures: dict[int, list[Callable[[], Any]]] = {}


class Handle(int):
    """A number for a stream, an event or a graph, which is none of CUDA's own."""

    def getPtr(self) -> int:
        return int(self)


def handle(*_: Any) -> Handle:
    """A number that no other object has."""
    return Handle(next(_numbers))


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


def copy_rows(target: int, target_pitch: int, source: int, source_pitch: int, width: int, rows: int) -> None:
    """Copies rows of bytes that lie apart."""
    for row in range(int(rows)):
        copy(target + row * int(target_pitch), source + row * int(source_pitch), width)


def fill(target: int, byte: int, size: int) -> None:
    """Sets bytes."""
    if size:
        ctypes.memset(target, byte, int(size))


def begin_capture(stream: int) -> bool:
    """Keeps the work of a stream from now on; False for the default streams and one that is captured already."""
    if int(stream) <= 2 or int(stream) in _captures:
        return False
    _captures[int(stream)] = []
    return True


def end_capture(stream: int) -> list[Callable[[], Any]] | None:
    """The work that a stream kept; None if it kept none."""
    return _captures.pop(int(stream), None)


def is_captured(stream: int) -> bool:
    """Whether a stream keeps its work."""
    return int(stream) in _captures


def do(stream: Any, action: Callable[[], Any]) -> None:
    """Does work of a stream, or keeps it where the stream is captured."""
    kept = _captures.get(_number(stream)) if _captures else None
    if kept is None:
        action()
    else:
        kept.append(action)


def _number(stream: Any) -> int:
    if stream is None:
        return 0
    return int(getattr(stream, "value", stream) or 0)
