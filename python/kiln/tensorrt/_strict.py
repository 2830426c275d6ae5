"""Objects that take only the attributes which they have, so that a setting that nothing reads is an error."""

from __future__ import annotations

from typing import Any

from ._hints import hint


class Strict:
    """Refuses to set unknown attributes, and says of missing ones what replaced them."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and not hasattr(type(self), name):
            raise AttributeError(hint(type(self).__name__, name))
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(hint(type(self).__name__, name))
