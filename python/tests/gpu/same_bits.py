"""Tensors of PyTorch in and out by DLPack on the current stream, under a graph, and the command line: one engine, equal bits.

Usage: same_bits.py MODEL DIGITS [KILN-PROGRAM]. Without a GPU the same calls run on the CPU, the graph apart.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import kiln

MODEL, DIGITS = Path(sys.argv[1]), np.load(sys.argv[2])
PROGRAM = sys.argv[3:] or [sys.executable, "-m", "kiln"]
GPU = torch.cuda.is_available()
DEVICE, BACKEND = ("cuda", "cuda") if GPU else ("cpu", "cpu")
COUNT = 8


def handle():
    """The current stream, as Kiln takes it."""
    return torch.cuda.current_stream().cuda_stream if GPU else None


def by_command(plan, images, folder):
    np.savez(folder / "in.npz", input=images)
    command = [*PROGRAM, "run", plan, "--inputs", folder / "in.npz", "--save-outputs", folder / "out.npz"]
    subprocess.run([str(a) for a in command], check=True, stdout=subprocess.DEVNULL)
    return torch.from_numpy(np.load(folder / "out.npz")["logits"])


def main():
    folder = Path(tempfile.mkdtemp())
    images = DIGITS["images"][:COUNT].copy()
    built = kiln.build(MODEL, backend=BACKEND, shapes={"input": images.shape}, optimization_level=1)
    built.save(folder / "lenet.kiln")
    engine = built.load()
    wanted = by_command(folder / "lenet.kiln", images, folder)
    assert (wanted.argmax(1).numpy() == DIGITS["labels"][:COUNT]).mean() > 0.8
    context = engine.create_context()
    x = torch.from_numpy(images).to(DEVICE)

    # In and out by DLPack, on the current stream: the run sees what that stream wrote before, and later work sees the run.
    out = torch.zeros(COUNT, 10, device=DEVICE)
    side = torch.cuda.Stream() if GPU else None
    with torch.cuda.stream(side) if GPU else torch.no_grad():
        late = x.clone()
        for _ in range(50):
            late = late * 2 / 2
        result = context.run({"input": late}, out={"logits": out}, stream=handle())
        after = out.clone()
    assert result["logits"] is out
    if GPU:
        torch.cuda.synchronize()
    assert torch.equal(after.cpu(), wanted), "DLPack on the current stream"
    own = engine.run({"input": torch.from_numpy(images)})["logits"].torch()
    assert torch.equal(own.cpu(), wanted), "host tensors"
    shared = kiln.Tensor(out)
    assert torch.from_dlpack(shared).data_ptr() == out.data_ptr(), "no copy"
    assert shared.torch().data_ptr() == out.data_ptr()

    # Bound memory, and a graph of PyTorch's around the run.
    bound = engine.create_context()
    bound.set_input_shape("input", tuple(x.shape))
    out.zero_()
    bound.bind("input", x.data_ptr(), x.nbytes)
    bound.bind("logits", out.data_ptr(), out.nbytes)
    figures = {}
    if GPU:
        bound.set_stream(side.cuda_stream)
        with torch.cuda.stream(side):
            bound.enqueue()
        side.synchronize()
        assert torch.equal(out.cpu(), wanted), "bound memory"
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            x.add_(0.0)
            bound.enqueue()
            doubled = out * 2
        for n in (0, COUNT):
            x.copy_(torch.from_numpy(DIGITS["images"][n : n + COUNT].copy()))
            out.zero_()
            graph.replay()
            torch.cuda.synchronize()
            again = by_command(folder / "lenet.kiln", DIGITS["images"][n : n + COUNT], folder)
            assert torch.equal(out.cpu(), again), "under torch.cuda.graph"
            assert torch.equal(doubled.cpu(), again * 2)
        start = time.perf_counter()
        for _ in range(2000):
            graph.replay()
        torch.cuda.synchronize()
        figures["graph replay us"] = (time.perf_counter() - start) / 2000 * 1e6

        def timed(run, runs=1000):
            times = []
            for _ in range(runs):
                start = time.perf_counter_ns()
                run()
                times.append(time.perf_counter_ns() - start)
            return float(np.median(times)) / 1000

        figures["context.run on tensors of the device us"] = timed(
            lambda: context.run({"input": x}, out={"logits": out}, stream=side.cuda_stream)
        )

        def both():
            bound.enqueue()
            bound.wait()

        figures["enqueue and wait us"] = timed(both)
    else:
        bound.enqueue()
        bound.wait()
        assert torch.equal(out, wanted)
    print(json.dumps({"device": torch.cuda.get_device_name() if GPU else "cpu", **figures}))
    print("OK")
    # With the interpreter's end everything is still alive.
    os.environ["KEPT"] = str(id(shared))


main()
