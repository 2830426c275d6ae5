"""New weights for an engine whose contexts live on, profiles of layers, and an output that the program allocates."""

import sys

import numpy as np
import tensorrt as trt
import torch

digits = np.load(sys.argv[2])
device = "cuda" if torch.cuda.is_available() else "cpu"
logger = trt.Logger(trt.Logger.WARNING)
builder = trt.Builder(logger)
network = builder.create_network(0)
rng = np.random.default_rng(5)
first = rng.standard_normal((32, 8), np.float32)
x = network.add_input("x", trt.float32, (4, 32))
constant = network.add_constant((32, 8), first)
constant.name = "w"
none = trt.MatrixOperation.NONE
product = network.add_matrix_multiply(x, none, constant.get_output(0), none).get_output(0)
relu = network.add_activation(product, trt.ActivationType.RELU).get_output(0)
places = network.add_non_zero(relu).get_output(0)
for tensor, name in ((relu, "y"), (places, "places")):
    tensor.name = name
    network.mark_output(tensor)
config = builder.create_builder_config()
config.builder_optimization_level = 1
config.set_flag(trt.BuilderFlag.REFIT)
config.clear_flag(trt.BuilderFlag.TF32)
engine = trt.Runtime(logger).deserialize_cuda_engine(builder.build_serialized_network(network, config))
context = engine.create_execution_context()


class Allocator(trt.IOutputAllocator):
    def __init__(self):
        trt.IOutputAllocator.__init__(self)
        self.memory, self.shape = None, None

    def reallocate_output(self, tensor_name, memory, size, alignment):
        self.memory = torch.empty(size, dtype=torch.uint8, device=device)
        return self.memory.data_ptr()

    def notify_shape(self, tensor_name, shape):
        self.shape = tuple(shape)


class Times(trt.IProfiler):
    def __init__(self):
        trt.IProfiler.__init__(self)
        self.layers = {}

    def report_layer_time(self, layer_name, ms):
        self.layers[layer_name] = ms


allocator = Allocator()
assert context.set_output_allocator("places", allocator)
given = torch.from_numpy(rng.standard_normal((4, 32)).astype(np.float32)).to(device)
y = torch.empty(4, 8, device=device)
context.set_tensor_address("x", given.data_ptr())
context.set_tensor_address("y", y.data_ptr())
stream = torch.cuda.Stream() if device == "cuda" else None
if stream is not None:
    torch.cuda.synchronize()


def check(weights):
    assert context.execute_async_v3(stream.cuda_stream if stream is not None else 0)
    if stream is not None:
        stream.synchronize()
    wanted = torch.relu(given.double().cpu() @ torch.from_numpy(weights).double())
    torch.testing.assert_close(y.cpu().double(), wanted, rtol=1e-4, atol=1e-4)
    where = y.cpu().nonzero().t()
    assert allocator.shape == tuple(where.shape), (allocator.shape, where.shape)
    width = 8 if engine.get_tensor_dtype("places") == trt.int64 else 4
    bits = allocator.memory[: where.numel() * width].cpu().numpy().tobytes()
    found = np.frombuffer(bits, np.int64 if width == 8 else np.int32).reshape(where.shape)
    assert (found == where.numpy()).all()


check(first)
second = rng.standard_normal((32, 8), np.float32)
refitter = trt.Refitter(engine, logger)
layers, roles = refitter.get_all()
assert "w" in layers, layers
assert refitter.set_weights("w", roles[layers.index("w")], second)
assert refitter.refit_cuda_engine()
check(second)
times = Times()
context.profiler = times
check(second)
if stream is not None:
    context.report_to_profiler()
assert times.layers, "layers have times"
print("OK")
