"""Stand-ins for `pycuda`, cuda-python, `cupy` and libcudart over host memory, put in place on request only."""

from __future__ import annotations

import os

from . import _host_bindings, _host_cupy, _host_pycuda
from ._host_cudart import install_library


def install_host() -> None:
    """Puts the stand-ins in place of `pycuda`, `cuda`, `cupy` and libcudart."""
    # Memory of the host is of no use to a GPU.
    os.environ.setdefault("KILN_BACKEND", "cpu")
    for stand_in in (_host_pycuda, _host_bindings, _host_cupy):
        stand_in.install()
    install_library()
