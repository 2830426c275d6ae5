"""Value types: dimensions, permutations, weights, host memory, fields of plug-ins."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from .enums import DataType, PluginFieldType, from_kiln, numpy_name, to_kiln


class _Ints(Sequence):
    """A short, changeable list of integers that prints and compares like a tuple."""

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._v = [operator.index(v) for v in values]

    def __len__(self) -> int:
        return len(self._v)

    def __iter__(self) -> Iterator[int]:
        return iter(self._v)

    def __getitem__(self, index: Any) -> Any:
        return tuple(self._v[index]) if isinstance(index, slice) else self._v[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            new = self._v[:]
            new[index] = [operator.index(v) for v in value]
            if len(new) != len(self._v):
                raise IndexError(f"{value} does not fill {index}")
            self._v = new
        else:
            self._v[index] = operator.index(value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (list, tuple, _Ints)):
            return list(self._v) == list(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._v))

    def __repr__(self) -> str:
        return repr(tuple(self._v))

    __str__ = __repr__

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self._v, dtype=dtype or np.int64)


class Dims(_Ints):
    """Dimensions of a tensor; -1 stands for one that is not known."""

    MAX_DIMS = 8
    _length: int | None = None

    def __init__(self, shape: Iterable[int] = ()) -> None:
        super().__init__(shape)
        wanted = self._length
        if wanted is not None and len(self) == 0:
            self._v = [0] * wanted
        elif wanted is not None and len(self) != wanted:
            raise ValueError(f"{type(self).__name__} takes {wanted} numbers, found {len(self)}")
        if len(self) > self.MAX_DIMS:
            raise ValueError(f"{len(self)} dimensions; the most is {self.MAX_DIMS}")


def _fixed(name: str, length: int, base: type, names: str = "") -> type:
    def init(self: Any, *shape: Any, **keywords: int) -> None:
        if keywords:
            shape = tuple(shape) + tuple(keywords.values())
        Dims.__init__(self, shape[0] if len(shape) == 1 else shape)

    members: dict[str, Any] = {"_length": length, "__init__": init, "__module__": __name__}
    for i, letter in enumerate(names):
        members[letter] = property(
            lambda self, i=i: self._v[i], lambda self, value, i=i: self.__setitem__(i, value)
        )
    return type(name, (base,), members)


Dims2 = _fixed("Dims2", 2, Dims)
DimsHW = _fixed("DimsHW", 2, Dims2, "hw")
Dims3 = _fixed("Dims3", 3, Dims)
Dims4 = _fixed("Dims4", 4, Dims)


class Permutation(_Ints):
    """An order of axes."""

    MAX_DIMS = 8


def dims(value: Any, what: str = "shape") -> list[int]:
    """The integers of an argument that stands for dimensions; TypeError for anything else."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{what}: {value!r} is not a sequence of integers")
    if isinstance(value, (int, np.integer)):
        return [operator.index(value)]
    try:
        return [operator.index(v) for v in value]
    except TypeError as e:
        raise TypeError(f"{what}: {value!r} is not a sequence of integers") from e


def volume(iterable: Iterable[int]) -> int:
    """The product of the dimensions; 1 for none."""
    result = 1
    for n in iterable:
        result *= n
    return result if iterable is not None else 0


def nptype(trt_type: DataType) -> type:
    """The numpy type of an element type; TypeError where numpy has none."""
    name = numpy_name(trt_type)
    if name is None:
        raise TypeError(f"Could not resolve TensorRT datatype {trt_type} to an equivalent numpy datatype.")
    return getattr(np, "bool_" if name == "bool" else name)


_ARRAY_NAMES = {"bfloat16": "BF16", "float8_e4m3fn": "FP8", "int4": "INT4"}


def array_type(array: np.ndarray) -> DataType:
    """The element type of an array."""
    name = array.dtype.name
    for member in DataType:
        if numpy_name(member) == name or _ARRAY_NAMES.get(name) == member.name:
            return member
    raise TypeError(f"an array of {name} can't be weights; convert it, such as by .astype(numpy.float32)")


class Weights:
    """Constants of a layer: an array by reference, or none of a type, or memory at an address."""

    def __init__(self, a: Any = DataType.FLOAT, ptr: int | None = None, count: int | None = None, **kw: Any) -> None:
        if "type" in kw:
            a = kw.pop("type")
        if kw:
            raise TypeError(f"unknown arguments {', '.join(kw)}")
        self._array: np.ndarray | None = None
        self._bytes: bytes | None = None
        if isinstance(a, DataType):
            self.dtype, self._count = a, int(count or 0)
            if ptr:
                import ctypes

                self._bytes = ctypes.string_at(int(ptr), self.nbytes)
            return
        array = np.asarray(a)
        if not array.flags.c_contiguous:
            raise ValueError("weights must be C-contiguous; use numpy.ascontiguousarray()")
        self._array, self.dtype, self._count = array, array_type(array), array.size

    @classmethod
    def _of(cls, value: tuple[str, list[int], bytes]) -> Weights:
        name, shape, data = value
        made = cls(from_kiln(name))
        made._bytes, made._count = data, volume(shape)
        return made

    @property
    def size(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return int(-(-self._count * self.dtype.itemsize // 1))

    def numpy(self) -> Any:
        """The elements as an array; types that numpy lacks as bytes."""
        if self._array is not None:
            return self._array.reshape(-1)
        name = numpy_name(self.dtype)
        return np.frombuffer(self._bytes or b"", dtype=name or np.uint8)

    def __len__(self) -> int:
        return self._count

    def _value(self, shape: Sequence[int] | None = None) -> tuple[str, list[int], bytes]:
        """What Kiln takes: type, shape, bytes."""
        data = self._array.tobytes() if self._array is not None else (self._bytes or b"")
        return to_kiln(self.dtype), list(shape) if shape is not None else [self._count], data


def weights(value: Any) -> Weights | None:
    """Weights of an argument that may be an array; None for none of any."""
    if value is None:
        return None
    made = value if isinstance(value, Weights) else Weights(np.ascontiguousarray(value))
    return made if len(made) else None


class IHostMemory(bytes):
    """Bytes that a build or a serialization made."""

    dtype = DataType.INT8

    @property
    def nbytes(self) -> int:
        return len(self)

    def __enter__(self) -> IHostMemory:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __repr__(self) -> str:
        return f"<IHostMemory of {len(self)} bytes>"


_FIELD_TYPES = {
    "float16": "FLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "CHAR",
}


class PluginField:
    """A named value for a plug-in."""

    def __init__(self, name: Any = "", data: Any = None, type: Any = None) -> None:
        self.name = name.decode() if isinstance(name, bytes) else name
        self._data = data
        if type is None:
            found = _FIELD_TYPES.get(np.asarray(data).dtype.name) if data is not None and not isinstance(data, str) else None
            type = PluginFieldType[found] if found else PluginFieldType.CHAR if data is not None else PluginFieldType.UNKNOWN
        self.type = PluginFieldType(type)

    @property
    def data(self) -> Any:
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = value

    @property
    def size(self) -> int:
        if self._data is None:
            return 0
        return len(self._data) if isinstance(self._data, (bytes, str)) else int(np.asarray(self._data).size)

    def _value(self) -> Any:
        """The value for Kiln: a number, text, bytes or a list."""
        if self.type == PluginFieldType.CHAR:
            raw = self._data if isinstance(self._data, str) else bytes(np.asarray(self._data)) if not isinstance(
                self._data, bytes) else self._data
            return raw if isinstance(raw, str) else raw.rstrip(b"\0").decode()
        array = np.asarray(self._data)
        return array.reshape(-1)[0].item() if array.size == 1 else array.reshape(-1).tolist()


class PluginFieldCollection(list):
    """Fields for a plug-in."""

    def __init__(self, fields: Iterable[PluginField] = ()) -> None:
        super().__init__(fields)

    def clear(self) -> None:
        del self[:]


class PluginFieldCollection_(PluginFieldCollection):
    """The name that fields have where a creator lists them."""
