"""Serialization with flags: stripped weights, timing caches, runtime config of contexts."""

import sys
import os

import numpy as np
import tensorrt as trt

DATA, WORK = sys.argv[1:3]
L = trt.Logger(trt.Logger.WARNING)
b = trt.Builder(L)
n = b.create_network(0)
p = trt.OnnxParser(n, L)
assert p.parse_from_file(os.path.join(DATA, "lenet_a.onnx"))
c = b.create_builder_config()
c.set_flag(trt.BuilderFlag.REFIT)
pr = b.create_optimization_profile()
pr.set_shape("input", (1, 1, 28, 28), (1, 1, 28, 28), (2, 1, 28, 28))
assert c.add_optimization_profile(pr) == 0
e = b.build_engine_with_config(n, c)
s = e.create_serialization_config()
assert s.clear_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS) in (True, False)
assert s.set_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS) and s.get_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
assert s.flags == 1 << int(trt.SerializationFlag.EXCLUDE_WEIGHTS)
small = e.serialize_with_config(s)
full = e.serialize()
assert small.nbytes < full.nbytes // 2, (small.nbytes, full.nbytes)
assert s.set_flag(trt.SerializationFlag.EXCLUDE_LEAN_RUNTIME) in (True, False)
rt = trt.Runtime(L)
e2 = rt.deserialize_cuda_engine(small)
r = trt.Refitter(e2, L)
missing = r.get_missing_weights()
assert missing
pr_ = trt.OnnxParserRefitter(r, L)
assert pr_.refit_from_file(os.path.join(DATA, "lenet_a.onnx"))
assert r.refit_cuda_engine()
rc = e2.create_runtime_config()
rc.set_execution_context_allocation_strategy(trt.ExecutionContextAllocationStrategy.STATIC)
assert rc.get_execution_context_allocation_strategy() == trt.ExecutionContextAllocationStrategy.STATIC
ctx = e2.create_execution_context(rc)
z = np.load(os.path.join(DATA, "digits_test.npz"))
x = np.ascontiguousarray(z["images"][:2])
y = np.zeros((2, 10), np.float32)
assert (
    ctx.set_input_shape("input", x.shape)
    and ctx.set_tensor_address("input", x.ctypes.data)
    and ctx.set_tensor_address("logits", y.ctypes.data)
)
assert ctx.execute_async_v3(0)
assert (y.argmax(1) == z["labels"][:2]).all()
print("OK")
