"""Element types that Kiln holds in others: casts, arithmetic that wraps, moves, control flow."""
import numpy as np
from onnx import TensorProto, helper

from cases import const, codes, floats

HELD = {"int16": (np.int16, TensorProto.INT16), "uint16": (np.uint16, TensorProto.UINT16),
        "uint32": (np.uint32, TensorProto.UINT32), "uint64": (np.uint64, TensorProto.UINT64),
        "double": (np.float64, TensorProto.DOUBLE)}
INTEGERS = ["int16", "uint16", "uint32", "uint64"]


def small(rng, dtype, *shape):
    """Numbers that every held type represents: below 2^62 for UINT64, with few bits for DOUBLE."""
    if dtype == np.float64:
        return rng.integers(-1000, 1000, shape).astype(dtype) / 8
    info = np.iinfo(dtype)
    return rng.integers(info.min, min(int(info.max), 2**62), shape, dtype=dtype, endpoint=True)


def casts(cases):
    sources = {"i64": np.int64, "i32": np.int32, "i8": np.int8, "u8": np.uint8, "bool": np.bool_}
    for to, (_, number) in HELD.items():
        for name, dtype in sources.items():
            rng = cases.rng(f"cast_{name}_{to}")
            x = rng.integers(0, 2, (3, 5)).astype(bool) if dtype == np.bool_ else codes(rng, dtype, 3, 5)
            if to in ("uint64", "double"):
                x = np.abs(x.astype(np.int64) // 2**32).astype(dtype) if name == "i64" else np.abs(x // 2)
            cases.one(f"cast_{name}_{to}", "Cast", [x], domain="", to=number)
        # Floats beyond the type wrap; ONNX Runtime truncates by way of 32 or 64 bits.
        rng = cases.rng(f"cast_f32_{to}")
        x = floats(rng, 4, 6, low=-1e5, high=1e5) if to != "uint64" else floats(rng, 4, 6, low=0, high=1e12)
        cases.one(f"cast_f32_{to}", "Cast", [x], domain="", to=number)
    for of, (dtype, _) in HELD.items():
        rng = cases.rng(f"cast_{of}_back")
        x = small(rng, dtype, 4, 6)
        for to in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.BOOL, TensorProto.UINT16,
                   TensorProto.INT16):
            if of == "double" and to not in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL):
                continue
            cases.one(f"cast_{of}_{to}", "Cast", [x], domain="", to=to)
        like = np.zeros(1, dtype)
        x = codes(rng, np.int32, 9) if of in ("int16", "uint16", "uint32") else np.arange(9, dtype=np.int32)
        cases.one(f"cast_like_{of}", "CastLike", [x, like], domain="")


def arithmetic(cases):
    for of in INTEGERS:
        dtype = HELD[of][0]
        rng = cases.rng(of)
        own = np.uint32 if of == "uint64" else dtype
        a, b = codes(rng, own, 4, 5).astype(dtype), codes(rng, own, 5).astype(dtype)
        if of == "uint64":
            a, b = a // 8, b // 8
        cases.one(f"div_{of}", "Div", [a, b // 1000 + 1], domain="")
        cases.one(f"mul_{of}", "Mul", [a, b], domain="")
        cases.one(f"add_{of}", "Add", [a, b], domain="")
        cases.one(f"less_{of}", "Less", [a, b], domain="")
        cases.one(f"equal_{of}", "Equal", [a, a * 1], domain="")
        cases.one(f"mod_{of}", "Mod", [a, b // 1000 + 1], domain="")
        cases.one(f"max_{of}", "Max", [a, b], domain="")
        cases.one(f"min_{of}", "Min", [a, b], domain="")
        if of.startswith("uint") and of != "uint16":
            cases.one(f"sum_{of}", "ReduceSum", [a, const(np.asarray([1]))], domain="")
        if of == "int16":
            cases.one("abs_int16", "Abs", [np.asarray([-32768, -5, 7], dtype)], domain="")
            cases.one("neg_int16", "Neg", [np.asarray([-32768, -5, 7], dtype)], domain="")
            continue
        cases.one(f"shift_left_{of}", "BitShift", [a, const(np.asarray(5, dtype))], domain="", direction="LEFT")
        cases.one(f"shift_right_{of}", "BitShift", [a, const(np.asarray(5, dtype))], domain="", direction="RIGHT")
    rng = cases.rng("sub")
    a, b = codes(rng, np.uint32, 4, 5), codes(rng, np.uint32, 5)
    cases.one("sub_uint32", "Sub", [a, b], domain="")
    cases.one("xor_uint32", "BitwiseXor", [a, b], domain="", version=18)
    cases.one("not_uint32", "BitwiseNot", [a], domain="", version=18)
    x = floats(rng, 3, 7, dtype=np.float64)
    cases.one("sub_double", "Sub", [x, const(floats(rng, 7, dtype=np.float64))], domain="")
    cases.one("exp_double", "Exp", [x], domain="")
    cases.one("matmul_double", "MatMul", [x, const(floats(rng, 7, 4, dtype=np.float64))], domain="")
    cases.one("mean_double", "ReduceMean", [x, const(np.asarray([1]))], domain="", version=18, keepdims=0)


def moves(cases):
    for of, (dtype, number) in HELD.items():
        rng = cases.rng(f"moves_{of}")
        x = small(rng, dtype, 3, 4)
        cases.one(f"transpose_{of}", "Transpose", [x], domain="", dynamic=[(0, 1)], perm=[1, 0])
        cases.one(f"concat_{of}", "Concat", [x, const(small(rng, dtype, 2, 4))], domain="", axis=0)
        cases.one(f"split_{of}", "Split", [x, const(np.asarray([1, 2]))], outputs=2, domain="", axis=0)
        cases.one(f"where_{of}", "Where", [x > 0, x, const(np.zeros(4, dtype))], domain="")
        cases.one(f"gather_{of}", "Gather", [x, const(np.asarray([2, 0]))], domain="", axis=1)
        value = helper.make_tensor("value", number, [1], [7])
        cases.one(f"constant_of_shape_{of}", "ConstantOfShape", [np.asarray([2, 3])], domain="", value=value)
    for of in ("int16", "double"):
        start, limit, delta = (np.asarray(v, HELD[of][0]) for v in (3, 20, 4))
        cases.one(f"range_{of}", "Range", [const(start), const(limit), const(delta)], domain="")


def chains(cases):
    """The type goes through branches and loops, and arithmetic behind them wraps."""
    rng = cases.rng("chains")
    x = codes(rng, np.uint32, 6)
    body = lambda op, y: helper.make_graph([helper.make_node(op, ["x", "c"], [y])], op, [],
                                           [helper.make_tensor_value_info(y, TensorProto.UINT32, [6])])
    nodes = [helper.make_node("If", ["go"], ["b"], then_branch=body("Add", "t"), else_branch=body("Mul", "e")),
             helper.make_node("Add", ["b", "x"], ["s"]), helper.make_node("Cast", ["s"], ["y"], to=TensorProto.INT64)]
    for go in (True, False):
        cases.graph(f"if_{go}", nodes, {"x": x, "c": const(x[::-1].copy()), "go": np.asarray(go)}, ["y", "s"])
    value = lambda name, number, shape: helper.make_tensor_value_info(name, number, shape)
    loop = helper.make_graph(
        [helper.make_node("Add", ["v", "x"], ["n"]), helper.make_node("Identity", ["go_in"], ["go_out"])], "body",
        [value("i", TensorProto.INT64, []), value("go_in", TensorProto.BOOL, []), value("v", TensorProto.UINT32, [6])],
        [value("go_out", TensorProto.BOOL, []), value("n", TensorProto.UINT32, [6])])
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["last"], body=loop),
             helper.make_node("Cast", ["last"], ["y"], to=TensorProto.INT64)]
    cases.graph("loop", nodes, {"x": x, "count": np.asarray(7)}, ["y", "last"])


def quantized(cases):
    for of in ("int16", "uint16"):
        rng, dtype = cases.rng(f"quantized_{of}"), HELD[of][0]
        zero = const(np.asarray([100, 7, 3], dtype))
        scale = const(np.asarray([0.01, 0.002, 0.3], np.float32))
        x = floats(rng, 2, 3, 5, low=-900, high=900)
        cases.one(f"quantize_{of}", "QuantizeLinear", [x, scale, zero], domain="", axis=1)
        cases.one(f"dequantize_{of}", "DequantizeLinear", [codes(rng, dtype, 2, 3, 5), scale, zero], domain="", axis=1)
        cases.one(f"quantize_dtype_{of}", "QuantizeLinear", [x, const(np.float32(0.02))], domain="",
                  output_dtype=HELD[of][1])
    rng = cases.rng("uint4")
    weights = helper.make_tensor("w", TensorProto.UINT4, [4, 6], rng.integers(0, 16, 24).tolist())
    zero = helper.make_tensor("z", TensorProto.UINT4, [4], [0, 3, 8, 15])
    scale = np.asarray([0.5, 0.25, 2, 1], np.float32)
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0),
             helper.make_node("MatMul", ["x", "d"], ["y"])]
    values = {"w": (weights, "const"), "z": (zero, "const"), "s": const(scale), "x": floats(rng, 3, 4)}
    cases.graph("uint4_weights", nodes, values, ["y"])
    zero = helper.make_tensor("z", TensorProto.UINT4, [], [8])
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    values = {"z": (zero, "const"), "s": const(np.float32(0.25)), "x": floats(rng, 3, 7, low=-4, high=4)}
    cases.graph("uint4_round_trip", nodes, values, ["y"])


def make(cases):
    casts(cases)
    arithmetic(cases)
    moves(cases)
    chains(cases)
    quantized(cases)
