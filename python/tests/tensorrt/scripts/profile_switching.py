"""Three profiles chosen by batch with set_optimization_profile_async, min/opt/max queries and extra memory; context per profile."""

import sys
import os

import numpy as np
import tensorrt as trt

DATA, WORK = sys.argv[1:3]
L = trt.Logger(trt.Logger.ERROR)
b = trt.Builder(L)
n = b.create_network()
p = trt.OnnxParser(n, L)
assert p.parse_from_file(os.path.join(DATA, "lenet_b.onnx"))
c = b.create_builder_config()
for lo, mid, hi in [(1, 1, 1), (2, 8, 16), (17, 32, 64)]:
    pr = b.create_optimization_profile()
    pr.set_shape("input", (lo, 1, 28, 28), (mid, 1, 28, 28), (hi, 1, 28, 28))
    assert bool(pr)
    assert pr.get_shape("input")[2][0] == hi
    c.add_optimization_profile(pr)
assert c.num_optimization_profiles == 3
e = b.build_engine_with_config(n, c)
assert e.num_optimization_profiles == 3
z = np.load(os.path.join(DATA, "digits_test.npz"))
right = 0
total = 0
ctx = e.create_execution_context()
for k in (1, 5, 16, 17, 64):
    i = next(
        i
        for i in range(3)
        if e.get_tensor_profile_shape("input", i)[0][0] <= k <= e.get_tensor_profile_shape("input", i)[2][0]
    )
    assert ctx.set_optimization_profile_async(i, 0)
    assert ctx.active_optimization_profile == i
    x = np.ascontiguousarray(z["images"][:k])
    y = np.empty((k, 10), np.float32)
    assert ctx.set_input_shape("input", x.shape)
    assert ctx.all_binding_shapes_specified and ctx.infer_shapes() == []
    assert ctx.execute_v2([x.ctypes.data, y.ctypes.data])
    right += (y.argmax(1) == z["labels"][:k]).sum()
    total += k
assert right >= total * 0.95
assert not ctx.set_optimization_profile_async(3, 0)
assert not ctx.set_input_shape("input", (2, 1, 28, 28)) or ctx.infer_shapes() is not None
ctx2 = e.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
assert e.device_memory_size_v2 >= 0 and e.get_device_memory_size_for_profile_v2(1) >= 0
print("OK")
