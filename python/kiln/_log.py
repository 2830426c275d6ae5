"""Messages of Kiln for the loggers of the standard library."""

from __future__ import annotations

import logging

from kiln._kiln import set_log

_LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG}
"""Levels of the standard library by those of Kiln."""


def log_to(logger: logging.Logger | str | None = "kiln") -> None:
    """Passes messages of Kiln on to a logger of the standard library, or to the one of a name. `None` ends it.

    Its level decides which messages are seen; texts are not formatted where nobody wants them. This takes the place of the function
    that `set_log` was given.
    """
    if logger is None:
        set_log(None)
        return
    target = logging.getLogger(logger) if isinstance(logger, str) else logger

    def hand_over(level: int, text: str) -> None:
        target.log(_LEVELS.get(level, logging.DEBUG), "%s", text)

    set_log(hand_over)
