"""Selection of algorithms: what a selector is told, over Kiln's selector."""

from __future__ import annotations

import hashlib
from typing import Any

from ._callbacks import _Base
from ._log import Severity, log
from ._values import Dims
from .enums import DataType, TensorFormat, from_kiln


def _number(text: str) -> int:
    """A number of 63 bits that stays the same for a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


class IAlgorithmIOInfo:
    """Type and layout of an input or output of an algorithm."""

    dtype: DataType
    strides: Dims
    vectorized_dim: int
    components_per_element: int

    def __init__(self, layout: dict[str, Any] | None = None) -> None:
        layout = layout or {"dtype": "f32", "dims": (), "strides": ()}
        self._dims = tuple(layout["dims"])
        self.dtype = from_kiln(layout["dtype"])
        self.strides = Dims(layout["strides"])
        self.vectorized_dim = -1
        self.components_per_element = 1
        self.tensor_format = TensorFormat.LINEAR

    def __repr__(self) -> str:
        return f"IAlgorithmIOInfo({self.dtype}, strides {self.strides})"


class IAlgorithmVariant:
    """The kernel and its parameters, as numbers that stay the same from build to build; `name` is Kiln's name of both."""

    implementation: int
    tactic: int

    def __init__(self, implementation: str = "", tactic: str = "") -> None:
        self.name = tactic
        self.implementation = _number(implementation)
        self.tactic = _number(tactic)


class IAlgorithm:
    """One way to run a layer."""

    algorithm_variant: IAlgorithmVariant
    timing_msec: float
    workspace_size: int

    def __init__(self, choice: dict[str, Any] | None = None, io: list[dict[str, Any]] | None = None) -> None:
        choice = choice or {"implementation": "", "tactic": "", "workspace": 0, "time_ns": None}
        self.algorithm_variant = IAlgorithmVariant(choice["implementation"], choice["tactic"])
        self.timing_msec = (choice["time_ns"] or 0.0) / 1e6
        self.workspace_size = choice["workspace"]
        self._io = [IAlgorithmIOInfo(layout) for layout in io or []]

    def get_algorithm_io_info(self, index: int) -> IAlgorithmIOInfo:
        """Inputs, then outputs."""
        if not 0 <= index < len(self._io):
            raise IndexError(f"index {index}; the algorithm has {len(self._io)} inputs and outputs")
        return self._io[index]


class IAlgorithmContext:
    """A layer for which algorithms are selected."""

    name: str
    num_inputs: int
    num_outputs: int

    def __init__(self, layer: dict[str, Any] | None = None) -> None:
        layer = layer or {"layer": "", "inputs": [], "outputs": []}
        self.name = layer["layer"]
        self.num_inputs = len(layer["inputs"])
        self.num_outputs = len(layer["outputs"])
        self._io = [*layer["inputs"], *layer["outputs"]]

    def get_shape(self, index: int) -> list[Dims]:
        """The dimensions of an input or output at the least, the usual and the greatest shapes of the profile."""
        if not 0 <= index < len(self._io):
            raise IndexError(f"index {index}; the layer has {len(self._io)} inputs and outputs")
        return [Dims(self._io[index][of]) for of in ("least", "dims", "greatest")]


class IAlgorithmSelector(_Base):
    """Is asked for the algorithms that a build may choose from, and told of the choice."""

    def select_algorithms(self, context: IAlgorithmContext, choices: list[IAlgorithm]) -> list[int]:
        raise NotImplementedError("an algorithm selector needs a method select_algorithms(context, choices)")

    def report_algorithms(self, contexts: list[IAlgorithmContext], choices: list[IAlgorithm]) -> None:
        raise NotImplementedError("an algorithm selector needs a method report_algorithms(contexts, choices)")


class Selector:
    """Kiln's selector over one that a program wrote."""

    def __init__(self, theirs: IAlgorithmSelector, logger: Any) -> None:
        self._theirs, self._logger = theirs, logger
        self._asked: dict[tuple[str, str | None], tuple[IAlgorithmContext, dict[str, IAlgorithm]]] = {}

    def select(self, layer: dict[str, Any], choices: list[dict[str, Any]]) -> list[int] | None:
        """None for a layer in formats for which the program's selector raises: the build looks for others."""
        context = IAlgorithmContext(layer)
        algorithms = [IAlgorithm(choice, context._io) for choice in choices]
        by_tactic = {choice["tactic"]: a for choice, a in zip(choices, algorithms, strict=True)}
        self._asked[layer["layer"], layer["key"]] = self._asked[layer["layer"], None] = (context, by_tactic)
        try:
            return [int(i) for i in self._theirs.select_algorithms(context, algorithms)]
        except Exception as e:
            log(self._logger, Severity.WARNING, f"layer {context.name!r}: the selector raised {type(e).__name__}: {e}")
            return None

    def report(self, steps: list[Any]) -> None:
        contexts, algorithms = [], []
        for step in steps:
            nothing: tuple[IAlgorithmContext, dict[str, IAlgorithm]] = (
                IAlgorithmContext({"layer": step.name, "inputs": [], "outputs": []}),
                {},
            )
            context, known = self._asked.get((step.name, step.key)) or self._asked.get((step.name, None)) or nothing
            choice = {
                "implementation": step.tactic.split("(")[0].split("[")[0],
                "tactic": step.tactic,
                "workspace": step.workspace,
                "time_ns": step.ns,
            }
            algorithm = known.get(step.tactic) or IAlgorithm(choice, context._io)
            if step.ns is not None:
                algorithm.timing_msec = step.ns / 1e6
            contexts.append(context)
            algorithms.append(algorithm)
        self._theirs.report_algorithms(contexts, algorithms)


__all__ = ["IAlgorithm", "IAlgorithmContext", "IAlgorithmIOInfo", "IAlgorithmSelector", "IAlgorithmVariant"]
