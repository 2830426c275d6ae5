"""Loops by count, by condition and over a tensor; conditionals with constant and computed conditions."""

import numpy as np
import tensorrt as trt

logger = trt.Logger(trt.Logger.ERROR)


def run(write, *inputs):
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    tensors = [
        network.add_input(f"in{i}", {"float32": trt.float32, "int32": trt.int32, "bool": trt.bool}[a.dtype.name], a.shape)
        for i, a in enumerate(inputs)
    ]
    outputs = write(network, *tensors)
    for i, t in enumerate(outputs):
        t.name = f"out{i}"
        network.mark_output(t)
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    arrays = list(inputs)
    for i in range(len(outputs)):
        name = f"out{i}"
        arrays.append(np.empty(tuple(context.get_tensor_shape(name)), trt.nptype(engine.get_tensor_dtype(name))))
    assert context.execute_v2([a.ctypes.data for a in arrays])
    return arrays[len(inputs) :]


def scalar(network, value, dtype):
    return network.add_constant((), np.array(value, dtype=dtype)).get_output(0)


def powers(network, x):
    loop = network.add_loop()
    loop.name = "powers"
    limit = loop.add_trip_limit(scalar(network, 4, np.int32), trt.TripLimit.COUNT)
    assert limit.kind == trt.TripLimit.COUNT and limit.loop.name == "powers"
    rec = loop.add_recurrence(x)
    product = network.add_elementwise(rec.get_output(0), x, trt.ElementWiseOperation.PROD)
    rec.set_input(1, product.get_output(0))
    last = loop.add_loop_output(rec.get_output(0), trt.LoopOutput.LAST_VALUE)
    steps = loop.add_loop_output(product.get_output(0), trt.LoopOutput.CONCATENATE, 0)
    steps.set_input(1, scalar(network, 4, np.int32))
    assert steps.kind == trt.LoopOutput.CONCATENATE and steps.axis == 0
    return last.get_output(0), steps.get_output(0)


x = np.array([1, 2, 3], np.float32)
last, steps = run(powers, x)
assert np.allclose(last, x**5) and np.allclose(steps, [x**2, x**3, x**4, x**5])


def prefix_sums(network, x):
    loop = network.add_loop()
    loop.add_trip_limit(scalar(network, 4, np.int32), trt.TripLimit.COUNT)
    row = loop.add_iterator(x, axis=0, reverse=False)
    assert row.axis == 0 and not row.reverse
    start = network.add_constant((3,), np.zeros(3, np.float32)).get_output(0)
    rec = loop.add_recurrence(start)
    total = network.add_elementwise(rec.get_output(0), row.get_output(0), trt.ElementWiseOperation.SUM)
    rec.set_input(1, total.get_output(0))
    out = loop.add_loop_output(total.get_output(0), trt.LoopOutput.REVERSE, 0)
    out.set_input(1, scalar(network, 4, np.int32))
    return (out.get_output(0),)


x = np.arange(12, dtype=np.float32).reshape(4, 3)
assert np.allclose(run(prefix_sums, x)[0], x.cumsum(0)[::-1])


def doubles_below(network, x, limit):
    loop = network.add_loop()
    rec = loop.add_recurrence(x)
    below = network.add_elementwise(rec.get_output(0), limit, trt.ElementWiseOperation.LESS)
    loop.add_trip_limit(below.get_output(0), trt.TripLimit.WHILE)
    twice = network.add_elementwise(rec.get_output(0), rec.get_output(0), trt.ElementWiseOperation.SUM)
    rec.set_input(1, twice.get_output(0))
    return (loop.add_loop_output(rec.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0),)


assert run(doubles_below, np.array(3, np.float32), np.array(100, np.float32))[0] == 192


def choose(network, condition, a, b):
    conditional = network.add_if_conditional()
    conditional.name = "choice"
    assert conditional.set_condition(condition).conditional.name == "choice"
    a, b = conditional.add_input(a).get_output(0), conditional.add_input(b).get_output(0)
    yes = network.add_elementwise(a, b, trt.ElementWiseOperation.SUM).get_output(0)
    no = network.add_elementwise(a, b, trt.ElementWiseOperation.SUB).get_output(0)
    return (conditional.add_output(yes, no).get_output(0),)


a, b = np.array([5, 6], np.float32), np.array([1, 2], np.float32)
assert run(choose, np.array(True), a, b)[0].tolist() == [6, 8]
assert run(choose, np.array(False), a, b)[0].tolist() == [4, 4]
network = trt.Builder(trt.Logger(trt.Logger.INTERNAL_ERROR)).create_network(0)
loop = network.add_loop()
count = scalar(network, 1, np.int32)
assert loop.add_trip_limit(count, trt.TripLimit.COUNT) and loop.add_trip_limit(count, trt.TripLimit.COUNT) is None
print("OK")
