"""A wrapper class over an engine with dictionaries of tensors, dtype maps and shape ranges, as deployment toolkits have it."""

import ctypes
import logging
import os
import re
import sys
from typing import Any, Dict, Optional, Sequence, Union

import numpy as np
import tensorrt as trt
from packaging import version

data, work = sys.argv[1:3]


def create_trt_logger(level=trt.Logger.ERROR):
    return trt.Logger(level)


def load_plugin(path):
    if os.path.exists(path):
        ctypes.CDLL(path)
        return True
    logging.getLogger("deploy").warning("no plug-ins at %s", path)
    return False


def save(engine: Any, path: str) -> None:
    with open(path, mode="wb") as f:
        if version.parse(trt.__version__) >= version.parse("10.0"):
            f.write(bytearray(engine))
        else:
            f.write(bytearray(engine.serialize()))


def load(path: str, allocator: Optional[Any] = None):
    with trt.Logger() as logger, trt.Runtime(logger) as runtime:
        if allocator is not None:
            runtime.gpu_allocator = allocator
        with open(path, mode="rb") as f:
            engine_bytes = f.read()
        trt.init_libnvinfer_plugins(logger, namespace="")
        engine = runtime.deserialize_cuda_engine(engine_bytes)
        return engine


def from_onnx(onnx_model: Union[str, bytes], output_file_prefix: str, input_shapes: Dict[str, Sequence[int]],
              max_workspace_size: int = 0, fp16_mode: bool = False, int8_mode: bool = False, device_id: int = 0,
              log_level: trt.Logger.Severity = trt.Logger.ERROR, tf32: bool = True, **kwargs):
    if device_id:
        os.environ["CUDA_DEVICE"] = str(device_id)
    load_plugin(os.path.join(work, "no_such_plugin.so"))
    logger = create_trt_logger(log_level)
    builder = trt.Builder(logger)
    EXPLICIT_BATCH = 1 << (int)(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
    network = builder.create_network(EXPLICIT_BATCH)
    parser = trt.OnnxParser(network, logger)
    if isinstance(onnx_model, str):
        parser_flag = parser.parse_from_file(onnx_model)
    else:
        parser_flag = parser.parse(onnx_model)
    if not parser_flag:
        error_msgs = ""
        for error in range(parser.num_errors):
            error_msgs += f"{parser.get_error(error)}\n"
        raise RuntimeError(f"Failed to parse onnx, {error_msgs}")
    config = builder.create_builder_config()
    if hasattr(config, "max_workspace_size"):
        config.max_workspace_size = max_workspace_size
    elif max_workspace_size:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, max_workspace_size)
    if hasattr(trt, "PreviewFeature"):
        for name in ("FASTER_DYNAMIC_SHAPES_0805", "DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805"):
            feature = getattr(trt.PreviewFeature, name, None)
            if feature is not None:
                config.set_preview_feature(feature, True)
    profile = builder.create_optimization_profile()
    for input_name, param in input_shapes.items():
        profile.set_shape(input_name, param["min_shape"], param["opt_shape"], param["max_shape"])
    if config.add_optimization_profile(profile) < 0:
        logger.log(trt.Logger.WARNING, f"Invalid optimization profile {profile}.")
    if fp16_mode:
        if not getattr(builder, "platform_has_fast_fp16", True):
            raise RuntimeError("no fp16")
        config.set_flag(trt.BuilderFlag.FP16)
    if not tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    assert config.get_flag(trt.BuilderFlag.TF32) == tf32
    if hasattr(builder, "build_serialized_network"):
        engine = builder.build_serialized_network(network, config)
    else:
        engine = builder.build_engine(network, config)
    assert engine is not None, "Failed to create TensorRT engine"
    save(engine, output_file_prefix + ".engine")
    return engine


class TRTWrapper:
    def __init__(self, engine: Union[str, Any], output_names: Optional[Sequence[str]] = None):
        self.engine = load(engine) if isinstance(engine, str) else engine
        if not isinstance(self.engine, trt.ICudaEngine):
            raise TypeError(f"`engine` should be str or trt.ICudaEngine, but given: {type(self.engine)}")
        self.context = self.engine.create_execution_context()
        names = [_ for _ in self.engine]
        input_names = [n for n in names if self.engine.get_tensor_mode(n) == trt.TensorIOMode.INPUT]
        self._input_names = input_names
        if output_names is None:
            output_names = list(set(names) - set(input_names))
        self.output_names = output_names

    def forward(self, inputs: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
        assert self._input_names is not None and self.output_names is not None
        kept = []
        profile_id = 0
        for input_name, input_tensor in inputs.items():
            profile = self.engine.get_tensor_profile_shape(input_name, profile_id)
            assert input_tensor.ndim == len(profile[0]), "Input dim is different from engine profile."
            for s_min, s_input, s_max in zip(profile[0], input_tensor.shape, profile[2]):
                assert s_min <= s_input <= s_max, "Input shape should be between " + f"{profile[0]} and {profile[2]}" + f" but get {tuple(input_tensor.shape)}."
            if input_tensor.dtype == np.int64:
                input_tensor = input_tensor.astype(np.int32)
            input_tensor = np.ascontiguousarray(input_tensor)
            kept.append(input_tensor)
            self.context.set_input_shape(input_name, tuple(input_tensor.shape))
            self.context.set_tensor_address(input_name, input_tensor.ctypes.data)
        outputs = {}
        for output_name in self.output_names:
            dtype = {trt.bool: np.bool_, trt.int8: np.int8, trt.int32: np.int32, trt.float16: np.float16,
                     trt.float32: np.float32}[self.engine.get_tensor_dtype(output_name)]
            where = {trt.TensorLocation.DEVICE: "cuda", trt.TensorLocation.HOST: "cpu"}[self.engine.get_tensor_location(output_name)]
            assert where == "cuda"
            output = np.empty(shape=tuple(self.context.get_tensor_shape(output_name)), dtype=dtype)
            outputs[output_name] = output
            self.context.set_tensor_address(output_name, output.ctypes.data)
        self.__trt_execute()
        return outputs

    def __trt_execute(self):
        self.context.execute_async_v3(0)


shapes = {"input": dict(min_shape=[1, 1, 28, 28], opt_shape=[4, 1, 28, 28], max_shape=[64, 1, 28, 28])}
images, labels = (np.load(f"{data}/digits_test.npz")[n] for n in ("images", "labels"))
for i, (source, options) in enumerate([
    (f"{data}/lenet_a.onnx", dict(fp16_mode=True, max_workspace_size=1 << 28)),
    (open(f"{data}/lenet_a.onnx", "rb").read(), dict(tf32=False, log_level=trt.Logger.WARNING)),
]):
    prefix = f"{work}/wrapper{i}"
    from_onnx(source, prefix, shapes, **options)
    model = TRTWrapper(prefix + ".engine")
    out = model.forward({"input": images[:64]})
    assert (out["logits"].argmax(1) == labels[:64]).mean() > 0.9
    assert re.match(r"^1\d\.", trt.__version__)
try:
    model.forward({"input": images[:65]})
    raise SystemExit("65 images were taken")
except AssertionError as e:
    assert "between" in str(e), e
try:
    from_onnx(b"not a model", work + "/none", shapes)
    raise SystemExit("rubbish was parsed")
except RuntimeError as e:
    assert "Failed to parse onnx" in str(e)
print("OK")
