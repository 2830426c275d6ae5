"""A stand-in for cuda-python over host memory: its runtime and its driver, with graphs that keep the work of a stream."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Callable
from typing import Any

from ._host_memory import (
    Handle,
    address_of,
    allocate,
    begin_capture,
    copy,
    copy_rows,
    do,
    end_capture,
    fill,
    free,
    handle,
    is_captured,
)
from ._host_modules import AnyNames, module
from ._host_pycuda import TOTAL

_VERSION = 13000
_events: dict[int, float] = {}
_graphs: dict[int, list[Callable[[], Any]]] = {}


class cudaError_t(enum.IntEnum):
    """Results of calls of the runtime."""

    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorNotReady = 600
    cudaErrorStreamCaptureUnsupported = 900


class CUresult(enum.IntEnum):
    """Results of calls of the driver."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2


class cudaMemcpyKind(enum.IntEnum):
    """Directions of copies."""

    cudaMemcpyHostToHost = 0
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3
    cudaMemcpyDefault = 4


class cudaStreamCaptureMode(enum.IntEnum):
    """Which other calls a capture allows."""

    cudaStreamCaptureModeGlobal = 0
    cudaStreamCaptureModeThreadLocal = 1
    cudaStreamCaptureModeRelaxed = 2


class cudaStreamCaptureStatus(enum.IntEnum):
    """Whether a stream is captured."""

    cudaStreamCaptureStatusNone = 0
    cudaStreamCaptureStatusActive = 1


class Properties:
    """What the runtime says of a device."""

    name = b"host"
    major = minor = 0
    totalGlobalMem = TOTAL
    multiProcessorCount = os.cpu_count() or 1
    warpSize = 32


class _Calls:
    """Functions of an interface, each with its success in front of what it returns."""

    def __init__(self, ok: Any, wrong: Any) -> None:
        self._ok, self._wrong = ok, wrong

    def of(self, run: Callable[..., Any]) -> Any:
        """A function that returns a value."""
        return lambda *args, **keywords: (self._ok, run(*args, **keywords))

    def done(self, run: Callable[..., Any] = lambda *_: None) -> Any:
        """A function that returns nothing; False is an error."""

        def call(*args: Any, **keywords: Any) -> tuple[Any]:
            return (self._wrong if run(*args, **keywords) is False else self._ok,)

        return call

    def table(self, values: dict[str, Any], nothing: str) -> dict[str, Any]:
        return {**{name: self.of(run) for name, run in values.items()}, **{name: self.done() for name in nothing.split()}}


def _copy(target: Any, source: Any, size: int, *rest: Any) -> None:
    # The stream is the last argument; a direction may come before it.
    stream = rest[-1] if rest else None
    do(None if isinstance(stream, cudaMemcpyKind) else stream, lambda: copy(address_of(target), address_of(source), size))


def _copy_rows(target: Any, pitch: int, source: Any, other: int, width: int, rows: int, kind: Any = 4, stream: Any = None) -> None:
    do(stream, lambda: copy_rows(address_of(target), pitch, address_of(source), other, width, rows))


def _fill(target: Any, value: int, size: int, stream: Any = None) -> None:
    do(stream, lambda: fill(address_of(target), value, size))


def _free(address: Any, *_: Any) -> bool:
    return not address or free(address_of(address))


def _event(*_: Any) -> Handle:
    made = handle()
    _events[int(made)] = 0.0
    return made


def _record(event: Any, stream: Any = None) -> None:
    do(stream, lambda: _events.__setitem__(int(event), time.perf_counter()))


def _elapsed(start: Any, end: Any) -> float:
    return (_events.get(int(end), 0.0) - _events.get(int(start), 0.0)) * 1e3


def _end_capture(stream: Any) -> Handle:
    made = handle()
    _graphs[int(made)] = end_capture(int(stream)) or []
    return made


def _instantiate(graph: Any, *_: Any) -> Handle:
    made = handle()
    _graphs[int(made)] = list(_graphs.get(int(graph), []))
    return made


def _launch(graph: Any, stream: Any = None) -> bool:
    work = _graphs.get(int(graph))
    if work is None:
        return False
    for action in work:
        do(stream, action)
    return True


def _forget(graph: Any) -> bool:
    return _graphs.pop(int(graph), None) is not None


def _status(stream: Any) -> cudaStreamCaptureStatus:
    return cudaStreamCaptureStatus(int(is_captured(int(stream))))


def _runtime() -> dict[str, Any]:
    calls = _Calls(cudaError_t.cudaSuccess, cudaError_t.cudaErrorInvalidValue)
    found: dict[str, Any] = calls.table(
        {
            **{name: lambda size, *_: allocate(size) for name in (
                "cudaMalloc", "cudaMallocHost", "cudaHostAlloc", "cudaMallocManaged", "cudaMallocAsync")},
            **{name: handle for name in ("cudaStreamCreate", "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority")},
            **{name: _event for name in ("cudaEventCreate", "cudaEventCreateWithFlags")},
            "cudaEventElapsedTime": _elapsed,
            "cudaGetDevice": lambda: 0,
            "cudaGetDeviceCount": lambda: 1,
            "cudaGetDeviceProperties": lambda device: Properties(),
            "cudaDeviceGetAttribute": lambda attribute, device: 0,
            "cudaDeviceGetPCIBusId": lambda length, device: b"0000:00:00.0",
            "cudaRuntimeGetVersion": lambda: _VERSION,
            "cudaDriverGetVersion": lambda: _VERSION,
            "cudaGetErrorName": lambda error: cudaError_t(error).name.encode(),
            "cudaGetErrorString": lambda error: cudaError_t(error).name.encode(),
            "cudaHostGetDevicePointer": lambda address, flags=0: address_of(address),
            "cudaStreamIsCapturing": _status,
            "cudaStreamEndCapture": _end_capture,
            "cudaGraphInstantiate": _instantiate,
            "cudaGraphInstantiateWithFlags": _instantiate,
        },
        "cudaStreamDestroy cudaStreamSynchronize cudaStreamQuery cudaStreamWaitEvent cudaDeviceSynchronize cudaDeviceReset "
        "cudaEventDestroy cudaEventSynchronize cudaEventQuery cudaSetDevice cudaSetDeviceFlags cudaGetLastError "
        "cudaPeekAtLastError cudaHostRegister cudaHostUnregister cudaGraphUpload cudaProfilerStart cudaProfilerStop",
    )
    found["cudaMemGetInfo"] = lambda: (cudaError_t.cudaSuccess, TOTAL, TOTAL)
    found["cudaDeviceGetStreamPriorityRange"] = lambda: (cudaError_t.cudaSuccess, 0, -5)
    acts = {
        **{name: _copy for name in ("cudaMemcpy", "cudaMemcpyAsync")},
        **{name: _copy_rows for name in ("cudaMemcpy2D", "cudaMemcpy2DAsync")},
        **{name: _fill for name in ("cudaMemset", "cudaMemsetAsync")},
        **{name: _free for name in ("cudaFree", "cudaFreeHost", "cudaFreeAsync")},
        **{name: _forget for name in ("cudaGraphDestroy", "cudaGraphExecDestroy")},
        "cudaEventRecord": _record,
        "cudaStreamBeginCapture": lambda stream, mode=0: begin_capture(int(stream)),
        "cudaGraphLaunch": _launch,
    }
    found.update({name: calls.done(run) for name, run in acts.items()})
    for kind in (cudaError_t, cudaMemcpyKind, cudaStreamCaptureMode, cudaStreamCaptureStatus):
        found[kind.__name__] = kind
    flags = "cudaHostAllocDefault cudaHostAllocPortable cudaHostAllocMapped cudaHostRegisterDefault cudaHostRegisterMapped"
    flags += " cudaEventDefault cudaEventDisableTiming cudaEventBlockingSync cudaStreamDefault cudaMemAttachGlobal cudaMemAttachHost"
    flags += " cudaDeviceScheduleBlockingSync cudaDeviceScheduleSpin cudaDeviceScheduleYield cudaDeviceMapHost"
    found.update(dict.fromkeys(flags.split(), 0))
    found.update(cudaStreamNonBlocking=1, cudaStreamLegacy=1, cudaStreamPerThread=2, cudaDeviceAttr=AnyNames("cudaDeviceAttr"))
    found.update(cudaStream_t=Handle, cudaEvent_t=Handle, cudaGraph_t=Handle, cudaGraphExec_t=Handle, cudaDeviceProp=Properties)
    return found


def _driver() -> dict[str, Any]:
    calls = _Calls(CUresult.CUDA_SUCCESS, CUresult.CUDA_ERROR_INVALID_VALUE)
    found: dict[str, Any] = calls.table(
        {
            **{name: lambda size, *_: allocate(size) for name in (
                "cuMemAlloc", "cuMemAllocHost", "cuMemHostAlloc", "cuMemAllocManaged", "cuMemAllocAsync")},
            **{name: handle for name in (
                "cuCtxCreate", "cuCtxGetCurrent", "cuCtxPopCurrent", "cuDevicePrimaryCtxRetain", "cuStreamCreate",
                "cuStreamCreateWithPriority")},
            "cuEventCreate": _event,
            "cuEventElapsedTime": _elapsed,
            "cuDeviceGet": lambda number=0: number,
            "cuDeviceGetCount": lambda: 1,
            "cuDeviceGetName": lambda length, device: b"host",
            "cuDeviceGetAttribute": lambda attribute, device: 0,
            "cuDeviceTotalMem": lambda device: TOTAL,
            "cuDriverGetVersion": lambda: _VERSION,
            "cuGetErrorName": lambda error: CUresult(error).name.encode(),
            "cuGetErrorString": lambda error: CUresult(error).name.encode(),
            "cuStreamEndCapture": _end_capture,
            "cuGraphInstantiate": _instantiate,
        },
        "cuInit cuCtxDestroy cuCtxPushCurrent cuCtxSetCurrent cuCtxSynchronize cuDevicePrimaryCtxRelease cuStreamDestroy "
        "cuStreamSynchronize cuStreamQuery cuStreamWaitEvent cuEventDestroy cuEventSynchronize cuEventQuery",
    )
    found["cuMemGetInfo"] = lambda: (CUresult.CUDA_SUCCESS, TOTAL, TOTAL)
    acts = {
        **{name: _copy for name in (
            "cuMemcpy", "cuMemcpyAsync", "cuMemcpyHtoD", "cuMemcpyHtoDAsync", "cuMemcpyDtoH", "cuMemcpyDtoHAsync", "cuMemcpyDtoD",
            "cuMemcpyDtoDAsync")},
        **{name: _fill for name in ("cuMemsetD8", "cuMemsetD8Async")},
        **{name: _free for name in ("cuMemFree", "cuMemFreeHost", "cuMemFreeAsync")},
        **{name: _forget for name in ("cuGraphDestroy", "cuGraphExecDestroy")},
        "cuEventRecord": _record,
        "cuStreamBeginCapture": lambda stream, mode=0: begin_capture(int(stream)),
        "cuGraphLaunch": _launch,
    }
    found.update({name: calls.done(run) for name, run in acts.items()})
    for name in ("CUdevice_attribute", "CUctx_flags", "CUstream_flags", "CUevent_flags", "CUstreamCaptureMode"):
        found[name] = AnyNames(name)
    found.update(CUresult=CUresult, CUdeviceptr=int, CUstream=Handle, CUevent=Handle, CUcontext=Handle, CUdevice=int)
    return found


def install() -> None:
    """Puts the stand-in in place of `cuda`."""
    runtime, driver = _runtime(), _driver()
    compiler = {"nvrtcResult": enum.IntEnum("nvrtcResult", {"NVRTC_SUCCESS": 0})}
    module("cuda", __version__="13.0.0")
    module("cuda.bindings", __version__="13.0.0")
    for name, members in (("runtime", runtime), ("driver", driver), ("nvrtc", compiler)):
        module(f"cuda.bindings.{name}", **members)
    module("cuda.cudart", **runtime)
    module("cuda.cuda", **driver)
    module("cuda.nvrtc", **compiler)
