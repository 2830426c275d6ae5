"""A converter in the manner of torch2trt over a small module tree of its own: contexts, hooks, names, a module around the engine."""

import numpy as np
import tensorrt as trt

CONVERTERS = {}


def converter(kind):
    def deco(f):
        CONVERTERS[kind] = f
        return f

    return deco


class T:
    def __init__(self, a):
        self.a = np.asarray(a, np.float32)
        self._trt = None


class Module:
    def __call__(self, *xs):
        out = self.forward(*xs)
        ctx = Ctx.current
        if ctx is not None and type(self) in CONVERTERS:
            CONVERTERS[type(self)](ctx, self, xs, out)
        return out


class Ctx:
    current = None

    def __init__(self, network):
        self.network = network

    def __enter__(self):
        Ctx.current = self
        return self

    def __exit__(self, *a):
        Ctx.current = None

    def add_inputs(self, ts, names):
        for t, n in zip(ts, names):
            if t._trt is None:
                t._trt = self.network.add_input(name=n, shape=tuple(t.a.shape), dtype=trt.float32)
                t._trt.location = trt.TensorLocation.DEVICE

    def mark_outputs(self, ts, names):
        for t, n in zip(ts, names):
            t._trt.name = n
            t._trt.location = trt.TensorLocation.DEVICE
            t._trt.dtype = trt.float32
            self.network.mark_output(t._trt)


class Linear(Module):
    def __init__(self, w, b):
        self.w, self.b = w, b

    def forward(self, x):
        return T(x.a @ self.w.T + self.b)


class BatchNorm1d(Module):
    def __init__(self, m, v, g, b):
        self.m, self.v, self.g, self.b, self.eps = m, v, g, b, 1e-5

    def forward(self, x):
        return T((x.a - self.m) / np.sqrt(self.v + self.eps) * self.g + self.b)


class ReLU6(Module):
    def forward(self, x):
        return T(np.clip(x.a, 0, 6))


class Mean(Module):
    def __init__(self, dim, keepdim):
        self.dim, self.keepdim = dim, keepdim

    def forward(self, x):
        return T(x.a.mean(self.dim, keepdims=self.keepdim))


class Cat(Module):
    def __init__(self, dim):
        self.dim = dim

    def forward(self, *xs):
        return T(np.concatenate([x.a for x in xs], self.dim))


class Max(Module):
    def forward(self, x, y):
        return T(np.maximum(x.a, y.a))


class Pow(Module):
    def __init__(self, e):
        self.e = e

    def forward(self, x):
        return T(np.abs(x.a) ** self.e)


@converter(Linear)
def _(ctx, m, xs, out):
    net = ctx.network
    x = xs[0]._trt
    w = net.add_constant((1,) * (len(x.shape) - 2) + m.w.shape, np.ascontiguousarray(m.w)).get_output(0)
    l = net.add_matrix_multiply(x, trt.MatrixOperation.NONE, w, trt.MatrixOperation.TRANSPOSE)
    b = net.add_constant((1,) * (len(x.shape) - 1) + (m.b.shape[0],), m.b).get_output(0)
    out._trt = net.add_elementwise(l.get_output(0), b, trt.ElementWiseOperation.SUM).get_output(0)


@converter(BatchNorm1d)
def _(ctx, m, xs, out):
    scale = m.g / np.sqrt(m.v + m.eps)
    bias = m.b - m.m * scale
    power = np.ones_like(scale)
    l = ctx.network.add_shuffle(xs[0]._trt)
    l.reshape_dims = (*xs[0].a.shape, 1, 1) if xs[0].a.ndim == 2 else (*xs[0].a.shape, 1)
    l = ctx.network.add_scale(
        l.get_output(0),
        trt.ScaleMode.CHANNEL,
        bias.astype(np.float32),
        scale.astype(np.float32),
        power.astype(np.float32),
    )
    s = ctx.network.add_shuffle(l.get_output(0))
    s.reshape_dims = tuple(out.a.shape)
    out._trt = s.get_output(0)


@converter(ReLU6)
def _(ctx, m, xs, out):
    l = ctx.network.add_activation(input=xs[0]._trt, type=trt.ActivationType.CLIP)
    l.alpha = 0
    l.beta = 6
    out._trt = l.get_output(0)


@converter(Mean)
def _(ctx, m, xs, out):
    axes = 0
    for d in (m.dim if isinstance(m.dim, tuple) else (m.dim,)):
        axes |= 1 << d
    out._trt = ctx.network.add_reduce(xs[0]._trt, trt.ReduceOperation.AVG, axes, m.keepdim).get_output(0)


@converter(Cat)
def _(ctx, m, xs, out):
    l = ctx.network.add_concatenation(inputs=[x._trt for x in xs])
    l.axis = m.dim
    out._trt = l.get_output(0)


@converter(Max)
def _(ctx, m, xs, out):
    out._trt = ctx.network.add_elementwise(xs[0]._trt, xs[1]._trt, trt.ElementWiseOperation.MAX).get_output(0)


@converter(Pow)
def _(ctx, m, xs, out):
    a = ctx.network.add_unary(xs[0]._trt, trt.UnaryOperation.ABS).get_output(0)
    e = ctx.network.add_constant((1,) * len(a.shape), np.array([m.e], np.float32)).get_output(0)
    out._trt = ctx.network.add_elementwise(a, e, trt.ElementWiseOperation.POW).get_output(0)


class Net(Module):
    def __init__(self):
        r = np.random.default_rng(0)
        f = lambda *s: r.standard_normal(s).astype(np.float32)
        self.l1, self.l2 = Linear(f(8, 5), f(8)), Linear(f(4, 16), f(4))
        self.bn = BatchNorm1d(f(8), np.abs(f(8)) + 0.1, f(8), f(8))
        self.relu, self.cat, self.max, self.pow, self.mean = ReLU6(), Cat(1), Max(), Pow(1.5), Mean(1, True)

    def forward(self, x):
        a = self.l1(x)
        b = self.relu(self.bn(a))
        c = self.cat(a, b)
        d = self.l2(c)
        return self.max(self.pow(d), self.mean(d)) if d.a.ndim else d


class TRTModule:
    def __init__(self, engine, input_names, output_names):
        self.engine, self.input_names, self.output_names = engine, input_names, output_names
        self.context = engine.create_execution_context()

    def __call__(self, *inputs):
        outs = []
        for n, x in zip(self.input_names, inputs):
            self.context.set_tensor_address(n, x.ctypes.data)
            self.context.set_input_shape(n, tuple(x.shape))
        for n in self.output_names:
            o = np.empty(tuple(self.context.get_tensor_shape(n)), trt.nptype(self.engine.get_tensor_dtype(n)))
            self.context.set_tensor_address(n, o.ctypes.data)
            outs.append(o)
        assert self.context.execute_async_v3(0)
        return outs[0] if len(outs) == 1 else outs


logger = trt.Logger(trt.Logger.ERROR)
b = trt.Builder(logger)
net = b.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
m = Net()
x = T(np.random.default_rng(1).standard_normal((3, 5)))
with Ctx(net) as ctx:
    ctx.add_inputs([x], ["input_0"])
    y = m(x)
    ctx.mark_outputs([y], ["output_0"])
assert tuple(y._trt.shape) == y.a.shape
c = b.create_builder_config()
c.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 25)
e = b.build_engine_with_config(net, c)
mod = TRTModule(e, ["input_0"], ["output_0"])
np.testing.assert_allclose(mod(x.a), y.a, rtol=2e-3, atol=2e-3)
state = {"engine": bytearray(e.serialize()), "names": ["input_0"]}
e2 = trt.Runtime(logger).deserialize_cuda_engine(state["engine"])
np.testing.assert_array_equal(TRTModule(e2, ["input_0"], ["output_0"])(x.a), mod(x.a))
print("OK")
