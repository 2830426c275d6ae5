#!/usr/bin/env python3
"""Time that Python adds to a run: LeNet on the CPU, one digit, from Python and from Rust, with the same plan.

Rust's time is that of `kiln bench`, which sets its inputs once. Calls of this process that do the same show how processes differ.

Usage: overhead.py [KILN-PROGRAM] [--json]
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import kiln

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "data" / "digits" / "lenet_a.onnx"
ROUNDS, RUNS = 5, 2000


def median_of(run) -> float:
    """Microseconds of a call, the least median of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        times = []
        for _ in range(RUNS):
            start = time.perf_counter_ns()
            run()
            times.append(time.perf_counter_ns() - start)
        best = min(best, statistics.median(times) / 1000)
    return best


def native(program: str, plan: Path) -> float:
    """Median microseconds of a run from inputs to outputs by the command line, the least of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        done = subprocess.run(
            [program, "bench", plan, "--duration", "1", "--json"], capture_output=True, text=True, check=True
        )
        best = min(best, json.loads(done.stdout)["latency_ns"]["p50"] / 1000)
    return best


def main() -> None:
    arguments = [a for a in sys.argv[1:] if a != "--json"]
    program = arguments[0] if arguments else "kiln"
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "lenet.kiln"
        kiln.build(MODEL, backend="cpu", samples=3).save(plan)
        rust = native(program, plan)
        engine = kiln.Engine.open(plan)
        context = engine.create_context()
        x, out = np.zeros((1, 1, 28, 28), np.float32), np.zeros((1, 10), np.float32)
        context.set_input("input", x)

        def twice() -> None:
            context.enqueue()
            context.wait()

        here = median_of(twice)
        found = {
            "kiln bench": rust,
            "enqueue and wait": here,
            "context.run": median_of(lambda: context.run({"input": x})),
            "context.run with out": median_of(lambda: context.run({"input": x}, out={"logits": out})),
            "engine.run": median_of(lambda: engine.run({"input": x})),
        }
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    for name, us in found.items():
        print(f"{name:24} {us:9.1f} us {us - rust:+8.1f} us")


if __name__ == "__main__":
    main()
