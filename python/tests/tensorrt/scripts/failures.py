"""What comes back when something fails: None, False, an empty list or an exception, as scripts expect."""

import os
import subprocess
import sys

import numpy as np
import tensorrt as trt

logger = trt.Logger(trt.Logger.INTERNAL_ERROR)


def raises(kind, action):
    try:
        action()
    except kind as e:
        return str(e)
    raise SystemExit(f"{kind.__name__} was not raised")


if len(sys.argv) > 3:
    # Strict mode: the same failure raises.
    text = raises(RuntimeError, lambda: trt.Runtime(logger).deserialize_cuda_engine(b"no plan"))
    assert "KILNPLAN" in text
    raise SystemExit(0)

raises(TypeError, lambda: trt.Builder("no logger"))
raises(TypeError, lambda: trt.Builder(None))
builder = trt.Builder(logger)
network, config = builder.create_network(0), builder.create_builder_config()
raises(TypeError, lambda: network.add_input("x", np.float32, (1, 2)))
raises(TypeError, lambda: network.add_input("x", trt.float32, "12"))
x = network.add_input("x", trt.float32, (1, 2))
assert network.add_input("x", trt.float32, (1, 2)) is None and "x" in trt.last_error()
raises(TypeError, lambda: network.add_activation(None, trt.ActivationType.RELU))
raises(TypeError, lambda: network.add_activation(x, "relu"))
assert network.get_layer(0) is None and network.get_input(5) is None
raises(IndexError, lambda: network[3])
assert builder.build_serialized_network(network, config) is None, "a network without outputs"
raises(TypeError, lambda: builder.build_serialized_network(network))
raises(TypeError, lambda: builder.build_serialized_network(config, network))
network.mark_output(x)
assert network.num_outputs == 0 and "input" in trt.last_error()
layer = network.add_identity(x)
layer.get_output(0).name = "y"
network.mark_output(layer.get_output(0))
raises(TypeError, lambda: config.set_flag(3))
raises(TypeError, lambda: config.set_memory_pool_limit("workspace", 1))
raises(NotImplementedError, lambda: config.set_flag(trt.BuilderFlag.SAFETY_SCOPE))
raises(NotImplementedError, lambda: setattr(config, "default_device_type", trt.DeviceType.DLA))
raises(NotImplementedError, lambda: setattr(config, "DLA_core", 0))
raises(TypeError, lambda: setattr(config, "algorithm_selector", 3))
assert builder.num_DLA_cores == 0 and not config.can_run_on_DLA(layer)
assert builder.is_network_supported(network, config)
engine = builder.build_engine_with_config(network, config)
raises(TypeError, lambda: engine.get_tensor_shape(0))
assert engine.get_tensor_name(9) is None and engine.get_tensor_mode("z") == trt.TensorIOMode.NONE
raises(IndexError, lambda: engine[2])
assert [name for name in engine] == ["x", "y"]
context = engine.create_execution_context()
assert context.set_input_shape("x", (1, 3)) is False
assert context.set_input_shape("y", (1, 2)) is False and context.set_input_shape("z", (1, 2)) is False
raises(TypeError, lambda: context.set_input_shape("x", None))
assert context.set_tensor_address("z", 1) is False and context.execute_v2([0, 0]) is False
assert context.execute_v2([1]) is False
raises(TypeError, lambda: trt.Runtime(logger).deserialize_cuda_engine(None))
raises(TypeError, lambda: trt.Runtime(logger).deserialize_cuda_engine(12))
raises(NotImplementedError, lambda: trt.Runtime(logger).load_runtime("/no/such/file"))
raises(AttributeError, lambda: engine.num_bindings)
assert "num_io_tensors" in raises(AttributeError, lambda: engine.num_bindings)
raises(TypeError, lambda: trt.nptype(trt.bfloat16))
raises(ValueError, lambda: trt.Weights(np.ones((4, 4), np.float32).T[::2]))
raises(TypeError, lambda: trt.Weights(np.ones(3)))
raises(ValueError, lambda: trt.Dims(range(9)))
d = trt.Dims((1, 2, 3))
d[0] = -1
assert d == (-1, 2, 3) and d == [-1, 2, 3] and str(d) == "(-1, 2, 3)" and d[1:] == (2, 3) and len(d) == 3
assert tuple(trt.DimsHW(2, 3)) == (2, 3) and trt.DimsHW((2, 3)).w == 3 and trt.Dims4() == (0, 0, 0, 0)
assert int(trt.DataType.HALF) == 1 and trt.DataType.HALF.name == "HALF" and str(trt.DataType.HALF) == "DataType.HALF"
assert trt.DataType(1) is trt.DataType.HALF and "HALF" in trt.DataType.__members__
environment = {**os.environ, "KILN_TENSORRT_STRICT": "1"}
strict = [sys.executable, "-m", "kiln.tensorrt", os.path.abspath(sys.argv[0]), *sys.argv[1:3], "strict"]
assert subprocess.run(strict, env=environment).returncode == 0
print("OK")
