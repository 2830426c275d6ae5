"""Settings that are accepted without effect: one warning each, and their values stay."""

import numpy as np
import tensorrt as trt


class Lines(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
        self.warnings = []

    def log(self, severity, msg):
        if severity == trt.ILogger.WARNING:
            self.warnings.append(msg)


logger = Lines()
builder = trt.Builder(logger)
network = builder.create_network(0)
config = builder.create_builder_config()
x = network.add_input("x", trt.float32, (1, 2))
y = network.add_identity(x).get_output(0)
network.mark_output(y)


def warns(action, word):
    before = len(logger.warnings)
    action()
    action()
    new = logger.warnings[before:]
    assert len(new) == 1 and word in new[0] and "without effect" in new[0], (word, new)


for flag in ("DIRECT_IO", "DEBUG", "GPU_FALLBACK", "WEIGHT_STREAMING", "STRICT_NANS", "EXCLUDE_LEAN_RUNTIME"):
    warns(lambda: config.set_flag(trt.BuilderFlag[flag]), flag)
    assert config.get_flag(trt.BuilderFlag[flag])
warns(lambda: setattr(config, "runtime_platform", trt.RuntimePlatform.WINDOWS_AMD64), "runtime_platform")
config.max_aux_streams = 2
assert config.max_aux_streams == 2
warns(lambda: setattr(config, "tiling_optimization_level", trt.TilingOptimizationLevel.FAST), "tiling")
warns(lambda: config.set_tactic_sources(1 << int(trt.TacticSource.CUBLAS)), "set_tactic_sources")
assert config.get_tactic_sources() == 1
warns(lambda: config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True), "PROFILE_SHARING_0806")
assert config.get_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806)
warns(lambda: setattr(builder, "max_threads", 4), "max_threads")
assert builder.max_threads == 4
warns(lambda: config.set_memory_pool_limit(trt.MemoryPoolType.DLA_LOCAL_DRAM, 1 << 30), "DLA_LOCAL_DRAM")
config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 20)
assert config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 1 << 20
runtime = trt.Runtime(logger)
warns(lambda: setattr(runtime, "engine_host_code_allowed", True), "engine_host_code_allowed")
warns(lambda: setattr(runtime, "tempfile_control_flags", 1), "tempfile_control_flags")
warns(lambda: setattr(runtime, "temporary_directory", "/tmp"), "temporary_directory")
assert runtime.engine_host_code_allowed and runtime.temporary_directory == "/tmp"
engine = runtime.deserialize_cuda_engine(builder.build_serialized_network(network, config))
assert engine.streamable_weights_size == 0 and engine.weight_streaming_budget_v2 == 0, "a network without weights"
engine.weight_streaming_budget_v2 = engine.get_weight_streaming_automatic_budget()
assert engine.weight_streaming_scratch_memory_size == 0 and engine.minimum_weight_streaming_budget >= 0
context = engine.create_execution_context_without_device_memory()
warns(lambda: setattr(context, "device_memory", 4096), "device_memory")
warns(lambda: context.set_aux_streams([1, 2]), "aux_streams")
warns(lambda: setattr(context, "debug_sync", True), "debug_sync")
assert context.update_device_memory_size_for_shapes() == engine.device_memory_size_v2
a = np.ones((1, 2), np.float32)
b = np.zeros_like(a)
assert context.execute_v2([a.ctypes.data, b.ctypes.data]) and (b == 1).all()
config.reset()
assert config.flags == 1 << int(trt.BuilderFlag.TF32) and config.max_aux_streams == 0
print("OK")
