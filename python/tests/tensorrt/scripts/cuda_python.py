# options: --host-cuda
"""Runs an engine with memory of cuda-python, checking the result of every call."""

import os
import sys

import numpy as np
import tensorrt as trt
from cuda.bindings import runtime as cudart


def check(result):
    err, rest = result[0], result[1:]
    if err != cudart.cudaError_t.cudaSuccess:
        raise RuntimeError(f"CUDA error {cudart.cudaGetErrorString(err)[1]}")
    return rest[0] if len(rest) == 1 else rest or None


class Buffer:
    def __init__(self, shape, dtype):
        self.host = np.zeros(shape, dtype)
        self.device = check(cudart.cudaMalloc(self.host.nbytes))

    def upload(self, stream):
        kind = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
        check(cudart.cudaMemcpyAsync(self.device, self.host.ctypes.data, self.host.nbytes, kind, stream))

    def download(self, stream):
        kind = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
        check(cudart.cudaMemcpyAsync(self.host.ctypes.data, self.device, self.host.nbytes, kind, stream))

    def free(self):
        check(cudart.cudaFree(self.device))


logger = trt.Logger(trt.Logger.ERROR)
trt.init_libnvinfer_plugins(logger, namespace="")
builder = trt.Builder(logger)
network = builder.create_network(0)
assert trt.OnnxParser(network, logger).parse_from_file(os.path.join(sys.argv[1], "lenet_b.onnx"))
config = builder.create_builder_config()
profile = builder.create_optimization_profile()
name = network.get_input(0).name
profile.set_shape(name, (1, 1, 28, 28), (32, 1, 28, 28), (32, 1, 28, 28))
config.add_optimization_profile(profile)
engine = builder.build_engine_with_config(network, config)
assert engine, "no engine"
context = engine.create_execution_context()
stream = check(cudart.cudaStreamCreate())
digits = np.load(os.path.join(sys.argv[1], "digits_test.npz"))
context.set_input_shape(name, (32, 1, 28, 28))
buffers = {}
for tensor in engine:
    shape = tuple(context.get_tensor_shape(tensor))
    buffers[tensor] = Buffer(shape, trt.nptype(engine.get_tensor_dtype(tensor)))
    assert context.set_tensor_address(tensor, buffers[tensor].device)
    assert context.get_tensor_address(tensor) == buffers[tensor].device
right = 0
for start in range(0, 96, 32):
    buffers[name].host[...] = digits["images"][start : start + 32]
    buffers[name].upload(stream)
    assert context.execute_async_v3(stream)
    for tensor, buffer in buffers.items():
        if engine.get_tensor_mode(tensor) == trt.TensorIOMode.OUTPUT:
            buffer.download(stream)
            check(cudart.cudaStreamSynchronize(stream))
            right += int((buffer.host.argmax(1) == digits["labels"][start : start + 32]).sum())
for buffer in buffers.values():
    buffer.free()
assert cudart.cudaFree(12345)[0] == cudart.cudaError_t.cudaErrorInvalidValue
assert right > 90, right
print("OK")
