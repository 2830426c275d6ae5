# options: --host-cuda
"""A runner in a thread with a pushed context, gpuarray buffers, events with times, ctx.pop at the end."""

import os
import queue
import sys
import threading

import numpy as np
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray
import tensorrt as trt

DATA, WORK = sys.argv[1:3]
drv.init()
TRT_LOGGER = trt.Logger(trt.Logger.INFO)


class Inferer(threading.Thread):
    def __init__(self, path):
        super().__init__()
        self.path = path
        self.q = queue.Queue()
        self.out = queue.Queue()
        self.err = None

    def run(self):
        try:
            self._run()
        except BaseException as e:
            self.err = e
            self.out.put(None)

    def _run(self):
        cfx = drv.Device(0).make_context()
        stream = drv.Stream()
        start, stop = drv.Event(), drv.Event()
        with open(self.path, "rb") as f:
            engine = trt.Runtime(TRT_LOGGER).deserialize_cuda_engine(f.read())
        ctx = engine.create_execution_context()
        inputs, outputs = [], []
        for t in engine:
            size = trt.volume(engine.get_tensor_shape(t))
            dtype = trt.nptype(engine.get_tensor_dtype(t))
            dev = gpuarray.zeros(tuple(engine.get_tensor_shape(t)), dtype)
            host = drv.pagelocked_empty(size, dtype)
            (inputs if engine.get_tensor_mode(t) == trt.TensorIOMode.INPUT else outputs).append((t, host, dev))
            ctx.set_tensor_address(t, int(dev.gpudata))
        while True:
            x = self.q.get()
            if x is None:
                break
            cfx.push()
            np.copyto(inputs[0][1], x.ravel())
            start.record(stream)
            drv.memcpy_htod_async(inputs[0][2].gpudata, inputs[0][1], stream)
            assert ctx.execute_async_v3(stream_handle=stream.handle)
            [drv.memcpy_dtoh_async(h, d.gpudata, stream) for _, h, d in outputs]
            stop.record(stream)
            stop.synchronize()
            stream.synchronize()
            ms = start.time_till(stop)
            assert ms >= 0 and abs(stop.time_since(start) - ms) < 1e-6
            cfx.pop()
            self.out.put(outputs[0][1].copy())
        cfx.detach()


b = trt.Builder(TRT_LOGGER)
n = b.create_network()
p = trt.OnnxParser(n, TRT_LOGGER)
p.parse_from_file(os.path.join(DATA, "lenet_a.onnx"))
n.get_input(0).shape = [1, 1, 28, 28]
c = b.create_builder_config()
plan = b.build_serialized_network(n, c)
assert plan is not None
path = os.path.join(WORK, "e.trt")
with open(path, "wb") as f:
    f.write(bytearray(plan))
z = np.load(os.path.join(DATA, "digits_test.npz"))
t = Inferer(path)
t.start()
for i in range(5):
    t.q.put(z["images"][i : i + 1])
    r = t.out.get(timeout=60)
    if t.err:
        raise t.err
    assert r.argmax() == z["labels"][i]
t.q.put(None)
t.join()
g = gpuarray.to_gpu(np.arange(6, dtype=np.float32).reshape(2, 3))
assert g.shape == (2, 3) and g.nbytes == 24 and g.size == 6 and g.dtype == np.float32 and int(g.gpudata) == g.ptr
np.testing.assert_array_equal(g.get(), np.arange(6).reshape(2, 3))
g.set(np.ones((2, 3), np.float32))
assert g.get().sum() == 6
e = gpuarray.empty((4,), np.int32)
e.fill(7)
assert (e.get() == 7).all()
h = np.empty(4, np.int32)
e.get(h)
assert h[0] == 7
m = drv.managed_empty((4,), np.float32, mem_flags=drv.mem_attach_flags.GLOBAL)
m[:] = 3
assert m.base is not None or m.sum() == 12
assert drv.Device.count() == 1 and isinstance(
    drv.Device(0).get_attribute(drv.device_attribute.MULTIPROCESSOR_COUNT), int
)
print(drv.get_version(), drv.Device(0).name(), drv.mem_get_info())
print("OK")
