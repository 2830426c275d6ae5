"""Describes an engine that was built with details, and at the shapes of a context."""

import json
import os
import sys

import tensorrt as trt

logger = trt.Logger(trt.Logger.ERROR)


def build(verbosity):
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    assert trt.OnnxParser(network, logger).parse_from_file(os.path.join(sys.argv[1], "lenet_a.onnx"))
    for layer in network:
        layer.metadata = f"[ONNX Layer: {layer.name}]"
    config = builder.create_builder_config()
    config.profiling_verbosity = verbosity
    profile = builder.create_optimization_profile()
    profile.set_shape("input", (1, 1, 28, 28), (4, 1, 28, 28), (4, 1, 28, 28))
    config.add_optimization_profile(profile)
    return trt.Runtime(logger).deserialize_cuda_engine(builder.build_serialized_network(network, config))


engine = build(trt.ProfilingVerbosity.DETAILED)
assert engine.profiling_verbosity == trt.ProfilingVerbosity.DETAILED
inspector = engine.create_engine_inspector()
information = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
layers = information["Layers"]
assert information["Bindings"] == ["input", "logits"]
assert len(layers) == engine.num_layers and all(isinstance(layer, dict) for layer in layers)
assert any("conv1" in layer["Name"] for layer in layers), layers[0]
first = json.loads(inspector.get_layer_information(0, trt.LayerInformationFormat.JSON))
assert first["Name"] == layers[0]["Name"]
for i in range(engine.num_layers):
    line = inspector.get_layer_information(i, trt.LayerInformationFormat.ONELINE)
    assert line.startswith(layers[i]["Name"]), line
assert inspector.get_layer_information(999, trt.LayerInformationFormat.JSON) is None
context = engine.create_execution_context()
context.set_input_shape("input", (3, 1, 28, 28))
inspector.execution_context = context
text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
assert "3" in text and json.loads(text)["Layers"]

names_only = build(trt.ProfilingVerbosity.LAYER_NAMES_ONLY).create_engine_inspector()
layers = json.loads(names_only.get_engine_information(trt.LayerInformationFormat.JSON))["Layers"]
assert layers and all(isinstance(layer, str) for layer in layers)
nothing = build(trt.ProfilingVerbosity.NONE)
assert nothing.profiling_verbosity == trt.ProfilingVerbosity.NONE
print("OK")
