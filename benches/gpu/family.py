#!/usr/bin/env python3
"""Products and convolutions one by one: each tactic of Kiln's beside cuBLAS, cuBLASLt and cuDNN on the same GPU.

    family.py --kiln FAMILY [--groups small,resnet50_b1] [--results family.jsonl] [--table]

FAMILY is the test executable `family` of the CUDA backend (scripts/gpu_pack.sh packs it). Both sides run a CUDA graph of up to
48 launches with weights of their own, more than the L2 holds, which is how layers of a network follow each other; times are
medians of whole graphs over launches. Kiln's launches overlap by programmatic dependent launch. Convolutions have bias and ReLU
on both sides (cuDNN's fused call). Finished shapes are kept as JSON lines under the hash of FAMILY, so that a run that was cut
off goes on; `--table` prints what is there: by group, each shape and the geometric mean of (library / Kiln).
"""
import argparse
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

# Side, channels, output channels, kernel, stride of ResNet-50's distinct convolutions.
RESNET50 = [
    (224, 3, 64, 7, 2), (56, 64, 64, 1, 1), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1), (56, 256, 64, 1, 1),
    (56, 256, 128, 1, 1), (56, 128, 128, 3, 2), (28, 128, 512, 1, 1), (56, 256, 512, 1, 2), (28, 512, 128, 1, 1),
    (28, 128, 128, 3, 1), (28, 512, 256, 1, 1), (28, 256, 256, 3, 2), (14, 256, 1024, 1, 1), (28, 512, 1024, 1, 2),
    (14, 1024, 256, 1, 1), (14, 256, 256, 3, 1), (14, 1024, 512, 1, 1), (14, 512, 512, 3, 2), (7, 512, 2048, 1, 1),
    (14, 1024, 2048, 1, 2), (7, 2048, 512, 1, 1), (7, 512, 512, 3, 1),
]  # fmt: skip


def products(kind, sizes, way="kn"):
    return [f"matmul {kind} {m} {n} {k} {way}" for m, n, k in sizes]


def encoder(tokens, d=768):
    """Products of an encoder's layer: queries, keys and values in one; output; up; down."""
    return [(tokens, 3 * d, d), (tokens, d, d), (tokens, 4 * d, d), (tokens, d, 4 * d)]


def convolutions(batch):
    return ["conv f16 " + " ".join(map(str, (batch, *c))) for c in RESNET50]


SMALL = [
    (128, 768, 768), (128, 2304, 768), (128, 3072, 768), (128, 768, 3072), (197, 768, 768), (197, 3072, 768),
    (197, 768, 3072), (256, 768, 3072), (32, 3072, 768), (32, 768, 3072), (8, 2304, 768), (8, 768, 3072),
    (1, 2304, 768), (1, 768, 3072),
]  # fmt: skip
GROUPS = {
    "small": products("f16", SMALL),
    "small_nk": products("f16", SMALL, "nk"),
    "large": products("f16", [(8192, 8192, 8192)]) + products("tf32", [(8192, 8192, 8192)], "nk")
    + products("i8", [(8192, 8192, 8192)], "nk"),
    "resnet50_b1": convolutions(1),
    "resnet50_b32": convolutions(32),
    "bert_base_b32": products("f16", encoder(32 * 128)),
    "vit_b32": products("f16", encoder(32 * 197)),
    "gpt2_decode": products("f16", encoder(1) + [(1, 50257, 768)], "nk") + products("f16", encoder(8)),
}
ROTATE = 150 << 20
LAUNCHES = 48


def peer(line):
    """Microseconds of the library's fastest way, and its name."""
    import torch

    words = line.split()
    kind = {"f16": torch.float16, "tf32": torch.float32, "i8": torch.int8}[words[1]]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = words[1] == "tf32"
    torch.backends.cudnn.benchmark = True

    def draw(*shape):
        if kind == torch.int8:
            return torch.randint(-127, 127, shape, dtype=kind, device="cuda")
        return torch.randn(*shape, dtype=kind, device="cuda")

    sizes = [int(w) for w in words[2:] if w.isdigit()]
    if words[0] == "matmul":
        m, n, k = sizes
        x = draw(m, k)
        one = draw(n, k).t() if words[5] == "nk" else draw(k, n)
        ways = {"cublas": torch.mm, "cublaslt": torch.mm}
        if kind == torch.int8:
            ways = {"int_mm": torch._int_mm}
            if m <= 16:
                return None
        moved = (m * k + m * n) * x.element_size()

        def launch(way, x, w):
            return ways[way](x, w)

        again = [one]
    else:
        batch, side, c, out, kernel, stride = sizes
        form = torch.channels_last
        x = draw(batch, c, side, side).to(memory_format=form)
        one = draw(out, c, kernel, kernel).to(memory_format=form)
        again = [one, draw(out)]
        to = (side + 2 * (kernel // 2) - kernel) // stride + 1
        moved = (batch * side * side * c + batch * to * to * out) * x.element_size()
        ways = {"cudnn": None}

        def launch(_, x, w, b):
            return torch.cudnn_convolution_relu(x, w, b, [stride] * 2, [kernel // 2] * 2, [1, 1], 1)

    own = sum(t.numel() * t.element_size() for t in again)
    images = min(8, max(1, ROTATE // moved)) if moved > 8 << 20 else 1
    count = max(images, 3) if moved + own > 64 << 20 else LAUNCHES
    sets = min(count, max(1, ROTATE // max(own, 1)))
    xs = [x] + [x.clone(memory_format=torch.preserve_format) for _ in range(images - 1)]
    ws = [again] + [[t.clone(memory_format=torch.preserve_format) for t in again] for _ in range(sets - 1)]
    best = None
    with torch.inference_mode():
        for way in ways:
            if way.startswith("cublas"):
                torch.backends.cuda.preferred_blas_library(way)

            def chain():
                for i in range(count):
                    launch(way, xs[i % images], *ws[i % sets])

            us = statistics.median(graphed(chain)) / count
            best = min(best or (us, way), (us, way))
    return best


def graphed(chain):
    """Microseconds of replays of a graph."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        chain()
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        chain()
    g.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(11):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        g.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return times


class Results:
    """Rows by shape and side, in a file of JSON lines."""

    def __init__(self, path, binary):
        self.path, self.binary, self.rows = path, binary, []
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                self.rows = [r for r in map(json.loads, f) if r.get("kiln") in (binary, None)]

    def put(self, row):
        self.rows.append(row)
        if self.path:
            with open(self.path, "a", encoding="utf-8") as f:
                f.write(json.dumps(row) + "\n")

    def of(self, shape, peer):
        return [r for r in self.rows if r["shape"] == shape and ("kiln" not in r) == peer]


def measure_kiln(program, shapes, results, tactics):
    """Runs all shapes in one process; every line counts as soon as it is there."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write("\n".join(shapes))
        f.flush()
        env = dict(os.environ, KILN_FAMILY=f.name, KILN_FAMILY_TACTICS=str(tactics))
        command = [program, "--ignored", "--nocapture", "chains"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as child:
            for line in child.stdout:
                if '{"shape"' in line:
                    results.put({**json.loads(line[line.index('{"shape"') :]), "kiln": results.binary})
    if child.returncode != 0:
        print(f"{program} ended with {child.returncode}", file=sys.stderr)


def table(groups, results):
    for name in groups:
        ratios = []
        print(f"\n{name}: us (Kiln's first three), library, library / Kiln")
        for shape in GROUPS[name]:
            own = sorted(results.of(shape, False), key=lambda r: r["us"])
            wrong = [r for r in own if r["differs"] > 2e-2]
            theirs = min((r["us"] for r in results.of(shape, True)), default=None)
            best = ", ".join(f"{r['by'].split('.', 1)[1]} {r['us']:.2f}" for r in own[:3])
            line = f"  {shape:<36} {best}"
            if own and theirs:
                ratios.append(theirs / own[0]["us"])
                line += f" | {theirs:.2f} | {ratios[-1]:.2f}"
            if own:
                line += f" ({own[0]['tera']:.0f} T/s, expected {own[0]['expected_us']:.1f})"
            print(line + "".join(f" DIFFERS {r['by']} {r['differs']}" for r in wrong))
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"  geometric mean of {len(ratios)}: {mean:.3f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kiln", required=True, help="the test executable `family`")
    p.add_argument("--groups", default=",".join(GROUPS), help="of " + ", ".join(GROUPS))
    p.add_argument("--results", help="a file of JSON lines")
    p.add_argument("--tactics", type=int, default=8, help="how many of the most promising tactics of a shape")
    p.add_argument("--no-peers", action="store_true")
    p.add_argument("--table", action="store_true", help="measure nothing")
    a = p.parse_args()
    with open(a.kiln, "rb") as f:
        binary = hashlib.sha256(f.read()).hexdigest()[:12]
    results = Results(a.results, binary)
    groups = [g for g in a.groups.split(",") if g]
    if unknown := [g for g in groups if g not in GROUPS]:
        p.error(f"no group {unknown}; there are {', '.join(GROUPS)}")
    shapes = list(dict.fromkeys(s for g in groups for s in GROUPS[g]))
    if not a.table:
        missing = [s for s in shapes if not results.of(s, False)]
        if missing:
            measure_kiln(a.kiln, missing, results, a.tactics)
        for shape in shapes if not a.no_peers else []:
            if results.of(shape, True):
                continue
            try:
                found = peer(shape)
            except RuntimeError as e:
                print(f"{shape}: {str(e).splitlines()[0]}", file=sys.stderr)
                continue
            if found:
                results.put({"shape": shape, "us": found[0], "by": found[1]})
    table(groups, results)


if __name__ == "__main__":
    main()
