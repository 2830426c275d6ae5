"""Runs a program that imports `tensorrt`: `python -m kiln.tensorrt [--v8] [--host-cuda] program.py arguments…`."""

from __future__ import annotations

import os
import runpy
import sys

from kiln.tensorrt import install

USAGE = (
    "usage: python -m kiln.tensorrt [--v8] [--host-cuda] (program.py | -m module) arguments…\n"
    "  --v8         the interface of TensorRT 8: bindings by index, build_engine\n"
    "  --host-cuda  pycuda, cuda-python and cupy over host memory, for machines without CUDA"
)


def main() -> None:
    """Takes the options off the command line and runs the program as if it were called itself."""
    args, flags = sys.argv[1:], set()
    while args and args[0] in ("--v8", "--host-cuda"):
        flags.add(args.pop(0))
    if args and args[0] in ("-h", "--help"):
        print(USAGE)
        return
    as_module = bool(args) and args[0] == "-m"
    if as_module:
        args.pop(0)
    if not args or (args[0].startswith("-") and not as_module):
        print(USAGE, file=sys.stderr)
        sys.exit(2)
    install(host_cuda="--host-cuda" in flags, v8="--v8" in flags)
    sys.argv = args
    if as_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(args[0], run_name="__main__", alter_sys=True)
    else:
        if not os.path.exists(args[0]):
            print(f"kiln.tensorrt: there is no file {args[0]}", file=sys.stderr)
            sys.exit(2)
        sys.path[0] = os.path.dirname(os.path.abspath(args[0]))
        runpy.run_path(args[0], run_name="__main__")


if __name__ == "__main__":
    main()
