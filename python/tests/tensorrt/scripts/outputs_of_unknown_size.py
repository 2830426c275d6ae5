"""Takes outputs whose size only a run determines, by an allocator of the program."""

import numpy as np
import tensorrt as trt


class Allocator(trt.IOutputAllocator):
    def __init__(self):
        trt.IOutputAllocator.__init__(self)
        self.memory = None
        self.shape = None
        self.names = []

    def reallocate_output(self, tensor_name, memory, size, alignment):
        self.names.append(tensor_name)
        self.memory = np.empty(size + alignment, np.uint8)
        start = self.memory.ctypes.data
        self.offset = -start % alignment
        return start + self.offset

    def notify_shape(self, tensor_name, shape):
        self.shape = tuple(shape)

    def array(self, dtype):
        count = trt.volume(self.shape) * np.dtype(dtype).itemsize
        return self.memory[self.offset : self.offset + count].view(dtype).reshape(self.shape)


logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(0)
x = network.add_input("x", trt.float32, (3, 4))
layer = network.add_non_zero(x)
layer.get_output(0).name = "where"
network.mark_output(layer.get_output(0))
plan = builder.build_serialized_network(network, builder.create_builder_config())
assert plan is not None, trt.last_error()
engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
assert tuple(engine.get_tensor_shape("where")) == (2, -1)
context = engine.create_execution_context()
assert context.get_max_output_size("where") >= 2 * 12 * 4
allocator = Allocator()
assert context.set_output_allocator("where", allocator) and context.get_output_allocator("where") is allocator
assert not context.set_output_allocator("x", allocator)
for seed in range(3):
    a = (np.random.default_rng(seed).random((3, 4)) > 0.5).astype(np.float32)
    assert context.set_tensor_address("x", a.ctypes.data)
    assert context.execute_async_v3(0), trt.last_error()
    assert np.array_equal(allocator.array(np.int32), np.stack(np.nonzero(a)))
assert set(allocator.names) == {"where"}
a[:] = 0
assert context.execute_async_v3(0) and allocator.shape == (2, 0)
print("OK")
