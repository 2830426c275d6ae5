"""PyTorch as a peer: a workload made ready to be replayed on the GPU, in the ways that its users run it."""
import copy
import importlib.util
import statistics

import torch


def load(path):
    """The module with the workloads."""
    spec = importlib.util.spec_from_file_location("workloads", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def precision(tf32):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32


class Peer:
    """One workload in one mode: eager (a CUDA graph of it), inductor or autotune (torch.compile), each followed by 16 (fp16), bf16, or 32
    (fp32 with TF32 allowed)."""

    def __init__(self, peers, workload, mode, made=None):
        """Takes the module of workloads or its path, and the workload if it is made already."""
        peers = load(peers) if isinstance(peers, str) else peers
        self.mode = mode
        model, args, conv = made or peers.workload(workload)
        half = torch.bfloat16 if mode.endswith("bf16") else torch.float16 if mode.endswith("16") else None
        torch.backends.cudnn.benchmark = True
        # What is measured must not change the module of the caller.
        model, args = copy.deepcopy(model).cuda(), [a.cuda() for a in args]
        with torch.inference_mode():
            precision(False)
            if half:
                # Both sides are given rounded inputs; of selections no other reference would do.
                args = [a.to(half).float() if a.is_floating_point() else a for a in args]
            self.wanted = wanted = peers.first(model(*args)).clone()
            precision(True)
            if half:
                model = model.to(half)
                args = [a.to(half) if a.is_floating_point() else a for a in args]
            if conv:
                model = model.to(memory_format=torch.channels_last)
                args = [a.to(memory_format=torch.channels_last) if a.dim() == 4 else a for a in args]
            self.replay, found = compiled(model, args, mode) if not mode.startswith("eager") else graph(model, args)
            # A graph reads the memory of weights and inputs, which must not be given to another tensor.
            self.kept = model, args
            self.error = float(f"{peers.error(peers.first(found()), wanted):.3g}")

    def median_ms(self, seconds):
        """Median of replays, each between two events, for about so long."""
        with torch.inference_mode():
            for _ in range(3):
                self.replay()
            torch.cuda.synchronize()
            once = timed(self.replay, 5)
            n = max(20, min(500, int(seconds * 1e3 / max(statistics.median(once), 1e-3))))
            return statistics.median(timed(self.replay, n))

    def close(self):
        """Gives its memory back."""
        self.replay = self.kept = None
        torch._dynamo.reset()
        torch.cuda.empty_cache()


def timed(f, n):
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(n)]
    for begin, end in marks:
        begin.record()
        f()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in marks]


def compiled(model, args, mode):
    import torch._inductor.config as inductor

    inductor.freezing = True
    how = "max-autotune" if mode.startswith("autotune") else "reduce-overhead"
    f = torch.compile(model, dynamic=False, mode=how)
    for _ in range(4):
        f(*args)
    torch.cuda.synchronize()
    return (lambda: f(*args)), (lambda: f(*args))


def graph(model, args):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(4):
            model(*args)
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = model(*args)

    def found():
        g.replay()
        return y

    return g.replay, found
