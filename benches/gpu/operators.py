#!/usr/bin/env python3
"""Single operators and short idioms as workloads of `many.py` and `bench.py --peers`: named rows, and a seeded sweep of others.

    operators.py list [PATTERN]        names of the rows, with bytes, operations and least time
    operators.py sweep SEED COUNT      names and parameters of drawn cases: sweepSEED.NUMBER:b1
    operators.py export NAME.. --out DIR

A row is an operator of `operator_kinds.py` with its parameters. The sweep draws other sizes, axes, types and layouts of the same operators.
"""
import functools
import random
import sys

import operator_kinds as kinds
import operator_sweep
from exported import command_line, error, first  # noqa: F401 (part of the form of a module of workloads)

ROWS = {
    # Softmax and norms.
    "softmax_512": ("softmax", dict(shape=(384, 512, 512), dim=-1)),
    "softmax_channels": ("softmax", dict(shape=(32, 150, 128, 128), dim=1)),
    "log_softmax_50k": ("softmax", dict(shape=(64, 50257), dim=-1, log=True)),
    "layer_norm": ("layer_norm", dict(shape=(8192, 1024))),
    "layer_norm_one_row": ("layer_norm", dict(shape=(1, 4096))),
    "rms_norm": ("rms_norm", dict(shape=(8192, 2048))),
    "group_norm": ("group_norm", dict(shape=(8, 320, 64, 64), groups=32)),
    "group_norm_silu": ("group_norm", dict(shape=(1, 128, 256, 256), groups=32, then="silu")),
    "group_norm_one_group": ("group_norm", dict(shape=(4, 512, 4000), groups=1)),
    "instance_norm": ("instance_norm", dict(shape=(8, 64, 128, 128))),
    # Pointwise operators and layout changes.
    "gelu": ("unary", dict(shape=(8192, 4096), f="gelu")),
    "add_broadcast": ("binary", dict(shape=(32, 12, 512, 512), other=(32, 1, 1, 512), f="add")),
    "transpose_heads": ("permuted", dict(shape=(32, 512, 16, 64), perm=(0, 2, 1, 3))),
    "transpose_last": ("permuted", dict(shape=(32, 1024, 1024), perm=(0, 2, 1))),
    "nchw_to_nhwc_3": ("permuted", dict(shape=(32, 3, 224, 224), perm=(0, 2, 3, 1))),
    "window_partition": ("windows", dict(shape=(8, 56, 56, 96), side=7)),
    "roll": ("roll", dict(shape=(32, 56, 56, 96), by=(-3, -3), dims=(1, 2))),
    "pixel_shuffle": ("pixel_shuffle", dict(shape=(8, 256, 64, 64), r=2)),
    "glu_channels": ("glu", dict(shape=(8, 1024, 1000), dim=1)),
    "concat_channels": ("concat", dict(shapes=((16, 64, 56, 56), (16, 96, 56, 56), (16, 32, 56, 56)), dim=1)),
    "pad_reflect": ("pad", dict(shape=(8, 64, 128, 128), by=(3, 3, 3, 3), mode="reflect")),
    "rope": ("rope", dict(shape=(4, 32, 1024, 128))),
    # Reductions, selection, scans, tables.
    "sum_last": ("reduce", dict(shape=(16384, 2048), dims=(1,), f="sum")),
    "mean_spatial": ("reduce", dict(shape=(32, 1280, 14, 14), dims=(2, 3), f="mean")),
    "sum_first": ("reduce", dict(shape=(4096, 4096), dims=(0,), f="sum")),
    "argmax": ("arg", dict(shape=(512, 32000), dim=-1)),
    "topk_50": ("topk", dict(shape=(64, 50257), k=50, dim=-1)),
    "sort": ("sort", dict(shape=(512, 2048), dim=-1)),
    "cumsum": ("scan", dict(shape=(1024, 4096), dim=-1, f="cumsum")),
    "embedding": ("embedding", dict(rows=50257, width=768, ids=(32, 512))),
    "gather_rows": ("gather", dict(shape=(64, 4096, 64), dim=1, count=512)),
    "scatter_add": ("scatter_add", dict(rows=16384, width=64, count=65536)),
    # Resizes and pools.
    "resize_bilinear": ("resize", dict(shape=(8, 64, 128, 128), factor=2.0, mode="bilinear")),
    "resize_nearest": ("resize", dict(shape=(8, 128, 64, 64), factor=2.0, mode="nearest")),
    "resize_classes": ("resize", dict(shape=(1, 21, 64, 64), size=(512, 512), mode="bilinear")),
    "grid_sample": ("grid_sample", dict(shape=(8, 64, 64, 64), to=(64, 64))),
    "max_pool": ("pool", dict(shape=(32, 64, 112, 112), kernel=3, stride=2, padding=1, f="max")),
    "avg_pool_3x3": ("pool", dict(shape=(32, 192, 35, 35), kernel=3, stride=1, padding=1, f="avg")),
    # Convolutions.
    "conv_grouped_4": ("conv", dict(shape=(32, 128, 56, 56), out=128, kernel=3, padding=1, groups=32)),
    "conv_grouped_16": ("conv", dict(shape=(32, 512, 14, 14), out=512, kernel=3, padding=1, groups=32)),
    "conv_depthwise_3x3": ("conv", dict(shape=(32, 384, 28, 28), out=384, kernel=3, padding=1, groups=384)),
    "conv_depthwise_7x7": ("conv", dict(shape=(32, 96, 56, 56), out=96, kernel=7, padding=3, groups=96)),
    "conv_stem_7x7": ("conv", dict(shape=(32, 3, 224, 224), out=64, kernel=7, stride=2, padding=3)),
    "conv1d_dilated": ("conv", dict(shape=(8, 256, 4000), out=256, kernel=3, padding=8, dilation=8)),
    "conv1d_depthwise": ("conv", dict(shape=(8, 512, 1000), out=512, kernel=31, padding=15, groups=512)),
    "conv1d_1x1": ("conv", dict(shape=(16, 128, 1024), out=1024, kernel=1)),
    "conv3d": ("conv", dict(shape=(4, 64, 8, 56, 56), out=64, kernel=3, padding=1)),
    "conv_transpose_2x": ("conv", dict(shape=(8, 256, 32, 32), out=128, kernel=4, stride=2, padding=1, transposed=True)),
    "conv1d_transpose": ("conv", dict(shape=(4, 512, 2000), out=1, kernel=16, stride=8, transposed=True)),
    # Products, recurrences, attention.
    "einsum_attention": ("einsum", dict(form="bihd,bjhd->bhij", a=(8, 512, 12, 64), b=(8, 512, 12, 64))),
    "einsum_outer": ("einsum", dict(form="bijc,bijd->bcd", a=(8, 56, 56, 128), b=(8, 56, 56, 64))),
    "bmm_small": ("matmul", dict(a=(2048, 27, 64), b=(2048, 64, 27))),
    "matmul_row": ("linear", dict(shape=(1, 4096), out=4096)),
    "matmul_odd": ("matmul", dict(a=(517, 1003), b=(1003, 333))),
    "mlp_swiglu": ("swiglu", dict(rows=512, width=2048, inner=5632)),
    "lstm": ("recurrent", dict(cell="LSTM", steps=128, batch=8, width=512, hidden=512)),
    "gru_bidirectional": ("recurrent", dict(cell="GRU", steps=128, batch=8, width=512, hidden=256, both=True)),
    "attention_causal_2048_d128": ("attention", dict(batch=2, heads=16, rows=2048, keys=2048, depth=128, causal=True)),
    "attention_bias_512": ("attention", dict(batch=8, heads=8, rows=512, keys=512, depth=64, bias=True)),
    "attention_cross_77": ("attention", dict(batch=2, heads=8, rows=4096, keys=77, depth=40)),
    "attention_head_256": ("attention", dict(batch=2, heads=8, rows=1024, keys=1024, depth=256)),
    "attention_decode_8k": ("attention", dict(batch=4, heads=32, rows=1, keys=8192, depth=128)),
}
NAMES = [name + ":b1" for name in ROWS]


@functools.lru_cache(maxsize=None)
def case(name):
    """Kind, parameters, type and layout of a workload."""
    row = name.rsplit(":b", 1)[0]
    if row in ROWS:
        kind, parameters = ROWS[row]
        return kind, parameters, "f16", None
    seed, number = row.removeprefix("sweep").split(".")
    return operator_sweep.drawn(random.Random(f"operators {seed}.{number}"))


def kind(name):
    """The type that a workload is measured in."""
    return case(name)[2]


def workload(name):
    import torch

    torch.manual_seed(0)
    what, parameters, dtype, perm = case(name)
    made = kinds.KINDS[what](**parameters)
    return (*kinds.laid_out(made, dtype, perm), False)


def touched(name):
    """Elements that have to be read or written where these are not all of the inputs and results; `None` where they are."""
    what, parameters, _, _ = case(name)
    rule = kinds.TOUCHED.get(what)
    return rule(**parameters) if rule else None


def describe(name):
    what, parameters, dtype, perm = case(name)
    words = ", ".join(f"{k} {v}" for k, v in parameters.items())
    return f"{what} {dtype}: {words}" + (f", stored as {perm}" if perm else "")


def names(verb, arguments):
    """The workloads that a command line asks for."""
    if verb == "sweep":
        seed, count = (int(x) for x in arguments)
        return [f"sweep{seed}.{i}:b1" for i in range(count)]
    return [n for n in NAMES if not arguments or any(a in n for a in arguments)]


if __name__ == "__main__":
    sys.exit(command_line(sys.modules[__name__], __doc__))
