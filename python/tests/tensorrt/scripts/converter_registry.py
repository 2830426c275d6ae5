"""Converts a model of plain modules layer by layer, by a registry of converters as torch2trt has one."""

import os
import sys

import numpy as np
import tensorrt as trt

CONVERTERS = {}


def tensorrt_converter(name):
    def register(function):
        CONVERTERS[name] = function
        return function

    return register


class Context:
    def __init__(self, network):
        self.network = network
        self.method_args = {}


class Module:
    def __init__(self, kind, **params):
        self.kind = kind
        self.__dict__.update(params)


def trt_(network, *tensors):
    """Makes constants of numbers and arrays, and gives all tensors the same rank."""
    made = []
    rank = max(len(t.shape) for t in tensors if isinstance(t, trt.ITensor))
    for t in tensors:
        if isinstance(t, (int, float)):
            t = np.full([1] * rank, t, dtype=np.float32)
        if isinstance(t, np.ndarray):
            layer = network.add_constant(tuple(t.shape), t)
            t = layer.get_output(0)
        if len(t.shape) < rank:
            shuffle = network.add_shuffle(t)
            shuffle.reshape_dims = tuple([1] * (rank - len(t.shape)) + list(t.shape))
            t = shuffle.get_output(0)
        made.append(t)
    return made


def torch_dim_to_trt_axes(dims):
    axes = 0
    for d in dims if isinstance(dims, (tuple, list)) else (dims,):
        axes |= 1 << d
    return axes


@tensorrt_converter("Conv2d")
def convert_conv2d(ctx, m, x):
    layer = ctx.network.add_convolution_nd(
        input=x, num_output_maps=m.weight.shape[0], kernel_shape=m.weight.shape[2:], kernel=m.weight,
        bias=trt.Weights() if m.bias is None else m.bias,
    )
    layer.stride_nd = (m.stride, m.stride)
    layer.padding_nd = (m.padding, m.padding)
    layer.dilation_nd = (1, 1)
    if m.groups > 1:
        layer.num_groups = m.groups
    return layer.get_output(0)


@tensorrt_converter("ConvTranspose2d")
def convert_deconv(ctx, m, x):
    layer = ctx.network.add_deconvolution_nd(x, m.weight.shape[1], trt.DimsHW(*m.weight.shape[2:]), m.weight, m.bias)
    layer.stride_nd = trt.DimsHW(m.stride, m.stride)
    return layer.get_output(0)


@tensorrt_converter("BatchNorm2d")
def convert_batch_norm(ctx, m, x):
    scale = m.weight / np.sqrt(m.var + m.eps)
    bias = m.bias - m.mean * scale
    power = np.ones_like(scale)
    return ctx.network.add_scale_nd(x, trt.ScaleMode.CHANNEL, bias, scale, power, 1).get_output(0)


@tensorrt_converter("LeakyReLU")
def convert_leaky(ctx, m, x):
    layer = ctx.network.add_activation(x, trt.ActivationType.LEAKY_RELU)
    layer.alpha = m.slope
    return layer.get_output(0)


@tensorrt_converter("Hardswish")
def convert_hardswish(ctx, m, x):
    three, six = trt_(ctx.network, x, 3.0)[1], trt_(ctx.network, x, 6.0)[1]
    y = ctx.network.add_elementwise(x, three, trt.ElementWiseOperation.SUM).get_output(0)
    clip = ctx.network.add_activation(y, trt.ActivationType.CLIP)
    clip.alpha, clip.beta = 0.0, 6.0
    y = ctx.network.add_elementwise(clip.get_output(0), six, trt.ElementWiseOperation.DIV).get_output(0)
    return ctx.network.add_elementwise(x, y, trt.ElementWiseOperation.PROD).get_output(0)


@tensorrt_converter("MaxPool2d")
def convert_max_pool(ctx, m, x):
    layer = ctx.network.add_pooling_nd(x, trt.PoolingType.MAX, (m.kernel, m.kernel))
    layer.stride_nd, layer.padding_nd = (m.stride, m.stride), (m.padding, m.padding)
    if m.ceil:
        layer.padding_mode = trt.PaddingMode.EXPLICIT_ROUND_UP
    return layer.get_output(0)


@tensorrt_converter("AvgPool2d")
def convert_avg_pool(ctx, m, x):
    layer = ctx.network.add_pooling_nd(x, trt.PoolingType.AVERAGE, trt.DimsHW(m.kernel, m.kernel))
    layer.stride_nd = trt.DimsHW(m.stride, m.stride)
    layer.average_count_excludes_padding = False
    layer.padding_nd = trt.DimsHW(m.padding, m.padding)
    return layer.get_output(0)


@tensorrt_converter("Pad")
def convert_pad(ctx, m, x):
    return ctx.network.add_padding_nd(x, trt.DimsHW(*m.pre), trt.DimsHW(*m.post)).get_output(0)


@tensorrt_converter("Upsample")
def convert_upsample(ctx, m, x):
    layer = ctx.network.add_resize(x)
    layer.scales = [1.0, 1.0, m.scale, m.scale]
    layer.resize_mode = trt.InterpolationMode.LINEAR
    layer.coordinate_transformation = trt.ResizeCoordinateTransformation.HALF_PIXEL
    return layer.get_output(0)


@tensorrt_converter("InstanceNorm2d")
def convert_instance_norm(ctx, m, x):
    axes = torch_dim_to_trt_axes((2, 3))
    mean = ctx.network.add_reduce(x, trt.ReduceOperation.AVG, axes, True).get_output(0)
    delta = ctx.network.add_elementwise(x, mean, trt.ElementWiseOperation.SUB).get_output(0)
    square = ctx.network.add_scale(
        delta, trt.ScaleMode.UNIFORM, np.zeros(1, np.float32), np.ones(1, np.float32), np.array([2.0], np.float32)
    ).get_output(0)
    var = ctx.network.add_reduce(square, trt.ReduceOperation.AVG, axes, True).get_output(0)
    var = ctx.network.add_scale(
        var, trt.ScaleMode.UNIFORM, np.array([m.eps], np.float32), np.ones(1, np.float32), np.array([0.5], np.float32)
    ).get_output(0)
    return ctx.network.add_elementwise(delta, var, trt.ElementWiseOperation.DIV).get_output(0)


@tensorrt_converter("Mean")
def convert_mean(ctx, m, x):
    return ctx.network.add_reduce(x, trt.ReduceOperation.AVG, torch_dim_to_trt_axes(m.dims), m.keep).get_output(0)


@tensorrt_converter("Linear")
def convert_linear(ctx, m, x):
    weight, bias = trt_(ctx.network, x, m.weight)[1], None
    y = ctx.network.add_matrix_multiply(x, trt.MatrixOperation.NONE, weight, trt.MatrixOperation.TRANSPOSE).get_output(0)
    x, bias = trt_(ctx.network, y, m.bias)
    return ctx.network.add_elementwise(x, bias, trt.ElementWiseOperation.SUM).get_output(0)


@tensorrt_converter("Softmax")
def convert_softmax(ctx, m, x):
    layer = ctx.network.add_softmax(input=x)
    layer.axes = torch_dim_to_trt_axes(m.dim)
    return layer.get_output(0)


class LayerNamingNetworkWrapper:
    """Names each layer that is added, as torch2trt does: all attributes of the network are passed through."""

    def __init__(self, network):
        self._network, self._names = network, []

    def __getattr__(self, name):
        attribute = getattr(self._network, name)
        if not callable(attribute):
            return attribute

        def wrapper(*args, **kwargs):
            made = attribute(*args, **kwargs)
            if isinstance(made, trt.ILayer):
                made.name = f"[{made.type.name} #{len(self._names)}] {name}"
                self._names.append(made.name)
            return made

        return wrapper


rng = np.random.default_rng(3)


def w(*shape):
    return (rng.standard_normal(shape) * 0.3).astype(np.float32)


model = [
    Module("Pad", pre=(1, 0), post=(0, 1)),
    Module("Conv2d", weight=w(8, 3, 3, 3), bias=w(8), stride=1, padding=1, groups=1),
    Module("BatchNorm2d", weight=w(8), bias=w(8), mean=w(8), var=np.abs(w(8)) + 0.5, eps=1e-5),
    Module("Hardswish"),
    Module("MaxPool2d", kernel=3, stride=2, padding=1, ceil=True),
    Module("Conv2d", weight=w(8, 1, 3, 3), bias=None, stride=1, padding=1, groups=8),
    Module("LeakyReLU", slope=0.1),
    Module("InstanceNorm2d", eps=1e-5),
    Module("ConvTranspose2d", weight=w(8, 4, 2, 2), bias=w(4), stride=2),
    Module("AvgPool2d", kernel=3, stride=1, padding=1),
    Module("Upsample", scale=2.0),
    Module("Mean", dims=(2, 3), keep=False),
    Module("Linear", weight=w(5, 4), bias=w(5)),
    Module("Softmax", dim=1),
]


def reference(x):
    def conv(x, m):
        x = np.pad(x, ((0, 0), (0, 0), (m.padding,) * 2, (m.padding,) * 2))
        windows = np.lib.stride_tricks.sliding_window_view(x, m.weight.shape[2:], (2, 3))[:, :, :: m.stride, :: m.stride]
        g = m.groups
        n, c, h, v = windows.shape[:4]
        split = windows.reshape(n, g, c // g, h, v, *windows.shape[4:])
        kernels = m.weight.reshape(g, -1, *m.weight.shape[1:])
        y = np.einsum("ngchvij,gocij->ngohv", split, kernels).reshape(n, -1, h, v)
        return y if m.bias is None else y + m.bias[:, None, None]

    for m in model:
        if m.kind == "Pad":
            x = np.pad(x, ((0, 0), (0, 0), (m.pre[0], m.post[0]), (m.pre[1], m.post[1])))
        elif m.kind == "Conv2d":
            x = conv(x, m)
        elif m.kind == "BatchNorm2d":
            scale = (m.weight / np.sqrt(m.var + m.eps))[:, None, None]
            x = (x - m.mean[:, None, None]) * scale + m.bias[:, None, None]
        elif m.kind == "Hardswish":
            x = x * np.clip(x + 3, 0, 6) / 6
        elif m.kind == "MaxPool2d":
            size = [-(-(n + 2 * m.padding - m.kernel) // m.stride) + 1 for n in x.shape[2:]]
            need = [(s - 1) * m.stride + m.kernel - n - m.padding for s, n in zip(size, x.shape[2:])]
            x = np.pad(x, ((0, 0), (0, 0), (m.padding, need[0]), (m.padding, need[1])), constant_values=-np.inf)
            x = np.lib.stride_tricks.sliding_window_view(x, (m.kernel, m.kernel), (2, 3))[:, :, :: m.stride, :: m.stride]
            x = x.max((-1, -2))
        elif m.kind == "LeakyReLU":
            x = np.where(x > 0, x, m.slope * x)
        elif m.kind == "InstanceNorm2d":
            x = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + m.eps)
        elif m.kind == "ConvTranspose2d":
            n, _, h, v = x.shape
            y = np.einsum("nchv,coij->nohivj", x, m.weight)
            x = y.reshape(n, y.shape[1], h * 2, v * 2) + m.bias[:, None, None]
        elif m.kind == "AvgPool2d":
            x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
            x = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3)).mean((-1, -2))
        elif m.kind == "Upsample":
            for axis in (2, 3):
                n = x.shape[axis]
                at = np.clip((np.arange(2 * n) + 0.5) / 2 - 0.5, 0, n - 1)
                low = np.floor(at).astype(int)
                high, part = np.minimum(low + 1, n - 1), (at - low).astype(np.float32)
                shape = [1] * 4
                shape[axis] = -1
                x = np.take(x, low, axis) * (1 - part.reshape(shape)) + np.take(x, high, axis) * part.reshape(shape)
        elif m.kind == "Mean":
            x = x.mean(m.dims, keepdims=m.keep)
        elif m.kind == "Linear":
            x = x @ m.weight.T + m.bias
        elif m.kind == "Softmax":
            e = np.exp(x - x.max(m.dim, keepdims=True))
            x = e / e.sum(m.dim, keepdims=True)
    return x


logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
ctx = Context(LayerNamingNetworkWrapper(network))
x = network.add_input(name="input_0", shape=(-1, 3, 10, 12), dtype=trt.float32)
for m in model:
    x = CONVERTERS[m.kind](ctx, m, x)
x.name = "output_0"
network.mark_output(x)
names = [network.get_layer(i).name for i in range(network.num_layers)]
assert len(set(names)) == len(names) and any("CONVOLUTION" in n for n in names), names
config = builder.create_builder_config()
profile = builder.create_optimization_profile()
profile.set_shape("input_0", min=(1, 3, 10, 12), opt=(2, 3, 10, 12), max=(4, 3, 10, 12))
config.add_optimization_profile(profile)
config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 25)
engine = trt.Runtime(logger).deserialize_cuda_engine(builder.build_serialized_network(network, config))
context = engine.create_execution_context()
a = rng.standard_normal((3, 3, 10, 12)).astype(np.float32)
context.set_input_shape("input_0", a.shape)
y = np.empty(tuple(context.get_tensor_shape("output_0")), trt.nptype(engine.get_tensor_dtype("output_0")))
assert context.execute_v2([a.ctypes.data, y.ctypes.data])
assert np.allclose(y, reference(a), atol=1e-4), np.abs(y - reference(a)).max()
print("OK")
