"""The command line: `kiln`, or `python -m kiln`."""

from __future__ import annotations

import os
import sys

from kiln import _kiln
from kiln._libraries import backend_libraries


def main() -> int:
    """Runs the command with the arguments of this process."""
    libraries = backend_libraries()
    # In a folder libraries are told apart by their names. One of a development tree has some of tests, too.
    packed = all(path.parent.name == "lib" for path in libraries)
    own = sorted({str(path.parent) for path in libraries}) if packed else [str(path) for path in libraries]
    given = [path for path in [os.environ.get("KILN_PLUGIN_PATH")] if path]
    if own:
        os.environ["KILN_PLUGIN_PATH"] = os.pathsep.join(given + own)
    return _kiln.run_command(["kiln", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
