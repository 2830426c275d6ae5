# options: --host-cuda
"""Buffers by CUDA's driver interface and by the runtime's with events, streams of priorities, device attributes."""

import ctypes
import os
import sys

import numpy as np
import tensorrt as trt
from cuda import cuda, cudart

DATA, WORK = sys.argv[1:3]


def ASSERT_DRV(err):
    if isinstance(err, cuda.CUresult):
        if err != cuda.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"Cuda Error: {err}")
    else:
        raise RuntimeError("Unknown error type")


(err,) = cuda.cuInit(0)
ASSERT_DRV(err)
err, dev = cuda.cuDeviceGet(0)
ASSERT_DRV(err)
err, name = cuda.cuDeviceGetName(128, dev)
ASSERT_DRV(err)
err, ctx = cuda.cuCtxCreate(0, dev)
ASSERT_DRV(err)
err, stream = cuda.cuStreamCreate(0)
ASSERT_DRV(err)
err, start = cuda.cuEventCreate(0)
ASSERT_DRV(err)
err, end = cuda.cuEventCreate(0)
err, major = cuda.cuDeviceGetAttribute(cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev)
ASSERT_DRV(err)
logger = trt.Logger(trt.Logger.ERROR)
b = trt.Builder(logger)
n = b.create_network()
p = trt.OnnxParser(n, logger)
p.parse_from_file(os.path.join(DATA, "lenet_a.onnx"))
c = b.create_builder_config()
pr = b.create_optimization_profile()
pr.set_shape("input", (1, 1, 28, 28), (8, 1, 28, 28), (8, 1, 28, 28))
c.add_optimization_profile(pr)
e = trt.Runtime(logger).deserialize_cuda_engine(b.build_serialized_network(n, c))
x = e.create_execution_context()
z = np.load(os.path.join(DATA, "digits_test.npz"))
a = np.ascontiguousarray(z["images"][:8])
o = np.zeros((8, 10), np.float32)
err, da = cuda.cuMemAlloc(a.nbytes)
ASSERT_DRV(err)
err, do = cuda.cuMemAlloc(o.nbytes)
ASSERT_DRV(err)
(err,) = cuda.cuMemcpyHtoDAsync(da, a.ctypes.data, a.nbytes, stream)
ASSERT_DRV(err)
x.set_input_shape("input", a.shape)
x.set_tensor_address("input", int(da))
x.set_tensor_address("logits", int(do))
(err,) = cuda.cuEventRecord(start, stream)
ASSERT_DRV(err)
assert x.execute_async_v3(int(stream))
(err,) = cuda.cuEventRecord(end, stream)
(err,) = cuda.cuMemcpyDtoHAsync(o.ctypes.data, do, o.nbytes, stream)
ASSERT_DRV(err)
(err,) = cuda.cuStreamSynchronize(stream)
ASSERT_DRV(err)
err, ms = cuda.cuEventElapsedTime(start, end)
ASSERT_DRV(err)
assert ms >= 0
assert (o.argmax(1) == z["labels"][:8]).all()
for d in (da, do):
    ASSERT_DRV(cuda.cuMemFree(d)[0])
cuda.cuStreamDestroy(stream)
cuda.cuCtxDestroy(ctx)


# the runtime
def call(r):
    assert r[0] == cudart.cudaError_t.cudaSuccess, r
    return r[1] if len(r) == 2 else r[1:]


prop = call(cudart.cudaGetDeviceProperties(0))
print(prop.name, prop.major, prop.minor)
call(cudart.cudaRuntimeGetVersion())
call(cudart.cudaDriverGetVersion())
low, high = call(cudart.cudaDeviceGetStreamPriorityRange())
s = call(cudart.cudaStreamCreateWithPriority(cudart.cudaStreamNonBlocking, high))
e0 = call(cudart.cudaEventCreateWithFlags(cudart.cudaEventDefault))
e1 = call(cudart.cudaEventCreate())
host = call(cudart.cudaHostAlloc(a.nbytes, cudart.cudaHostAllocMapped))
np.ctypeslib.as_array((ctypes.c_float * a.size).from_address(host))[:] = a.ravel()
call(cudart.cudaHostRegister(o.ctypes.data, o.nbytes, cudart.cudaHostRegisterDefault))
d = call(cudart.cudaMalloc(a.nbytes))
d2 = call(cudart.cudaMalloc(o.nbytes))
call(cudart.cudaMemcpy2DAsync(d, 28 * 4, host, 28 * 4, 28 * 4, 28 * 8, cudart.cudaMemcpyKind.cudaMemcpyHostToDevice, s))
call(cudart.cudaMemset(d2, 0, o.nbytes))
call(cudart.cudaEventRecord(e0, s))
x.set_tensor_address("input", d)
x.set_tensor_address("logits", d2)
assert x.execute_async_v3(s)
call(cudart.cudaEventRecord(e1, s))
call(cudart.cudaStreamWaitEvent(s, e1, 0))
call(cudart.cudaEventSynchronize(e1))
assert (
    cudart.cudaEventQuery(e1)[0] == cudart.cudaError_t.cudaSuccess
    and cudart.cudaStreamQuery(s)[0] == cudart.cudaError_t.cudaSuccess
)
assert call(cudart.cudaEventElapsedTime(e0, e1)) >= 0
o[:] = 0
call(cudart.cudaMemcpy(o.ctypes.data, d2, o.nbytes, cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost))
assert (o.argmax(1) == z["labels"][:8]).all()
call(cudart.cudaHostUnregister(o.ctypes.data))
call(cudart.cudaFreeHost(host))
call(cudart.cudaFree(d))
call(cudart.cudaFree(d2))
call(cudart.cudaStreamDestroy(s))
call(cudart.cudaEventDestroy(e0))
assert cudart.cudaGetErrorString(cudart.cudaError_t.cudaErrorInvalidValue)[1]
free, total = call(cudart.cudaMemGetInfo())
n = call(cudart.cudaDeviceGetAttribute(cudart.cudaDeviceAttr.cudaDevAttrMultiProcessorCount, 0))
print("OK")
