"""Least work of a workload: bytes that have to move, operations, and the time that an H200 needs for them."""
from dataclasses import dataclass

from exported import TYPES

# Measured ceilings of an H200: bytes a second of a copy, operations a second by type.
BYTES = 4.27e12
# Least microseconds of a run.
LAUNCH = 1.0
RATE = {"f16": 650e12, "bf16": 650e12, "tf32": 330e12, "f32": 330e12, "i32": 30e12, "i64": 15e12}


@dataclass
class Cost:
    """Least bytes and operations of a run in a type."""

    bytes: int
    flops: int
    dtype: str

    @property
    def us(self):
        """Least microseconds."""
        return max(LAUNCH, 1e6 * self.bytes / BYTES, 1e6 * self.flops / RATE[self.dtype])

    def __str__(self):
        return f"{self.bytes / 1e6:.2f} MB, {self.flops / 1e9:.3f} GFLOP, {self.us:.2f} us"


def cost(workloads, name, made=None, dtype=None):
    """The cost of a workload: inputs, weights and results once, and what products and convolutions compute."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    dtype = dtype or workloads.kind(name)
    module, args, _ = made or workloads.workload(name)
    # Shapes are enough: nothing is computed.
    meta = lambda t: t.detach().to("meta")
    weights = {n: meta(p) for n, p in [*module.named_parameters(), *module.named_buffers()]}
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        y = torch.func.functional_call(module, weights, tuple(meta(a) for a in args))
    y = y if isinstance(y, (tuple, list)) else (y,)
    wide = getattr(torch, TYPES[dtype]).itemsize
    size = lambda t: t.numel() * (wide if t.is_floating_point() else t.element_size())
    touched = getattr(workloads, "touched", lambda name: None)(name)
    total = touched * wide if touched else sum(map(size, (*args, *weights.values(), *y)))
    return Cost(total, counter.get_total_flops(), dtype)
