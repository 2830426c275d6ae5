"""Contents of plans that plug-ins written in Python keep: fields of the third interface, bytes of the second."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from ._values import PluginField, PluginFieldCollection
from .enums import PluginFieldType

# The numpy types of fields that a creator receives.
_TYPES = {
    "FLOAT16": np.float16,
    "FLOAT32": np.float32,
    "FLOAT64": np.float64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "CHAR": "S1",
}


def pack_fields(fields: Any) -> bytes:
    """Fields as bytes: names, types, elements."""
    rows = []
    for field in fields or ():
        kind, data = PluginFieldType(field.type).name, field.data
        if data is None:
            raw = None
        elif isinstance(data, (bytes, bytearray, str)):
            raw = data.encode() if isinstance(data, str) else bytes(data)
        else:
            raw = np.ascontiguousarray(data, dtype=_TYPES.get(kind)).tobytes()
        rows.append([field.name, kind, None if raw is None else base64.b64encode(raw).decode()])
    return json.dumps(rows).encode()


def unpack_fields(data: bytes) -> PluginFieldCollection:
    """The fields of bytes, as arrays; those of an unknown type as bytes."""
    fields = PluginFieldCollection()
    for name, kind, text in json.loads(data):
        raw = None if text is None else base64.b64decode(text)
        fields.append(_field(name, PluginFieldType[kind], raw))
    return fields


def _field(name: str, kind: PluginFieldType, raw: bytes | None) -> PluginField:
    if raw is None or kind.name not in _TYPES:
        return PluginField(name, raw, kind)
    return PluginField(name, np.frombuffer(raw, dtype=_TYPES[kind.name]).copy(), kind)


def fields_of(attributes: dict[str, Any], declared: Any) -> PluginFieldCollection:
    """Attributes of an ONNX node as fields, in the order and of the types that the creator declares."""
    order = {f.name: (place, f.type) for place, f in enumerate(declared or ())}
    names = sorted(attributes, key=lambda n: order.get(n, (len(order), None))[0])
    return PluginFieldCollection([_of_attribute(n, attributes[n], order.get(n, (0, None))[1]) for n in names])


def _of_attribute(name: str, value: Any, declared: Any) -> PluginField:
    if isinstance(value, (str, bytes)):
        raw = value.encode() if isinstance(value, str) else value
        return _field(name, PluginFieldType.CHAR, raw)
    array = np.atleast_1d(np.asarray(value))
    kind = declared.name if declared is not None and declared.name in _TYPES and declared.name != "CHAR" else None
    if kind is None:
        kind = "FLOAT32" if array.dtype.kind == "f" else "INT32"
        info = np.iinfo(np.int32)
        if kind == "INT32" and array.size and not (info.min <= array.min() and array.max() <= info.max):
            kind = "INT64"
    return PluginField(name, array.astype(_TYPES[kind]), PluginFieldType[kind])
