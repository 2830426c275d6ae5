"""Exports a model with a profile, half precision where it is fast, and checks of every step."""

import json
import os
import sys

import numpy as np
import tensorrt as trt


def export(onnx_file, engine_file, workspace_gb=1, half=True, metadata=None):
    logger = trt.Logger(trt.Logger.INFO)
    builder = trt.Builder(logger)
    config = builder.create_builder_config()
    if int(trt.__version__.split(".")[0]) >= 10:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, int(workspace_gb * (1 << 30)))
    else:
        config.max_workspace_size = int(workspace_gb * (1 << 30))
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(onnx_file):
        raise RuntimeError(f"failed to load {onnx_file}")
    inputs = [network.get_input(i) for i in range(network.num_inputs)]
    outputs = [network.get_output(i) for i in range(network.num_outputs)]
    for t in inputs:
        print(f"input {t.name} {t.shape} {t.dtype}")
    for t in outputs:
        print(f"output {t.name} {t.shape} {t.dtype}")
    profile = builder.create_optimization_profile()
    for t in inputs:
        lo, usual, hi = (1, *t.shape[1:]), (16, *t.shape[1:]), (64, *t.shape[1:])
        profile.set_shape(t.name, min=lo, opt=usual, max=hi)
    config.add_optimization_profile(profile)
    fast = getattr(builder, "platform_has_fast_fp16", None) or half
    if fast and half:
        config.set_flag(trt.BuilderFlag.FP16)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("the build failed, see the log")
    with open(engine_file, "wb") as f:
        meta = json.dumps(metadata or {}).encode()
        f.write(len(meta).to_bytes(4, byteorder="little", signed=True))
        f.write(meta)
        f.write(plan)


def load(engine_file):
    logger = trt.Logger(trt.Logger.INFO)
    with open(engine_file, "rb") as f, trt.Runtime(logger) as runtime:
        size = int.from_bytes(f.read(4), byteorder="little")
        metadata = json.loads(f.read(size).decode())
        engine = runtime.deserialize_cuda_engine(f.read())
    assert engine is not None
    return metadata, engine


data, work = sys.argv[1], sys.argv[2]
file = os.path.join(work, "lenet.engine")
export(os.path.join(data, "lenet_a.onnx"), file, metadata={"stride": 32, "names": {"0": "zero"}})
metadata, engine = load(file)
assert metadata["stride"] == 32
context = engine.create_execution_context()
assert context is not None

digits = np.load(os.path.join(data, "digits_test.npz"))
images, labels = digits["images"][:48], digits["labels"][:48]
names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
limit = engine.get_tensor_profile_shape("input", 0)[2]
assert tuple(limit) == (64, 1, 28, 28) and limit[0] == 64
buffers = {}
for name in names:
    mode = engine.get_tensor_mode(name)
    shape = tuple(engine.get_tensor_shape(name))
    dtype = trt.nptype(engine.get_tensor_dtype(name))
    if mode == trt.TensorIOMode.INPUT:
        assert -1 in shape
        context.set_input_shape(name, images.shape)
        buffers[name] = np.ascontiguousarray(images, dtype=dtype)
    else:
        buffers[name] = np.empty(tuple(context.get_tensor_shape(name)), dtype=dtype)
assert context.execute_v2([buffers[name].ctypes.data for name in names])
assert (buffers["logits"].argmax(1) == labels).mean() > 0.95
assert not context.set_input_shape("input", (65, 1, 28, 28))
print("OK")
