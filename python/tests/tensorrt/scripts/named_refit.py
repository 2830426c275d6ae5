"""Updates weights of an engine that a network of its own layers made, by role and by name, with prototypes and locations."""

import numpy as np
import tensorrt as trt

logger = trt.Logger()
rng = np.random.default_rng(0)


def weights_of(seed):
    r = np.random.default_rng(seed)
    return {
        "conv.w": r.standard_normal((6, 3, 3, 3)).astype(np.float32),
        "conv.b": r.standard_normal(6).astype(np.float32),
        "fc.w": r.standard_normal((6 * 4 * 4, 5)).astype(np.float32),
        "fc.b": r.standard_normal((1, 5)).astype(np.float32),
    }


def numpy_net(x, w):
    k = w["conv.w"]
    n = x.shape[0]
    y = np.zeros((n, 6, 4, 4), np.float32)
    for i in range(4):
        for j in range(4):
            y[:, :, i, j] = np.tensordot(x[:, :, i : i + 3, j : j + 3], k, axes=([1, 2, 3], [1, 2, 3])) + w["conv.b"]
    y = np.maximum(y, 0).reshape(n, -1)
    return y @ w["fc.w"] + w["fc.b"]


def populate_network(network, w):
    x = network.add_input(name="data", dtype=trt.float32, shape=(2, 3, 6, 6))
    conv = network.add_convolution_nd(
        input=x, num_output_maps=6, kernel_shape=(3, 3), kernel=trt.Weights(w["conv.w"]), bias=w["conv.b"]
    )
    conv.name = "conv_1"
    conv.stride_nd = (1, 1)
    relu = network.add_activation(input=conv.get_output(0), type=trt.ActivationType.RELU)
    flat = network.add_shuffle(relu.get_output(0))
    flat.reshape_dims = trt.Dims2(2, 96)
    c = network.add_constant((96, 5), trt.Weights(w["fc.w"]))
    c.name = "fc_w"
    b = network.add_constant((1, 5), trt.Weights(w["fc.b"]))
    b.name = "fc_b"
    network.set_weights_name(w["fc.w"], "fc.weight")
    mm = network.add_matrix_multiply(
        flat.get_output(0), trt.MatrixOperation.NONE, c.get_output(0), trt.MatrixOperation.NONE
    )
    out = network.add_elementwise(mm.get_output(0), b.get_output(0), trt.ElementWiseOperation.SUM)
    out.get_output(0).name = "prob"
    network.mark_output(tensor=out.get_output(0))


def run(engine, x):
    ctx = engine.create_execution_context()
    out = np.empty((2, 5), np.float32)
    ctx.set_tensor_address("data", x.ctypes.data)
    ctx.set_tensor_address("prob", out.ctypes.data)
    assert ctx.execute_async_v3(0)
    return out


w0 = weights_of(1)
builder = trt.Builder(logger)
net = builder.create_network(0)
populate_network(net, w0)
config = builder.create_builder_config()
config.set_flag(trt.BuilderFlag.REFIT)
runtime = trt.Runtime(logger)
engine = runtime.deserialize_cuda_engine(builder.build_serialized_network(net, config))
assert engine.refittable
x = rng.standard_normal((2, 3, 6, 6)).astype(np.float32)
np.testing.assert_allclose(run(engine, x), numpy_net(x, w0), rtol=1e-3, atol=1e-3)
w1 = weights_of(2)
with trt.Refitter(engine, logger) as refitter:
    refitter.weights_validation = True
    names, roles = refitter.get_all()
    print(list(zip(names, roles)))
    assert ("conv_1", trt.WeightsRole.KERNEL) in list(zip(names, roles))
    assert refitter.set_weights("conv_1", trt.WeightsRole.KERNEL, w1["conv.w"])
    assert not refitter.set_weights("conv_1", trt.WeightsRole.KERNEL, np.zeros(3, np.float32))
    assert refitter.set_weights("conv_1", trt.WeightsRole.BIAS, trt.Weights(w1["conv.b"]))
    all_named = refitter.get_all_weights()
    assert "fc.weight" in all_named, all_named
    proto = refitter.get_weights_prototype("fc.weight")
    assert proto.dtype == trt.float32 and proto.size == 480
    assert refitter.set_named_weights("fc.weight", trt.Weights(w1["fc.w"]), trt.TensorLocation.HOST)
    assert refitter.get_weights_location("fc.weight") == trt.TensorLocation.HOST
    assert refitter.set_weights("fc_b", trt.WeightsRole.CONSTANT, w1["fc.b"])
    missing_layers, weight_roles = refitter.get_missing()
    for layer_name, role in zip(missing_layers, weight_roles):
        print("[", layer_name, "-", role, "]")
    assert len(missing_layers) == 0
    assert refitter.refit_cuda_engine()
np.testing.assert_allclose(run(engine, x), numpy_net(x, w1), rtol=1e-3, atol=1e-3)
print("OK")
