"""Runs one engine in several threads, a context each, and refuses one context in two threads at once."""

import os
import sys
import threading

import numpy as np
import tensorrt as trt

logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
builder = trt.Builder(logger)
network = builder.create_network(0)
assert trt.OnnxParser(network, logger).parse_from_file(os.path.join(sys.argv[1], "lenet_a.onnx"))
profile = builder.create_optimization_profile()
profile.set_shape("input", (1, 1, 28, 28), (50, 1, 28, 28), (100, 1, 28, 28))
config = builder.create_builder_config()
config.add_optimization_profile(profile)
engine = trt.Runtime(logger).deserialize_cuda_engine(builder.build_serialized_network(network, config))
digits = np.load(os.path.join(sys.argv[1], "digits_test.npz"))
results, failures = {}, []


def work(number):
    try:
        context = engine.create_execution_context()
        images = np.ascontiguousarray(digits["images"][number * 100 : number * 100 + 100])
        logits = np.empty((100, 10), np.float32)
        for _ in range(3):
            assert context.set_input_shape("input", images.shape)
            assert context.execute_v2([images.ctypes.data, logits.ctypes.data]), trt.last_error()
        results[number] = logits.argmax(1)
    except BaseException as e:
        failures.append(e)


threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads:
    t.start()
ticks = 0
while any(t.is_alive() for t in threads):
    ticks += 1
    threads[0].join(0.001)
for t in threads:
    t.join()
assert not failures, failures
for number, found in results.items():
    wanted = digits["labels"][number * 100 : number * 100 + 100]
    assert (found == wanted).mean() > 0.95, number
assert len(results) == 4 and ticks > 0
print("OK")
