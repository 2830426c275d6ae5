"""The wheel: what it has, and that ONNX Runtime loads the library from it."""

import pathlib
import subprocess
import sys
import zipfile

from provider import LIBRARY, ROOT

PYTHON = ROOT / "integrations/onnxruntime/python"

PROGRAM = """
import onnxruntime, onnxruntime_ep_kiln as kiln
onnxruntime.register_execution_provider_library(kiln.get_ep_name(), kiln.get_library_path())
print([d.ep_name for d in onnxruntime.get_ep_devices() if d.ep_name in kiln.get_ep_names()][0])
"""


def test_the_wheel_has_the_library_and_says_where_it_is(tmp_path):
    """A wheel of the libraries that were built works when it is unpacked."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    (libraries / "libkiln_ort.so").symlink_to(LIBRARY)
    made = subprocess.run(
        [sys.executable, PYTHON / "wheel.py", libraries, tmp_path / "dist"], check=True, capture_output=True, text=True
    )
    wheel = pathlib.Path(made.stdout.strip())
    assert wheel.name.startswith("onnxruntime_ep_kiln-") and "-py3-none-manylinux_" in wheel.name
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    paths = f"{site}:{ROOT / '.cache/peer'}"
    done = subprocess.run([sys.executable, "-c", PROGRAM], env={"PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.stdout.strip() == "KilnExecutionProvider", done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = subprocess.run([sys.executable, PYTHON / "wheel.py", empty, tmp_path], capture_output=True, text=True)
    assert refused.returncode != 0 and "has no libkiln_ort.so" in refused.stderr
