"""Sets types of layers and outputs, with constraints that a build must obey."""

import os
import sys

import numpy as np
import tensorrt as trt

logger = trt.Logger(trt.Logger.INFO)


def build(obey):
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    assert trt.OnnxParser(network, logger).parse_from_file(os.path.join(sys.argv[1], "lenet_a.onnx"))
    network.get_input(0).shape = (4, 1, 28, 28)
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.set_flag(trt.BuilderFlag.FP16)
    if obey:
        config.clear_flag(trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
        config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    changed = 0
    for i in range(network.num_layers):
        layer = network.get_layer(i)
        if layer.type in (trt.LayerType.CONVOLUTION, trt.LayerType.MATRIX_MULTIPLY):
            assert not layer.precision_is_set
            layer.precision = trt.DataType.HALF
            assert layer.precision == trt.float16 and layer.precision_is_set
            changed += 1
        elif layer.type == trt.LayerType.ACTIVATION:
            layer.precision = trt.DataType.FLOAT
            layer.set_output_type(0, trt.DataType.FLOAT)
            assert layer.output_type_is_set(0) and layer.get_output_type(0) == trt.float32
    assert changed >= 4
    plan = builder.build_serialized_network(network, config)
    assert plan is not None
    return trt.Runtime(logger).deserialize_cuda_engine(plan)


engine = build(obey=True)
information = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
assert "f16" in information.lower() or "fp16" in information.lower() or "half" in information.lower(), information[:2000]
context = engine.create_execution_context()
digits = np.load(os.path.join(sys.argv[1], "digits_test.npz"))
x = np.ascontiguousarray(digits["images"][:4])
y = np.empty((4, 10), np.float32)
assert context.execute_v2([x.ctypes.data, y.ctypes.data])
assert (y.argmax(1) == digits["labels"][:4]).all()

builder = trt.Builder(trt.Logger(trt.Logger.INTERNAL_ERROR))
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
assert network.get_flag(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
x = network.add_input("x", trt.float16, (2, 2))
layer = network.add_activation(x, trt.ActivationType.RELU)
layer.precision = trt.float32
assert not layer.precision_is_set and "strongly typed" in trt.last_error()
cast = network.add_cast(layer.get_output(0), trt.float32)
assert cast.to_type == trt.float32 and cast.get_output(0).dtype == trt.float32
cast.get_output(0).name = "y"
network.mark_output(cast.get_output(0))
plan = builder.build_serialized_network(network, builder.create_builder_config())
engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
assert engine.get_tensor_dtype("x") == trt.float16 and engine.get_tensor_dtype("y") == trt.float32
print("OK")
