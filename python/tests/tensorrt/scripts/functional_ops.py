"""Writes tensors as objects with operators over a network, as libraries for language models do."""

import numpy as np
import tensorrt as trt

LOGGER = trt.Logger(trt.Logger.ERROR)
NET = None


class Tensor:
    def __init__(self, trt_tensor):
        self.trt_tensor = trt_tensor

    @property
    def ndim(self):
        return len(self.trt_tensor.shape)

    @property
    def dtype(self):
        return self.trt_tensor.dtype

    def size(self, dim):
        return gather(shape(self), 0, dim)

    def __add__(self, other):
        return elementwise(self, other, trt.ElementWiseOperation.SUM)

    def __mul__(self, other):
        return elementwise(self, other, trt.ElementWiseOperation.PROD)

    def __sub__(self, other):
        return elementwise(self, other, trt.ElementWiseOperation.SUB)

    def __truediv__(self, other):
        return elementwise(self, other, trt.ElementWiseOperation.DIV)

    def __lt__(self, other):
        return elementwise(self, other, trt.ElementWiseOperation.LESS)

    def cast(self, dtype):
        return Tensor(NET.add_cast(self.trt_tensor, dtype).get_output(0))


def out(layer, index=0):
    assert layer is not None, trt.last_error()
    return Tensor(layer.get_output(index))


def constant(array):
    array = np.asarray(array, order="C")
    return out(NET.add_constant(trt.Dims(array.shape), trt.Weights(array)))


def as_tensor(value, like):
    if isinstance(value, Tensor):
        return value
    kind = trt.nptype(like.dtype)
    return constant(np.full((1,) * like.ndim, value, kind))


def elementwise(a, b, op):
    b = as_tensor(b, a)
    while b.ndim < a.ndim:
        b = unsqueeze(b, 0)
    return out(NET.add_elementwise(a.trt_tensor, b.trt_tensor, op))


def shape(x):
    return out(NET.add_shape(x.trt_tensor))


def gather(x, dim, index):
    at = index if isinstance(index, Tensor) else constant(np.array(index, np.int32))
    return out(NET.add_gather(x.trt_tensor, at.trt_tensor, dim))


def concat(tensors, dim=0):
    layer = NET.add_concatenation([t.trt_tensor for t in tensors])
    layer.axis = dim
    return out(layer)


def unsqueeze(x, axis):
    return out(NET.add_unsqueeze(x.trt_tensor, constant(np.array([axis], np.int64)).trt_tensor))


def squeeze(x, axis):
    return out(NET.add_squeeze(x.trt_tensor, constant(np.array([axis], np.int64)).trt_tensor))


def view(x, sizes):
    layer = NET.add_shuffle(x.trt_tensor)
    if any(isinstance(s, Tensor) for s in sizes):
        parts = [unsqueeze(s, 0).cast(trt.int64) if isinstance(s, Tensor) else constant(np.array([s], np.int64)) for s in sizes]
        layer.set_input(1, concat(parts).trt_tensor)
        layer.zero_is_placeholder = False
    else:
        layer.reshape_dims = sizes
    return out(layer)


def permute(x, order):
    layer = NET.add_shuffle(x.trt_tensor)
    layer.second_transpose = order
    return out(layer)


def arange(end, dtype=trt.int32):
    kind = trt.nptype(dtype)
    layer = NET.add_fill([0], trt.FillOperation.LINSPACE, dtype)
    layer.set_input(0, unsqueeze(end.cast(trt.int64), 0).trt_tensor)
    layer.set_input(1, constant(np.array(0, kind)).trt_tensor)
    layer.set_input(2, constant(np.array([1], kind)).trt_tensor)
    return out(layer)


def softmax(x, dim):
    layer = NET.add_softmax(x.trt_tensor)
    layer.axes = 1 << (dim if dim >= 0 else x.ndim + dim)
    return out(layer)


def matmul(a, b, ta=False, tb=False):
    op = {False: trt.MatrixOperation.NONE, True: trt.MatrixOperation.TRANSPOSE}
    return out(NET.add_matrix_multiply(a.trt_tensor, op[ta], b.trt_tensor, op[tb]))


def rms_norm(x, weight, eps=1e-6):
    square = x * x
    mean = out(NET.add_reduce(square.trt_tensor, trt.ReduceOperation.AVG, 1 << (x.ndim - 1), keep_dims=True))
    root = out(NET.add_unary((mean + eps).trt_tensor, trt.UnaryOperation.SQRT))
    return x / root * constant(weight)


def layer_norm(x, weight, bias):
    scale, shift = constant(weight.reshape((1,) * (x.ndim - 1) + (-1,))), constant(bias.reshape((1,) * (x.ndim - 1) + (-1,)))
    layer = NET.add_normalization(x.trt_tensor, scale.trt_tensor, shift.trt_tensor, 1 << (x.ndim - 1))
    layer.epsilon = 1e-5
    layer.compute_precision = trt.float32
    return out(layer)


def silu(x):
    return x * out(NET.add_activation(x.trt_tensor, trt.ActivationType.SIGMOID))


def where(c, a, b):
    return out(NET.add_select(c.trt_tensor, a.trt_tensor, b.trt_tensor))


def dynamic_slice(x, starts, sizes):
    layer = NET.add_slice(x.trt_tensor, [0] * x.ndim, [0] * x.ndim, [1] * x.ndim)
    layer.set_input(1, starts.trt_tensor)
    layer.set_input(2, sizes.trt_tensor)
    return out(layer)


rng = np.random.default_rng(0)
V, D, H = 17, 8, 2
P = {n: (rng.standard_normal(s) * 0.4).astype(np.float32) for n, s in dict(
    emb=(V, D), qkv=(D, 3 * D), proj=(D, D), n1=(D,), n2=(D,), nb=(D,), up=(D, 4 * D), gate=(D, 4 * D), down=(4 * D, D)).items()}


def block(ids):
    b, t = ids.size(0), ids.size(1)
    x = gather(constant(P["emb"]), 0, ids)
    y = rms_norm(x, P["n1"].reshape(1, 1, D))
    qkv = matmul(y, constant(P["qkv"][None]))
    parts = []
    for i in range(3):
        zero, eight = constant(np.array([0, 0, i * D], np.int64)), constant(np.array([D], np.int64))
        sizes = concat([unsqueeze(b.cast(trt.int64), 0), unsqueeze(t.cast(trt.int64), 0), eight])
        part = dynamic_slice(qkv, zero, sizes)
        parts.append(permute(view(part, [b, t, H, D // H]), (0, 2, 1, 3)))
    q, k, v = parts
    scores = matmul(q, k, tb=True) * (1 / np.sqrt(D / H))
    row = arange(t)
    mask = unsqueeze(row, 1) < unsqueeze(row, 0)
    mask = unsqueeze(unsqueeze(mask, 0), 0)
    low = constant(np.full((1, 1, 1, 1), -1e9, np.float32))
    scores = where(mask, low, scores)
    z = permute(matmul(softmax(scores, -1), v), (0, 2, 1, 3))
    x = x + matmul(view(z, [b, t, D]), constant(P["proj"][None]))
    y = layer_norm(x, P["n2"], P["nb"])
    y = silu(matmul(y, constant(P["gate"][None]))) * matmul(y, constant(P["up"][None]))
    x = x + matmul(y, constant(P["down"][None]))
    logits = matmul(x, constant(P["emb"][None]), tb=True)
    last = gather(logits, 1, t - constant(np.array(1, np.int64)) if t.dtype == trt.int64 else t - constant(np.array(1, np.int32)))
    top = NET.add_topk(last.trt_tensor, trt.TopKOperation.MAX, 3, 1 << 1)
    return logits, top


def reference(ids):
    x = P["emb"][ids]
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * P["n1"]
    q, k, v = np.split(y @ P["qkv"], 3, -1)
    q, k, v = (a.reshape(*ids.shape, H, D // H).transpose(0, 2, 1, 3) for a in (q, k, v))
    s = q @ k.transpose(0, 1, 3, 2) / np.sqrt(D / H)
    n = ids.shape[1]
    s = np.where(np.arange(n)[:, None] < np.arange(n)[None], -1e9, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    z = ((e / e.sum(-1, keepdims=True)) @ v).transpose(0, 2, 1, 3).reshape(*ids.shape, D)
    x = x + z @ P["proj"]
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * P["n2"] + P["nb"]
    g = y @ P["gate"]
    x = x + (g / (1 + np.exp(-g)) * (y @ P["up"])) @ P["down"]
    return x @ P["emb"].T


for flags in (0, 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)):
    builder = trt.Builder(LOGGER)
    NET = builder.create_network(flags)
    ids = Tensor(NET.add_input("ids", trt.int32, (-1, -1)))
    ids.trt_tensor.set_dimension_name(0, "batch")
    logits, top = block(ids)
    logits.trt_tensor.name = "logits"
    NET.mark_output(logits.trt_tensor)
    top.get_output(1).name = "top"
    NET.mark_output(top.get_output(1))
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("ids", (1, 3), (2, 5), (4, 9))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(NET, config)
    assert plan is not None, trt.last_error()
    engine = trt.Runtime(LOGGER).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    for size in ((1, 4), (3, 9)):
        given = rng.integers(0, V, size).astype(np.int32)
        assert context.set_input_shape("ids", size)
        assert context.infer_shapes() == []
        found = np.empty(tuple(context.get_tensor_shape("logits")), np.float32)
        best = np.empty(tuple(context.get_tensor_shape("top")), np.int32)
        for name, array in (("ids", given), ("logits", found), ("top", best)):
            assert context.set_tensor_address(name, array.ctypes.data)
        assert context.execute_async_v3(0)
        wanted = reference(given)
        assert np.allclose(found, wanted, atol=1e-3), np.abs(found - wanted).max()
        assert (best == np.argsort(-wanted[:, -1], axis=1, kind="stable")[:, :3]).all()
print("OK")
