#!/usr/bin/env python3
"""Times of operators and models on the CPU backend and on ONNX Runtime, as a table: `table.py [NAME..] [--models FOLDER] [--cpu-time]`.

Both have two threads, or, for times of the processor, one. Each round times one after the other, so that other load on the machine meets both; the table shows the
least time of all rounds, and their ratio. Needs the Python packages onnx, onnxruntime and numpy, and a release build of `kiln`
(or `--kiln PATH`). Inputs are random. `--json FILE` also writes the numbers.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from models import Kiln

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOAT, HALF, INT8, UINT8, INT64 = np.float32, np.float16, np.int8, np.uint8, np.int64
RNG = np.random.default_rng(1)


def floats(*shape, dtype=FLOAT):
    return RNG.standard_normal(shape).astype(dtype)


def ints(low, high, *shape, dtype=INT64):
    return RNG.integers(low, high, shape).astype(dtype)


class Case:
    """A model of one node: inputs are given at run time, constants are initializers; None leaves an input out."""

    def __init__(self, name, op, inputs, constants=(), outputs=1, opset=17, **attributes):
        self.name, self.inputs = name, {f"x{i}": x for i, x in enumerate(inputs)}
        weights, names = [], list(self.inputs)
        for i, c in enumerate(constants):
            names.append("" if c is None else f"c{i}")
            if c is not None:
                weights.append(numpy_helper.from_array(np.asarray(c), f"c{i}"))
        results = [f"y{i}" for i in range(outputs)]
        node = helper.make_node(op, names, results, **attributes)
        ins = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in self.inputs.items()
        ]
        outs = [helper.make_empty_tensor_value_info(r) for r in results]
        graph = helper.make_graph([node], "case", ins, outs, weights)
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        inferred = onnx.shape_inference.infer_shapes(self.model)
        for out in self.model.graph.output:
            known = next(o for o in inferred.graph.output if o.name == out.name)
            out.CopyFrom(known)


def cases():
    image, tokens = floats(1, 64, 112, 112), floats(1, 256, 768)
    h = 256
    yield Case("Add", "Add", [image, floats(1, 64, 112, 112)])
    yield Case("Mul broadcast", "Mul", [image, floats(1, 64, 1, 1)])
    yield Case("Relu", "Relu", [image])
    yield Case("Sigmoid", "Sigmoid", [image])
    yield Case("Tanh", "Tanh", [image])
    yield Case("Erf", "Erf", [image])
    yield Case("Exp", "Exp", [image])
    yield Case("Log", "Log", [abs(image) + 0.1])
    yield Case("Sin", "Sin", [image])
    yield Case("Pow", "Pow", [abs(image), floats(1)], opset=15)
    yield Case("Sqrt", "Sqrt", [abs(image)])
    yield Case("Where", "Where", [ints(0, 2, 1, 64, 112, 112, dtype=bool), image, image * 2])
    yield Case("Greater", "Greater", [image, floats(1)])
    yield Case("Cast f16", "Cast", [image], to=T.FLOAT16)
    yield Case("Cast f32 of f16", "Cast", [image.astype(HALF)], to=T.FLOAT)
    yield Case("Cast i32", "Cast", [image], to=T.INT32)
    yield Case("Cast f32 of u8", "Cast", [ints(0, 255, 1, 3, 512, 512, dtype=UINT8)], to=T.FLOAT)
    yield Case("Cast i64 to i32", "Cast", [ints(0, 255, 1 << 18)], to=T.INT32)
    yield Case("Transpose 0213", "Transpose", [floats(1, 256, 12, 64)], perm=[0, 2, 1, 3])
    yield Case("Transpose NHWC", "Transpose", [image], perm=[0, 2, 3, 1])
    yield Case("Concat", "Concat", [image, image * 2], axis=1)
    yield Case("Slice", "Slice", [image], [[0, 0, 4, 4], [1, 64, 100, 100]], opset=13)
    yield Case("Split-like Slice step 2", "Slice", [image], [[0, 0], [112, 112], [2, 3], [2, 2]])
    yield Case("Pad constant", "Pad", [image], [[0, 0, 3, 3, 0, 0, 3, 3]])
    yield Case("Pad reflect", "Pad", [image], [[0, 0, 3, 3, 0, 0, 3, 3]], mode="reflect")
    yield Case("Tile", "Tile", [floats(1, 64, 56, 56)], [[1, 1, 2, 2]])
    yield Case("Expand", "Expand", [floats(1, 64, 1, 1)], [[1, 64, 112, 112]])
    yield Case("Gather rows", "Gather", [floats(30522, 768), ints(0, 30522, 1, 256)])
    yield Case("GatherElements", "GatherElements", [floats(512, 1024), ints(0, 1024, 512, 256)], axis=1)
    yield Case("GatherND", "GatherND", [floats(512, 512, 8), ints(0, 512, 4096, 2)])
    yield Case("ScatterElements", "ScatterElements", [floats(512, 1024), ints(0, 1024, 512, 16), floats(512, 16)], axis=1)
    yield Case("ScatterND", "ScatterND", [floats(512, 1024), ints(0, 512, 64, 1), floats(64, 1024)])
    yield Case("DepthToSpace", "DepthToSpace", [floats(1, 64, 128, 128)], blocksize=2)
    yield Case("OneHot", "OneHot", [ints(0, 1000, 256)], [np.int64(1000), np.array([0, 1], FLOAT)], axis=-1)
    yield Case("NonZero", "NonZero", [ints(0, 2, 512, 512)])
    yield Case("Resize nearest", "Resize", [image], [None, np.array([1, 1, 2, 2], FLOAT)], mode="nearest",
               coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    yield Case("Resize linear", "Resize", [image], [None, np.array([1, 1, 2, 2], FLOAT)], mode="linear")
    yield Case("Resize cubic", "Resize", [floats(1, 16, 112, 112)], [None, np.array([1, 1, 2, 2], FLOAT)], mode="cubic")
    yield Case("GridSample", "GridSample", [floats(1, 16, 128, 128), np.tanh(floats(1, 128, 128, 2))], opset=16)
    yield Case("ReduceMean last", "ReduceMean", [tokens], axes=[-1])
    yield Case("ReduceMean spatial", "ReduceMean", [image], axes=[2, 3])
    yield Case("ReduceSum middle", "ReduceSum", [image], [[1]])
    yield Case("ReduceMax", "ReduceMax", [image], axes=[1])
    yield Case("ReduceL2", "ReduceL2", [tokens], axes=[-1])
    yield Case("ArgMax last", "ArgMax", [floats(256, 1000)], axis=-1)
    yield Case("ArgMax channels", "ArgMax", [floats(1, 21, 256, 256)], axis=1)
    yield Case("CumSum", "CumSum", [floats(256, 1024)], [np.int64(1)])
    yield Case("TopK 5 of 1000", "TopK", [floats(256, 1000)], [[5]], outputs=2)
    yield Case("TopK 300 of 80000", "TopK", [floats(1, 80000)], [[300]], outputs=2)
    yield Case("Softmax last", "Softmax", [floats(12, 256, 256)], axis=-1)
    yield Case("Softmax channels", "Softmax", [floats(1, 21, 128, 128)], axis=1)
    yield Case("LayerNormalization", "LayerNormalization", [tokens], [floats(768), floats(768)], axis=-1)
    yield Case("InstanceNormalization", "InstanceNormalization", [image], [floats(64), floats(64)])
    yield Case("BatchNormalization", "BatchNormalization", [image], [floats(64)] * 3 + [abs(floats(64)) + 0.1])
    yield Case("MaxPool 3x3 s2", "MaxPool", [image], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    yield Case("MaxPool 2x2 s2", "MaxPool", [image], kernel_shape=[2, 2], strides=[2, 2])
    yield Case("AveragePool 3x3", "AveragePool", [image], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    yield Case("GlobalAveragePool", "GlobalAveragePool", [image])
    yield Case("MatMul 256x768x3072", "MatMul", [tokens], [floats(768, 3072)])
    yield Case("MatMul batched", "MatMul", [floats(12, 256, 64), floats(12, 64, 256)])
    yield Case("MatMul 1x1024x1024", "MatMul", [floats(1, 1024)], [floats(1024, 1024)])
    yield Case("Gemm", "Gemm", [floats(64, 1024)], [floats(1024, 1024), floats(1024)], transB=1)
    yield Case("MatMulInteger", "MatMulInteger", [ints(0, 255, 256, 768, dtype=UINT8)], [ints(-127, 127, 768, 768, dtype=INT8)])
    yield Case("Einsum bhid,bhjd", "Einsum", [floats(1, 12, 256, 64), floats(1, 12, 256, 64)], equation="bhid,bhjd->bhij")
    yield Case("Einsum ij,kj", "Einsum", [floats(256, 768), floats(768, 768)], equation="ij,kj->ik")
    yield Case("Conv 3x3 64", "Conv", [floats(1, 64, 56, 56)], [floats(64, 64, 3, 3)], pads=[1] * 4)
    yield Case("Conv 1x1 256", "Conv", [floats(1, 256, 56, 56)], [floats(64, 256, 1, 1)])
    yield Case("Conv depthwise", "Conv", [floats(1, 96, 56, 56)], [floats(96, 1, 3, 3)], pads=[1] * 4, group=96)
    yield Case("Conv 1-D", "Conv", [floats(1, 80, 3000)], [floats(384, 80, 3)], pads=[1, 1])
    yield Case("ConvInteger", "ConvInteger", [ints(0, 255, 1, 64, 56, 56, dtype=UINT8)], [ints(0, 255, 64, 64, 3, 3, dtype=UINT8)], pads=[1] * 4)
    yield Case("ConvTranspose 2x2 s2", "ConvTranspose", [floats(1, 128, 56, 56)], [floats(128, 64, 2, 2)], strides=[2, 2])
    yield Case("ConvTranspose 4x4 s2", "ConvTranspose", [floats(1, 64, 32, 32)], [floats(64, 64, 4, 4)], strides=[2, 2], pads=[1] * 4)
    yield Case("LSTM", "LSTM", [floats(64, 1, h)], [floats(1, 4 * h, h) / 16, floats(1, 4 * h, h) / 16], hidden_size=h)
    yield Case("GRU", "GRU", [floats(64, 1, h)], [floats(1, 3 * h, h) / 16, floats(1, 3 * h, h) / 16], hidden_size=h)
    yield Case("RNN", "RNN", [floats(64, 4, h)], [floats(1, h, h) / 16, floats(1, h, h) / 16], hidden_size=h)
    yield Case("QuantizeLinear", "QuantizeLinear", [image], [np.float32(0.02), np.uint8(128)])
    yield Case("DequantizeLinear", "DequantizeLinear", [ints(0, 255, 1, 64, 112, 112, dtype=UINT8)], [np.float32(0.02), np.uint8(128)])
    yield quantized("QLinearConv 3x3 64", (64, 56, 56), (64, 64, 3, 3), pads=[1] * 4)
    yield quantized("QLinearConv 1x1 24 to 144", (24, 56, 56), (144, 24, 1, 1))
    yield quantized("QLinearConv 1x1 320 to 1280", (320, 7, 7), (1280, 320, 1, 1))
    yield quantized("QLinearConv depthwise s2", (96, 112, 112), (96, 1, 3, 3), pads=[1] * 4, strides=[2, 2], group=96)
    yield quantized("QLinearConv depthwise 5x5", (240, 28, 28), (240, 1, 5, 5), pads=[2] * 4, group=240)
    yield quantized("QLinearConv stem 7x7", (3, 224, 224), (64, 3, 7, 7), pads=[3] * 4, strides=[2, 2])
    yield Case("DFT 16384", "DFT", [floats(1, 16384, 1)], axis=1)


def quantized(name, x, w, **attributes):
    """A convolution of an image of 8 bits whose weights have a scale for each output."""
    m = w[0]
    scales = (RNG.random(m) * 0.01 + 0.001).astype(FLOAT)
    constants = [np.float32(0.02), np.uint8(120), ints(-127, 128, *w, dtype=INT8), scales, np.zeros(m, INT8),
                 np.float32(0.05), np.uint8(128), ints(-1000, 1000, m, dtype=np.int32)]
    return Case(name, "QLinearConv", [ints(0, 255, 1, *x, dtype=UINT8)], constants, **attributes)


def session_of(model, one):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1 if one else 2, 1
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def runtime(session, inputs, one):
    """A function from seconds to the least time of a run."""
    clock = time.process_time if one else time.perf_counter

    def run(seconds):
        session.run(None, inputs)
        best, end = math.inf, time.perf_counter() + seconds
        while True:
            start = clock()
            session.run(None, inputs)
            best = min(best, clock() - start)
            if time.perf_counter() > end:
                return best

    return run


def measure(name, model, inputs, options):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/m.onnx"
        pathlib.Path(path).write_bytes(model)
        np.savez(f"{folder}/in.npz", **inputs)
        other, own = runtime(session_of(path, options.cpu_time), inputs, options.cpu_time), Kiln(options.kiln, path, folder, inputs)
        theirs, ours, host = math.inf, math.inf, []
        for _ in range(options.rounds):
            theirs = min(theirs, other(options.seconds))
            now, _, host = own.run(options.seconds)
            ours = min(ours, now)
    return {"name": name, "kiln_us": ours * 1e6, "onnxruntime_us": theirs * 1e6, "ratio": ours / theirs, "by_oracle": host}


def models(folder):
    """Each NAME.onnx with its inputs in NAME.npz."""
    for path in sorted(pathlib.Path(folder).glob("*.onnx")):
        arrays = path.with_suffix(".npz")
        if arrays.is_file():
            names = {i.name for i in onnx.load(path).graph.input}
            found = {n: x for n, x in np.load(arrays).items() if n in names}
            if found:
                yield path.stem, path.read_bytes(), found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of operators to time; all if there are none")
    parser.add_argument("--kiln", default=str(ROOT / "target/release/kiln"))
    parser.add_argument("--models", action="append", default=[], help="a folder of models with inputs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--cpu-time", action="store_true", help="one thread each, and the processor's time, on machines with other work")
    parser.add_argument("--json")
    options = parser.parse_args()
    os.environ["KILN_THREADS"] = "1" if options.cpu_time else "2"
    wanted = lambda name: not options.names or any(n.lower() in name.lower() for n in options.names)
    todo = [(c.name, c.model.SerializeToString(), c.inputs) for c in cases() if wanted(c.name)]
    for folder in options.models:
        todo += [m for m in models(folder) if wanted(m[0])]
    rows = []
    print(f"{'':28} {'kiln us':>10} {'ort us':>10} {'ratio':>7}")
    for name, model, inputs in todo:
        try:
            row = measure(name, model, inputs, options)
        except subprocess.CalledProcessError as e:
            print(f"{name:28} kiln: {str(e.stderr)[-300:]}")
            continue
        except Exception as e:
            print(f"{name:28} {type(e).__name__}: {str(e)[:200]}")
            continue
        rows.append(row)
        mark = "  by oracle: " + ", ".join(row["by_oracle"]) if row["by_oracle"] else ""
        print(f"{name:28} {row['kiln_us']:10.1f} {row['onnxruntime_us']:10.1f} {row['ratio']:7.2f}{mark}", flush=True)
    if rows:
        mean = math.exp(sum(math.log(r["ratio"]) for r in rows) / len(rows))
        print(f"{len(rows)} rows, geometric mean {mean:.2f}, worst {max(r['ratio'] for r in rows):.2f}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
