"""Classes that exist, so that scripts can name them, and refuse to be used."""

from __future__ import annotations

from ._callbacks import _refused

REFUSED = {
    "IDistCollectiveLayer": _refused("IDistCollectiveLayer", "an engine runs on one device"),
}
