"""An error recorder as the samples have it, shared by builder, runtime, engine and contexts; a pool of threads with a context each."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorrt as trt

DATA, WORK = sys.argv[1:3]


class Recorder(trt.IErrorRecorder):
    MAX_DESC = 127

    def __init__(self):
        trt.IErrorRecorder.__init__(self)
        self.errors = []
        self.lock = threading.Lock()

    def get_num_errors(self):
        return len(self.errors)

    num_errors = property(lambda self: len(self.errors))

    def get_error_code(self, i):
        return self.errors[i][0]

    def get_error_desc(self, i):
        return self.errors[i][1]

    def has_overflowed(self):
        return False

    def clear(self):
        self.errors.clear()

    def report_error(self, code, desc):
        with self.lock:
            self.errors.append((code, desc))
        return True


L = trt.Logger(trt.Logger.INTERNAL_ERROR)
rec = Recorder()
b = trt.Builder(L)
b.error_recorder = rec
n = b.create_network(0)
n.error_recorder = rec
x = n.add_input("x", trt.float32, (2, 3))
y = n.add_input("y", trt.float32, (4, 5))
assert n.add_elementwise(x, y, trt.ElementWiseOperation.SUM) is None
assert (
    rec.num_errors == 1 and rec.get_error_code(0) in trt.ErrorCodeTRT.__members__.values() and rec.get_error_desc(0)
), rec.errors
rec.clear()
assert b.build_serialized_network(n, b.create_builder_config()) is None and rec.num_errors == 1
rec.clear()
n = b.create_network(0)
p = trt.OnnxParser(n, L)
assert p.parse_from_file(os.path.join(DATA, "lenet_a.onnx"))
c = b.create_builder_config()
pr = b.create_optimization_profile()
pr.set_shape("input", (1, 1, 28, 28), (4, 1, 28, 28), (8, 1, 28, 28))
c.add_optimization_profile(pr)
plan = b.build_serialized_network(n, c)
assert not rec.errors
rt = trt.Runtime(L)
rt.error_recorder = rec
assert rt.deserialize_cuda_engine(bytes(plan)[: len(plan) // 2]) is None and rec.num_errors == 1
rec.clear()
e = rt.deserialize_cuda_engine(plan)
e.error_recorder = rec
z = np.load(os.path.join(DATA, "digits_test.npz"))
local = threading.local()


def work(i):
    if not hasattr(local, "ctx"):
        local.ctx = e.create_execution_context()
        local.ctx.error_recorder = rec
    k = i % 8 + 1
    a = np.ascontiguousarray(z["images"][i : i + k])
    o = np.empty((k, 10), np.float32)
    assert local.ctx.set_input_shape("input", a.shape)
    local.ctx.set_tensor_address("input", a.ctypes.data)
    local.ctx.set_tensor_address("logits", o.ctypes.data)
    assert local.ctx.execute_async_v3(0)
    return (o.argmax(1) == z["labels"][i : i + k]).mean()


with ThreadPoolExecutor(4) as pool:
    got = list(pool.map(work, range(200)))
assert np.mean(got) > 0.95 and not rec.errors
ctx = e.create_execution_context()
assert not ctx.set_input_shape("input", (9, 1, 28, 28)) and rec.num_errors == 1
assert not ctx.execute_async_v3(0) and rec.num_errors == 2 and not ctx.set_tensor_address("nope", 5)
assert e.get_tensor_mode("nope") == trt.TensorIOMode.NONE
print("OK")
