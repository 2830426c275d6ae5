"""Random cases of pointwise operators, reductions, norms and selections, for `sweep.py`."""
import math

import numpy as np
from onnx import TensorProto as T

from draws import FLOATS, INTS, Draw, kind

UNARY = {
    "Abs": FLOATS + INTS, "Neg": FLOATS + ("i8", "i32", "i64"), "Sign": FLOATS + INTS, "Relu": FLOATS + ("i8", "i32"), "Sigmoid": FLOATS,
    "Tanh": FLOATS, "Erf": FLOATS, "Exp": FLOATS, "Sin": FLOATS, "Cos": FLOATS, "Tan": FLOATS, "Atan": FLOATS, "Sinh": FLOATS, "Cosh": FLOATS,
    "Asinh": FLOATS, "Ceil": FLOATS, "Floor": FLOATS, "Round": FLOATS, "Softplus": FLOATS, "Softsign": FLOATS, "HardSigmoid": FLOATS,
    "HardSwish": FLOATS, "Elu": FLOATS, "Selu": FLOATS, "Celu": FLOATS, "LeakyRelu": FLOATS, "ThresholdedRelu": FLOATS, "Gelu": FLOATS,
    "Mish": FLOATS, "Shrink": FLOATS, "Identity": FLOATS + INTS, "IsNaN": FLOATS, "IsInf": FLOATS, "Not": ("bool",), "BitwiseNot": INTS,
    "Sqrt": FLOATS, "Log": FLOATS, "Reciprocal": FLOATS, "Acosh": FLOATS, "Asin": FLOATS, "Acos": FLOATS, "Atanh": FLOATS,
}
# Operators that are defined on part of the numbers: an input in there.
DOMAINS = {"Sqrt": abs, "Log": lambda x: abs(x) + x.dtype.type(0.1), "Reciprocal": lambda x: abs(x) + x.dtype.type(0.1), "Acosh": lambda x: abs(x) + x.dtype.type(1),
           "Asin": lambda x: np.tanh(x) * x.dtype.type(0.99), "Acos": lambda x: np.tanh(x) * x.dtype.type(0.99), "Atanh": lambda x: np.tanh(x) * x.dtype.type(0.9)}
VERSIONS = {"Gelu": 20, "Mish": 18, "BitwiseNot": 18, "BitwiseAnd": 18, "BitwiseOr": 18, "BitwiseXor": 18, "Pow": 15}
BINARY = {
    "Add": FLOATS + INTS, "Sub": FLOATS + INTS, "Mul": FLOATS + INTS, "Div": FLOATS + ("i32", "i64"), "Pow": ("f32",), "Mod": ("i32", "i64", "i8", "u8"),
    "Max": FLOATS + INTS, "Min": FLOATS + INTS, "Mean": ("f32",), "Sum": ("f32",), "Equal": FLOATS + INTS + ("bool",),
    "Less": FLOATS + INTS, "LessOrEqual": FLOATS + INTS, "Greater": FLOATS + INTS, "GreaterOrEqual": FLOATS + INTS, "And": ("bool",), "Or": ("bool",),
    "Xor": ("bool",), "BitwiseAnd": INTS, "BitwiseOr": INTS, "BitwiseXor": INTS, "BitShift": ("u8",), "PRelu": FLOATS,
}
CASTS = ("f32", "f16", "i8", "u8", "i32", "i64", "bool")
CODES = {"f32": T.FLOAT, "f16": T.FLOAT16, "i8": T.INT8, "u8": T.UINT8, "i32": T.INT32, "i64": T.INT64, "bool": T.BOOL}


@kind(5)
def unary(d: Draw):
    op = d.choice(list(UNARY))
    x = d.array(d.type(UNARY[op]), d.any_shape())
    if op in DOMAINS:
        x = DOMAINS[op](x)
    return d.case(op, [x], opset=VERSIONS.get(op, 17), **({"approximate": d.choice(("none", "tanh"))} if op == "Gelu" else {}))


@kind(1)
def clip(d):
    t = d.type(FLOATS + INTS)
    x = d.array(t, d.any_shape())
    return d.case("Clip", [x], [x.dtype.type(1), x.dtype.type(5)])


@kind(6)
def binary(d):
    op = d.choice(list(BINARY))
    t = d.type(BINARY[op])
    a, b = d.broadcast()
    if op == "PRelu":
        a = tuple(max(x, y) for x, y in zip(a, (1,) * (len(a) - len(b)) + b))
    x, y = d.array(t, a), d.array(t, b)
    if op in ("Div", "Mod"):
        y = np.where(y == 0, y.dtype.type(3), y)
    if op == "Pow":
        x = abs(x)
    extra = {"direction": d.choice(("LEFT", "RIGHT"))} if op == "BitShift" else {}
    if op == "BitShift":
        y = y % y.dtype.type(8)
    return d.case(op, [x, y], opset=VERSIONS.get(op, 17), **extra)


@kind(2)
def binary_constant(d):
    op = d.choice(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Equal", "Less", "Greater"))
    t = d.type(("f32",) if op == "Pow" else BINARY[op])
    x = d.array(t, d.any_shape())
    y = d.array(t, d.choice(((), (1,), x.shape[-1:])))
    if op == "Pow":
        x, y = abs(x), np.array(d.choice((2, 3, 0.5, 1.7, -1)), y.dtype)
    if op == "Div":
        y = np.where(y == 0, y.dtype.type(3), y)
    return d.case(op, [x], [y], opset=VERSIONS.get(op, 17))


@kind(1)
def variadic(d):
    s = d.any_shape()
    op = d.choice(("Max", "Min", "Mean", "Sum"))
    return d.case(op, [d.array("f32", s) for _ in range(d.choice((1, 3, 4)))])


@kind(2)
def where(d):
    a, b = d.broadcast()
    t = d.type(FLOATS + INTS)
    full = tuple(max(x, y) for x, y in zip(a, (1,) * (len(a) - len(b)) + b))
    shapes = [full, a, b]
    d.r.shuffle(shapes)
    return d.case("Where", [d.array("bool", shapes[0]), d.array(t, shapes[1]), d.array(t, shapes[2])])


@kind(4)
def cast(d):
    a, b = d.r.sample(CASTS, 2)
    x = d.array(a, d.any_shape())
    return d.case("Cast", [abs(x) if b.startswith("u") and a != "bool" else x], to=CODES[b])


@kind(5)
def reduce(d):
    op = "Reduce" + d.choice(("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"))
    ints = ("f32", "f32", "f32", "i32", "i64") + (("i8", "u8") if op in ("ReduceMax", "ReduceMin") else ())
    x = d.array(d.type(ints if op not in ("ReduceLogSum", "ReduceLogSumExp") else ("f32",)), d.any_shape())
    if op == "ReduceLogSum":
        x = abs(x)
    if op == "ReduceProd":
        x = 1 + x / 64 if x.dtype.kind == "f" else np.sign(x) + (x == 0)
        x = x.astype(np.float32) if x.dtype.kind == "f" else x
    axes = sorted(d.r.sample(range(x.ndim), d.r.randint(1, x.ndim)))
    return d.case(op, [x], [np.array(axes)], opset=18, keepdims=d.choice((0, 1)))


@kind(2)
def arg(d):
    x = d.array(d.type(("f32", "f32", "i32", "i8", "u8")), d.any_shape())
    return d.case(d.choice(("ArgMax", "ArgMin")), [x], axis=d.axis(x.ndim), keepdims=d.choice((0, 1)), select_last_index=d.choice((0, 0, 1)))


@kind(2)
def cumulative(d):
    x = d.array(d.type(("f32", "i32", "i64")), d.any_shape())
    return d.case("CumSum", [x], [np.int64(d.axis(x.ndim))], exclusive=d.choice((0, 0, 1)), reverse=d.choice((0, 0, 1)))


@kind(4)
def softmax(d):
    x = d.array(d.type(FLOATS), d.any_shape())
    return d.case(d.choice(("Softmax", "Softmax", "LogSoftmax", "Hardmax")), [x], axis=d.axis(x.ndim))


@kind(3)
def topk(d):
    x = d.array(d.type(("f32", "f32", "i32", "i64")), d.any_shape())
    at = d.axis(x.ndim)
    k = min(x.shape[at], d.size(1, 500))
    return d.case("TopK", [x], [np.array([k])], outputs=2, axis=at, largest=d.choice((1, 1, 0)), sorted=1)


@kind(3)
def layer_norm(d):
    x = d.array(d.type(FLOATS), d.any_shape(rank=d.choice((2, 3, 4))))
    at = d.choice((-1, -1, 1)) if x.shape[-1] >= 8 else 1
    s = x.shape[at:]
    return d.case("LayerNormalization", [x], [d.array(x.dtype, s), d.array(x.dtype, s)], axis=at)


@kind(2)
def channel_norm(d):
    x = d.array(d.type(FLOATS), d.image())
    c = x.shape[1]
    of = lambda: d.array(x.dtype, (c,))
    if d.r.random() < 0.5:
        return d.case("InstanceNormalization", [x], [of(), of()])
    return d.case("BatchNormalization", [x], [of(), of(), of(), abs(of()) + x.dtype.type(0.1)])


@kind(2)
def other_norm(d):
    op = d.choice(("LRN", "LpNormalization", "MeanVarianceNormalization", "GroupNormalization"))
    x = d.array("f32", d.image())
    if op == "LRN":
        return d.case(op, [x], size=d.choice((3, 5)))
    if op == "LpNormalization":
        return d.case(op, [x], axis=d.axis(x.ndim), p=d.choice((1, 2)))
    if op == "GroupNormalization":
        g = d.choice([g for g in (1, 2, 4, 8, 16, 32, x.shape[1]) if x.shape[1] % g == 0])
        return d.case(op, [x], [d.array("f32", x.shape[1:2]), d.array("f32", x.shape[1:2])], opset=21, num_groups=g)
    return d.case(op, [x], axes=d.choice(([0, 2, 3], [2, 3], [1])) if x.ndim == 4 else [x.ndim - 1])


@kind(3)
def quantize(d):
    x = d.array("f32", d.image())
    t, axis = d.choice((np.uint8, np.int8)), d.choice((None, 1))
    count = () if axis is None else (x.shape[1],)
    scale = np.full(count, 0.02, np.float32)
    zero = np.full(count, d.choice((0, 3)), t)
    extra = {} if axis is None else {"axis": axis}
    if d.r.random() < 0.2:
        return d.case("DynamicQuantizeLinear", [x], outputs=3)
    if d.r.random() < 0.5:
        return d.case("QuantizeLinear", [x], [scale, zero], **extra)
    if d.r.random() < 0.2:
        return d.case("DequantizeLinear", [d.array("i32", x.shape)], [scale], **extra)
    return d.case("DequantizeLinear", [(x * 30).astype(np.int32).astype(t)], [scale, zero], **extra)


@kind(2)
def loss(d):
    rows, classes = d.size(16, 2048), d.size(8, 4096)
    x, at = d.array("f32", (rows, classes)), d.ids(classes, (rows,))
    reduction = d.choice(("none", "mean", "sum"))
    return d.case(d.choice(("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")), [x, at], reduction=reduction)


@kind(1)
def signal(d):
    n = d.choice((256, 400, 512, 1000, 1024, 4096, 480, 331))
    if d.r.random() < 0.5:
        return d.case("DFT", [d.array("f32", (d.size(1, 64), n, d.choice((1, 2))))], axis=1, onesided=0)
    length = n * d.r.randint(4, 64)
    return d.case("STFT", [d.array("f32", (1, length, 1))], [np.int64(n // 4), np.hanning(n).astype(np.float32)], onesided=1)


@kind(2)
def generated(d):
    n = d.size(64, 2048)
    op = d.choice(("Trilu", "EyeLike", "NonZero", "Unique", "Det"))
    if op == "Trilu":
        return d.case(op, [d.array(d.type(("f32", "i64")), (d.size(1, 8), n, d.size(64, 1024)))], [np.int64(d.r.randint(-4, 4))], upper=d.choice((0, 1)))
    if op == "EyeLike":
        return d.case(op, [d.array("f32", (n, n))])
    if op == "NonZero":
        return d.case(op, [d.array(d.type(("f32", "bool", "i64", "u8")), d.any_shape())])
    if op == "Unique":
        return d.case(op, [d.ids(d.size(2, 5000), (d.size(1000, 200000),))], outputs=4)
    return d.case(op, [d.array("f32", (d.size(1, 64), m := d.choice((3, 8, 32, 64)), m)) / math.sqrt(m)])
