"""Builds the wheel `onnxruntime-ep-kiln`: wheel.py LIBRARIES TARGET

LIBRARIES is a folder with libkiln_ort.so and the libraries of backends, such as target/release. The wheel is data alone: it has the
library, backends beside it, and a module that returns the path. Equal files make equal wheels.
"""

import base64
import hashlib
import pathlib
import platform
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = "onnxruntime_ep_kiln"
WHEEL = """Wheel-Version: 1.0
Generator: kiln
Root-Is-Purelib: false
Tag: {tag}
"""
METADATA = """Metadata-Version: 2.1
Name: onnxruntime-ep-kiln
Version: {version}
Summary: Kiln as a plug-in execution provider of ONNX Runtime
License: MIT OR Apache-2.0
Requires-Python: >=3.9
"""


def glibc():
    """The version of glibc of this machine, which the libraries need at most."""
    name, version = platform.libc_ver()
    return version.replace(".", "_") if name == "glibc" else "2_36"


def main(libraries, target):
    """Writes the wheel into a folder, and prints its path."""
    module = (HERE / PACKAGE / "__init__.py").read_text()
    version = module.split('__version__ = "')[1].split('"')[0]
    tag = f"py3-none-manylinux_{glibc()}_{platform.machine()}"
    files = {f"{PACKAGE}/__init__.py": module.encode()}
    names = ["libkiln_ort.so", "libkiln_backend_wgpu.so", "libkiln_backend_cuda.so"]
    found = [libraries / n for n in names if (libraries / n).exists()]
    if not found or found[0].name != names[0]:
        sys.exit(f"{libraries} has no {names[0]}: run cargo build --release -p kiln-onnxruntime")
    files.update({f"{PACKAGE}/{p.name}": p.read_bytes() for p in found})
    info = f"{PACKAGE}-{version}.dist-info"
    files[f"{info}/METADATA"] = METADATA.format(version=version).encode()
    files[f"{info}/WHEEL"] = WHEEL.format(tag=tag).encode()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"{PACKAGE}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = 0o755 << 16 if name.endswith(".so") else 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    print(path)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
