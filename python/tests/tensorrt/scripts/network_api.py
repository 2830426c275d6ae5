"""Writes LeNet layer by layer with weights from numpy, and compares its answers with stored ones."""

import os
import sys

import numpy as np
import tensorrt as trt

LOGGER = trt.Logger(trt.Logger.WARNING)
data = sys.argv[1]
weights = np.load(os.path.join(data, "lenet_a_weights.npz"))


def find(part, kind):
    return np.ascontiguousarray(weights[f"{part}.{kind}"])


def populate_network(network):
    tensor = network.add_input(name="input", dtype=trt.float32, shape=(-1, 1, 28, 28))
    for part in ("conv1", "conv2"):
        w = find(part, "weight")
        conv = network.add_convolution_nd(
            input=tensor, num_output_maps=w.shape[0], kernel_shape=w.shape[2:], kernel=w, bias=find(part, "bias")
        )
        conv.stride_nd = (1, 1)
        conv.padding_nd = (0, 0)
        conv.name = part
        relu = network.add_activation(input=conv.get_output(0), type=trt.ActivationType.RELU)
        assert relu.type == trt.ActivationType.RELU
        pool = network.add_pooling_nd(input=relu.get_output(0), type=trt.PoolingType.MAX, window_size=trt.Dims2(2, 2))
        pool.stride_nd = trt.Dims2(2, 2)
        tensor = pool.get_output(0)
    flat = network.add_shuffle(tensor)
    flat.reshape_dims = (-1, int(np.prod(tuple(tensor.shape)[1:])))
    tensor = flat.get_output(0)
    for part in ("fc1", "fc2"):
        w, b = find(part, "weight"), find(part, "bias")
        matrix = network.add_constant(w.shape, trt.Weights(w)).get_output(0)
        product = network.add_matrix_multiply(tensor, trt.MatrixOperation.NONE, matrix, trt.MatrixOperation.TRANSPOSE)
        bias = network.add_constant((1, len(b)), b).get_output(0)
        tensor = network.add_elementwise(product.get_output(0), bias, trt.ElementWiseOperation.SUM).get_output(0)
        if part == "fc1":
            tensor = network.add_activation(tensor, trt.ActivationType.RELU).get_output(0)
    tensor.name = "prob"
    network.mark_output(tensor=tensor)


builder = trt.Builder(LOGGER)
network = builder.create_network(0)
config = builder.create_builder_config()
populate_network(network)
assert network.num_inputs == 1 and network.num_outputs == 1 and network.get_output(0).name == "prob"
assert [network.get_layer(i).type for i in range(2)] == [trt.LayerType.CONVOLUTION, trt.LayerType.ACTIVATION]
profile = builder.create_optimization_profile()
profile.set_shape("input", (1, 1, 28, 28), (8, 1, 28, 28), (500, 1, 28, 28))
config.add_optimization_profile(profile)
plan = builder.build_serialized_network(network, config)
engine = trt.Runtime(LOGGER).deserialize_cuda_engine(plan)
images = np.ascontiguousarray(np.load(os.path.join(data, "digits_test.npz"))["images"])
wanted = np.load(os.path.join(data, "logits_lenet_a.npz"))["logits"]
context = engine.create_execution_context()
assert context.set_input_shape("input", images.shape)
found = np.empty(tuple(context.get_tensor_shape("prob")), dtype=np.float32)
context.set_tensor_address("input", images.ctypes.data)
context.set_tensor_address("prob", found.ctypes.data)
assert context.execute_async_v3(stream_handle=0)
assert np.allclose(found[: len(wanted)], wanted, rtol=1e-3, atol=1e-3)
assert (found.argmax(1) == np.load(os.path.join(data, "digits_test.npz"))["labels"]).mean() > 0.95
print("OK")
