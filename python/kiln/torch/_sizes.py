"""Sizes of tensors that vary: their ranges in exported programs."""

from __future__ import annotations

from typing import Any

import torch

Shape = tuple[int, ...]
Range = tuple[Shape, Shape, Shape]

_BOUNDLESS = 1 << 31
_ROOM = 4


def power(size: int) -> int:
    """The next power of two."""
    return 1 << max(size - 1, 0).bit_length()


def hint(size: Any) -> int:
    """The size that a dimension has in the example."""
    if isinstance(size, int):
        return size
    known = size.node.hint
    return int(known) if known is not None else 2


def _number(bound: Any, boundless: int) -> int:
    """An end of a range, which may be infinite."""
    try:
        return int(bound)
    except (AttributeError, OverflowError, TypeError, ValueError):
        return boundless


def _ends(size: Any, constraints: Any) -> tuple[int, int, int]:
    """Least, usual and greatest size of a dimension. One without a bound has room for four times the example."""
    if isinstance(size, int):
        return size, size, size
    expression, usual = size.node.expr, hint(size)
    found = constraints.get(expression) or size.node.shape_env.bound_sympy(expression)
    least, greatest = _number(found.lower, 1), _number(found.upper, _BOUNDLESS)
    if greatest >= _BOUNDLESS:
        greatest = power(_ROOM * max(usual, least))
    return least, min(max(usual, least), greatest), greatest


def ranges(program: Any) -> dict[str, Range]:
    """The ranges of inputs with sizes that vary, by the names of the ONNX model."""
    exported = program.exported_program
    nodes = {n.name: n for n in exported.graph.nodes if n.op == "placeholder"}
    values = [nodes[u].meta.get("val") for u in exported.graph_signature.user_inputs if isinstance(u, str)]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    found: dict[str, Range] = {}
    for port, value in zip(program.model.graph.inputs, tensors, strict=True):
        if all(isinstance(n, int) for n in value.shape):
            continue
        least, usual, greatest = zip(*(_ends(n, exported.range_constraints) for n in value.shape), strict=True)
        found[port.name] = (tuple(least), tuple(usual), tuple(greatest))
    return found
