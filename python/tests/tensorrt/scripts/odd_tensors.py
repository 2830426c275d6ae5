"""A stack of exporters' odds and ends: simultaneous builders, deep copies of arrays, weights that go away, empty and scalar tensors, int64 inputs, uint8 inputs, bool outputs."""

import gc

import numpy as np
import tensorrt as trt

L = trt.Logger(trt.Logger.ERROR)


def build(fill, flags=1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)):
    b = trt.Builder(L)
    n = b.create_network(flags)
    fill(n)
    e = b.build_engine_with_config(n, b.create_builder_config())
    assert e, trt.last_error()
    return e


def run(e, **feeds):
    ctx = e.create_execution_context()
    o = {}
    for name in e:
        if e.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
            feeds[name] = np.ascontiguousarray(feeds[name], trt.nptype(e.get_tensor_dtype(name)))
            ctx.set_input_shape(name, feeds[name].shape)
            ctx.set_tensor_address(name, feeds[name].ctypes.data)
    assert not ctx.infer_shapes()
    for name in e:
        if e.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT:
            o[name] = np.empty(tuple(ctx.get_tensor_shape(name)), trt.nptype(e.get_tensor_dtype(name)))
            ctx.set_tensor_address(name, o[name].ctypes.data)
    assert ctx.execute_async_v3(0)
    return o


def images(n):
    x = n.add_input("img", trt.uint8, (1, 4, 4, 3))
    f = n.add_cast(x, trt.float32).get_output(0)
    s = n.add_shuffle(f)
    s.first_transpose = trt.Permutation([0, 3, 1, 2])
    mean = np.array([0.4, 0.5, 0.6], np.float32)
    k = (1 / (255 * np.array([0.2, 0.2, 0.3]))).astype(np.float32)
    l = n.add_scale(s.get_output(0), trt.ScaleMode.CHANNEL, (-mean * 255 * k), k, np.ones_like(k))
    l.get_output(0).name = "chw"
    n.mark_output(l.get_output(0))
    del mean, k
    gc.collect()


v = np.random.default_rng(0).integers(0, 256, (1, 4, 4, 3)).astype(np.uint8)
np.testing.assert_allclose(
    run(build(images), img=v)["chw"],
    ((v / 255 - [0.4, 0.5, 0.6]) / [0.2, 0.2, 0.3]).transpose(0, 3, 1, 2),
    rtol=1e-3,
    atol=1e-3,
)


def ints(n):
    x = n.add_input("i", trt.int64, (3,))
    two = n.add_constant((1,), np.array([2], np.int64)).get_output(0)
    y = n.add_elementwise(x, two, trt.ElementWiseOperation.PROD)
    y.get_output(0).name = "twice"
    n.mark_output(y.get_output(0))
    e = n.add_elementwise(x, y.get_output(0), trt.ElementWiseOperation.EQUAL).get_output(0)
    e = n.add_unary(e, trt.UnaryOperation.NOT).get_output(0)
    e.name = "differs"
    n.mark_output(e)
    s = n.add_reduce(x, trt.ReduceOperation.SUM, 1, False).get_output(0)
    s.name = "sum"
    n.mark_output(s)


o = run(build(ints), i=np.array([0, 1 << 40, -3], np.int64))
assert (
    o["twice"].tolist() == [0, 1 << 41, -6]
    and o["differs"].tolist() == [False, True, True]
    and o["sum"].shape == ()
    and int(o["sum"]) == (1 << 40) - 3
)


def empty(n):
    x = n.add_input("x", trt.float32, (0, 3))
    y = n.add_concatenation([x, n.add_constant((2, 3), np.ones((2, 3), np.float32)).get_output(0)])
    y.axis = 0
    y.get_output(0).name = "y"
    n.mark_output(y.get_output(0))


assert run(build(empty), x=np.zeros((0, 3), np.float32))["y"].shape == (2, 3)


def passthrough(n):
    x = n.add_input("x", trt.float16, (2,))
    y = n.add_identity(x).get_output(0)
    y.name = "y"
    n.mark_output(y)


assert run(build(passthrough), x=np.array([1, 2], np.float16))["y"].tolist() == [1, 2]


def two(n):
    x = n.add_input("x", trt.float32, (2, 2))
    w = np.arange(4, dtype=np.float32).reshape(2, 2)
    c1, c2 = n.add_constant((2, 2), w), n.add_constant((2, 2), trt.Weights(w.T.copy()))
    m = n.add_matrix_multiply(
        c1.get_output(0), trt.MatrixOperation.NONE, c2.get_output(0), trt.MatrixOperation.TRANSPOSE
    ).get_output(0)
    y = n.add_elementwise(m, x, trt.ElementWiseOperation.SUM).get_output(0)
    y.name = "y"
    n.mark_output(y)
    assert np.array_equal(c1.weights.reshape(2, 2), w) and tuple(c1.shape) == (2, 2)


w = np.arange(4, dtype=np.float32).reshape(2, 2)
np.testing.assert_allclose(run(build(two), x=np.eye(2))["y"], w @ w + np.eye(2))
print("OK")
