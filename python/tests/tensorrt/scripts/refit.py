"""Replaces weights of an engine by name and by layer and role, with a context that stays."""

import os
import sys

import numpy as np
import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.WARNING)
SHAPE = (1, 2, 4, 4)


def build():
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(0)
    x = network.add_input("x", trt.float32, SHAPE)
    kernel = np.ones((3, 2, 1, 1), np.float32)
    bias = np.zeros(3, np.float32)
    conv = network.add_convolution_nd(x, 3, (1, 1), trt.Weights(kernel), trt.Weights(bias))
    conv.name = "conv_1"
    factor = np.full((1, 3, 1, 1), 2, np.float32)
    constant = network.add_constant((1, 3, 1, 1), factor)
    constant.name = "factor_layer"
    assert network.set_weights_name(factor, "factor")
    scaled = network.add_elementwise(conv.get_output(0), constant.get_output(0), trt.ElementWiseOperation.PROD)
    scaled.get_output(0).name = "y"
    network.mark_output(scaled.get_output(0))
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.REFIT)
    plan = builder.build_serialized_network(network, config)
    return trt.Runtime(TRT_LOGGER).deserialize_cuda_engine(plan)


engine = build()
assert engine.refittable
context = engine.create_execution_context()
x = np.arange(32, dtype=np.float32).reshape(SHAPE)


def run():
    y = np.empty((1, 3, 4, 4), np.float32)
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    return y


total = x.sum(1, keepdims=True)
assert np.allclose(run(), np.repeat(total, 3, 1) * 2)

refitter = trt.Refitter(engine, TRT_LOGGER)
layers, roles = refitter.get_all()
assert ("conv_1", trt.WeightsRole.KERNEL) in list(zip(layers, roles)), (layers, roles)
assert "factor" in refitter.get_all_weights(), refitter.get_all_weights()
new = np.array([[1, 0], [0, 1], [1, 1]], np.float32).reshape(3, 2, 1, 1)
assert refitter.set_weights("conv_1", trt.WeightsRole.KERNEL, new)
assert refitter.set_weights("conv_1", trt.WeightsRole.BIAS, np.full(3, 5, np.float32))
assert not refitter.set_weights("no_such_layer", trt.WeightsRole.KERNEL, new)
assert not refitter.set_weights("conv_1", trt.WeightsRole.KERNEL, np.zeros(5, np.float32))
prototype = refitter.get_weights_prototype("factor")
assert prototype.size == 3 and prototype.dtype == trt.float32
missing_layers, missing_roles = refitter.get_missing()
for layer, role in zip(missing_layers, missing_roles):
    print("missing", layer, role)
assert refitter.refit_cuda_engine()
wanted = np.concatenate([x[:, :1], x[:, 1:], total], axis=1) + 5
assert np.allclose(run(), wanted * 2), "new kernel and bias"

refitter = trt.Refitter(engine=engine, logger=TRT_LOGGER)
assert refitter.set_named_weights("factor", np.array([1, 2, 3], np.float32))
assert refitter.get_named_weights("factor").numpy().tolist() == [1, 2, 3]
assert not refitter.set_named_weights("no_such_weights", new)
assert refitter.refit_cuda_engine()
assert np.allclose(run(), wanted * np.array([1, 2, 3]).reshape(1, 3, 1, 1)), "new factor"
copy = trt.Runtime(TRT_LOGGER).deserialize_cuda_engine(engine.serialize())
context = copy.create_execution_context()
assert np.allclose(run(), wanted * np.array([1, 2, 3]).reshape(1, 3, 1, 1)), "a serialized engine has the new weights"
print("OK", os.path.basename(sys.argv[0]))
