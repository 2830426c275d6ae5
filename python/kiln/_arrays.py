"""Tensors as arrays of NumPy and PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kiln._kiln import Tensor

# Types that NumPy knows by the package ml_dtypes alone.
_FOREIGN = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn"}
# Types whose elements memoryview lists.
_PLAIN = ("f32", "i8", "u8", "i32", "i64", "bool")


def numpy(tensor: Tensor) -> Any:
    """A NumPy array that shares the memory; bf16 and fp8 with the package ml_dtypes, i4 never."""
    import numpy as np

    if tensor.device != "cpu":
        raise TypeError(f"the tensor is on {tensor.device}, NumPy's are in host memory: copy it there")
    if tensor.dtype in _FOREIGN:
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(
                f"NumPy has no {tensor.dtype} without the package ml_dtypes: install it, or use .to('f32') or .torch()"
            ) from None
        dtype = np.dtype(getattr(ml_dtypes, _FOREIGN[tensor.dtype]))
        return np.asarray(memoryview(tensor.raw())).view(dtype).reshape(tensor.shape)
    if tensor.dtype == "i4":
        raise TypeError("NumPy has no 4-bit integers: use .to('i8')")
    return np.asarray(memoryview(tensor))


def array(tensor: Tensor, dtype: Any, copy: bool | None) -> Any:
    """NumPy's protocol of conversion."""
    import numpy as np

    made = numpy(tensor)
    if dtype is not None and np.dtype(dtype) != made.dtype:
        if copy is False:
            raise ValueError(f"an array of {np.dtype(dtype)} is a copy of one of {made.dtype}")
        return made.astype(dtype)
    return made.copy() if copy else made


def torch(tensor: Tensor) -> Any:
    """A PyTorch tensor that shares the memory; a copy if the memory is read-only."""
    import torch as library

    if tensor.device == "cpu" and memoryview(tensor.raw()).readonly:
        return library.from_dlpack(tensor).clone()
    return library.from_dlpack(tensor)


def tolist(tensor: Tensor) -> Any:
    """Nested lists of Python's numbers."""
    plain = tensor
    if tensor.dtype not in _PLAIN:
        plain = tensor.to("i8" if tensor.dtype == "i4" else "f32")
    return memoryview(plain).tolist()
