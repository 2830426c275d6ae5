# options: --host-cuda
"""Allocates and copies by classes over cuda-python, with checked calls and page-locked arrays, for the largest profile shape."""

import ctypes
import os
import sys
from typing import List, Optional, Union

import numpy as np
import tensorrt as trt
from cuda.bindings import runtime as cudart

data = sys.argv[1]


def check_cuda_err(err):
    if isinstance(err, cudart.cudaError_t):
        if err != cudart.cudaError_t.cudaSuccess:
            raise RuntimeError("Cuda Runtime Error: {}".format(err))
    else:
        raise RuntimeError("Unknown error type: {}".format(err))


def cuda_call(call):
    err, res = call[0], call[1:]
    check_cuda_err(err)
    if len(res) == 1:
        res = res[0]
    return res


class HostDeviceMem:
    """Pair of host and device memory, where the host memory is wrapped in a numpy array"""

    def __init__(self, size: int, dtype: Optional[np.dtype] = None):
        dtype = dtype or np.dtype(np.uint8)
        nbytes = size * dtype.itemsize
        host_mem = cuda_call(cudart.cudaMallocHost(nbytes))
        pointer_type = ctypes.POINTER(np.ctypeslib.as_ctypes_type(dtype))
        self._host = np.ctypeslib.as_array(ctypes.cast(host_mem, pointer_type), (size,))
        self._device = cuda_call(cudart.cudaMalloc(nbytes))
        self._nbytes = nbytes

    @property
    def host(self) -> np.ndarray:
        return self._host

    @host.setter
    def host(self, data: Union[np.ndarray, bytes]):
        if isinstance(data, np.ndarray):
            if data.size > self.host.size:
                raise ValueError(f"Tried to fit an array of size {data.size} into host memory of size {self.host.size}")
            np.copyto(self.host[: data.size], data.flat, casting="safe")
        else:
            assert self.host.dtype == np.uint8
            self.host[: self.nbytes] = np.frombuffer(data, dtype=np.uint8)

    @property
    def device(self) -> int:
        return self._device

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def __repr__(self):
        return f"Host:\n{self.host}\nDevice:\n{self.device}\nSize:\n{self.nbytes}\n"

    def free(self):
        cuda_call(cudart.cudaFree(self.device))
        cuda_call(cudart.cudaFreeHost(self.host.ctypes.data))


def allocate_buffers(engine: trt.ICudaEngine, profile_idx: Optional[int] = None):
    inputs, outputs, bindings = [], [], []
    stream = cuda_call(cudart.cudaStreamCreate())
    tensor_names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    for binding in tensor_names:
        shape = engine.get_tensor_shape(binding) if profile_idx is None else engine.get_tensor_profile_shape(binding, profile_idx)[-1]
        shape_valid = np.all([s >= 0 for s in shape])
        if not shape_valid and profile_idx is None:
            raise ValueError(f"Binding {binding} has dynamic shape, but no profile was specified.")
        size = trt.volume(shape)
        trt_type = engine.get_tensor_dtype(binding)
        try:
            dtype = np.dtype(trt.nptype(trt_type))
            bindingMemory = HostDeviceMem(size, dtype)
        except TypeError:
            size = int(size * trt_type.itemsize)
            bindingMemory = HostDeviceMem(size)
        bindings.append(int(bindingMemory.device))
        (inputs if engine.get_tensor_mode(binding) == trt.TensorIOMode.INPUT else outputs).append(bindingMemory)
    return inputs, outputs, bindings, stream


def free_buffers(inputs: List[HostDeviceMem], outputs: List[HostDeviceMem], stream):
    for mem in inputs + outputs:
        mem.free()
    cuda_call(cudart.cudaStreamDestroy(stream))


def memcpy_host_to_device(device_ptr: int, host_arr: np.ndarray):
    cuda_call(cudart.cudaMemcpy(device_ptr, host_arr, host_arr.size * host_arr.itemsize, cudart.cudaMemcpyKind.cudaMemcpyHostToDevice))


def _do_inference_base(inputs, outputs, stream, execute_async_func):
    kind = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
    [cuda_call(cudart.cudaMemcpyAsync(inp.device, inp.host, inp.nbytes, kind, stream)) for inp in inputs]
    execute_async_func()
    kind = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
    [cuda_call(cudart.cudaMemcpyAsync(out.host, out.device, out.nbytes, kind, stream)) for out in outputs]
    cuda_call(cudart.cudaStreamSynchronize(stream))
    return [out.host for out in outputs]


def do_inference(context, engine, bindings, inputs, outputs, stream):
    def execute_async_func():
        context.execute_async_v3(stream_handle=stream)

    num_io = engine.num_io_tensors
    for i in range(num_io):
        context.set_tensor_address(engine.get_tensor_name(i), bindings[i])
    return _do_inference_base(inputs, outputs, stream, execute_async_func)


logger = trt.Logger(trt.Logger.WARNING)
builder = trt.Builder(logger)
network = builder.create_network(0)
config = builder.create_builder_config()
parser = trt.OnnxParser(network, logger)
config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 28)
with open(os.path.join(data, "lenet_a.onnx"), "rb") as model:
    assert parser.parse(model.read())
network.get_input(0).shape = [5, 1, 28, 28]
plan = builder.build_serialized_network(network, config)
engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
assert tuple(engine.get_tensor_shape("input")) == (5, 1, 28, 28)
inputs, outputs, bindings, stream = allocate_buffers(engine)
context = engine.create_execution_context()
images, labels = (np.load(f"{data}/digits_test.npz")[n] for n in ("images", "labels"))
right = 0
for i in range(0, 100, 5):
    inputs[0].host = images[i : i + 5].ravel()
    output = do_inference(context, engine, bindings, inputs, outputs, stream)
    right += int((output[0].reshape(5, 10).argmax(1) == labels[i : i + 5]).sum())
assert right > 90, right
memcpy_host_to_device(inputs[0].device, np.zeros((5, 784), np.float32))
assert context.execute_v2(bindings)
free_buffers(inputs, outputs, stream)
err, count = cudart.cudaGetDeviceCount()
assert err == cudart.cudaError_t.cudaSuccess and count == 1
print("OK")
