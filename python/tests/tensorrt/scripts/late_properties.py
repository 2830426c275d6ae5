"""Layers whose properties come after them: axes, modes, groups, paddings, inputs in place of constants, replaced inputs."""


import numpy as np
import tensorrt as trt

L = trt.Logger(trt.Logger.ERROR)
b = trt.Builder(L)
n = b.create_network()
r = np.random.default_rng(0)
av, bv = r.standard_normal((2, 3, 4, 5)).astype(np.float32), r.standard_normal((2, 3, 4, 7)).astype(np.float32)
a, c = n.add_input("a", trt.float32, av.shape), n.add_input("b", trt.float32, bv.shape)
checks = {}


def C(v):
    return n.add_constant(np.asarray(v).shape, np.ascontiguousarray(v)).get_output(0)


def out(l, name, want):
    assert l is not None, trt.last_error()
    l.get_output(0).name = name
    n.mark_output(l.get_output(0))
    checks[name] = want


l = n.add_concatenation([a, c])
l.axis = 3
out(l, "cat", np.concatenate([av, bv], 3))
assert l.axis == 3
l = n.add_gather(a, C(np.array([4, 0], np.int32)), 3)
out(l, "g", av[..., [4, 0]])
l = n.add_gather_v2(a, C(np.array([4], np.int64)), trt.GatherMode.DEFAULT)
l.axis = 3
out(l, "g2", av[..., [4]])
l = n.add_gather_v2(a, C(np.zeros((2, 3, 4, 1), np.int32)), trt.GatherMode.ELEMENT)
l.axis = 3
out(l, "ge", av[..., :1])
l = n.add_gather_v2(a, C(np.array([[1], [2]], np.int32)), trt.GatherMode.DEFAULT)
l.axis = 2
l.num_elementwise_dims = 0
out(l, "g3", av[:, :, [[1], [2]]])
l = n.add_gather_v2(a, C(np.array([[[2]], [[0]]], np.int32)), trt.GatherMode.ND)
l.num_elementwise_dims = 1
out(l, "nd", np.stack([av[0, [2]], av[1, [0]]]))
l = n.add_scatter(
    a, C(np.full((2, 3, 4, 1), 4, np.int32)), C(np.zeros((2, 3, 4, 1), np.float32)), trt.ScatterMode.ELEMENT
)
l.axis = 3
w = av.copy()
w[..., 4] = 0
out(l, "se", w)
l = n.add_slice(a, (0, 0, 0, 0), (0, 0, 0, 0), (1, 1, 1, 1))
l.start = (0, 1, 0, 2)
l.shape = (2, 2, 4, 2)
out(l, "sl", av[:, 1:, :, 2:4])
l = n.add_slice(a, (0,) * 4, (2, 3, 4, 9), (1,) * 4)
l.mode = trt.SampleMode.WRAP
out(l, "wrap", np.pad(av, ((0, 0),) * 3 + ((0, 4),), mode="wrap"))
l = n.add_slice(a, (0,) * 4, (1,) * 4, (1,) * 4)
l.set_input(1, C(np.array([0, 0, 1, 1], np.int32)))
l.set_input(2, C(np.array([2, 3, 2, 3], np.int32)))
out(l, "dyn", av[:, :, 1:3, 1:4])
l = n.add_reverse_sequence(a, C(np.array([3, 1], np.int32)))
l.batch_axis = 0
l.sequence_axis = 1
w = av.copy()
w[0] = av[0, ::-1]
out(l, "rs", w)
l = n.add_normalization(a, C(np.ones((1, 3, 1, 1), np.float32)), C(np.zeros((1, 3, 1, 1), np.float32)), 1 << 2 | 1 << 3)
l.epsilon = 1e-5
l.num_groups = 3
g = av
out(l, "gn", (g - g.mean((2, 3), keepdims=True)) / np.sqrt(g.var((2, 3), keepdims=True) + 1e-5))
l = n.add_shuffle(a)
l.reshape_dims = (2, -1)
l.second_transpose = (1, 0)
out(l, "sh", av.reshape(2, -1).T)
l = n.add_shuffle(a)
l.first_transpose = (0, 2, 1, 3)
l.reshape_dims = (0, 0, -1)
l.zero_is_placeholder = True
out(l, "sh2", av.transpose(0, 2, 1, 3).reshape(2, 4, 15))
l = n.add_convolution_nd(a, 6, (1, 1), trt.Weights())
l.num_groups = 3
k = r.standard_normal((6, 1, 1, 1)).astype(np.float32)
l.set_input(1, C(k))
out(l, "gc", np.repeat(av, 2, 1) * k.reshape(1, 6, 1, 1))
l = n.add_elementwise(a, a, trt.ElementWiseOperation.SUM)
l.set_input(1, C(np.ones((1, 1, 1, 1), np.float32)))
l.op = trt.ElementWiseOperation.SUB
out(l, "ew", av - 1)
l = n.add_reduce(a, trt.ReduceOperation.MAX, 1 << 0, False)
l.axes = 1 << 1 | 1 << 3
l.keep_dims = True
l.op = trt.ReduceOperation.MIN
out(l, "rd", av.min((1, 3), keepdims=True))
l = n.add_matrix_multiply(a, trt.MatrixOperation.TRANSPOSE, c, trt.MatrixOperation.NONE)
out(l, "mm", np.swapaxes(av, 2, 3) @ bv)
l = n.add_topk(a, trt.TopKOperation.MAX, 5, 1 << 3)
l.k = 2
l.op = trt.TopKOperation.MIN
out(l, "tk", np.sort(av, 3)[..., :2])
l = n.add_pooling_nd(a, trt.PoolingType.MAX, (5, 5))
l.padding_nd = (2, 2)
l.stride_nd = (1, 1)
p = np.pad(av, ((0, 0), (0, 0), (2, 2), (2, 2)), constant_values=-1e30)
out(l, "mp", np.max([p[:, :, i : i + 4, j : j + 5] for i in range(5) for j in range(5)], 0))
l = n.add_resize(a)
l.shape = (2, 3, 8, 10)
l.resize_mode = trt.InterpolationMode.LINEAR
l.coordinate_transformation = trt.ResizeCoordinateTransformation.ALIGN_CORNERS
n.mark_output(l.get_output(0))
l = n.add_scale(a, trt.ScaleMode.CHANNEL, scale=np.array([1, 2, 3], np.float32), shift=np.zeros(3, np.float32))
l.power = np.ones(3, np.float32)
out(l, "scl", av * np.array([1, 2, 3]).reshape(1, 3, 1, 1))
l = n.add_activation(a, trt.ActivationType.RELU)
l.type = trt.ActivationType.LEAKY_RELU
l.alpha = 0.1
out(l, "lk", np.where(av > 0, av, 0.1 * av))
l = n.add_unary(a, trt.UnaryOperation.ABS)
l.op = trt.UnaryOperation.NEG
out(l, "un", -av)
l = n.add_softmax(a)
assert l.axes == 1 << 1
l.axes = 1 << 3
out(l, "sm", np.exp(av) / np.exp(av).sum(3, keepdims=True))
l = n.add_cast(a, trt.int32)
l.to_type = trt.float16
out(l, "cst", av.astype(np.float16))
l = n.add_fill((2, 3), trt.FillOperation.LINSPACE)
l.set_input(1, n.add_constant((), np.array([1], np.float32)).get_output(0))
l.set_input(2, C(np.array([10, 1], np.float32)))
out(l, "fl", np.array([[1, 2, 3], [11, 12, 13]], np.float32))
e = b.build_engine_with_config(n, b.create_builder_config())
assert e, trt.last_error()
ctx = e.create_execution_context()
bufs = {"a": av, "b": bv}
for k in e:
    if k not in bufs:
        bufs[k] = np.empty(tuple(e.get_tensor_shape(k)), trt.nptype(e.get_tensor_dtype(k)))
    ctx.set_tensor_address(k, bufs[k].ctypes.data)
assert ctx.execute_async_v3(0)
for k, v in checks.items():
    np.testing.assert_allclose(bufs[k], v, rtol=2e-3, atol=2e-4, err_msg=k)
print("OK", len(checks))
