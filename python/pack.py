#!/usr/bin/env python3
"""Packs what the workspace has built into a wheel, without building anything again: for tests. `scripts/wheel.sh` without `--dev`
makes wheels for users, with maturin.

Usage: pack.py TARGET-FOLDER OUT-FOLDER
"""

import base64
import hashlib
import re
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

PYTHON = Path(__file__).resolve().parent
# Libraries of tests.
LEFT_OUT = {"libkiln_backend_panicky.so"}


def main() -> None:
    target, out = Path(sys.argv[1]), Path(sys.argv[2])
    project = tomllib.loads((PYTHON / "pyproject.toml").read_text())["project"]
    version = tomllib.loads((PYTHON.parent / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    name = project["name"].replace("-", "_")
    tag = "cp311-abi3-" + re.sub(r"[^A-Za-z0-9]", "_", sysconfig.get_platform())
    about = f"{name}-{version}.dist-info"
    library = target / "lib_kiln.so"
    if not library.is_file():
        sys.exit(f"{library} is missing: run cargo build --workspace --lib first")

    files: dict[str, bytes | Path] = {"kiln/_kiln.abi3.so": library}
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
    for old in out.glob(f"{name}-*.whl"):
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
