"""What tests of the provider share: the library, sessions, cases of the ONNX suite."""

import pathlib

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[3]
NAME = "KilnExecutionProvider"
LIBRARY = ROOT / "target/debug/libkiln_ort.so"
SUITE = ROOT / ".cache/onnx-suite-1.19.1"


def device():
    """The device of the provider, registered once."""
    found = [d for d in onnxruntime.get_ep_devices() if d.ep_name == NAME]
    if not found:
        onnxruntime.register_execution_provider_library(NAME, str(LIBRARY))
        found = [d for d in onnxruntime.get_ep_devices() if d.ep_name == NAME]
    return found[0]


def session(model, backend="cpu", whole=False, config=None, severity=3, **options):
    """A session of a model (bytes or path) on Kiln; `whole` forbids other providers."""
    chosen = onnxruntime.SessionOptions()
    chosen.log_severity_level = severity
    options = {"kiln_backend": backend, "builder_optimization_level": "1", **options}
    chosen.add_provider_for_devices([device()], {k: str(v) for k, v in options.items()})
    if whole:
        chosen.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for key, value in (config or {}).items():
        chosen.add_session_config_entry(key, str(value))
    # With fallback, what fails is tried again by the CPU provider, silently.
    return onnxruntime.InferenceSession(model if isinstance(model, bytes) else str(model), chosen, enable_fallback=0)


def tensors(folder, kind, count):
    """Inputs or outputs of a case, or None if one is not a tensor."""
    found = []
    for i in range(count):
        path = folder / f"{kind}_{i}.pb"
        if not path.exists():
            return None
        message = onnx.TensorProto()
        try:
            message.ParseFromString(path.read_bytes())
            found.append(numpy_helper.to_array(message))
        except Exception:
            return None
    return found


def close(found, wanted, tolerance=1e-3):
    """Whether results agree as the suite wants it."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if wanted.dtype.kind in "fV" or "float" in str(wanted.dtype) or wanted.dtype.kind == "c":
        a, b = found.astype(numpy.float64), wanted.astype(numpy.float64)
        return bool(numpy.allclose(a, b, rtol=tolerance, atol=1e-5 + tolerance * 1e-2, equal_nan=True))
    return bool((found == wanted).all())
