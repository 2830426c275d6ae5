# options: --host-cuda
"""A runner with cupy arrays: addresses by data.ptr, streams with a context, results by asnumpy and get."""

import os
import sys

import cupy as cp
import numpy as np
import tensorrt as trt

DATA, WORK = sys.argv[1:3]


class CupyEngine:
    def __init__(self, plan, device=0):
        cp.cuda.Device(device).use()
        self.logger = trt.Logger(trt.Logger.WARNING)
        self.engine = trt.Runtime(self.logger).deserialize_cuda_engine(plan)
        self.context = self.engine.create_execution_context()
        self.stream = cp.cuda.Stream(non_blocking=True)

    def __call__(self, **feeds):
        outs = {}
        with self.stream:
            keep = []
            for i in range(self.engine.num_io_tensors):
                name = self.engine.get_tensor_name(i)
                if self.engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
                    a = cp.ascontiguousarray(
                        cp.asarray(feeds[name]).astype(trt.nptype(self.engine.get_tensor_dtype(name)))
                    )
                    keep.append(a)
                    assert self.context.set_input_shape(name, a.shape)
                    self.context.set_tensor_address(name, a.data.ptr)
            for i in range(self.engine.num_io_tensors):
                name = self.engine.get_tensor_name(i)
                if self.engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT:
                    outs[name] = cp.empty(
                        tuple(self.context.get_tensor_shape(name)), dtype=trt.nptype(self.engine.get_tensor_dtype(name))
                    )
                    self.context.set_tensor_address(name, int(outs[name].data.ptr))
            assert self.context.execute_async_v3(self.stream.ptr)
        self.stream.synchronize()
        return outs


L = trt.Logger(trt.Logger.ERROR)
b = trt.Builder(L)
n = b.create_network(0)
p = trt.OnnxParser(n, L)
assert p.parse_from_file(os.path.join(DATA, "lenet_a.onnx"))
c = b.create_builder_config()
pr = b.create_optimization_profile()
pr.set_shape("input", (1, 1, 28, 28), (4, 1, 28, 28), (8, 1, 28, 28))
c.add_optimization_profile(pr)
run = CupyEngine(b.build_serialized_network(n, c))
z = np.load(os.path.join(DATA, "digits_test.npz"))
out = run(input=z["images"][:5])["logits"]
assert (
    (cp.asnumpy(cp.argmax(out, axis=1)) == z["labels"][:5]).all()
    and out.get().shape == (5, 10)
    and isinstance(out.get(), np.ndarray)
)
x = cp.zeros((3, 4), cp.float32)
assert x.data.ptr % 256 == 0 and x.nbytes == 48 and x.device.id == 0
x += 2
x[0] = 1
assert float(x.sum()) == 20 and cp.get_array_module(x) is cp and cp.get_array_module(np.ones(1)) is np
m = cp.cuda.alloc(48)
v = cp.ndarray((3, 4), cp.float32, m)
v[...] = x
assert v.data.ptr == m.ptr and (v.get() == x.get()).all()
v.set(np.ones((3, 4), np.float32))
assert cp.asnumpy(v).sum() == 12
cp.cuda.runtime.deviceSynchronize()
cp.cuda.Stream.null.synchronize()
print("OK")
