"""Holds engines in a class with dictionaries of shapes and buffers, and refits weights by layer and role, or from another model."""

import sys
from collections import OrderedDict

import numpy as np
import tensorrt as trt

data, work = sys.argv[1:3]
TRT_LOGGER = trt.Logger(trt.Logger.ERROR)
numpy_to_name = {np.uint8: "u8", np.int8: "i8", np.int32: "i32", np.int64: "i64", np.float16: "f16", np.float32: "f32"}
if np.version.full_version >= "1.24.0":
    numpy_to_name[np.bool_] = "bool"


class TQDMProgressMonitor(trt.IProgressMonitor):
    def __init__(self):
        trt.IProgressMonitor.__init__(self)
        self._active_phases, self._step_result, self.steps = {}, True, 0

    def phase_start(self, phase_name, parent_phase, num_steps):
        self._active_phases[phase_name] = {"total": num_steps, "done": 0, "parent": parent_phase,
                                           "nbIndents": 0 if parent_phase is None else 1 + self._active_phases.get(parent_phase, {"nbIndents": 0})["nbIndents"]}

    def phase_finish(self, phase_name):
        del self._active_phases[phase_name]

    def step_complete(self, phase_name, step):
        self.steps += 1
        self._active_phases[phase_name]["done"] = step
        return self._step_result


class Engine:
    def __init__(self, engine_path):
        self.engine_path = engine_path
        self.engine = self.context = None
        self.buffers, self.tensors = OrderedDict(), OrderedDict()

    def build(self, onnx_path, fp16=False, input_profile=None, enable_refit=False, timing_cache=None, strip=False):
        builder = trt.Builder(TRT_LOGGER)
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
        parser = trt.OnnxParser(network, TRT_LOGGER)
        parser.set_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
        assert parser.parse_from_file(onnx_path)
        config = builder.create_builder_config()
        config.progress_monitor = TQDMProgressMonitor()
        if fp16:
            config.set_flag(trt.BuilderFlag.FP16)
        if enable_refit:
            config.set_flag(trt.BuilderFlag.REFIT)
        if strip:
            config.set_flag(trt.BuilderFlag.STRIP_PLAN)
        cache = config.create_timing_cache(timing_cache or b"")
        config.set_timing_cache(cache, True)
        profile = builder.create_optimization_profile()
        for name, dims in input_profile.items():
            assert len(dims) == 3
            profile.set_shape(name, min=dims[0], opt=dims[1], max=dims[2])
        config.add_optimization_profile(profile)
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        self.plan = builder.build_serialized_network(network, config)
        assert self.plan is not None, trt.last_error()
        assert config.progress_monitor.steps > 0 and not config.progress_monitor._active_phases
        with open(self.engine_path, "wb") as f:
            f.write(self.plan)
        return bytes(config.get_timing_cache().serialize())

    def load(self):
        with open(self.engine_path, "rb") as f:
            self.engine = trt.Runtime(TRT_LOGGER).deserialize_cuda_engine(f.read())

    def activate(self, reuse_device_memory=None):
        if reuse_device_memory:
            self.context = self.engine.create_execution_context_without_device_memory()
            self.context.device_memory = reuse_device_memory
        else:
            self.context = self.engine.create_execution_context()

    def allocate_buffers(self, shape_dict):
        for binding in range(self.engine.num_io_tensors):
            name = self.engine.get_tensor_name(binding)
            shape = shape_dict[name] if shape_dict and name in shape_dict else self.engine.get_tensor_shape(name)
            dtype = trt.nptype(self.engine.get_tensor_dtype(name))
            assert dtype in numpy_to_name
            if self.engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
                self.context.set_input_shape(name, shape)
            self.tensors[name] = np.empty(tuple(shape), dtype=dtype)

    def infer(self, feed_dict):
        for name, buf in feed_dict.items():
            np.copyto(self.tensors[name], buf)
        for name, tensor in self.tensors.items():
            self.context.set_tensor_address(name, tensor.ctypes.data)
        noerror = self.context.execute_async_v3(0)
        if not noerror:
            raise ValueError("ERROR: inference failed.")
        return self.tensors

    def refit_roles(self, weights):
        refitter = trt.Refitter(self.engine, TRT_LOGGER)
        names, roles = refitter.get_all()
        assert len(names) == len(roles) and all(isinstance(r, trt.WeightsRole) for r in roles)
        for layer_name, role in zip(names, roles):
            key = weights.get((layer_name, role))
            if key is not None:
                refitter.set_weights(layer_name, role, key)
        missing, _ = refitter.get_missing()
        return refitter.refit_cuda_engine(), len(missing)

    def refit(self, onnx_refit_path):
        refitter = trt.Refitter(self.engine, TRT_LOGGER)
        parser = trt.OnnxParserRefitter(refitter, TRT_LOGGER)
        assert parser.refit_from_file(onnx_refit_path), parser.get_error(0)
        assert not refitter.get_missing_weights()
        assert refitter.refit_cuda_engine()


images, labels = (np.load(f"{data}/digits_test.npz")[n] for n in ("images", "labels"))
profile = {"input": [(1, 1, 28, 28), (16, 1, 28, 28), (32, 1, 28, 28)]}
engine = Engine(f"{work}/a.plan")
cache = engine.build(f"{data}/lenet_a.onnx", input_profile=profile, enable_refit=True, fp16=True)
engine.build(f"{data}/lenet_a.onnx", input_profile=profile, enable_refit=True, timing_cache=cache)
engine.load()
engine.activate()
engine.allocate_buffers({"input": (32, 1, 28, 28), "logits": (32, 10)})
wanted = {m: np.load(f"{data}/logits_lenet_{m}.npz")["logits"][:16] for m in "ab"}
assert np.allclose(engine.infer({"input": images[:32]})["logits"][:16], wanted["a"], atol=1e-3)
engine.refit(f"{data}/lenet_b.onnx")
assert np.allclose(engine.infer({"input": images[:32]})["logits"][:16], wanted["b"], atol=1e-3)
names, roles = trt.Refitter(engine.engine, TRT_LOGGER).get_all()
good, _ = engine.refit_roles({(n, r): None for n, r in zip(names, roles)})
assert good, trt.last_error()
stripped = Engine(f"{work}/s.plan")
stripped.build(f"{data}/lenet_a.onnx", input_profile=profile, strip=True)
assert len(stripped.plan) < len(engine.plan)
stripped.load()
stripped.refit(f"{data}/lenet_a.onnx")
stripped.activate()
stripped.allocate_buffers({"input": (32, 1, 28, 28), "logits": (32, 10)})
assert np.allclose(stripped.infer({"input": images[:32]})["logits"][:16], wanted["a"], atol=1e-3)
print("OK")
