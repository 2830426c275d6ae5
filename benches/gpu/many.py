#!/usr/bin/env python3
"""Kiln beside eager PyTorch on many small workloads in little time: engines are built in parallel, then timed one after the other.

    many.py prepare --peers plausible.py --list "list 0 200" --work W           anywhere: ONNX files that travel without weights
    many.py check   --peers plausible.py --list "list 0 200" --work W --kiln K  anywhere: Kiln's processor kernels against PyTorch
    many.py run     --peers plausible.py --list "list 0 200" --work W --kiln K --time-limit 500
    many.py table   --peers plausible.py --list "list 0 200" --results R        the worst first

Workloads are names, or what a verb of the module lists: `--list "sweep 7 500"`, `--list "list softmax pool"`. `run` needs a GPU. It makes
weights and inputs from the seeds, and exports what was not prepared. One process times all engines; it takes turns with PyTorch (a CUDA
graph of the eager model, and `--modes eager,inductor` the compiled one). Errors are those of the first output against PyTorch in fp32.
Finished stages are JSON lines in `--results`; a run that is started again goes on behind them. Bytes and operations are the least that a
workload needs (`cost.py`), so that a row has TB/s, TFLOP/s and the share of the roofline that it reaches.
"""
import argparse
import concurrent.futures
import importlib
import json
import math
import multiprocessing
import os
import select
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool

from bench import Failed, Results, command, fail, fingerprint, kernels
from exported import arrays, fill, folder, make, names_of, ready

FLAGS = {"f16": ["--fp16", "--io-type", "f16"], "bf16": ["--bf16", "--io-type", "bf16"], "f32": [], "i32": [], "i64": []}
MODES = {"f16": "16", "bf16": "bf16", "f32": "32", "i32": "32", "i64": "32"}
# What forked processes work for.
FORKED = []
# Slowest layers that a row keeps.
LAYERS = 6


class Engines:
    """A `kiln bench` that is given engines one after the other."""

    def __init__(self, o):
        self.o, self.child = o, None

    def time(self, path):
        """What `kiln bench` says of one engine."""
        if self.child is None or self.child.poll() is not None:
            call = [self.o.kiln, "bench", "-", "--json", "--inputs", "{}.inputs.npz", "--save-outputs", "{}.outputs.npz",
                    *(["--no-transfers"] if self.o.backend == "cuda" else []), "--warm-up", "20", "--iterations", "20", "--duration", str(self.o.seconds)]
            self.child = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.child.stdin.write(path + "\n")
        self.child.stdin.flush()
        if not select.select([self.child.stdout], [], [], self.o.limit)[0]:
            self.close()
            raise Failed(f"took longer than {self.o.limit} s")
        line = self.child.stdout.readline()
        if not line:
            code = self.child.wait()
            self.child = None
            raise Failed(f"kiln bench ended with {code}")
        row = json.loads(line)
        if "error" in row:
            raise Failed(row["error"][-600:])
        return row

    def close(self):
        if self.child:
            self.child.kill()
            self.child.wait()
        self.child = None


class Many:
    def __init__(self, o):
        self.o = o
        self.peers = importlib.import_module(os.path.splitext(os.path.basename(o.peers))[0])
        self.results = Results(o.results, fingerprint(o.kiln) if o.kiln else None)
        self.start = time.monotonic()
        os.makedirs(o.work, exist_ok=True)

    def left(self, share=1.0):
        """Seconds until a share of the time limit has passed."""
        return self.start + self.o.time_limit * share - time.monotonic()

    def kind(self, name):
        kind = getattr(self.peers, "kind", lambda _: "f16")(name)
        return self.o.type if self.o.type and kind in ("f16", "bf16", "f32") else kind

    def engine(self, name):
        return os.path.join(folder(self.o.work, name), self.kind(name) + ".kiln")

    def ported(self, name, again=False):
        """Exports a workload unless it is there; its module and arguments."""
        if again or not ready(folder(self.o.work, name)):
            return make(self.peers, name, self.o.work)[:2]
        return self.peers.workload(name)[:2]

    def prepare(self, name):
        """Exports a workload; how many bytes travel."""
        start = time.perf_counter()
        self.ported(name, again=True)
        where = folder(self.o.work, name)
        size = sum(os.path.getsize(os.path.join(where, f)) for f in os.listdir(where))
        return {"seconds": round(time.perf_counter() - start, 1), "bytes": size}

    def given(self, name, module, args, dtype):
        """Writes weights and inputs."""
        import numpy as np

        fill(folder(self.o.work, name), module)
        inputs, _ = names_of(args, ())
        np.savez(os.path.splitext(self.engine(name))[0] + ".inputs.npz", **arrays(inputs, args, dtype))

    def build(self, name):
        """Makes weights and inputs, and builds; what the report says."""
        kind = self.kind(name)
        module, args = self.ported(name)
        self.given(name, module, args, kind)
        call = [self.o.kiln, "build", os.path.join(folder(self.o.work, name), "model.onnx"), "--backend", self.o.backend, "--json",
                "-o", self.engine(name), "--timing-cache", os.path.join(self.o.work, "times.cache"), *FLAGS[kind], *self.o.build]
        out, seconds = command(call, self.o.limit)
        return {"seconds": round(seconds, 1), "kernels": kernels(json.loads(out))}

    def check(self, name):
        """Runs the model on Kiln's processor kernels in fp32; the greatest error of all outputs against PyTorch."""
        import numpy as np
        import torch

        module, args = self.ported(name)
        where = folder(self.o.work, name)
        fill(where, module)
        with torch.inference_mode():
            y = module(*args)
        y = y if isinstance(y, (tuple, list)) else (y,)
        inputs, outputs = names_of(args, y)
        given, found = os.path.join(where, "check.inputs.npz"), os.path.join(where, "check.outputs.npz")
        np.savez(given, **arrays(inputs, args))
        out, seconds = command([self.o.kiln, "run", os.path.join(where, "model.onnx"), "--backend", self.o.backend, "--inputs", given,
                                "--save-outputs", found, "--json", *self.o.build], self.o.limit)
        found = np.load(found)
        worst = 0.0
        for n, t in zip(outputs, y):
            f = torch.from_numpy(found[n])
            if f.shape != t.shape:
                raise Failed(f"{n} has the shape {list(f.shape)}, wanted {list(t.shape)}")
            worst = max(worst, float(self.peers.error(f, t)) if t.numel() else 0.0)
        self.tidy(name)
        if not worst < self.o.tolerance:
            raise Failed(f"error {worst:.3g}")
        return {"seconds": round(seconds, 1), "error": worst, "kernels": kernels(json.loads(out).get("build") or {})}

    def tidy(self, name):
        """Removes what can be made again from the seed."""
        where = folder(self.o.work, name)
        for f in os.listdir(where):
            if f.endswith((".npz", ".bin")):
                os.remove(os.path.join(where, f))

    def stage(self, name, stage, work):
        """Does the work unless it is done."""
        kind = self.kind(name)
        if self.results.get(name, kind, stage):
            return
        try:
            row = self.results.put(name, kind, stage, work(name))
        except Exception as e:  # pylint: disable=broad-except  (one workload must not lose the others)
            words = str(e) if isinstance(e, Failed) else f"{type(e).__name__}: {e}"
            row = self.results.put(name, kind, stage, {"failed": words[-600:]})
        print(f"[{time.monotonic() - self.start:.0f} s] {name} {stage}: {row.get('failed') or brief(row)}", file=sys.stderr, flush=True)

    def parallel(self, stage, share, keep=lambda name: True):
        """Does the work of a stage in processes, until a share of the time limit has passed."""
        wanted = [n for n in self.o.names if not (self.results.get(n, self.kind(n), stage) and keep(n))]
        if not wanted:
            return
        FORKED[:] = [self]
        # A process that ends abruptly takes those beside it along: they are begun again, and one that does so twice is given up.
        tries = dict.fromkeys(wanted, 0)
        while tries and self.left(share) > 1:
            pool = concurrent.futures.ProcessPoolExecutor(self.o.jobs, multiprocessing.get_context("fork"), one_thread)
            running = {pool.submit(apart, stage, n): n for n in tries}
            begun = list(tries)[: self.o.jobs]
            try:
                for done in concurrent.futures.as_completed(running, max(1.0, self.left(share))):
                    name = running.pop(done)
                    if isinstance(done.exception(), BrokenProcessPool):
                        break
                    begun = [n for n in (*begun, *(n for n in running.values() if n not in begun)) if n != name][: self.o.jobs]
                    tries.pop(name)
                    self.finish(name, stage, done)
                else:
                    pool.shutdown()
                    continue
            except concurrent.futures.TimeoutError:
                print(f"{len(tries)} of {len(wanted)} were not begun or not finished in time", file=sys.stderr)
                pool.shutdown(wait=False, cancel_futures=True)
                return
            pool.shutdown(wait=False, cancel_futures=True)
            for name in begun:
                tries[name] += 1
                if tries[name] > 1:
                    tries.pop(name)
                    self.finish(name, stage, None)

    def finish(self, name, stage, done):
        """Records a stage that was done in another process."""
        self.results.rows.pop((name, self.kind(name), stage), None)
        self.stage(name, stage, lambda _: done.result() if done else fail("the process ended abruptly"))

    def time(self, name):
        from torch_peer import Peer

        import numpy as np
        import torch
        from cost import cost

        kind = self.kind(name)
        made = self.peers.workload(name)
        row = {}
        try:
            c = cost(self.peers, name, made, kind)
            row.update(bytes=c.bytes, flops=c.flops, roofline_us=round(c.us, 3))
        except Exception as e:  # pylint: disable=broad-except  (shapes that depend on data have no cost)
            print(f"{name} has no cost: {str(e)[:100]}", file=sys.stderr)
        peers = []
        for mode in self.o.modes:
            try:
                peers.append(Peer(self.peers, name, mode + MODES[kind], made))
            except Exception as e:  # pylint: disable=broad-except
                row[f"{mode} failed"] = f"{type(e).__name__}: {str(e)[:200]}"
        rounds = []
        for _ in range(self.o.rounds):
            theirs = {p.mode: p.median_ms(self.o.seconds) for p in peers}
            value = self.engines.time(self.engine(name))
            ours = (value.get("run_ns") or value["device_ns"])["p50"] / 1e6
            rounds.append((ours, theirs))
        row["kiln_ms"] = statistics.median(r[0] for r in rounds)
        layers = sorted(value["layers"], key=lambda x: -x["mean_ns"])
        row.update(kernels=len(layers), layers=[[x["name"][:80], x["tactic"][:80], round(x["mean_ns"] / 1e3, 1)] for x in layers[:LAYERS]])
        if peers:
            by_mode = {p.mode: statistics.median(r[1][p.mode] for r in rounds) for p in peers}
            row.update(peers_ms=by_mode, peer_ms=min(by_mode.values()), mode=min(by_mode, key=by_mode.get), peer_error=peers[0].error)
            row["ratio"] = statistics.median(min(r[1].values()) / r[0] for r in rounds)
            found = np.load(os.path.splitext(self.engine(name))[0] + ".outputs.npz")["output_0"]
            found = torch.from_numpy(found).to(peers[0].wanted.device)
            if found.shape != peers[0].wanted.shape:
                raise Failed(f"output of shape {list(found.shape)}, wanted {list(peers[0].wanted.shape)}")
            row["error"] = float(f"{self.peers.error(found, peers[0].wanted):.3g}")
        for p in peers:
            p.close()
        if self.o.clean:
            shutil.rmtree(folder(self.o.work, name), ignore_errors=True)
        return row

    def run(self):
        self.parallel("build", self.o.build_share, lambda n: os.path.exists(self.engine(n)))
        self.engines = Engines(self.o)
        for name in self.o.names:
            if self.left() < 5:
                print("the time limit is reached", file=sys.stderr)
                break
            if self.results.get(name, self.kind(name), "build") and os.path.exists(self.engine(name)):
                self.stage(name, "time", self.time)
        self.engines.close()


def brief(row):
    left = {k: v for k, v in row.items() if k not in ("workload", "type", "stage", "kiln", "layers", "bytes", "flops")}
    return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in left.items())


def one_thread():
    import torch

    torch.set_num_threads(1)


def apart(stage, name):
    """A stage of a workload, in a process that was forked from this one."""
    return getattr(FORKED[0], stage)(name)


def table(results, names, kind, words, worst):
    """One line a workload: what failed, then by ratio; and what all have in common."""
    head = ["workload", "type", "eager us", "best us", "Kiln us", "ratio", "roofline us", "% of it", "TB/s", "TFLOP/s", "error", "PyTorch's",
            "kernels", "remark"]
    number = lambda x, f: "-" if x is None else f.format(x)
    lines, ratios, failed = [], [], 0
    for n in names:
        rows = {s: results.rows.get((n, kind(n), s), {}) for s in ("prepare", "check", "build", "time")}
        t = rows["time"]
        if not any(rows.values()):
            continue
        remark = next((f"{s}: {r['failed']}" for s, r in rows.items() if "failed" in r), "")
        failed += bool(remark)
        if "ratio" in t:
            ratios.append(t["ratio"])
        ms, us = t.get("kiln_ms"), t.get("roofline_us")
        eager = next((v for k, v in t.get("peers_ms", {}).items() if k.startswith("eager")), None)
        slow = ", ".join(f"{name[:40]} by {tactic} {x} us" for name, tactic, x in t.get("layers", [])[:2])
        error = t.get("error", rows["check"].get("error"))
        lines.append((t.get("ratio", -1.0 if remark else 1e9), [
            n, kind(n), number(eager and eager * 1e3, "{:.1f}"), number(t.get("peer_ms") and t["peer_ms"] * 1e3, "{:.1f}"),
            number(ms and ms * 1e3, "{:.1f}"), number(t.get("ratio"), "{:.2f}"), number(us, "{:.1f}"),
            number(us / ms / 10 if us and ms else None, "{:.0f}"), number(t["bytes"] / ms / 1e9 if us and ms else None, "{:.2f}"),
            number(t["flops"] / ms / 1e9 if us and ms else None, "{:.0f}"), number(error, "{:.1e}"), number(t.get("peer_error"), "{:.1e}"),
            str(t.get("kernels", "-")), (" ".join(remark.split()) or slow or "")[:150] + ("; " + words(n)[:120] if words else "")]))
    lines.sort(key=lambda x: x[0])
    shown = [line for _, line in lines[:worst]]
    widths = [max(len(r[i]) for r in [head] + shown) for i in range(len(head))]
    for r in [head] + shown:
        print("  ".join(c.ljust(n) for c, n in zip(r, widths)).rstrip())
    print(f"{len(lines)} of {len(names)} workloads, {failed} failed")
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        below = ", ".join(f"{sum(r < x for r in ratios)} below {x}" for x in (0.5, 0.9, 1.0))
        print(f"best of PyTorch / Kiln of {len(ratios)}: geometric mean {mean:.3f}, median {statistics.median(ratios):.3f}, {below}")


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("verb", choices=("prepare", "check", "run", "table"))
    p.add_argument("names", nargs="*")
    p.add_argument("--peers", required=True, help="the module of workloads: operators.py, plausible.py, or one of the form that bench.py takes")
    p.add_argument("--list", action="append", default=[], help="a verb of the module that lists workloads: 'list 0 200', 'sweep 7 500'")
    p.add_argument("--kiln", help="the kiln command")
    p.add_argument("--work", default="bench-work", help="folder for models and engines")
    p.add_argument("--results", help="JSON lines of finished stages [default: results.jsonl in the folder]")
    p.add_argument("--type", choices=("f16", "bf16", "f32"), help="measure floats in this type [default: each workload's own]")
    p.add_argument("--modes", default="eager", help="eager, inductor, autotune; none for no peers")
    p.add_argument("--rounds", type=int, default=1, help="turns of PyTorch and Kiln")
    p.add_argument("--seconds", type=float, default=0.1, help="of timing in a round, for each")
    p.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that prepare and build")
    p.add_argument("--limit", type=float, default=120, help="seconds that one command may take")
    p.add_argument("--time-limit", type=float, default=3600, help="seconds for all")
    p.add_argument("--build-share", type=float, default=0.6, help="share of the time limit after which no build goes on")
    p.add_argument("--build", action="append", default=[], help="an argument for kiln build, or, of check, kiln run [repeatable]")
    p.add_argument("--backend", help="the backend [default: cuda; of check cpu]")
    p.add_argument("--tolerance", type=float, default=1e-3, help="the greatest error of check")
    p.add_argument("--worst", type=int, default=1000, help="rows of the table")
    p.add_argument("--describe", action="store_true", help="the table says what a workload is")
    p.add_argument("--clean", action="store_true", help="remove a workload's folder when it is timed")
    o = p.parse_intermixed_args()
    sys.path.insert(0, os.path.dirname(os.path.abspath(o.peers)))
    o.results = o.results or os.path.join(o.work, "results.jsonl")
    o.backend = o.backend or ("cpu" if o.verb == "check" else "cuda")
    o.kiln = o.kiln and os.path.abspath(o.kiln)
    o.modes = [] if o.modes == "none" else o.modes.split(",")
    if o.verb in ("check", "run") and not o.kiln:
        p.error("--kiln is missing")
    return o


def main():
    o = options()
    many = Many(o)
    for words in o.list:
        verb, *rest = words.split()
        o.names += many.peers.names(verb, rest)
    o.names = o.names or (many.peers.names("list", []) if hasattr(many.peers, "names") else many.peers.NAMES)
    if o.verb == "prepare":
        many.parallel("prepare", 1.0, lambda n: ready(folder(o.work, n)))
    elif o.verb == "check":
        many.parallel("check", 1.0)
    elif o.verb == "run":
        many.run()
    table(many.results, o.names, many.kind, getattr(many.peers, "describe", None) if o.describe else None, o.worst)
    return int(any("failed" in r for r in many.results.rows.values()))


if __name__ == "__main__":
    sys.exit(main())
