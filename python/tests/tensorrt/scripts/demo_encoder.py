"""Builds a transformer encoder by layers with masks, dynamic sequence lengths and named weights, then refits it."""

import numpy as np
import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.ERROR)
B, S, N, H, F = -1, -1, 2, 8, 16
HEAD = H // N
rng = np.random.default_rng(5)


def weights(seed):
    r = np.random.default_rng(seed)
    w = {}
    for name, shape in {"q": (H, H), "k": (H, H), "v": (H, H), "o": (H, H), "mid": (H, F), "out": (F, H)}.items():
        w[name + "_kernel"] = (r.standard_normal(shape) * 0.3).astype(np.float32)
        w[name + "_bias"] = (r.standard_normal(shape[1]) * 0.1).astype(np.float32)
    for name in ("ln1", "ln2"):
        w[name + "_gamma"] = (1 + 0.1 * r.standard_normal(H)).astype(np.float32)
        w[name + "_beta"] = (0.1 * r.standard_normal(H)).astype(np.float32)
    return w


def set_tensor_name(tensor, prefix, name):
    tensor.name = prefix + name


def set_output_name(layer, prefix, name, out_idx=0):
    set_tensor_name(layer.get_output(out_idx), prefix, name)


def dense(network, w, prefix, x):
    kernel = trt.Weights(w[prefix + "_kernel"])
    k = network.add_constant((1,) + w[prefix + "_kernel"].shape, kernel)
    assert network.set_weights_name(kernel, prefix + "_kernel")
    k.name = prefix + "_kernel_layer"
    mm = network.add_matrix_multiply(x, trt.MatrixOperation.NONE, k.get_output(0), trt.MatrixOperation.NONE)
    bias = trt.Weights(w[prefix + "_bias"])
    b = network.add_constant((1, 1, len(w[prefix + "_bias"])), bias)
    network.set_weights_name(bias, prefix + "_bias")
    layer = network.add_elementwise(mm.get_output(0), b.get_output(0), trt.ElementWiseOperation.SUM)
    set_output_name(layer, prefix, "_dense")
    return layer.get_output(0)


def transpose_for_scores(network, x):
    layer = network.add_shuffle(x)
    layer.reshape_dims = (0, 0, N, HEAD)
    layer.second_transpose = trt.Permutation([0, 2, 1, 3])
    return layer.get_output(0)


def gelu(network, x):
    def const(v):
        return network.add_constant((1, 1, 1), trt.Weights(np.ascontiguousarray([v], dtype=np.float32))).get_output(0)

    x_pow = network.add_elementwise(x, const(3.0), trt.ElementWiseOperation.POW)
    x_mul = network.add_elementwise(x_pow.get_output(0), const(0.044715), trt.ElementWiseOperation.PROD)
    x_add = network.add_elementwise(x, x_mul.get_output(0), trt.ElementWiseOperation.SUM)
    x_sqrt = network.add_elementwise(x_add.get_output(0), const(np.sqrt(2 / np.pi)), trt.ElementWiseOperation.PROD)
    x_tanh = network.add_activation(x_sqrt.get_output(0), trt.ActivationType.TANH)
    x_one = network.add_elementwise(x_tanh.get_output(0), const(1.0), trt.ElementWiseOperation.SUM)
    half = network.add_elementwise(x_one.get_output(0), const(0.5), trt.ElementWiseOperation.PROD)
    return network.add_elementwise(x, half.get_output(0), trt.ElementWiseOperation.PROD).get_output(0)


def skip_layernorm(network, w, prefix, x, skip):
    total = network.add_elementwise(x, skip, trt.ElementWiseOperation.SUM).get_output(0)
    mean = network.add_reduce(total, trt.ReduceOperation.AVG, 1 << 2, True).get_output(0)
    delta = network.add_elementwise(total, mean, trt.ElementWiseOperation.SUB).get_output(0)
    square = network.add_elementwise(delta, delta, trt.ElementWiseOperation.PROD).get_output(0)
    var = network.add_reduce(square, trt.ReduceOperation.AVG, 1 << 2, True).get_output(0)
    eps = network.add_constant((1, 1, 1), np.array([1e-6], np.float32)).get_output(0)
    var = network.add_elementwise(var, eps, trt.ElementWiseOperation.SUM).get_output(0)
    std = network.add_unary(var, trt.UnaryOperation.SQRT).get_output(0)
    normed = network.add_elementwise(delta, std, trt.ElementWiseOperation.DIV).get_output(0)
    for part, op in (("_gamma", trt.ElementWiseOperation.PROD), ("_beta", trt.ElementWiseOperation.SUM)):
        given = trt.Weights(w[prefix + part])
        c = network.add_constant((1, 1, H), given)
        network.set_weights_name(given, prefix + part)
        normed = network.add_elementwise(normed, c.get_output(0), op).get_output(0)
    return normed


def build(w, refit):
    with trt.Builder(TRT_LOGGER) as builder, builder.create_network(0) as network, builder.create_builder_config() as config:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 100 << 20)
        config.builder_optimization_level = 2
        if refit:
            config.set_flag(trt.BuilderFlag.REFIT)
        x = network.add_input(name="embeddings", dtype=trt.float32, shape=(B, S, H))
        mask = network.add_input(name="input_mask", dtype=trt.int32, shape=(B, S))
        m = network.add_identity(mask)
        m.set_output_type(0, trt.float32)
        shuffle = network.add_shuffle(network.add_cast(mask, trt.float32).get_output(0))
        shuffle.reshape_dims = (0, 1, 1, -1)
        one = network.add_constant((1, 1, 1, 1), np.ones(1, np.float32)).get_output(0)
        inverse = network.add_elementwise(one, shuffle.get_output(0), trt.ElementWiseOperation.SUB).get_output(0)
        big = network.add_constant((1, 1, 1, 1), np.array([-10000], np.float32)).get_output(0)
        bias = network.add_elementwise(inverse, big, trt.ElementWiseOperation.PROD).get_output(0)
        q, k, v = (transpose_for_scores(network, dense(network, w, n, x)) for n in "qkv")
        qk = network.add_matrix_multiply(q, trt.MatrixOperation.NONE, k, trt.MatrixOperation.TRANSPOSE)
        scale = network.add_constant((1, 1, 1, 1), np.array([1 / np.sqrt(HEAD)], np.float32))
        qk = network.add_elementwise(qk.get_output(0), scale.get_output(0), trt.ElementWiseOperation.PROD)
        qk = network.add_elementwise(qk.get_output(0), bias, trt.ElementWiseOperation.SUM)
        soft = network.add_softmax(qk.get_output(0))
        soft.axes = 1 << 3
        soft.name = "attention_probs"
        z = network.add_matrix_multiply(soft.get_output(0), trt.MatrixOperation.NONE, v, trt.MatrixOperation.NONE)
        merge = network.add_shuffle(z.get_output(0))
        merge.first_transpose = trt.Permutation([0, 2, 1, 3])
        merge.reshape_dims = (0, 0, H)
        y = skip_layernorm(network, w, "ln1", dense(network, w, "o", merge.get_output(0)), x)
        mid = gelu(network, dense(network, w, "mid", y))
        y = skip_layernorm(network, w, "ln2", dense(network, w, "out", mid), y)
        set_tensor_name(y, "", "sequence_output")
        network.mark_output(y)
        for lo, mid_, hi in (((1, 1), (1, 4), (1, 8)), ((2, 1), (2, 4), (4, 16))):
            profile = builder.create_optimization_profile()
            profile.set_shape("embeddings", min=(*lo, H), opt=(*mid_, H), max=(*hi, H))
            profile.set_shape("input_mask", min=lo, opt=mid_, max=hi)
            config.add_optimization_profile(profile)
        return builder.build_serialized_network(network, config)


def reference(w, x, mask):
    def lin(name, a):
        return a @ w[name + "_kernel"] + w[name + "_bias"]

    def norm(name, a):
        return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-6) * w[name + "_gamma"] + w[name + "_beta"]

    b, s, _ = x.shape
    q, k, v = (lin(n, x).reshape(b, s, N, HEAD).transpose(0, 2, 1, 3) for n in "qkv")
    a = q @ k.transpose(0, 1, 3, 2) / np.sqrt(HEAD) + (1 - mask[:, None, None]) * -10000
    e = np.exp(a - a.max(-1, keepdims=True))
    z = ((e / e.sum(-1, keepdims=True)) @ v).transpose(0, 2, 1, 3).reshape(b, s, H)
    y = norm("ln1", lin("o", z) + x)
    m = lin("mid", y)
    m = m * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (m + 0.044715 * m**3)))
    return norm("ln2", lin("out", m) + y)


def infer(engine, x, mask, profile):
    with engine.create_execution_context() as context:
        assert context.set_optimization_profile_async(profile, 0)
        assert context.active_optimization_profile == profile
        context.set_input_shape("embeddings", x.shape)
        context.set_input_shape("input_mask", mask.shape)
        assert context.all_binding_shapes_specified
        y = np.empty(tuple(context.get_tensor_shape("sequence_output")), np.float32)
        for n, a in (("embeddings", x), ("input_mask", mask), ("sequence_output", y)):
            context.set_tensor_address(n, a.ctypes.data)
        assert context.execute_async_v3(0), trt.last_error()
        return y


first, second = weights(1), weights(2)
with trt.Runtime(TRT_LOGGER) as runtime:
    engine = runtime.deserialize_cuda_engine(build(first, True))
cases = []
for profile, size in ((0, (1, 5)), (1, (3, 16))):
    x = rng.standard_normal((*size, H)).astype(np.float32)
    mask = (np.arange(size[1])[None] < np.array([[size[1]], [2], [9]])[: size[0]]).astype(np.int32)
    cases.append((x, np.ascontiguousarray(mask), profile))
for x, mask, profile in cases:
    assert np.allclose(infer(engine, x, mask, profile), reference(first, x, mask), atol=1e-4)
refitter = trt.Refitter(engine, TRT_LOGGER)
names = refitter.get_all_weights()
assert set(second) <= set(names), names
for name in second:
    proto = refitter.get_weights_prototype(name)
    assert proto.dtype == trt.float32 and proto.size == second[name].size
    assert refitter.set_named_weights(name, trt.Weights(second[name]))
assert len(refitter.get_missing_weights()) == 0
assert refitter.refit_cuda_engine()
for x, mask, profile in cases:
    assert np.allclose(infer(engine, x, mask, profile), reference(second, x, mask), atol=1e-4)
print("OK")
