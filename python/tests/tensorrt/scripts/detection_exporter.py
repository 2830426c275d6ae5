"""An exporter as detection packages have it: checks by version strings, layers printed, int8 by a calibrator in a closure with a cache, dla refused, metadata."""

import re
import sys
import json
from pathlib import Path

import numpy as np
import tensorrt as trt

DATA, WORK = Path(sys.argv[1]), Path(sys.argv[2])


def check_version(current, required, hard=False):
    c = tuple(map(int, re.findall(r"\d+", current)[:3]))
    return all(
        eval(f"{c} {op} {tuple(map(int, v.split(chr(46))))}")
        for op, v in re.findall(r"(>=|<=|==|!=|<|>)([\d.]+)", required)
    )


is_trt10 = int(trt.__version__.split(".", 1)[0]) >= 10
assert check_version(trt.__version__, ">=7.0.0,!=10.1.0")
logger = trt.Logger(trt.Logger.INFO)
logger.min_severity = trt.Logger.Severity.ERROR
builder = trt.Builder(logger)
config = builder.create_builder_config()
workspace = int((4 or 0) * (1 << 30))
if is_trt10:
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, workspace)
flag = 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
network = builder.create_network(flag)
half, int8 = builder.platform_has_fast_fp16, builder.platform_has_fast_int8
parser = trt.OnnxParser(network, logger)
if not parser.parse_from_file(str(DATA / "lenet_a.onnx")):
    raise RuntimeError("failed to load ONNX file")
inputs = [network.get_input(i) for i in range(network.num_inputs)]
outputs = [network.get_output(i) for i in range(network.num_outputs)]
for inp in inputs:
    print(f'input "{inp.name}" with shape{inp.shape} {inp.dtype}')
profile = builder.create_optimization_profile()
min_shape = (1, 1, 28, 28)
max_shape = (8, 1, 28, 28)
for inp in inputs:
    profile.set_shape(inp.name, min=min_shape, opt=max_shape, max=max_shape)
config.add_optimization_profile(profile)
if int8:
    config.set_flag(trt.BuilderFlag.INT8)
    config.set_calibration_profile(profile)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED

    class EngineCalibrator(trt.IInt8Calibrator):
        def __init__(self, dataset, cache=""):
            trt.IInt8Calibrator.__init__(self)
            self.it = iter(dataset)
            self.algo = trt.CalibrationAlgoType.ENTROPY_CALIBRATION_2
            self.cache = Path(cache)
            self.batch = 8
            self.n = 0

        def get_algorithm(self):
            return self.algo

        def get_batch_size(self):
            return self.batch or 1

        def get_batch(self, names):
            try:
                self.x = np.ascontiguousarray(next(self.it))
                self.n += 1
                return [int(self.x.ctypes.data)]
            except StopIteration:
                return None

        def read_calibration_cache(self):
            if self.cache.exists() and self.cache.suffix == ".cache":
                return self.cache.read_bytes()

        def write_calibration_cache(self, cache):
            self.cache.write_bytes(cache)

    z = np.load(DATA / "digits_calib.npz")["images"]
    config.int8_calibrator = EngineCalibrator((z[i : i + 8] for i in range(0, 40, 8)), WORK / "m.cache")
build = builder.build_serialized_network if is_trt10 else builder.build_engine
f = WORK / "m.engine"
with build(network, config) as engine, open(f, "wb") as t:
    meta = json.dumps({"names": {i: str(i) for i in range(10)}, "task": "classify"})
    t.write(len(meta).to_bytes(4, byteorder="little", signed=True))
    t.write(meta.encode())
    t.write(engine if is_trt10 else engine.serialize())
assert (WORK / "m.cache").exists()
with open(f, "rb") as fh, trt.Runtime(logger) as runtime:
    n = int.from_bytes(fh.read(4), byteorder="little")
    metadata = json.loads(fh.read(n).decode("utf-8"))
    dla = metadata.get("dla", None)
    if dla is not None:
        runtime.DLA_core = int(dla)
    model = runtime.deserialize_cuda_engine(fh.read())
ctx = model.create_execution_context()
z = np.load(DATA / "digits_test.npz")
x = np.ascontiguousarray(z["images"][:8])
y = np.zeros((8, 10), np.float32)
ctx.set_input_shape("input", x.shape)
assert ctx.execute_v2([x.ctypes.data, y.ctypes.data])
assert (y.argmax(1) == z["labels"][:8]).mean() > 0.8
print("OK")
