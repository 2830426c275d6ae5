"""Caches engines in a folder by hash and version, and serves requests of several threads from a pool of contexts."""

import hashlib
import os
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np
import tensorrt as trt

data, work = sys.argv[1:3]
TRT_LOGGER = trt.Logger(trt.Logger.ERROR)
trt.init_libnvinfer_plugins(TRT_LOGGER, "")


class EngineCache:
    def __init__(self, folder):
        self.folder = folder
        self.builds = 0
        os.makedirs(folder, exist_ok=True)

    def key(self, model, **options):
        text = repr((trt.__version__, sorted(options.items())))
        return hashlib.sha256(model + text.encode()).hexdigest()[:16]

    def get(self, model, max_batch, fp16):
        path = os.path.join(self.folder, f"{self.key(model, max_batch=max_batch, fp16=fp16)}.trt")
        runtime = trt.Runtime(TRT_LOGGER)
        runtime.max_threads = 4
        if os.path.exists(path):
            with open(path, "rb") as f:
                engine = runtime.deserialize_cuda_engine(f.read())
            if engine is not None:
                return engine
            os.remove(path)
        self.builds += 1
        builder = trt.Builder(TRT_LOGGER)
        builder.max_threads = 2
        network = builder.create_network(0)
        parser = trt.OnnxParser(network, TRT_LOGGER)
        assert parser.parse(model)
        config = builder.create_builder_config()
        config.builder_optimization_level = 1
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.NONE
        if fp16:
            config.set_flag(trt.BuilderFlag.FP16)
        for lo, hi in ((1, 1), (1, max_batch)):
            profile = builder.create_optimization_profile()
            profile.set_shape("input", (lo, 1, 28, 28), (hi, 1, 28, 28), (hi, 1, 28, 28))
            config.add_optimization_profile(profile)

        class Writer(trt.IStreamWriter):
            def __init__(self, file):
                trt.IStreamWriter.__init__(self)
                self.file = file

            def write(self, chunk):
                return self.file.write(chunk)

        with open(path, "wb") as f:
            assert builder.build_serialized_network_to_stream(network, config, Writer(f))

        class Reader(trt.IStreamReader):
            def __init__(self, name):
                trt.IStreamReader.__init__(self)
                self.file = open(name, "rb")

            def read(self, size):
                return self.file.read(size)

        return runtime.deserialize_cuda_engine(Reader(path))


class Server:
    def __init__(self, engine, contexts):
        self.engine = engine
        self.pool = queue.Queue()
        self.stack = ExitStack()
        for _ in range(contexts):
            context = engine.create_execution_context()
            context.set_optimization_profile_async(1, 0)
            self.pool.put(context)

    @contextmanager
    def context(self):
        context = self.pool.get()
        try:
            yield context
        finally:
            self.pool.put(context)

    def infer(self, images):
        images = np.ascontiguousarray(images)
        with self.context() as context:
            assert context.set_input_shape("input", images.shape)
            out = np.empty(tuple(context.get_tensor_shape("logits")), np.float32)
            context.set_tensor_address("input", images.ctypes.data)
            context.set_tensor_address("logits", out.ctypes.data)
            assert context.execute_async_v3(0)
            return out


model = open(f"{data}/lenet_a.onnx", "rb").read()
images, labels = (np.load(f"{data}/digits_test.npz")[n] for n in ("images", "labels"))
cache = EngineCache(f"{work}/cache")
server = Server(cache.get(model, 8, False), 3)
assert cache.builds == 1
cache.get(model, 8, False)
assert cache.builds == 1
for name in os.listdir(cache.folder):
    with open(os.path.join(cache.folder, name), "r+b") as f:
        f.seek(200)
        f.write(b"rubbish")
cache.get(model, 8, False)
assert cache.builds == 2, "a damaged file is built again"
wanted = server.infer(images[:8])
with ThreadPoolExecutor(6) as threads:
    jobs = [(i, n) for i in range(0, 200, 7) for n in (1, 3, 8)]
    found = list(threads.map(lambda job: server.infer(images[job[0] : job[0] + job[1]]), jobs))
right = sum(int((f.argmax(1) == labels[i : i + n]).sum()) for (i, n), f in zip(jobs, found))
assert right > 0.9 * sum(n for _, n in jobs)
for (i, n), f in zip(jobs, found):
    assert np.array_equal(f, server.infer(images[i : i + n]))
assert threading.active_count() >= 1
print("OK")
