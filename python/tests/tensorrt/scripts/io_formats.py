"""Inputs and outputs in half precision and with channels in other places of memory."""

import numpy as np
import tensorrt as trt

logger = trt.Logger(trt.Logger.ERROR)


def build(input_format, dtype):
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    x = network.add_input("x", dtype, (1, 8, 4, 4))
    relu = network.add_activation(x, trt.ActivationType.RELU)
    y = relu.get_output(0)
    y.name = "y"
    network.mark_output(y)
    x.allowed_formats = 1 << int(input_format)
    y.dtype = trt.float32
    assert x.allowed_formats == 1 << int(input_format) and y.allowed_formats == 1 << int(trt.TensorFormat.LINEAR)
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.FP16)
    plan = builder.build_serialized_network(network, config)
    assert plan is not None, trt.last_error()
    return trt.Runtime(logger).deserialize_cuda_engine(plan)


values = np.random.default_rng(0).standard_normal((1, 8, 4, 4)).astype(np.float16)
wanted = np.maximum(values.astype(np.float32), 0)


def run(engine, packed):
    context = engine.create_execution_context()
    y = np.empty((1, 8, 4, 4), np.float32)
    for name, array in (("x", packed), ("y", y)):
        context.set_tensor_address(name, array.ctypes.data)
    assert context.execute_async_v3(0), trt.last_error()
    return y


linear = build(trt.TensorFormat.LINEAR, trt.float16)
assert linear.get_tensor_format("x") == trt.TensorFormat.LINEAR and linear.get_tensor_dtype("x") == trt.float16
assert np.array_equal(run(linear, values), wanted)

last = build(trt.TensorFormat.HWC8, trt.float16)
assert last.get_tensor_format("x") == trt.TensorFormat.HWC8
assert tuple(last.get_tensor_shape("x")) == (1, 8, 4, 4), "dimensions stay those of the linear format"
assert last.get_tensor_vectorized_dim("x") == 1 and last.get_tensor_components_per_element("x") == 8
assert last.get_tensor_vectorized_dim("y") == -1
print(last.get_tensor_format_desc("x"))
packed = np.ascontiguousarray(values.transpose(0, 2, 3, 1))
assert np.array_equal(run(last, packed), wanted)

network = trt.Builder(trt.Logger(trt.Logger.INTERNAL_ERROR)).create_network(0)
x = network.add_input("x", trt.float32, (1, 8, 4, 4))
try:
    x.allowed_formats = 1 << int(trt.TensorFormat.DLA_LINEAR)
    raise SystemExit("a format of DLA was taken")
except NotImplementedError as e:
    assert "DLA" in str(e)
print("OK")
