"""Output sizes that depend on data: an allocator with the async method, growth, reuse."""

import numpy as np
import tensorrt as trt


class DynamicBuffer(trt.IOutputAllocator):
    def __init__(self):
        trt.IOutputAllocator.__init__(self)
        self.memory, self.size, self.shape, self.calls = None, 0, None, 0

    def reallocate_output_async(self, tensor_name, memory, size, alignment, stream):
        self.calls += 1
        if size > self.size or self.memory is None:
            self.memory = np.zeros(max(size, 1) + alignment, np.uint8)
            self.size = size
        a = self.memory.ctypes.data
        self.alignment = alignment
        return (a + alignment - 1) // alignment * alignment

    def notify_shape(self, tensor_name, shape):
        self.shape = tuple(shape)

    def array(self, dtype):
        n = int(np.prod(self.shape)) * np.dtype(dtype).itemsize
        off = (-self.memory.ctypes.data) % self.alignment
        return self.memory[off : off + n].view(dtype).reshape(self.shape)


logger = trt.Logger(trt.Logger.ERROR)
b = trt.Builder(logger)
n = b.create_network()
x = n.add_input("x", trt.float32, (-1, -1))
nz = n.add_non_zero(x)
idx = nz.get_output(0)
tr = n.add_shuffle(idx)
tr.first_transpose = trt.Permutation([1, 0])
vals = n.add_gather_v2(x, tr.get_output(0), trt.GatherMode.ND)
tr.get_output(0).name = "where"
vals.get_output(0).name = "values"
n.mark_output(tr.get_output(0))
n.mark_output(vals.get_output(0))
c = b.create_builder_config()
p = b.create_optimization_profile()
p.set_shape("x", (1, 1), (4, 4), (64, 64))
c.add_optimization_profile(p)
e = trt.Runtime(logger).deserialize_cuda_engine(b.build_serialized_network(n, c))
ctx = e.create_execution_context()
allocs = {name: DynamicBuffer() for name in e if e.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT}
for k, a in allocs.items():
    assert ctx.set_output_allocator(k, a)
    assert ctx.get_output_allocator(k) is a
assert -1 in tuple(e.get_tensor_shape("where"))
for seed, shape in enumerate([(4, 4), (64, 33), (1, 7), (3, 64)]):
    v = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    v[v < 0.2] = 0
    v = np.ascontiguousarray(v)
    ctx.set_input_shape("x", shape)
    ctx.set_tensor_address("x", v.ctypes.data)
    assert ctx.execute_async_v3(0), trt.last_error()
    w = np.argwhere(v)
    got = allocs["where"].array(trt.nptype(e.get_tensor_dtype("where")))
    assert got.shape == w.shape, (got.shape, w.shape)
    np.testing.assert_array_equal(got, w)
    np.testing.assert_array_equal(allocs["values"].array(np.float32), v[v != 0])
print("OK")
