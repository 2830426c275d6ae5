"""Names as careless programs give them: tensors called as layers, layers called as tensors, outputs named again, name lookups."""


import numpy as np
import tensorrt as trt

L = trt.Logger(trt.Logger.ERROR)
b = trt.Builder(L)
n = b.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
x = n.add_input("input", trt.float32, (2, 3))
s = n.add_softmax(x)
s.axes = 1 << 1
s.name = "input"
s.get_output(0).name = "softmax_out"
t = n.add_unary(s.get_output(0), trt.UnaryOperation.EXP)
t.name = "softmax_out"
t.get_output(0).name = "input_layer"
k = n.add_topk(t.get_output(0), trt.TopKOperation.MAX, 1, 1 << 1)
k.name = "topk"
k.get_output(0).name = "topk"
k.get_output(1).name = "topk_idx"
r = n.add_identity(k.get_output(0))
r.name = "final"
r.get_output(0).name = "prob"
r.get_output(0).name = "final"
u = n.add_unary(x, trt.UnaryOperation.NEG)
u.get_output(0).name = "unary"
v = n.add_unary(x, trt.UnaryOperation.ABS)
v.name = "unary"
v.get_output(0).name = "abs"
for q in (r, u, v):
    n.mark_output(q.get_output(0))
n.mark_output(k.get_output(1))
assert [n.get_layer(i).name for i in range(n.num_layers)] == ["input", "softmax_out", "topk", "final", u.name, "unary"]
by_name = {n[i].name: n[i] for i in range(len(n))}
assert by_name["input"].type == trt.LayerType.SOFTMAX
e = b.build_engine_with_config(n, b.create_builder_config())
assert sorted(e) == ["abs", "final", "input", "topk_idx", "unary"], list(e)
a = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
ctx = e.create_execution_context()
o = {"input": a}
for name in e:
    if name != "input":
        o[name] = np.empty(tuple(e.get_tensor_shape(name)), trt.nptype(e.get_tensor_dtype(name)))
    ctx.set_tensor_address(name, o[name].ctypes.data)
assert ctx.execute_async_v3(0)
p = np.exp(a) / np.exp(a).sum(1, keepdims=True)
np.testing.assert_allclose(o["final"], np.exp(p).max(1, keepdims=True), rtol=1e-4)
np.testing.assert_array_equal(o["topk_idx"][:, 0], a.argmax(1))
np.testing.assert_array_equal(o["unary"], -a)
print("OK")
