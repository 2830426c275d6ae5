# options: --host-cuda
"""Polygraphy's Python interface: loaders, runners, comparison, calibrator, savers, tactic replay left out."""

import os
import sys

import numpy as np
import tensorrt as trt
from polygraphy import cuda, func
from polygraphy.backend.common import BytesFromPath
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
from polygraphy.backend.trt import (
    Calibrator,
    CreateConfig,
    EngineFromBytes,
    EngineFromNetwork,
    ModifyNetworkOutputs,
    NetworkFromOnnxPath,
    Profile,
    SaveEngine,
    SetLayerPrecisions,
    TrtRunner,
    bytes_from_engine,
    create_network,
    engine_from_network,
    network_from_onnx_path,
)
from polygraphy.comparator import (
    Comparator,
    CompareFunc,
    DataLoader,
    RunResults,
)
from polygraphy.logger import G_LOGGER

DATA, WORK = sys.argv[1:3]
G_LOGGER.module_severity = {"": G_LOGGER.WARNING}
model = os.path.join(DATA, "lenet_a.onnx")
profiles = [Profile().add("input", min=(1, 1, 28, 28), opt=(2, 1, 28, 28), max=(8, 1, 28, 28))]
build = EngineFromNetwork(
    NetworkFromOnnxPath(model),
    config=CreateConfig(
        profiles=profiles,
        fp16=False,
        memory_pool_limits={trt.MemoryPoolType.WORKSPACE: 1 << 28},
        builder_optimization_level=2,
        profiling_verbosity=trt.ProfilingVerbosity.DETAILED,
    ),
)
path = os.path.join(WORK, "m.engine")
build = SaveEngine(build, path=path)
loader = DataLoader(seed=3, iterations=2, input_metadata=None, val_range={"input": (0, 1)})
runners = [TrtRunner(build), OnnxrtRunner(SessionFromOnnx(model))]
res = Comparator.run(runners, data_loader=DataLoader(iterations=2))
acc = Comparator.compare_accuracy(res, compare_func=CompareFunc.simple(atol=1e-3, rtol=1e-3, check_error_stat="max"))
assert bool(acc)
res.save(os.path.join(WORK, "r.json"))
assert RunResults.load(os.path.join(WORK, "r.json"))
assert Comparator.validate(res, check_inf=True, check_nan=True)
with TrtRunner(EngineFromBytes(BytesFromPath(path))) as r:
    out = r.infer({"input": np.zeros((3, 1, 28, 28), np.float32)})
    assert out["logits"].shape == (3, 10) and r.last_inference_time() > 0
    meta = r.get_input_metadata()
    assert tuple(meta["input"].shape)[1:] == (1, 28, 28), meta
z = np.load(os.path.join(DATA, "digits_calib.npz"))["images"]


def data():
    for i in range(4):
        yield {"input": z[i * 2 : i * 2 + 2]}


cal = Calibrator(data_loader=data(), cache=os.path.join(WORK, "c.cache"))
e8 = engine_from_network(
    network_from_onnx_path(model), config=CreateConfig(int8=True, calibrator=cal, profiles=profiles)
)
assert os.path.getsize(os.path.join(WORK, "c.cache"))
assert len(bytes_from_engine(e8)) > 1000


@func.extend(NetworkFromOnnxPath(model))
def mark(builder, network, parser):
    for i in range(network.num_layers):
        if network.get_layer(i).type == trt.LayerType.CONVOLUTION:
            network.mark_output(network.get_layer(i).get_output(0))


e = engine_from_network(mark, CreateConfig(profiles=profiles))
names = [n for n in e]
assert len(names) >= 4, names
builder, network, _ = (ModifyNetworkOutputs(NetworkFromOnnxPath(model), outputs=["/conv1/Conv_output_0"]))()
assert network.num_outputs == 1
builder, network, _ = SetLayerPrecisions(NetworkFromOnnxPath(model), {"/conv1/Conv": trt.float16})()


@func.extend(create_network)
def tiny(builder, network):
    x = network.add_input("x", shape=(2, 2), dtype=trt.float32)
    y = network.add_elementwise(x, x, trt.ElementWiseOperation.SUM).get_output(0)
    y.name = "y"
    network.mark_output(y)


with TrtRunner(engine_from_network(tiny)) as r:
    np.testing.assert_array_equal(r.infer({"x": np.ones((2, 2), np.float32)})["y"], np.full((2, 2), 2))
a = cuda.DeviceArray(shape=(2, 2), dtype=np.float32)
a.copy_from(np.eye(2, dtype=np.float32))
with TrtRunner(engine_from_network(tiny)) as r:
    np.testing.assert_array_equal(r.infer({"x": a})["y"], 2 * np.eye(2))
    a.free()
    o = r.infer({"x": np.ones((2, 2), np.float32)}, copy_outputs_to_host=False)["y"]
    assert o.numpy()[0, 0] == 2
print("OK")
