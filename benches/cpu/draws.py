"""Choices of a random case: one generator of random numbers, shapes, types and arrays; `kind` registers functions that draw cases."""
import math
import pathlib
import random
import sys

import numpy as np

from table import Case

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
import operator_sweep as sizes  # pylint: disable=wrong-import-position

TYPES = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "u8": np.uint8, "i32": np.int32, "i64": np.int64, "bool": np.bool_}
# Networks have f32 mostly.
FLOATS = ("f32", "f32", "f32", "f32", "f16")
INTS = ("i8", "u8", "i32", "i64")
# Elements of the largest tensor: 16 MB of f32.
MOST = 1 << 22
KINDS = {}


def kind(weight):
    """Registers a function from `Draw` to a case, and how often it is drawn."""

    def put(f):
        KINDS[f.__name__] = f, weight
        return f
    return put


class Draw:
    """A generator of cases: the same case for the same seed."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.g = np.random.default_rng(self.r.randrange(1 << 32))
        self.choice = self.r.choice

    def size(self, least, most):
        return sizes.size(self.r, least, most)

    def axis(self, rank):
        return sizes.axis(self.r, rank)

    def type(self, among):
        return self.choice(among)

    def any_shape(self, rank=None, total=MOST):
        rank = rank or self.choice((1, 2, 2, 3, 3, 3, 4, 4, 4, 5))
        most = {1: 1 << 21, 2: 1 << 14, 3: 2048, 4: 512, 5: 128}[rank]
        return sizes.shape(self.r, rank, most=most, total=total)

    def image(self, rank=None, total=MOST, channels=(3, 512)):
        """Batch, channels, and one to three axes of space."""
        while True:
            s = sizes.channelled(self.r, rank or self.choice((1, 2, 2, 2, 2, 3)), total, channels)
            if s[0] <= 8:
                return s

    def broadcast(self):
        """A shape, and one that is broadcast to it; now and then both to another."""
        a = self.any_shape()
        b = tuple(1 if self.r.random() < 0.4 else n for n in a)[self.choice((0, 0, 0, 1, 2)):] if self.r.random() < 0.7 else a
        if self.r.random() < 0.2:
            first = len(a) - len(b)
            a = tuple(1 if i >= first and b[i - first] > 1 and self.r.random() < 0.3 else n for i, n in enumerate(a))
        return a, b

    def array(self, dtype, shape):
        """Random elements: of floats about one, of integers of few digits."""
        dtype = np.dtype(TYPES.get(dtype, dtype) if isinstance(dtype, str) else dtype)
        if dtype == np.bool_:
            return self.g.random(shape) < 0.5
        if dtype.kind == "f":
            return np.asarray(self.g.standard_normal(shape, dtype=np.float32)).astype(dtype)
        return np.asarray(self.g.integers(0 if dtype.kind == "u" else -20, 20, shape)).astype(dtype)

    def ids(self, n, shape, dtype=np.int64):
        return np.asarray(self.g.integers(0, n, shape)).astype(dtype)

    def case(self, op, inputs, constants=(), **attributes):
        """A case whose name says types, shapes and attributes."""
        of = lambda x: "-" if x is None else f"{np.asarray(x).dtype}{list(np.shape(x))}"
        few = lambda x: f"{np.asarray(x).tolist()}" if x is not None and np.size(x) < 9 else of(x)
        name = " ".join([op, *map(of, inputs), *map(few, constants), *(f"{k}={v}" for k, v in attributes.items() if k not in ("outputs", "opset"))])
        return Case(name, op, [np.asarray(x) for x in inputs], [None if c is None else np.asarray(c) for c in constants], **attributes)


def drawn(seed, index, among=None):
    """The kind and the case of a number."""
    d = Draw(f"{seed}/{index}")
    names = [n for n in KINDS if not among or n in among]
    name = d.r.choices(names, [KINDS[n][1] for n in names])[0]
    return name, KINDS[name][0](d)


def flops(*factors):
    return 2 * math.prod(factors)
