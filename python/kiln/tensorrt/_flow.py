"""Loops and conditionals with their boundary layers."""

from __future__ import annotations

from typing import Any

from ._layers import ILayer
from ._log import fail
from ._strict import Strict
from ._tensor import ITensor, tensor
from .enums import LoopOutput, TripLimit, native


class ILoopBoundaryLayer(ILayer):
    """A layer at the boundary of a loop."""

    _loop: Any = None

    @property
    def loop(self) -> ILoop | None:
        return self._loop


class IRecurrenceLayer(ILoopBoundaryLayer):
    """A value that is carried from iteration to iteration."""


class ILoopOutputLayer(ILoopBoundaryLayer):
    """A result of a loop."""

    @property
    def axis(self) -> int:
        return self._shown["axis"]

    @axis.setter
    def axis(self, axis: int) -> None:
        self._set(axis=int(axis))

    @property
    def kind(self) -> LoopOutput:
        return LoopOutput[self._shown["kind"].upper()]


class ITripLimitLayer(ILoopBoundaryLayer):
    """A limit of a loop's iterations."""

    @property
    def kind(self) -> TripLimit:
        return TripLimit[self._shown["kind"].upper()]


class IIteratorLayer(ILoopBoundaryLayer):
    """Slices of a tensor, one an iteration."""

    axis = property(lambda self: self._shown["axis"], lambda self, v: self._set(axis=int(v)))
    reverse = property(lambda self: self._shown["reverse"], lambda self, v: self._set(reverse=bool(v)))


class _Construct(Strict):
    def __init__(self, network: Any, native_: Any) -> None:
        self._network, self._native = network, native_

    @property
    def name(self) -> str:
        return self._native.name

    @name.setter
    def name(self, name: str) -> None:
        self._native.name = name

    def _add(self, cls: type, add: Any, mark: str) -> Any:
        try:
            layer = cls(self._network, add())
        except TypeError:
            raise
        except Exception as e:
            return fail(self._network, e, None)
        object.__setattr__(layer, mark, self)
        return layer


class ILoop(_Construct):
    """A loop of a network."""

    def add_recurrence(self, initial_value: ITensor) -> IRecurrenceLayer | None:
        value = tensor(initial_value, "initial_value")
        return self._add(IRecurrenceLayer, lambda: self._native.add_recurrence(value._native), "_loop")

    def add_trip_limit(self, tensor: ITensor, kind: TripLimit) -> ITripLimitLayer | None:
        value = _tensor(tensor)
        if not isinstance(kind, TripLimit):
            raise TypeError(f"kind: wants a tensorrt.TripLimit, found {kind!r}")
        return self._add(
            ITripLimitLayer, lambda: self._native.add_trip_limit(value._native, native(kind)), "_loop"
        )

    def add_iterator(self, tensor: ITensor, axis: int = 0, reverse: bool = False) -> IIteratorLayer | None:
        value = _tensor(tensor)
        return self._add(IIteratorLayer, lambda: self._native.add_iterator(value._native, axis, reverse), "_loop")

    def add_loop_output(self, tensor: ITensor, kind: LoopOutput, axis: int = 0) -> ILoopOutputLayer | None:
        value = _tensor(tensor)
        if not isinstance(kind, LoopOutput):
            raise TypeError(f"kind: wants a tensorrt.LoopOutput, found {kind!r}")
        return self._add(
            ILoopOutputLayer, lambda: self._native.add_output(value._native, native(kind), axis), "_loop"
        )


class IIfConditionalBoundaryLayer(ILayer):
    """A layer at the boundary of a conditional."""

    _conditional: Any = None

    @property
    def conditional(self) -> IIfConditional | None:
        return self._conditional


class IConditionLayer(IIfConditionalBoundaryLayer):
    """The condition."""


class IIfConditionalInputLayer(IIfConditionalBoundaryLayer):
    """Passes a tensor on to the branches."""


class IIfConditionalOutputLayer(IIfConditionalBoundaryLayer):
    """A result of the branch that is taken."""


class IIfConditional(_Construct):
    """A conditional of a network."""

    def set_condition(self, condition: ITensor) -> IConditionLayer | None:
        value = tensor(condition, "condition")
        return self._add(IConditionLayer, lambda: self._native.set_condition(value._native), "_conditional")

    def add_input(self, input: ITensor) -> IIfConditionalInputLayer | None:
        value = tensor(input, "input")
        return self._add(IIfConditionalInputLayer, lambda: self._native.add_input(value._native), "_conditional")

    def add_output(
        self, true_subgraph_output: ITensor, false_subgraph_output: ITensor
    ) -> IIfConditionalOutputLayer | None:
        yes = tensor(true_subgraph_output, "true_subgraph_output")
        no = tensor(false_subgraph_output, "false_subgraph_output")
        return self._add(
            IIfConditionalOutputLayer, lambda: self._native.add_output(yes._native, no._native), "_conditional"
        )


def _tensor(value: Any) -> ITensor:
    return tensor(value, "tensor")
