"""`torch.compile(backend="kiln")`: whole graphs as engines, others as PyTorch runs them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd  # noqa: F401  (makes the registry known)

import kiln
from kiln.torch._export import Exported, as_input, onnx_bytes


class FellBack(UserWarning):
    """A graph that PyTorch runs itself, with the reason."""


def _tensors_only(example_inputs: list[Any]) -> None:
    """Refuses graphs with other inputs than tensors of fixed sizes."""
    for value in example_inputs:
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"an input is {type(value).__name__}, not a tensor: call torch.compile with dynamic=False")


def _engine(graph: torch.fx.GraphModule, example_inputs: list[Any], options: dict[str, Any]) -> Callable[..., Any]:
    _tensors_only(example_inputs)
    if torch.is_grad_enabled() and any(p.requires_grad for p in graph.parameters()):
        raise ValueError("gradients are asked for: call the module within torch.no_grad()")
    with torch.no_grad():
        model = onnx_bytes(graph, [as_input(t) for t in example_inputs])
        results = graph(*example_inputs)
    single = isinstance(results, torch.Tensor)
    exported = Exported(kiln.Engine.open(model, **options), single)

    def run(*args: Any) -> Any:
        outputs = exported(*args)
        return outputs if not isinstance(outputs, tuple) else type(results)(outputs)

    return run


@register_backend(name="kiln")  # type: ignore[untyped-decorator]
def backend(
    graph: torch.fx.GraphModule, example_inputs: list[Any], *, options: dict[str, Any] | None = None, **_: Any
) -> Callable[..., Any]:
    """Builds an engine of a graph. What Kiln cannot build runs in PyTorch, and the warning `FellBack` says why; the option
    `strict_graph` raises instead. Other options are those of `kiln.BuildOptions`."""
    chosen = dict(options or {})
    strict = bool(chosen.pop("strict_graph", False))
    try:
        return _engine(graph, example_inputs, chosen)
    except Exception as e:
        if strict:
            raise
        warnings.warn(f"PyTorch runs a graph of {len(graph.graph.nodes)} nodes, which Kiln does not: {e}", FellBack, 2)
        forward: Callable[..., Any] = graph.forward
        return forward
