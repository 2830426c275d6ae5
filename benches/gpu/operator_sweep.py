"""Draws operators: other sizes, axes, types and layouts of the kinds in `operator_kinds.py`."""
import math

# Elements of the largest tensor of a case: 64 MB in half precision.
MOST = 1 << 25
FLOATS = ("f16", "f16", "f16", "f32", "bf16")
ANY = FLOATS + ("i32", "i64")


def size(r, least, most):
    """A length, in logarithmic steps; half of them multiples of 8."""
    n = int(math.exp(r.uniform(math.log(least), math.log(most + 1))))
    n = max(least, min(most, n))
    return max(least, n // 8 * 8) if n >= 16 and r.random() < 0.5 else n


def shape(r, rank, least=1, most=4096, total=MOST):
    """Lengths whose product is at most `total`, and mostly more than 2^16."""
    while True:
        s = [size(r, least, most) for _ in range(rank)]
        n = math.prod(s)
        if n <= total and (n >= 1 << 16 or r.random() < 0.1):
            return tuple(s)


def channelled(r, rank, total=MOST, channels=(8, 1024)):
    """Batch, channels, and `rank` spatial axes."""
    while True:
        c = size(r, *channels)
        side = size(r, 4, {1: 16000, 2: 256, 3: 48}[rank])
        s = (r.choice((1, 1, 2, 4, 8, 16, 32)), c) + tuple(max(1, side + r.choice((0, 0, 0, -1, 3))) for _ in range(rank))
        if 1 << 14 <= math.prod(s) <= total:
            return s


def axis(r, rank):
    return r.choice((rank - 1, rank - 1, 0, r.randrange(rank)))


def softmax(r):
    s = r.choice((shape(r, 2, most=1 << 17), shape(r, 3), shape(r, 4, most=512)))
    return dict(shape=s, dim=axis(r, len(s)), log=r.random() < 0.3), FLOATS


def layer_norm(r):
    return dict(shape=shape(r, r.choice((2, 3)), most=16384)), FLOATS


def group_norm(r):
    s = channelled(r, r.choice((1, 2, 2, 3)))
    groups = r.choice([g for g in (1, 2, 4, 8, 16, 32, s[1]) if s[1] % g == 0])
    return dict(shape=s, groups=groups, then=r.choice(("none", "silu", "gelu"))), FLOATS


def instance_norm(r):
    return dict(shape=channelled(r, r.choice((1, 2, 3)))), FLOATS


def unary(r):
    f = r.choice(("gelu", "silu", "tanh", "sigmoid", "exp", "hardswish", "mish", "erf", "sqrt"))
    return dict(shape=shape(r, r.choice((1, 2, 3, 4)), most=1 << 22), f=f), FLOATS


def binary(r):
    s = shape(r, r.choice((2, 3, 4)))
    other = tuple(1 if r.random() < 0.4 else n for n in s)[r.choice((0, 0, 1)):]
    return dict(shape=s, other=other, f=r.choice(("add", "mul", "sub", "max", "less", "where"))), ANY


def permuted(r):
    s = shape(r, r.choice((2, 3, 4, 5)), most=2048)
    perm = list(range(len(s)))
    while perm == sorted(perm):
        r.shuffle(perm)
    return dict(shape=s, perm=tuple(perm)), ANY


def windows(r):
    side = r.choice((4, 7, 8, 12))
    n = side * r.randint(2, 10)
    return dict(shape=(r.choice((1, 4, 8)), n, side * r.randint(2, 10), size(r, 16, 384)), side=side), FLOATS


def roll(r):
    s = shape(r, 4, most=256)
    dims = tuple(sorted(r.sample(range(4), r.choice((1, 2)))))
    return dict(shape=s, by=tuple(r.choice((-1, 1)) * r.randint(1, max(1, s[d] - 1)) for d in dims), dims=dims), ANY


def pixel_shuffle(r):
    k = r.choice((2, 3, 4))
    return dict(shape=(r.choice((1, 2, 8)), size(r, 3, 64) * k * k, size(r, 16, 96), size(r, 16, 96)), r=k), FLOATS


def glu(r):
    s = list(shape(r, 3, most=2048, total=MOST // 2))
    d = axis(r, 3)
    s[d] *= 2
    return dict(shape=tuple(s), dim=d), FLOATS


def concat(r):
    base = list(shape(r, r.choice((2, 3, 4)), most=1024, total=MOST // 4))
    d = axis(r, len(base))
    shapes = [tuple(size(r, 1, 2 * base[d]) if i == d else n for i, n in enumerate(base)) for _ in range(r.randint(2, 6))]
    return dict(shapes=tuple(shapes), dim=d), ANY


def split(r):
    s = list(shape(r, r.choice((2, 3, 4)), most=2048))
    d = axis(r, len(s))
    n = r.randint(2, 4)
    sizes = [size(r, 1, 512) for _ in range(n)]
    s[d] = sum(sizes)
    while math.prod(s) > MOST:
        i = max((i for i in range(len(s)) if i != d), key=lambda i: s[i])
        s[i] = max(1, s[i] // 2)
    return dict(shape=tuple(s), dim=d, sizes=sizes), ANY


def pad(r):
    rank = r.choice((1, 2, 2, 3))
    s = channelled(r, rank)
    mode = r.choice(("constant", "reflect", "replicate"))
    by = tuple(r.randint(0, min(8, min(s[2:]) - 1)) for _ in range(2 * rank))
    return dict(shape=s, by=by, mode=mode), FLOATS


def rope(r):
    return dict(shape=(r.choice((1, 2, 4)), r.choice((4, 8, 12, 32)), size(r, 16, 2048), r.choice((32, 64, 96, 128)))), FLOATS


def reduce(r):
    s = r.choice((shape(r, 1, most=MOST), shape(r, 2, most=1 << 17), shape(r, 3), shape(r, 4, most=512)))
    dims = tuple(sorted(r.sample(range(len(s)), r.randint(1, len(s)))))
    f = r.choice(("sum", "mean", "amax", "amin", "norm", "logsumexp"))
    return dict(shape=s, dims=dims, f=f), FLOATS if f in ("mean", "norm", "logsumexp") else ANY


def arg(r):
    s = r.choice((shape(r, 2, most=1 << 17), shape(r, 3), shape(r, 4, most=512)))
    return dict(shape=s, dim=axis(r, len(s)), f=r.choice(("argmax", "argmin"))), FLOATS + ("i32",)


def topk(r):
    s = r.choice((shape(r, 2, most=1 << 17), shape(r, 3)))
    d = axis(r, len(s))
    return dict(shape=s, k=min(s[d], size(r, 1, 2000)), dim=d, largest=r.random() < 0.7), FLOATS + ("i32",)


def sort(r):
    s = r.choice((shape(r, 1, most=1 << 22), shape(r, 2, most=1 << 17, total=1 << 23), shape(r, 3, total=1 << 23)))
    return dict(shape=s, dim=axis(r, len(s)), descending=r.random() < 0.5), FLOATS + ("i32",)


def scan(r):
    s = r.choice((shape(r, 1, most=1 << 22), shape(r, 2, most=1 << 17), shape(r, 3)))
    return dict(shape=s, dim=axis(r, len(s)), f="cumsum"), FLOATS + ("i32",)


def embedding(r):
    ids = r.choice(((size(r, 1, 64), size(r, 1, 1024)), (size(r, 1, 1 << 17),)))
    return dict(rows=size(r, 10, 100000), width=size(r, 4, 1024 if math.prod(ids) < 1 << 15 else 128), ids=ids), FLOATS


def gather(r):
    s = shape(r, r.choice((2, 3)), most=4096)
    d = axis(r, len(s))
    most = max(1, MOST // 4 // (math.prod(s) // s[d]))
    return dict(shape=s, dim=d, count=size(r, 1, min(4096, most))), FLOATS


def index_select(r):
    s = shape(r, r.choice((2, 3)), most=4096)
    d = axis(r, len(s))
    most = max(1, MOST // (math.prod(s) // s[d]))
    return dict(shape=s, dim=d, count=size(r, 1, min(4096, most))), ANY


def scatter_add(r):
    width = size(r, 1, 256)
    return dict(rows=size(r, 16, 65536), width=width, count=size(r, 256, (1 << 22) // width)), FLOATS


def resize(r):
    rank = r.choice((1, 2, 2, 2, 3))
    s = channelled(r, rank, total=MOST // 8)
    mode = r.choice(("nearest", {1: "linear", 2: "bilinear", 3: "trilinear"}[rank], "bicubic" if rank == 2 else "nearest"))
    corners = r.choice((None, None, True)) if mode != "nearest" else None
    if r.random() < 0.6:
        return dict(shape=s, mode=mode, factor=r.choice((2.0, 2.0, 0.5)) if min(s[2:]) > 3 else 2.0, corners=corners), FLOATS
    to = tuple(max(2, int(n * r.uniform(0.4, 2.0))) for n in s[2:])
    return dict(shape=s, mode=mode, size=to, corners=corners), FLOATS


def grid_sample(r):
    s = channelled(r, 2, total=MOST // 4, channels=(3, 256))
    return dict(shape=s, to=(size(r, 8, 160), size(r, 8, 160)), mode=r.choice(("bilinear", "nearest")),
                padding=r.choice(("zeros", "border"))), ("f16", "f32", "f32")


def pool(r):
    rank = r.choice((1, 2, 2, 2, 3))
    s = channelled(r, rank)
    k = min(r.choice((2, 3, 3, 5, 7)), min(s[2:]))
    return dict(shape=s, kernel=k, stride=r.choice((1, 2, k)), padding=r.choice((0, k // 2)), f=r.choice(("max", "avg"))), FLOATS


def conv(r):
    rank = r.choice((1, 2, 2, 2, 3))
    wide = r.choice(("dense", "dense", "grouped", "depthwise", "few", "transposed"))
    least, most = (1, 4) if wide == "few" else (16, 512)
    s = list(channelled(r, rank, total=1 << 22, channels=(least, most)))
    k = min(r.choice((1, 3, 3, 5, 7)), min(s[2:]))
    out, groups = size(r, 8, 512), 1
    if wide == "grouped":
        each = r.choice((2, 4, 8, 16, 32, 40))
        groups = max(2, s[1] // each)
        s[1] = groups * each
        out = s[1]
    elif wide == "depthwise":
        groups = out = s[1]
    stride = r.choice((1, 1, 2)) if wide != "transposed" else r.choice((2, 2, 4))
    dilation = r.choice((1, 1, 1, 2)) if min(s[2:]) > 2 * k and wide != "transposed" else 1
    # At most 50 GFLOP, so that references are quick.
    work = lambda: 2 * math.prod(s) * out // groups * k ** rank / (1 if wide == "transposed" else stride ** rank)
    while work() > 5e10 and s[0] > 1:
        s[0] //= 2
    if work() > 5e10:
        k, dilation = 1, 1
    padding = min(r.choice((0, dilation * (k // 2), dilation * (k // 2))), k * dilation - 1)
    return dict(shape=tuple(s), out=out, kernel=k, stride=stride, padding=padding, dilation=dilation, groups=groups,
                transposed=wide == "transposed"), FLOATS


def einsum(r):
    b, h, i, j, d = size(r, 1, 16), r.choice((1, 4, 8, 12)), size(r, 8, 512), size(r, 8, 512), r.choice((16, 32, 40, 64, 80, 128))
    sizes = dict(b=b, h=h, i=i, j=j, d=d)
    form = r.choice(("bihd,bjhd->bhij", "bhij,bjhd->bihd", "bhid,bhjd->bhij", "bid,bjd->bij", "bij,jd->bid", "hbi,hij->bhj", "bih,bjh->ij"))
    a, rest = form.split(",")
    of = lambda letters: tuple(sizes[x] for x in letters)
    return dict(form=form, a=of(a), b=of(rest.split("->")[0])), FLOATS


def matmul(r):
    m, n, k = (size(r, 1, 4096) for _ in range(3))
    while m * n * k > 2.5e10:
        m, n, k = (max(1, x // 2) for x in (m, n, k))
    batch = r.choice(((), (), (size(r, 2, 64),), (size(r, 2, 8), size(r, 2, 16))))
    while math.prod(batch) * max(m * n, n * k, m * k) > MOST or math.prod(batch) * m * n * k > 2.5e10:
        batch = tuple(max(1, x // 2) for x in batch)
        if math.prod(batch) == 1:
            break
    return dict(a=(*batch, m, k), b=(*batch, k, n)), FLOATS


def linear(r):
    rows, k, out = size(r, 1, 8192), size(r, 3, 8192), size(r, 1, 8192)
    while rows * k * out > 2.5e10:
        rows = max(1, rows // 2)
        k = k if rows > 1 else k // 2
    return dict(shape=(rows, k), out=out, bias=r.random() < 0.7, then=r.choice(("none", "gelu", "silu"))), FLOATS


def swiglu(r):
    width = size(r, 64, 2048)
    return dict(rows=size(r, 1, 1024), width=width, inner=int(width * r.choice((1.5, 2.75, 4)))), FLOATS


def recurrent(r):
    hidden = size(r, 16, 512)
    return dict(cell=r.choice(("LSTM", "GRU", "RNN")), steps=size(r, 4, 128), batch=size(r, 1, 32), width=size(r, 8, 512), hidden=hidden,
                both=r.random() < 0.4), ("f16", "f16", "f32")


def attention(r):
    shared = r.choice((1, 1, 1, 2, 4, 8))
    heads = shared * r.choice((1, 2, 4, 8))
    rows = r.choice((1, size(r, 2, 64), size(r, 64, 2048), size(r, 64, 2048)))
    keys = rows if rows > 1 and r.random() < 0.7 else size(r, 16, 8192 if rows < 64 else 2048)
    depth = r.choice((8, 16, 32, 40, 64, 64, 72, 80, 96, 128, 160, 256, 512))
    batch = r.choice((1, 2, 4, 8, 16))
    while batch > 1 and batch * heads * rows * keys > MOST:
        batch //= 2
    causal = rows == keys and r.random() < 0.4
    return dict(batch=batch, heads=heads, rows=rows, keys=keys, depth=depth, causal=causal, bias=not causal and r.random() < 0.3,
                shared=shared), FLOATS


# Kinds with several rows of the named suite are drawn as often as others: what matters is the spread.
DRAWN = [softmax, layer_norm, group_norm, instance_norm, unary, binary, permuted, windows, roll, pixel_shuffle, glu, concat, split, pad, rope,
         reduce, arg, topk, sort, scan, embedding, gather, index_select, scatter_add, resize, grid_sample, pool, conv, einsum, matmul, linear,
         swiglu, recurrent, attention]
DRAWN += [reduce, conv, conv, matmul, linear, attention, permuted]
# Kinds whose first argument may be stored in another order of axes.
STORED = {"softmax", "layer_norm", "group_norm", "unary", "binary", "reduce", "arg", "topk", "sort", "scan", "pad", "resize", "pool", "conv",
          "matmul", "linear", "concat", "glu"}


def drawn(r):
    """Kind, parameters, type of elements and order of the axes of the first argument, by a generator of random numbers."""
    f = r.choice(DRAWN)
    parameters, types = f(r)
    dtype, perm = r.choice(types), None
    rank = len(parameters.get("shape") or parameters.get("a") or (parameters.get("shapes") or [()])[0])
    if f.__name__ in STORED and rank > 1 and r.random() < 0.25:
        perm = list(range(rank))
        r.shuffle(perm)
    return f.__name__, parameters, dtype, tuple(perm) if perm and perm != sorted(perm) else None
