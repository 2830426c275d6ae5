"""Types of arguments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

if TYPE_CHECKING:
    from kiln._kiln import Model, Network

# Anything with elements in memory: DLPack, the buffer protocol, `__array_interface__`, `__cuda_array_interface__`, a `Tensor`.
TensorLike: TypeAlias = Any
# "f32", "f16", "bf16", "f8e4m3", "i8", "u8", "i32", "i64", "bool", "i4", and the names that NumPy and PyTorch have for them.
DTypeLike: TypeAlias = Any
Path: TypeAlias = str | os.PathLike[str]
ModelLike: TypeAlias = Union["Model", "Network", Path, bytes, bytearray, memoryview]


class OutputAllocator(Protocol):
    """Supplies the memory of an output. Any object with these methods is one."""

    def allocate(self, output: str, current: int, nbytes: int, alignment: int, /) -> int | None:
        """Returns the address of so many bytes; 0 or `None` refuses. `current` is the address that it returned before."""
    def shape(self, output: str, shape: tuple[int, ...], /) -> object:
        """Takes the shape of the output."""
