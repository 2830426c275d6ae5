"""Several profiles, shape inputs whose elements the host must know, and the questions about both."""

import numpy as np
import tensorrt as trt

logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
builder = trt.Builder(logger)
network = builder.create_network(0)
x = network.add_input("x", trt.float32, (-1, 4))
shape = network.add_input("shape", trt.int32, (2,))
reshape = network.add_shuffle(x)
reshape.set_input(1, shape)
doubled = network.add_elementwise(reshape.get_output(0), reshape.get_output(0), trt.ElementWiseOperation.SUM)
doubled.get_output(0).name = "y"
network.mark_output(doubled.get_output(0))
config = builder.create_builder_config()
for low, high in ((1, 4), (5, 8)):
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (low, 4), (low, 4), (high, 4))
    profile.set_shape_input("shape", (1, 1), (2, low * 2), (high * 4, high * 4))
    assert [tuple(d) for d in profile.get_shape("x")] == [(low, 4), (low, 4), (high, 4)]
    assert profile.get_shape_input("shape")[1] == [2, low * 2] and bool(profile)
    config.add_optimization_profile(profile)
assert config.num_optimization_profiles == 2
for bad in (((2, 4), (1, 4), (3, 4)), ((1, 4), (1, 4, 4), (1, 4))):
    try:
        builder.create_optimization_profile().set_shape("x", *bad)
        raise SystemExit("an inconsistent profile was taken")
    except RuntimeError as e:
        assert "x" in str(e)
plan = builder.build_serialized_network(network, config)
assert plan is not None, trt.last_error()
engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
assert engine.num_optimization_profiles == 2 and engine.is_shape_inference_io("shape")
assert not engine.is_shape_inference_io("x") and engine.get_tensor_location("shape") == trt.TensorLocation.HOST
assert tuple(engine.get_tensor_profile_shape("x", 1)[0]) == (5, 4)
assert engine.get_tensor_profile_values("shape", 0)[1] == [2, 2]
assert engine.get_tensor_profile_shape("x", 7) == []
context = engine.create_execution_context()
assert context.active_optimization_profile == 0
assert not context.all_binding_shapes_specified and sorted(context.infer_shapes()) == ["shape", "x"]
assert not context.set_input_shape("x", (6, 4)), "that is of the other profile"
assert context.set_optimization_profile_async(1, 0) and context.active_optimization_profile == 1
assert not context.set_optimization_profile_async(2, 0)
a = np.arange(24, dtype=np.float32).reshape(6, 4)
wanted_shape = np.array([3, 8], np.int32)
assert context.set_input_shape("x", a.shape) and context.all_binding_shapes_specified
assert context.infer_shapes() == ["shape"] and not context.all_shape_inputs_specified
assert context.set_tensor_address("shape", wanted_shape.ctypes.data)
assert context.infer_shapes() == [] and context.all_shape_inputs_specified
assert tuple(context.get_tensor_shape("y")) == (3, 8) and tuple(context.get_tensor_strides("y")) == (8, 1)
y = np.empty((3, 8), np.float32)
assert context.set_tensor_address("x", a.ctypes.data) and context.set_tensor_address("y", y.ctypes.data)
assert context.execute_async_v3(0), trt.last_error()
assert np.array_equal(y, a.reshape(3, 8) * 2)
wanted_shape[:] = (12, 2)
y = np.empty((12, 2), np.float32)
context.set_tensor_address("y", y.ctypes.data)
assert context.execute_async_v3(0) and np.array_equal(y, a.reshape(12, 2) * 2)
print("OK")
