"""Random cases of products, convolutions, pools and recurrences, for `sweep.py`."""
import math

import numpy as np

from draws import MOST, flops, kind

# Operations of one case: about 30 ms on two cores.
WORK = 3e9


@kind(6)
def matmul(d):
    m, n, k = (d.size(1, 2048) for _ in range(3))
    m = 1 if d.r.random() < 0.15 else m
    batch = d.choice(((), (), (d.size(1, 16),), (d.choice((1, 2)), d.size(1, 12))))
    while flops(*batch, m, n, k) > WORK or math.prod(batch) * max(m * n, n * k, m * k) > MOST:
        m, n, k = (max(1, x * 3 // 4) for x in (m, n, k))
    t = d.type(("f32", "f32", "f32", "f32", "f16", "i32", "i64"))
    small = 1 / math.sqrt(k) if t.startswith("f") else 1
    a = d.array(t, (*batch, m, k))
    b = d.array(t, (*(batch if d.r.random() < 0.6 else ()), k, n))
    b = (b * small).astype(b.dtype)
    if b.ndim == 2 and d.r.random() < 0.5:
        return d.case("MatMul", [a], [b])
    return d.case("MatMul", [a, b])


@kind(3)
def gemm(d):
    m, n, k = (d.size(1, 1536) for _ in range(3))
    while flops(m, n, k) > WORK:
        m, n, k = (max(1, x * 3 // 4) for x in (m, n, k))
    left, right = d.choice((0, 0, 1)), d.choice((0, 1))
    t = d.type(("f32", "f32", "f32", "f16"))
    a = d.array(t, (k, m) if left else (m, k))
    b = (d.array(t, (n, k) if right else (k, n)) / math.sqrt(k)).astype(a.dtype)
    c = d.array(t, d.choice(((n,), (1, n), (m, n), (m, 1), ())))
    scaled = {"alpha": 0.5, "beta": 2.0} if d.r.random() < 0.2 else {}
    rest = [b, c]
    return d.case("Gemm", [a], rest, transA=left, transB=right, **scaled) if d.r.random() < 0.6 else d.case("Gemm", [a, *rest], transA=left, transB=right, **scaled)


@kind(3)
def integer_products(d):
    m, n, k = (d.size(4, 1024) for _ in range(3))
    at, bt = d.choice((np.uint8, np.int8)), d.choice((np.int8, np.uint8))
    of = lambda t, s: d.g.integers(-127 if t == np.int8 else 0, 127, s).astype(t)
    a, b = of(at, d.choice(((m, k), (d.size(1, 4), m, k)))), of(bt, (k, n))
    if d.r.random() < 0.5:
        zeros = [at(d.choice((0, 3)))] + ([bt(0)] if d.r.random() < 0.5 else [])
        return d.case("MatMulInteger", [a], [b, *zeros]) if d.r.random() < 0.7 else d.case("MatMulInteger", [a, b, *zeros])
    scale = np.float32(0.02)
    return d.case("QLinearMatMul", [a], [scale, at(3), b, np.float32(0.01), bt(0), np.float32(0.4), at(0)])


def windows(d, rank, s, k):
    """Attributes of a window: strides, dilations and pads that fit."""
    dilation = d.choice((1, 1, 1, 2)) if min(s[2:]) > 2 * k else 1
    stride = d.choice((1, 1, 2, 3))
    pad = d.choice((0, dilation * (k // 2), dilation * (k // 2)))
    out = {"kernel_shape": [k] * rank}
    if stride > 1:
        out["strides"] = [stride] * rank
    if dilation > 1:
        out["dilations"] = [dilation] * rank
    if pad:
        out["pads"] = [pad] * (2 * rank)
    return out


def convolution(d):
    """Shapes of image and filters with groups, and attributes."""
    rank = d.choice((1, 2, 2, 2, 2, 3))
    how = d.choice(("dense", "dense", "dense", "grouped", "depthwise", "few"))
    while True:
        s = list(d.image(rank, MOST // 2, (1, 4) if how == "few" else (8, 512)))
        k = min(d.choice((1, 3, 3, 5, 7)), min(s[2:]))
        out, groups = d.size(8, 512), 1
        if how == "grouped":
            each = d.choice((2, 4, 8, 16, 32))
            groups = max(2, s[1] // each)
            s[1] = out = groups * each
        elif how == "depthwise":
            groups, out = s[1], s[1] * d.choice((1, 1, 1, 2))
        a = windows(d, rank, s, k)
        stride = a.get("strides", [1])[0]
        if flops(*s, out // groups, k ** rank) / stride ** rank < WORK:
            return s, (out, s[1] // groups, *[k] * rank), {**a, "group": groups}


@kind(8)
def conv(d):
    s, w, a = convolution(d)
    t = d.type(("f32", "f32", "f32", "f32", "f32", "f16"))
    weights = (d.array(t, w) / math.sqrt(math.prod(w[1:]))).astype(d.array(t, ()).dtype)
    x = d.array(t, s)
    bias = [d.array(t, w[:1])] if d.r.random() < 0.6 else []
    return d.case("Conv", [x], [weights, *bias], **a) if d.r.random() < 0.9 else d.case("Conv", [x, weights, *bias], **a)


@kind(4)
def integer_conv(d):
    s, w, a = convolution(d)
    at, bt = d.choice(((np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)))
    of = lambda t, s: d.g.integers(-127 if t == np.int8 else 0, 127, s).astype(t)
    x, weights = of(at, s), of(bt, w)
    if at == np.uint8 and d.r.random() < 0.3:
        return d.case("ConvInteger", [x], [weights, at(3)], **a)
    scale = np.float32(0.02)
    bias = [d.array("i32", w[:1])] if d.r.random() < 0.6 else []
    many = np.full(w[0], 0.01, np.float32) if d.r.random() < 0.5 else np.float32(0.01)
    zero = np.zeros(np.shape(many), bt)
    return d.case("QLinearConv", [x], [scale, at(3), weights, many, zero, np.float32(0.7), at(2), *bias], **a)


@kind(3)
def conv_transpose(d):
    rank = d.choice((1, 2, 2, 2, 3))
    while True:
        s = d.image(rank, MOST // 8, (8, 256))
        out, k, stride = d.size(4, 256), d.choice((2, 3, 4, 4, 5)), d.choice((1, 2, 2, 4))
        groups = d.choice([g for g in (1, 1, 1, 2, s[1]) if s[1] % g == 0])
        if groups == s[1]:
            out = s[1]
        out = max(groups, out // groups * groups)
        pad = d.choice((0, (k - 1) // 2))
        if flops(*s, out // groups, k ** rank) < WORK and math.prod(s) // s[1] * out * stride ** rank < MOST:
            break
    w = d.array("f32", (s[1], out // groups, *[k] * rank)) / math.sqrt(s[1])
    bias = [d.array("f32", (out,))] if d.r.random() < 0.5 else []
    return d.case("ConvTranspose", [d.array("f32", s)], [w, *bias], strides=[stride] * rank, pads=[pad] * (2 * rank), group=groups)


@kind(6)
def pool(d):
    rank = d.choice((1, 2, 2, 2, 3))
    s = d.image(rank)
    k = min(d.choice((2, 3, 3, 5, 7)), min(s[2:]))
    op = d.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
    a = windows(d, rank, s, k)
    t = d.type(("f32", "f32", "f32", "i8", "u8")) if op == "MaxPool" else d.type(("f32", "f32", "f16")) if op == "AveragePool" else "f32"
    extra = {"count_include_pad": d.choice((0, 1))} if op == "AveragePool" else {}
    if op != "LpPool" and d.r.random() < 0.2:
        extra["ceil_mode"] = 1
    both = op == "MaxPool" and d.r.random() < 0.2
    return d.case(op, [d.array(t, s)], outputs=2 if both else 1, opset=19, **a, **extra)


@kind(2)
def global_pool(d):
    return d.case(d.choice(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")), [d.array("f32", d.image())])


@kind(4)
def einsum(d):
    b, h, i, j, k = d.size(1, 8), d.choice((1, 4, 8, 12)), d.size(8, 256), d.size(8, 256), d.choice((16, 32, 40, 64, 80, 128))
    sizes = dict(b=b, h=h, i=i, j=j, d=k)
    form = d.choice(("bihd,bjhd->bhij", "bhij,bjhd->bihd", "bhid,bhjd->bhij", "bid,bjd->bij", "bij,jd->bid", "hbi,hij->bhj", "bih,bjh->ij",
                     "bhid,hjd->bhij", "bid->bdi", "bij->bj", "bii->bi", "bi,bi->b", "i,j->ij", "bid,bid->bid", "bhid,dj->bhij"))
    if form.startswith("bii"):
        return d.case("Einsum", [d.array("f32", (b * 8, i, i))], equation=form)
    of = lambda letters: d.array("f32", tuple(sizes[x] for x in letters)) / 8
    return d.case("Einsum", [of(x) for x in form.split("->")[0].split(",")], equation=form)


@kind(4)
def recurrent(d):
    op, both = d.choice(("LSTM", "GRU", "RNN")), d.choice((0, 0, 1))
    steps, batch, width, hidden = d.size(4, 96), d.choice((1, 1, 2, 4, 16, 32)), d.size(8, 384), d.size(16, 384)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    w = lambda n: d.array("f32", (1 + both, gates * hidden, n)) / math.sqrt(n)
    extra = {"linear_before_reset": d.choice((0, 1))} if op == "GRU" else {}
    biases = [d.array("f32", (1 + both, 2 * gates * hidden))] if d.r.random() < 0.7 else []
    return d.case(op, [d.array("f32", (steps, batch, width))], [w(width), w(hidden), *biases], hidden_size=hidden,
                  direction="bidirectional" if both else "forward", **extra)
