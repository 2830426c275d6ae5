"""A network written layer by layer with the weights of a PyTorch module, beside that module."""

import sys

import numpy as np
import tensorrt as trt
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(3)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, stride=2, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(16, 24, 3, padding=1), torch.nn.SiLU(), torch.nn.Flatten(), torch.nn.Linear(24 * 16, 12),
    torch.nn.Softmax(dim=1),
).eval().to(device)
arrays = {name: p.detach().cpu().numpy() for name, p in net.named_parameters()}

logger = trt.Logger(trt.Logger.WARNING)
builder = trt.Builder(logger)
network = builder.create_network(0)
x = network.add_input("x", trt.float32, (-1, 3, 16, 16))


def convolution(x, name, maps, stride):
    layer = network.add_convolution_nd(x, maps, (3, 3), arrays[f"{name}.weight"], arrays[f"{name}.bias"])
    layer.stride_nd, layer.padding_nd = (stride, stride), (1, 1)
    return layer.get_output(0)


h = network.add_activation(convolution(x, "0", 16, 2), trt.ActivationType.RELU).get_output(0)
pool = network.add_pooling_nd(h, trt.PoolingType.MAX, (2, 2))
pool.stride_nd = (2, 2)
h = convolution(pool.get_output(0), "3", 24, 1)
gate = network.add_activation(h, trt.ActivationType.SIGMOID).get_output(0)
h = network.add_elementwise(h, gate, trt.ElementWiseOperation.PROD).get_output(0)
flat = network.add_shuffle(h)
flat.reshape_dims = (0, -1)
w = network.add_constant((12, 24 * 16), trt.Weights(np.ascontiguousarray(arrays["6.weight"]))).get_output(0)
b = network.add_constant((1, 12), arrays["6.bias"].reshape(1, 12)).get_output(0)
none, transposed = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
h = network.add_matrix_multiply(flat.get_output(0), none, w, transposed).get_output(0)
h = network.add_elementwise(h, b, trt.ElementWiseOperation.SUM).get_output(0)
soft = network.add_softmax(h)
soft.axes = 1 << 1
soft.get_output(0).name = "y"
network.mark_output(soft.get_output(0))
config = builder.create_builder_config()
config.builder_optimization_level = 1
config.clear_flag(trt.BuilderFlag.TF32)
profile = builder.create_optimization_profile()
profile.set_shape("x", (1, 3, 16, 16), (4, 3, 16, 16), (9, 3, 16, 16))
config.add_optimization_profile(profile)
engine = trt.Runtime(logger).deserialize_cuda_engine(builder.build_serialized_network(network, config))
context = engine.create_execution_context()
for count in (1, 9):
    x = torch.randn(count, 3, 16, 16, device=device)
    y = torch.empty(count, 12, device=device)
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.data_ptr())
    context.set_tensor_address("y", y.data_ptr())
    stream = torch.cuda.Stream() if device == "cuda" else None
    if stream is not None:
        stream.wait_stream(torch.cuda.current_stream())
    assert context.execute_async_v3(stream.cuda_stream if stream is not None else 0)
    if stream is not None:
        torch.cuda.current_stream().wait_stream(stream)
    with torch.no_grad():
        torch.testing.assert_close(y, net(x), rtol=1e-4, atol=1e-5)
print("OK")
