"""The runtime."""

from __future__ import annotations

from typing import Any

from kiln import _kiln

from ._callbacks import IStreamReader, IStreamReaderV2
from ._engine import ICudaEngine
from ._log import Scoped, check_logger, fail, refuse
from ._members import Ignored, Recorder, WriteOnly
from ._plugins import IPluginRegistry, get_plugin_registry
from ._strict import Strict
from .enums import SeekPosition, TempfileControlFlag

_PIECE = 1 << 22
_LONGEST = 1 << 40


class Runtime(Strict, Scoped):
    """Loads plans."""

    def __init__(self, logger: Any) -> None:
        self._logger = check_logger(logger, "Runtime")
        self._recorder: Any = None

    @property
    def logger(self) -> Any:
        return self._logger

    def deserialize_cuda_engine(
        self, serialized_engine: Any = None, *, stream_reader: Any = None, stream_reader_v2: Any = None
    ) -> ICudaEngine | None:
        given = next((x for x in (serialized_engine, stream_reader, stream_reader_v2) if x is not None), None)
        if given is None:
            raise TypeError("deserialize_cuda_engine: wants a plan (bytes) or a stream reader, found None")
        try:
            data = self._read(given)
            _kiln.PlanHeader.of(data)
            native = _kiln.Engine.open(data)
        except TypeError:
            raise
        except Exception as e:
            return fail(self, e, None)
        return ICudaEngine(self, native)

    def _read(self, given: Any) -> bytes:
        if isinstance(given, IStreamReaderV2):
            if not given.seek(0, SeekPosition.SET):
                raise ValueError("the stream reader could not go to the start of the plan")
            return _pieces(lambda: given.read(_PIECE, 0))
        if isinstance(given, IStreamReader):
            return _pieces(lambda: given.read(_PIECE))
        return bytes(memoryview(given))

    def get_plugin_registry(self) -> IPluginRegistry:
        return get_plugin_registry()

    def load_runtime(self, path: str) -> None:
        raise refuse("Runtime.load_runtime", "plans of other versions are built again; see BuilderFlag.VERSION_COMPATIBLE")

    error_recorder = Recorder()

    @property
    def num_DLA_cores(self) -> int:
        return 0

    @property
    def DLA_core(self) -> int:
        return -1

    @DLA_core.setter
    def DLA_core(self, core: int) -> None:
        if int(core) >= 0:
            raise refuse("Runtime.DLA_core", "there is no DLA; num_DLA_cores is 0")

    gpu_allocator = WriteOnly("the backend allocates memory of the device")

    max_threads = Ignored(1, "the backend decides on its threads", int)

    temporary_directory = Ignored("", "plans need no temporary files")
    tempfile_control_flags = Ignored((1 << len(TempfileControlFlag)) - 1, "plans need no temporary files", int)
    engine_host_code_allowed = Ignored(False, "plans hold no code of the host", bool)


def _pieces(read: Any) -> bytes:
    parts, size = [], 0
    while True:
        part = bytes(read() or b"")
        if not part:
            return b"".join(parts)
        size += len(part)
        if size > _LONGEST:
            raise ValueError(f"the stream reader gave more than {_LONGEST} bytes")
        parts.append(part)
