"""Marks tensors for debugging and receives them while an engine runs."""

import ctypes

import numpy as np
import tensorrt as trt


class Listener(trt.IDebugListener):
    def __init__(self):
        trt.IDebugListener.__init__(self)
        self.seen = {}

    def process_debug_tensor(self, addr, location, type, shape, name, stream):
        count = trt.volume(shape)
        assert location in (trt.TensorLocation.HOST, trt.TensorLocation.DEVICE) and type == trt.float32
        data = (ctypes.c_float * count).from_address(addr)
        self.seen[name] = np.array(data, dtype=np.float32).reshape(tuple(shape))
        return True


logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(0)
x = network.add_input("x", trt.float32, (2, 3))
doubled = network.add_elementwise(x, x, trt.ElementWiseOperation.SUM).get_output(0)
doubled.name = "doubled"
root = network.add_unary(doubled, trt.UnaryOperation.SQRT).get_output(0)
root.name = "root"
network.mark_output(root)
assert network.mark_debug(doubled) and network.is_debug_tensor(doubled) and not network.is_debug_tensor(root)
assert network.mark_debug(x) and network.unmark_debug(x) and not network.unmark_debug(x)
plan = builder.build_serialized_network(network, builder.create_builder_config())
engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
assert engine.is_debug_tensor("doubled") and not engine.is_debug_tensor("root")
context = engine.create_execution_context()
listener = Listener()
assert context.set_debug_listener(listener) and context.get_debug_listener() is listener
a = np.arange(6, dtype=np.float32).reshape(2, 3)
y = np.empty((2, 3), np.float32)
bindings = [a.ctypes.data, y.ctypes.data]
assert context.set_tensor_debug_state("doubled", True) and context.get_debug_state("doubled")
assert context.execute_v2(bindings)
assert np.allclose(listener.seen["doubled"], a * 2) and np.allclose(y, np.sqrt(a * 2))
listener.seen.clear()
assert context.set_all_tensors_debug_state(False) and not context.get_debug_state("doubled")
assert context.execute_v2(bindings) and not listener.seen
assert not context.set_tensor_debug_state("no_such_tensor", True)
print("OK")
