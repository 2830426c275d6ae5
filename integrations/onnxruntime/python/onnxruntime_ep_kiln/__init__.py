"""Kiln as a plug-in execution provider of ONNX Runtime: where its library is, and what the provider is called.

    import onnxruntime, onnxruntime_ep_kiln as kiln
    onnxruntime.register_execution_provider_library(kiln.get_ep_name(), kiln.get_library_path())
"""

import pathlib

__version__ = "0.1.0"

_NAME = "KilnExecutionProvider"
_DEVICE_NAME = "KilnCudaExecutionProvider"


def get_library_path() -> str:
    """The path of the library that ONNX Runtime loads."""
    return str(pathlib.Path(__file__).resolve().parent / "libkiln_ort.so")


def get_ep_name() -> str:
    """The name of the provider."""
    return _NAME


def get_device_ep_name() -> str:
    """The name of the provider whose values are in the memory of a GPU."""
    return _DEVICE_NAME


def get_ep_names() -> list[str]:
    """The names of all providers of the library."""
    return [_NAME, _DEVICE_NAME]
