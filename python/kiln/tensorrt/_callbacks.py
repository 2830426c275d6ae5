"""Bases of the callbacks that programs write. Plain Python, so that subclasses have any `__init__`."""

from __future__ import annotations

from typing import Any

from ._log import refuse
from .enums import CalibrationAlgoType, DataType, ErrorCodeTRT, SeekPosition, TensorLocation


class _Base:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class IVersionedInterface(_Base):
    """Base of interfaces that have versions."""

    api_language = "PYTHON"
    interface_info = ("", 1, 0)


class InterfaceInfo:
    """Name and version of an interface."""

    def __init__(self, kind: str = "", major: int = 1, minor: int = 0) -> None:
        self.kind, self.major, self.minor = kind, major, minor


class IProfiler(_Base):
    """Receives the time of each layer of a run in milliseconds."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        raise NotImplementedError("a profiler needs a method report_layer_time(layer_name, ms)")


class Profiler(IProfiler):
    """Prints the time of each layer."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        print(f"{layer_name}: {ms}ms", flush=True)


class IProgressMonitor(_Base):
    """Is told of the phases of a build; `step_complete` returns False to cancel it."""

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        raise NotImplementedError("a progress monitor needs a method phase_start(phase_name, parent_phase, num_steps)")

    def step_complete(self, phase_name: str, step: int) -> bool:
        raise NotImplementedError("a progress monitor needs a method step_complete(phase_name, step)")

    def phase_finish(self, phase_name: str) -> None:
        raise NotImplementedError("a progress monitor needs a method phase_finish(phase_name)")


class IErrorRecorder(_Base):
    """Collects errors; programs write the methods."""

    MAX_DESC_LENGTH = 127

    def num_errors(self) -> int:
        return self.get_num_errors()

    def get_num_errors(self) -> int:
        raise NotImplementedError("an error recorder needs a method get_num_errors()")

    def get_error_code(self, arg0: int) -> ErrorCodeTRT:
        raise NotImplementedError("an error recorder needs a method get_error_code(index)")

    def get_error_desc(self, arg0: int) -> str:
        raise NotImplementedError("an error recorder needs a method get_error_desc(index)")

    def has_overflowed(self) -> bool:
        raise NotImplementedError("an error recorder needs a method has_overflowed()")

    def clear(self) -> None:
        raise NotImplementedError("an error recorder needs a method clear()")

    def report_error(self, arg0: ErrorCodeTRT, arg1: str) -> bool:
        raise NotImplementedError("an error recorder needs a method report_error(code, description)")


class IOutputAllocator(_Base):
    """Allocates outputs whose size only a run determines."""

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        raise NotImplementedError("an output allocator needs a method reallocate_output(name, memory, size, alignment)")

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        raise NotImplementedError("an output allocator needs a method notify_shape(name, shape)")


class IGpuAllocator(IVersionedInterface):
    """Allocates memory of the device."""

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        raise NotImplementedError("an allocator needs a method allocate(size, alignment, flags)")

    def deallocate(self, memory: int) -> bool:
        raise NotImplementedError("an allocator needs a method deallocate(memory)")

    def reallocate(self, address: int, alignment: int, new_size: int) -> int:
        return 0

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        return self.allocate(size, alignment, flags)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        return self.deallocate(memory)


class IGpuAsyncAllocator(IGpuAllocator):
    """Allocates memory of the device in the order of a stream."""


class IStreamReader(_Base):
    """Reads a plan piece by piece."""

    def read(self, size: int) -> bytes:
        raise NotImplementedError("a stream reader needs a method read(size)")


class IStreamReaderV2(_Base):
    """Reads a plan piece by piece, from any place in it."""

    def read(self, num_bytes: int, stream: int) -> bytes:
        raise NotImplementedError("a stream reader needs a method read(num_bytes, stream)")

    def seek(self, offset: int, where: SeekPosition) -> bool:
        raise NotImplementedError("a stream reader needs a method seek(offset, where)")


class IStreamWriter(_Base):
    """Takes a plan piece by piece."""

    def write(self, data: bytes) -> int:
        raise NotImplementedError("a stream writer needs a method write(data)")


class IDebugListener(_Base):
    """Is told of debug tensors as a run computes them."""

    def process_debug_tensor(
        self, addr: int, location: TensorLocation, type: DataType, shape: Any, name: str, stream: int
    ) -> None:
        raise NotImplementedError("a debug listener needs a method process_debug_tensor(…)")


class _Calibrator(_Base):
    """Yields batches for calibration, and keeps its result."""

    algorithm: CalibrationAlgoType

    def get_algorithm(self) -> CalibrationAlgoType:
        return self.algorithm

    def get_batch_size(self) -> int:
        raise NotImplementedError("a calibrator needs a method get_batch_size()")

    def get_batch(self, names: list[str]) -> list[int] | None:
        raise NotImplementedError("a calibrator needs a method get_batch(names)")

    def read_calibration_cache(self) -> bytes | None:
        return None

    def write_calibration_cache(self, cache: Any) -> None:
        return None


class IInt8Calibrator(_Calibrator):
    """Base of calibrators."""

    algorithm = CalibrationAlgoType.ENTROPY_CALIBRATION_2


class IInt8LegacyCalibrator(_Calibrator):
    """Calibration by percentiles."""

    algorithm = CalibrationAlgoType.LEGACY_CALIBRATION
    quantile = 0.9999
    regression_cutoff = 1.0


class IInt8EntropyCalibrator(_Calibrator):
    """Calibration by entropy."""

    algorithm = CalibrationAlgoType.ENTROPY_CALIBRATION


class IInt8EntropyCalibrator2(_Calibrator):
    """Calibration by entropy, for each tensor."""

    algorithm = CalibrationAlgoType.ENTROPY_CALIBRATION_2


class IInt8MinMaxCalibrator(_Calibrator):
    """Calibration by the least and the greatest value."""

    algorithm = CalibrationAlgoType.MINMAX_CALIBRATION


def _refused(name: str, why: str) -> type:
    """A class that exists for `isinstance` and `hasattr`, and refuses to be used."""

    def new(cls: type, *_: Any, **__: Any) -> Any:
        raise refuse(name, why)

    return type(name, (), {"__new__": new, "__doc__": f"Not available in Kiln: {why}", "__module__": "kiln.tensorrt"})
