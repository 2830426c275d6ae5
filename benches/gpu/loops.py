#!/usr/bin/env python3
"""Data-dependent loops on one NVIDIA GPU: Kiln's on the device beside PyTorch's, which ask the device before each iteration.

    loops.py --kiln target/release/deps/branches-…      (the test executable of backends/cuda/tests/branches.rs)

An iteration adds 1 to a number t and launches n - 1 small kernels over 1,024 elements; the loop goes on while t < 1000. Printed are
microseconds an iteration, for Kiln also the time of an iteration beside its kernels, whose cost is that of a link of a long chain.
"""
import argparse
import re
import statistics
import subprocess
import time

import torch

TRIPS = 1000


def step(t, x, kernels):
    t = t + 1.0
    for k in range(1, kernels):
        x = x.neg() if k % 2 == 1 else x.abs()
    return t, x


def walked(one, limit):
    """A loop of Python around a step."""

    def run(t, x):
        while t < limit:
            t, x = one(t, x)
        return t, x

    return run


def inside(kernels, limit):
    """The loop as an operator of torch.compile."""
    from torch._higher_order_ops.while_loop import while_loop

    @torch.compile
    def run(t, x):
        return while_loop(lambda t, x: t < limit, lambda t, x: step(t, x.clone(), kernels), (t, x))

    return run


def measured(run, t, x):
    """Microseconds an iteration: the median of five runs."""
    times = []
    for _ in range(7):
        torch.cuda.synchronize()
        start = time.perf_counter()
        end, _ = run(t, x)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    assert float(end) == TRIPS
    return statistics.median(times[2:]) / TRIPS * 1e6


def peers(kernels):
    t, x = torch.zeros((), device="cuda"), torch.rand(1024, device="cuda")
    limit = torch.tensor(float(TRIPS), device="cuda")
    eager = lambda t, x: step(t, x, kernels)
    found = {"eager": measured(walked(eager, limit), t, x)}
    found["compiled step"] = measured(walked(torch.compile(eager), limit), t, x)
    try:
        found["compiled while_loop"] = measured(inside(kernels, limit), t, x)
    except Exception as e:  # pylint: disable=broad-except  (an operator that is still experimental)
        print(f"while_loop of {kernels} kernels: {type(e).__name__}: {str(e)[:200]}")
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kiln", required=True, help="the test executable `branches`")
    done = subprocess.run(
        [p.parse_args().kiln, "--ignored", "--nocapture", "speed"], capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stdout.splitlines() if " us" in line]
    own = {int(n): (iteration, beside) for n, iteration, beside in re.findall(
        r"while, (\d+) kernels: ([\d.]+) us an iteration, ([\d.-]+) us beside", done.stdout)}
    print("kernels  Kiln  beside  " + "PyTorch")
    with torch.inference_mode():
        for kernels, (iteration, beside) in own.items():
            words = ", ".join(f"{name} {us:.1f}" for name, us in peers(kernels).items())
            print(f"{kernels:7}  {iteration}  {beside}  {words}")
    print("\n".join(line for line in lines if not line.startswith("while")))


if __name__ == "__main__":
    main()
