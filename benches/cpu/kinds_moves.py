"""Random cases of operators that move or select elements, for `sweep.py`."""
import math

import numpy as np

from draws import FLOATS, INTS, MOST, kind

ANY = FLOATS + INTS + ("bool",)


@kind(5)
def transpose(d):
    s = d.any_shape(rank=d.choice((2, 3, 4, 4, 5)))
    perm = list(range(len(s)))
    while perm == sorted(perm):
        d.r.shuffle(perm)
    return d.case("Transpose", [d.array(d.type(ANY), s)], perm=perm)


@kind(3)
def concat(d):
    base = list(d.any_shape(total=MOST // 4))
    at, t = d.axis(len(base)), d.type(ANY)
    lengths = [d.size(1, 2 * base[at]) for _ in range(d.r.randint(2, 5))]
    return d.case("Concat", [d.array(t, [n if i == at else x for i, x in enumerate(base)]) for n in lengths], axis=at)


@kind(3)
def split(d):
    s = list(d.any_shape(total=MOST // 4))
    at, n = d.axis(len(s)), d.r.randint(2, 4)
    parts = [d.size(1, max(1, s[at])) for _ in range(n)]
    s[at] = sum(parts)
    return d.case("Split", [d.array(d.type(ANY), s)], [np.array(parts)], outputs=n, axis=at)


@kind(4)
def slices(d):
    x = d.array(d.type(ANY), d.any_shape())
    axes = sorted(d.r.sample(range(x.ndim), d.r.randint(1, min(3, x.ndim))))
    starts, ends, steps = [], [], []
    for a in axes:
        n, step = x.shape[a], d.choice((1, 1, 1, 2, 3, -1))
        low = d.r.randint(0, n // 3)
        high = d.r.randint(n - n // 3, n)
        starts.append(high - 1 if step < 0 else low)
        ends.append(low - 1 - n if step < 0 and low else -n - 1 if step < 0 else max(high, low + 1))
        steps.append(step)
    return d.case("Slice", [x], [np.array(v) for v in (starts, ends, axes, steps)])


@kind(3)
def pad(d):
    mode = d.choice(("constant", "reflect", "edge", "wrap"))
    s = d.image() if d.r.random() < 0.6 else d.any_shape()
    first = 2 if len(s) > 2 and d.r.random() < 0.8 else 0
    by = [[d.r.randint(0, min(8, n - 1)) if i >= first else 0 for i, n in enumerate(s)] for _ in range(2)]
    return d.case("Pad", [d.array(d.type(("f32", "f32", "f32", "i32", "i64", "u8")), s)], [np.array(by[0] + by[1])], opset=19, mode=mode)


@kind(2)
def tile(d):
    s = d.any_shape(total=MOST // 8)
    by = [d.choice((1, 1, 2, 3)) for _ in s]
    while math.prod(s) * math.prod(by) > MOST:
        by[by.index(max(by))] = 1
    return d.case("Tile", [d.array(d.type(ANY), s)], [np.array(by)])


@kind(2)
def expand(d):
    a, b = d.broadcast()
    return d.case("Expand", [d.array(d.type(ANY), b)], [np.array(a)])


@kind(1)
def reshape(d):
    s = d.any_shape()
    return d.case("Reshape", [d.array(d.type(ANY), s)], [np.array([-1, s[-1]])])


@kind(4)
def gather(d):
    t, id_type = d.type(ANY), d.choice((np.int64, np.int64, np.int32))
    if d.r.random() < 0.4:
        rows, width = d.size(16, 20000), d.size(1, 1024)
        rows = min(rows, MOST // width)
        return d.case("Gather", [d.array(t, (rows, width)), d.ids(rows, (d.size(1, 8), d.size(1, 512)), id_type)])
    x = d.array(t, d.any_shape())
    at = d.axis(x.ndim)
    most = max(1, MOST * x.shape[at] // x.size)
    return d.case("Gather", [x, d.ids(x.shape[at], (d.size(1, min(4096, most)),), id_type)], axis=at)


@kind(3)
def gather_elements(d):
    x = d.array(d.type(ANY), d.any_shape(rank=d.choice((1, 2, 2, 3, 4)), total=MOST // 2))
    at = d.axis(x.ndim)
    most = max(1, MOST // 2 * x.shape[at] // x.size)
    s = [d.size(1, min(most, 2 * x.shape[at])) if i == at else n for i, n in enumerate(x.shape)]
    return d.case("GatherElements", [x, d.ids(x.shape[at], s)], axis=at)


@kind(2)
def gather_nd(d):
    x = d.array(d.type(ANY), d.any_shape(rank=d.choice((2, 3, 4))))
    k = d.r.randint(1, x.ndim)
    inner = math.prod(x.shape[k:])
    count = d.size(1, max(1, min(100000, MOST // inner)))
    at = np.stack([d.ids(n, (count,)) for n in x.shape[:k]], -1)
    return d.case("GatherND", [x, at])


@kind(3)
def scatter_elements(d):
    x = d.array(d.type(("f32", "f32", "i32", "i64", "f16", "u8")), d.any_shape(rank=d.choice((1, 2, 3, 4)), total=MOST // 2))
    at = d.axis(x.ndim)
    how = d.choice(("none", "none", "add", "max", "mul")) if x.dtype == np.float32 else "none"
    s = [d.size(1, n) if i == at else n for i, n in enumerate(x.shape)]
    lines = np.argsort(d.g.random(x.shape, dtype=np.float32), axis=at)
    ids = np.take(lines, range(s[at]), axis=at)
    return d.case("ScatterElements", [x, ids.astype(np.int64), d.array(x.dtype, s)], opset=18, axis=at, reduction=how)


@kind(2)
def scatter_nd(d):
    x = d.array(d.type(("f32", "f32", "i32", "i64", "f16", "u8")), d.any_shape(rank=d.choice((1, 2, 3, 4)), total=MOST // 2))
    k = d.r.randint(1, x.ndim)
    count = d.size(1, min(50000, math.prod(x.shape[:k])))
    flat = d.g.choice(math.prod(x.shape[:k]), count, replace=False)
    at = np.stack(np.unravel_index(flat, x.shape[:k]), -1).astype(np.int64)
    how = d.choice(("none", "none", "add", "max")) if x.dtype == np.float32 else "none"
    return d.case("ScatterND", [x, at, d.array(x.dtype, (count, *x.shape[k:]))], opset=18, reduction=how)


@kind(2)
def depth_space(d):
    b, n = d.choice((2, 3, 4)), d.choice((1, 1, 2, 4))
    c, h, w = d.size(1, 64), d.size(8, 96), d.size(8, 96)
    t = d.type(("f32", "f32", "u8"))
    if d.r.random() < 0.5:
        return d.case("SpaceToDepth", [d.array(t, (n, c, h * b, w * b))], blocksize=b)
    return d.case("DepthToSpace", [d.array(t, (n, c * b * b, h, w))], blocksize=b, mode=d.choice(("DCR", "CRD")))


@kind(1)
def one_hot(d):
    depth, at = d.size(4, 4096), d.ids(4, (d.size(16, 1024),))
    values = np.array([0, 1], d.choice((np.float32, np.int64)))
    return d.case("OneHot", [at % depth], [np.int64(depth), values], axis=d.choice((-1, 0)))


@kind(1)
def compress(d):
    x = d.array(d.type(("f32", "i64", "u8")), d.any_shape())
    at = d.axis(x.ndim)
    return d.case("Compress", [x, d.array("bool", (x.shape[at],))], axis=at)


@kind(1)
def reverse_sequence(d):
    steps, batch = d.size(8, 256), d.size(1, 32)
    return d.case("ReverseSequence", [d.array("f32", (steps, batch, d.size(16, 512))), d.ids(steps, (batch,)) + 1], time_axis=0, batch_axis=1)


@kind(1)
def crop(d):
    s = d.image()
    to = [max(1, int(n * d.r.uniform(0.6, 1.4))) for n in s[2:]]
    return d.case("CenterCropPad", [d.array("f32", s)], [np.array(to)], opset=18, axes=list(range(2, len(s))))


@kind(1)
def col2im(d):
    h, w, k, c = d.size(8, 96), d.size(8, 96), d.choice((2, 3, 4)), d.size(1, 64)
    blocks = (h - k + 1) * (w - k + 1)
    return d.case("Col2Im", [d.array("f32", (d.choice((1, 2)), c * k * k, blocks))], [np.array([h, w]), np.array([k, k])], opset=18)


@kind(5)
def resize(d):
    x = d.array(d.type(("f32", "f32", "f32", "f32", "u8", "i8", "f16")), d.image(rank=d.choice((1, 2, 2, 2, 3)), total=MOST // 4))
    mode = d.choice(("nearest", "linear", "linear", "cubic"))
    if mode == "cubic" and x.ndim != 4:
        mode = "linear"
    where = d.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    extra = {"nearest_mode": d.choice(("floor", "round_prefer_floor", "ceil"))} if mode == "nearest" else {}
    if d.r.random() < 0.6:
        f = d.choice((2, 2, 0.5, 3, 1.5)) if min(x.shape[2:]) > 3 else 2
        return d.case("Resize", [x], [None, np.array([1, 1] + [f] * (x.ndim - 2), np.float32)], opset=18, mode=mode,
                      coordinate_transformation_mode=where, **extra)
    to = [*x.shape[:2], *(max(2, int(n * d.r.uniform(0.4, 2))) for n in x.shape[2:])]
    antialias = {"antialias": 1} if mode != "nearest" and x.ndim == 4 and x.dtype == np.float32 and d.r.random() < 0.3 else {}
    return d.case("Resize", [x], [None, None, np.array(to)], opset=18, mode=mode, coordinate_transformation_mode=where, **extra, **antialias)


@kind(2)
def grid_sample(d):
    n, c, h, w = d.image(rank=2, total=MOST // 8, channels=(1, 128))
    grid = d.g.uniform(-1.1, 1.1, (n, d.size(8, 128), d.size(8, 128), 2)).astype(np.float32)
    return d.case("GridSample", [d.array("f32", (n, c, h, w)), grid], opset=16, mode=d.choice(("bilinear", "nearest", "bicubic")),
                  padding_mode=d.choice(("zeros", "border", "reflection")), align_corners=d.choice((0, 1)))


@kind(1)
def regions(d):
    c, h, w, n = d.size(8, 256), d.size(16, 64), d.size(16, 64), d.size(4, 300)
    low = d.g.uniform(0, 8, (n, 2))
    boxes = np.concatenate([low, low + d.g.uniform(2, 40, (n, 2))], 1).astype(np.float32)
    return d.case("RoiAlign", [d.array("f32", (1, c, h, w)), boxes, np.zeros(n, np.int64)], opset=16, output_height=7, output_width=7,
                  sampling_ratio=d.choice((0, 2)), mode=d.choice(("avg", "max")))


@kind(1)
def suppression(d):
    n, classes = d.size(100, 4000), d.choice((1, 1, 8, 20))
    low = d.g.uniform(0, 500, (1, n, 2))
    boxes = np.concatenate([low, low + d.g.uniform(4, 80, (1, n, 2))], -1).astype(np.float32)
    return d.case("NonMaxSuppression", [boxes, d.g.random((1, classes, n), dtype=np.float32)],
                  [np.int64(d.choice((20, 100))), np.float32(0.5), np.float32(0.3)])
