"""Layers that Python functions define: types, shapes, fields, runs, exceptions, plans, threads."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kiln


class Shifted:
    """Adds a number; with `halves` it leaves every second element out."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def complete(self, fields: dict[str, Any]) -> dict[str, Any]:
        if set(fields) - {"by", "halves", "data"}:
            raise KeyError(f"unknown fields {sorted(fields)}")
        return {"by": 1.0, "halves": False, **fields}

    def output_types(self, fields: dict[str, Any], inputs: list[Any]) -> list[str]:
        return [inputs[0][0]]

    def describe(self, fields: dict[str, Any], inputs: list[Any]) -> str:
        self.calls.append(("describe", inputs))
        return "[ceildiv(i0.d0, 2)]" if fields["halves"] else "[i0.d*]"

    def run(self, fields: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> list[Any]:
        self.calls.append(("run", outputs))
        made = inputs[0].numpy() + np.asarray(fields["by"], inputs[0].numpy().dtype)
        return [made[::2] if fields["halves"] else made]


def network(dims: list[int], dtype: str = "f32", **fields: Any) -> kiln.Network:
    net = kiln.Network("net")
    layer = net.add_plugin([net.add_input("x", dtype, dims)], "Shifted", namespace="tests", fields=fields)
    net.mark_output(layer.output(), "y")
    return net


@pytest.fixture
def shifted() -> Any:
    layer = Shifted()
    kiln.define_layer("Shifted", layer, namespace="tests")
    yield layer
    kiln.undefine_layer("Shifted", namespace="tests")


@pytest.mark.parametrize("backend", ["cpu", "reference", "wgpu"])
def test_layers_run_with_their_fields(shifted: Shifted, backend: str) -> None:
    for dtype, numpy_type in (("f32", np.float32), ("i32", np.int32), ("f16", np.float16)):
        x = np.arange(5).astype(numpy_type)
        engine = kiln.Engine.open(network([5], dtype, by=3), backend=backend)
        assert engine.run({"x": x})["y"].tolist() == [3, 4, 5, 6, 7]
    x = np.arange(7, dtype=np.float32)
    shapes = {"x": ((1,), (4,), (9,))}
    engine = kiln.Engine.open(network([-1], halves=True), backend=backend, shapes=shapes)
    assert engine.run({"x": x})["y"].tolist() == [1, 3, 5, 7]
    assert ("describe", [("f32", (-1,))]) in shifted.calls and ("run", [("f32", [4])]) in shifted.calls


def test_plans_need_the_layer(shifted: Shifted, tmp_path: Path) -> None:
    net = network([2], data=b"\x00\xff")
    assert net.layers[0].plugin == ("tests", "Shifted", "1") and net.layers[0].params == {"data": b"\x00\xff"}
    net.layers[0].set_fields({"by": 5.0})
    kiln.build(net, backend="cpu").save(tmp_path / "plan")
    engine = kiln.Engine.open(tmp_path / "plan")
    x = np.zeros(2, np.float32)
    assert engine.run({"x": x})["y"].tolist() == [5, 5]
    assert kiln.undefine_layer("Shifted", namespace="tests") and not kiln.undefine_layer("Shifted", namespace="tests")
    with pytest.raises(kiln.Error, match="taken back"):
        engine.run({"x": x})
    kiln.define_layer("Shifted", shifted, namespace="tests")
    assert engine.run({"x": x})["y"].tolist() == [5, 5]


def test_what_goes_wrong_is_named(shifted: Shifted) -> None:
    with pytest.raises(kiln.Error, match="unknown fields"):
        network([2], wrong=1)
    engine = kiln.Engine.open(network([2]), backend="cpu")
    x = np.zeros(2, np.float32)
    for wrong, error, text in (
        (lambda *_: 1 / 0, ZeroDivisionError, "division"),
        (lambda *_: [], kiln.InvalidArgument, "0 tensors"),
        (lambda *_: [np.zeros(3, np.float32)], kiln.Error, "made"),
        (lambda *_: [np.zeros(2, np.int32)], kiln.Error, "made"),
        (lambda *_: 3, TypeError, "iter"),
    ):
        shifted.run = wrong  # type: ignore[method-assign, assignment]
        with pytest.raises(error, match=text):
            engine.run({"x": x})
        del shifted.run
    assert engine.run({"x": x})["y"].tolist() == [1, 1]


def test_an_object_that_is_replaced_is_let_go_of() -> None:
    first, second = Shifted(), Shifted()
    gone = weakref.ref(first)
    kiln.define_layer("Replaced", first, namespace="tests")
    kiln.define_layer("Replaced", second, namespace="tests")
    del first
    gc.collect()
    assert gone() is None
    assert kiln.undefine_layer("Replaced", namespace="tests")
    with pytest.raises(kiln.InvalidArgument, match="name"):
        kiln.define_layer("", second)


def test_threads_share_a_layer(shifted: Shifted) -> None:
    engine = kiln.Engine.open(network([64]), backend="cpu")
    failures: list[BaseException] = []

    def work(start: int) -> None:
        try:
            x = np.full(64, start, np.float32)
            for _ in range(50):
                assert engine.run({"x": x})["y"].tolist() == [start + 1] * 64
                net = network([3], by=float(start))
                assert net.outputs[0].shape == (3,) or list(net.outputs[0].shape) == [3]
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures
