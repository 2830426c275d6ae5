"""Properties that several classes have: error recorders, settings without effect, setters without a getter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._log import no_effect


class Recorder:
    """The error recorder of an object, which failures are reported to; kept as `_recorder`."""

    def __get__(self, owner: Any, cls: type) -> Any:
        return self if owner is None else owner._recorder

    def __set__(self, owner: Any, recorder: Any) -> None:
        owner._recorder = recorder


class Ignored:
    """A setting that can be read back and has no effect, which the logger is told once."""

    def __init__(self, default: Any, why: str, convert: Callable[[Any], Any] | None = None) -> None:
        self._default, self._why, self._convert = default, why, convert

    def __set_name__(self, cls: type, name: str) -> None:
        self._name, self._key = f"{cls.__name__}.{name}", f"_ignored_{name}"

    def __get__(self, owner: Any, cls: type) -> Any:
        return self if owner is None else owner.__dict__.get(self._key, self._default)

    def __set__(self, owner: Any, value: Any) -> None:
        kept = value if self._convert is None else self._convert(value)
        if kept != self._default:
            no_effect(owner, self._name, self._why)
        owner.__dict__[self._key] = kept


class WriteOnly(Ignored):
    """A setting without effect that can't be read."""

    def __init__(self, why: str) -> None:
        super().__init__(None, why)

    def __get__(self, owner: Any, cls: type) -> Any:
        if owner is None:
            return self
        raise AttributeError(f"{self._name.rpartition('.')[2]} can only be set")
