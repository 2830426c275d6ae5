"""Keeps the timing cache in a file between builds, and joins two."""

import os
import sys
import time

import tensorrt as trt

logger = trt.Logger(trt.Logger.WARNING)
cache_file = os.path.join(sys.argv[2], "timing.cache")


def build(model, miss_is_an_error=False, cache_bytes=None):
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    with open(os.path.join(sys.argv[1], model), "rb") as f:
        assert parser.parse(f.read())
    network.get_input(0).shape = [8, 1, 28, 28]
    config = builder.create_builder_config()
    config.builder_optimization_level = 2
    config.avg_timing_iterations = 2
    assert config.builder_optimization_level == 2 and config.avg_timing_iterations == 2
    data = b""
    if cache_bytes is not None:
        data = cache_bytes
    elif os.path.exists(cache_file):
        with open(cache_file, "rb") as f:
            data = f.read()
    cache = config.create_timing_cache(data)
    assert config.set_timing_cache(cache, ignore_mismatch=False)
    if miss_is_an_error:
        config.set_flag(trt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    start = time.monotonic()
    plan = builder.build_serialized_network(network, config)
    print(f"{model}: {time.monotonic() - start:.2f} s")
    kept = config.get_timing_cache()
    return plan, kept


plan, cache = build("lenet_a.onnx")
assert plan is not None
with open(cache_file, "wb") as f:
    f.write(cache.serialize())
size = os.path.getsize(cache_file)
assert size > 0
again, cache = build("lenet_a.onnx")
assert bytes(again) == bytes(plan), "the same times make the same plan"
assert cache.serialize().nbytes >= size
other, wider = build("lenet_b.onnx", cache_bytes=b"")
assert other is not None
keys = len(cache.queryKeys())
assert cache.combine(wider, False)
assert len(cache.queryKeys()) >= keys
for key in cache.queryKeys():
    text = str(key)
    assert trt.TimingCacheKey.parse(text) == key
    assert cache.query(key).timingMSec >= 0
pinned = next((k for k in cache.queryKeys() if cache.query(k).tacticHash), None)
if pinned is not None:
    value = cache.query(pinned)
    assert cache.update(pinned, value) and cache.query(pinned).tacticHash == value.tacticHash
    assert not cache.update(pinned, trt.TimingCacheValue(12345, 0.5)) and "12345" in trt.last_error()
assert cache.reset() and cache.serialize().nbytes == 0
builder = trt.Builder(trt.Logger(trt.Logger.INTERNAL_ERROR))
assert builder.create_builder_config().create_timing_cache(b"this is no cache") is None
print("OK")
