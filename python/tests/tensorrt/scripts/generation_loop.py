"""A model class as wrappers for language models have it: past keys as outputs and inputs, dynamic names, dataclass configs, generation loop with swapped buffers."""

from dataclasses import dataclass, field
from typing import Dict, List

import numpy as np
import tensorrt as trt


@dataclass
class Config:
    vocab: int = 17
    hidden: int = 8
    heads: int = 2
    layers: int = 2
    max_length: int = 12
    names: List[str] = field(default_factory=list)


cfg = Config()
rng = np.random.default_rng(3)
W = {
    f"{l}.{k}": rng.standard_normal((cfg.hidden, cfg.hidden)).astype(np.float32) * 0.3
    for l in range(cfg.layers)
    for k in "qkvo"
}
W["emb"] = rng.standard_normal((cfg.vocab, cfg.hidden)).astype(np.float32)


def build(logger):
    b = trt.Builder(logger)
    n = b.create_network(0)

    def c(a):
        a = np.asarray(a, order="C")
        return n.add_constant(a.shape, trt.Weights(a)).get_output(0)

    def mm(a, w, op=trt.MatrixOperation.NONE):
        return n.add_matrix_multiply(a, trt.MatrixOperation.NONE, w, op).get_output(0)

    ids = n.add_input("input_ids", trt.int64, (1, 1))
    h = n.add_gather(c(W["emb"]), ids, 0).get_output(0)
    d = cfg.hidden // cfg.heads
    for l in range(cfg.layers):

        def proj(k):
            s = n.add_shuffle(mm(h, c(W[f"{l}.{k}"][None])))
            s.reshape_dims = trt.Dims([1, -1, cfg.heads, d])
            s.second_transpose = trt.Permutation([0, 2, 1, 3])
            return s.get_output(0)

        q, k, v = proj("q"), proj("k"), proj("v")
        pk = n.add_input(f"past_key_values.{l}.key", trt.float32, (1, cfg.heads, -1, d))
        pv = n.add_input(f"past_key_values.{l}.value", trt.float32, (1, cfg.heads, -1, d))
        for nm, t in (("key", pk), ("value", pv)):
            t.set_dimension_name(2, "past")
        ck = n.add_concatenation([pk, k])
        ck.axis = 2
        cv = n.add_concatenation([pv, v])
        cv.axis = 2
        for nm, t in (("key", ck), ("value", cv)):
            t.get_output(0).name = f"present.{l}.{nm}"
            n.mark_output(t.get_output(0))
        s = n.add_matrix_multiply(
            q, trt.MatrixOperation.NONE, ck.get_output(0), trt.MatrixOperation.TRANSPOSE
        ).get_output(0)
        s = n.add_elementwise(
            s, c(np.full((1, 1, 1, 1), d**-0.5, np.float32)), trt.ElementWiseOperation.PROD
        ).get_output(0)
        sm = n.add_softmax(s)
        sm.axes = 1 << 3
        o = n.add_shuffle(mm(sm.get_output(0), cv.get_output(0)))
        o.first_transpose = (0, 2, 1, 3)
        o.reshape_dims = (1, -1, cfg.hidden)
        h = n.add_elementwise(h, mm(o.get_output(0), c(W[f"{l}.o"][None])), trt.ElementWiseOperation.SUM).get_output(0)
    logits = mm(h, c(W["emb"][None]), trt.MatrixOperation.TRANSPOSE)
    logits.name = "logits"
    n.mark_output(logits)
    g = n.add_topk(logits, trt.TopKOperation.MAX, 1, 1 << 2).get_output(1)
    g.name = "token"
    n.mark_output(g)
    cf = b.create_builder_config()
    p = b.create_optimization_profile()
    for i in range(n.num_inputs):
        t = n.get_input(i)
        if t.name.startswith("past"):
            p.set_shape(t.name, (1, cfg.heads, 0, d), (1, cfg.heads, 4, d), (1, cfg.heads, cfg.max_length, d))
    cf.add_optimization_profile(p)
    return b.build_serialized_network(n, cf)


class Model:
    def __init__(self, plan, logger):
        self.engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
        self.ctx = self.engine.create_execution_context()
        self.ins = [t for t in self.engine if self.engine.get_tensor_mode(t) == trt.TensorIOMode.INPUT]
        self.outs = [t for t in self.engine if t not in self.ins]

    def forward(self, **feeds) -> Dict[str, np.ndarray]:
        assert sorted(feeds) == sorted(self.ins)
        for k, v in feeds.items():
            assert self.ctx.set_input_shape(k, v.shape)
            assert self.ctx.set_tensor_address(k, v.ctypes.data if v.size else np.zeros(4, np.float32).ctypes.data)
        out = {}
        for k in self.outs:
            out[k] = np.empty(tuple(self.ctx.get_tensor_shape(k)), trt.nptype(self.engine.get_tensor_dtype(k)))
            self.ctx.set_tensor_address(k, out[k].ctypes.data)
        assert self.ctx.execute_async_v3(0)
        return out

    def generate(self, first, steps):
        d = cfg.hidden // cfg.heads
        past = {
            f"past_key_values.{l}.{k}": np.zeros((1, cfg.heads, 0, d), np.float32)
            for l in range(cfg.layers)
            for k in ("key", "value")
        }
        ids = [first]
        for _ in range(steps):
            o = self.forward(input_ids=np.array([[ids[-1]]], np.int64), **past)
            past = {k.replace("present", "past_key_values"): v for k, v in o.items() if k.startswith("present")}
            ids.append(int(o["token"].reshape(-1)[0]))
        return ids, o


L = trt.Logger(trt.Logger.ERROR)
m = Model(build(L), L)
ids, o = m.generate(3, 6)
# the same in numpy
d = cfg.hidden // cfg.heads
past = [[np.zeros((cfg.heads, 0, d))] * 2 for _ in range(cfg.layers)]
want = [3]
for _ in range(6):
    h = W["emb"][want[-1]].astype(np.float64)
    for l in range(cfg.layers):
        q, k, v = [(h @ W[f"{l}.{x}"]).reshape(cfg.heads, 1, d) for x in "qkv"]
        K = np.concatenate([past[l][0], k], 1)
        V = np.concatenate([past[l][1], v], 1)
        past[l] = [K, V]
        s = q @ K.transpose(0, 2, 1) * d**-0.5
        s = np.exp(s - s.max(-1, keepdims=True))
        s /= s.sum(-1, keepdims=True)
        h = h + (s @ V).reshape(-1) @ W[f"{l}.o"]
    lg = W["emb"] @ h
    want.append(int(lg.argmax()))
assert ids == want, (ids, want)
assert np.allclose(o["logits"].reshape(-1), lg, atol=1e-3)
print("OK")
