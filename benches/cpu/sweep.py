#!/usr/bin/env python3
"""Random cases of ONNX operators on the CPU backend and on ONNX Runtime, worst first: `sweep.py --seed 1 --count 300`.

Kinds, sizes, axes, types and layouts are drawn (`kinds_*.py`). Both sides have two threads and run in turns, or one with `--threads 1`; times are the least of all
rounds. Results are compared. Cases that ONNX Runtime refuses are counted and left out. The script fails where Kiln refuses a case, or where
results differ. `--cases 3,17` repeats single cases of a seed, `--kinds conv,pool` draws some kinds only.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import kinds_moves  # pylint: disable=unused-import
import kinds_pointwise  # pylint: disable=unused-import
import kinds_products  # pylint: disable=unused-import
from draws import drawn
from models import ROOT, Kiln
from table import runtime, session_of

# Greatest difference over the greatest magnitude, by the type of results. Both sides may round sums of f16 at other places.
WRONG = {"float16": 1e-2, "float32": 1e-4}
# Integers that are rounded from floats may differ by one.
ROUNDED = {"QLinearConv", "QLinearMatMul", "QuantizeLinear", "DynamicQuantizeLinear", "Resize"}


def difference(own, wanted, op):
    """The worst of all outputs: shapes and types that differ are infinite, as are other places of what is not finite."""
    worst = 0.0
    for name, w in wanted.items():
        o = own[name]
        if o.shape != w.shape or o.dtype != w.dtype:
            return math.inf, f"{name}: {o.dtype}{list(o.shape)} instead of {w.dtype}{list(w.shape)}"
        if not w.size:
            continue
        if w.dtype.kind != "f":
            off = np.abs(o.astype(np.int64) - w.astype(np.int64)).max() if w.dtype.kind != "b" else (o != w).max()
            worst = max(worst, 0.0 if off <= (op in ROUNDED) else float(off))
            continue
        a, b = o.astype(np.float64), w.astype(np.float64)
        finite = np.isfinite(b)
        if not (np.array_equal(finite, np.isfinite(a)) and np.array_equal(a[~finite], b[~finite], equal_nan=True)):
            return math.inf, f"{name}: other places are not finite"
        if finite.any():
            worst = max(worst, np.abs(a[finite] - b[finite]).max() / max(np.abs(b[finite]).max(), 1e-6) / WRONG[str(w.dtype)])
    return worst, ""


def measure(case, options, folder):
    """Times of both, and how far results differ: above one is wrong. `None` where ONNX Runtime does not run the case."""
    path = f"{folder}/m.onnx"
    pathlib.Path(path).write_bytes(case.model.SerializeToString())
    np.savez(f"{folder}/in.npz", **case.inputs)
    try:
        session = session_of(path, options.threads == 1)
        names = [o.name for o in session.get_outputs()]
        wanted = dict(zip(names, session.run(None, case.inputs)))
    except Exception:  # pylint: disable=broad-exception-caught
        return None
    other, own = runtime(session, case.inputs, False), Kiln(options.kiln, path, folder, case.inputs)
    theirs, ours, host = math.inf, math.inf, []
    for _ in range(options.rounds):
        theirs = min(theirs, other(options.seconds))
        found, _, _ = own.bench("--duration", str(options.seconds), "--warm-up", "20", "--iterations", "3")
        ours, host = min(ours, found["latency_ns"]["min"] / 1e9), [h["name"] for h in found["host_layers"] or []]
    off, why = difference(dict(np.load(f"{folder}/own.npz")), wanted, case.model.graph.node[0].op_type)
    return {"name": case.name, "kiln_us": ours * 1e6, "onnxruntime_us": theirs * 1e6, "ratio": ours / theirs, "by_oracle": host, "off": off, "why": why}


def line(r):
    marks = (f"  WRONG {r['off']:.1e} {r['why']}" if r["off"] > 1 else "") + ("  by oracle" if r["by_oracle"] else "")
    return f"{r['case']:5} {r['ratio']:7.2f} {r['kiln_us']:10.1f} {r['onnxruntime_us']:10.1f}  {r['name'][:170]}{marks}"


def report(rows, refused, skipped):
    mean = lambda rs: math.exp(sum(math.log(r["ratio"]) for r in rs) / len(rs))
    kinds = collections.defaultdict(list)
    for r in rows:
        kinds[r["kind"]].append(r)
    print(f"\n{'case':>5} {'ratio':>7} {'kiln us':>10} {'ort us':>10}")
    for r in sorted(rows, key=lambda r: -r["ratio"]):
        print(line(r))
    print()
    for name, rs in sorted(kinds.items(), key=lambda k: -mean(k[1])):
        print(f"{name:20} {len(rs):4} cases, mean {mean(rs):5.2f}, worst {max(r['ratio'] for r in rs):6.2f}")
    wrong = [r for r in rows if r["off"] > 1]
    for r in wrong + refused:
        print(line(r) if "ratio" in r else f"{r['case']:5} refused: {r['name'][:150]}: {r['why']}")
    above = lambda n: sum(r["ratio"] > n for r in rows)
    print(f"{len(rows)} cases, geometric mean {mean(rows):.2f}, above 3: {above(3)}, above 1.5: {above(1.5)}, wrong: {len(wrong)}, "
          f"refused by Kiln: {len(refused)}, by ONNX Runtime: {skipped}")
    return wrong + refused


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--cases", help="numbers of single cases")
    parser.add_argument("--kinds", help="kinds to draw; all if there are none. Numbers then name other cases.")
    parser.add_argument("--kiln", default=str(ROOT / "target/release/kiln"))
    parser.add_argument("--threads", type=int, choices=(1, 2), default=2, help="of both; one on machines with other work")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--json", help="a file for the numbers")
    options = parser.parse_args()
    os.environ["KILN_THREADS"] = str(options.threads)
    rows, refused, skipped = [], [], 0
    numbers = [int(n) for n in options.cases.split(",")] if options.cases else range(options.count)
    for i in numbers:
        kind, case = drawn(options.seed, i, options.kinds and options.kinds.split(","))
        try:
            with tempfile.TemporaryDirectory() as folder:
                row = measure(case, options, folder)
        except subprocess.CalledProcessError as e:
            text = e.stderr if isinstance(e.stderr, str) else (e.stderr or b"").decode(errors="replace")
            refused.append({"case": i, "kind": kind, "name": case.name, "why": text[-300:].replace("\n", " ")})
            print(f"{i:5} refused: {case.name[:150]}: {refused[-1]['why']}", flush=True)
            continue
        if row is None:
            skipped += 1
            continue
        rows.append({"case": i, "kind": kind, **row})
        print(line(rows[-1]), flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows + refused, indent=1))
    return 1 if not rows or report(rows, refused, skipped) else 0


if __name__ == "__main__":
    sys.exit(main())
