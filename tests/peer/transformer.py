"""What ONNX Runtime's optimizer for transformers writes: fused products, norms, activations and attention."""
import math

import numpy as np

from cases import const, floats

F16 = np.float16


def activations(cases):
    rng = cases.rng("activations")
    x, bias = floats(rng, 2, 3, 8, low=-4, high=4), const(floats(rng, 8))
    cases.one("Gelu", "Gelu", [x])
    cases.one("BiasGelu", "BiasGelu", [x, bias])
    cases.one("FastGelu", "FastGelu", [x])
    cases.one("FastGelu_bias", "FastGelu", [x, bias], dynamic=[(0, 0)])
    cases.one("FastGelu_f16", "FastGelu", [x.astype(F16), const(floats(rng, 8, dtype=F16))])
    for alpha in (None, 0.7):
        cases.one(f"QuickGelu_{alpha}", "QuickGelu", [x], alpha=alpha)
    # ONNX Runtime has no kernels on the CPU for these: the answers are by the definition.
    skip = floats(rng, 2, 3, 8)
    cases.formula("BiasAdd", "BiasAdd", [x, bias, skip], [x + bias[0] + skip])
    gelu = lambda v: v * (1 + np.vectorize(math.erf)(v / math.sqrt(2))) / 2
    total = x + bias[0]
    cases.formula("BiasSplitGelu", "BiasSplitGelu", [x, bias], [total[..., :4] * gelu(total[..., 4:])])


def products(cases):
    rng = cases.rng("products")
    for i, (a, b, attrs) in enumerate([
            ((2, 3, 4), (2, 4, 5), {}), ((2, 4, 3), (2, 5, 4), {"transA": 1, "transB": 1, "alpha": 0.5}),
            ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}), ((3, 2, 4), (5, 2, 4), {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
            ((4, 2, 3), (4, 2, 5), {"transBatchA": 1, "transA": 1, "transBatchB": 1}),
            ((2, 3, 4), (4, 5), {"alpha": 3.0}), ((4,), (4, 5), {}), ((3, 4), (4,), {"alpha": -1.0})]):
        cases.one(f"FusedMatMul_{i}", "FusedMatMul", [floats(rng, *a), floats(rng, *b)], **attrs)
    a, b, c = floats(rng, 3, 4), const(floats(rng, 4, 5)), const(floats(rng, 5))
    for i, attrs in enumerate([{"activation": "Relu"}, {"activation": "LeakyRelu", "activation_alpha": 0.2},
                               {"activation": "Sigmoid", "alpha": 0.5, "beta": 2.0}, {"activation": "Tanh"}]):
        cases.one(f"FusedGemm_{i}", "FusedGemm", [a, b, c], **attrs)
    x, w, bias = floats(rng, 2, 3, 6, 6), const(floats(rng, 4, 3, 3, 3)), const(floats(rng, 4))
    z = floats(rng, 2, 4, 4, 4)
    for i, attrs in enumerate([{"activation": "Relu"}, {"activation": "LeakyRelu", "activation_params": [0.1]},
                               {"activation": "Clip", "activation_params": [-1.0, 2.0]}, {"activation": "Tanh"},
                               {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
                               {"activation": "Sigmoid", "pads": [1, 1, 1, 1], "strides": [2, 1]}]):
        cases.one(f"FusedConv_{i}", "FusedConv", [x, w, bias], **attrs)
    cases.one("FusedConv_z", "FusedConv", [x, w, bias, z], activation="Relu")


def norms(cases):
    rng = cases.rng("norms")
    for dtype in (np.float32, F16):
        t = np.dtype(dtype).name
        x, skip = floats(rng, 2, 3, 8, dtype=dtype), floats(rng, 2, 3, 8, dtype=dtype)
        gamma, beta, bias = (const(floats(rng, 8, dtype=dtype)) for _ in range(3))
        some = ["y0", "", "", "y3"]
        cases.one(f"SkipLayerNormalization_{t}", "SkipLayerNormalization", [x, skip, gamma, beta, bias], some)
        cases.one(f"SkipLayerNormalization_few_{t}", "SkipLayerNormalization", [x, skip, gamma], epsilon=1e-3)
        cases.one(f"SkipSimplifiedLayerNormalization_{t}", "SkipSimplifiedLayerNormalization", [x, skip, gamma], some)
        cases.one(f"SkipSimplifiedLayerNormalization_bias_{t}", "SkipSimplifiedLayerNormalization",
                  [x, skip, gamma, bias], epsilon=1e-2, dynamic=[(0, 1)])
        if dtype == np.float32:
            cases.one("SimplifiedLayerNormalization", "SimplifiedLayerNormalization", [x, gamma], domain="",
                      axis=-1, epsilon=1e-6, stash_type=1)
            cases.one("SimplifiedLayerNormalization_1", "SimplifiedLayerNormalization",
                      [x, const(floats(rng, 3, 8))], domain="", axis=1)
    x = floats(rng, 2, 3, 8)
    gamma, beta = const(floats(rng, 8)), const(floats(rng, 8))
    cases.one("SkipLayerNormalization_row", "SkipLayerNormalization", [x, floats(rng, 3, 8), gamma, beta])
    cases.one("SkipLayerNormalization_one", "SkipLayerNormalization", [x, floats(rng, 1, 3, 8), gamma, beta])
    words, places, segments = (const(floats(rng, n, 8)) for n in (20, 12, 2))
    ids, kinds = rng.integers(0, 20, (2, 5)).astype(np.int32), rng.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.asarray([[1, 1, 1, 0, 0], [1, 0, 1, 1, 0]], np.int32)
    own = rng.integers(0, 12, (2, 5)).astype(np.int32)
    base = [ids, kinds, words, places, segments, gamma, beta]
    cases.one("EmbedLayerNormalization", "EmbedLayerNormalization", [*base, mask], 2, epsilon=1e-5)
    cases.one("EmbedLayerNormalization_sum", "EmbedLayerNormalization", base, 3, dynamic=[(0, 1), (1, 1)])
    cases.one("EmbedLayerNormalization_places", "EmbedLayerNormalization", [*base, None, own], ["y0", "", "y2"])
    cases.one("EmbedLayerNormalization_plain", "EmbedLayerNormalization",
              [ids, None, words, places, None, gamma, beta], 2)
    # No kernels on the CPU: by the definition.
    for last in (0, 1):
        for silu in (0, 1):
            x = floats(rng, 2, 6, 3, 4)
            gamma, beta, bias = floats(rng, 6), floats(rng, 6), floats(rng, 6)
            skip = floats(rng, 2, 6)

            def answer(v):
                g = v.reshape(2, 3, -1).astype(np.float64)
                g = ((g - g.mean(2, keepdims=True)) / np.sqrt(g.var(2, keepdims=True) + 1e-5)).reshape(v.shape)
                y = g * gamma[:, None, None] + beta[:, None, None]
                return (y / (1 + np.exp(-y)) if silu else y).astype(np.float32)

            turn = (lambda v: np.ascontiguousarray(v.transpose(0, 2, 3, 1))) if last else (lambda v: v)
            attrs = {"groups": 3, "activation": silu, "channels_last": last}
            cases.formula(f"GroupNorm_{last}_{silu}", "GroupNorm", [turn(x), const(gamma), const(beta)],
                          [turn(answer(x))], **attrs)
            total = x + skip[:, :, None, None] + bias[None, :, None, None]
            cases.formula(f"SkipGroupNorm_{last}_{silu}", "SkipGroupNorm",
                          [turn(x), const(gamma), const(beta), skip, const(bias)], [turn(answer(total)), turn(total)],
                          **attrs)


def attention(cases):
    rng = cases.rng("attention")
    b, s, h, n, p = 2, 4, 12, 3, 3
    x, w, bias = floats(rng, b, s, 10), const(floats(rng, 10, 3 * h)), const(floats(rng, 3 * h))
    one = lambda name, values, outputs=1, **attrs: cases.one(f"Attention_{name}", "Attention", values, outputs,
                                                             **{"num_heads": n, **attrs})
    one("plain", [x, w, bias])
    one("scale", [x, w, bias], scale=0.3)
    one("dynamic", [x, w, bias], dynamic=[(0, 1)])
    one("causal", [x, w, bias], unidirectional=1)
    one("present", [x, w, bias], 2)
    lengths, ranges = np.asarray([4, 2], np.int32), np.asarray([4, 3, 1, 0], np.int32)
    rows = np.asarray([[1, 1, 0, 1], [1, 1, 0, 0]], np.int32)
    each = rng.integers(0, 2, (b, s, s)).astype(np.int32)
    each[:, :, 0] = 1  # Rows without any key are sums with -10000, of which f32 keeps few digits.
    for causal in (0, 1):
        for name, mask in (("lengths", lengths), ("ranges", ranges), ("rows", rows), ("each", each)):
            one(f"{name}_{causal}", [x, w, bias, mask], unidirectional=causal)
    one("filter", [x, w, bias, rows], mask_filter_value=-3.5)
    square = rng.integers(0, 2, (b, 1, 9, 9)).astype(np.int32)
    past = floats(rng, 2, b, n, p, h // n)
    # A mask of four dimensions, which the CPU lacks, holds one of three.
    for name, before in (("square", None), ("square_past", past)):
        start = 0 if before is None else p
        part = np.ascontiguousarray(square[:, 0, start:start + s, :start + s])
        wanted = cases.answers("Attention", [x, w, bias, part, before], 2, num_heads=n)
        cases.formula(f"Attention_{name}", "Attention", [x, w, bias, square, before], wanted, num_heads=n)
    one("past", [x, w, bias, None, past], 2, unidirectional=1)
    one("past_rows", [x, w, bias, rng.integers(0, 2, (b, s + p)).astype(np.int32), past], 2, dynamic=[(4, 3)])
    one("bias", [x, w, bias, None, None, floats(rng, b, n, s, s)])
    one("bias_rows", [x, w, bias, rows, None, floats(rng, 1, n, s, s)])
    one("sizes", [x, const(floats(rng, 10, 12 + 12 + 6)), const(floats(rng, 30))], qkv_hidden_sizes=[12, 12, 6])
    codes = rng.integers(0, 255, (b, s, 10)).astype(np.uint8)
    weights = const(rng.integers(-127, 127, (10, 3 * h)).astype(np.int8))
    scales = [const(np.float32(0.02)), const(np.float32(0.01))]
    zeros = [const(np.uint8(120)), const(np.int8(0))]
    cases.one("QAttention", "QAttention", [codes, weights, bias, *scales, rows, *zeros], num_heads=n)
    cases.one("QAttention_past", "QAttention", [codes, weights, bias, *scales, None, *zeros, past], 2, num_heads=n,
              unidirectional=1)


def multi_head(cases):
    rng = cases.rng("multi_head")
    b, s, l, n, d, dv, p = 2, 3, 5, 2, 4, 6, 3
    q, k, v = floats(rng, b, s, n * d), floats(rng, b, l, n * d), floats(rng, b, l, n * dv)
    one = lambda name, values, outputs=1, **attrs: cases.one(f"MultiHeadAttention_{name}", "MultiHeadAttention", values,
                                                             outputs, **{"num_heads": n, **attrs})
    bias = const(floats(rng, 2 * n * d + n * dv))
    one("plain", [q, k, v])
    one("bias", [q, k, v, bias], scale=0.4)
    one("dynamic", [q, k, v], dynamic=[(0, 1), (1, 1), (2, 1)])
    rows = np.asarray([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0]], np.int32)
    one("rows", [q, k, v, None, rows])
    one("lengths", [q, k, v, None, np.asarray([5, 2], np.int32)])
    one("each", [q, k, v, None, rng.integers(0, 2, (b, s, l)).astype(np.int32)])
    one("filter", [q, k, v, bias, rows], mask_filter_value=-2.0)
    one("added", [q, k, v, None, None, floats(rng, 1, n, s, l)])
    # Packed forms, which the CPU lacks, are the others in one tensor.
    flat = lambda v, i: np.ascontiguousarray(v[:, :, :, i].reshape(*v.shape[:2], -1))
    all, pair = floats(rng, b, s, n, 3, d), floats(rng, b, l, n, 2, d)
    for causal in (0, 1):
        attrs = {"num_heads": n, "unidirectional": causal}
        wanted = cases.answers("MultiHeadAttention", [flat(all, i) for i in range(3)], **attrs)
        cases.formula(f"MultiHeadAttention_packed_{causal}", "MultiHeadAttention", [all], wanted, **attrs)
    wanted = cases.answers("MultiHeadAttention", [q, flat(pair, 0), flat(pair, 1)], num_heads=n)
    cases.formula("MultiHeadAttention_packed_kv", "MultiHeadAttention", [q, pair], wanted, num_heads=n)
    four = lambda: floats(rng, b, n, l, d)
    one("cross", [q, four(), four()])
    # With the bias of queries, keys and values; keys of a cache have theirs.
    one("cross_bias", [q, four(), four(), const(floats(rng, 3 * n * d))])
    own = [floats(rng, b, s, n * d) for _ in range(3)]
    past = [floats(rng, b, n, p, d) for _ in range(2)]
    one("present", own, 3)
    one("past", [*own, None, None, None, *past], 3, unidirectional=1)
    one("past_rows", [*own, const(floats(rng, 3 * n * d)), rng.integers(0, 2, (b, s + p)).astype(np.int32), None, *past],
        3, dynamic=[(6, 2), (7, 2)])


def rotary(cases):
    rng = cases.rng("rotary")
    b, s, n, d, longest = 2, 3, 4, 8, 16
    angle = rng.uniform(0, 6, (longest, d // 2))
    cos, sin = const(np.cos(angle).astype(np.float32)), const(np.sin(angle).astype(np.float32))
    flat, four = floats(rng, b, s, n * d), floats(rng, b, n, s, d)
    ids = rng.integers(0, longest, (b, s))
    for interleaved in (0, 1):
        for name, x in (("flat", flat), ("four", four)):
            cases.one(f"RotaryEmbedding_{name}_{interleaved}", "RotaryEmbedding", [x, ids, cos, sin],
                      interleaved=interleaved)
        cases.one(f"RotaryEmbedding_offset_{interleaved}", "RotaryEmbedding", [flat, np.asarray([5]), cos, sin],
                  interleaved=interleaved, dynamic=[(0, 1)])
    half = [const(np.cos(angle[:, :2]).astype(np.float32)), const(np.sin(angle[:, :2]).astype(np.float32))]
    cases.one("RotaryEmbedding_part", "RotaryEmbedding", [flat, ids, *half], num_heads=n, rotary_embedding_dim=4)


def grouped(cases):
    rng = cases.rng("grouped")
    b, n, g, d, longest = 2, 4, 2, 16, 32
    angle = rng.uniform(0, 6, (longest, d // 2))
    cos, sin = const(np.cos(angle).astype(np.float32)), const(np.sin(angle).astype(np.float32))

    def one(name, s, p, lengths, total, packed=False, rotary=False, bias=False, **attrs):
        new = [floats(rng, b, s, (n + 2 * g) * d), None, None] if packed else \
            [floats(rng, b, s, n * d), floats(rng, b, s, g * d), floats(rng, b, s, g * d)]
        past = [floats(rng, b, g, p, d) for _ in range(2)]
        values = [*new, *past, np.asarray(lengths, np.int32) - 1, np.asarray(total, np.int32)]
        values += [cos, sin] if rotary else [None, None]
        values += [None, floats(rng, 1, n, s, total)] if bias else []
        cases.one(f"GroupQueryAttention_{name}", "GroupQueryAttention", values, 3, num_heads=n, kv_num_heads=g,
                  do_rotary=int(rotary) or None, **attrs)

    one("token", 1, 5, [6, 6], 6)
    one("token_rotary", 1, 5, [6, 6], 6, rotary=True)
    one("token_interleaved", 1, 5, [6, 6], 6, rotary=True, rotary_interleaved=1)
    one("token_packed", 1, 5, [6, 6], 6, packed=True, rotary=True)
    one("token_uneven", 1, 5, [4, 6], 6, rotary=True)
    one("token_in_buffer", 1, 9, [4, 6], 6, rotary=True)
    one("token_window", 1, 9, [10, 10], 10, local_window_size=4)
    one("token_bias", 1, 5, [6, 6], 6, bias=True)
    one("token_softcap", 1, 5, [6, 6], 6, softcap=2.0, scale=0.5)
    one("prompt", 4, 0, [4, 4], 4, rotary=True)
    one("prompt_buffer", 4, 9, [4, 4], 4, rotary=True)
    one("prompt_window", 6, 0, [6, 6], 6, local_window_size=2)


def refusals(cases):
    """Attributes, inputs and outputs that are not converted are named."""
    rng = cases.rng("refusals")
    x, w, bias = floats(rng, 2, 4, 10), const(floats(rng, 10, 36)), const(floats(rng, 36))
    past = floats(rng, 2, 2, 3, 3, 4)
    attention = lambda name, says, values, outputs=1, **attrs: cases.refused(
        f"attention_{name}", "Attention", values, says, outputs, num_heads=3, **attrs)
    attention("rotary", "'do_rotary' = 1", [x, w, bias], do_rotary=1)
    attention("buffer", "'past_present_share_buffer' = 1", [x, w, bias, None, past], past_present_share_buffer=1)
    attention("length", "input 6 (past_sequence_length)", [x, w, bias, None, past, None, np.asarray(3, np.int32)])
    attention("mask", "a mask of 8 entries for a batch of 2", [x, w, bias, np.zeros(8, np.int32)])
    attention("sizes", "three sizes of 36 in all", [x, w, bias], qkv_hidden_sizes=[12, 12, 6])
    own = [floats(rng, 2, 4, 12) for _ in range(3)]
    cases.refused("multi_head_qk", "MultiHeadAttention", own, "output 3 (qk)", 4, num_heads=3)
    cases.refused("multi_head_cache", "MultiHeadAttention",
                  [*own, *[None] * 6, np.zeros((2, 1, 4), np.int32)], "input 9 (cache_indirection)", num_heads=3)
    lengths, total = np.asarray([3, 3], np.int32), np.asarray(4, np.int32)
    group = lambda name, says, extra=(), **attrs: cases.refused(
        f"group_{name}", "GroupQueryAttention", [*own, None, None, lengths, total, *extra], says, 3, num_heads=3,
        kv_num_heads=3, **attrs)
    group("smooth", "'smooth_softmax'", smooth_softmax=1)
    group("qk", "'qk_output' = 1", qk_output=1)
    group("sink", "input 11 (head_sink)", [None] * 4 + [floats(rng, 3)])
    cases.refused("rotary_scale", "RotaryEmbedding", [own[0], np.asarray([0]), const(floats(rng, 8, 2)),
                                                      const(floats(rng, 8, 2))], "'scale' = 2", scale=2.0)
    cases.refused("skip_norm", "SkipSimplifiedLayerNormalization", [own[0], own[1], const(floats(rng, 12))],
                  "output 2 (inv_std_var)", ["y0", "", "y2"])
    cases.refused("stash", "SimplifiedLayerNormalization", [own[0], const(floats(rng, 12))], "'stash_type' = 10",
                  domain="", stash_type=10)
    image, kernel = floats(rng, 1, 2, 4, 4), const(floats(rng, 2, 2, 3, 3))
    cases.refused("activation", "FusedConv", [image, kernel], "fused activation 'Gelu'", activation="Gelu")
    cases.refused("parameters", "FusedConv", [image, kernel], "'Clip' with 1 parameters: wanted 2", activation="Clip",
                  activation_params=[1.0])
    packed = const(np.zeros((3, 1, 8), np.uint8))
    scales, a = const(floats(rng, 3, 1)), floats(rng, 2, 16)
    bits = lambda name, says, values, **attrs: cases.refused(
        f"bits_{name}", "MatMulNBits", values, says, **{"N": 3, "K": 16, "block_size": 16, "bits": 4, **attrs})
    bits("index", "input 4 (g_idx)", [a, packed, scales, None, const(np.zeros(16, np.int32))])
    bits("three", "weights of 3 bits", [a, packed, scales], bits=3)
    bits("variable", "input 1 that is not constant", [a, np.zeros((3, 1, 8), np.uint8), scales])
    bits("short", "wanted 4 rows of 8 bytes", [a, packed, scales], N=4)
    bits("block", "wanted a power of two", [a, packed, scales], block_size=24)
    cases.refused("unknown", "DecoderMaskedMultiHeadAttention", own, "no conversion is known", num_heads=3)


def make(cases):
    refusals(cases)
    activations(cases)
    products(cases)
    norms(cases)
    attention(cases)
    multi_head(cases)
    rotary(cases)
    grouped(cases)
