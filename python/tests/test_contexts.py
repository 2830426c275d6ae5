"""Execution contexts: shapes, bindings, callbacks, threads."""

import ctypes
import gc
import json
import threading
import time
import weakref

import numpy as np
import pytest

import kiln
from conftest import DIGITS


def test_shapes_are_set_and_inferred(lenet, images):
    c = lenet.create_context()
    assert c.engine is lenet and c.underspecified() == ["input"] and c.input_shape("input") is None
    assert c.max_output_size("logits") == 500 * 10 * 4
    c.set_input_shape("input", (3, 1, 28, 28))
    assert c.input_shape("input") == (3, 1, 28, 28) and c.underspecified() == []
    assert c.infer_shapes() == {"logits": ((3, 10), (3, 10))} and c.max_output_size("logits") == 120
    c.set_input("input", images[:3])
    c.enqueue()
    c.wait()
    got = c.take_outputs()["logits"].numpy()
    np.testing.assert_array_equal(got, lenet.run({"input": images[:3]})["logits"].numpy())
    c.set_packed_input("input", (1, 1, 28, 28), images[:1].tobytes())
    c.enqueue()
    np.testing.assert_allclose(c.take_packed_outputs()["logits"].numpy(), got[:1], rtol=1e-4, atol=1e-5)
    c.clear_inputs()
    assert c.input_shape("input") is None
    with pytest.raises(kiln.InvalidState):
        c.enqueue()
    with pytest.raises(kiln.InvalidArgument, match="none"):
        c.input_shape("none")
    assert c.counters()["runs"] >= 2


def test_profiles_are_chosen(lenet_path, images):
    one = kiln.Profile(shapes={"input": (1, 1, 28, 28)})
    many = kiln.Profile(shapes={"input": ((2, 1, 28, 28), None, (8, 1, 28, 28))})
    e = kiln.Engine.open(lenet_path, backend="cpu", profiles=[one, many], estimates=True)
    assert [p.shapes["input"].max[0] for p in e.profiles] == [1, 8]
    c = e.create_context()
    c.set_profile(0)
    with pytest.raises(kiln.InvalidArgument, match="profile 0"):
        c.run({"input": images[:2]})
    c.set_profile(1)
    assert c.run({"input": images[:2]})["logits"].shape == (2, 10)
    c.set_profile(None)
    assert c.run({"input": images[:1]})["logits"].shape == (1, 10)
    with pytest.raises(kiln.InvalidArgument, match="no profile 2"):
        c.set_profile(2)


def test_memory_is_bound_by_address(lenet, images):
    c = lenet.create_context()
    x, out = np.array(images[:2]), np.zeros((2, 10), np.float32)
    c.set_input_shape("input", x.shape)
    c.bind("input", x.ctypes.data, x.nbytes)
    c.bind("logits", out.ctypes.data, out.nbytes)
    for first in (0, 5):
        x[:] = images[first : first + 2]
        c.enqueue()
        c.wait()
        np.testing.assert_array_equal(out, lenet.run({"input": x})["logits"].numpy())
    c.bind("logits", out.ctypes.data, 8)
    with pytest.raises(kiln.InvalidArgument, match="8"):
        c.enqueue()
    c.bind("logits", 0, 0)
    c.bind("input", 0, 0)
    with pytest.raises(kiln.InvalidState):
        c.enqueue()
    c.wait_consumed()


class Memory:
    """An allocator of host memory."""

    def __init__(self):
        self.shapes, self.asked, self.memory = [], [], None

    def allocate(self, output, current, nbytes, alignment):
        self.asked.append((output, nbytes))
        self.memory = ctypes.create_string_buffer(nbytes + alignment)
        start = ctypes.addressof(self.memory)
        self.address = start + -start % alignment
        return self.address

    def shape(self, output, shape):
        self.shapes.append((output, shape))


def test_allocators_supply_memory(lenet, images):
    c, memory = lenet.create_context(), Memory()
    c.set_output_allocator("logits", memory)
    c.set_input("input", images[:3])
    c.enqueue()
    c.wait()
    assert memory.asked == [("logits", 120)] and memory.shapes == [("logits", (3, 10))]
    got = np.ctypeslib.as_array((ctypes.c_float * 30).from_address(memory.address)).reshape(3, 10)
    np.testing.assert_array_equal(got, lenet.run({"input": images[:3]})["logits"].numpy())

    class Refusing:
        def allocate(self, *_):
            return 0

        def shape(self, *_):
            raise KeyError("shape")

    c.set_output_allocator("logits", Refusing())
    with pytest.raises(KeyError, match="shape"):
        c.enqueue()
        c.wait()
    c.set_output_allocator("logits", None)
    assert c.run({"input": images[:1]})["logits"].shape == (1, 10)


def test_debug_tensors_are_heard_and_exceptions_end_the_call(lenet_path, images):
    e = kiln.Engine.open(lenet_path, backend="cpu", estimates=True, debug_tensors=["logits"])
    assert e.debug_tensors == ["logits"]
    c, heard = e.create_context(), []
    assert c.debug_tensors == ["logits"] and not c.debug_state("logits")
    c.set_debug_listener(lambda name, t: heard.append((name, t.numpy().copy())))
    c.set_debug_state("logits", True)
    assert c.debug_state("logits")
    out = c.run({"input": images[:1]})["logits"].numpy()
    assert [n for n, _ in heard] == ["logits"]
    np.testing.assert_array_equal(heard[0][1], out)

    def raising(name, tensor):
        raise LookupError(name)

    c.set_debug_listener(raising)
    with pytest.raises(LookupError, match="logits"):
        c.run({"input": images[:1]})
    c.set_debug_listener(lambda *_: False)
    with pytest.raises(kiln.Error, match="refused"):
        c.run({"input": images[:1]})
    c.set_all_debug_states(False)
    assert c.run({"input": images[:1]})["logits"].shape == (1, 10)
    c.set_all_debug_states(True)
    c.set_unfused_debug_state(True)
    c.set_debug_listener(lambda name, t: heard.append((name, t)))
    del heard[:]
    c.run({"input": images[:1]})
    assert len(heard) > 1
    with pytest.raises(kiln.InvalidArgument):
        c.set_debug_state("none", True)
    c.set_debug_listener(None)


def test_layers_are_timed_and_values_observed(lenet, images):
    c = lenet.create_context()
    c.layer_times()
    c.set_observable(True)
    out = c.run({"input": images[:1]})
    times = c.layer_times()
    assert times and all(t["ns"] >= 0 and t["tactic"] and t["runs"] == 1 for t in times)
    c.set_input("input", images[:1])
    c.enqueue()
    np.testing.assert_array_equal(c.take_outputs()["logits"].numpy(), out["logits"].numpy())
    np.testing.assert_array_equal(c.observe("logits").numpy(), out["logits"].numpy())
    assert json.loads(c.layers_json())["Layers"]
    assert c.host_layers() == []


def test_recorders_hear_of_errors(lenet, images):
    c, heard = lenet.create_context(), []
    c.set_error_recorder(lambda code, text: heard.append((code, text)))
    with pytest.raises(kiln.Error):
        c.run({"none": images[:1]})
    assert heard and heard[0][0] == 3 and "none" in heard[0][1]

    def raising(code, text):
        raise ZeroDivisionError(text)

    c.set_error_recorder(raising)
    with pytest.raises(ZeroDivisionError, match="none"):
        c.run({"none": images[:1]})
    c.set_error_recorder(None)
    lenet.set_error_recorder(lambda code, text: heard.append("engine"))
    with pytest.raises(kiln.Error):
        lenet.io_tensor("none")
    lenet.set_error_recorder(None)
    assert heard[-1] == "engine"
    recorded = []
    with pytest.raises(kiln.Error):
        kiln.build(DIGITS / "lenet_a.onnx", backend="none", error_recorder=lambda *e: recorded.append(e))
    assert recorded


def test_a_context_in_use_says_so_and_others_run(slow, images):
    c = slow.create_context()
    x, started, result = images, threading.Event(), {}

    def work():
        started.set()
        result["logits"] = c.run({"input": x})["logits"].numpy()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    refused, ticks = 0, 0
    while thread.is_alive():
        ticks += 1
        try:
            c.infer_shapes()
        except kiln.ContextInUse as e:
            refused += 1
            assert "another thread" in str(e) and isinstance(e, kiln.InvalidState)
            # Another context of the engine is free.
            assert slow.run({"input": x[:1]})["logits"].shape == (1, 10)
        except kiln.InvalidState:
            pass
        time.sleep(0)
    thread.join()
    assert refused > 0
    assert result["logits"].shape == (500, 10)


def test_the_interpreter_goes_on_during_a_run(slow, images):
    """A thread counts while another one is inside a run."""
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before, at = counted[0], time.monotonic()
    slow.run({"input": images})
    took, during = time.monotonic() - at, counted[0] - before
    stop.set()
    thread.join()
    assert took > 0.05, "the run is long enough to tell"
    assert during > took * 50, f"{during} steps in {took} s"


def test_many_threads_share_an_engine(lenet, images):
    expected = lenet.run({"input": images[:8]})["logits"].numpy()
    failures = []

    def work(context):
        for _ in range(30):
            target = context if context is not None else lenet
            got = target.run({"input": images[:8]})["logits"].numpy()
            if not np.array_equal(got, expected):
                failures.append(got)

    contexts = [lenet.create_context() for _ in range(4)] + [None] * 4
    threads = [threading.Thread(target=work, args=(c,)) for c in contexts]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_runs_are_cancelled_and_limited(slow, images):
    c = slow.create_context()
    assert not c.cancel()
    stop = threading.Event()

    def cancel():
        while not c.cancel() and not stop.is_set():
            time.sleep(0.001)

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(kiln.Cancelled):
        c.run({"input": images})
    stop.set()
    thread.join()
    c.set_timeout(0.001)
    with pytest.raises(kiln.TimedOut):
        c.run({"input": images})
    c.set_timeout(None)
    assert c.run({"input": images[:1]})["logits"].shape == (1, 10)
    with pytest.raises(kiln.InvalidArgument):
        c.set_timeout(-1.0)


def test_cycles_through_callbacks_are_collected(lenet_path):
    e = kiln.Engine.open(lenet_path, backend="cpu", estimates=True)

    class Holder:
        def hear(self, *_):
            pass

    gone = []
    for attach in ("set_debug_listener", "set_error_recorder", "engine"):
        holder = Holder()
        holder.engine = kiln.Engine.open(e.plan())
        holder.context = holder.engine.create_context()
        if attach == "engine":
            holder.engine.set_error_recorder(holder.hear)
        else:
            getattr(holder.context, attach)(holder.hear)
        gone.append(weakref.ref(holder))
        del holder
    gc.collect()
    assert [r() for r in gone] == [None, None, None]


def test_handles_of_devices_are_refused_on_the_host(lenet, images):
    c = lenet.create_context()
    with pytest.raises(kiln.UnsupportedState, match="memory"):
        lenet.create_context(memory=False)
    for call in (lambda: c.set_memory(16, 16), lambda: c.set_stream(5), lambda: c.set_consumed_event(5), lambda: c.set_aux_streams([5])):
        with pytest.raises(kiln.UnsupportedState):
            call()
    with pytest.raises(kiln.UnsupportedState):
        c.run({"input": images[:1]}, stream=5)
    c.set_stream(0)
    assert c.run({"input": images[:1]})["logits"].shape == (1, 10)
