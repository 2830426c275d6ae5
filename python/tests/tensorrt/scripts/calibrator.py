# options: --host-cuda
"""Calibrates by a subclass with batches of its own and a cache in a file, and builds again from the cache."""

import os
import sys

import numpy as np
import pycuda.autoinit  # noqa: F401
import pycuda.driver as cuda
import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.WARNING)


class DigitsEntropyCalibrator(trt.IInt8EntropyCalibrator2):
    def __init__(self, images, cache_file, batch_size=64):
        trt.IInt8EntropyCalibrator2.__init__(self)
        self.cache_file = cache_file
        self.data = images
        self.batch_size = batch_size
        self.current_index = 0
        self.device_input = cuda.mem_alloc(self.data[0].nbytes * self.batch_size)
        self.batches = 0

    def get_batch_size(self):
        return self.batch_size

    def get_batch(self, names):
        assert names == ["input"]
        if self.current_index + self.batch_size > self.data.shape[0]:
            return None
        batch = self.data[self.current_index : self.current_index + self.batch_size].ravel()
        cuda.memcpy_htod(self.device_input, batch)
        self.current_index += self.batch_size
        self.batches += 1
        return [self.device_input]

    def read_calibration_cache(self):
        if os.path.exists(self.cache_file):
            with open(self.cache_file, "rb") as f:
                return f.read()
        return None

    def write_calibration_cache(self, cache):
        with open(self.cache_file, "wb") as f:
            f.write(cache)


def build(calibrator):
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(0)
    assert trt.OnnxParser(network, TRT_LOGGER).parse_from_file(os.path.join(sys.argv[1], "lenet_a.onnx"))
    config = builder.create_builder_config()
    if builder.platform_has_fast_int8:
        config.set_flag(trt.BuilderFlag.INT8)
    config.int8_calibrator = calibrator
    profile = builder.create_optimization_profile()
    profile.set_shape("input", (1, 1, 28, 28), (16, 1, 28, 28), (128, 1, 28, 28))
    config.add_optimization_profile(profile)
    config.set_calibration_profile(profile)
    return builder.build_serialized_network(network, config)


calib = np.load(os.path.join(sys.argv[1], "digits_calib.npz"))
images = np.ascontiguousarray(calib["images"] if "images" in calib else calib[calib.files[0]], dtype=np.float32)
cache = os.path.join(sys.argv[2], "calibration.cache")
first = DigitsEntropyCalibrator(images, cache)
plan = build(first)
assert plan is not None and first.batches == len(images) // 64 and first.batches > 0
with open(cache) as f:
    assert f.readline().startswith("TRT-") and len(f.readlines()) > 3
second = DigitsEntropyCalibrator(images, cache)
again = build(second)
assert again is not None and second.batches == 0, "the cache was not read"
engine = trt.Runtime(TRT_LOGGER).deserialize_cuda_engine(again)
context = engine.create_execution_context()
digits = np.load(os.path.join(sys.argv[1], "digits_test.npz"))
x = np.ascontiguousarray(digits["images"][:128])
y = np.empty((128, 10), np.float32)
context.set_input_shape("input", x.shape)
assert context.execute_v2([x.ctypes.data, y.ctypes.data])
assert (y.argmax(1) == digits["labels"][:128]).mean() > 0.95
print("OK")
