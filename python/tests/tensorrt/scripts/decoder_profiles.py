# options: --host-cuda
"""Profiles for a prompt and for a step of a decoder; contexts of both at once, shapes as values."""


import numpy as np
import tensorrt as trt
from cuda import cudart

logger = trt.Logger(trt.Logger.ERROR)


def check(ret):
    err = ret[0]
    if err.value != 0:
        raise RuntimeError(f"cuda error {err}, {cudart.cudaGetErrorString(err)}")
    return ret[1] if len(ret) == 2 else ret[1:]


builder = trt.Builder(logger)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
ids = network.add_input("input_ids", trt.int32, (-1, -1))
mask = network.add_input("mask", trt.bool, (-1, -1))
table = np.random.default_rng(1).standard_normal((50, 16)).astype(np.float32)
emb = network.add_constant(table.shape, table).get_output(0)
g = network.add_gather(emb, ids, 0).get_output(0)
m = network.add_cast(mask, trt.float32).get_output(0)
mu = network.add_shuffle(m)
shp = network.add_shape(mask).get_output(0)
one = network.add_constant((1,), np.array([1], dtype=np.int64)).get_output(0)
cat = network.add_concatenation([shp, one])
cat.axis = 0
mu.set_input(1, cat.get_output(0))
prod = network.add_elementwise(g, mu.get_output(0), trt.ElementWiseOperation.PROD).get_output(0)
s = network.add_reduce(prod, trt.ReduceOperation.SUM, axes=1 << 1, keep_dims=False).get_output(0)
s.name = "pooled"
network.mark_output(s)
config = builder.create_builder_config()
for lo, opt, hi in (((1, 8), (2, 16), (4, 32)), ((1, 1), (8, 1), (16, 1))):
    p = builder.create_optimization_profile()
    p.set_shape("input_ids", min=lo, opt=opt, max=hi)
    p.set_shape("mask", lo, opt, hi)
    idx = config.add_optimization_profile(p)
assert idx == 1 and config.num_optimization_profiles == 2
plan = builder.build_serialized_network(network, config)
engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
assert engine.num_optimization_profiles == 2
assert [tuple(d) for d in engine.get_tensor_profile_shape(name="mask", profile_index=1)] == [(1, 1), (8, 1), (16, 1)]
stream = check(cudart.cudaStreamCreate())
ctxs = []
for i in range(engine.num_optimization_profiles):
    c = engine.create_execution_context()
    c.set_optimization_profile_async(i, stream)
    check(cudart.cudaStreamSynchronize(stream))
    assert c.active_optimization_profile == i
    ctxs.append(c)


def infer(c, ids, mask):
    bufs = {}
    for n, a in (("input_ids", ids), ("mask", mask)):
        assert c.set_input_shape(n, a.shape)
        d = check(cudart.cudaMallocAsync(a.nbytes, stream))
        check(cudart.cudaMemcpyAsync(d, a.ctypes.data, a.nbytes, cudart.cudaMemcpyKind.cudaMemcpyHostToDevice, stream))
        c.set_tensor_address(n, d)
        bufs[n] = d
    assert c.infer_shapes() == [] and c.all_binding_shapes_specified
    o = np.empty(tuple(c.get_tensor_shape("pooled")), trt.nptype(engine.get_tensor_dtype("pooled")))
    d = check(cudart.cudaMallocAsync(o.nbytes, stream))
    c.set_tensor_address("pooled", d)
    assert c.execute_async_v3(stream)
    check(cudart.cudaMemcpyAsync(o.ctypes.data, d, o.nbytes, cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost, stream))
    check(cudart.cudaStreamSynchronize(stream))
    for b in list(bufs.values()) + [d]:
        check(cudart.cudaFreeAsync(b, stream))
    return o


rng = np.random.default_rng(2)
for c, shape in ((ctxs[0], (3, 20)), (ctxs[1], (16, 1)), (ctxs[0], (1, 8))):
    i = rng.integers(0, 50, shape, dtype=np.int32)
    mk = rng.random(shape) > 0.3
    np.testing.assert_allclose(infer(c, i, mk), (table[i] * mk[..., None]).sum(1), rtol=1e-4, atol=1e-5)
assert not ctxs[1].set_input_shape("mask", (1, 2))
print("OK")
