#!/usr/bin/env python3
"""Kiln against PyTorch on one NVIDIA GPU: builds, checks and times engines of a set of workloads, and prints a table.

    bench.py --peers peers.py --kiln target/release/kiln resnet50:b1 bert_base_s128:b32

The workloads come from a module (`--peers`) with

    workload(name) -> (module, args, conv)    seeded weights and inputs
    error(y, ref)                             normalized error of y against ref
    `peers.py export NAME --out DIR`          DIR/NAME_/model.onnx, inputs.npz, outputs.npz (PyTorch, fp32)

For each workload and type the stages are: export, build (`kiln build`), check (`kiln run`, the error of the first output
against fp32), time. Timing takes turns: a round times every peer, then Kiln, so that a change of clocks meets both; the
ratio is the median over the rounds of (fastest peer / Kiln), with the least and the greatest. Both are times of the work on
the device, without transfers, median of many runs.

Every finished stage is appended to `--results` as a JSON line under the hash of the Kiln binaries; a run that is started
again goes on behind the last line. `--table` prints what is there and runs nothing.
"""
import argparse
import concurrent.futures
import csv
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = {"f16": ["--fp16", "--io-type", "f16"], "bf16": ["--bf16"], "tf32": [], "f32": ["--no-tf32"]}
# Peers of a type; f32 has none: theirs is what errors are measured against.
PEERS = {"f16": "16", "bf16": "16", "tf32": "32"}


class Failed(Exception):
    """A stage that did not work, with what the program said."""


def fail(words):
    raise Failed(words)


def command(arguments, limit):
    """Runs a program; its standard output and how long it took in seconds."""
    start = time.perf_counter()
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"took longer than {limit} s") from None
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip())[-600:]
        raise Failed(f"exit code {done.returncode}: {words}")
    return done.stdout, time.perf_counter() - start


class Results:
    """Finished stages, by workload, type and stage, in a file of JSON lines."""

    def __init__(self, path, binary):
        self.path, self.binary, self.rows = path, binary, {}
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                for line in f:
                    row = json.loads(line)
                    if binary is None or row.get("kiln") in (binary, None):
                        self.rows[row["workload"], row["type"], row["stage"]] = row

    def get(self, workload, kind, stage):
        """The row, unless the stage failed."""
        row = self.rows.get((workload, kind, stage))
        return row if row and "failed" not in row else None

    def put(self, workload, kind, stage, values):
        row = {"workload": workload, "type": kind, "stage": stage, "kiln": self.binary, **values}
        self.rows[workload, kind, stage] = row
        if self.path:
            with open(self.path, "a", encoding="utf-8") as f:
                f.write(json.dumps(row) + "\n")
        return row


class Bench:
    def __init__(self, options):
        self.o = options
        self.results = Results(options.results, fingerprint(options.kiln))
        os.makedirs(options.work, exist_ok=True)

    def folder(self, workload):
        return os.path.join(self.o.work, workload.replace(":", "_"))

    def engine(self, workload, kind, sources=False):
        return os.path.join(self.folder(workload), kind + (".sources.kiln" if sources else ".kiln"))

    def say(self, workload, kind, stage, row):
        words = row.get("failed") or ", ".join(f"{k} {v}" for k, v in row.items() if k not in HEAD and k != "rounds")
        print(f"{workload} {kind} {stage}: {words}", file=sys.stderr, flush=True)

    def stage(self, workload, kind, stage, work):
        """Does the work unless it is done; false if it failed."""
        if self.results.get(workload, kind, stage):
            return True
        try:
            row = self.results.put(workload, kind, stage, work())
        except Failed as e:
            row = self.results.put(workload, kind, stage, {"failed": str(e)})
        self.say(workload, kind, stage, row)
        return "failed" not in row

    def export(self, workloads):
        """Exports several workloads by one program: PyTorch takes long to start."""
        there = lambda w: os.path.exists(os.path.join(self.folder(w), "outputs.npz"))
        wanted = [w for w in workloads if not there(w)]
        for w in set(workloads) - set(wanted):
            self.stage(w, "", "export", dict)
        if not wanted:
            return
        call = [sys.executable, self.o.peers, "export", *wanted, "--out", self.o.work]
        # Exports run beside each other; with all threads each they would wait for one another.
        threads = max(1, (os.cpu_count() or 1) // self.o.jobs)
        done = subprocess.run(call, capture_output=True, text=True, timeout=self.o.limit * len(wanted), check=False,
                              env={**os.environ, "OMP_NUM_THREADS": str(threads)})
        rows = {}
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                rows[row["workload"]] = row
        for w in wanted:
            row = rows.get(w, {"error": done.stderr.strip()[-600:]})
            if there(w):
                self.stage(w, "", "export", lambda row=row: {"bytes": row.get("bytes")})
            else:
                self.stage(w, "", "export", lambda row=row: fail(row.get("error") or "nothing was exported"))

    def build(self, workload, kind, sources=False):
        model = os.path.join(self.folder(workload), "model.onnx")
        call = [self.o.kiln, "build", model, "--backend", "cuda", "--json", "-o", self.engine(workload, kind, sources)]
        call += TYPES[kind]
        # What libraries take is not estimated.
        call += ["--tactic-sources", self.o.sources] if sources else self.o.build
        if self.o.timing_cache:
            call += ["--timing-cache", self.o.timing_cache]
        out, seconds = command(call, self.o.limit)
        report = json.loads(out)
        return {"seconds": round(seconds, 1), "kernels": kernels(report)}

    def check(self, workload, kind, sources=False):
        import numpy as np

        folder, engine = self.folder(workload), self.engine(workload, kind, sources)
        found = os.path.splitext(engine)[0] + ".npz"
        given = os.path.join(folder, "inputs.npz")
        call = [self.o.kiln, "run", engine, "--inputs", given, "--save-outputs", found, "--json"]
        _, seconds = command(call, self.o.limit)
        wanted, found = np.load(os.path.join(folder, "outputs.npz")), np.load(found)
        return {"seconds": round(seconds, 1), "error": error(found["output_0"], wanted["output_0"])}

    def prepare(self, workload):
        """Build and check for all types."""
        if not self.results.get(workload, "", "export"):
            return
        for kind in self.o.types:
            if self.stage(workload, kind, "build", lambda kind=kind: self.build(workload, kind)):
                self.stage(workload, kind, "check", lambda kind=kind: self.check(workload, kind))
            if not self.o.sources:
                continue
            if self.stage(workload, kind, "build with sources", lambda kind=kind: self.build(workload, kind, True)):
                self.stage(workload, kind, "check with sources", lambda kind=kind: self.check(workload, kind, True))

    def kiln_ms(self, workload, kind, sources=False):
        """Median milliseconds of a run on the device, and of one as the host sees it, tensors on the device too."""
        given = os.path.join(self.folder(workload), "inputs.npz")
        call = [self.o.kiln, "bench", self.engine(workload, kind, sources), "--inputs", given, "--json", "--no-transfers"]
        call += ["--warm-up", "50", "--iterations", "20", "--duration", str(self.o.seconds)]
        value = json.loads(command(call, self.o.limit)[0])
        device = value.get("run_ns") or value["device_ns"]
        grown = {k: n for k, n in value["after_warm_up"].items() if n and k != "runs"}
        return device["p50"] / 1e6, value["latency_ns"]["p50"] / 1e6, grown

    def time(self, workload, kind):
        from torch_peer import Peer

        peers = []
        for mode in self.o.modes.get(kind, []):
            try:
                peers.append(Peer(self.o.peers, workload, mode))
            except Exception as e:  # a peer that can't run must not lose the others
                print(f"{workload} {mode}: {type(e).__name__}: {str(e)[:200]}", file=sys.stderr)
        rounds = []
        for _ in range(self.o.rounds):
            theirs = {p.mode: p.median_ms(self.o.seconds) for p in peers}
            ours, host, grown = self.kiln_ms(workload, kind)
            rounds.append({"kiln_ms": ours, "host_ms": host, "peers_ms": theirs, "grown": grown})
            if self.results.get(workload, kind, "check with sources"):
                rounds[-1]["sources_ms"] = self.kiln_ms(workload, kind, True)[0]
        best = [min(r["peers_ms"].values(), default=None) for r in rounds]
        ratios = [b / r["kiln_ms"] for b, r in zip(best, rounds) if b is not None]
        row = {"kiln_ms": statistics.median(r["kiln_ms"] for r in rounds), "rounds": rounds}
        row["host_ms"] = statistics.median(r["host_ms"] for r in rounds)
        row["grown"] = rounds[-1]["grown"]
        if "sources_ms" in rounds[0]:
            row["sources_ms"] = statistics.median(r["sources_ms"] for r in rounds)
        if ratios:
            by_mode = {p.mode: statistics.median(r["peers_ms"][p.mode] for r in rounds) for p in peers}
            mode = min(by_mode, key=by_mode.get)
            error_of = {p.mode: p.error for p in peers}
            row.update(peer_ms=by_mode[mode], mode=mode, peers_ms=by_mode, peer_error=error_of[mode])
            row.update(ratio=statistics.median(ratios), least=min(ratios), most=max(ratios))
        for p in peers:
            p.close()
        return row

    def run(self):
        if "prepare" in self.o.stages:
            parts = [self.o.names[i :: self.o.jobs] for i in range(self.o.jobs)]
            with concurrent.futures.ThreadPoolExecutor(self.o.jobs) as pool:
                list(pool.map(self.export, [p for p in parts if p]))
                list(pool.map(self.prepare, self.o.names))
        if "time" in self.o.stages:
            for workload in self.o.names:
                for kind in self.o.types:
                    if self.results.get(workload, kind, "check"):
                        self.stage(workload, kind, "time", lambda w=workload, k=kind: self.time(w, k))


HEAD = ("workload", "type", "stage", "kiln")


def error(y, ref):
    """||y - ref|| / ||ref - mean of ref||, in f64: an engine that returns a constant scores 1."""
    import numpy as np

    if y.shape != ref.shape:
        raise Failed(f"output of shape {list(y.shape)}, wanted {list(ref.shape)}")
    y, ref = y.astype(np.float64).ravel(), ref.astype(np.float64).ravel()
    return float(f"{np.linalg.norm(y - ref) / np.linalg.norm(ref - ref.mean()):.3g}")


def kernels(report):
    """How many kernels an engine has, as far as the report says."""
    for key in ("kernels", "steps", "layers"):
        if isinstance(report.get(key), int):
            return report[key]
        if isinstance(report.get(key), list):
            return len(report[key])
    return None


def fingerprint(kiln):
    """A hash of the command and the libraries beside it."""
    h = hashlib.sha256()
    folder = os.path.dirname(os.path.abspath(kiln))
    files = [kiln] + sorted(os.path.join(folder, f) for f in os.listdir(folder) if f.startswith("libkiln_backend_cuda"))
    for path in files:
        with open(path, "rb") as f:
            h.update(f.read())
    return h.hexdigest()[:12]


def rooflines():
    with open(os.path.join(HERE, "rooflines.csv"), encoding="utf-8") as f:
        return {r["workload"]: float(r["layer_roofline_us"]) for r in csv.DictReader(f)}


def table(results, names, types):
    """One line a workload and type."""
    head = ["workload", "type", "peer ms", "mode", "Kiln ms", "ratio", "spread", "sources ms", "roofline ms", "% of it",
            "error", "peer's error", "kernels", "remark"]
    floor = rooflines()
    lines = []
    number = lambda x, f="{:.3f}": "-" if x is None else f.format(x)
    for w in names:
        for kind in types:
            stages = ("build", "check", "build with sources", "check with sources", "time")
            rows = {s: results.rows.get((w, kind, s), {}) for s in stages}
            rows["export"] = results.rows.get((w, "", "export"), {})
            t, ms = rows["time"], floor.get(w)
            ms = ms / 1e3 if ms and kind == "f16" else None
            failed = next((f"{s}: {r['failed']}" for s, r in rows.items() if "failed" in r), "")
            spread = f"{t['least']:.2f}-{t['most']:.2f}" if "ratio" in t else "-"
            share = 100 * ms / t["kiln_ms"] if ms and "kiln_ms" in t else None
            lines.append([w, kind, number(t.get("peer_ms")), t.get("mode", "-"), number(t.get("kiln_ms")),
                          number(t.get("ratio"), "{:.2f}"), spread, number(t.get("sources_ms")), number(ms), number(share, "{:.0f}"),
                          number(rows["check"].get("error"), "{:.1e}"), number(t.get("peer_error"), "{:.1e}"),
                          str(rows["build"].get("kernels", "-")), " ".join(failed.split())[:160]])
    widths = [max(len(r[i]) for r in [head] + lines) for i in range(len(head))]
    for r in [head] + lines:
        print("  ".join(c.ljust(n) for c, n in zip(r, widths)).rstrip())


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", help="workloads, MODEL:bN; all of rooflines.csv by default")
    p.add_argument("--peers", required=True, help="the module with the workloads")
    p.add_argument("--kiln", required=True, help="the kiln command")
    p.add_argument("--work", default="bench-work", help="folder for models and engines")
    p.add_argument("--results", default="bench-results.jsonl", help="JSON lines of finished stages")
    p.add_argument("--types", default="f16,tf32", help="f16, bf16, tf32, f32")
    p.add_argument("--modes", default="eager,inductor", help="eager, inductor, autotune; none for no peers")
    p.add_argument("--stages", default="prepare,time")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.3, help="of timing in a round, for each")
    p.add_argument("--jobs", type=int, default=1, help="workloads prepared at a time; more disturb the tuner")
    p.add_argument("--sources", default="", help="time engines with tactics of libraries, too: cublaslt,cudnn")
    p.add_argument("--limit", type=float, default=600, help="seconds that a command may take")
    p.add_argument("--timing-cache", default=None)
    p.add_argument("--build", action="append", default=[], help="an argument for kiln build [repeatable]")
    p.add_argument("--table", action="store_true", help="print what is there")
    o = p.parse_args()
    o.kiln, o.peers = os.path.abspath(o.kiln), os.path.abspath(o.peers)
    o.names = o.names or list(rooflines())
    o.types, o.stages = o.types.split(","), o.stages.split(",")
    modes = [] if o.modes == "none" else o.modes.split(",")
    o.modes = {t: [m + PEERS[t] for m in modes if t in PEERS] for t in o.types}
    return o


def main():
    o = options()
    bench = Bench(o)
    if not o.table:
        bench.run()
    table(bench.results, o.names, o.types)
    return int(any("failed" in r for r in bench.results.rows.values()))


if __name__ == "__main__":
    sys.exit(main())
