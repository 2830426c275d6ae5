# options: --host-cuda
"""Captures runs of a context into a graph of CUDA through cuda-python, launches it for new data, and a second graph for another shape."""

import os
import sys

import numpy as np
import tensorrt as trt
from cuda.bindings import runtime as cudart

DATA, WORK = sys.argv[1:3]


def cuda_call(call):
    err, res = call[0], call[1:]
    if err != cudart.cudaError_t.cudaSuccess:
        raise RuntimeError(err)
    return res[0] if len(res) == 1 else res


class GraphRunner:
    def __init__(self, engine, batch):
        self.stream = cuda_call(cudart.cudaStreamCreateWithFlags(cudart.cudaStreamNonBlocking))
        self.ctx = engine.create_execution_context()
        self.bufs = {}
        self.ctx.set_input_shape("input", (batch, 1, 28, 28))
        for name in engine:
            shape = tuple(self.ctx.get_tensor_shape(name))
            h = np.zeros(shape, trt.nptype(engine.get_tensor_dtype(name)))
            d = cuda_call(cudart.cudaMalloc(h.nbytes))
            self.bufs[name] = (h, d)
            self.ctx.set_tensor_address(name, d)
        self.graph_exec = None

    def body(self):
        h, d = self.bufs["input"]
        cuda_call(
            cudart.cudaMemcpyAsync(
                d, h.ctypes.data, h.nbytes, cudart.cudaMemcpyKind.cudaMemcpyHostToDevice, self.stream
            )
        )
        assert self.ctx.execute_async_v3(self.stream)
        h, d = self.bufs["logits"]
        cuda_call(
            cudart.cudaMemcpyAsync(
                h.ctypes.data, d, h.nbytes, cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost, self.stream
            )
        )

    def capture(self):
        self.body()
        cuda_call(cudart.cudaStreamSynchronize(self.stream))
        cuda_call(
            cudart.cudaStreamBeginCapture(self.stream, cudart.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal)
        )
        assert (
            cuda_call(cudart.cudaStreamIsCapturing(self.stream))
            == cudart.cudaStreamCaptureStatus.cudaStreamCaptureStatusActive
        )
        before = self.bufs["logits"][0].copy()
        self.body()
        graph = cuda_call(cudart.cudaStreamEndCapture(self.stream))
        assert (self.bufs["logits"][0] == before).all()
        self.graph_exec = cuda_call(cudart.cudaGraphInstantiate(graph, 0))
        cuda_call(cudart.cudaGraphDestroy(graph))

    def __call__(self, x):
        np.copyto(self.bufs["input"][0], x)
        cuda_call(cudart.cudaGraphLaunch(self.graph_exec, self.stream))
        cuda_call(cudart.cudaStreamSynchronize(self.stream))
        return self.bufs["logits"][0]


L = trt.Logger(trt.Logger.ERROR)
b = trt.Builder(L)
n = b.create_network(0)
p = trt.OnnxParser(n, L)
assert p.parse_from_file(os.path.join(DATA, "lenet_a.onnx"))
c = b.create_builder_config()
pr = b.create_optimization_profile()
pr.set_shape("input", (1, 1, 28, 28), (4, 1, 28, 28), (8, 1, 28, 28))
c.add_optimization_profile(pr)
e = trt.Runtime(L).deserialize_cuda_engine(b.build_serialized_network(n, c))
z = np.load(os.path.join(DATA, "digits_test.npz"))
rs = {k: GraphRunner(e, k) for k in (1, 4)}
for r in rs.values():
    r.capture()
for i in range(6):
    assert rs[1](z["images"][i : i + 1]).argmax() == z["labels"][i]
    assert (rs[4](z["images"][4 * i : 4 * i + 4]).argmax(1) == z["labels"][4 * i : 4 * i + 4]).all()
r = rs[4]
r.ctx.set_input_shape("input", (2, 1, 28, 28))  # a graph keeps the shapes of its capture
assert (r(z["images"][:4]).argmax(1) == z["labels"][:4]).all()
for r in rs.values():
    cuda_call(cudart.cudaGraphExecDestroy(r.graph_exec))
print("OK")
