#!/usr/bin/env python3
"""Products and networks in reduced types on one NVIDIA GPU: Kiln beside cuBLASLt and cuSPARSELt as PyTorch calls them.

    reduced.py products --kiln K --sizes 4096,8192       f16, int8 and fp8 (e4m3) products of square matrices, and by 2:4 sparse ones:
                                                         `--kinds f16,sparse,int8,sparse_int8,fp8,sparse_fp8`
    reduced.py ranges --kiln K --peers peers.py NAME..   calibration tables of networks, on the processor, at a batch of 4
    reduced.py export --kiln K --peers peers.py NAME..   networks alone, for later calls; uses no GPU
    reduced.py networks --kiln K --peers peers.py NAME.. f16, and with int8 or fp8 permitted as well; ranges from tables of `--ranges`, or
                                                         calibrated on the inputs; `--kinds f16,int4` has matrices in blocks of 128 codes

A network is called MODEL:bN, its table MODEL.cache. Without a GPU, `--backend cpu` runs everything but the peers. Times are medians of
rounds that take turns; a network's error is that of its first output against f32, beside the share of rows with the same greatest
element. Needs PyTorch and the package onnx. Lines of JSON go to standard output.
"""
import argparse
import importlib
import json
import multiprocessing
import os
import statistics
import sys
import time

from bench import command
from exported import arrays, export, first, names_of


def two_of_four(w):
    """The matrix with two zeros among four neighbours of a column: those that are least."""
    import numpy as np

    rows, columns = w.shape
    groups = w.T.reshape(columns, rows // 4, 4)
    kept = np.argsort(np.abs(groups.astype(np.float32)), axis=2)[:, :, 2:]
    mask = np.zeros(groups.shape, bool)
    np.put_along_axis(mask, kept, True, 2)
    return np.ascontiguousarray(np.where(mask, groups, 0).astype(w.dtype).reshape(columns, rows).T)


def product(n, kind):
    """A network of one product by a constant matrix, which is 2:4 sparse where that is wanted."""
    import numpy as np
    from onnx import TensorProto as T
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(n)
    tensor = lambda name, a: numpy_helper.from_array(a, name)
    pruned = two_of_four if kind.startswith("sparse") else lambda w: w
    if kind.endswith("int8"):
        w = pruned(rng.integers(-128, 128, (n, n), dtype=np.int8))
        nodes, given = [helper.make_node("MatMulInteger", ["x", "w"], ["y"])], [tensor("w", w)]
        types = T.INT8, T.INT32
    elif kind.endswith("fp8"):
        # Codes without a sign are ordered as their numbers are.
        codes = pruned(rng.integers(0, 120, (n, n), dtype=np.uint8)) | (rng.integers(0, 2, (n, n), dtype=np.uint8) << 7)
        w = helper.make_tensor("w", T.FLOAT8E4M3FN, (n, n), codes.tobytes(), raw=True)
        scale = tensor("scale", np.array(1 / 64, np.float16))
        nodes = [helper.make_node("DequantizeLinear", [c, "scale"], [f"{c}_wide"]) for c in "xw"]
        nodes.append(helper.make_node("MatMul", ["x_wide", "w_wide"], ["y"]))
        given, types = [w, scale], (T.FLOAT8E4M3FN, T.FLOAT16)
    else:
        w = pruned(rng.standard_normal((n, n), dtype=np.float32))
        nodes, given = [helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor("w", w.astype(np.float16))]
        types = T.FLOAT16, T.FLOAT16
    info = [helper.make_tensor_value_info(name, t, [n, n]) for name, t in zip("xy", types)]
    graph = helper.make_graph(nodes, "product", info[:1], info[1:], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def peer(n, kind):
    """The same product as PyTorch calls it."""
    import torch

    half = lambda: torch.rand(n, n, device="cuda", dtype=torch.float16) * 2 - 1
    if kind == "int8":
        a, b = (torch.randint(-128, 128, (n, n), device="cuda", dtype=torch.int8) for _ in range(2))
        return lambda: torch._int_mm(a, b.t())
    if kind == "fp8":
        a, b = (half().to(torch.float8_e4m3fn) for _ in range(2))
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=False)
    mask = torch.tensor([0, 0, 1, 1], device="cuda", dtype=torch.bool).tile(n, n // 4)
    if kind == "sparse_int8":
        a, b = (torch.randint(-128, 128, (n, n), device="cuda", dtype=torch.int8) for _ in range(2))
        packed = torch._cslt_compress(a * mask)
        return lambda: torch._cslt_sparse_mm(packed, b.t(), out_dtype=torch.int32)
    if kind == "sparse_fp8":
        packed, b = torch._cslt_compress((half() * mask).to(torch.float8_e4m3fn)), half().to(torch.float8_e4m3fn)
        return lambda: torch._cslt_sparse_mm(packed, b.t(), out_dtype=torch.bfloat16)
    if kind == "sparse":
        a, b = torch.sparse.to_sparse_semi_structured(half() * mask), half()
        return lambda: torch.mm(a, b)
    a, b = half(), half()
    return lambda: torch.mm(a, b)


def milliseconds(call, seconds=0.5):
    """The median of as many seconds as Kiln's runs take: clocks fall under load."""
    import torch

    start = time.perf_counter()
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    count = max(20, int(20 * seconds / (time.perf_counter() - start)))
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for begin, end in marks:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in marks)


def bench(o, engine):
    where = ["--no-transfers"] if o.backend == "cuda" else []
    out, _ = command([o.kiln, "bench", engine, "--json", "--warm-up", "20", "--iterations", "20", "--duration", "0.5", *where], o.limit)
    row = json.loads(out)
    layers = sorted(row["layers"], key=lambda x: -x["mean_ns"])
    tactics = [(x["tactic"][:60], round(x["mean_ns"] / 1e3, 1)) for x in layers[:4]]
    return (row.get("run_ns") or row["device_ns"])["p50"] / 1e6, tactics


def build(o, model, engine, *flags):
    out, seconds = command([o.kiln, "build", model, "-o", engine, "--backend", o.backend, "--json", "--timing-cache",
                            os.path.join(o.work, "times.cache"), *flags], o.limit)
    return json.loads(out), round(seconds, 1)


def products(o):
    import onnx

    flags = {"f16": ["--fp16"], "int8": [], "fp8": ["--fp16", "--fp8"]}
    for dense, sparse in ("f16", "sparse"), ("int8", "sparse_int8"), ("fp8", "sparse_fp8"):
        flags[sparse] = [*flags[dense], "--sparsity", "enable"]
    for n in (int(x) for x in o.sizes.split(",")):
        engines = {}
        for kind in o.kinds.split(","):
            path = os.path.join(o.work, f"{kind}_{n}")
            try:
                onnx.save(product(n, kind), path + ".onnx")
                _, seconds = build(o, path + ".onnx", path + ".kiln", *flags[kind])
                engines[kind] = path + ".kiln", seconds
            except Exception as e:  # pylint: disable=broad-except  (one type must not lose the others)
                print(json.dumps({"product": n, "type": kind, "failed": str(e)[-400:]}), flush=True)
        rounds = {kind: [] for kind in engines}
        for _ in range(o.rounds):
            for kind, (path, _) in engines.items():
                theirs = None
                try:
                    theirs = milliseconds(peer(n, kind))
                except Exception as e:  # pylint: disable=broad-except  (a library may lack a type)
                    print(f"peer of {kind}: {str(e)[:300]}", file=sys.stderr)
                rounds[kind].append((*bench(o, path), theirs))
        for kind, all_rounds in rounds.items():
            ours = statistics.median(r[0] for r in all_rounds)
            theirs = [r[2] for r in all_rounds if r[2]]
            theirs = statistics.median(theirs) if theirs else None
            row = {"product": n, "type": kind, "kiln_ms": round(ours, 4), "tops": round(2 * n ** 3 / ours / 1e9, 1), "build_s": engines[kind][1]}
            if theirs:
                row.update(peer_ms=round(theirs, 4), peer_tops=round(2 * n ** 3 / theirs / 1e9, 1), ratio=round(theirs / ours, 3))
            print(json.dumps({**row, "tactics": all_rounds[0][1]}), flush=True)


def exported(o, name):
    """Writes a network with its inputs, unless that was done before: its folder, module and inputs."""
    import numpy as np

    sys.path.insert(0, os.path.dirname(os.path.abspath(o.peers)))
    peers = importlib.import_module(os.path.splitext(os.path.basename(o.peers))[0])
    where = os.path.join(o.work, name.replace(":", "_"))
    os.makedirs(where, exist_ok=True)
    module, args, _ = peers.workload(name)
    inputs = os.path.join(where, "inputs.npz")
    if not os.path.exists(inputs):
        export(module, args, os.path.join(where, "model.onnx"))
        names, _ = names_of(args, ())
        np.savez(inputs, **arrays(names, args))
    return where, module, args, peers.error


def four_bits(path, to, block=128):
    """The network with matrices of products as codes of 4 bits, in blocks along the depth."""
    import numpy as np
    import onnx
    from onnx import TensorProto as T
    from onnx import helper, numpy_helper

    model = onnx.load(path)
    g, nodes = model.graph, []
    weights = {t.name: t for t in g.initializer}
    for node in g.node:
        turned = node.op_type == "Gemm" and any(a.name == "transB" and a.i for a in node.attribute)
        w = weights.get(node.input[1]) if node.op_type == "MatMul" or turned else None
        axis = 1 if turned else 0
        if w is not None and len(w.dims) == 2 and w.dims[axis] % block == 0:
            a = numpy_helper.to_array(w).astype(np.float32)
            parts = (a.shape[0], -1, block) if turned else (-1, block, a.shape[1])
            scale = np.maximum(np.abs(a.reshape(parts)).max(axis + 1, keepdims=True) / 7, 1e-8)
            codes = np.clip(np.rint(a.reshape(parts) / scale), -8, 7).astype(np.int8).reshape(-1)
            packed = ((codes[0::2] & 15) | (codes[1::2] & 15) << 4).astype(np.uint8)
            name = f"{w.name}_codes_of_{len(nodes)}"
            g.initializer.append(helper.make_tensor(name, T.INT4, a.shape, packed.tobytes(), raw=True))
            g.initializer.append(numpy_helper.from_array(scale.squeeze(axis + 1), name + "_scale"))
            nodes.append(helper.make_node("DequantizeLinear", [name, name + "_scale"], [name + "_wide"], axis=axis, block_size=block))
            node.input[1] = name + "_wide"
        nodes.append(node)
    used = {x for n in nodes for x in n.input}
    kept = [t for t in g.initializer if t.name in used]
    del g.node[:], g.initializer[:]
    g.node.extend(nodes)
    g.initializer.extend(kept)
    for opset in model.opset_import:
        opset.version = max(opset.version, 21) if opset.domain == "" else opset.version
    onnx.save(model, to)


def table(folder, name):
    """The file of a network's ranges, whatever its batch."""
    return os.path.join(folder, name.split(":")[0] + ".cache")


def ranges(o):
    os.makedirs(o.ranges or o.work, exist_ok=True)
    for name in o.names:
        where, _, _, _ = exported(o, name.split(":")[0] + ":b4")
        path = lambda f: os.path.join(where, f)
        _, seconds = command([o.kiln, "build", path("model.onnx"), "-o", path("ranges.kiln"), "--backend", "cpu", "--no-timing",
                              "--int8", "--calibrate", path("inputs.npz"), "--calibrator", o.calibrator, "--calibration-cache",
                              table(o.ranges or o.work, name)], o.limit)
        print(json.dumps({"network": name, "table": table(o.ranges or o.work, name), "seconds": round(seconds, 1)}), flush=True)


def built(o, name):
    """Builds a network's engines and runs each once: what they are by kind, and what failed."""
    import numpy as np
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    where, module, args, error = exported(o, name)
    path = lambda f: os.path.join(where, f)
    with torch.inference_mode():
        wanted = first(module.to(device)(*(a.to(device) for a in args))).float().cpu()
    half = path("inputs_f16.npz")
    np.savez(half, **arrays(names_of(args, ())[0], args, "f16"))
    known = o.ranges and os.path.exists(table(o.ranges, name))
    by = ["--calibration-cache", table(o.ranges, name)] if known else ["--calibrate", path("inputs.npz"), "--calibrator", o.calibrator]
    kinds = {"f16": [], "f16+int4": [], "f16+int8": ["--int8", *by], "f16+fp8": ["--fp8", *by]}
    engines, failed = {}, {}
    for kind, flags in kinds.items():
        if kind.split("+")[-1] not in o.kinds.split(","):
            continue
        engine = path(kind + ".kiln")
        try:
            if kind.endswith("int4"):
                four_bits(path("model.onnx"), path("model_int4.onnx"))
            model = path("model_int4.onnx" if kind.endswith("int4") else "model.onnx")
            _, seconds = build(o, model, engine, "--fp16", "--io-type", "f16", *flags)
            command([o.kiln, "run", engine, "--inputs", half, "--save-outputs", path("outputs.npz"), "--json"], o.limit)
            found = torch.from_numpy(np.load(path("outputs.npz"))["output_0"]).float()
            same = (found.flatten(1).argmax(1) == wanted.flatten(1).argmax(1)).float().mean().item()
            engines[kind] = engine, {"build_s": seconds, "error": float(f"{error(found, wanted):.3g}"), "same_top": round(same, 4)}
        except Exception as e:  # pylint: disable=broad-except  (one type must not lose the others)
            failed[kind] = str(e)[-500:]
    return engines, failed


def networks(o):
    with multiprocessing.get_context("spawn").Pool(o.jobs) as pool:
        waiting = [(name, pool.apply_async(built, (o, name))) for name in o.names]
        ready = [(name, result.get()) for name, result in waiting]
    for name, (engines, failed) in ready:
        for kind, why in failed.items():
            print(json.dumps({"network": name, "types": kind, "failed": why}), flush=True)
        rounds = {kind: [] for kind in engines}
        for _ in range(o.rounds):
            for kind, (engine, _) in engines.items():
                rounds[kind].append(bench(o, engine))
        base = statistics.median(r[0] for r in rounds["f16"]) if "f16" in rounds else None
        for kind, all_rounds in rounds.items():
            ours = statistics.median(r[0] for r in all_rounds)
            row = {"network": name, "types": kind, "kiln_ms": round(ours, 4), "f16_over_this": base and round(base / ours, 3)}
            print(json.dumps({**row, **engines[kind][1], "slowest": all_rounds[0][1]}), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("verb", choices=("products", "ranges", "export", "networks"))
    p.add_argument("names", nargs="*", help="networks of the module")
    p.add_argument("--kiln", required=True, help="the kiln command")
    p.add_argument("--backend", default="cuda")
    p.add_argument("--work", default="bench-work", help="folder for models and engines")
    p.add_argument("--sizes", default="8192", help="rows of the square matrices")
    p.add_argument("--kinds", default="f16,sparse,int8,fp8")
    p.add_argument("--peers", help="the module of networks")
    p.add_argument("--ranges", help="folder of calibration tables")
    p.add_argument("--calibrator", default="entropy")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--jobs", type=int, default=1, help="networks that are built at a time, before all are timed")
    p.add_argument("--limit", type=float, default=300, help="seconds that one command may take")
    o = p.parse_intermixed_args()
    os.makedirs(o.work, exist_ok=True)
    {"products": products, "ranges": ranges, "networks": networks, "export": lambda o: [exported(o, name) for name in o.names]}[o.verb](o)


if __name__ == "__main__":
    main()
