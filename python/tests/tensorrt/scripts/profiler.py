"""Collects times of layers, at once and on request."""

import os
import sys

import numpy as np
import tensorrt as trt


class SimpleProfiler(trt.IProfiler):
    def __init__(self, name):
        trt.IProfiler.__init__(self)
        self.name = name
        self.layers = {}
        self.calls = 0

    def report_layer_time(self, layer_name, ms):
        assert isinstance(layer_name, str) and ms >= 0
        self.layers[layer_name] = self.layers.get(layer_name, 0) + ms
        self.calls += 1


logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(0)
assert trt.OnnxParser(network, logger).parse_from_file(os.path.join(sys.argv[1], "lenet_a.onnx"))
network.get_input(0).shape = (4, 1, 28, 28)
config = builder.create_builder_config()
config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
plan = builder.build_serialized_network(network, config)
engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
context = engine.create_execution_context()
x = np.random.default_rng(1).random((4, 1, 28, 28), dtype=np.float32)
y = np.empty((4, 10), np.float32)
bindings = [x.ctypes.data, y.ctypes.data]
profiler = SimpleProfiler("first")
context.profiler = profiler
assert context.profiler is profiler and context.enqueue_emits_profile
assert context.execute_v2(bindings) and context.execute_v2(bindings)
assert profiler.calls == 2 * len(profiler.layers) and len(profiler.layers) == engine.num_layers
assert any("conv1" in name for name in profiler.layers)
later = SimpleProfiler("later")
context.profiler = later
context.enqueue_emits_profile = False
for name, address in zip(engine, bindings):
    context.set_tensor_address(name, address)
assert context.execute_async_v3(0) and later.calls == 0
assert context.report_to_profiler() and later.calls == engine.num_layers
context.profiler = trt.Profiler()
context.enqueue_emits_profile = True
assert context.execute_async_v3(0)
context.profiler = None
assert context.execute_v2(bindings) and not context.report_to_profiler()
print("OK")
