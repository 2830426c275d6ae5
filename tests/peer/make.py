#!/usr/bin/env python3
"""Makes small models with ONNX Runtime's answers: `PYTHONPATH=.cache/peer tests/peer/make.py [--seed N] [--out FOLDER] [FAMILY]...`.

Each family is an archive that `engine/onnx/tests/peer.rs` compares Kiln with. The ones in the repository are made with
seed 0; for others, give a folder and set KILN_PEER_CASES to it.
"""
import argparse
import importlib
import pathlib

from cases import Cases

FAMILIES = ["held", "quantized", "transformer", "sequences"]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "cases")
    parser.add_argument("families", nargs="*", default=FAMILIES)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for family in args.families:
        cases = Cases(args.seed)
        importlib.import_module(family).make(cases)
        cases.save(args.out / f"{family}.npz")
