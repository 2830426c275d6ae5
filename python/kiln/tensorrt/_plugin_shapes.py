"""Shapes in the interface of plug-ins that are written in Python: expressions over the dimensions of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .enums import DimensionOperation as Op

# Kiln's formula of an operation, and its value for known numbers.
_OPERATIONS: dict[Op, tuple[str, Callable[[int, int], int]]] = {
    Op.SUM: ("({} + {})", lambda a, b: a + b),
    Op.PROD: ("({} * {})", lambda a, b: a * b),
    Op.MAX: ("max({}, {})", max),
    Op.MIN: ("min({}, {})", min),
    Op.SUB: ("({} - {})", lambda a, b: a - b),
    Op.EQUAL: ("({} == {})", lambda a, b: int(a == b)),
    Op.LESS: ("({} < {})", lambda a, b: int(a < b)),
    Op.FLOOR_DIV: ("({} / {})", lambda a, b: a // b),
    Op.CEIL_DIV: ("ceildiv({}, {})", lambda a, b: -(-a // b)),
}


class IDimensionExpr:
    """A size: a formula over dimensions of inputs, with its value where that is known."""

    def __init__(self, text: str = "", value: int | None = None, size_tensor: int | None = None) -> None:
        self._text, self._value, self._size_tensor = text, value, size_tensor

    def is_constant(self) -> bool:
        return self._value is not None

    def get_constant_value(self) -> int:
        return -(2**31) if self._value is None else self._value

    def is_size_tensor(self) -> bool:
        return self._size_tensor is not None

    def __repr__(self) -> str:
        return f"<IDimensionExpr {self._text if self._value is None else self._value}>"


def expression(value: Any) -> IDimensionExpr:
    """A size of a number or an expression."""
    if isinstance(value, IDimensionExpr):
        return value
    number = int(value)
    return IDimensionExpr(str(number), number)


class IExprBuilder:
    """Makes expressions."""

    def constant(self, value: int) -> IDimensionExpr:
        return expression(value)

    def operation(self, op: Op, first: IDimensionExpr, second: IDimensionExpr) -> IDimensionExpr:
        a, b = expression(first), expression(second)
        if a.is_size_tensor() or b.is_size_tensor():
            raise ValueError("a size that a run finds can't be part of an expression; make it a dimension of its own")
        template, evaluate = _OPERATIONS[Op(op)]
        value = None
        if a._value is not None and b._value is not None:
            if b._value == 0 and op in (Op.FLOOR_DIV, Op.CEIL_DIV):
                raise ValueError(f"{op} of {a._value} by 0")
            value = evaluate(a._value, b._value)
        return IDimensionExpr(template.format(a._text, b._text), value)

    def declare_size_tensor(self, output_index: int, opt: IDimensionExpr, upper: IDimensionExpr) -> IDimensionExpr:
        bound = expression(upper)
        return IDimensionExpr(f"s{int(output_index)} <= {bound._text}", None, int(output_index))


class DimsExprs:
    """Dimensions as expressions; a number makes as many that are 0."""

    MAX_DIMS = 8

    def __init__(self, dims: Any = ()) -> None:
        self._v = [expression(d) for d in ([0] * dims if isinstance(dims, int) else dims)]

    def __len__(self) -> int:
        return len(self._v)

    def __iter__(self) -> Iterator[IDimensionExpr]:
        return iter(self._v)

    def __getitem__(self, index: Any) -> Any:
        return self._v[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self._v[index] = [expression(d) for d in value]
        else:
            self._v[index] = expression(value)

    def __repr__(self) -> str:
        return f"({', '.join(d._text for d in self._v)})"


def shape_of(input_: int, dims: Iterable[int]) -> DimsExprs:
    """The dimensions of an input."""
    return DimsExprs(
        [IDimensionExpr(f"i{input_}.d{axis}", None if n < 0 else n) for axis, n in enumerate(dims)]
    )


def elements_of(input_: int, count: int) -> DimsExprs:
    """The elements of an input that shapes depend on."""
    return DimsExprs([IDimensionExpr(f"i{input_}.v{n}") for n in range(count)])


def text_of(dims: DimsExprs) -> str:
    """Dimensions as Kiln's layers describe them."""
    return f"[{', '.join(d._text for d in dims)}]"
