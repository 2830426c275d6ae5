#!/usr/bin/env python3
"""Time that bindings add to a run: one plan run from Rust, C, Python and ONNX Runtime.

LeNet takes a digit; a network of one small layer shows what is left where kernels take no time.

    cargo build --release --workspace --lib --example runs
    PYTHON-WITH-THE-WHEEL benches/bindings/overhead.py [--folder target/release] [--backend cpu] [--rounds 7] [--ort PYTHON] [--json]

Processes take turns; each figure is the least of the medians of all rounds. `run` goes from inputs to outputs, `kept` leaves them
where they are. `--ort` names a Python that has ONNX Runtime.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import kiln

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
MODELS = {
    "LeNet": ROOT / "tests" / "data" / "digits" / "lenet_a.onnx",
    "one layer": ROOT / ".cache" / "onnx-suite-1.19.1" / "node" / "test_relu" / "model.onnx",
}


def median(run, runs):
    """Median nanoseconds of a call."""
    times = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


def python(plan, runs):
    """The package, in this process."""
    engine = kiln.Engine.open(plan)
    context, kept = engine.create_context(), engine.create_context()
    port, result = engine.io[0], engine.io[1]
    x, out = np.zeros(port.shape, np.float32), np.zeros(result.shape, np.float32)
    kept.set_input(port.name, x)

    def again():
        kept.enqueue()
        kept.wait()

    return {
        "run": median(lambda: context.run({port.name: x}), runs),
        "into": median(lambda: context.run({port.name: x}, out={result.name: out}), runs),
        "engine.run": median(lambda: engine.run({port.name: x}), runs),
        "kept": median(again, runs),
    }


def process(command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env={**os.environ, **more})
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=str(ROOT / "target" / "release"))
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--ort")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {name: measured(model, given) for name, model in MODELS.items()}
    if given.json:
        print(json.dumps({n: {" ".join(key): us for key, us in best.items()} for n, best in found.items()}))
        return
    for name, best in found.items():
        print(name)
        for (way, kind), us in best.items():
            base = best[("Rust", "kept" if kind == "kept" else "run")]
            print(f"  {way:14} {kind:12} {us:9.1f} us {us - base:+8.1f} us")


def measured(model, given):
    """Least medians in microseconds by way and kind of run."""
    folder, best = Path(given.folder), {}
    with tempfile.TemporaryDirectory() as work:
        plan, program = Path(work) / "model.kiln", Path(work) / "runs"
        network = kiln.Network("")
        network.parse_onnx(Path(model).read_bytes(), None)
        for t in network.inputs:
            t.shape = [n if n > 0 else 1 for n in t.shape]
        kiln.build(network, backend=given.backend, samples=3).save(plan)
        folders = [f"-I{ROOT / 'capi' / part}" for part in ("include", "examples")]
        subprocess.run(["cc", "-O2", "-std=c11", *folders, HERE / "runs.c", "-o", program, folder / "libkiln.so"], check=True)
        # Programs ask for the library by the name of its interface.
        (Path(work) / "libkiln.so.0").symlink_to((folder / "libkiln.so").resolve())
        ways = {
            "Rust": lambda: process([folder / "examples" / "runs", plan, given.runs]),
            "C": lambda: process([program, plan, given.runs], LD_LIBRARY_PATH=work),
            "Python": lambda: python(plan, given.runs),
        }
        if given.ort:
            library = folder / "libkiln_ort.so"
            ways["ONNX Runtime"] = lambda: process([given.ort, HERE / "ort_runs.py", model, library, given.backend, given.runs])
        for _ in range(given.rounds):
            for name, way in ways.items():
                for kind, ns in way().items():
                    best[(name, kind)] = min(best.get((name, kind), float("inf")), ns / 1000)
    return best


if __name__ == "__main__":
    main()
