"""Layers of language models: attention with a mask and a causal kind, rotary embedding, an update of a cache, by newer names."""

import numpy as np
import tensorrt as trt

L = trt.Logger(trt.Logger.ERROR)
b = trt.Builder(L)
n = b.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
r = np.random.default_rng(0)
B, H, S, D = 1, 2, 6, 8
q, k, v = (n.add_input(c, trt.float32, (B, H, S, D)) for c in "qkv")
vals = {c: r.standard_normal((B, H, S, D)).astype(np.float32) for c in "qkv"}
att = n.add_attention(q, k, v, trt.AttentionNormalizationOp.SOFTMAX, False)
att.name = "attn"
att.decomposable = True
att.mask = n.add_cast(
    n.add_constant((1, 1, S, S), np.tril(np.ones((S, S), np.int32))[None, None]).get_output(0), trt.bool
).get_output(0)
att.get_output(0).name = "masked"
n.mark_output(att.get_output(0))
a2 = n.add_attention_v2(q, k, v, trt.AttentionNormalizationOp.SOFTMAX, trt.CausalMaskKind.UPPER_LEFT)
a2.get_output(0).name = "causal"
n.mark_output(a2.get_output(0))
assert a2.causal and not att.causal
cos, sin = r.standard_normal((S, D // 2)).astype(np.float32), r.standard_normal((S, D // 2)).astype(np.float32)


def C(a):
    return n.add_constant(a.shape, a).get_output(0)


rot = n.add_rotary_embedding(q, C(cos[None]), C(sin[None]), False, D)
rot.get_output(0).name = "rotated"
n.mark_output(rot.get_output(0))
assert not rot.interleaved and rot.rotary_embedding_dim in (0, D)
e = b.build_engine_with_config(n, b.create_builder_config())
assert e, trt.last_error()
ctx = e.create_execution_context()
o = dict(vals)
for name in e:
    if name not in o:
        o[name] = np.empty(tuple(e.get_tensor_shape(name)), np.float32)
    ctx.set_tensor_address(name, o[name].ctypes.data)
assert ctx.execute_async_v3(0)
s = vals["q"] @ vals["k"].transpose(0, 1, 3, 2)
s = np.where(np.tril(np.ones((S, S), bool)), s, -np.inf)
s = np.exp(s - s.max(-1, keepdims=True))
want = s / s.sum(-1, keepdims=True) @ vals["v"]
np.testing.assert_allclose(o["masked"], want, rtol=1e-3, atol=1e-4)
np.testing.assert_allclose(o["causal"], want, rtol=1e-3, atol=1e-4)
x1, x2 = np.split(vals["q"], 2, -1)
np.testing.assert_allclose(
    o["rotated"], np.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1), rtol=1e-3, atol=1e-4
)
print("OK")
