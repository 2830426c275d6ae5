#!/usr/bin/env python3
"""Makes whole networks with an independent peer's answer: `make.py LIGHT_FOLDER OUT_FOLDER [NAME]...`.

The ONNX wheel ships the topologies of nine well-known CNNs without their weights. For each this writes NAME.onnx with
seeded random weights of sensible scale, its numbers before the softmax as a further output "logits", and NAME.npz with
a seeded input and the outputs of ONNX Runtime on the CPU, its graph optimizer off.
"""
import argparse
import pathlib
import zlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

LOGITS = "logits"
SPREAD = 2.0  # standard deviation of the logits


def constants(graph):
    """Shapes of the tensors that stand in for weights, by name."""
    given = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    return {n.output[0]: given[n.input[0]] for n in graph.node if n.op_type == "ConstantOfShape"}


def readers(graph):
    """For each tensor the first node that reads it and at which place, through nodes that only reshape."""
    found = {}
    for node in reversed(graph.node):
        for i, name in enumerate(node.input):
            through = node.op_type in ("Unsqueeze", "Reshape") and i == 0
            found[name] = found.get(node.output[0], (node, i)) if through else (node, i)
    return found


def weight(rng, shape, node, place):
    """Random weights for what reads them: He's scale for products, positive variances, factors around one."""
    normal = lambda scale: rng.standard_normal(shape, np.float32) * np.float32(scale)
    uniform = lambda low, high: rng.uniform(low, high, shape).astype(np.float32)
    match node.op_type, place:
        case "BatchNormalization", 1 | 4:
            return uniform(0.6, 1.4)
        case "Mul", _:
            return uniform(0.6, 1.2)
        case "Conv", 1:
            w = normal(np.sqrt(3 / np.prod(shape[1:])))
            # Filters that sum to zero: otherwise what all activations have in common drowns what the input changes.
            return w - w.mean(axis=(1, 2, 3), keepdims=True) if shape[1] > 1 else w
        case "Gemm", 1:
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            return normal(np.sqrt(2 / shape[1 if transposed else 0]))
        case ("Conv" | "Gemm", 2) | ("BatchNormalization", 2 | 3) | ("Add", _):
            return normal(0.1)
    raise SystemExit(f"no rule for input {place} of {node.op_type} ({node.output[0]})")


def with_weights(model, rng):
    """Replaces the stand-ins by weights. What they were made from goes too; initializers are inputs no longer."""
    graph, shapes = model.graph, constants(model.graph)
    read = readers(graph)
    weights = {name: weight(rng, tuple(shape), *read[name]) for name, shape in shapes.items() if name in read}
    nodes = [n for n in graph.node if n.op_type != "ConstantOfShape"]
    used = {name for n in nodes for name in n.input}
    kept = [t for t in graph.initializer if t.name in used]
    known = {t.name for t in graph.initializer}
    inputs = [i for i in graph.input if i.name not in known]
    for field, new in (("node", nodes), ("input", inputs), ("initializer", kept)):
        del getattr(graph, field)[:]
        getattr(graph, field).extend(new)
    model.ir_version = 8
    return weights


def expose_logits(graph):
    """Makes what the softmax reads, or the only output, an output of the name "logits"; returns its old name."""
    last = [n for n in graph.node if n.op_type == "Softmax"]
    name = last[-1].input[0] if last else graph.output[0].name
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [LOGITS if n == name else n for n in names]
    if not last:
        del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, None))


def session(model, path):
    onnx.save(model, path)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def last_product(graph):
    """Names of the weights, and the bias if it has one, of the last product before the logits."""
    made = {n.output[0]: n for n in graph.node}
    node = [n for n in graph.node if n.op_type in ("Conv", "Gemm")][-1]
    names = list(node.input[1:])
    while any(n in made for n in names):
        names = [made[n].input[0] if n in made else n for n in names]
    return names


def picture(rng, shape):
    """Patches of one brightness with some noise: plain noise would average out before the logits."""
    patches = rng.standard_normal((*shape[:2], shape[2] // 32, shape[3] // 32), np.float32)
    noise = rng.standard_normal(shape, np.float32)
    return np.kron(patches, np.ones((32, 32), np.float32)) + noise / np.float32(4)


def make(source, out, name):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    model = onnx.load(source)
    weights = with_weights(model, rng)
    expose_logits(model.graph)
    for t in weights:
        model.graph.initializer.append(numpy_helper.from_array(weights[t], t))
    path = out / f"{name}.onnx"
    given = model.graph.input[0]
    shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
    inputs = {given.name: picture(rng, shape)}
    # The last weights are scaled so that the logits are of a size at which differences show.
    logits = session(model, path).run([LOGITS], inputs)[0]
    for tensor in model.graph.initializer:
        if tensor.name in last_product(model.graph):
            scaled = numpy_helper.to_array(tensor) * np.float32(SPREAD / logits.std())
            tensor.CopyFrom(numpy_helper.from_array(scaled, tensor.name))
    peer = session(model, path)
    names = [o.name for o in peer.get_outputs()]
    outputs = dict(zip(names, peer.run(names, inputs)))
    blank = peer.run([LOGITS], {n: np.zeros_like(a) for n, a in inputs.items()})[0]
    spread, moved = outputs[LOGITS].std(), np.abs(outputs[LOGITS] - blank).max()
    if not SPREAD / 2 < spread < SPREAD * 2 or moved < SPREAD / 10:
        raise SystemExit(f"{name}: the logits spread by {spread}, the input moves them by {moved}")
    np.savez(out / f"{name}.npz", **{f"in:{n}": a for n, a in inputs.items()},
             **{f"out:{n}": a for n, a in outputs.items()})
    params = sum(w.size for w in weights.values())
    print(f"{name}: {len(model.graph.node)} nodes, {params / 1e6:.1f} M weights; the input moves logits by {moved:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("light", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for file in sorted(args.light.glob("light_*.onnx")):
        name = file.stem.removeprefix("light_")
        if not args.names or name in args.names:
            make(file, args.out, name)
