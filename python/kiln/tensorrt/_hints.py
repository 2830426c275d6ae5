"""What replaced attributes that scripts for older versions ask for."""

from __future__ import annotations

_V8 = "kiln.tensorrt.v8 has it, for scripts of TensorRT 8"

_INDEX = {
    "num_bindings": "num_io_tensors",
    "get_binding_name": "get_tensor_name(index)",
    "get_binding_index": "the tensor's name",
    "get_binding_shape": "get_tensor_shape(name)",
    "get_binding_dtype": "get_tensor_dtype(name)",
    "binding_is_input": "get_tensor_mode(name)",
    "get_profile_shape": "get_tensor_profile_shape(name, profile)",
    "max_batch_size": "an optimization profile",
    "get_location": "get_tensor_location(name)",
    "get_profile_shape_input": "get_tensor_profile_values(profile, name)",
}

REPLACED: dict[str, dict[str, str]] = {
    "ICudaEngine": _INDEX,
    "IExecutionContext": {
        "execute": "execute_v2(bindings)",
        "execute_async": "execute_async_v3(stream_handle)",
        "execute_async_v2": "execute_async_v3(stream_handle)",
        "set_binding_shape": "set_input_shape(name, shape)",
        "get_binding_shape": "get_tensor_shape(name)",
        "set_shape_input": "set_tensor_address(name, address)",
        "active_optimization_profile_async": "set_optimization_profile_async(index, stream_handle)",
    },
    "Builder": {
        "build_engine": "build_serialized_network(network, config)",
        "build_cuda_engine": "build_serialized_network(network, config)",
        "max_batch_size": "an optimization profile",
        "max_workspace_size": "config.set_memory_pool_limit(MemoryPoolType.WORKSPACE, bytes)",
        "fp16_mode": "config.set_flag(BuilderFlag.FP16)",
        "int8_mode": "config.set_flag(BuilderFlag.INT8)",
        "strict_type_constraints": "config.set_flag(BuilderFlag.OBEY_PRECISION_CONSTRAINTS)",
        "int8_calibrator": "config.int8_calibrator",
    },
    "IBuilderConfig": {
        "max_workspace_size": "set_memory_pool_limit(MemoryPoolType.WORKSPACE, bytes)",
        "min_timing_iterations": "avg_timing_iterations",
    },
    "INetworkDefinition": {
        "add_fully_connected": "add_matrix_multiply and add_elementwise",
        "add_convolution": "add_convolution_nd",
        "add_deconvolution": "add_deconvolution_nd",
        "add_pooling": "add_pooling_nd",
        "add_padding": "add_padding_nd",
        "add_rnn_v2": "add_loop",
        "add_dist_collective": "several contexts; Kiln runs on one device",
    },
    "IConvolutionLayer": {
        "stride": "stride_nd",
        "padding": "padding_nd",
        "dilation": "dilation_nd",
        "kernel_size": "kernel_size_nd",
    },
    "IPoolingLayer": {"stride": "stride_nd", "padding": "padding_nd", "window_size": "window_size_nd"},
    "IResizeLayer": {"align_corners": "coordinate_transformation"},
    "module": {
        "UffParser": "OnnxParser, with the model converted to ONNX",
        "CaffeParser": "OnnxParser, with the model converted to ONNX",
        "DebugLogger": "Logger(Logger.VERBOSE)",
        "ResizeMode": "InterpolationMode",
        "SliceMode": "SampleMode",
        "DimsCHW": "Dims3",
        "DimsNCHW": "Dims4",
        "IFullyConnectedLayer": "add_matrix_multiply",
        "IRNNv2Layer": "add_loop",
        "tensorrt": "the module itself",
        "lite_engine": "the module itself",
        "infer": "the module itself",
    },
}
REPLACED["IDeconvolutionLayer"] = REPLACED["IConvolutionLayer"]


def hint(owner: str, name: str) -> str:
    """The text of an AttributeError."""
    text = f"{'module kiln.tensorrt' if owner == 'module' else owner} has no attribute {name!r}"
    new = REPLACED.get(owner, {}).get(name)
    if new is None:
        return text
    text += f"; use {new}"
    return f"{text} ({_V8})" if owner in _OF_V8 and name in REPLACED[owner] else text


_OF_V8 = {"ICudaEngine", "IExecutionContext", "Builder"}
