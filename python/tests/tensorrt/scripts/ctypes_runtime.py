# options: --host-cuda
"""A runner that calls libcudart by ctypes, with wrappers that raise the text of an error, and a class that owns pairs of buffers."""

import ctypes
import os
import sys

import numpy as np
import tensorrt as trt

DATA, WORK = sys.argv[1:3]
cudart = ctypes.CDLL("libcudart.so")
cudart.cudaGetErrorString.restype = ctypes.c_char_p
cudart.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
cudart.cudaMalloc.restype = ctypes.c_int


def check(code):
    if code != 0:
        raise RuntimeError(cudart.cudaGetErrorString(code).decode())


class Pair:
    def __init__(self, shape, dtype):
        self.host = np.zeros(shape, dtype)
        self.ptr = ctypes.c_void_p()
        check(cudart.cudaMalloc(ctypes.byref(self.ptr), self.host.nbytes))

    def up(self, s):
        check(
            cudart.cudaMemcpyAsync(
                self.ptr, ctypes.c_void_p(self.host.ctypes.data), ctypes.c_size_t(self.host.nbytes), 1, s
            )
        )

    def down(self, s):
        check(
            cudart.cudaMemcpyAsync(
                ctypes.c_void_p(self.host.ctypes.data), self.ptr, self.host.nbytes, ctypes.c_int(2), s
            )
        )


stream = ctypes.c_void_p()
check(cudart.cudaStreamCreate(ctypes.byref(stream)))
a, b_ = ctypes.c_void_p(), ctypes.c_void_p()
check(cudart.cudaEventCreate(ctypes.byref(a)))
check(cudart.cudaEventCreate(ctypes.byref(b_)))
free, total = ctypes.c_size_t(), ctypes.c_size_t()
check(cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
assert total.value >= free.value > 0
v = ctypes.c_int()
check(cudart.cudaRuntimeGetVersion(ctypes.byref(v)))
assert v.value > 0
L = trt.Logger(trt.Logger.ERROR)
b = trt.Builder(L)
n = b.create_network(0)
p = trt.OnnxParser(n, L)
assert p.parse_from_file(os.path.join(DATA, "lenet_a.onnx"))
c = b.create_builder_config()
pr = b.create_optimization_profile()
pr.set_shape("input", (2, 1, 28, 28), (2, 1, 28, 28), (2, 1, 28, 28))
c.add_optimization_profile(pr)
e = trt.Runtime(L).deserialize_cuda_engine(b.build_serialized_network(n, c))
ctx = e.create_execution_context()
bufs = {name: Pair(tuple(ctx.get_tensor_shape(name)), trt.nptype(e.get_tensor_dtype(name))) for name in e}
for name, q in bufs.items():
    assert ctx.set_tensor_address(name, q.ptr.value)
z = np.load(os.path.join(DATA, "digits_test.npz"))
bufs["input"].host[...] = z["images"][:2]
check(cudart.cudaEventRecord(a, stream))
bufs["input"].up(stream)
assert ctx.execute_async_v3(stream.value)
bufs["logits"].down(stream)
check(cudart.cudaEventRecord(b_, stream))
check(cudart.cudaStreamSynchronize(stream))
ms = ctypes.c_float()
check(cudart.cudaEventElapsedTime(ctypes.byref(ms), a, b_))
assert ms.value >= 0
assert (bufs["logits"].host.argmax(1) == z["labels"][:2]).all()
for q in bufs.values():
    check(cudart.cudaFree(q.ptr))
assert cudart.cudaFree(ctypes.c_void_p(12345)) != 0
print("OK")
