# options: --host-cuda
"""Buffers as public samples have them: page-locked memory by address, a view of it as an array, checks of both APIs."""

import ctypes
import os
import sys
from typing import Optional

import numpy as np
import tensorrt as trt
from cuda.bindings import driver as cuda
from cuda.bindings import runtime as cudart


def check_cuda_err(err):
    if isinstance(err, cuda.CUresult):
        if err != cuda.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"Cuda Error: {err}")
    elif isinstance(err, cudart.cudaError_t):
        if err != cudart.cudaError_t.cudaSuccess:
            raise RuntimeError(f"Cuda Runtime Error: {err}")
    else:
        raise RuntimeError(f"Unknown error type: {err}")


def cuda_call(call):
    err, res = call[0], call[1:]
    check_cuda_err(err)
    return res[0] if len(res) == 1 else res


class HostDeviceMem:
    """A pair of host and device memory, the host's as an array."""

    def __init__(self, size: int, dtype: Optional[np.dtype] = None):
        dtype = dtype or np.dtype(np.uint8)
        nbytes = size * dtype.itemsize
        host_mem = cuda_call(cudart.cudaMallocHost(nbytes))
        pointer_type = ctypes.POINTER(np.ctypeslib.as_ctypes_type(dtype))
        self._host = np.ctypeslib.as_array(ctypes.cast(host_mem, pointer_type), (size,))
        self._device = cuda_call(cudart.cudaMalloc(nbytes))
        self._nbytes = nbytes

    @property
    def host(self):
        return self._host

    @host.setter
    def host(self, data):
        if data.size > self.host.size:
            raise ValueError(f"Tried to fit {data.size} elements into {self.host.size}")
        np.copyto(self.host[: data.size], data.flat, casting="safe")

    def free(self):
        cuda_call(cudart.cudaFree(self._device))
        cuda_call(cudart.cudaFreeHost(self.host.ctypes.data))


logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(0)
parser = trt.OnnxParser(network, logger)
assert parser.parse_from_file(os.path.join(sys.argv[1], "lenet_a.onnx"))
profile = builder.create_optimization_profile()
profile.set_shape("input", (1, 1, 28, 28), (1, 1, 28, 28), (4, 1, 28, 28))
config = builder.create_builder_config()
config.add_optimization_profile(profile)
runtime = trt.Runtime(logger)
engine = runtime.deserialize_cuda_engine(builder.build_serialized_network(network, config))
context = engine.create_execution_context()
assert context.set_input_shape("input", (4, 1, 28, 28))
stream = cuda_call(cudart.cudaStreamCreate())
buffers = {}
for binding in [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]:
    is_input = engine.get_tensor_mode(binding) == trt.TensorIOMode.INPUT
    shape = engine.get_tensor_profile_shape(binding, 0)[-1] if is_input else context.get_tensor_shape(binding)
    assert np.all([s >= 0 for s in shape])
    size = trt.volume(shape)
    buffers[binding] = HostDeviceMem(size, np.dtype(trt.nptype(engine.get_tensor_dtype(binding))))
    context.set_tensor_address(binding, buffers[binding]._device)
digits = np.load(os.path.join(sys.argv[1], "digits_test.npz"))
mem = buffers["input"]
for start in (0, 4, 8):
    mem.host = digits["images"][start : start + 4]
    up, down = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice, cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
    cuda_call(cudart.cudaMemcpyAsync(mem._device, mem.host, mem._nbytes, up, stream))
    assert context.execute_async_v3(stream_handle=stream)
    out = buffers["logits"]
    cuda_call(cudart.cudaMemcpyAsync(out.host, out._device, out._nbytes, down, stream))
    cuda_call(cudart.cudaStreamSynchronize(stream))
    assert (out.host.reshape(4, 10).argmax(1) == digits["labels"][start : start + 4]).all()
a = np.empty(engine.get_tensor_profile_shape("input", 0)[0], dtype=np.float32)
assert a.shape == (1, 1, 28, 28) and np.prod(context.get_tensor_shape("logits")) == 40
cuda_call(cudart.cudaStreamDestroy(stream))
for buffer in buffers.values():
    buffer.free()
print("OK")
