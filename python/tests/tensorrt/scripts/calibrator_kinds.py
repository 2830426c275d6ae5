# options: --host-cuda
"""Post-training quantization with a loader object and three kinds of calibrators."""

import os
import sys

import numpy as np
import pycuda.autoinit  # noqa: F401
import pycuda.driver as cuda
import tensorrt as trt

DATA, WORK = sys.argv[1:3]
TRT_LOGGER = trt.Logger(trt.Logger.WARNING)


class BatchStream:
    def __init__(self, array, batch_size, max_batches):
        self.array, self.batch_size, self.max_batches = array, batch_size, max_batches
        self.batch = 0

    def reset(self):
        self.batch = 0

    def next_batch(self):
        if self.batch < self.max_batches:
            b = self.array[self.batch * self.batch_size : (self.batch + 1) * self.batch_size]
            self.batch += 1
            return np.ascontiguousarray(b, dtype=np.float32)
        return np.array([])


def make(base):
    class Calib(base):
        def __init__(self, stream, cache_file):
            base.__init__(self)
            self.stream, self.cache_file = stream, cache_file
            self.d_input = cuda.mem_alloc(stream.batch_size * 28 * 28 * 4)
            stream.reset()

        def get_batch_size(self):
            return self.stream.batch_size

        def get_batch(self, names, p_str=None):
            b = self.stream.next_batch()
            if not b.size:
                return None
            cuda.memcpy_htod(self.d_input, b)
            return [self.d_input]

        def read_calibration_cache(self):
            if os.path.exists(self.cache_file):
                with open(self.cache_file, "rb") as f:
                    return f.read()
            return None

        def write_calibration_cache(self, cache):
            with open(self.cache_file, "wb") as f:
                f.write(cache)
                f.flush()
                os.fsync(f)

        def get_quantile(self):
            return 0.9999

        def get_regression_cutoff(self):
            return 1.0

        def read_histogram_cache(self, length):
            return None

        def write_histogram_cache(self, ptr, length):
            return None

    return Calib


calib = np.load(os.path.join(DATA, "digits_calib.npz"))["images"]
test = np.load(os.path.join(DATA, "digits_test.npz"))
for base in (
    trt.IInt8EntropyCalibrator,
    trt.IInt8EntropyCalibrator2,
    trt.IInt8MinMaxCalibrator,
    trt.IInt8LegacyCalibrator,
):
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, TRT_LOGGER)
    with open(os.path.join(DATA, "lenet_a.onnx"), "rb") as model:
        ok = parser.parse(model.read())
    if not ok:
        for error in range(parser.num_errors):
            print(parser.get_error(error))
        sys.exit(1)
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 28)
    config.set_flag(trt.BuilderFlag.INT8)
    if builder.platform_has_fast_fp16:
        config.set_flag(trt.BuilderFlag.FP16)
    c = make(base)(BatchStream(calib, 16, 4), os.path.join(WORK, base.__name__ + ".cache"))
    config.int8_calibrator = c
    profile = builder.create_optimization_profile()
    inp = network.get_input(0)
    profile.set_shape(inp.name, [1, *inp.shape[1:]], [16, *inp.shape[1:]], [100, *inp.shape[1:]])
    config.add_optimization_profile(profile)
    config.set_calibration_profile(profile)
    plan = builder.build_serialized_network(network, config)
    assert plan, trt.last_error()
    assert os.path.getsize(c.cache_file) > 0
    with trt.Runtime(TRT_LOGGER) as rt, rt.deserialize_cuda_engine(
        plan
    ) as engine, engine.create_execution_context() as ctx:
        x = np.ascontiguousarray(test["images"][:100], np.float32)
        y = np.zeros((100, 10), np.float32)
        ctx.set_input_shape("input", x.shape)
        dx, dy = cuda.to_device(x), cuda.mem_alloc(y.nbytes)
        assert ctx.execute_v2([int(dx), int(dy)])
        cuda.memcpy_dtoh(y, dy)
        acc = (y.argmax(1) == test["labels"][:100]).mean()
        assert acc > 0.9, (base, acc)
print("OK")
