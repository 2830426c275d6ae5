#!/usr/bin/env python3
"""Times and peak memory of whole models on the CPU backend and on ONNX Runtime, as a table: `models.py [NAME..] [--batch N]..`.

Both have two threads. Each round times one after the other, so that other load on the machine meets both; the table shows the
least time of all rounds. The script fails where a model does not run, or results differ by more than 2 %.

Memory is the most that a process held, inputs and outputs with it: of `kiln bench` as a whole, of ONNX Runtime without what Python and
its packages held before the inputs were read, but with its library's code, as that of the command counts too. Models are those of nets.py, the CNNs that scripts/setup.sh puts in .cache, and
LeNet. Needs the Python packages onnx, onnxruntime and numpy: PYTHONPATH=.cache/peer has them.
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
CNNS = "bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet vgg19 zfnet512".split()
LENET = "lenet"
# Results that differ by more, of the greatest magnitude, are wrong: networks of 8 bits differ by steps of their scales.
WRONG = 2e-2
# Runs a command and prints the kilobytes that it held at most. A process of its own: one that is begun by a large process counts as
# large as that.
HELD = "import resource as r, subprocess as s, sys; s.run(sys.argv[1:], check=True); u = r.getrusage(r.RUSAGE_CHILDREN); print(u.ru_maxrss, u.ru_utime)"
os.environ.update(OMP_NUM_THREADS="2", KILN_THREADS="2")


def status(key):
    """Kilobytes that this process holds, or held at most."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


def mapped(name):
    """Kilobytes of files with such a name that this process holds, as a library's code."""
    held, own = 0, False
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            own = name in line
        elif own and first == "Rss:":
            held += int(rest[0])
    return held


def peer(model, arrays, results):
    """Serves times of ONNX Runtime, a process of its own: seconds in, the least time of a run out."""
    import numpy as np  # pylint: disable=import-outside-toplevel
    import onnxruntime as ort  # pylint: disable=import-outside-toplevel
    before = status("VmRSS") - mapped("onnxruntime")
    inputs = dict(np.load(arrays))
    options = ort.SessionOptions()
    one = os.environ["KILN_THREADS"] == "1"
    clock = time.process_time if one else time.perf_counter
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = 1 if one else 2, 1, 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    np.savez(results, **dict(zip((n.replace("/", "_") for n in names), session.run(None, inputs))))
    for line in sys.stdin:
        best, runs, end = math.inf, 0, time.perf_counter() + float(line)
        while runs < 5 or time.perf_counter() < end:
            start = clock()
            session.run(None, inputs)
            best, runs = min(best, clock() - start), runs + 1
        print(json.dumps([best, status("VmHWM") - before]), flush=True)


class Peer:
    """The process of ONNX Runtime."""

    def __init__(self, *args):
        self.process = subprocess.Popen([sys.executable, __file__, "--peer", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Kiln:
    """Engines built and run by the command."""

    def __init__(self, command, model, folder, inputs):
        self.command, self.engine, self.folder = command, f"{folder}/m.kiln", folder
        shapes = [a for n, x in inputs.items() for a in ("--shapes", f"{n}:" + "x".join(map(str, x.shape)))]
        start = time.perf_counter()
        subprocess.run([command, "build", model, "-o", self.engine, "--backend", "cpu", *shapes], check=True, capture_output=True)
        self.built = time.perf_counter() - start

    def run(self, seconds):
        found, held, used = self.bench("--duration", str(seconds), "--warm-up", "20", "--iterations", "3")
        best = found["latency_ns"]["min"] / 1e9
        if os.environ["KILN_THREADS"] == "1":
            # The time of the processor, of more runs and of few.
            more = max(4, int(seconds / best))
            few, many = (self.bench("--duration", "0", "--warm-up", "0", "--iterations", str(n))[2] for n in (2, 2 + more))
            best = (many - few) / more
        return best, held, [h["name"] for h in found["host_layers"] or []]

    def bench(self, *args):
        args = ["bench", self.engine, "--inputs", f"{self.folder}/in.npz", *args, "--json", "--save-outputs", f"{self.folder}/own.npz"]
        out = subprocess.run([sys.executable, "-S", "-E", "-c", HELD, self.command, *args], check=True, capture_output=True, text=True).stdout
        *lines, last = out.splitlines()
        held, used = last.split()
        return json.loads("\n".join(lines)), int(held), float(used)


def difference(own, wanted):
    """The greatest difference of any output over the greatest magnitude in it."""
    import numpy as np  # pylint: disable=import-outside-toplevel
    worst = 0.0
    for name, array in np.load(wanted).items():
        mine = {k.replace("/", "_"): v for k, v in np.load(own).items()}[name]
        worst = max(worst, float(np.abs(mine.astype(float) - array).max() / max(np.abs(array).max(), 1e-9)))
    return worst


def measure(name, model, inputs, options):
    import numpy as np  # pylint: disable=import-outside-toplevel
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/in.npz", **inputs)
        # Built before the other side starts, whose threads would disturb the times that kernels are chosen by.
        own = Kiln(options.kiln, str(model), folder, inputs)
        other = Peer(str(model), f"{folder}/in.npz", f"{folder}/other.npz")
        try:
            theirs = ours = math.inf
            held, peak, host = 0, 0, []
            for _ in range(options.rounds):
                now, held = other.run(options.seconds)
                theirs = min(theirs, now)
                now, peak, host = own.run(options.seconds)
                ours = min(ours, now)
            off = difference(f"{folder}/own.npz", f"{folder}/other.npz")
        finally:
            other.close()
    return {"name": name, "kiln_ms": ours * 1e3, "onnxruntime_ms": theirs * 1e3, "ratio": ours / theirs, "kiln_mb": peak / 1024,
            "onnxruntime_mb": held / 1024, "memory": peak / held, "off": off, "build_s": own.built, "by_oracle": host}


def start_up(command, folder):
    """Least seconds that `kiln run` takes on an engine of LeNet."""
    engine = f"{folder}/lenet.kiln"
    subprocess.run([command, "build", str(ROOT / "tests/data/digits/lenet_a.onnx"), "-o", engine, "--backend", "cpu"], check=True, capture_output=True)
    best = math.inf
    for _ in range(20):
        start = time.perf_counter()
        subprocess.run([command, "run", engine, "--random-inputs", "1"], check=True, capture_output=True)
        best = min(best, time.perf_counter() - start)
    return best


def cnn(name, batch):
    """A CNN of the cache, of another batch; `None` where its shapes are of one alone."""
    import numpy as np  # pylint: disable=import-outside-toplevel
    import onnx  # pylint: disable=import-outside-toplevel
    path = ROOT / ".cache/topologies" / f"{name}.onnx"
    if name == LENET:
        path = ROOT / "tests/data/digits/lenet_a.onnx"
        inputs = {"input": np.random.default_rng(1).standard_normal((1, 1, 28, 28)).astype(np.float32)}
    elif path.is_file():
        arrays = np.load(path.with_suffix(".npz"))
        inputs = {n[3:]: arrays[n] for n in arrays if n.startswith("in:")}
    else:
        return None
    if batch == 1:
        return path, inputs
    model = onnx.load(path)
    if name != LENET and not rebatched(model, batch):
        return None
    return model, {n: np.repeat(x, batch, 0) for n, x in inputs.items()}


def rebatched(model, batch):
    """Gives a model another batch; false where a reshape has the batch of one in it."""
    import numpy as np  # pylint: disable=import-outside-toplevel
    from onnx import numpy_helper  # pylint: disable=import-outside-toplevel
    weights = {w.name: w for w in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Reshape" and node.input[1] in weights:
            shape = numpy_helper.to_array(weights[node.input[1]]).copy()
            if shape[0] == 1:
                shape[0] = batch if -1 in shape else -1
            weights[node.input[1]].CopyFrom(numpy_helper.from_array(np.asarray(shape), node.input[1]))
    for value in [*(i for i in model.graph.input if i.name not in weights), *model.graph.output]:
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_value = batch
    del model.graph.value_info[:]
    return True


def todo(options, folder):
    """Names, files and inputs of the models that are asked for."""
    import nets  # pylint: disable=import-outside-toplevel
    import onnx  # pylint: disable=import-outside-toplevel
    for name in [LENET, *CNNS, *nets.NETWORKS]:
        if options.names and not any(n.lower() in name for n in options.names):
            continue
        for batch in options.batch:
            made = nets.network(name, batch) if name in nets.NETWORKS else cnn(name, batch)
            if made is None:
                continue
            model, inputs = made
            if not isinstance(model, pathlib.Path):
                onnx.save(model, f"{folder}/{name}.onnx")
                model = pathlib.Path(folder) / f"{name}.onnx"
            yield f"{name} b{batch}", model, inputs


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of models to time; all if there are none")
    parser.add_argument("--kiln", default=str(ROOT / "target/release/kiln"))
    parser.add_argument("--batch", type=int, action="append", default=[])
    parser.add_argument("--cpu-time", action="store_true", help="one thread each, and the processor's time, on machines with other work")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--json", help="a file for the numbers")
    options = parser.parse_args()
    options.batch = options.batch or [1, 8]
    if options.cpu_time:
        os.environ.update(OMP_NUM_THREADS="1", KILN_THREADS="1")
    rows, failed = [], 0
    print(f"{'':22} {'kiln ms':>9} {'ort ms':>9} {'ratio':>6} {'kiln MB':>8} {'ort MB':>8} {'ratio':>6} {'differs':>8} {'build s':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name, model, inputs in todo(options, folder):
            try:
                r = measure(name, model, inputs, options)
            except Exception as e:
                print(f"{name:22} {type(e).__name__}: {str(getattr(e, 'stderr', '') or e)[-300:]}", flush=True)
                failed += 1
                continue
            rows.append(r)
            failed += not r["off"] <= WRONG
            mark = "  by oracle: " + ", ".join(r["by_oracle"]) if r["by_oracle"] else ""
            print(f"{name:22} {r['kiln_ms']:9.3f} {r['onnxruntime_ms']:9.3f} {r['ratio']:6.2f} {r['kiln_mb']:8.0f} {r['onnxruntime_mb']:8.0f} "
                  f"{r['memory']:6.2f} {r['off']:8.0e} {r['build_s']:8.1f}{mark}", flush=True)
        print(f"start of `kiln run` on LeNet: {start_up(options.kiln, folder) * 1e3:.1f} ms")
    if rows:
        mean = math.exp(sum(math.log(r["ratio"]) for r in rows) / len(rows))
        print(f"{len(rows)} models, geometric mean {mean:.2f}, worst {max(r['ratio'] for r in rows):.2f}; memory at most {max(r['memory'] for r in rows):.2f}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(*sys.argv[2:])
    else:
        sys.exit(main())
