"""Graphs of `torch.compile` as modules of tensors: weights are the module's own, sizes come from the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from kiln.torch._sizes import hint


class Graph(torch.nn.Module):  # type: ignore[misc]
    """A graph that is called with those of its inputs that are neither weights nor sizes."""

    def __init__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
        super().__init__()
        self._graph = graph
        self.training = False
        self.weights: dict[int, torch.Tensor] = {}
        self.sizes: dict[int, tuple[int, int]] = {}
        self.tensors: list[int] = []
        nodes = [n for n in graph.graph.nodes if n.op == "placeholder"]
        for i, (node, value) in enumerate(zip(nodes, inputs, strict=True)):
            if isinstance(value, torch.Tensor):
                if _is_weight(node, value):
                    self.weights[i] = value
                    self.register_buffer(f"weight_{i}", value.detach())
                else:
                    self.tensors.append(i)
            elif not isinstance(value, (torch.SymInt, int)):
                raise ValueError(f"an input is {type(value).__name__}, not a tensor or the size of one")
        self.symbols = [n.meta.get("example_value", value) for n, value in zip(nodes, inputs, strict=True)]
        for i, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor):
                self.sizes[i] = _place(self.symbols[i], self.symbols, self.tensors)

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = dict(zip(self.tensors, tensors, strict=True))
        count = len(self.tensors) + len(self.weights) + len(self.sizes)
        return self._graph(*(self._input(i, given) for i in range(count)))

    def _input(self, index: int, given: dict[int, torch.Tensor]) -> Any:
        if index in self.weights:
            return getattr(self, f"weight_{index}")
        if index in self.sizes:
            tensor, axis = self.sizes[index]
            return given[tensor].shape[axis]
        return given[index]

    def state(self, args: Sequence[Any]) -> list[Any]:
        """Marks of the weights among the inputs of a call, which differ once a weight has changed."""
        return [(t.data_ptr(), 0 if t.is_inference() else t._version) for t in (args[i] for i in self.weights)]


def _is_weight(node: torch.fx.Node, value: torch.Tensor) -> bool:
    if isinstance(value, FakeTensor):
        return False
    return isinstance(value, torch.nn.Parameter) or "_parameters_" in node.name or "_buffers_" in node.name


def _place(size: Any, inputs: Sequence[Any], tensors: Sequence[int]) -> tuple[int, int]:
    """The input and the axis that have this size."""
    if isinstance(size, torch.SymInt):
        for i in tensors:
            for axis, other in enumerate(inputs[i].shape):
                if isinstance(other, torch.SymInt) and other.node.expr == size.node.expr:
                    return i, axis
    raise ValueError(f"an input is the number {size}, which is not the size of a tensor: call torch.compile with dynamic=False")


def example(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the sizes that the example has."""
    if isinstance(tensor, FakeTensor) or any(isinstance(n, torch.SymInt) for n in tensor.shape):
        return torch.zeros([hint(n) for n in tensor.shape], dtype=tensor.dtype, device=tensor.device)
    return tensor


def varying(tensor: torch.Tensor) -> dict[int, Any] | None:
    """The axes whose size varies, as `torch.export` takes them."""
    axes = [i for i, n in enumerate(tensor.shape) if isinstance(n, torch.SymInt)]
    return dict.fromkeys(axes, torch.export.Dim.AUTO) or None
