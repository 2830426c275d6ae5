"""The ONNX parser, and the parser that refits."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

from kiln import _kiln

from ._log import Scoped, Severity, check_logger, fail, log, no_effect
from ._network import INetworkDefinition
from ._strict import Strict
from ._tensor import ITensor
from .enums import ErrorCode, OnnxParserFlag


class ParserError:
    """What a parser could not convert."""

    def __init__(self, code: ErrorCode, desc: str, node: int = -1, name: str = "", op: str = "") -> None:
        self._code, self._desc, self._node, self._name, self._op = code, desc, node, name, op

    def code(self) -> ErrorCode:
        return self._code

    def desc(self) -> str:
        return self._desc

    def file(self) -> str:
        return "kiln-onnx"

    def line(self) -> int:
        return 0

    def func(self) -> str:
        return "parse"

    def node(self) -> int:
        return self._node

    def node_name(self) -> str:
        return self._name

    def node_operator(self) -> str:
        return self._op

    def local_function_stack(self) -> list[str]:
        return []

    def local_function_stack_size(self) -> int:
        return 0

    def __str__(self) -> str:
        where = f"In node {self._node} with name: {self._name} and operator: {self._op} " if self._op else ""
        return f"{where}({self._code.name}): {self._desc}"

    __repr__ = __str__


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The length-delimited fields of an encoded message, others skipped."""
    at, end = 0, len(data)

    def number() -> int:
        nonlocal at
        value = shift = 0
        while at < end and shift < 70:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
        raise ValueError("the model ends in the middle of a number")

    while at < end:
        tag = number()
        kind = tag & 7
        if kind == 0:
            number()
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            size = number()
            if size > end - at:
                raise ValueError("the model ends in the middle of a field")
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            raise ValueError(f"the model has a field of the unknown kind {kind}")


def nodes_of(model: bytes) -> list[tuple[str, str, str]]:
    """Name, operator and first output of each node of a model's main graph."""
    nodes = []
    for field, graph in _fields(memoryview(model)):
        if field != 7:
            continue
        for part, node in _fields(graph):
            if part == 1:
                name = op = output = ""
                for member, text in _fields(node):
                    if member == 3:
                        name = bytes(text).decode("utf-8", "replace")
                    elif member == 4:
                        op = bytes(text).decode("utf-8", "replace")
                    elif member == 2 and not output:
                        output = bytes(text).decode("utf-8", "replace")
                nodes.append((name, op, output))
    return nodes


def _named(label: str, node: tuple[str, str, str]) -> bool:
    """Whether an error's label is for this node: its name, or operator and output of a node without one."""
    name, op, output = node
    return any(label == known for known in (name, f"{op} {output}", f"{op}:{output}", output) if known)


def _place(label: str, op: str, data: bytes) -> int:
    """The index of the node that an error names; -1 for one inside of another node's body."""
    try:
        return next((i for i, node in enumerate(nodes_of(data)) if node[1] == op and _named(label, node)), -1)
    except ValueError:
        return -1


class _Errors(Strict, Scoped):
    _errors: list[ParserError]
    _logger: Any
    _recorder = None

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> ParserError | None:
        return self._errors[index] if 0 <= index < len(self._errors) else None

    def clear_errors(self) -> None:
        self._errors.clear()

    def _note(self, error: BaseException, code: ErrorCode, data: bytes = b"") -> bool:
        nodes = getattr(error, "nodes", None)
        if nodes:
            for name, op, domain, version, reason in nodes:
                text = f"{domain}.{op} (version {version}): {reason}" if domain else f"{op} (version {version}): {reason}"
                place = _place(name, op, data)
                self._errors.append(ParserError(ErrorCode.UNSUPPORTED_NODE, text, place, name, op))
        else:
            self._errors.append(ParserError(code, str(error)))
        return fail(self, error, False)


class OnnxParser(_Errors):
    """Reads ONNX models into a network."""

    def __init__(self, network: INetworkDefinition, logger: Any) -> None:
        if not isinstance(network, INetworkDefinition):
            raise TypeError(f"network: wants an INetworkDefinition, found {type(network).__name__}")
        self._network, self._logger = network, check_logger(logger, "OnnxParser")
        self._errors: list[ParserError] = []
        self._flags = 1 << OnnxParserFlag.NATIVE_INSTANCENORM
        self._model: bytes | None = None
        self._path: str | None = None
        self._initializers: dict[str, bytes] = {}
        self._parts: list[tuple[list[int], bool]] = []

    # Flags.

    @property
    def flags(self) -> int:
        return self._flags

    @flags.setter
    def flags(self, flags: int) -> None:
        for flag in OnnxParserFlag:
            if int(flags) >> int(flag) & 1:
                self.set_flag(flag)
        self._flags = int(flags)

    def set_flag(self, flag: OnnxParserFlag) -> None:
        if OnnxParserFlag(flag) != OnnxParserFlag.NATIVE_INSTANCENORM:
            no_effect(self, f"OnnxParserFlag.{OnnxParserFlag(flag).name}", "the importer needs no flag for it")
        self._flags |= 1 << int(flag)

    def clear_flag(self, flag: OnnxParserFlag) -> None:
        if OnnxParserFlag(flag) == OnnxParserFlag.NATIVE_INSTANCENORM:
            no_effect(self, "clear_flag(NATIVE_INSTANCENORM)", "normalizations are layers of Kiln's own")
        self._flags &= ~(1 << int(flag))

    def get_flag(self, flag: OnnxParserFlag) -> bool:
        return bool(self._flags >> int(flag) & 1)

    # Models.

    def parse(self, model: Any, path: str | None = None) -> bool:
        if isinstance(model, str):
            raise TypeError("model: wants bytes; parse_from_file takes a path")
        return self._parse(bytes(model), path)

    def parse_from_file(self, model: Any) -> bool:
        path = os.fspath(model)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as e:
            return self._note(e, ErrorCode.MODEL_DESERIALIZE_FAILED)
        return self._parse(data, path)

    def parse_with_weight_descriptors(self, model: Any) -> bool:
        return self.parse(model)

    def _parse(self, data: bytes, path: str | None) -> bool:
        self._errors.clear()
        native = self._network._native
        if len(native) or native.inputs:
            text = "the network has layers already; a parser fills an empty network"
            return self._note(ValueError(text), ErrorCode.INVALID_GRAPH)
        try:
            notes = native.parse_onnx(data, _folder(path))
        except Exception as e:
            return self._note(e, ErrorCode.MODEL_DESERIALIZE_FAILED, data)
        for note in notes:
            log(self._logger, Severity.INFO, note)
        return True

    def load_model_proto(self, model: Any, path: str | None = None) -> bool:
        self._model, self._path = bytes(model), path
        return True

    def load_initializer(self, name: str, data: int, size: int) -> bool:
        return fail(self, "load_initializer is not available in Kiln; parse the model with its data and refit", False)

    def parse_model_proto(self) -> bool:
        if self._model is None:
            return fail(self, "parse_model_proto: load_model_proto comes first", False)
        return self._parse(self._model, self._path)

    # Questions.

    def supports_operator(self, op_name: str) -> bool:
        return op_name in _kiln.onnx_operators()

    def supports_model_v2(self, model: Any, path: str | None = None) -> bool:
        data = bytes(model)
        self._errors.clear()
        self._parts = []
        refused: set[str] = set()
        try:
            _kiln.Network("").parse_onnx(data, _folder(path))
        except Exception as e:
            nodes = getattr(e, "nodes", None)
            if not nodes:
                return self._note(e, ErrorCode.MODEL_DESERIALIZE_FAILED)
            refused = {n[0] for n in nodes}
            self._note(e, ErrorCode.UNSUPPORTED_NODE, data)
        for i, node in enumerate(nodes_of(data)):
            good = not any(_named(label, node) for label in refused)
            if self._parts and self._parts[-1][1] == good:
                self._parts[-1][0].append(i)
            else:
                self._parts.append(([i], good))
        return not refused

    def supports_model(self, model: Any, path: str | None = None) -> tuple[bool, list[tuple[list[int], bool]]]:
        supported = self.supports_model_v2(model, path)
        return supported, list(self._parts)

    @property
    def num_subgraphs(self) -> int:
        return len(self._parts)

    def is_subgraph_supported(self, index: int) -> bool:
        return self._parts[index][1]

    def get_subgraph_nodes(self, index: int) -> list[int]:
        return list(self._parts[index][0])

    def get_used_vc_plugin_libraries(self) -> list[str]:
        return []

    def get_layer_output_tensor(self, name: str, i: int) -> ITensor | None:
        layer = self._network._native.find_layer(name)
        outputs = layer.outputs if layer is not None else []
        return ITensor(self._network, outputs[i]) if 0 <= i < len(outputs) else None


class OnnxParserRefitter(_Errors):
    """Puts the weights of an ONNX model into a refitter."""

    def __init__(self, refitter: Any, logger: Any) -> None:
        self._refitter, self._logger = refitter, check_logger(logger, "OnnxParserRefitter")
        self._errors: list[ParserError] = []

    def refit_from_file(self, model: Any) -> bool:
        self._errors.clear()
        try:
            unknown = self._refitter._native.set_from_file(os.fspath(model))
        except Exception as e:
            return self._note(e, ErrorCode.REFIT_FAILED)
        for name in unknown:
            log(self._logger, Severity.VERBOSE, f"the engine has no weights {name!r}")
        return True

    def refit_from_bytes(self, model: Any, path: str | None = None) -> bool:
        folder = _folder(path)
        try:
            with tempfile.NamedTemporaryFile(suffix=".onnx", dir=folder) as file:
                file.write(bytes(model))
                file.flush()
                return self.refit_from_file(file.name)
        except OSError as e:
            return self._note(e, ErrorCode.REFIT_FAILED)

    def load_model_proto(self, model: Any, path: str | None = None) -> bool:
        self._model = (bytes(model), path)
        return True

    def load_initializer(self, name: str, data: int, size: int) -> bool:
        return fail(self, "load_initializer is not available in Kiln; use Refitter.set_named_weights", False)

    def refit_model_proto(self) -> bool:
        if self._model is None:
            return fail(self, "refit_model_proto: load_model_proto comes first", False)
        return self.refit_from_bytes(*self._model)

    _model: tuple[bytes, str | None] | None = None


def _folder(path: Any) -> str | None:
    return None if path is None else os.path.dirname(os.path.abspath(os.fspath(path)))


def get_nv_onnx_parser_version() -> int:
    """The version of the parser, as TensorRT's library has it."""
    return 101600
