"""`torch.compile(backend="kiln")`: whole graphs as engines, others as PyTorch runs them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd  # noqa: F401  (makes the registry known)

import kiln
from kiln.torch._export import Exported, as_input, onnx_bytes, onnx_program
from kiln.torch._graph import Graph, example, varying
from kiln.torch._sizes import Range, power, ranges


class FellBack(UserWarning):
    """A graph that PyTorch runs itself, with the reason."""


def _outputs(graph: torch.fx.GraphModule) -> tuple[int, type | None]:
    """Number of a graph's outputs and the type that holds them; None for a single tensor."""
    results = graph.graph.output_node().args[0]
    every = list(results) if isinstance(results, (tuple, list)) else [results]
    for node in every:
        value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else node
        if value is not None and not isinstance(value, torch.Tensor) or not isinstance(node, torch.fx.Node):
            raise ValueError(f"an output is {type(value).__name__}, not a tensor")
    return len(every), type(results) if isinstance(results, (tuple, list)) else None


class _Compiled:
    """A graph as an engine, which is built anew when a weight changes or a size leaves the range of the engine."""

    def __init__(self, graph: torch.fx.GraphModule, inputs: list[Any], options: dict[str, Any]) -> None:
        self._graph, self._options = Graph(graph, inputs), options
        self._count, self._kind = _outputs(graph)
        tensors = [inputs[i] for i in self._graph.tensors]
        if torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in inputs):
            raise ValueError("gradients are asked for: call the module within torch.no_grad()")
        self._examples = [as_input(example(t)) for t in tensors]
        axes = [varying(self._graph.symbols[i]) for i in self._graph.tensors]
        self._axes: Any = (tuple(axes),) if any(axes) else None
        self._state = self._graph.state(inputs)
        self._build(self._examples)

    def _build(self, tensors: Sequence[torch.Tensor]) -> None:
        # The export traces on its own: what it finds out of sizes is no condition of the graph that is compiled.
        with torch.no_grad(), torch._guards.tracing(None):
            program = onnx_program(self._graph, self._examples, self._axes)
        signature = program.exported_program.graph_signature
        changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
        if changed:
            raise ValueError(f"it writes into its inputs ({', '.join(map(str, changed))}), which an engine does not")
        options = dict(self._options)
        self._ranges = {}
        if "shapes" not in options and "profiles" not in options:
            self._ranges = {name: self._room(r, tensors, i) for i, (name, r) in enumerate(self._all(program))}
            options["shapes"] = {name: r for name, r in self._ranges.items() if r[0] != r[2]}
        engine = kiln.Engine.open(onnx_bytes(program), **options)
        if len(engine.outputs) != self._count:
            raise ValueError(f"it returns {self._count} tensors, of which some are one: the model has {len(engine.outputs)}")
        self._exported = Exported(engine, self._kind is None)

    def _all(self, program: Any) -> list[tuple[str, Range]]:
        known = ranges(program)
        fixed = [tuple(t.shape) for t in self._examples]
        names = [port.name for port in program.model.graph.inputs]
        return [(name, known.get(name, (shape, shape, shape))) for name, shape in zip(names, fixed, strict=True)]

    def _room(self, given: Range, tensors: Sequence[torch.Tensor], index: int) -> Range:
        """A range with room for these tensors, up to the next power of two."""
        least, usual, greatest = given
        sizes = tuple(tensors[index].shape)
        most = tuple(max(g, power(n)) if a != g else g for a, g, n in zip(least, greatest, sizes, strict=True))
        return least, usual, most

    def _fits(self, tensors: Sequence[torch.Tensor]) -> bool:
        return all(
            all(a <= n <= b for a, n, b in zip(least, t.shape, greatest, strict=True))
            for (least, _, greatest), t in zip(self._ranges.values(), tensors, strict=False)
        )

    def __call__(self, *args: Any) -> Any:
        tensors = [args[i] for i in self._graph.tensors]
        state = self._graph.state(args)
        if state != self._state:
            for i in self._graph.weights:
                self._graph.weights[i] = args[i]
                setattr(self._graph, f"weight_{i}", args[i].detach())
            self._state = state
            self._build(tensors)
        elif not self._fits(tensors):
            self._build(tensors)
        outputs = self._exported(*tensors)
        return outputs if self._kind is None else self._kind(outputs)


@register_backend(name="kiln")  # type: ignore[untyped-decorator]
def backend(
    graph: torch.fx.GraphModule, example_inputs: list[Any], *, options: dict[str, Any] | None = None, **_: Any
) -> Callable[..., Any]:
    """Builds an engine of a graph. What Kiln cannot build runs in PyTorch, and the warning `FellBack` says why; the option
    `strict_graph` raises instead. Other options are those of `kiln.BuildOptions`."""
    chosen = dict(options or {})
    strict = bool(chosen.pop("strict_graph", False))
    try:
        return _Compiled(graph, example_inputs, chosen)
    except Exception as e:
        if strict:
            raise
        warnings.warn(f"PyTorch runs a graph of {len(graph.graph.nodes)} nodes, which Kiln does not: {e}", FellBack, 2)
        forward: Callable[..., Any] = graph.forward
        return forward
