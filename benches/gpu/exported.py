"""Workloads as ONNX files that travel without their weights, which are made again from the seed.

A file of a workload is `model.onnx` with weights outside (`weights.bin`) and a recipe for each: the parameter of the module that it is, or
a transpose or row-wise multiple of one. What no recipe explains stays inside the file.
"""
import argparse
import hashlib
import json
import os
import sys
import warnings

# Weights of fewer bytes stay in the model.
SMALL = 2048
TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "tf32": "float32", "i32": "int32", "i64": "int64"}


def first(y):
    return y[0] if isinstance(y, (tuple, list)) else y


def error(y, ref):
    """||y - ref|| / ||ref - mean of ref||, in f64, or / ||ref|| of one element; of integers and of truth values the share that differs."""
    if not (y.is_floating_point() and ref.is_floating_point()):
        return (y != ref).double().mean().item()
    y, ref = y.double().flatten(), ref.double().flatten()
    scale = (ref - ref.mean()).norm() if ref.numel() > 1 else ref.norm()
    return ((y - ref).norm() / scale.clamp_min(1e-30)).item()


def folder(out, name):
    return os.path.join(out, name.replace(":", "_"))


def names_of(args, outputs):
    return [f"input_{i}" for i in range(len(args))], [f"output_{i}" for i in range(len(outputs))]


def export(module, args, path, exporter="torchscript", opset=18):
    """Writes an ONNX file by one of PyTorch's exporters; returns the outputs in f32."""
    import torch

    torch.backends.mha.set_fastpath_enabled(False)  # its fused operator has no form in ONNX
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = module(*args)
    y = y if isinstance(y, (tuple, list)) else (y,)
    inputs, outputs = names_of(args, y)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            torch.onnx.export(module, tuple(args), path, input_names=inputs, output_names=outputs, dynamo=True, external_data=False,
                              verbose=False, opset_version=opset)
        else:
            torch.onnx.export(module, tuple(args), path, input_names=inputs, output_names=outputs, opset_version=opset, dynamo=False)
    return y


def recipes(module):
    """Functions from a weight to its recipe, if a parameter explains it."""
    import numpy as np

    named = {n: p.detach().numpy() for n, p in [*module.named_parameters(), *module.named_buffers()] if p.dtype.is_floating_point}
    named = {n: p for n, p in named.items() if p.nbytes >= SMALL}
    exact = {}
    for n, p in named.items():
        exact.setdefault(digest(p), {"from": n})
        if p.ndim == 2:
            exact.setdefault(digest(p.T), {"from": n, "transposed": True})

    def recipe(w):
        found = exact.get(digest(w))
        if found:
            return {**found, "shape": list(w.shape)}
        for n, p in named.items():
            if p.shape != w.shape or w.ndim < 2 or not np.any(p):
                continue
            rows, wanted = p.reshape(len(p), -1), w.reshape(len(w), -1)
            at = np.abs(rows).argmax(1)
            pick = np.arange(len(p)), at
            scale = wanted[pick] / np.where(rows[pick] == 0, 1, rows[pick])
            if np.allclose(rows * scale[:, None], wanted, rtol=1e-5, atol=1e-9):
                return {"from": n, "scale": [float(f"{s:.9g}") for s in scale], "shape": list(w.shape)}
        return None

    return recipe


def digest(array):
    import numpy as np

    return hashlib.sha1(np.ascontiguousarray(array).tobytes()).hexdigest()


def strip(path, module):
    """Moves the weights of a model that recipes explain out of it; the recipes in the order of their places in the file of weights."""
    import onnx
    from onnx import numpy_helper

    model, rows, place = onnx.load(path), [], 0
    recipe = recipes(module)
    for t in model.graph.initializer:
        if t.data_type != onnx.TensorProto.FLOAT or len(t.raw_data or t.float_data) < SMALL // 4:
            continue
        w = numpy_helper.to_array(t)
        found = recipe(w) if w.nbytes >= SMALL else None
        if not found:
            continue
        for field in ("raw_data", "float_data"):
            t.ClearField(field)
        t.data_location = onnx.TensorProto.EXTERNAL
        for k, v in (("location", "weights.bin"), ("offset", place), ("length", w.nbytes)):
            entry = t.external_data.add()
            entry.key, entry.value = k, str(v)
        rows.append(found)
        place += w.nbytes
    with open(path, "wb") as f:
        f.write(model.SerializeToString())
    return rows


def fill(where, module):
    """Writes the file of weights beside a stripped model."""
    import numpy as np

    with open(os.path.join(where, "recipes.json"), encoding="utf-8") as f:
        rows = json.load(f)
    named = {n: p.detach() for n, p in [*module.named_parameters(), *module.named_buffers()]}
    with open(os.path.join(where, "weights.bin"), "wb") as f:
        for r in rows:
            w = named[r["from"]].numpy()
            if r.get("transposed"):
                w = w.T
            if "scale" in r:
                w = (w.reshape(len(w), -1) * np.array(r["scale"], np.float32)[:, None]).astype(np.float32)
            f.write(np.ascontiguousarray(w).tobytes())


def make(workloads, name, out):
    """Exports one workload without its weights; what was written."""
    where = folder(out, name)
    os.makedirs(where, exist_ok=True)
    module, args, _ = workloads.workload(name)
    path = os.path.join(where, "model.onnx")
    exporter, opset = getattr(workloads, "exporter", lambda name: ("torchscript", 18))(name)
    y = export(module, args, path, exporter, opset)
    rows = strip(path, module)
    with open(os.path.join(where, "recipes.json"), "w", encoding="utf-8") as f:
        json.dump(rows, f)
    return module, args, y


def ready(where):
    """Whether a workload was exported."""
    return os.path.exists(os.path.join(where, "recipes.json"))


def arrays(names, tensors, dtype=None):
    """Tensors as arrays by name, floats in the type of the engine where NumPy has it."""
    import torch

    half = lambda t: t.half() if dtype == "f16" and t.is_floating_point() else t.float() if t.dtype == torch.bfloat16 else t
    return {n: half(t.detach().cpu()).contiguous().numpy() for n, t in zip(names, tensors)}


def command_line(workloads, words):
    """The command line of a module of workloads: list, sweep, export."""
    import numpy as np

    p = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("verb", choices=("list", "sweep", "export"))
    p.add_argument("arguments", nargs="*")
    p.add_argument("--out", default="bench-work")
    p.add_argument("--names", action="store_true", help="print names alone")
    p.add_argument("--describe", action="store_true", help="print layers and least times, too")
    o = p.parse_intermixed_args()
    if o.verb != "export":
        from cost import cost

        for name in workloads.names(o.verb, o.arguments):
            if o.names:
                print(name)
                continue
            print(f"{name}: {workloads.describe(name)}" + (f"; {cost(workloads, name)}" if o.describe else ""), flush=True)
        return 0
    failed = 0
    for name in o.arguments:
        where = folder(o.out, name)
        try:
            module, args, y = make(workloads, name, o.out)
            fill(where, module)
            inputs, outputs = names_of(args, y)
            np.savez(os.path.join(where, "inputs.npz"), **arrays(inputs, args))
            np.savez(os.path.join(where, "outputs.npz"), **arrays(outputs, y))
            row = {"workload": name, "dir": where, "bytes": os.path.getsize(os.path.join(where, "model.onnx"))}
        except Exception as e:  # one workload that can't be exported must not lose the others
            row, failed = {"workload": name, "error": f"{type(e).__name__}: {e}"[:300]}, failed + 1
        print(json.dumps(row), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit("run operators.py or plausible.py")
