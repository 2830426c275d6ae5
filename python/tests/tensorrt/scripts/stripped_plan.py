"""Builds a plan without weights, and puts those of the model in before the first run."""

import os
import sys

import numpy as np
import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.ERROR)
MODEL = os.path.join(sys.argv[1], "lenet_a.onnx")


def build_plan(strip):
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, TRT_LOGGER)
    assert parser.parse_from_file(MODEL)
    network.get_input(0).shape = (16, 1, 28, 28)
    config = builder.create_builder_config()
    if strip:
        config.set_flag(trt.BuilderFlag.STRIP_PLAN)
        config.set_flag(trt.BuilderFlag.REFIT)
    return builder.build_serialized_network(network, config)


def run(engine):
    context = engine.create_execution_context()
    digits = np.load(os.path.join(sys.argv[1], "digits_test.npz"))
    x = np.ascontiguousarray(digits["images"][:16])
    y = np.empty((16, 10), np.float32)
    ok = context.execute_v2([x.ctypes.data, y.ctypes.data])
    return y if ok else None


full, stripped = build_plan(False), build_plan(True)
print(full.nbytes, stripped.nbytes)
assert stripped.nbytes < full.nbytes / 4
runtime = trt.Runtime(TRT_LOGGER)
wanted = run(runtime.deserialize_cuda_engine(full))
engine = runtime.deserialize_cuda_engine(stripped)
assert engine is not None
whole = runtime.deserialize_cuda_engine(full)
total = engine.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE)
assert total > 100_000 and whole.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE) > 100_000
assert 100_000 < engine.get_engine_stat(trt.EngineStat.STRIPPED_WEIGHTS_SIZE) <= total
assert whole.get_engine_stat(trt.EngineStat.STRIPPED_WEIGHTS_SIZE) == -1
assert run(engine) is None, "an engine without its weights ran"
refitter = trt.Refitter(engine, TRT_LOGGER)
assert len(refitter.get_missing_weights()) >= 8, refitter.get_missing_weights()
parser_refitter = trt.OnnxParserRefitter(refitter, TRT_LOGGER)
assert not parser_refitter.refit_from_file("/no/such/model.onnx") and parser_refitter.num_errors == 1
with open(MODEL, "rb") as f:
    assert parser_refitter.refit_from_bytes(f.read())
assert refitter.get_missing_weights() == []
assert refitter.refit_cuda_engine()
found = run(engine)
assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4)

config = engine.create_serialization_config()
config.set_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
assert config.get_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
again = engine.serialize_with_config(config)
assert again.nbytes < full.nbytes / 4
config.clear_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
assert engine.serialize_with_config(config).nbytes > full.nbytes / 2
print("OK")
