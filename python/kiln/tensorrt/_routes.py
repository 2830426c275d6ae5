"""Build routes: settings of the build by name, as `-fuse=off -level=2`, with the names of `kiln trtexec --setBuildRoute`."""

from __future__ import annotations

from typing import Any

_SWITCH = {"on": True, "off": False}

KNOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "level": ("optimization_level", {str(n): n for n in range(6)}),
    "fuse": ("fuse", _SWITCH),
    "search": ("search", _SWITCH),
    "fold": ("fold", _SWITCH),
    "tf32": ("tf32", _SWITCH),
    "fp16": ("f16", _SWITCH),
    "bf16": ("bf16", _SWITCH),
    "narrowing": ("narrowing", {"faster": "faster", "everywhere": "everywhere"}),
    "sparsity": ("sparsity", {"disable": "disable", "enable": "enable"}),
    "estimates": ("estimates", _SWITCH),
}
"""Option of `kiln.build` and its values, by setting; fp16 and bf16 are types that layers may run in."""


def read(route: str) -> dict[str, Any]:
    """The options of a route by setting; ValueError for what it has not."""
    options: dict[str, Any] = {}
    for word in route.split():
        name, _, value = word.partition("=")
        if not name.startswith("-") or name[1:] not in KNOBS:
            raise ValueError(f"{word!r} is no setting of a build route; there are {', '.join(everything())}")
        _, values = KNOBS[name[1:]]
        if value not in values:
            raise ValueError(f"{word!r}: wanted one of {', '.join(values)}")
        options[name[1:]] = values[value]
    return options


def everything() -> list[str]:
    """All settings with their values."""
    return [f"-{name}=[{'|'.join(values)}]" for name, (_, values) in KNOBS.items()]


def apply(route: str, options: dict[str, Any]) -> None:
    """Puts a route into the options of a build."""
    for name, value in read(route).items():
        option, _ = KNOBS[name]
        if name in ("fp16", "bf16"):
            types = [t for t in options.get("types", ()) if t != option]
            options["types"] = [*types, option] if value else types
        else:
            options[option] = value
