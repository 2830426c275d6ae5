"""Classes that exist, so that scripts can name them, and refuse to be used."""

from __future__ import annotations

from ._callbacks import _refused

_SELECTOR = "use the timing cache, or tactic_rules and replay of kiln.build"

REFUSED = {
    **{
        name: _refused(name, _SELECTOR)
        for name in (
            "IAlgorithm",
            "IAlgorithmContext",
            "IAlgorithmIOInfo",
            "IAlgorithmSelector",
            "IAlgorithmVariant",
        )
    },
    "IDistCollectiveLayer": _refused("IDistCollectiveLayer", "an engine runs on one device"),
}
