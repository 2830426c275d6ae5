"""A bar that follows a build, in a terminal or a notebook."""

from __future__ import annotations

import sys
from typing import Any

_WIDTH = 30


def _notebook() -> Any:
    """IPython's way to show a thing that changes; `None` outside of notebooks."""
    shell = sys.modules.get("IPython")
    instance = shell.get_ipython() if shell is not None else None
    if instance is None or instance.__class__.__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import HTML, display

    return HTML, display("", display_id=True)


class Bar:
    """Shows phase, steps done and steps in all. Called by builds with `progress=True`."""

    def __init__(self, stream: Any = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._notebook = _notebook()
        self._shown = ""
        self._phase = ""

    def __call__(self, phase: str, done: int, steps: int) -> None:
        self._phase = phase
        part = min(done / steps, 1.0) if steps else 1.0
        if self._notebook is not None:
            html, handle = self._notebook
            handle.update(html(f"<progress max='{steps}' value='{done}'></progress> {phase} {done}/{steps}"))
            return
        filled = int(part * _WIDTH)
        text = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {phase} {done}/{steps}"
        if text != self._shown:
            self._stream.write("\r" + text.ljust(len(self._shown)))
            self._stream.flush()
            self._shown = text

    def close(self) -> None:
        """Ends the line."""
        if self._shown:
            self._stream.write("\n")
            self._stream.flush()
            self._shown = ""
