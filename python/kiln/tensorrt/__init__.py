"""The Python interface of TensorRT 10.16 over Kiln: `import kiln.tensorrt as trt`.

Failures return None or False as in the original; `last_error()` has the text, and KILN_TENSORRT_STRICT=1 raises instead. Programs
that import `tensorrt` run unchanged by `python -m kiln.tensorrt program.py`, or after `kiln.tensorrt.install()`. The backend is the
best one that has a device, or the one that KILN_BACKEND names; on backends of the processor an address is a host pointer.
"""

from __future__ import annotations

from typing import Any

from . import enums as _enums
from ._attention import IAttention, IAttentionBoundaryLayer, IAttentionInputLayer, IAttentionOutputLayer
from ._builder import Builder
from ._callbacks import (
    IDebugListener,
    IErrorRecorder,
    IGpuAllocator,
    IGpuAsyncAllocator,
    IInt8Calibrator,
    IInt8EntropyCalibrator,
    IInt8EntropyCalibrator2,
    IInt8LegacyCalibrator,
    IInt8MinMaxCalibrator,
    InterfaceInfo,
    IOutputAllocator,
    IProfiler,
    IProgressMonitor,
    IStreamReader,
    IStreamReaderV2,
    IStreamWriter,
    IVersionedInterface,
    Profiler,
)
from ._config import IBuilderConfig, IOptimizationProfile
from ._context import IExecutionContext
from ._engine import EngineInspector, ICudaEngine, IRuntimeConfig, ISerializationConfig
from ._flow import (
    IConditionLayer,
    IIfConditional,
    IIfConditionalBoundaryLayer,
    IIfConditionalInputLayer,
    IIfConditionalOutputLayer,
    IIteratorLayer,
    ILoop,
    ILoopBoundaryLayer,
    ILoopOutputLayer,
    IRecurrenceLayer,
    ITripLimitLayer,
)
from ._hints import hint as _hint
from ._install import install
from ._layers import CLASSES as _CLASSES
from ._layers import ILayer
from ._log import ILogger, Logger, TensorRTError, last_error
from ._moe import IMoELayer
from ._network import INetworkDefinition
from ._onnx import OnnxParser, OnnxParserRefitter, ParserError, get_nv_onnx_parser_version
from ._plugin_classes import (
    DynamicPluginTensorDesc,
    IPluginCapability,
    IPluginResource,
    IPluginResourceContext,
    IPluginV2,
    IPluginV2DynamicExt,
    IPluginV2DynamicExtBase,
    IPluginV2Ext,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneBuildV2,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
    PluginTensorDesc,
)
from ._plugin_shapes import DimsExprs, IDimensionExpr, IExprBuilder
from ._plugins import (
    REFUSED as _PLUGINS,
)
from ._plugins import (
    IPluginCreator,
    IPluginCreatorInterface,
    IPluginCreatorV3One,
    IPluginCreatorV3Quick,
    IPluginRegistry,
    IPluginV2Layer,
    IPluginV3Layer,
    get_builder_plugin_registry,
    get_plugin_registry,
    init_libnvinfer_plugins,
)
from ._refit import Refitter
from ._refused import REFUSED as _OTHERS
from ._runtime import Runtime
from ._selector import (
    IAlgorithm,
    IAlgorithmContext,
    IAlgorithmIOInfo,
    IAlgorithmSelector,
    IAlgorithmVariant,
)
from ._tensor import ITensor
from ._timing import ITimingCache, TimingCacheKey, TimingCacheValue
from ._values import (
    Dims,
    Dims2,
    Dims3,
    Dims4,
    DimsHW,
    IHostMemory,
    Permutation,
    PluginField,
    PluginFieldCollection,
    PluginFieldCollection_,
    Weights,
    nptype,
    volume,
)

__version__ = "10.16.1.0"

for _name in _enums.__all__:
    globals()[_name] = getattr(_enums, _name)
for _name, _member in _enums.ALIASES.items():
    globals()[_name] = _enums.DataType[_member]
globals().update(_CLASSES)
globals().update(_PLUGINS)
globals().update(_OTHERS)
ILayer.__module__ = "kiln.tensorrt"


def get_nv_infer_version() -> int:
    """The version of the library, as TensorRT's has it."""
    return 101600


def __getattr__(name: str) -> Any:
    raise AttributeError(_hint("module", name))


__all__ = sorted(
    {
        *_enums.__all__,
        *_enums.ALIASES,
        *_CLASSES,
        *_PLUGINS,
        *_OTHERS,
        "Builder",
        "Dims",
        "Dims2",
        "Dims3",
        "Dims4",
        "DimsExprs",
        "DimsHW",
        "DynamicPluginTensorDesc",
        "EngineInspector",
        "IAlgorithm",
        "IAlgorithmContext",
        "IAlgorithmIOInfo",
        "IAlgorithmSelector",
        "IAlgorithmVariant",
        "IAttention",
        "IAttentionBoundaryLayer",
        "IAttentionInputLayer",
        "IAttentionOutputLayer",
        "IBuilderConfig",
        "IConditionLayer",
        "ICudaEngine",
        "IDebugListener",
        "IDimensionExpr",
        "IErrorRecorder",
        "IExecutionContext",
        "IExprBuilder",
        "IGpuAllocator",
        "IGpuAsyncAllocator",
        "IHostMemory",
        "IIfConditional",
        "IIfConditionalBoundaryLayer",
        "IIfConditionalInputLayer",
        "IIfConditionalOutputLayer",
        "IInt8Calibrator",
        "IInt8EntropyCalibrator",
        "IInt8EntropyCalibrator2",
        "IInt8LegacyCalibrator",
        "IInt8MinMaxCalibrator",
        "IIteratorLayer",
        "ILayer",
        "ILogger",
        "ILoop",
        "ILoopBoundaryLayer",
        "ILoopOutputLayer",
        "IMoELayer",
        "INetworkDefinition",
        "IOptimizationProfile",
        "IOutputAllocator",
        "IPluginCapability",
        "IPluginCreator",
        "IPluginCreatorInterface",
        "IPluginCreatorV3One",
        "IPluginCreatorV3Quick",
        "IPluginRegistry",
        "IPluginResource",
        "IPluginResourceContext",
        "IPluginV2",
        "IPluginV2DynamicExt",
        "IPluginV2DynamicExtBase",
        "IPluginV2Ext",
        "IPluginV2Layer",
        "IPluginV3",
        "IPluginV3Layer",
        "IPluginV3OneBuild",
        "IPluginV3OneBuildV2",
        "IPluginV3OneCore",
        "IPluginV3OneRuntime",
        "IProfiler",
        "IProgressMonitor",
        "IRecurrenceLayer",
        "IRuntimeConfig",
        "ISerializationConfig",
        "IStreamReader",
        "IStreamReaderV2",
        "IStreamWriter",
        "ITensor",
        "ITimingCache",
        "ITripLimitLayer",
        "IVersionedInterface",
        "InterfaceInfo",
        "Logger",
        "OnnxParser",
        "OnnxParserRefitter",
        "ParserError",
        "Permutation",
        "PluginField",
        "PluginFieldCollection",
        "PluginFieldCollection_",
        "PluginTensorDesc",
        "Profiler",
        "Refitter",
        "Runtime",
        "TensorRTError",
        "TimingCacheKey",
        "TimingCacheValue",
        "Weights",
        "get_builder_plugin_registry",
        "get_nv_infer_version",
        "get_nv_onnx_parser_version",
        "get_plugin_registry",
        "init_libnvinfer_plugins",
        "install",
        "last_error",
        "nptype",
        "volume",
    }
)
