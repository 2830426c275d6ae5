"""Quantizes by explicit layers and by dynamic ranges, with types of layers, and reads formats and types back."""

import numpy as np
import tensorrt as trt

logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
rng = np.random.default_rng(2)
W1 = (rng.standard_normal((6, 3, 3, 3)) * 0.3).astype(np.float32)
W2 = (rng.standard_normal((4, 6, 1, 1)) * 0.5).astype(np.float32)
X = rng.uniform(-1, 1, (2, 3, 8, 8)).astype(np.float32)


def conv(x, w):
    p = w.shape[-1] // 2
    x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    v = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchvij,ocij->nohv", v, w)


def fake(x, scale, axis=None):
    if axis is not None:
        scale = scale.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return (np.clip(np.rint(x / scale), -128, 127) * scale).astype(np.float32)


def qdq(network, x, scale, axis=None):
    scale = np.asarray(scale, np.float32)
    s = network.add_constant(trt.Dims(scale.shape), trt.Weights(scale)).get_output(0)
    q = network.add_quantize(x, s)
    q.axis = 0 if axis is None else axis
    assert q.get_output(0).dtype == trt.int8
    d = network.add_dequantize(q.get_output(0), s)
    d.axis = 0 if axis is None else axis
    return d.get_output(0)


def explicit(typed):
    builder = trt.Builder(logger)
    flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) if typed else 0
    network = builder.create_network(flags)
    x = network.add_input("x", trt.float32, X.shape)
    s1, s2 = np.abs(W1).max((1, 2, 3)) / 127, np.abs(W2).max((1, 2, 3)) / 127
    k = qdq(network, network.add_constant(W1.shape, W1).get_output(0), s1, 0)
    layer = network.add_convolution_nd(qdq(network, x, 1 / 127), 6, (3, 3), trt.Weights())
    layer.padding_nd = (1, 1)
    layer.set_input(1, k)
    y = network.add_activation(layer.get_output(0), trt.ActivationType.RELU).get_output(0)
    k2 = qdq(network, network.add_constant(W2.shape, W2).get_output(0), s2, 0)
    layer = network.add_convolution_nd(qdq(network, y, 4 / 127), 4, (1, 1), trt.Weights())
    layer.set_input(1, k2)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    if not typed:
        config.set_flag(trt.BuilderFlag.INT8)
    plan = builder.build_serialized_network(network, config)
    assert plan is not None, trt.last_error()
    wanted = conv(fake(np.maximum(conv(fake(X, 1 / 127), fake(W1, s1, 0)), 0), 4 / 127), fake(W2, s2, 0))
    return plan, wanted


def run(plan, dtype=np.float32):
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    assert engine is not None, trt.last_error()
    context = engine.create_execution_context()
    y = np.empty(tuple(engine.get_tensor_shape("y")), dtype)
    assert trt.nptype(engine.get_tensor_dtype("y")) == dtype
    assert engine.get_tensor_format("y") == trt.TensorFormat.LINEAR and engine.get_tensor_format_desc("y")
    assert context.execute_v2([X.ctypes.data, y.ctypes.data])
    return y


for typed in (False, True):
    plan, wanted = explicit(typed)
    found = run(plan)
    # A value in the middle between two steps may be rounded to either.
    assert np.mean(np.abs(found - wanted) < 1e-4) > 0.95 and np.abs(found - wanted).max() < 0.1


def implicit(obey):
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    x = network.add_input("x", trt.float32, X.shape)
    assert x.dynamic_range is None
    x.dynamic_range = (-1.0, 1.0)
    assert x.dynamic_range == (-1.0, 1.0)
    layer = network.add_convolution_nd(x, 6, (3, 3), W1, np.zeros(6, np.float32))
    layer.padding_nd = (1, 1)
    layer.precision = trt.int8
    layer.set_output_type(0, trt.int8)
    assert layer.precision_is_set and layer.output_type_is_set(0) and layer.get_output_type(0) == trt.int8
    relu = network.add_activation(layer.get_output(0), trt.ActivationType.RELU)
    assert layer.get_output(0).set_dynamic_range(-4, 4) and relu.get_output(0).set_dynamic_range(0, 4)
    last = network.add_convolution_nd(relu.get_output(0), 4, trt.Dims2(1, 1), W2)
    last.precision = trt.float16
    last.reset_output_type(0)
    last.get_output(0).name = "y"
    network.mark_output(last.get_output(0))
    for i in range(network.num_layers):
        for j in range(network[i].num_outputs):
            t = network[i].get_output(j)
            if t.dynamic_range is None and not t.is_network_output:
                t.dynamic_range = (-1, 1)
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.INT8)
    config.set_flag(trt.BuilderFlag.FP16)
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS if obey else trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
    config.set_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION)
    assert config.get_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION)
    config.avg_timing_iterations = 2
    plan = builder.build_serialized_network(network, config)
    assert plan is not None, trt.last_error()
    return plan


exact = conv(np.maximum(conv(X, W1), 0), W2)
for obey in (False, True):
    found = run(implicit(obey))
    error = np.abs(found - exact).max()
    assert error < 0.15, error
    if obey:
        assert error > 1e-6, "eight-bit layers leave a trace"
print("OK")
