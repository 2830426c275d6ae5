"""Enumerations with the names and numbers of TensorRT 10.16, and the additions of 11."""

from __future__ import annotations

from enum import IntEnum

__all__: list[str] = []


class _Enum(IntEnum):
    """Prints as the original does: `DataType.FLOAT`."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self.value}>"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec) if not spec or spec[-1] not in "bcdoxXn" else format(self.value, spec)


def _counted(name: str, members: str, start: int = 0) -> type[_Enum]:
    """An enumeration of names in order; `NAME=n` goes on from another number."""
    pairs, number = [], start
    for word in members.split():
        text, _, given = word.partition("=")
        number = int(given) if given else number
        pairs.append((text, number))
        number += 1
    made = _Enum(name, pairs, module="kiln.tensorrt", qualname=name)
    globals()[name] = made
    __all__.append(name)
    return made


_ENUMS = {
    "ActivationType": "RELU SIGMOID TANH LEAKY_RELU ELU SELU SOFTSIGN SOFTPLUS CLIP HARD_SIGMOID SCALED_TANH "
    "THRESHOLDED_RELU GELU_ERF GELU_TANH",
    "AllocatorFlag": "RESIZABLE",
    "AttentionIOForm": "PADDED_BHND PACKED_NHD",
    "AttentionNormalizationOp": "NONE SOFTMAX",
    "BoundingBoxFormat": "CORNER_PAIRS CENTER_SIZES",
    "BuilderFlag": "FP16 INT8 DEBUG GPU_FALLBACK REFIT DISABLE_TIMING_CACHE TF32 SPARSE_WEIGHTS SAFETY_SCOPE "
    "OBEY_PRECISION_CONSTRAINTS PREFER_PRECISION_CONSTRAINTS DIRECT_IO REJECT_EMPTY_ALGORITHMS VERSION_COMPATIBLE "
    "EXCLUDE_LEAN_RUNTIME FP8 ERROR_ON_TIMING_CACHE_MISS BF16 DISABLE_COMPILATION_CACHE STRIP_PLAN WEIGHTLESS=19 "
    "REFIT_IDENTICAL WEIGHT_STREAMING INT4 REFIT_INDIVIDUAL STRICT_NANS MONITOR_MEMORY FP4 EDITABLE_TIMING_CACHE "
    "DISTRIBUTIVE_INDEPENDENCE REQUIRE_USER_ALLOCATION",
    "CalibrationAlgoType": "LEGACY_CALIBRATION ENTROPY_CALIBRATION ENTROPY_CALIBRATION_2 MINMAX_CALIBRATION",
    "CausalMaskKind": "NONE UPPER_LEFT LOWER_RIGHT",
    "CollectiveOperation": "ALL_REDUCE ALL_GATHER BROADCAST REDUCE REDUCE_SCATTER ALL_TO_ALL GATHER SCATTER",
    "CumulativeOperation": "SUM",
    "DataType": "FLOAT HALF INT8 INT32 BOOL UINT8 FP8 BF16 INT64 INT4 FP4 E8M0",
    "DeviceType": "GPU DLA",
    "DimensionOperation": "SUM PROD MAX MIN SUB EQUAL LESS FLOOR_DIV CEIL_DIV",
    "ElementWiseOperation": "SUM PROD MAX MIN SUB DIV POW FLOOR_DIV AND OR XOR EQUAL GREATER LESS",
    "EngineCapability": "STANDARD SAFETY DLA_STANDALONE",
    "EngineStat": "TOTAL_WEIGHTS_SIZE STRIPPED_WEIGHTS_SIZE",
    "ErrorCode": "SUCCESS INTERNAL_ERROR MEM_ALLOC_FAILED MODEL_DESERIALIZE_FAILED INVALID_VALUE INVALID_GRAPH "
    "INVALID_NODE UNSUPPORTED_GRAPH UNSUPPORTED_NODE UNSUPPORTED_NODE_ATTR UNSUPPORTED_NODE_INPUT "
    "UNSUPPORTED_NODE_DATATYPE UNSUPPORTED_NODE_DYNAMIC UNSUPPORTED_NODE_SHAPE REFIT_FAILED",
    "ErrorCodeTRT": "SUCCESS UNSPECIFIED_ERROR INTERNAL_ERROR INVALID_ARGUMENT INVALID_CONFIG FAILED_ALLOCATION "
    "FAILED_INITIALIZATION FAILED_EXECUTION FAILED_COMPUTATION INVALID_STATE UNSUPPORTED_STATE",
    "ExecutionContextAllocationStrategy": "STATIC ON_PROFILE_CHANGE USER_MANAGED",
    "FillOperation": "LINSPACE RANDOM_UNIFORM RANDOM_NORMAL",
    "GatherMode": "DEFAULT ELEMENT ND",
    "HardwareCompatibilityLevel": "NONE AMPERE_PLUS SAME_COMPUTE_CAPABILITY",
    "InterpolationMode": "NEAREST LINEAR CUBIC",
    "KVCacheMode": "LINEAR",
    "LayerInformationFormat": "ONELINE JSON",
    "LayerType": "CONVOLUTION CAST ACTIVATION POOLING LRN SCALE SOFTMAX DECONVOLUTION CONCATENATION ELEMENTWISE "
    "PLUGIN UNARY PADDING SHUFFLE REDUCE TOPK GATHER MATRIX_MULTIPLY RAGGED_SOFTMAX CONSTANT IDENTITY PLUGIN_V2 "
    "SLICE SHAPE PARAMETRIC_RELU RESIZE TRIP_LIMIT RECURRENCE ITERATOR LOOP_OUTPUT SELECT FILL QUANTIZE DEQUANTIZE "
    "CONDITION CONDITIONAL_INPUT CONDITIONAL_OUTPUT SCATTER EINSUM ASSERTION ONE_HOT NON_ZERO GRID_SAMPLE NMS "
    "REVERSE_SEQUENCE NORMALIZATION PLUGIN_V3 SQUEEZE UNSQUEEZE CUMULATIVE DYNAMIC_QUANTIZE ATTENTION_INPUT "
    "ATTENTION_OUTPUT ROTARY_EMBEDDING KVCACHE_UPDATE MOE DIST_COLLECTIVE",
    "LoopOutput": "LAST_VALUE CONCATENATE REVERSE",
    "MatrixOperation": "NONE TRANSPOSE VECTOR",
    "MemoryPoolType": "WORKSPACE DLA_MANAGED_SRAM DLA_LOCAL_DRAM DLA_GLOBAL_DRAM TACTIC_DRAM TACTIC_SHARED_MEMORY",
    "MoEActType": "NONE SILU",
    "NetworkDefinitionCreationFlag": "EXPLICIT_BATCH STRONGLY_TYPED PREFER_JIT_PYTHON_PLUGINS "
    "PREFER_AOT_PYTHON_PLUGINS",
    "OnnxParserFlag": "NATIVE_INSTANCENORM ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA REPORT_CAPABILITY_DLA "
    "ENABLE_PLUGIN_OVERRIDE ADJUST_FOR_DLA",
    "PaddingMode": "EXPLICIT_ROUND_DOWN EXPLICIT_ROUND_UP SAME_UPPER SAME_LOWER",
    "PluginArgDataType": "INT8 INT16 INT32",
    "PluginArgType": "INT",
    "PluginCapabilityType": "CORE BUILD RUNTIME",
    "PluginCreatorVersion": "V1 V1_PYTHON=64",
    "PluginFieldType": "FLOAT16 FLOAT32 FLOAT64 INT8 INT16 INT32 CHAR DIMS UNKNOWN BF16 INT64 FP8 INT4 FP4",
    "PluginVersion": "V2 V2_EXT V2_IOEXT V2_DYNAMICEXT V2_DYNAMICEXT_PYTHON=67",
    "PoolingType": "MAX AVERAGE MAX_AVERAGE_BLEND",
    "PreviewFeature": "PROFILE_SHARING_0806 ALIASED_PLUGIN_IO_10_03 RUNTIME_ACTIVATION_RESIZE_10_10 "
    "MULTIDEVICE_RUNTIME_10_16",
    "ProfilingVerbosity": "LAYER_NAMES_ONLY NONE DETAILED",
    "QuantizationFlag": "CALIBRATE_BEFORE_FUSION",
    "QuickPluginCreationRequest": "UNKNOWN PREFER_JIT PREFER_AOT STRICT_JIT STRICT_AOT",
    "ReduceOperation": "SUM PROD MAX MIN AVG NONE",
    "ResizeCoordinateTransformation": "ALIGN_CORNERS ASYMMETRIC HALF_PIXEL",
    "ResizeRoundMode": "HALF_UP HALF_DOWN FLOOR CEIL",
    "ResizeSelector": "FORMULA UPPER",
    "RuntimePlatform": "SAME_AS_BUILD WINDOWS_AMD64",
    "SampleMode": "STRICT_BOUNDS WRAP CLAMP FILL REFLECT",
    "ScaleMode": "UNIFORM CHANNEL ELEMENTWISE",
    "ScatterMode": "ELEMENT ND",
    "SeekPosition": "SET CUR END",
    "SerializationFlag": "EXCLUDE_WEIGHTS EXCLUDE_LEAN_RUNTIME INCLUDE_REFIT",
    "TacticSource": "CUBLAS CUBLAS_LT CUDNN EDGE_MASK_CONVOLUTIONS JIT_CONVOLUTIONS",
    "TempfileControlFlag": "ALLOW_IN_MEMORY_FILES ALLOW_TEMPORARY_FILES",
    "TensorFormat": "LINEAR CHW2 HWC8 CHW4 CHW16 CHW32 DHWC8 CDHW32 HWC DLA_LINEAR DLA_HWC4 HWC16 DHWC",
    "TensorIOMode": "NONE INPUT OUTPUT",
    "TensorLocation": "DEVICE HOST",
    "TensorRTPhase": "BUILD RUNTIME",
    "TilingOptimizationLevel": "NONE FAST MODERATE FULL",
    "TopKOperation": "MAX MIN",
    "TripLimit": "COUNT WHILE",
    "UnaryOperation": "EXP LOG SQRT RECIP ABS NEG SIN COS TAN SINH COSH ASIN ACOS ATAN ASINH ACOSH ATANH CEIL FLOOR "
    "ERF NOT SIGN ROUND ISINF ISNAN",
    "WeightsRole": "KERNEL BIAS SHIFT SCALE CONSTANT ANY",
}

for _name, _members in _ENUMS.items():
    _counted(_name, _members)


class _DataTypes:
    """Facts of element types: Kiln's name, numpy's name, size in bytes."""

    TABLE = {
        "FLOAT": ("f32", "float32", 4),
        "HALF": ("f16", "float16", 2),
        "INT8": ("i8", "int8", 1),
        "INT32": ("i32", "int32", 4),
        "BOOL": ("bool", "bool", 1),
        "UINT8": ("u8", "uint8", 1),
        "FP8": ("f8e4m3", None, 1),
        "BF16": ("bf16", None, 2),
        "INT64": ("i64", "int64", 8),
        "INT4": ("i4", None, 0.5),
        "FP4": (None, None, 0.5),
        "E8M0": (None, None, 1),
    }


DataType = globals()["DataType"]
DataType.itemsize = property(lambda self: _DataTypes.TABLE[self.name][2])


def to_kiln(dtype: object) -> str:
    """Kiln's name for an element type; TypeError for what is not a DataType."""
    if not isinstance(dtype, DataType):
        raise TypeError(f"{dtype!r} is not a tensorrt.DataType")
    name = _DataTypes.TABLE[dtype.name][0]
    if name is None:
        raise TypeError(f"Kiln has no element type {dtype}; it has " + ", ".join(sorted(_FROM)))
    return name


_FROM = {kiln: DataType[name] for name, (kiln, _, _) in _DataTypes.TABLE.items() if kiln}


def from_kiln(name: str) -> DataType:
    """The DataType of Kiln's name."""
    return _FROM[name]


def numpy_name(dtype: DataType) -> str | None:
    """The name of the numpy type, if numpy has one."""
    return _DataTypes.TABLE[DataType(dtype).name][1]


ALIASES = {
    "float32": "FLOAT",
    "float16": "HALF",
    "bfloat16": "BF16",
    "int8": "INT8",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "bool": "BOOL",
    "fp8": "FP8",
    "int4": "INT4",
    "fp4": "FP4",
    "e8m0": "E8M0",
}
"""Lower-case names of element types in the module."""


def native(member: IntEnum) -> str:
    """The name of an enumeration's member in Kiln's network API."""
    return member.name.lower()
