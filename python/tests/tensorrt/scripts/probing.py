"""Probing that scripts do before they take a path: hasattr, getattr with defaults, versions, members of enumerations."""

import copy
import importlib.metadata
import importlib.util
import inspect
import pickle

import numpy as np
import tensorrt as trt

assert importlib.util.find_spec("tensorrt") is not None
assert importlib.metadata.version("tensorrt") == trt.__version__
from packaging import version

assert version.parse(trt.__version__) >= version.parse("10.0.0") and version.parse(trt.__version__).major == 10
assert trt.__version__[0] != "8" and int(trt.__version__.split(".")[0]) > 8
TRT_VERSION = tuple(map(int, trt.__version__.split(".")[:3]))
assert TRT_VERSION >= (8, 6, 0)
for obj, names in (
    (trt.Builder, ("build_engine", "max_batch_size", "build_cuda_engine", "fp16_mode")),
    (trt.ICudaEngine, ("num_bindings", "get_binding_name", "max_batch_size")),
    (trt.IExecutionContext, ("execute_async_v2", "set_binding_shape", "execute")),
    (trt.IBuilderConfig, ("max_workspace_size",)),
    (trt.INetworkDefinition, ("add_fully_connected", "add_convolution")),
    (trt, ("UffParser", "CaffeParser", "DimsCHW")),
):
    for n in names:
        assert not hasattr(obj, n), (obj, n)
for obj, names in (
    (trt.ICudaEngine, ("num_io_tensors", "get_tensor_name")),
    (trt.IExecutionContext, ("execute_async_v3", "set_input_shape")),
    (trt.Builder, ("build_serialized_network", "build_engine_with_config")),
    (trt, ("OnnxParser", "IOutputAllocator", "IProgressMonitor", "init_libnvinfer_plugins")),
):
    for n in names:
        assert hasattr(obj, n), (obj, n)
assert getattr(trt.BuilderFlag, "STRICT_TYPES", None) is None and getattr(trt.BuilderFlag, "FP8", None) is not None
assert "BF16" in trt.BuilderFlag.__members__ and "BF16" in trt.DataType.__members__
assert trt.DataType.FLOAT == trt.float32 == trt.DataType.__members__["FLOAT"]
assert (
    str(trt.float32) == "DataType.FLOAT"
    and trt.float32.name == "FLOAT"
    and f"{trt.float16}" == "DataType.HALF"
    and int(trt.int8) == 2
)
assert trt.DataType(0) is trt.DataType.FLOAT and hash(trt.float32) == hash(trt.DataType.FLOAT)
assert {trt.float32: 4, trt.int8: 1}[trt.DataType.FLOAT] == 4 and trt.float32.itemsize == 4 and trt.int4.itemsize == 0.5
assert trt.Logger.INFO == trt.Logger.Severity.INFO and trt.Logger.Severity.__members__["VERBOSE"] == trt.Logger.VERBOSE
assert getattr(trt.Logger, "VERBOSE") > getattr(trt.Logger, "ERROR")
flags = 1 << int(trt.BuilderFlag.FP16) | 1 << int(trt.BuilderFlag.REFIT)
L = trt.Logger(trt.Logger.Severity.ERROR)
b = trt.Builder(L)
c = b.create_builder_config()
c.flags = flags
assert c.get_flag(trt.BuilderFlag.REFIT) and c.flags & (1 << int(trt.BuilderFlag.FP16))
c.flags |= 1 << int(trt.BuilderFlag.BF16)
c.flags &= ~(1 << int(trt.BuilderFlag.FP16))
assert not c.get_flag(trt.BuilderFlag.FP16)
c.clear_flag(trt.BuilderFlag.TF32)
assert not c.get_flag(trt.BuilderFlag.TF32)
d = trt.Dims([1, 2, 3])
assert (
    list(d) == [1, 2, 3]
    and d[-1] == 3
    and tuple(d[1:]) == (2, 3)
    and d == (1, 2, 3)
    and len(d) == 3
    and str(d) == "(1, 2, 3)"
    and d.__repr__()
)
d[0] = 5
assert (
    d == [5, 2, 3]
    and trt.Dims.MAX_DIMS == 8
    and trt.DimsHW(3, 4).h == 3
    and trt.DimsHW([3, 4]).w == 4
    and trt.Dims3(1, 2, 3)[2] == 3
    and trt.Dims4([1, 2, 3, 4]) == (1, 2, 3, 4)
)
assert (
    np.prod(d) == 30
    and trt.volume(d) == 30
    and trt.volume(()) == 1
    and max(d) == 5
    and sum(1 for x in d if x == -1) == 0
    and (0,) + tuple(d)
    and np.array(d).tolist() == [5, 2, 3]
    and np.zeros(d).shape == (5, 2, 3)
)
assert np.empty(tuple(d)).shape == (5, 2, 3) and -1 not in d and 2 in d and d.__len__() == 3
p = trt.Permutation([2, 0, 1])
assert list(p) == [2, 0, 1] and p[0] == 2
w = trt.Weights(np.arange(4, dtype=np.float16))
assert w.dtype == trt.float16 and w.size == 4 and w.nbytes == 8 and len(w) == 4 and w.numpy().dtype == np.float16
assert trt.Weights().size == 0 and trt.Weights(trt.float32).size == 0
for t, n in ((trt.float32, np.float32), (trt.int64, np.int64), (trt.bool, np.bool_), (trt.uint8, np.uint8)):
    assert trt.nptype(t) == n and np.dtype(trt.nptype(t)) == n
try:
    trt.nptype(trt.bfloat16)
    raise SystemExit("no error")
except TypeError:
    pass
for bad in (
    lambda: trt.Builder(None),
    lambda: trt.Builder(),
    lambda: trt.Logger("INFO"),
    lambda: b.create_network("x"),
    lambda: c.set_flag(3.5),
    lambda: trt.Runtime(L).deserialize_cuda_engine(None),
    lambda: c.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1.5),
):
    try:
        bad()
    except TypeError:
        continue
    raise SystemExit(f"no TypeError {inspect.getsource(bad)}")
try:
    c.no_such = 3
    raise SystemExit("set")
except AttributeError:
    pass
assert trt.Runtime(L).deserialize_cuda_engine(b"rubbish") is None
assert (
    copy.copy(trt.float32) is trt.float32
    and pickle.loads(pickle.dumps(trt.float16)) is trt.float16
    and copy.deepcopy({"a": trt.int8})["a"] == trt.int8
)
reg = trt.get_plugin_registry()
assert all(isinstance(x.name, str) and x.plugin_version is not None for x in reg.plugin_creator_list)
assert reg.get_plugin_creator("NoSuch", "1", "") is None
assert trt.init_libnvinfer_plugins(None, "") in (True,) and trt.init_libnvinfer_plugins(L, "")
assert b.platform_has_fast_fp16 in (True, False) and b.num_DLA_cores == 0 and b.max_threads >= 1
print("OK")
