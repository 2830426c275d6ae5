"""Exports with metadata in front of the plan, calibrates by a class inside of a function, and loads by ordered bindings."""

import json
import os
import sys
from collections import OrderedDict, namedtuple
from pathlib import Path

import numpy as np
import tensorrt as trt

data, work = Path(sys.argv[1]), Path(sys.argv[2])


def check_version(current, required):
    return tuple(map(int, current.split(".")[:2])) >= tuple(map(int, required.lstrip(">=").split(".")[:2]))


def export_engine(onnx_file, engine_file, workspace=None, half=False, int8=False, dynamic=False, shape=(1, 1, 28, 28),
                  dataset=None, metadata=None, verbose=False):
    logger = trt.Logger(trt.Logger.INFO)
    if verbose:
        logger.min_severity = trt.Logger.Severity.VERBOSE
    logger.min_severity = trt.Logger.Severity.ERROR
    builder = trt.Builder(logger)
    config = builder.create_builder_config()
    workspace_bytes = int((workspace or 0) * (1 << 30))
    is_trt10 = int(trt.__version__.split(".", 1)[0]) >= 10
    if is_trt10 and workspace_bytes > 0:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, workspace_bytes)
    elif workspace_bytes > 0:
        config.max_workspace_size = workspace_bytes
    flag = 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
    network = builder.create_network(flag)
    half = builder.platform_has_fast_fp16 and half
    int8 = builder.platform_has_fast_int8 and int8
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(onnx_file)):
        raise RuntimeError(f"failed to load ONNX file: {onnx_file}")
    inputs = [network.get_input(i) for i in range(network.num_inputs)]
    outputs = [network.get_output(i) for i in range(network.num_outputs)]
    for t in inputs + outputs:
        assert t.name and len(t.shape) and t.dtype == trt.float32
    if dynamic:
        profile = builder.create_optimization_profile()
        min_shape = (1, *shape[1:])
        max_shape = (max(1, shape[0] * 4), *shape[1:])
        for inp in inputs:
            profile.set_shape(inp.name, min=min_shape, opt=shape, max=max_shape)
        config.add_optimization_profile(profile)
        if int8 and not is_trt10:
            config.set_calibration_profile(profile)
    if int8:
        config.set_flag(trt.BuilderFlag.INT8)
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED

        class EngineCalibrator(trt.IInt8Calibrator):
            def __init__(self, dataset, cache=""):
                trt.IInt8Calibrator.__init__(self)
                self.dataset, self.data_iter = dataset, iter(dataset)
                self.algo = trt.CalibrationAlgoType.MINMAX_CALIBRATION
                self.batch, self.cache = len(dataset[0]), Path(cache)

            def get_algorithm(self):
                return self.algo

            def get_batch_size(self):
                return self.batch or 1

            def get_batch(self, names):
                try:
                    self.current = np.ascontiguousarray(next(self.data_iter))
                    return [int(self.current.ctypes.data)]
                except StopIteration:
                    return None

            def read_calibration_cache(self):
                if self.cache.exists() and self.cache.suffix == ".cache":
                    return self.cache.read_bytes()

            def write_calibration_cache(self, cache):
                _ = self.cache.write_bytes(cache)

        config.int8_calibrator = EngineCalibrator(dataset=dataset, cache=str(Path(onnx_file).name and work / "int8.cache"))
    elif half:
        config.set_flag(trt.BuilderFlag.FP16)
    if is_trt10:
        engine = builder.build_serialized_network(network, config)
        if engine is None:
            raise RuntimeError("TensorRT engine build failed, check logs for errors")
        with open(engine_file, "wb") as t:
            if metadata is not None:
                meta = json.dumps(metadata)
                t.write(len(meta).to_bytes(4, byteorder="little", signed=True))
                t.write(meta.encode())
            t.write(engine)
    else:
        with builder.build_engine(network, config) as engine, open(engine_file, "wb") as t:
            t.write(engine.serialize())


class AutoBackend:
    def __init__(self, weight, half=False):
        Binding = namedtuple("Binding", ("name", "dtype", "shape", "data", "ptr"))
        logger = trt.Logger(trt.Logger.ERROR)
        with open(weight, "rb") as f, trt.Runtime(logger) as runtime:
            try:
                meta_len = int.from_bytes(f.read(4), byteorder="little")
                metadata = json.loads(f.read(meta_len).decode("utf-8"))
                dla = metadata.get("dla", None)
                if dla is not None:
                    runtime.DLA_core = int(dla)
            except UnicodeDecodeError:
                f.seek(0)
            model = runtime.deserialize_cuda_engine(f.read())
        self.metadata = metadata
        context = model.create_execution_context()
        self.bindings, self.output_names, self.dynamic, self.fp16 = OrderedDict(), [], False, False
        is_trt10 = not hasattr(model, "num_bindings")
        num = range(model.num_io_tensors) if is_trt10 else range(model.num_bindings)
        for i in num:
            name = model.get_tensor_name(i)
            dtype = trt.nptype(model.get_tensor_dtype(name))
            is_input = model.get_tensor_mode(name) == trt.TensorIOMode.INPUT
            if is_input:
                if -1 in tuple(model.get_tensor_shape(name)):
                    self.dynamic = True
                    context.set_input_shape(name, tuple(model.get_tensor_profile_shape(name, 0)[1]))
                if dtype == np.float16:
                    self.fp16 = True
            else:
                self.output_names.append(name)
            shape = tuple(context.get_tensor_shape(name))
            im = np.empty(shape, dtype=dtype)
            self.bindings[name] = Binding(name, dtype, shape, im, int(im.ctypes.data))
        self.binding_addrs = OrderedDict((n, d.ptr) for n, d in self.bindings.items())
        self.model, self.context, self.is_trt10 = model, context, is_trt10

    def forward(self, im):
        if self.dynamic and im.shape != self.bindings["input"].shape:
            self.context.set_input_shape("input", im.shape)
            self.bindings["input"] = self.bindings["input"]._replace(shape=im.shape)
            for name in self.output_names:
                self.bindings[name].data.resize(tuple(self.context.get_tensor_shape(name)), refcheck=False)
                self.binding_addrs[name] = int(self.bindings[name].data.ctypes.data)
        s = self.bindings["input"].shape
        assert im.shape == s, f"input size {im.shape} not equal to max model size {s}"
        self.binding_addrs["input"] = int(im.ctypes.data)
        self.context.execute_v2(list(self.binding_addrs.values()))
        return [self.bindings[x].data for x in sorted(self.output_names)]


images = np.ascontiguousarray(np.load(data / "digits_test.npz")["images"])
labels = np.load(data / "digits_test.npz")["labels"]
calib = np.load(data / "digits_calib.npz")["images"]
for name, options in {
    "fp32": {}, "fp16": {"half": True, "dynamic": True, "workspace": 1, "verbose": True},
    "int8": {"int8": True, "dynamic": True, "dataset": [calib[i : i + 8] for i in range(0, 32, 8)]},
}.items():
    file = work / f"{name}.engine"
    export_engine(data / "lenet_a.onnx", file, shape=(8, 1, 28, 28),
                  metadata={"names": {0: "zero"}, "batch": 1, "task": "classify"}, **{"dynamic": True, **options})
    model = AutoBackend(file)
    assert model.metadata["task"] == "classify"
    right = 0
    for i in range(0, 96, 8):
        right += int((model.forward(images[i : i + 8].copy())[0].argmax(1) == labels[i : i + 8]).sum())
    assert right > 85, (name, right)
assert (work / "int8.cache").read_bytes()
print("OK")
