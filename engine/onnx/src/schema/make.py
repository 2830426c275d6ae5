"""Writes the ONNX operator schemas that the importer checks nodes against: `make.py FILE`, or `make.py --check FILE`.

The facts come from the `onnx` wheel that tests/onnx/requirements.txt names. One line a version of an operator:

    NAME VERSION [removed] in INPUT .. out COUNT attrs NAME ..

INPUT is NAME=TYPES, with `?` after the name if it may be absent and `*` if it repeats. TYPES is the number of a line
`types NUMBER TYPE ..`; `other` stands for all types that are no tensors. COUNT is the largest number of outputs, `*` for any.
"""

import pathlib
import sys

import onnx

DOMAINS = ["", "ai.onnx.preview"]
MARKS = {"Single": "", "Optional": "?", "Variadic": "*"}


def tensors(parameter):
    """Element types of the tensors that a parameter may be."""
    types = {t.removeprefix("tensor(").removesuffix(")") if t.startswith("tensor(") else "other" for t in parameter.types}
    return tuple(sorted(types))


def text():
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in DOMAINS]
    schemas.sort(key=lambda s: (s.domain, s.name, s.since_version))
    sets = sorted({tensors(p) for s in schemas for p in s.inputs})
    lines = [f"# Schemas of onnx {onnx.__version__}, opset {onnx.defs.onnx_opset_version()}; written by make.py."]
    for number, types in enumerate(sets):
        lines.append(f"types {number} {' '.join(types)}")
    for s in schemas:
        name = f"{s.domain}.{s.name}" if s.domain else s.name
        parts = [name, str(s.since_version)] + (["removed"] if s.deprecated else [])
        parts.append("in")
        for p in s.inputs:
            parts.append(f"{p.name}{MARKS[p.option.name]}={sets.index(tensors(p))}")
        repeats = any(p.option.name == "Variadic" for p in s.outputs)
        parts += ["out", "*" if repeats else str(s.max_output)]
        parts += ["attrs", *sorted(s.attributes)] if s.attributes else []
        lines.append(" ".join(parts))
    return "\n".join(lines) + "\n"


def main():
    path = pathlib.Path(sys.argv[-1])
    fresh = text()
    if "--check" not in sys.argv:
        path.write_text(fresh)
    elif path.read_text() != fresh:
        sys.exit(f"{path} differs from the schemas of onnx {onnx.__version__}: write it by make.py and commit it")


if __name__ == "__main__":
    main()
