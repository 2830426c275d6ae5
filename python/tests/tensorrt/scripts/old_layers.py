# options: --v8
"""Building in the manner of TensorRT 7 and 8: build_engine, dynamic bindings by index, old names of layers and formats."""

import os
import sys

import numpy as np
import tensorrt as trt

DATA, WORK = sys.argv[1:3]
logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
x = network.add_input("in", trt.float32, (-1, 3, 8, 8))
c = network.add_convolution(x, 4, (3, 3), np.ones((4, 3, 3, 3), np.float32), np.zeros(4, np.float32))
c.stride = (2, 2)
c.padding = (1, 1)
p = network.add_pooling(c.get_output(0), trt.PoolingType.MAX, (2, 2))
p.stride = (2, 2)
f = network.add_fully_connected(p.get_output(0), 5, np.ones((5, 16), np.float32), np.arange(5, dtype=np.float32))
f.get_output(0).name = "out"
network.mark_output(f.get_output(0))
config = builder.create_builder_config()
config.max_workspace_size = 1 << 20
config.set_flag(trt.BuilderFlag.STRICT_TYPES)
prof = builder.create_optimization_profile()
prof.set_shape("in", (1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
config.add_optimization_profile(prof)
engine = builder.build_engine(network, config)
assert engine is not None
with open(os.path.join(WORK, "e"), "wb") as fh:
    fh.write(engine.serialize())
context = engine.create_execution_context()
context.active_optimization_profile = 0
assert (
    engine.get_profile_shape(0, "in") == [(1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8)]
    and engine.get_profile_shape(profile_index=0, binding=0)[2][0] == 4
)
assert (
    not context.all_binding_shapes_specified
    and context.set_binding_shape(0, (3, 3, 8, 8))
    and context.all_binding_shapes_specified
)
idx = engine["out"]
assert idx == 1 or engine[1] == "out"
a = np.ones((3, 3, 8, 8), np.float32)
o = np.empty(tuple(context.get_binding_shape(1)), np.float32)
assert context.execute_v2([a.ctypes.data, o.ctypes.data])
pad = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)))
y = np.zeros((3, 4, 4, 4), np.float32)
for i in range(4):
    for j in range(4):
        y[:, :, i, j] = pad[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].sum((1, 2, 3))[:, None]
y = y.reshape(3, 4, 2, 2, 2, 2).max((3, 5)).reshape(3, 16).sum(1)[:, None] + np.arange(5)
np.testing.assert_allclose(o.reshape(3, 5), y, rtol=1e-5)
print("OK")
