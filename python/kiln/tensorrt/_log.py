"""Loggers, the text of the last failure, strict mode, and warnings that come once."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from kiln import _kiln

from .enums import ErrorCodeTRT, _Enum

T = TypeVar("T")


class Severity(_Enum):
    """Importance of a message."""

    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


Severity.__module__ = "kiln.tensorrt"


class ILogger:
    """Base of loggers that a program writes itself: a `log(severity, msg)` of its own."""

    Severity = Severity
    INTERNAL_ERROR = Severity.INTERNAL_ERROR
    ERROR = Severity.ERROR
    WARNING = Severity.WARNING
    INFO = Severity.INFO
    VERBOSE = Severity.VERBOSE

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def log(self, severity: Severity, msg: str) -> None:
        raise NotImplementedError("a logger needs a method log(severity, msg)")


_LETTERS = "FEWIV"


class Logger(ILogger):
    """Writes messages up to a severity to standard output."""

    def __init__(self, min_severity: Severity = Severity.WARNING) -> None:
        super().__init__()
        if not isinstance(min_severity, Severity):
            raise TypeError(f"min_severity: {min_severity!r} is not a Logger.Severity")
        self.min_severity = min_severity

    def log(self, severity: Severity, msg: str) -> None:
        if severity > self.min_severity:
            return
        stamp = time.strftime("%m/%d/%Y-%H:%M:%S")
        print(f"[{stamp}] [TRT] [{_LETTERS[int(severity)]}] {msg}", flush=True)

    def __enter__(self) -> Logger:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class TensorRTError(RuntimeError):
    """Failure that strict mode raises instead of returning None or False."""


_state = threading.local()
_warned: set[str] = set()
_lock = threading.Lock()


def last_error() -> str:
    """The text of the last failure in this thread; empty if there was none."""
    return getattr(_state, "text", "")


def strict() -> bool:
    """Whether failures raise: KILN_TENSORRT_STRICT=1."""
    return os.environ.get("KILN_TENSORRT_STRICT", "0") not in ("", "0")


def log(logger: Any, severity: Severity, text: str) -> None:
    """Hands a message to a logger; what the logger raises is printed."""
    if logger is None:
        return
    try:
        logger.log(severity, text)
    except Exception as e:
        print(f"[ERROR] Exception caught in log(): {e}", file=sys.stderr)


def check_logger(logger: Any, what: str) -> Any:
    """A logger argument; TypeError for anything else."""
    if not isinstance(logger, ILogger):
        raise TypeError(f"{what} takes a logger (tensorrt.ILogger), not {type(logger).__name__}")
    _hear(logger)
    return logger


_heard: Callable[[], Any] = lambda: None


def _hear(logger: ILogger) -> None:
    """Sends messages of Kiln's own to this logger, as long as it lives: the last one that an object was given."""
    global _heard
    if _heard() is not logger:
        _heard = weakref.ref(logger)
        _kiln.set_log(_pass_on)


def _pass_on(level: int, text: str) -> None:
    logger = _heard()
    if logger is not None:
        log(logger, Severity(level), text)


def text_of(error: BaseException) -> str:
    """The message of an exception with those of its causes."""
    parts, seen = [str(error) or type(error).__name__], {id(error)}
    cause = error.__cause__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if str(cause) and str(cause) not in " ".join(parts):
            parts.append(str(cause))
        cause = cause.__cause__
    return ": ".join(parts)


def fail(owner: Any, error: BaseException | str, result: T, code: ErrorCodeTRT | None = None) -> T:
    """Notes a failure: logs it, keeps its text, tells the error recorder; returns the result or raises in strict mode."""
    text = error if isinstance(error, str) else text_of(error)
    _state.text = text
    log(getattr(owner, "_logger", None), Severity.ERROR, text)
    recorder = getattr(owner, "_recorder", None)
    if recorder is not None:
        number = code if code is not None else _code(error)
        call(recorder.report_error, number, text[: recorder.MAX_DESC_LENGTH])
    if strict():
        raise TensorRTError(text) from (error if isinstance(error, BaseException) else None)
    return result


def _code(error: Any) -> ErrorCodeTRT:
    number = getattr(error, "code", None)
    try:
        return ErrorCodeTRT(number) if number is not None else ErrorCodeTRT.INVALID_ARGUMENT
    except ValueError:
        return ErrorCodeTRT.UNSPECIFIED_ERROR


def call(function: Callable[..., Any], *args: Any, default: Any = None) -> Any:
    """Calls a callback; what it raises is printed, as in the original."""
    try:
        return function(*args)
    except Exception as e:
        name = getattr(function, "__name__", "callback")
        print(f"[ERROR] Exception caught in {name}(): {e}", file=sys.stderr)
        return default


def warn_once(owner: Any, key: str, text: str) -> None:
    """Logs a warning about something that is accepted without effect, once a process."""
    with _lock:
        if key in _warned:
            return
        _warned.add(key)
    logger = getattr(owner, "_logger", None)
    if logger is not None:
        log(logger, Severity.WARNING, text)
    else:
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def no_effect(owner: Any, name: str, why: str) -> None:
    """The one warning for a setting without effect."""
    warn_once(owner, name, f"{name} is accepted without effect: {why}")


def refuse(name: str, why: str) -> NotImplementedError:
    """The error for what Kiln does not offer, with what to use."""
    return NotImplementedError(f"{name} is not available in Kiln: {why}")


class Scoped:
    """Objects that a `with` statement takes; its end does nothing, as in the original."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        warnings.warn(
            "Context managers for TensorRT types are deprecated. Memory will be freed automatically when the reference "
            "count reaches 0.",
            DeprecationWarning,
            stacklevel=2,
        )
