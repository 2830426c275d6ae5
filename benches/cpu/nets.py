"""Networks with random weights, written as ONNX models without a framework: `network(name, batch)` is a model and its inputs."""
import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT8, UINT8, INT64 = np.float32, np.int8, np.uint8, np.int64


class Net:
    """A graph in the making. Values are names; weights are drawn with the variance that keeps that of activations."""

    def __init__(self, opset=17):
        self.nodes, self.weights, self.inputs, self.opset, self.count = [], [], {}, opset, 0
        self.rng = np.random.default_rng(7)

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def input(self, name, array):
        self.inputs[name] = array
        return name

    def floats(self, *shape):
        return self.rng.standard_normal(shape).astype(FLOAT)

    def const(self, array):
        name = self.name()
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape, fan=None):
        return self.const(self.floats(*shape) * FLOAT(math.sqrt(1 / (fan or shape[0]))))

    def op(self, kind, *inputs, outputs=1, **attributes):
        results = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, results, **attributes))
        return results[0] if outputs == 1 else results

    def shape(self, x, *dims):
        return self.op("Reshape", x, self.const(np.array(dims, INT64)))

    def linear(self, x, i, o):
        return self.op("Add", self.op("MatMul", x, self.weight(i, o)), self.const(self.floats(o) * FLOAT(0.1)))

    def norm(self, x, c):
        return self.op("LayerNormalization", x, self.const(np.ones(c, FLOAT)), self.const(np.zeros(c, FLOAT)), axis=-1)

    def gelu(self, x):
        one = self.op("Add", self.op("Erf", self.op("Div", x, self.const(FLOAT(math.sqrt(2))))), self.const(FLOAT(1)))
        return self.op("Mul", self.op("Mul", x, one), self.const(FLOAT(0.5)))

    def conv(self, x, i, o, k=3, stride=1, groups=1):
        pad = [(k - 1) // 2] * 4
        w = self.weight(o, i // groups, k, k, fan=i // groups * k * k / 2)
        return self.op("Conv", x, w, self.const(self.floats(o) * FLOAT(0.1)), pads=pad, strides=[stride] * 2, group=groups)

    def relu(self, x):
        return self.op("Relu", x)

    def swish(self, x):
        return self.op("Mul", x, self.op("Sigmoid", x))

    def model(self, *outputs):
        ins = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in self.inputs.items()]
        outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
        graph = helper.make_graph(self.nodes, "net", ins, outs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8), self.inputs


def attention(n, x, batch, tokens, c, heads, mask=None):
    """Heads of attention over `tokens` as exporters write them."""
    def split(y, perm):
        return n.op("Transpose", n.shape(y, batch, tokens, heads, c // heads), perm=perm)

    q, k, v = (split(n.linear(x, c, c), p) for p in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scores = n.op("Div", n.op("MatMul", q, k), n.const(FLOAT(math.sqrt(c // heads))))
    scores = scores if mask is None else n.op("Add", scores, mask)
    y = n.op("MatMul", n.op("Softmax", scores, axis=-1), v)
    return n.linear(n.shape(n.op("Transpose", y, perm=[0, 2, 1, 3]), batch, tokens, c), c, c)


def mlp(n, x, c):
    return n.linear(n.gelu(n.linear(x, c, 4 * c)), 4 * c, c)


def bert(n, batch, layers=4, tokens=128, c=768):
    ids = n.input("ids", n.rng.integers(0, 3000, (batch, tokens)).astype(INT64))
    x = n.op("Add", n.op("Gather", n.weight(3000, c, fan=1), ids), n.weight(tokens, c, fan=1))
    x = n.norm(x, c)
    for _ in range(layers):
        x = n.norm(n.op("Add", x, attention(n, x, batch, tokens, c, 12)), c)
        x = n.norm(n.op("Add", x, mlp(n, x, c)), c)
    return x


def vit(n, batch, layers=4, c=768):
    image = n.input("image", n.floats(batch, 3, 224, 224))
    x = n.op("Conv", image, n.weight(c, 3, 16, 16, fan=768), strides=[16, 16])
    x = n.op("Transpose", n.shape(x, batch, c, 196), perm=[0, 2, 1])
    token = n.op("Expand", n.weight(1, 1, c), n.const(np.array([batch, 1, c], INT64)))
    x = n.op("Add", n.op("Concat", token, x, axis=1), n.weight(197, c, fan=100))
    for _ in range(layers):
        x = n.op("Add", x, attention(n, n.norm(x, c), batch, 197, c, 12))
        x = n.op("Add", x, mlp(n, n.norm(x, c), c))
    first = n.op("Gather", n.norm(x, c), n.const(np.int64(0)), axis=1)
    return n.linear(first, c, 1000)


def swin(n, batch, depths=(2, 2, 2, 2), c=96, window=7):
    image = n.input("image", n.floats(batch, 3, 224, 224))
    size = 56
    x = n.op("Conv", image, n.weight(c, 3, 4, 4, fan=48), strides=[4, 4])
    x = n.norm(n.op("Transpose", x, perm=[0, 2, 3, 1]), c)
    for stage, depth in enumerate(depths):
        if stage:
            x = merge(n, x, c)
            size, c = size // 2, c * 2
        for block in range(depth):
            x = n.op("Add", x, windowed(n, n.norm(x, c), (batch, size, c), c // 32, window, 3 if block % 2 and size > window else 0))
            x = n.op("Add", x, mlp(n, n.norm(x, c), c))
    return n.linear(n.op("ReduceMean", n.norm(x, c), axes=[1, 2], keepdims=0), c, 1000)


def part(n, x, start, end, axis, step=1):
    return n.op("Slice", x, *(n.const(np.array([i], INT64)) for i in (start, end, axis, step)))


def merge(n, x, c):
    """Four neighbours side by side, halved."""
    parts = [part(n, part(n, x, i, 9999, 1, 2), j, 9999, 2, 2) for j in (0, 1) for i in (0, 1)]
    return n.op("MatMul", n.norm(n.op("Concat", *parts, axis=-1), 4 * c), n.weight(4 * c, 2 * c))


def roll(n, x, by):
    for axis in (1, 2):
        x = n.op("Concat", part(n, x, by, 9999, axis), part(n, x, -9999, by, axis), axis=axis)
    return x


def windowed(n, x, sizes, heads, window, shift):
    batch, size, c = sizes
    many, tokens = size // window, window * window
    x = roll(n, x, shift) if shift else x
    x = n.op("Transpose", n.shape(x, batch, many, window, many, window, c), perm=[0, 1, 3, 2, 4, 5])
    mask = n.weight(1, heads, tokens, tokens, fan=1)
    x = attention(n, n.shape(x, batch * many * many, tokens, c), batch * many * many, tokens, c, heads, mask)
    x = n.op("Transpose", n.shape(x, batch, many, many, window, window, c), perm=[0, 1, 3, 2, 4, 5])
    x = n.shape(x, batch, size, size, c)
    return roll(n, x, -shift) if shift else x


def gpt2_step(n, batch, layers=4, c=768, past=512, words=10000):
    ids = n.input("ids", n.rng.integers(0, words, (batch, 1)).astype(INT64))
    table = n.weight(words, c, fan=c)
    x = n.op("Add", n.op("Gather", table, ids), n.weight(1, c, fan=c))
    kept = []
    for i in range(layers):
        y = n.norm(x, c)
        q, k, v = n.op("Split", n.linear(y, c, 3 * c), n.const(np.array([c] * 3, INT64)), outputs=3, axis=-1)
        q, k, v = (n.op("Transpose", n.shape(z, batch, 1, 12, 64), perm=[0, 2, 1, 3]) for z in (q, k, v))
        k = n.op("Concat", n.input(f"past_k{i}", n.floats(batch, 12, past, 64)), k, axis=2)
        v = n.op("Concat", n.input(f"past_v{i}", n.floats(batch, 12, past, 64)), v, axis=2)
        kept += [k, v]
        scores = n.op("MatMul", q, n.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = n.op("Softmax", n.op("Div", scores, n.const(FLOAT(8))), axis=-1)
        y = n.op("Transpose", n.op("MatMul", scores, v), perm=[0, 2, 1, 3])
        x = n.op("Add", x, n.linear(n.shape(y, batch, 1, c), c, c))
        x = n.op("Add", x, mlp(n, n.norm(x, c), c))
    return [n.op("MatMul", n.norm(x, c), n.op("Transpose", table, perm=[1, 0])), *kept]


def unet(n, batch, c=32, size=192):
    x, skips = n.input("image", n.floats(batch, 3, size, size)), []
    width = 3
    for level in range(4):
        o = c << level
        x = n.relu(n.conv(n.relu(n.conv(x, width, o)), o, o))
        skips.append(x)
        x, width = n.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), o
    x = n.relu(n.conv(n.relu(n.conv(x, width, 2 * width)), 2 * width, 2 * width))
    width *= 2
    for level in reversed(range(4)):
        o = c << level
        x = n.op("ConvTranspose", x, n.weight(width, o, 2, 2), strides=[2, 2])
        x = n.op("Concat", x, skips[level], axis=1)
        x, width = n.relu(n.conv(n.relu(n.conv(x, 2 * o, o)), o, o)), o
    return n.conv(x, width, 2, 1)


def efficientnet(n, batch):
    """The B0 of the family: inverted bottlenecks with gates of channels."""
    x = n.swish(n.conv(n.input("image", n.floats(batch, 3, 224, 224)), 3, 32, 3, 2))
    width = 32
    for wide, o, many, stride, k in ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)):
        for block in range(many):
            by, inner, kept = stride if block == 0 else 1, width * wide, x
            y = n.swish(n.conv(x, width, inner, 1)) if wide > 1 else x
            y = n.swish(n.conv(y, inner, inner, k, by, inner))
            gate = n.swish(n.conv(n.op("GlobalAveragePool", y), inner, max(1, width // 4), 1))
            gate = n.op("Sigmoid", n.conv(gate, max(1, width // 4), inner, 1))
            y = n.conv(n.op("Mul", y, gate), inner, o, 1)
            x = n.op("Add", y, kept) if by == 1 and width == o else y
            width = o
    x = n.op("Flatten", n.op("GlobalAveragePool", n.swish(n.conv(x, 320, 1280, 1))))
    return n.op("Gemm", x, n.weight(1000, 1280, fan=1280), n.const(np.zeros(1000, FLOAT)), transB=1)


def quantized(n, batch):
    """A residual network of 18 layers in 8 bits, as quantizers write it.

    Weights have 7 bits: ONNX Runtime's sums saturate in 16 bits on processors without VNNI, and results of wider weights are wrong.
    """
    def scale(x, s, zero=128):
        scales = n.const(FLOAT(s)), n.const(UINT8(zero))
        return n.op("DequantizeLinear", n.op("QuantizeLinear", x, *scales), *scales)

    def conv(x, i, o, k, stride):
        w = n.const(n.rng.integers(-63, 64, (o, i, k, k)).astype(INT8))
        w = n.op("DequantizeLinear", w, n.const(np.full(o, math.sqrt(2 / (i * k * k)) / 37, FLOAT)), n.const(np.zeros(o, INT8)), axis=0)
        return n.op("Conv", x, w, n.const(n.floats(o) * FLOAT(0.1)), pads=[k // 2] * 4, strides=[stride] * 2)

    x = scale(n.input("image", n.floats(batch, 3, 224, 224)), 0.03)
    x = scale(n.relu(conv(x, 3, 64, 7, 2)), 0.03, 0)
    x = n.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    width = 64
    for o, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        y = scale(n.relu(conv(x, width, o, 3, stride)), 0.03, 0)
        y = scale(conv(y, o, o, 3, 1), 0.03)
        kept = x if stride == 1 and width == o else scale(conv(x, width, o, 1, stride), 0.03)
        x, width = scale(n.relu(n.op("Add", y, kept)), 0.05, 0), o
    x = scale(n.op("Flatten", n.op("GlobalAveragePool", x)), 0.03, 0)
    w = n.op("DequantizeLinear", n.const(n.rng.integers(-63, 64, (512, 1000)).astype(INT8)), n.const(FLOAT(0.0012)), n.const(INT8(0)))
    return n.op("MatMul", x, w)


def lstm(n, batch, tokens=64, h=256, layers=2):
    x = n.input("x", n.floats(tokens, batch, h))
    for _ in range(layers):
        w, r = n.weight(1, 4 * h, h, fan=h), n.weight(1, 4 * h, h, fan=h)
        y = n.op("LSTM", x, w, r, n.const(n.floats(1, 8 * h) * FLOAT(0.1)), hidden_size=h)
        x = n.op("Squeeze", y, n.const(np.array([1], INT64)))
    return n.linear(x, h, 1000)


NETWORKS = {f.__name__: f for f in (bert, vit, swin, gpt2_step, unet, efficientnet, quantized, lstm)}


def network(name, batch):
    """A model and its inputs."""
    n = Net()
    made = NETWORKS[name](n, batch)
    return n.model(*([made] if isinstance(made, str) else made))
