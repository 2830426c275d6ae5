"""The order of a run's parts on a device, by stand-ins for the runtime and the driver: there is no GPU in CI."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kiln.tensorrt as trt
from kiln.tensorrt import _context, _cuda_driver

CALLS: list[tuple[Any, ...]] = []


class Io:
    def __init__(self, name: str, is_input: bool) -> None:
        self.name, self.is_input, self.is_shape_input, self.shape, self.dtype = name, is_input, False, (4,), "f32"

    def nbytes(self, shape: list[int]) -> int:
        return 4 * shape[0]


class Native:
    """Notes the calls of a context."""

    io = [Io("x", True), Io("y", False)]
    inputs = io[:1]
    profiles: list[Any] = []
    takes_device_addresses = True

    def underspecified(self) -> list[str]:
        return []

    def input_shape(self, name: str) -> tuple[int, ...]:
        return (4,)

    def infer_shapes(self) -> dict[str, Any]:
        return {"y": ((4,), (4,))}

    def layer_times(self) -> list[dict[str, Any]]:
        CALLS.append(("layer_times",))
        return [{"name": "layer", "ns": 2e6}]

    def __getattr__(self, name: str) -> Any:
        return lambda *args: CALLS.append((name, *args))


class Engine:
    _native, _recorder, _logger, _names = Native(), None, None, ["x", "y"]

    def _find(self, name: str) -> Any:
        return next((t for t in Native.io if t.name == name), None)


class Driver:
    def synchronize(self) -> None:
        CALLS.append(("synchronize",))

    def knows(self, address: int) -> bool:
        return address < 1 << 40

    def allocate(self, size: int) -> int:
        return 1 << 20

    def free(self, address: int) -> None:
        CALLS.append(("free", address))

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        CALLS.append(("copy", target, source, size, stream))


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Driver()
    for module in (_context, _cuda_driver):
        monkeypatch.setattr(module, "driver", lambda: made)
    CALLS.clear()
    return _context.IExecutionContext(Engine(), Native(), None)


def test_a_stream_of_the_program_is_taken_and_not_waited_for(context: Any) -> None:
    context.set_tensor_address("x", 4096)
    context.set_tensor_address("y", 8192)
    assert context.execute_async_v3(77)
    assert CALLS == [("bind", "x", 4096, 16), ("bind", "y", 8192, 16), ("set_stream", 77), ("enqueue",)]
    CALLS.clear()
    assert context.execute_async_v3(77)
    assert CALLS == [("enqueue",)], "nothing is bound again"


def test_pointers_of_the_host_are_refused_by_name(context: Any) -> None:
    x = np.zeros(4, np.float32)
    context.set_tensor_address("x", 4096)
    context.set_tensor_address("y", x.ctypes.data & ~15)
    assert not context.execute_async_v3(77)
    assert "'y'" in trt.last_error() and "pointer of the host" in trt.last_error()
    assert ("enqueue",) not in CALLS


def test_the_default_stream_orders_runs(context: Any) -> None:
    assert context.execute_v2([4096, 8192])
    assert CALLS[2:] == [("synchronize",), ("enqueue",), ("wait",)]
    CALLS.clear()
    assert context.execute_async_v3(0)
    assert CALLS == [("synchronize",), ("enqueue",), ("wait",)]


def test_odd_addresses_have_a_stand_in(context: Any) -> None:
    context.set_tensor_address("x", 4100)
    context.set_tensor_address("y", 8196)
    assert context.execute_async_v3(5)
    stand = 1 << 20
    assert CALLS == [
        ("bind", "x", stand, 16),
        ("bind", "y", stand, 16),
        ("set_stream", 5),
        ("copy", stand, 4100, 16, 5),
        ("enqueue",),
        ("copy", 8196, stand, 16, 5),
    ]
    CALLS.clear()
    context.set_tensor_address("x", 4096)
    context.set_tensor_address("y", 8192)
    assert context.execute_async_v3(5)
    assert CALLS == [("bind", "x", 4096, 16), ("bind", "y", 8192, 16), ("enqueue",)]


def test_times_are_taken_from_the_moment_that_a_profiler_is_set(context: Any) -> None:
    class Profiler(trt.IProfiler):
        def report_layer_time(self, layer_name: str, ms: float) -> None:
            CALLS.append((layer_name, ms))

    context.profiler = Profiler()
    assert CALLS == [("layer_times",)]
    CALLS.clear()
    assert context.execute_v2([4096, 8192])
    assert CALLS[-3:] == [("wait",), ("layer_times",), ("layer", 2.0)]
