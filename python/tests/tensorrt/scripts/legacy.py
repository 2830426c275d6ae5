# options: --v8 --host-cuda
"""A program for TensorRT 8: bindings by index, build_engine, workspace in bytes."""

import os
import sys

import numpy as np
import pycuda.autoinit  # noqa: F401
import pycuda.driver as cuda
import tensorrt as trt

EXPLICIT_BATCH = 1 << (int)(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
TRT_LOGGER = trt.Logger()
assert trt.__version__ >= "8.5" and hasattr(trt.ICudaEngine, "num_bindings")


def get_engine(onnx_file_path):
    with trt.Builder(TRT_LOGGER) as builder, builder.create_network(
        EXPLICIT_BATCH
    ) as network, builder.create_builder_config() as config, trt.OnnxParser(network, TRT_LOGGER) as parser:
        config.max_workspace_size = 1 << 28
        builder.max_batch_size = 1
        config.set_flag(trt.BuilderFlag.FP16)
        config.set_flag(trt.BuilderFlag.STRICT_TYPES)
        assert config.get_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
        with open(onnx_file_path, "rb") as model:
            assert parser.parse(model.read())
        profile = builder.create_optimization_profile()
        profile.set_shape("input", (1, 1, 28, 28), (4, 1, 28, 28), (8, 1, 28, 28))
        config.add_optimization_profile(profile)
        engine = builder.build_engine(network, config)
        with open(os.path.join(sys.argv[2], "legacy.trt"), "wb") as f:
            f.write(engine.serialize())
        return engine


engine = get_engine(os.path.join(sys.argv[1], "lenet_a.onnx"))
assert engine.num_bindings == 2 and engine.max_batch_size == 1 and len(engine) == 2
with engine.create_execution_context() as context:
    digits = np.load(os.path.join(sys.argv[1], "digits_test.npz"))
    stream = cuda.Stream()
    inputs, outputs, bindings = [], [], []
    context.set_binding_shape(0, (4, 1, 28, 28))
    assert context.all_binding_shapes_specified
    for binding in engine:
        index = engine.get_binding_index(binding)
        assert engine.get_binding_name(index) == binding
        size = trt.volume(context.get_binding_shape(index))
        host = cuda.pagelocked_empty(size, trt.nptype(engine.get_binding_dtype(binding)))
        device = cuda.mem_alloc(host.nbytes)
        bindings.append(int(device))
        (inputs if engine.binding_is_input(binding) else outputs).append((host, device))
    assert tuple(engine.get_profile_shape(0, "input")[2]) == (8, 1, 28, 28)
    assert tuple(engine.get_binding_shape(0)) == (-1, 1, 28, 28)
    for start in (0, 4, 8):
        inputs[0][0][:] = digits["images"][start : start + 4].ravel()
        cuda.memcpy_htod_async(inputs[0][1], inputs[0][0], stream)
        assert context.execute_async_v2(bindings=bindings, stream_handle=stream.handle)
        cuda.memcpy_dtoh_async(outputs[0][0], outputs[0][1], stream)
        stream.synchronize()
        assert (outputs[0][0].reshape(4, 10).argmax(1) == digits["labels"][start : start + 4]).all()
    assert context.execute_v2(bindings)
print("OK")
