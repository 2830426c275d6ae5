"""Many kinds of layers in one network, each checked against numpy; properties are read back as a printer of networks does."""

import numpy as np
import tensorrt as trt

L = trt.Logger(trt.Logger.ERROR)
b = trt.Builder(L)
n = b.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
r = np.random.default_rng(0)
xv = r.standard_normal((2, 3, 8, 8)).astype(np.float32)
x = n.add_input("x", trt.float32, (2, 3, 8, 8))
checks = {}


def out(t, name, want):
    t.name = name
    n.mark_output(t)
    checks[name] = np.asarray(want)


def C(a):
    return n.add_constant(np.asarray(a).shape, np.ascontiguousarray(a)).get_output(0)


pool = n.add_pooling_nd(x, trt.PoolingType.AVERAGE, trt.DimsHW(2, 2))
pool.stride_nd = (2, 2)
pool.padding_mode = trt.PaddingMode.EXPLICIT_ROUND_UP
pool.average_count_excludes_padding = False
assert pool.window_size_nd == (2, 2) and pool.type == trt.PoolingType.AVERAGE
out(pool.get_output(0), "avg", xv.reshape(2, 3, 4, 2, 4, 2).mean((3, 5)))
sl = n.add_slice(x, (0, 0, 1, 7), (2, 3, 3, 4), (1, 1, 2, -2))
out(sl.get_output(0), "neg", xv[:, :, 1:7:2, 7::-2])
sl = n.add_slice(x, (0, 0, -1, -1), (2, 3, 10, 10), (1, 1, 1, 1))
sl.mode = trt.SampleMode.REFLECT
out(sl.get_output(0), "reflect", np.pad(xv, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect"))
sl = n.add_slice(x, (0, 0, -2, 0), (2, 3, 12, 8), (1, 1, 1, 1))
sl.mode = trt.SampleMode.FILL
sl.set_input(4, n.add_constant((), np.array([7], np.float32)).get_output(0))
out(sl.get_output(0), "filled", np.pad(xv, ((0, 0), (0, 0), (2, 2), (0, 0)), constant_values=7))
rs = n.add_resize(x)
rs.scales = [1, 1, 2, 2]
rs.resize_mode = trt.InterpolationMode.NEAREST
rs.coordinate_transformation = trt.ResizeCoordinateTransformation.ASYMMETRIC
rs.nearest_rounding = trt.ResizeRoundMode.FLOOR
out(rs.get_output(0), "up", xv.repeat(2, 2).repeat(2, 3))
tk = n.add_topk(x, trt.TopKOperation.MIN, 3, 1 << 3)
out(tk.get_output(0), "topk", np.sort(xv, -1)[..., :3])
out(tk.get_output(1), "topi", np.argsort(xv, -1, kind="stable")[..., :3].astype(np.int32))
g = n.add_gather_v2(x, C(np.array([2, 0], np.int32)), trt.GatherMode.DEFAULT)
g.axis = 1
out(g.get_output(0), "gather", xv[:, [2, 0]])
ge = n.add_gather_v2(x, C(np.argsort(xv, -1).astype(np.int32)), trt.GatherMode.ELEMENT)
ge.axis = 3
out(ge.get_output(0), "gathere", np.sort(xv, -1))
sc = n.add_scatter(x, C(np.array([[0, 1], [1, 2]], np.int32)), C(np.zeros((2, 8, 8), np.float32)), trt.ScatterMode.ND)
w = xv.copy()
w[0, 1] = 0
w[1, 2] = 0
out(sc.get_output(0), "scatter", w)
pr = n.add_parametric_relu(x, C(np.full((1, 3, 1, 1), 0.25, np.float32)))
out(pr.get_output(0), "prelu", np.where(xv > 0, xv, 0.25 * xv))
sel = n.add_select(
    n.add_elementwise(x, C(np.zeros((1, 1, 1, 1), np.float32)), trt.ElementWiseOperation.GREATER).get_output(0),
    x,
    n.add_unary(x, trt.UnaryOperation.NEG).get_output(0),
)
out(sel.get_output(0), "abs", np.abs(xv))
es = n.add_einsum([x, C(r.standard_normal((8, 5)).astype(np.float32))], "bchw,wk->bchk")
oh = n.add_one_hot(
    C(np.array([0, 2], np.int32)),
    C(np.array([0, 1], np.float32)),
    n.add_constant((), np.array([3], np.int32)).get_output(0),
    -1,
)
out(oh.get_output(0), "onehot", np.eye(3, dtype=np.float32)[[0, 2]])
fl = n.add_fill((4,), trt.FillOperation.LINSPACE)
fl.alpha = 1.0
fl.beta = 0.5
out(fl.get_output(0), "lin", np.array([1, 1.5, 2, 2.5], np.float32))
cu = n.add_cumulative(
    x, n.add_constant((), np.array([2], np.int32)).get_output(0), trt.CumulativeOperation.SUM, False, True
)
out(cu.get_output(0), "cum", np.cumsum(xv[:, :, ::-1], 2)[:, :, ::-1])
sq = n.add_unsqueeze(x, C(np.array([0], np.int64)))
s2 = n.add_squeeze(sq.get_output(0), C(np.array([0], np.int32)))
out(n.add_identity(s2.get_output(0)).get_output(0), "same", xv)
nm = n.add_normalization(
    x, C(np.ones((1, 3, 1, 1), np.float32)), C(np.zeros((1, 3, 1, 1), np.float32)), 1 << 2 | 1 << 3
)
nm.epsilon = 1e-5
out(nm.get_output(0), "inorm", (xv - xv.mean((2, 3), keepdims=True)) / np.sqrt(xv.var((2, 3), keepdims=True) + 1e-5))
dc = n.add_deconvolution_nd(x, 2, (2, 2), np.ones((3, 2, 2, 2), np.float32))
dc.stride_nd = (2, 2)
out(dc.get_output(0), "deconv", np.repeat(xv.sum(1, keepdims=True).repeat(2, 2).repeat(2, 3), 2, 1))
cv = n.add_convolution_nd(x, 3, (3, 3), np.ones((3, 1, 3, 3), np.float32))
cv.num_groups = 3
cv.padding_nd = (1, 1)
cv.dilation_nd = (1, 1)
pad = np.pad(xv, ((0, 0), (0, 0), (1, 1), (1, 1)))
out(cv.get_output(0), "depthwise", sum(pad[:, :, i : i + 8, j : j + 8] for i in range(3) for j in range(3)))
pd = n.add_padding_nd(x, (1, -1), (0, -1))
out(pd.get_output(0), "padneg", np.pad(xv, ((0, 0), (0, 0), (1, 0), (0, 0)))[..., 1:-1])
rv = n.add_reverse_sequence(C(np.arange(12, dtype=np.float32).reshape(4, 3)), C(np.array([2, 4, 1], np.int32)))
rv.batch_axis, rv.sequence_axis = 1, 0
a = np.arange(12, dtype=np.float32).reshape(4, 3)
wv = a.copy()
wv[:2, 0] = a[1::-1, 0]
wv[:, 1] = a[::-1, 1]
out(rv.get_output(0), "rev", wv)
gs = n.add_grid_sample(x, C(np.zeros((2, 1, 1, 2), np.float32)))
gs.interpolation_mode = trt.InterpolationMode.NEAREST
gs.align_corners = False
gs.sample_mode = trt.SampleMode.FILL
out(gs.get_output(0), "grid", xv[:, :, 4:5, 4:5])
lr = n.add_lrn(x, 3, 1e-4, 0.75, 1.0)
assert lr.window_size == 3
q = n.add_quantize(x, n.add_constant((), np.array([0.05], np.float32)).get_output(0))
d = n.add_dequantize(q.get_output(0), n.add_constant((), np.array([0.05], np.float32)).get_output(0))
out(d.get_output(0), "qdq", np.clip(np.rint(xv / 0.05), -128, 127) * 0.05)
av = n.add_activation(x, trt.ActivationType.THRESHOLDED_RELU)
av.alpha = 0.5
out(av.get_output(0), "thr", np.where(xv > 0.5, xv, 0))
rd = n.add_reduce(x, trt.ReduceOperation.PROD, 1 << 1, True)
out(rd.get_output(0), "prod", xv.prod(1, keepdims=True))
fd = n.add_elementwise(x, C(np.full((1, 1, 1, 1), 0.3, np.float32)), trt.ElementWiseOperation.FLOOR_DIV)
out(fd.get_output(0), "fdiv", np.floor(xv / np.float32(0.3)))
cs = n.add_cast(x, trt.float16)
out(cs.get_output(0), "half", xv.astype(np.float16))
for i in range(n.num_layers):
    l = n.get_layer(i)
    props = {
        k: getattr(l, k)
        for k in dir(type(l))
        if not k.startswith("_") and isinstance(getattr(type(l), k, None), property)
    }
    assert l.num_outputs >= 1 and l.get_output(0) is not None and l.get_output(9) is None
e = b.build_engine_with_config(n, b.create_builder_config())
assert e, trt.last_error()
ctx = e.create_execution_context()
bufs = {"x": xv}
for k, v in checks.items():
    bufs[k] = np.empty(tuple(e.get_tensor_shape(k)), trt.nptype(e.get_tensor_dtype(k)))
for k, v in bufs.items():
    ctx.set_tensor_address(k, v.ctypes.data)
assert ctx.execute_async_v3(0)
for k, v in checks.items():
    np.testing.assert_allclose(bufs[k], v, rtol=2e-3, atol=2e-4, err_msg=k)
print("OK", len(checks))
