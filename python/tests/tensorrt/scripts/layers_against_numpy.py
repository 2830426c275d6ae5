"""Adds one layer of most kinds and compares it with a formula of numpy."""

import numpy as np
import tensorrt as trt

logger = trt.Logger(trt.Logger.ERROR)
TYPES = {"float32": trt.float32, "int32": trt.int32, "bool": trt.bool, "int64": trt.int64, "float16": trt.float16}
rng = np.random.default_rng(3)


def run(write, *inputs):
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    tensors = [network.add_input(f"in{i}", TYPES[a.dtype.name], a.shape) for i, a in enumerate(inputs)]
    made = write(network, *tensors)
    outputs = list(made) if isinstance(made, (tuple, list)) else [made]
    outputs = [o if isinstance(o, trt.ITensor) else o.get_output(0) for o in outputs]
    for i, t in enumerate(outputs):
        t.name = f"out{i}"
        network.mark_output(t)
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    assert plan is not None, trt.last_error()
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    results = []
    for i in range(len(outputs)):
        name = f"out{i}"
        results.append(np.empty(tuple(engine.get_tensor_shape(name)), trt.nptype(engine.get_tensor_dtype(name))))
        context.set_tensor_address(name, results[-1].ctypes.data)
    for i, a in enumerate(inputs):
        context.set_tensor_address(f"in{i}", a.ctypes.data)
    assert context.execute_async_v3(0), trt.last_error()
    return results if len(results) > 1 else results[0]


def const(network, values, dtype):
    array = np.array(values, dtype=dtype)
    return network.add_constant(array.shape, array).get_output(0)


def close(found, wanted):
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-5), (found, wanted)


x = rng.standard_normal((2, 3, 4, 6)).astype(np.float32)
v = rng.standard_normal((2, 3, 4, 6)).astype(np.float32)
for op, f in {"SUM": np.add, "PROD": np.multiply, "SUB": np.subtract, "MAX": np.maximum, "MIN": np.minimum}.items():
    close(run(lambda n, a, b: n.add_elementwise(a, b, trt.ElementWiseOperation[op]), x, v), f(x, v))
assert (run(lambda n, a, b: n.add_elementwise(a, b, trt.ElementWiseOperation.GREATER), x, v) == (x > v)).all()
for op, f in {"EXP": np.exp, "ABS": np.abs, "NEG": np.negative, "FLOOR": np.floor, "SIN": np.sin}.items():
    close(run(lambda n, a: n.add_unary(a, trt.UnaryOperation[op]), x), f(x))
close(run(lambda n, a: n.add_activation(a, trt.ActivationType.SIGMOID), x), 1 / (1 + np.exp(-x)))


def clip(n, a):
    layer = n.add_activation(a, trt.ActivationType.CLIP)
    layer.alpha, layer.beta = -0.5, 0.25
    return layer


close(run(clip, x), np.clip(x, -0.5, 0.25))
close(run(lambda n, a: n.add_reduce(a, trt.ReduceOperation.AVG, axes=0b1100, keep_dims=True), x), x.mean((2, 3), keepdims=True))
close(run(lambda n, a: n.add_reduce(a, trt.ReduceOperation.MAX, 1 << 1, False), x), x.max(1))


def softmax(n, a):
    layer = n.add_softmax(a)
    assert layer.axes == 1 << 1
    layer.axes = 1 << 3
    return layer


e = np.exp(x - x.max(3, keepdims=True))
close(run(softmax, x), e / e.sum(3, keepdims=True))


def shuffle(n, a):
    layer = n.add_shuffle(a)
    layer.first_transpose = (0, 2, 3, 1)
    layer.reshape_dims = (0, -1)
    layer.second_transpose = trt.Permutation([1, 0])
    assert tuple(layer.first_transpose) == (0, 2, 3, 1) and layer.reshape_dims == (0, -1)
    return layer


close(run(shuffle, x), x.transpose(0, 2, 3, 1).reshape(2, -1).T)
close(run(lambda n, a: n.add_slice(a, start=(0, 1, 0, 5), shape=(2, 2, 2, 3), stride=(1, 1, 2, -1)), x), x[:, 1:, ::2, 5:2:-1])


def cat(n, a, b):
    layer = n.add_concatenation([a, b])
    layer.axis = 3
    return layer


close(run(cat, x, v), np.concatenate([x, v], 3))
close(run(lambda n, a: n.add_gather(a, const(n, [2, 0], np.int32), 1), x), x[:, [2, 0]])
values, indices = run(
    lambda n, a: [n.add_topk(a, trt.TopKOperation.MAX, 2, 1 << 3).get_output(0), n.add_topk(a, trt.TopKOperation.MAX, 2, 1 << 3).get_output(1)], x
)
close(values, -np.sort(-x, 3)[..., :2])
assert (indices == np.argsort(-x, 3, kind="stable")[..., :2]).all() and indices.dtype == np.int32
a, b = rng.standard_normal((5, 4)).astype(np.float32), rng.standard_normal((5, 3)).astype(np.float32)
T, N, V = trt.MatrixOperation.TRANSPOSE, trt.MatrixOperation.NONE, trt.MatrixOperation.VECTOR
close(run(lambda n, p, q: n.add_matrix_multiply(p, T, q, N), a, b), a.T @ b)
close(run(lambda n, p, q: n.add_einsum([p, q], "ij,ik->jk"), a, b), a.T @ b)
close(run(lambda n, p, q: n.add_matrix_multiply(p, N, q, V), a, np.ones(4, np.float32)), a.sum(1))
cond = rng.random((2, 3, 4, 6)) > 0.5
close(run(lambda n, c, p, q: n.add_select(c, p, q), cond, x, v), np.where(cond, x, v))
scale, shift = np.array([1, 2, 3], np.float32), np.array([0, 1, 0.5], np.float32)
close(
    run(lambda n, p: n.add_scale(p, trt.ScaleMode.CHANNEL, shift, scale, np.ones(3, np.float32)), x),
    x * scale.reshape(1, 3, 1, 1) + shift.reshape(1, 3, 1, 1),
)


def resize(n, p):
    layer = n.add_resize(p)
    layer.shape = (2, 3, 8, 12)
    layer.resize_mode = trt.InterpolationMode.NEAREST
    assert layer.shape == (2, 3, 8, 12) and layer.scales == []
    return layer


close(run(resize, x), x.repeat(2, 2).repeat(2, 3))


def norm(n, p):
    layer = n.add_normalization(p, const(n, np.ones((1, 1, 1, 6)), np.float32), const(n, np.zeros((1, 1, 1, 6)), np.float32), 1 << 3)
    layer.epsilon = 1e-3
    return layer


close(run(norm, x), (x - x.mean(3, keepdims=True)) / np.sqrt(x.var(3, keepdims=True) + 1e-3))


def linspace(n, p):
    layer = n.add_fill((4,), trt.FillOperation.LINSPACE)
    layer.alpha, layer.beta = 1.0, 0.5
    assert layer.alpha == 1.0 and layer.operation == trt.FillOperation.LINSPACE
    return layer


close(run(linspace, x), [1, 1.5, 2, 2.5])
close(run(lambda n, p: n.add_cumulative(p, const(n, 1, np.int32), trt.CumulativeOperation.SUM, False, False), a), a.cumsum(1))
close(run(lambda n, p: n.add_unsqueeze(p, const(n, [0], np.int64)), a), a[None])
close(run(lambda n, p: n.add_padding_nd(p, (1, 0), (0, 2)), x), np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2))))
q = rng.standard_normal((1, 2, 3, 4)).astype(np.float32)
scores = q @ q.transpose(0, 1, 3, 2)
weights = np.exp(scores - scores.max(3, keepdims=True))
attended = weights / weights.sum(3, keepdims=True) @ q
close(run(lambda n, p: n.add_attention(p, p, p, trt.AttentionNormalizationOp.SOFTMAX, False), q), attended)
one_hot = run(lambda n, i: n.add_one_hot(i, const(n, [0, 1], np.float32), const(n, 4, np.int32), -1), np.array([2, 0], np.int32))
close(one_hot, np.eye(4)[[2, 0]])
kernel = rng.standard_normal((4, 3, 1, 1)).astype(np.float32)
close(run(lambda n, p: n.add_convolution_nd(p, 4, (1, 1), kernel), x), np.einsum("nchw,oc->nohw", x, kernel[:, :, 0, 0]))
print("OK")
