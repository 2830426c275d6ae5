"""Data-dependent outputs through reallocate_output_async with ctypes buffers, then a plain binding of the greatest size."""

import ctypes

import numpy as np
import tensorrt as trt


class OA(trt.IOutputAllocator):
    def __init__(self):
        trt.IOutputAllocator.__init__(self)
        self.buffers = {}
        self.shapes = {}

    def reallocate_output_async(self, tensor_name, memory, size, alignment, stream):
        raw = (ctypes.c_uint8 * (size + alignment))()
        at = ctypes.addressof(raw)
        self.buffers[tensor_name] = raw
        self.at = (at + alignment - 1) // alignment * alignment
        return self.at

    def notify_shape(self, tensor_name, shape):
        self.shapes[tensor_name] = tuple(shape)


L = trt.Logger(trt.Logger.ERROR)
b = trt.Builder(L)
n = b.create_network()
s = n.add_input("scores", trt.float32, (-1,))
th = n.add_constant((1,), np.array([0.5], np.float32)).get_output(0)
keep = n.add_elementwise(s, th, trt.ElementWiseOperation.GREATER).get_output(0)
idx = n.add_non_zero(keep).get_output(0)
idx.name = "idx"
sh = n.add_shuffle(idx)
sh.reshape_dims = (-1,)
sel = n.add_gather(s, sh.get_output(0), 0).get_output(0)
sel.name = "kept"
for t in (idx, sel):
    n.mark_output(t)
c = b.create_builder_config()
p = b.create_optimization_profile()
p.set_shape("scores", (1,), (8,), (32,))
c.add_optimization_profile(p)
e = b.build_engine_with_config(n, c)
ctx = e.create_execution_context()
oa = OA()
for t in ("idx", "kept"):
    assert ctx.set_output_allocator(t, oa)
assert ctx.get_output_allocator("kept") is oa
for k in (3, 32):
    x = np.random.default_rng(k).random(k).astype(np.float32)
    ctx.set_input_shape("scores", (k,))
    ctx.set_tensor_address("scores", x.ctypes.data)
    assert ctx.execute_async_v3(0)
    m = oa.shapes["kept"][0]
    assert m == (x > 0.5).sum()
    got = np.frombuffer((ctypes.c_float * m).from_address(oa.at), np.float32) if m else np.zeros(0)
    assert np.allclose(np.sort(got), np.sort(x[x > 0.5]))
assert ctx.get_max_output_size("kept") >= 32 * 4
print("OK")
