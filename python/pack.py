#!/usr/bin/env python3
"""Packs what the workspace has built into a wheel, without building anything again: for tests. `scripts/wheel.sh` without `--dev`
makes wheels for users, with maturin.

Usage: pack.py TARGET-FOLDER OUT-FOLDER [PYTHON]

With the program of a free-threaded Python, which cargo built for by PYO3_PYTHON, the wheel is for that Python alone.
"""

import base64
import hashlib
import json
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

PYTHON = Path(__file__).resolve().parent
# Libraries of tests.
LEFT_OUT = {"libkiln_backend_panicky.so"}


FACTS = (
    "import json, sys, sysconfig as s; v = '%d%d' % sys.version_info[:2]; "
    "print(json.dumps([v, s.get_config_var('EXT_SUFFIX'), bool(s.get_config_var('Py_GIL_DISABLED'))]))"
)


def interpreter(program: str | None) -> tuple[str, str]:
    """Tag of the interface for a Python, and the ending of its modules."""
    if program is None:
        return "cp311-abi3", ".abi3.so"
    version, suffix, free = json.loads(subprocess.check_output([program, "-c", FACTS], text=True))
    if not free:
        sys.exit(f"{program} is not a free-threaded Python: leave it out for the wheel of all others")
    return f"cp{version}-cp{version}t", suffix


def main() -> None:
    target, out = Path(sys.argv[1]), Path(sys.argv[2])
    interface, suffix = interpreter(sys.argv[3] if len(sys.argv) > 3 else None)
    project = tomllib.loads((PYTHON / "pyproject.toml").read_text())["project"]
    version = tomllib.loads((PYTHON.parent / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    name = project["name"].replace("-", "_")
    tag = f"{interface}-" + re.sub(r"[^A-Za-z0-9]", "_", sysconfig.get_platform())
    about = f"{name}-{version}.dist-info"
    library = target / "lib_kiln.so"
    if not library.is_file():
        sys.exit(f"{library} is missing: run cargo build --workspace --lib first")

    files: dict[str, bytes | Path] = {f"kiln/_kiln{suffix}": library}
    for path in sorted((PYTHON / "kiln").rglob("*")):
        if path.suffix in (".py", ".pyi") or path.name == "py.typed":
            files[path.relative_to(PYTHON).as_posix()] = path
    for path in sorted(target.glob("libkiln_backend_*.so")):
        if path.name not in LEFT_OUT:
            files[f"kiln/lib/{path.name}"] = path
    files[f"{about}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\nSummary: {project['description']}\n"
        f"Requires-Python: {project['requires-python']}\n"
    ).encode()
    files[f"{about}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: pack\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    scripts = "\n".join(f"{command} = {function}" for command, function in project["scripts"].items())
    files[f"{about}/entry_points.txt"] = f"[console_scripts]\n{scripts}\n".encode()

    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(f"{name}-*-{interface}-*.whl"):
        old.unlink()
    wheel = out / f"{name}-{version}-{tag}.whl"
    records = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for place, content in files.items():
            data = content.read_bytes() if isinstance(content, Path) else content
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{place},sha256={digest},{len(data)}")
            archive.writestr(place, data)
        records.append(f"{about}/RECORD,,")
        archive.writestr(f"{about}/RECORD", "\n".join(records) + "\n")
    print(wheel)


if __name__ == "__main__":
    main()
