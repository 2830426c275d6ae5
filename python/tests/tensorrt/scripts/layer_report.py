"""Collects layers, bindings, times and shapes of an engine as profiling notebooks do."""

import collections
import csv
import io
import json
import sys

import numpy as np
import tensorrt as trt

data, work = sys.argv[1:3]
logger = trt.Logger(trt.Logger.WARNING)


class LayerProfiler(trt.IProfiler):
    def __init__(self):
        trt.IProfiler.__init__(self)
        self.layers = collections.OrderedDict()

    def report_layer_time(self, layer_name, ms):
        self.layers.setdefault(layer_name, []).append(ms)


def build(detailed):
    builder = trt.Builder(logger)
    network = builder.create_network()
    parser = trt.OnnxParser(network, logger)
    assert parser.parse_from_file(f"{data}/lenet_a.onnx")
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED if detailed else trt.ProfilingVerbosity.NONE
    config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)
    profile = builder.create_optimization_profile()
    profile.set_shape("input", (1, 1, 28, 28), (4, 1, 28, 28), (8, 1, 28, 28))
    config.add_optimization_profile(profile)
    engine = builder.build_engine_with_config(network, config)
    assert engine
    cache = config.get_timing_cache()
    with open(f"{work}/model.timing", "wb") as f:
        f.write(memoryview(cache.serialize()))
    return engine


engine = build(True)
inspector = engine.create_engine_inspector()
context = engine.create_execution_context()
context.set_input_shape("input", (4, 1, 28, 28))
inspector.execution_context = context
graph = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
assert {"Layers", "Bindings"} <= set(graph), graph.keys()
assert len(graph["Layers"]) == engine.num_layers
assert set(graph["Bindings"]) == {"input", "logits"}
for i, layer in enumerate(graph["Layers"]):
    assert {"Name", "LayerType", "Inputs", "Outputs"} <= set(layer), layer
    for tensor in layer["Inputs"] + layer["Outputs"]:
        assert {"Name", "Dimensions", "Format/Datatype"} <= set(tensor), tensor
    one = json.loads(inspector.get_layer_information(i, trt.LayerInformationFormat.JSON))
    assert one["Name"] == layer["Name"]
    assert inspector.get_layer_information(i, trt.LayerInformationFormat.ONELINE).strip()
context.profiler = LayerProfiler()
context.enqueue_emits_profile = True
x, y = np.zeros((4, 1, 28, 28), np.float32), np.empty((4, 10), np.float32)
for _ in range(3):
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
table = context.profiler.layers
assert {l["Name"] for l in graph["Layers"]} >= set(table) and all(len(v) == 3 for v in table.values()), table
out = io.StringIO()
writer = csv.writer(out)
writer.writerow(["name", "type", "avg_ms", "percent"])
total = sum(sum(v) / len(v) for v in table.values())
for layer in graph["Layers"]:
    times = table.get(layer["Name"], [0])
    writer.writerow([layer["Name"], layer["LayerType"], sum(times) / len(times), 100 * sum(times) / len(times) / max(total, 1e-9)])
assert len(out.getvalue().splitlines()) == engine.num_layers + 1 and total > 0
sizes = {n: (engine.get_tensor_bytes_per_component(n), engine.get_tensor_components_per_element(n),
             engine.get_tensor_vectorized_dim(n)) for n in engine}
assert sizes["input"] == (-1, -1, -1) and engine.device_memory_size_v2 >= 0 and engine.name is not None
assert engine.num_optimization_profiles == 1 and engine.refittable is False
assert engine.hardware_compatibility_level == trt.HardwareCompatibilityLevel.NONE
print(engine.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE) > 0 if hasattr(engine, "get_engine_stat") else None)
silent = build(False)
assert silent.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON) is not None
with trt.Builder(logger) as builder:
    cache = builder.create_builder_config().create_timing_cache(open(f"{work}/model.timing", "rb").read())
    assert len(cache.queryKeys()) >= 0
print("OK")
