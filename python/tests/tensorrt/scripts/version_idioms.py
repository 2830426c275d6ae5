"""The ways in which programs read the version and probe for names."""

import importlib.metadata
import importlib.util
import re
import sys

import tensorrt as trt
from packaging import version

v = trt.__version__
assert re.fullmatch(r"10\.16(\.\d+)+", v), v
assert int(v.split(".")[0]) == 10
assert int(v.split(".", maxsplit=1)[0]) >= 10
assert version.parse(v) >= version.parse("10.0.0") and version.parse(v) < version.parse("11")
assert [int(n) for n in v.split(".")[:2]] == [10, 16]
major_minor = float(".".join(v.split(".")[:2]))
assert 10.1 < major_minor < 10.2
assert v[0] == "1"
assert not v >= "8.5", "as strings, as with the original"
assert tuple(map(int, v.split("."))) > (8, 6, 1)

is_trt10 = int(v.split(".")[0]) >= 10
assert is_trt10
assert not hasattr(trt.ICudaEngine, "num_bindings") and hasattr(trt.ICudaEngine, "num_io_tensors")
assert not hasattr(trt.IExecutionContext, "execute_async_v2") and hasattr(trt.IExecutionContext, "execute_async_v3")
assert not hasattr(trt.Builder, "build_engine") and hasattr(trt.Builder, "build_serialized_network")
assert not hasattr(trt.IBuilderConfig, "max_workspace_size")
assert not hasattr(trt, "UffParser") and not hasattr(trt, "CaffeParser")
assert hasattr(trt, "MemoryPoolType") and hasattr(trt.BuilderFlag, "FP16") and hasattr(trt.DataType, "BF16")
assert getattr(trt, "no_such_name", None) is None
try:
    trt.UffParser
except AttributeError as e:
    assert "OnnxParser" in str(e), e
try:
    trt.Builder(trt.Logger()).max_workspace_size = 1 << 30
    raise SystemExit("an unknown setting was taken")
except AttributeError as e:
    assert "set_memory_pool_limit" in str(e), e

spec = importlib.util.find_spec("tensorrt")
assert spec is not None and spec.origin
assert "tensorrt" in sys.modules and trt is sys.modules["tensorrt"]
import tensorrt.enums as parts  # noqa: E402

assert parts.DataType is trt.DataType, "parts are not loaded twice"
assert trt.nptype(trt.float16).__name__ == "float16" and trt.nptype(trt.bool).__name__ == "bool"
assert trt.volume(()) == 1 and trt.volume((2, 3)) == 6
assert trt.float32 is trt.DataType.FLOAT and trt.DataType.HALF.itemsize == 2 and trt.int4.itemsize == 0.5
assert importlib.metadata.version("tensorrt") == v
assert trt.get_nv_onnx_parser_version() == 101600
print("OK")
