"""One generator of random cases for each operator of ONNX; `make.py` asks ONNX Runtime for their answers."""
import dataclasses

import numpy as np

F32, F16, I64, I32, I8, U8, BOOL = np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_


@dataclasses.dataclass
class Case:
    """An operator with attributes and inputs: pairs (array or None, whether it is an initializer)."""
    op: str
    inputs: list
    attributes: dict
    outputs: list = dataclasses.field(default_factory=lambda: [True])
    opset: int = 0
    note: str = ""
    """What `differences.txt` may have to know of the data."""


class Draw:
    """Random choices of a case."""

    def __init__(self, rng):
        self.rng = rng

    def int(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def flip(self, p=0.5):
        return bool(self.rng.random() < p)

    def pick(self, of):
        return of[self.int(0, len(of) - 1)]

    def real(self, low, high):
        return float(np.float32(self.rng.uniform(low, high)))

    def shape(self, low=0, high=4, most=6, empty=0.04):
        """A shape of low to high dimensions; now and then one of them is 0, often some are 1."""
        s = [1 if self.flip(0.15) else self.int(2, most) for _ in range(self.int(low, high))]
        if s and self.flip(empty):
            s[self.int(0, len(s) - 1)] = 0
        return s

    def data(self, dtype, shape, low=-3.0, high=3.0, edges=0.0):
        """Random elements. With probability `edges` some floats are NaN, infinite, huge, tiny or signed zeros."""
        if dtype == BOOL:
            return self.rng.integers(0, 2, shape).astype(BOOL)
        if np.issubdtype(dtype, np.integer):
            least = max(int(low * 4), 0 if dtype == U8 else -100)
            return self.rng.integers(least, max(int(high * 4), least + 1) + 1, shape).astype(dtype)
        x = self.rng.uniform(low, high, shape).astype(dtype)
        if x.size and self.flip(edges):
            special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-5, 6e4, -6e4, 0.5, -0.5, 2.5], dtype)
            flat = x.reshape(-1)
            for i in range(0, flat.size, self.int(1, 5)):
                flat[i] = special[self.int(0, len(special) - 1)]
        return x

    def ints(self, shape, low, high):
        return self.rng.integers(low, high + 1, shape).astype(I64)

    def axis(self, rank):
        return self.int(-rank, rank - 1)

    def axes(self, rank, least=0):
        n = self.int(least, rank)
        chosen = self.rng.permutation(rank)[:n]
        return np.array([int(a) - rank if self.flip(0.3) else int(a) for a in chosen], I64)

    def some(self, attributes, p=0.6):
        """A random part of the attributes; those left out take their defaults."""
        return {k: v for k, v in attributes.items() if self.flip(p)}

    def broadcast(self, shape):
        """A shape that broadcasts to another."""
        s = [1 if self.flip(0.3) else d for d in shape]
        return s[self.int(0, len(s)):] if self.flip(0.4) else s


GENERATORS = {}


def operator(*names):
    def add(f):
        for name in names:
            GENERATORS[name] = lambda d, name=name: f(d, name)
        return f
    return add


def plain(d, *arrays):
    """Inputs that are given at run time."""
    return [(np.asarray(a), False) for a in arrays]


def maybe_constant(d, array):
    return (array, d.flip())


# ---- element by element

@operator("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log",
          "Neg", "Reciprocal", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
          "Relu", "HardSwish", "Mish", "IsNaN")
def unary(d, op):
    types = [F32, F32, F16] + ([I32, I64, I8] if op in ("Abs", "Neg", "Sign", "Relu") else [])
    return Case(op, plain(d, d.data(d.pick(types), d.shape(), -4, 4, edges=0.3)), {})


@operator("IsInf")
def is_inf(d, op):
    attributes = d.some({"detect_negative": d.int(0, 1), "detect_positive": d.int(0, 1)})
    return Case(op, plain(d, d.data(F32, d.shape(), edges=0.8)), attributes)


@operator("Celu", "Elu", "LeakyRelu", "ThresholdedRelu", "Selu", "HardSigmoid", "Shrink", "Gelu")
def activation(d, op):
    attributes = {
        "Celu": {"alpha": d.real(0.2, 2)}, "Elu": {"alpha": d.real(-1, 2)}, "LeakyRelu": {"alpha": d.real(-1, 2)},
        "ThresholdedRelu": {"alpha": d.real(-1, 2)}, "Selu": {"alpha": d.real(0.5, 2), "gamma": d.real(0.5, 2)},
        "HardSigmoid": {"alpha": d.real(0.1, 1), "beta": d.real(-0.5, 1)},
        "Shrink": {"bias": d.real(-1, 1), "lambd": d.real(0, 1)},
        "Gelu": {"approximate": d.pick(["none", "tanh"])},
    }[op]
    return Case(op, plain(d, d.data(F32, d.shape(), -4, 4, edges=0.2)), d.some(attributes))


@operator("PRelu")
def prelu(d, op):
    shape = d.shape(1)
    return Case(op, plain(d, d.data(F32, shape), d.data(F32, d.broadcast(shape))), {})


@operator("Clip")
def clip(d, op):
    t = d.pick([F32, F16, I32, I64, I8, U8])
    bound = lambda low, high: maybe_constant(d, d.data(t, [], low, high)) if d.flip(0.7) else (None, False)
    low, high = (0, 2) if t == U8 else (-2, 0)
    return Case(op, [(d.data(t, d.shape(), edges=0.2), False), bound(low, high - 1), bound(high, high + 2)], {})


@operator("Add", "Sub", "Mul", "Div", "Pow")
def binary(d, op):
    t = d.pick([F32, F32, F16, I32, I64] if op != "Pow" else [F32, F32, I32, I64])
    shape = d.shape()
    a, b = d.data(t, d.broadcast(shape), edges=0.2), d.data(t, d.broadcast(shape), edges=0.2)
    if op == "Div" and np.issubdtype(t, np.integer):
        b = np.where(b == 0, t(3), b)
    if op == "Pow":
        a = np.abs(a) if d.flip(0.7) else a
        b = np.abs(b) if np.issubdtype(t, np.integer) else b
    return Case(op, plain(d, a, b), {})


@operator("Mod")
def mod(d, op):
    t = d.pick([F32, F16, I32, I64, I8, U8])
    shape = d.shape()
    a, b = d.data(t, d.broadcast(shape), -9, 9), d.data(t, d.broadcast(shape), -4, 4)
    b = np.where(b == 0, t(3), b).astype(t)
    real = t in (F32, F16)
    return Case(op, plain(d, a, b), {"fmod": 1} if real or d.flip() else d.some({"fmod": 0}))


@operator("Max", "Min", "Sum", "Mean")
def variadic(d, op):
    t = d.pick([F32, F16, I32, I64] if op in ("Max", "Min") else [F32])
    shape = d.shape()
    edges = 0.3 if op in ("Max", "Min") else 0
    return Case(op, plain(d, *[d.data(t, d.broadcast(shape), edges=edges) for _ in range(d.int(1, 4))]), {})


@operator("And", "Or", "Xor")
def logical(d, op):
    shape = d.shape()
    return Case(op, plain(d, d.data(BOOL, d.broadcast(shape)), d.data(BOOL, d.broadcast(shape))), {})


@operator("Not")
def logical_not(d, op):
    return Case(op, plain(d, d.data(BOOL, d.shape())), {})


@operator("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
def comparison(d, op):
    t = d.pick([F32, F32, I32, I64] + ([BOOL] if op == "Equal" else []))
    shape = d.shape()
    a, b = d.data(t, d.broadcast(shape), -1, 1, edges=0.3), d.data(t, d.broadcast(shape), -1, 1, edges=0.3)
    return Case(op, plain(d, np.round(a) if t == F32 else a, np.round(b) if t == F32 else b), {})


@operator("BitShift")
def bit_shift(d, op):
    shape = d.shape()
    return Case(op, plain(d, d.data(U8, d.broadcast(shape), 0, 60), d.data(U8, d.broadcast(shape), 0, 1.7)),
                {"direction": d.pick(["LEFT", "RIGHT"])})


@operator("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(d, op):
    t, shape = d.pick([I32, I64, I8, U8]), d.shape()
    return Case(op, plain(d, d.data(t, d.broadcast(shape), -30, 30), d.data(t, d.broadcast(shape), -30, 30)), {})


@operator("BitwiseNot")
def bitwise_not(d, op):
    return Case(op, plain(d, d.data(d.pick([I32, I64, I8, U8]), d.shape())), {})


@operator("Where")
def where(d, op):
    t, shape = d.pick([F32, I64, U8, F16]), d.shape()
    return Case(op, plain(d, d.data(BOOL, d.broadcast(shape)), d.data(t, d.broadcast(shape), edges=0.3),
                          d.data(t, d.broadcast(shape))), {})


@operator("Cast", "CastLike")
def cast(d, op):
    a, b = d.pick([F32, F16, I32, I64, I8, U8, BOOL]), d.pick([F32, F16, I32, I64, I8, U8, BOOL])
    low = 0 if b in (U8,) else -20
    x = d.data(a, d.shape(), low, 25)
    to = {F32: 1, F16: 10, I32: 6, I64: 7, I8: 3, U8: 2, BOOL: 9}[b]
    if op == "CastLike":
        return Case(op, plain(d, x, d.data(b, [1])), {})
    return Case(op, plain(d, x), {"to": to})


# ---- along axes

@operator("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
          "ReduceLogSumExp", "ReduceSumSquare")
def reduce(d, op):
    t = d.pick([F32, F32, I32] + ([I64, I8] if op in ("ReduceMax", "ReduceMin") else []))
    shape = d.shape(0, 4, 5)
    low = 0.1 if op == "ReduceLogSum" else -2
    axes = d.axes(len(shape))
    given = maybe_constant(d, axes) if d.flip(0.8) else (None, False)
    # An empty list that is no constant leaves the rank of the result open.
    if given[0] is not None and given[0].size == 0:
        given = (given[0], True)
    attributes = d.some({"keepdims": d.int(0, 1), "noop_with_empty_axes": d.int(0, 1)})
    if given[0] is not None and not given[1]:
        attributes.pop("keepdims", None)
    return Case(op, [(d.data(t, shape, low, 2), False), given], attributes)


@operator("ArgMax", "ArgMin")
def arg_extremum(d, op):
    shape = d.shape(1, empty=0)
    x = d.data(d.pick([F32, I32, I8, U8]), shape, -1, 1)
    return Case(op, plain(d, np.round(x * 2) if d.flip() and x.dtype == F32 else x), d.some(
        {"axis": d.axis(len(shape)), "keepdims": d.int(0, 1), "select_last_index": d.int(0, 1)}))


@operator("TopK")
def top_k(d, op):
    shape = d.shape(1, empty=0)
    axis = d.axis(len(shape))
    x = d.data(d.pick([F32, I64, I32]), shape)
    k = np.array([d.int(0, shape[axis])], I64)
    # Equal elements may come in any order; the suite compares indices, so values are made distinct.
    x = d.rng.permutation(np.arange(x.size)).reshape(shape).astype(x.dtype)
    return Case(op, [(x, False), maybe_constant(d, k)], {"axis": axis, **d.some({"largest": d.int(0, 1), "sorted": 1})},
                [True, True])


@operator("CumSum")
def cumsum(d, op):
    shape = d.shape(1)
    axis = np.array(d.axis(len(shape)), d.pick([I32, I64]))
    return Case(op, [(d.data(d.pick([F32, I32, I64]), shape), False), maybe_constant(d, axis)],
                d.some({"exclusive": d.int(0, 1), "reverse": d.int(0, 1)}))


@operator("Softmax", "LogSoftmax", "Hardmax")
def softmax(d, op):
    shape = d.shape(1)
    t = d.pick([F32, F32, F16]) if op != "Hardmax" else F32
    return Case(op, plain(d, d.data(t, shape, -8, 8)), d.some({"axis": d.axis(len(shape))}))


@operator("LayerNormalization")
def layer_norm(d, op):
    shape = d.shape(1, empty=0)
    axis = d.axis(len(shape))
    tail = shape[axis:] if axis < 0 else shape[axis:]
    bias = (d.data(F32, tail), d.flip()) if d.flip() else (None, False)
    outputs = d.pick([[True], [True, True, True], [True, True]])
    return Case(op, [(d.data(F32, shape), False), (d.data(F32, tail), d.flip()), bias],
                {"axis": axis, **d.some({"epsilon": d.real(1e-6, 0.1)})}, outputs)


@operator("GroupNormalization")
def group_norm(d, op):
    groups, size = d.int(1, 3), d.int(1, 3)
    c = groups * size
    shape = [d.int(1, 3), c] + d.shape(1, 2, empty=0)
    case = Case(op, plain(d, d.data(F32, shape), d.data(F32, [c]), d.data(F32, [c])),
                {"num_groups": groups, **d.some({"epsilon": d.real(1e-6, 0.1)})})
    rows = case.inputs[0][0].astype(np.float64).reshape(shape[0] * groups, -1)
    ratio = np.max(rows.mean(1) ** 2 / (rows.var(1) + case.attributes.get("epsilon", 1e-5)))
    if ratio > 100:
        case.note = f"nearly equal values, mean^2 {ratio:.0f} times the variance"
    return case


@operator("InstanceNormalization")
def instance_norm(d, op):
    c = d.int(1, 5)
    shape = [d.int(1, 3), c] + d.shape(1, 3, empty=0)
    return Case(op, plain(d, d.data(F32, shape), d.data(F32, [c]), d.data(F32, [c])),
                d.some({"epsilon": d.real(1e-6, 0.1)}))


@operator("BatchNormalization")
def batch_norm(d, op):
    c = d.int(1, 5)
    shape = [d.int(1, 3), c] + d.shape(0, 3, empty=0)
    vectors = [d.data(F32, [c]), d.data(F32, [c]), d.data(F32, [c]), d.data(F32, [c], 0.1, 3)]
    training = d.flip(0.3)
    attributes = d.some({"epsilon": d.real(1e-6, 0.1), "momentum": d.real(0.1, 0.95)})
    if training:
        attributes["training_mode"] = 1
    return Case(op, plain(d, d.data(F32, shape), *vectors), attributes, [True, True, True] if training else [True])


@operator("LRN")
def lrn(d, op):
    return Case(op, plain(d, d.data(F32, [d.int(1, 2), d.int(1, 7), d.int(1, 4), d.int(1, 4)])), {
        "size": d.pick([1, 3, 5]), **d.some({"alpha": d.real(1e-4, 1), "beta": d.real(0.2, 1.2), "bias": d.real(0.5, 2)})})


@operator("LpNormalization")
def lp_norm(d, op):
    shape = d.shape(1, empty=0)
    return Case(op, plain(d, d.data(F32, shape, 0.1, 2)), d.some({"axis": d.axis(len(shape)), "p": d.int(1, 2)}))


@operator("MeanVarianceNormalization")
def mean_variance(d, op):
    axes = d.pick([[0, 2, 3], [2, 3], [1, 2, 3], [0]])
    return Case(op, plain(d, d.data(F32, [d.int(2, 3), d.int(1, 4), d.int(2, 4), d.int(2, 4)])), d.some({"axes": axes}))


# ---- products

@operator("MatMul")
def matmul(d, op):
    t = d.pick([F32, F32, F16, I32, I64])
    batch, (m, k, n) = d.shape(0, 2, 3), (d.int(1, 7), d.int(1, 9), d.int(1, 7))
    a, b = d.broadcast(batch) + [m, k], d.broadcast(batch) + [k, n]
    if d.flip(0.15):
        a = [k]
    elif d.flip(0.15):
        b = [k]
    return Case(op, [(d.data(t, a), False), maybe_constant(d, d.data(t, b))], {})


@operator("Gemm")
def gemm(d, op):
    m, k, n = d.int(1, 7), d.int(1, 9), d.int(1, 7)
    ta, tb = d.int(0, 1), d.int(0, 1)
    a, b = [k, m] if ta else [m, k], [n, k] if tb else [k, n]
    c = (d.data(F32, d.pick([[n], [m, n], [m, 1], [1, n], [], [1]])), d.flip()) if d.flip(0.7) else (None, False)
    attributes = d.some({"alpha": d.real(-2, 2), "beta": d.real(-2, 2)})
    return Case(op, [(d.data(F32, a), False), maybe_constant(d, d.data(F32, b)), c],
                {"transA": ta, "transB": tb, **attributes})


@operator("MatMulInteger")
def matmul_integer(d, op):
    ta, tb = d.pick([I8, U8]), d.pick([I8, U8])
    m, k, n = d.int(1, 7), d.int(1, 9), d.int(1, 7)
    if ta == I8:
        tb = I8
    za = (d.data(ta, [], 0, 2), d.flip()) if d.flip() else (None, False)
    zb = (d.data(tb, d.pick([[], [n]]), 0, 2), True) if d.flip() else (None, False)
    return Case(op, [(d.data(ta, [m, k], -30, 30), False), (d.data(tb, [k, n], -30, 30), d.flip()), za, zb], {})


@operator("Einsum")
def einsum(d, op):
    size = {c: d.int(1, 4) for c in "abcdijk"}
    equation = d.pick(["ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ii->", "ij->", "i,j->ij", "abc,acd->abd",
                       "abcd,aicd->abi", "ij,ij->ij", "ij,i->j", "bij,bj->bi", "abc,cd,bd->ad", "...ij,...jk->...ik",
                       "abij,jk", "ijk->kji", "aij,ajk,akb->aib"])
    terms = equation.split("->")[0].split(",")
    shapes = [[3 if c == "." else size[c] for c in t.replace("...", ".")] for t in terms]
    return Case(op, plain(d, *[d.data(F32, s) for s in shapes]), {"equation": equation})


def window(d, r, kernel, dilated=True):
    """Random strides, dilations and pads of a convolution or pool, by explicit pads or auto_pad."""
    attributes = d.some({"strides": [d.int(1, 3) for _ in range(r)]})
    if dilated:
        attributes |= d.some({"dilations": [d.int(1, 2) for _ in range(r)]}, 0.3)
    how = d.int(0, 4)
    if how <= 1:
        attributes["pads"] = [d.int(0, k - 1) for k in kernel] + [d.int(0, k - 1) for k in kernel]
    elif how == 2:
        attributes["auto_pad"] = d.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
        attributes.pop("dilations", None)
    return attributes


@operator("Conv")
def conv(d, op):
    r, groups = d.int(1, 3), d.pick([1, 1, 2, 3])
    ci, co = groups * d.int(1, 3), groups * d.int(1, 3)
    kernel = [d.int(1, 3) for _ in range(r)]
    x = d.data(F32, [d.int(1, 2), ci] + [d.int(6, 9) for _ in range(r)])
    w = d.data(F32, [co, ci // groups] + kernel)
    b = (d.data(F32, [co]), d.flip()) if d.flip() else (None, False)
    attributes = window(d, r, kernel) | d.some({"kernel_shape": kernel})
    return Case(op, [(x, False), (w, d.flip()), b], attributes | ({"group": groups} if groups > 1 else {}))


@operator("ConvTranspose")
def conv_transpose(d, op):
    r, groups = d.int(1, 2), d.pick([1, 1, 2])
    ci, per = groups * d.int(1, 3), d.int(1, 3)
    kernel = [d.int(1, 4) for _ in range(r)]
    strides = [d.int(1, 3) for _ in range(r)]
    size = [d.int(2, 6) for _ in range(r)]
    attributes = {"strides": strides} | d.some({"kernel_shape": kernel, "dilations": [d.int(1, 2) for _ in range(r)]}, 0.5)
    if groups > 1:
        attributes["group"] = groups
    how = d.int(0, 3)
    if how == 0:
        attributes["pads"] = [d.int(0, (k - 1) // 2) for k in kernel] * 2
    elif how == 1:
        attributes["auto_pad"] = d.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
        attributes.pop("dilations", None)
    elif how == 2:
        attributes["output_shape"] = [s * t + d.int(0, 1) for s, t in zip(size, strides)]
        attributes.pop("dilations", None)
    if how in (0, 3) and d.flip(0.3):
        attributes["output_padding"] = [d.int(0, s - 1) for s in strides]
    b = (d.data(F32, [per * groups]), d.flip()) if d.flip() else (None, False)
    return Case(op, [(d.data(F32, [d.int(1, 2), ci] + size), False), (d.data(F32, [ci, per] + kernel), d.flip()), b],
                attributes)


@operator("ConvInteger")
def conv_integer(d, op):
    ci, co, kernel = d.int(1, 3), d.int(1, 3), [d.int(1, 3), d.int(1, 3)]
    zero = (d.data(U8, [], 0, 2), True) if d.flip() else (None, False)
    return Case(op, [(d.data(U8, [1, ci, 7, 6], 0, 60), False), (d.data(U8, [co, ci] + kernel, 0, 60), True), zero],
                window(d, 2, kernel))


@operator("QLinearConv")
def qlinear_conv(d, op):
    ci, co, kernel = d.int(1, 3), d.int(1, 3), [d.int(1, 3), d.int(1, 3)]
    t = d.pick([I8, U8])
    per_channel = d.flip()
    ws = d.data(F32, [co] if per_channel else [], 0.01, 0.05)
    wz = np.zeros(ws.shape, I8)
    bias = (d.data(I32, [co], -50, 50), True) if d.flip() else (None, False)
    c = lambda a: (a, True)
    return Case(op, [(d.data(t, [1, ci, 7, 6], -20, 30), False), c(d.data(F32, [], 0.01, 0.1)), c(d.data(t, [], 0, 2)),
                     c(d.data(I8, [co, ci] + kernel, -20, 20)), c(ws), c(wz), c(d.data(F32, [], 0.05, 0.2)),
                     c(d.data(t, [], 0, 2)), bias], window(d, 2, kernel))


@operator("QLinearMatMul")
def qlinear_matmul(d, op):
    m, k, n = d.int(1, 7), d.int(1, 9), d.int(1, 7)
    t = d.pick([I8, U8])
    c = lambda a: (a, True)
    scale = lambda low, high: c(d.data(F32, [], low, high))
    zero = lambda: c(d.data(t, [], 0, 2))
    return Case(op, [(d.data(t, [m, k], -20, 30), False), scale(0.01, 0.1), zero(), c(d.data(t, [k, n], -20, 30)),
                     scale(0.01, 0.1), zero(), scale(0.05, 0.3), zero()], {})


# ---- windows of images

@operator("MaxPool", "AveragePool", "LpPool")
def pool(d, op):
    r = d.int(1, 3)
    kernel = [d.int(1, 3) for _ in range(r)]
    attributes = {"kernel_shape": kernel} | window(d, r, kernel) | d.some({"ceil_mode": d.int(0, 1)}, 0.4)
    outputs = [True]
    if op == "AveragePool":
        attributes |= d.some({"count_include_pad": d.int(0, 1)})
    if op == "LpPool":
        attributes |= d.some({"p": d.int(1, 3)})
    if op == "MaxPool" and d.flip(0.4):
        outputs = [True, True]
        attributes |= d.some({"storage_order": 0})
    t = d.pick([F32, F32, I8, U8]) if op == "MaxPool" else F32
    x = d.data(t, [d.int(1, 2), d.int(1, 3)] + [d.int(6, 9) for _ in range(r)], -20 if t != F32 else -3, 20 if t != F32 else 3)
    return Case(op, plain(d, x), attributes, outputs)


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(d, op):
    attributes = d.some({"p": d.int(1, 3)}) if op == "GlobalLpPool" else {}
    return Case(op, plain(d, d.data(F32, [d.int(1, 3), d.int(1, 4)] + d.shape(1, 3, empty=0))), attributes)


@operator("MaxUnpool")
def max_unpool(d, op):
    n, c, h, w = 1, d.int(1, 2), d.int(1, 3), d.int(1, 3)
    kernel = [2, 2]
    full = h * 2 * w * 2
    index = np.stack([d.rng.permutation(full)[:h * w].reshape(h, w) + i * full for i in range(n * c)])
    return Case(op, plain(d, d.data(F32, [n, c, h, w]), index.reshape(n, c, h, w).astype(I64)),
                {"kernel_shape": kernel, "strides": [2, 2]})


@operator("RoiAlign")
def roi_align(d, op):
    n, rois = d.int(1, 3), d.int(1, 4)
    corner = d.data(F32, [rois, 2], 0, 5)
    boxes = np.concatenate([corner, corner + d.data(F32, [rois, 2], 0.5, 6)], 1)
    return Case(op, plain(d, d.data(F32, [n, d.int(1, 3), 8, 9]), boxes, d.ints([rois], 0, n - 1)), d.some({
        "mode": d.pick(["avg", "max"]), "output_height": d.int(1, 4), "output_width": d.int(1, 4),
        "sampling_ratio": d.int(0, 3), "spatial_scale": d.pick([0.5, 1.0, 1.5]),
        "coordinate_transformation_mode": d.pick(["half_pixel", "output_half_pixel"])}, 0.7))


@operator("Resize")
def resize(d, op):
    mode = d.pick(["nearest", "linear", "cubic"])
    rank = 4 if mode == "cubic" else d.pick([3, 4] if mode == "linear" else [2, 3, 4])
    shape = [d.int(1, 2), d.int(1, 2)] + [d.int(2, 6) for _ in range(rank - 2)] if rank > 2 else [d.int(2, 5), d.int(2, 5)]
    held = 2 if rank > 2 else 0
    sizes = np.array(shape[:held] + [d.int(1, 11) for _ in shape[held:]], I64)
    attributes = {"mode": mode} | d.some({
        "coordinate_transformation_mode": d.pick(["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
                                                  "align_corners", "asymmetric"]),
        "cubic_coeff_a": d.pick([-0.5, -0.75]), "exclude_outside": d.int(0, 1),
        "nearest_mode": d.pick(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])}, 0.7)
    if mode != "cubic":
        attributes.pop("exclude_outside", None)
    if mode != "nearest" and d.flip(0.25):
        attributes["antialias"] = 1
    scales = (np.array(sizes / np.array(shape), F32), True)
    if d.flip():
        attributes.pop("keep_aspect_ratio_policy", None)
        return Case(op, [(d.data(F32, shape), False), (None, False), (None, False), (sizes, True)], attributes)
    return Case(op, [(d.data(F32, shape), False), (None, False), scales], attributes)


@operator("GridSample")
def grid_sample(d, op):
    r = d.int(2, 3)
    mode = d.pick(["linear", "nearest", "cubic"]) if r == 2 else d.pick(["linear", "nearest"])
    shape = [d.int(1, 2), d.int(1, 3)] + [d.int(2, 6) for _ in range(r)]
    grid = d.data(F32, [shape[0]] + [d.int(1, 5) for _ in range(r)] + [r], -1.6, 1.6)
    return Case(op, plain(d, d.data(F32, shape), grid), {"mode": mode, **d.some({
        "padding_mode": d.pick(["zeros", "border", "reflection"]), "align_corners": d.int(0, 1)}, 0.8)})


@operator("AffineGrid")
def affine_grid(d, op):
    r, n = d.int(2, 3), d.int(1, 2)
    size = np.array([n, d.int(1, 3)] + [d.int(1, 5) for _ in range(r)], I64)
    return Case(op, [(d.data(F32, [n, r, r + 1]), False), (size, True)], d.some({"align_corners": d.int(0, 1)}))


@operator("DepthToSpace")
def depth_to_space(d, op):
    b = d.int(1, 3)
    x = d.data(F32, [d.int(1, 2), b * b * d.int(1, 3), d.int(1, 4), d.int(1, 4)])
    return Case(op, plain(d, x), {"blocksize": b, **d.some({"mode": d.pick(["DCR", "CRD"])})})


@operator("SpaceToDepth")
def space_to_depth(d, op):
    b = d.int(1, 3)
    return Case(op, plain(d, d.data(F32, [d.int(1, 2), d.int(1, 3), b * d.int(1, 3), b * d.int(1, 3)])), {"blocksize": b})


@operator("Col2Im")
def col2im(d, op):
    block, image = [d.int(1, 3), d.int(1, 3)], [d.int(5, 7), d.int(5, 7)]
    strides, dilations, pads = [d.int(1, 2) for _ in block], [d.int(1, 2) for _ in block], [d.int(0, 1) for _ in range(4)]
    count = 1
    for i in range(2):
        count *= (image[i] + pads[i] + pads[i + 2] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
    c = d.int(1, 3)
    return Case(op, [(d.data(F32, [d.int(1, 2), c * block[0] * block[1], count]), False), (np.array(image, I64), True),
                     (np.array(block, I64), True)], {"strides": strides, "dilations": dilations, "pads": pads})


# ---- moving data

@operator("Pad")
def pad(d, op):
    mode = d.pick(["constant", "reflect", "edge", "wrap"])
    shape = [d.int(3, 6) for _ in range(d.int(1, 4))]
    r = len(shape)
    least = -1 if mode == "constant" else 0
    axes = None
    if d.flip(0.4):
        axes = d.axes(r, 1)
    n = r if axes is None else len(axes)
    pads = d.ints([2 * n], least, 2)
    t = d.pick([F32, I64, I32, U8, BOOL]) if mode == "constant" else F32
    value = (d.data(t, []), d.flip()) if mode == "constant" and d.flip() else (None, False)
    return Case(op, [(d.data(t, shape), False), maybe_constant(d, pads), value,
                     (axes, True) if axes is not None else (None, False)], d.some({"mode": mode}, 1.0))


@operator("Slice")
def slice_(d, op):
    shape = d.shape(1)
    axes = d.axes(len(shape), 1)
    n = len(axes)
    steps = np.array([d.pick([1, 1, 2, 3, -1, -2]) for _ in range(n)], I64)
    bound = lambda: np.array([d.pick([d.int(-8, 8), 2**31 - 1, -2**31, 2**63 - 1]) for _ in range(n)], I64)
    starts = np.array([d.int(-8, 8) for _ in range(n)], I64)
    return Case(op, [(d.data(d.pick([F32, I64, U8]), shape), False), (starts, d.flip()), (bound(), d.flip()),
                     (axes, True), (steps, d.flip())], {})


@operator("Split")
def split(d, op):
    shape = d.shape(1, empty=0)
    axis = d.axis(len(shape))
    n = d.int(1, 3)
    shape[axis] = max(shape[axis], n)
    if d.flip():
        cuts = sorted(d.int(0, shape[axis]) for _ in range(n - 1))
        sizes = np.diff([0] + cuts + [shape[axis]]).astype(I64)
        return Case(op, [(d.data(F32, shape), False), (sizes, True)], d.some({"axis": axis}, 1.0), [True] * n)
    each = -(-shape[axis] // n)
    if each * (n - 1) >= shape[axis]:
        shape[axis] = each * n
    return Case(op, plain(d, d.data(F32, shape)), {"axis": axis, "num_outputs": n}, [True] * n)


@operator("Concat")
def concat(d, op):
    shape = d.shape(1)
    axis = d.axis(len(shape))
    parts = []
    t = d.pick([F32, I64, BOOL])
    for _ in range(d.int(1, 4)):
        s = list(shape)
        s[axis] = d.int(0, 4)
        parts.append(d.data(t, s))
    return Case(op, plain(d, *parts), {"axis": axis})


@operator("Tile")
def tile(d, op):
    shape = d.shape(1)
    return Case(op, [(d.data(F32, shape), False), maybe_constant(d, d.ints([len(shape)], 0, 3))], {})


@operator("Expand")
def expand(d, op):
    shape = d.shape(1)
    return Case(op, [(d.data(F32, d.broadcast(shape)), False), maybe_constant(d, np.array(shape, I64))], {})


@operator("Reshape")
def reshape(d, op):
    a, b, c = d.int(1, 4), d.int(1, 4), d.int(1, 4)
    to = d.pick([[a * b * c], [-1], [a, -1], [0, -1], [0, 0, -1], [c, b, a], [-1, a], [a, b, 1, c], [0, b * c]])
    return Case(op, [(d.data(F32, [a, b, c]), False), (np.array(to, I64), True)],
                d.some({"allowzero": 0}, 0.3))


@operator("Squeeze", "Unsqueeze")
def squeeze(d, op):
    shape = [d.int(1, 4) for _ in range(d.int(1, 3))]
    if op == "Unsqueeze":
        n = d.int(1, 2)
        axes = d.rng.permutation(len(shape) + n)[:n].astype(I64)
        axes = np.array([a - len(shape) - n if d.flip() else a for a in axes], I64)
        return Case(op, [(d.data(F32, shape), False), (axes, True)], {})
    at = d.int(0, len(shape))
    shape.insert(at, 1)
    if d.flip(0.3):
        return Case(op, plain(d, d.data(F32, shape)), {})
    return Case(op, [(d.data(F32, shape), False), (np.array([d.pick([at, at - len(shape)])], I64), True)], {})


@operator("Transpose")
def transpose(d, op):
    shape = d.shape(0, 5)
    perm = [int(p) for p in d.rng.permutation(len(shape))]
    return Case(op, plain(d, d.data(d.pick([F32, I64, U8, BOOL]), shape)), d.some({"perm": perm}, 0.8 if perm else 0))


@operator("Flatten")
def flatten(d, op):
    shape = d.shape(1)
    return Case(op, plain(d, d.data(F32, shape)), d.some({"axis": d.int(-len(shape), len(shape))}))


@operator("Gather")
def gather(d, op):
    shape = d.shape(1, empty=0)
    axis = d.axis(len(shape))
    index = d.ints(d.shape(0, 3), -shape[axis], shape[axis] - 1).astype(d.pick([I32, I64]))
    return Case(op, [(d.data(d.pick([F32, I64, BOOL]), shape), False), maybe_constant(d, index)], d.some({"axis": axis}, 1.0))


@operator("GatherElements")
def gather_elements(d, op):
    shape = d.shape(1, empty=0)
    axis = d.axis(len(shape))
    at = [d.int(1, n) for n in shape]
    at[axis] = d.int(1, 6)
    index = d.ints(at, -shape[axis], shape[axis] - 1)
    return Case(op, plain(d, d.data(F32, shape), index), {"axis": axis})


@operator("GatherND")
def gather_nd(d, op):
    shape = [d.int(1, 4) for _ in range(d.int(1, 4))]
    b = d.int(0, len(shape) - 1)
    deep = d.int(1, len(shape) - b)
    lead = shape[:b] + [d.int(1, 3) for _ in range(d.int(0 if b else 1, 2))]
    index = np.stack([d.ints(lead, -n, n - 1) for n in shape[b:b + deep]], -1)
    return Case(op, plain(d, d.data(F32, shape), index), d.some({"batch_dims": b}, 1.0 if b else 0.5))


@operator("ScatterElements")
def scatter_elements(d, op):
    shape = d.shape(1, empty=0)
    axis = d.axis(len(shape))
    at = [d.int(1, n) for n in shape]
    reduction = d.pick(["none", "add", "mul", "max", "min"])
    if reduction == "none":  # the order of equal indices is not defined
        order = np.argsort(d.rng.random(shape), axis=axis)
        index = order[tuple(slice(0, n) for n in at)].astype(I64)
    else:
        index = d.ints(at, -shape[axis], shape[axis] - 1)
    return Case(op, plain(d, d.data(F32, shape), index, d.data(F32, at)), {"axis": axis, "reduction": reduction})


@operator("ScatterND")
def scatter_nd(d, op):
    shape = [d.int(2, 4) for _ in range(d.int(1, 3))]
    deep = d.int(1, len(shape))
    reduction = d.pick(["none", "add", "mul", "max", "min"])
    space = int(np.prod(shape[:deep]))
    n = d.int(1, min(space, 5))
    flat = d.rng.permutation(space)[:n] if reduction == "none" else d.rng.integers(0, space, n)
    index = np.stack(np.unravel_index(flat, shape[:deep]), -1).astype(I64)
    return Case(op, plain(d, d.data(F32, shape), index, d.data(F32, [n] + shape[deep:])), d.some({"reduction": reduction}, 1.0))


@operator("ReverseSequence")
def reverse_sequence(d, op):
    batch = d.int(0, 1)
    shape = [d.int(1, 5), d.int(1, 5)] + d.shape(0, 2, empty=0)
    lens = d.ints([shape[batch]], 1, shape[1 - batch])
    return Case(op, plain(d, d.data(F32, shape), lens), {"batch_axis": batch, "time_axis": 1 - batch})


@operator("Trilu")
def trilu(d, op):
    k = maybe_constant(d, np.array(d.int(-6, 6), I64)) if d.flip(0.7) else (None, False)
    return Case(op, [(d.data(d.pick([F32, I64]), d.shape(2, 4)), False), k], d.some({"upper": d.int(0, 1)}))


@operator("EyeLike")
def eye_like(d, op):
    return Case(op, plain(d, d.data(d.pick([F32, I32, I64]), [d.int(1, 6), d.int(1, 6)])),
                d.some({"k": d.int(-5, 5), "dtype": d.pick([1, 6, 7])}))


@operator("OneHot")
def one_hot(d, op):
    depth = d.int(1, 6)
    shape = d.shape(1, 3)
    index = d.ints(shape, -depth - 1, depth)
    t = d.pick([F32, I64])
    return Case(op, [(index, False), (np.array(depth, I64), True), (d.data(t, [2]), d.flip())],
                d.some({"axis": d.int(-len(shape) - 1, len(shape))}))


@operator("NonZero")
def non_zero(d, op):
    t = d.pick([F32, I64, BOOL])
    return Case(op, plain(d, d.data(t, d.shape(1), -0.4, 0.4) if t != F32 else np.round(d.data(F32, d.shape(1), -1, 1))), {})


@operator("Unique")
def unique(d, op):
    shape = d.shape(1, 3, 4, empty=0)
    attributes = d.some({"sorted": d.int(0, 1)})
    if d.flip():
        attributes["axis"] = d.axis(len(shape))
    return Case(op, plain(d, np.round(d.data(F32, shape, -1, 1)) + F32(0)), attributes, [True, True, True, True])


@operator("Compress")
def compress(d, op):
    shape = d.shape(1, empty=0)
    attributes = {"axis": d.axis(len(shape))} if d.flip(0.6) else {}
    most = shape[attributes["axis"]] if attributes else int(np.prod(shape))
    return Case(op, plain(d, d.data(F32, shape), d.data(BOOL, [d.int(1, most)])), attributes)


@operator("Shape")
def shape_of(d, op):
    return Case(op, plain(d, d.data(F32, d.shape())), d.some({"start": d.int(-5, 5), "end": d.int(-5, 5)}))


@operator("Size", "Identity")
def size_of(d, op):
    return Case(op, plain(d, d.data(F32, d.shape())), {})


@operator("Range")
def range_(d, op):
    t = d.pick([F32, I32, I64])
    delta = d.pick([-2, -1, 1, 2, 3]) if t != F32 else d.pick([-0.5, 0.25, 1.0, 0.3])
    start = d.int(-5, 5)
    limit = start + delta * d.int(-2, 8)
    return Case(op, [(np.array(v, t), True) for v in (start, limit, delta)], {})


@operator("Dropout")
def dropout(d, op):
    return Case(op, plain(d, d.data(F32, d.shape())), {}, d.pick([[True], [True, True]]))


@operator("Det")
def det(d, op):
    n = d.int(1, 5)
    return Case(op, plain(d, d.data(F32, d.shape(0, 2, 3) + [n, n])), {})


# ---- recurrences

@operator("LSTM", "GRU", "RNN")
def recurrent(d, op):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    steps, batch, n, h = d.int(1, 4), d.int(1, 3), d.int(1, 4), d.int(1, 4)
    direction = d.pick(["forward", "reverse", "bidirectional"])
    dirs = 2 if direction == "bidirectional" else 1
    each = {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
    attributes = {"hidden_size": h} | ({} if direction == "forward" and d.flip() else {"direction": direction})
    if d.flip(0.3):
        kinds = ["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "Softplus", "Elu", "LeakyRelu", "ThresholdedRelu",
                 "Affine", "ScaledTanh"]
        attributes["activations"] = [d.pick(kinds[:3]) if d.flip(0.6) else d.pick(kinds[:6]) for _ in range(dirs * each)]
    if d.flip(0.3):
        attributes["clip"] = d.real(0.2, 2)
    if op == "GRU" and d.flip():
        attributes["linear_before_reset"] = d.int(0, 1)
    if op == "LSTM" and d.flip(0.3):
        attributes["input_forget"] = d.int(0, 1)
    x = d.data(F32, [steps, batch, n], -1, 1)
    maybe = lambda a: (a, d.flip(0.3)) if d.flip() else (None, False)
    lens = (d.ints([batch], 1, steps).astype(I32), False) if d.flip(0.4) else (None, False)
    state = d.data(F32, [dirs, batch, h], -1, 1)
    inputs = [(x, False), (d.data(F32, [dirs, gates * h, n], -1, 1), d.flip()),
              (d.data(F32, [dirs, gates * h, h], -1, 1), d.flip()), maybe(d.data(F32, [dirs, 2 * gates * h], -1, 1)), lens,
              maybe(state)]
    if op == "LSTM":
        inputs += [maybe(d.data(F32, [dirs, batch, h], -1, 1)), maybe(d.data(F32, [dirs, 3 * h], -1, 1))]
    outputs = d.pick([[True, True, True], [True, True], [False, True]]) if op == "LSTM" else d.pick([[True, True], [False, True]])
    return Case(op, inputs, attributes, outputs)


# ---- quantization

@operator("QuantizeLinear", "DequantizeLinear")
def quantize(d, op):
    shape = d.shape(1, 3, empty=0)
    axis = d.axis(len(shape))
    t = d.pick([I8, U8])
    per_axis = d.flip()
    scale = d.data(F32, [shape[axis]] if per_axis else [], 0.05, 0.5)
    zero = (d.data(t, scale.shape, 0, 5), True) if d.flip(0.7) else (None, False)
    x = d.data(F32, shape, -20, 20) if op == "QuantizeLinear" else d.data(zero[0].dtype.type if zero[0] is not None else t, shape, -20, 30)
    return Case(op, [(x, False), (scale, d.flip()), zero], {"axis": axis} if per_axis else d.some({"axis": axis}))


@operator("DynamicQuantizeLinear")
def dynamic_quantize(d, op):
    return Case(op, plain(d, d.data(F32, d.shape(1, empty=0), -5, 5)), {}, [True, True, True])


# ---- detection, losses, signals

@operator("NonMaxSuppression")
def nms(d, op):
    batch, boxes, classes = d.int(1, 2), d.int(1, 8), d.int(1, 3)
    corner = d.data(F32, [batch, boxes, 2], 0, 4)
    centre = d.flip()
    size = d.data(F32, [batch, boxes, 2], 0.5, 3)
    b = np.concatenate([corner, size if centre else corner + size], -1)
    scores = d.rng.permutation(batch * classes * boxes).reshape(batch, classes, boxes).astype(F32) / 50
    c = lambda a: (a, True)
    limit = c(np.array([d.int(0, 6)], I64)) if d.flip(0.9) else (None, False)
    return Case(op, [(b, False), (scores, False), limit,
                     c(d.data(F32, [1], 0, 0.9)) if d.flip(0.7) else (None, False),
                     c(d.data(F32, [1], 0, 0.4)) if d.flip(0.5) else (None, False)],
                {"center_point_box": int(centre)} if centre or d.flip() else {})


@operator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d, op):
    n, c = d.int(1, 4), d.int(2, 5)
    rest = d.shape(0, 2, 3, empty=0)
    target = d.ints([n] + rest, 0, c - 1)
    weight = (d.data(F32, [c], 0.2, 2), False) if d.flip() else (None, False)
    attributes = d.some({"reduction": d.pick(["none", "sum", "mean"]), "ignore_index": d.int(0, c - 1)})
    outputs = d.pick([[True], [True, True]]) if op == "SoftmaxCrossEntropyLoss" else [True]
    return Case(op, [(d.data(F32, [n, c] + rest), False), (target, False), weight], attributes, outputs)


@operator("DFT")
def dft(d, op):
    rank = d.int(1, 2)
    inverse = d.flip(0.4)
    real = not inverse and d.flip()
    shape = [d.int(1, 3)] + [d.int(2, 9) for _ in range(rank)] + [1 if real else 2]
    axis = d.int(1, rank)
    attributes = d.some({"inverse": int(inverse)}, 1.0 if inverse else 0.3)
    if real and d.flip():
        attributes["onesided"] = 1
    length = (np.array(d.int(2, 10), I64), True) if d.flip(0.4) else (None, False)
    return Case(op, [(d.data(F32, shape), False), length, (np.array(d.pick([axis, axis - rank - 2]), I64), True)], attributes)


@operator("STFT")
def stft(d, op):
    n, frame, step = d.int(16, 30), d.pick([4, 8, 5]), d.int(1, 6)
    win = (d.data(F32, [frame], 0.1, 1), True) if d.flip(0.7) else (None, False)
    return Case(op, [(d.data(F32, [d.int(1, 2), n, 1]), False), (np.array(step, I64), True), win,
                     (np.array(frame, I64), True)], d.some({"onesided": d.int(0, 1)}))


@operator("HannWindow", "HammingWindow", "BlackmanWindow")
def window_function(d, op):
    return Case(op, [(np.array(d.int(1, 20), I64), True)], d.some({"periodic": d.int(0, 1)}))


@operator("MelWeightMatrix")
def mel(d, op):
    return Case(op, [(np.array(v, t), True) for v, t in (
        (d.int(2, 8), I64), (d.pick([16, 32, 64]), I64), (d.pick([8000, 16000]), I64), (d.real(0, 100), F32),
        (d.real(2000, 4000), F32))], {})


@operator("TfIdfVectorizer")
def tfidf(d, op):
    most = d.int(1, 2)
    counts, pool = ([0], [1, 2, 3, 4]) if most == 1 else ([0, 4], [1, 2, 3, 4, 1, 2, 2, 3, 3, 3])
    n = 4 if most == 1 else 7
    attributes = {"mode": d.pick(["TF", "IDF", "TFIDF"]), "min_gram_length": 1, "max_gram_length": most,
                  "max_skip_count": d.int(0, 2), "ngram_counts": counts, "ngram_indexes": list(range(n)),
                  "pool_int64s": pool}
    if d.flip():
        attributes["weights"] = [d.real(0.2, 2) for _ in range(n)]
    return Case(op, plain(d, d.ints([d.int(1, 3), d.int(2, 8)], 1, 5)), attributes)
