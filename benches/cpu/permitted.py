#!/usr/bin/env python3
"""Whether permitted types ever cost time on the CPU: LeNet and ResNet-50 built as they are, and with --fp16 --bf16 --int8 permitted.

    permitted.py [--kiln PATH] [--seconds S] [--rounds N] [--limit 0.03] [MODEL.onnx:INPUT=1x3x224x224 ..]

`--int8` comes with ranges of two random batches. Each round times one engine after the other, so that other load on the machine
meets both, in the other order every second time; the table shows the least time of all rounds. Rounds go on, up to ten times as many,
while an engine seems slower than permitted: noise goes away, a slow engine stays. The script ends with 1 if one is slower by more than
the limit. LeNet is that of the tests, ResNet-50 the one that scripts/setup.sh puts in .cache.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = [
    f"{ROOT}/tests/data/digits/lenet_a.onnx:input=1x1x28x28",
    f"{ROOT}/.cache/topologies/resnet50.onnx:gpu_0/data_0=1x3x224x224",
]


def run(command):
    """The output of a command that must not fail."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def built(options, model, shape, folder, *types):
    """The path of an engine with these types permitted."""
    engine = f"{folder}/{'permitted' if types else 'plain'}.kiln"
    run([options.kiln, "build", model, "-o", engine, "--backend", "cpu", "--shapes", shape, *types, "--json"])
    return engine


def least(options, engine):
    """The least time of a run, in seconds."""
    command = [options.kiln, "bench", engine, "--duration", str(options.seconds), "--warm-up", "50", "--json"]
    return json.loads(run(command))["latency_ns"]["min"] / 1e9


def measured(options, model, name, dims):
    """Least times without and with permitted types."""
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(1)
        data = f"{folder}/data.npz"
        np.savez(data, **{name: rng.uniform(-1, 1, [2 * dims[0], *dims[1:]]).astype(np.float32)})
        shape = f"{name}:{'x'.join(map(str, dims))}"
        plain = built(options, model, shape, folder)
        permitted = built(options, model, shape, folder, "--fp16", "--bf16", "--int8", "--calibrate", data)
        best = {plain: math.inf, permitted: math.inf}
        for i in range(10 * options.rounds):
            for engine in (plain, permitted) if i % 2 == 0 else (permitted, plain):
                best[engine] = min(best[engine], least(options, engine))
            if i + 1 >= options.rounds and best[permitted] <= best[plain] * (1 + options.limit):
                break
        return best[plain], best[permitted]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL.onnx:INPUT=DIMS")
    parser.add_argument("--kiln", default=f"{ROOT}/target/release/kiln")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=0.03)
    options = parser.parse_args()
    slow = []
    print(f"{'model':<24} {'f32 ms':>10} {'permitted ms':>13} {'ratio':>7}")
    for model in options.models:
        path, _, of = model.rpartition(":")
        name, _, dims = of.partition("=")
        plain, permitted = measured(options, path, name, [int(d) for d in dims.split("x")])
        ratio = permitted / plain
        print(f"{pathlib.Path(path).stem:<24} {plain * 1e3:>10.3f} {permitted * 1e3:>13.3f} {ratio:>7.3f}", flush=True)
        if ratio > 1 + options.limit:
            slow.append(pathlib.Path(path).stem)
    if slow:
        sys.exit(f"slower than f32 by more than {options.limit:.0%}: {', '.join(slow)}")


if __name__ == "__main__":
    main()
