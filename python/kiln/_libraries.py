"""Libraries of backends that the package brings, or that a development tree has built."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PATTERN = "libkiln_backend_*.so"
# Libraries of tests, which end the process or refuse to work on purpose.
_LEFT_OUT = {"libkiln_backend_panicky.so"}


def backend_libraries() -> list[Path]:
    """Those in `kiln/lib`; in a development tree those beside the library that was built last."""
    package = Path(__file__).resolve().parent
    own = sorted((package / "lib").glob(_PATTERN))
    if own:
        return own
    tree = package.parent.parent
    if not (tree / "Cargo.toml").is_file():
        return []
    for profile in ("release", "debug"):
        found = sorted((tree / "target" / profile).glob(_PATTERN))
        if found:
            return [path for path in found if path.name not in _LEFT_OUT]
    return []


def compiler_of_kernels() -> None:
    """Lets the CUDA backend find NVRTC where `pip install kiln-engine[cuda]` and PyTorch put it: in `nvidia/*/lib` of the packages.

    The variable KILN_NVRTC names it for this process and those that it starts. A value that is there stays.
    """
    if os.environ.get("KILN_NVRTC"):
        return
    for folder in sys.path:
        found = sorted(Path(folder, "nvidia").glob("*/lib/libnvrtc.so.1[23]")) if folder else []
        if found:
            os.environ["KILN_NVRTC"] = str(found[-1].resolve())
            return
