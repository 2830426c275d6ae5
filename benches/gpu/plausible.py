#!/usr/bin/env python3
"""Networks drawn by seed: blocks of all classes with random widths, norms, activations, layouts and ways of export. Names: netSEED:bBATCH.

    plausible.py list [FIRST [COUNT]]       names with a batch each, and what was drawn (--describe: least times, too)
    plausible.py export NAME.. --out DIR

For `many.py` and `bench.py --peers`. The same name is the same network on every machine with the same PyTorch.
"""
import functools
import sys

import torch

import nets_images  # noqa: F401 (registers its families)
import nets_other  # noqa: F401
import nets_tokens  # noqa: F401
from draw import FAMILIES, Draw, calm
from exported import command_line, error, first  # noqa: F401 (part of the form of a module of workloads)

# Exporters and versions of the operators; old ones are what stored models have.
EXPORTS = [("torchscript", 18)] * 5 + [("torchscript", 13), ("torchscript", 17), ("dynamo", 18), ("dynamo", 18), ("dynamo", 20)]
BATCHES = (1, 1, 1, 2, 4, 8, 16)
FAMILY = {name: weight for name, (_, weight, _) in FAMILIES.items()}


def seed(name):
    return int(name.rsplit(":b", 1)[0].removeprefix("net"))


def drawn(number):
    """The choices in front of the network itself: its family, its export, its usual batch."""
    d = Draw(f"plausible network {number}")
    chosen = d.choices(list(FAMILY), list(FAMILY.values()))[0]
    how, opset = d.choice(EXPORTS)
    return d, chosen, (how, max(opset, FAMILIES[chosen][2])), d.choice(BATCHES)


@functools.lru_cache(maxsize=4)
def built(name):
    d, chosen, _, _ = drawn(seed(name))
    torch.manual_seed(seed(name))
    module, args, conv = FAMILIES[chosen][0](d, int(name.rsplit(":b", 1)[1]))
    return calm(module), args, conv, d.notes


def workload(name):
    return built(name)[:3]


def kind(name):  # pylint: disable=unused-argument
    return "f16"


def exporter(name):
    return drawn(seed(name))[2]


def describe(name):
    _, chosen, (how, opset), _ = drawn(seed(name))
    return f"{chosen} ({how} {opset}): " + ", ".join(f"{k} {v}" for k, v in built(name)[3].items())


def names(verb, arguments):
    """The names that a command line asks for."""
    if verb == "sweep" or len(arguments) > 2:
        raise SystemExit("wanted: list [FIRST [COUNT]]")
    start, count = (int(x) for x in [*arguments, *(["0", "20"][len(arguments):])])
    return [f"net{i}:b{drawn(i)[3]}" for i in range(start, start + count)]


if __name__ == "__main__":
    sys.exit(command_line(sys.modules[__name__], __doc__))
