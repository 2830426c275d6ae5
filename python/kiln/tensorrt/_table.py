"""The names of TensorRT 10.16 with their class: A works, B is accepted without effect, C is refused.

`_A`, `_B` and `_C` list members by class of the interface; a docs page and a test are made from them.
"""

from __future__ import annotations

A, B, C = "A", "B", "C"

_A: dict[str, str] = {
    "Builder": "create_network create_builder_config create_optimization_profile build_serialized_network "
    "build_engine_with_config build_serialized_network_to_stream is_network_supported platform_has_tf32 "
    "platform_has_fast_fp16 platform_has_fast_int8 max_DLA_batch_size num_DLA_cores error_recorder logger reset "
    "get_plugin_registry",
    "IBuilderConfig": "build_route all_build_routes flags set_flag clear_flag get_flag set_memory_pool_limit get_memory_pool_limit reset "
    "builder_optimization_level avg_timing_iterations max_num_tactics add_optimization_profile "
    "num_optimization_profiles int8_calibrator set_calibration_profile get_calibration_profile create_timing_cache "
    "set_timing_cache get_timing_cache progress_monitor profiling_verbosity plugins_to_serialize get_device_type "
    "is_device_type_set reset_device_type can_run_on_DLA engine_capability default_device_type set_device_type "
    "hardware_compatibility_level max_aux_streams algorithm_selector",
    "IOptimizationProfile": "set_shape get_shape set_shape_input get_shape_input",
    "INetworkDefinition": "name num_layers num_inputs num_outputs builder flags get_flag has_implicit_batch_dimension "
    "error_recorder get_layer get_input get_output mark_output unmark_output mark_output_for_shapes "
    "unmark_output_for_shapes mark_debug unmark_debug is_debug_tensor mark_unfused_tensors_as_debug_tensors "
    "unmark_unfused_tensors_as_debug_tensors remove_tensor set_weights_name mark_weights_refittable "
    "unmark_weights_refittable are_weights_marked_refittable add_input add_activation add_assertion add_attention "
    "add_attention_v2 add_cast add_concatenation add_constant add_convolution_nd add_cumulative add_deconvolution_nd "
    "add_dequantize add_dynamic_quantize add_dynamic_quantize_v2 add_einsum add_elementwise add_fill add_gather "
    "add_gather_v2 add_grid_sample add_identity add_if_conditional add_kv_cache_update add_loop add_lrn "
    "add_matrix_multiply add_moe add_nms add_non_zero add_normalization add_normalization_v2 add_one_hot "
    "add_padding_nd add_parametric_relu add_plugin add_plugin_v2 add_plugin_v3 add_pooling_nd add_quantize add_ragged_softmax "
    "add_reduce add_resize add_reverse_sequence add_rotary_embedding add_scale add_scale_nd add_scatter add_select "
    "add_shape add_shuffle add_slice add_softmax add_squeeze add_topk add_unary add_unsqueeze",
    "ITensor": "name shape dtype allowed_formats is_network_input is_network_output is_shape_tensor "
    "is_execution_tensor dynamic_range set_dynamic_range reset_dynamic_range set_dimension_name get_dimension_name",
    "ILayer": "name metadata type num_inputs num_outputs precision precision_is_set set_input get_input get_output "
    "reset_precision set_output_type get_output_type output_type_is_set reset_output_type",
    "IActivationLayer": "type alpha beta",
    "IAssertionLayer": "message",
    "IAttention": "mask norm_op decomposable causal name normalization_quantize_scale normalization_quantize_to_type "
    "num_inputs num_outputs set_input get_input get_output",
    "IAttentionBoundaryLayer": "attention",
    "ICastLayer": "to_type",
    "IConcatenationLayer": "axis",
    "IConstantLayer": "weights shape",
    "IConvolutionLayer": "num_output_maps pre_padding post_padding padding_mode num_groups kernel bias kernel_size_nd "
    "stride_nd padding_nd dilation_nd",
    "ICumulativeLayer": "op exclusive reverse",
    "IDeconvolutionLayer": "num_output_maps pre_padding post_padding padding_mode num_groups kernel bias "
    "kernel_size_nd stride_nd padding_nd dilation_nd",
    "IDequantizeLayer": "axis to_type",
    "IDynamicQuantizeLayer": "axis block_size to_type scale_type",
    "IEinsumLayer": "equation",
    "IElementWiseLayer": "op",
    "IFillLayer": "shape operation alpha beta to_type set_input is_alpha_beta_int64",
    "IGatherLayer": "axis num_elementwise_dims mode",
    "IGridSampleLayer": "interpolation_mode align_corners sample_mode",
    "IIfConditional": "set_condition add_output add_input name",
    "IIfConditionalBoundaryLayer": "conditional",
    "IIteratorLayer": "axis reverse",
    "IKVCacheUpdateLayer": "cache_mode",
    "ILRNLayer": "window_size alpha beta k",
    "ILoop": "add_recurrence add_trip_limit add_iterator add_loop_output name",
    "ILoopBoundaryLayer": "loop",
    "ILoopOutputLayer": "axis kind set_input",
    "IMatrixMultiplyLayer": "op0 op1",
    "IMoELayer": "set_gated_weights set_gated_biases activation_type set_swiglu_params swiglu_limit swiglu_alpha "
    "swiglu_beta",
    "INMSLayer": "bounding_box_format topk_box_limit indices_type set_input",
    "INonZeroLayer": "indices_type",
    "INormalizationLayer": "epsilon axes num_groups",
    "IOneHotLayer": "axis",
    "IPaddingLayer": "pre_padding_nd post_padding_nd",
    "IPluginV2Layer": "plugin",
    "IPluginV3Layer": "plugin",
    "IPoolingLayer": "type pre_padding post_padding padding_mode blend_factor average_count_excludes_padding "
    "window_size_nd stride_nd padding_nd",
    "IQuantizeLayer": "axis to_type",
    "IRecurrenceLayer": "set_input",
    "IReduceLayer": "op axes keep_dims",
    "IResizeLayer": "shape scales resize_mode coordinate_transformation selector_for_single_pixel nearest_rounding "
    "exclude_outside cubic_coeff set_input",
    "IReverseSequenceLayer": "batch_axis sequence_axis",
    "IRotaryEmbeddingLayer": "interleaved rotary_embedding_dim",
    "IScaleLayer": "mode shift scale power channel_axis",
    "IScatterLayer": "axis mode",
    "IShuffleLayer": "first_transpose reshape_dims second_transpose zero_is_placeholder set_input",
    "ISliceLayer": "start shape stride mode axes set_input",
    "ISoftMaxLayer": "axes",
    "ISqueezeLayer": "set_input",
    "ITopKLayer": "op k axes indices_type set_input",
    "ITripLimitLayer": "kind",
    "IUnaryLayer": "op",
    "IUnsqueezeLayer": "set_input",
    "OnnxParser": "parse parse_from_file parse_with_weight_descriptors supports_model supports_model_v2 num_subgraphs "
    "is_subgraph_supported get_subgraph_nodes supports_operator num_errors get_error clear_errors flags get_flag "
    "set_flag clear_flag get_layer_output_tensor get_used_vc_plugin_libraries load_model_proto parse_model_proto",
    "ParserError": "code desc file line func node node_name node_operator local_function_stack "
    "local_function_stack_size",
    "OnnxParserRefitter": "refit_from_bytes refit_from_file num_errors get_error clear_errors load_model_proto "
    "refit_model_proto",
    "Runtime": "deserialize_cuda_engine num_DLA_cores DLA_core error_recorder logger get_plugin_registry",
    "ICudaEngine": "num_io_tensors get_tensor_name get_tensor_mode get_tensor_shape get_tensor_dtype "
    "get_tensor_location is_shape_inference_io get_tensor_format get_tensor_format_desc get_tensor_vectorized_dim "
    "get_tensor_components_per_element get_tensor_bytes_per_component get_aliased_input_tensor "
    "num_optimization_profiles get_tensor_profile_shape get_tensor_profile_values name num_layers refittable "
    "has_implicit_batch_dimension engine_capability device_memory_size device_memory_size_v2 "
    "get_device_memory_size_for_profile get_device_memory_size_for_profile_v2 tactic_sources profiling_verbosity "
    "hardware_compatibility_level num_aux_streams get_engine_stat is_debug_tensor streamable_weights_size "
    "weight_streaming_budget weight_streaming_budget_v2 minimum_weight_streaming_budget "
    "weight_streaming_scratch_memory_size get_weight_streaming_automatic_budget serialize "
    "create_serialization_config serialize_with_config create_execution_context "
    "create_execution_context_without_device_memory create_runtime_config create_engine_inspector error_recorder",
    "IExecutionContext": "engine name active_optimization_profile set_optimization_profile_async set_input_shape "
    "get_tensor_shape get_tensor_strides infer_shapes all_binding_shapes_specified all_shape_inputs_specified "
    "set_tensor_address get_tensor_address set_output_allocator get_output_allocator get_max_output_size execute_v2 "
    "execute_async_v3 profiler enqueue_emits_profile report_to_profiler set_debug_listener get_debug_listener "
    "set_tensor_debug_state get_debug_state set_all_tensors_debug_state unfused_tensors_debug_state "
    "set_input_consumed_event get_input_consumed_event error_recorder get_runtime_config "
    "update_device_memory_size_for_shapes",
    "IRuntimeConfig": "set_execution_context_allocation_strategy get_execution_context_allocation_strategy",
    "ISerializationConfig": "flags set_flag clear_flag get_flag",
    "EngineInspector": "execution_context get_layer_information get_engine_information error_recorder",
    "ITimingCache": "serialize combine reset queryKeys query update",
    "TimingCacheKey": "parse",
    "TimingCacheValue": "tacticHash timingMSec",
    "Refitter": "set_weights set_named_weights get_named_weights get_weights_location unset_named_weights "
    "get_weights_prototype refit_cuda_engine refit_cuda_engine_async get_missing get_missing_weights get_all "
    "get_all_weights weights_validation error_recorder logger get_tensors_with_dynamic_range set_dynamic_range "
    "get_dynamic_range",
    "Logger": "log min_severity Severity INTERNAL_ERROR ERROR WARNING INFO VERBOSE",
    "ILogger": "log Severity",
    "IProfiler": "report_layer_time",
    "Profiler": "report_layer_time",
    "IAlgorithm": "algorithm_variant timing_msec workspace_size get_algorithm_io_info",
    "IAlgorithmContext": "name num_inputs num_outputs get_shape",
    "IAlgorithmIOInfo": "dtype strides vectorized_dim components_per_element",
    "IAlgorithmSelector": "select_algorithms report_algorithms",
    "IAlgorithmVariant": "implementation tactic",
    "IProgressMonitor": "phase_start step_complete phase_finish",
    "IErrorRecorder": "MAX_DESC_LENGTH num_errors get_error_code get_error_desc has_overflowed clear report_error",
    "IOutputAllocator": "reallocate_output notify_shape",
    "IStreamReader": "read",
    "IStreamReaderV2": "read seek",
    "IStreamWriter": "write",
    "IDebugListener": "process_debug_tensor",
    "IInt8Calibrator": "get_batch_size get_batch get_algorithm read_calibration_cache write_calibration_cache",
    "IInt8EntropyCalibrator": "get_batch get_algorithm",
    "IInt8EntropyCalibrator2": "get_batch get_algorithm",
    "IInt8LegacyCalibrator": "get_batch get_algorithm",
    "IInt8MinMaxCalibrator": "get_batch get_algorithm",
    "IPluginRegistry": "plugin_creator_list get_plugin_creator get_creator all_creators all_creators_recursive "
    "load_library error_recorder parent_search_enabled register_creator deregister_creator acquire_plugin_resource "
    "release_plugin_resource",
    "IDimensionExpr": "is_constant get_constant_value is_size_tensor",
    "IExprBuilder": "constant operation declare_size_tensor",
    "IPluginV2DynamicExt": "num_outputs plugin_type plugin_version plugin_namespace serialization_size initialize terminate "
    "destroy clone serialize get_serialization_size get_output_datatype get_output_dimensions "
    "supports_format_combination configure_plugin get_workspace_size enqueue",
    "IPluginV3": "get_capability_interface clone destroy",
    "IPluginV3OneBuild": "num_outputs format_combination_limit metadata_string timing_cache_id configure_plugin "
    "get_output_data_types get_output_shapes supports_format_combination get_workspace_size get_valid_tactics",
    "IPluginV3OneBuildV2": "get_aliased_input",
    "IPluginV3OneCore": "plugin_name plugin_version plugin_namespace",
    "IPluginV3OneRuntime": "attach_to_context get_fields_to_serialize on_shape_change set_tactic enqueue",
    "IPluginResource": "clone release",
    "IPluginCreator": "name plugin_version plugin_namespace field_names create_plugin",
    "IPluginCreatorV3One": "name plugin_version plugin_namespace field_names create_plugin",
    "PluginField": "name data type size",
    "PluginFieldCollection": "append clear",
    "Dims": "MAX_DIMS",
    "DimsHW": "h w",
    "Weights": "dtype size nbytes numpy",
    "IHostMemory": "dtype nbytes",
    "Permutation": "",
}

_B: dict[str, str] = {
    "Builder": "gpu_allocator max_threads",
    "IBuilderConfig": "set_tactic_sources get_tactic_sources set_preview_feature get_preview_feature "
    "quantization_flags set_quantization_flag clear_quantization_flag get_quantization_flag "
    "runtime_platform profile_stream l2_limit_for_tiling "
    "tiling_optimization_level remote_auto_tuning_config",
    "IOptimizationProfile": "extra_memory_target",
    "ITensor": "broadcast_across_batch location",
    "INormalizationLayer": "compute_precision",
    "Runtime": "gpu_allocator max_threads temporary_directory tempfile_control_flags engine_host_code_allowed",
    "IExecutionContext": "device_memory set_device_memory debug_sync persistent_cache_limit nvtx_verbosity "
    "temporary_allocator set_aux_streams",
    "Refitter": "max_threads",
    "IGpuAllocator": "allocate deallocate reallocate allocate_async deallocate_async",
    "IGpuAsyncAllocator": "allocate deallocate allocate_async deallocate_async",
    "BuilderFlag": "DEBUG GPU_FALLBACK DIRECT_IO EXCLUDE_LEAN_RUNTIME "
    "DISABLE_COMPILATION_CACHE WEIGHT_STREAMING INT4 FP4 STRICT_NANS MONITOR_MEMORY DISTRIBUTIVE_INDEPENDENCE "
    "REQUIRE_USER_ALLOCATION",
}

_C: dict[str, str] = {
    "IBuilderConfig": "DLA_core",
    "INetworkDefinition": "add_dist_collective",
    "OnnxParser": "load_initializer",
    "OnnxParserRefitter": "load_initializer",
    "Runtime": "load_runtime",
    "IExecutionContext": "set_communicator",
    "IPluginRegistry": "deregister_library",
    "BuilderFlag": "SAFETY_SCOPE",
}


def members() -> dict[str, dict[str, str]]:
    """Class of each member, by the class of the interface that has it."""
    table: dict[str, dict[str, str]] = {}
    for letter, lists in ((A, _A), (B, _B), (C, _C)):
        for owner, names in lists.items():
            table.setdefault(owner, {}).update(dict.fromkeys(names.split(), letter))
    return table
