"""What ONNX Runtime's quantizer writes: operators of com.microsoft on codes."""
import numpy as np
from onnx import TensorProto, helper

from cases import MS, codes, const, floats

CODES = {"u8": np.uint8, "s8": np.int8}


def params(rng, dtype, low=0.004, high=0.05, size=None, wrap=const):
    """A scale and a zero point."""
    scale = rng.uniform(low, high, size or ()).astype(np.float32)
    return [wrap(scale), wrap(rng.integers(-20, 20, size or ()).astype(np.int8).astype(dtype) if dtype == np.int8
                              else rng.integers(100, 150, size or ()).astype(dtype))]


def elementwise(cases):
    for name, dtype in CODES.items():
        rng = cases.rng(f"elementwise_{name}")
        shapes = [((3, 4, 5), (3, 4, 5)), ((2, 5), (5,)), ((4, 1, 3), (2, 1)), ((7,), ())]
        for i, (a, b) in enumerate(shapes):
            for op in ("QLinearAdd", "QLinearMul"):
                values = [codes(rng, dtype, *a), *params(rng, dtype), codes(rng, dtype, *b), *params(rng, dtype),
                          *params(rng, dtype, 0.02, 0.06)]
                cases.one(f"{op}_{name}_{i}", op, values, dynamic=[(0, 0)] if i == 0 else ())
        x = codes(rng, dtype, 2, 3, 7)
        cases.one(f"QLinearSigmoid_{name}", "QLinearSigmoid", [x, *params(rng, dtype), const(np.float32(1 / 256)),
                                                               const(dtype(0 if name == "u8" else -128))])
        for alpha in (None, 0.3):
            cases.one(f"QLinearLeakyRelu_{name}_{alpha}", "QLinearLeakyRelu",
                      [x, *params(rng, dtype), *params(rng, dtype)], alpha=alpha)
        condition = rng.integers(0, 2, (2, 1, 7)).astype(bool)
        cases.one(f"QLinearWhere_{name}", "QLinearWhere", [condition, x, *params(rng, dtype), codes(rng, dtype, 3, 7),
                                                           *params(rng, dtype), *params(rng, dtype)])


def joined(cases):
    for name, dtype in CODES.items():
        rng = cases.rng(f"joined_{name}")
        for axis in (0, 1, -1):
            parts = []
            for _ in range(3):
                shape = [2, 3, 4]
                shape[axis] = int(rng.integers(1, 4))
                parts += [codes(rng, dtype, *shape), *params(rng, dtype)]
            cases.one(f"QLinearConcat_{name}_{axis}", "QLinearConcat", [*params(rng, dtype), *parts], axis=axis)
        for opset, axis in ((13, -1), (13, 1), (12, 1), (12, 2)):
            x = codes(rng, dtype, 2, 3, 6)
            cases.one(f"QLinearSoftmax_{name}_{opset}_{axis}", "QLinearSoftmax",
                      [x, *params(rng, dtype, 0.02, 0.06), const(np.float32(1 / 256)),
                       const(dtype(0 if name == "u8" else -128))], slack=1, axis=axis, opset=opset)


def images(cases):
    for name, dtype in CODES.items():
        rng = cases.rng(f"images_{name}")
        for last in (0, 1):
            shape = (2, 6, 7, 5) if last else (2, 5, 6, 7)
            x = codes(rng, dtype, *shape)
            cases.one(f"QLinearGlobalAveragePool_{name}_{last}", "QLinearGlobalAveragePool",
                      [x, *params(rng, dtype), *params(rng, dtype)], channels_last=last)
            for i, extra in enumerate([{}, {"pads": [1, 0, 1, 1], "count_include_pad": 1, "strides": [2, 1]},
                                       {"pads": [1, 1, 0, 0], "strides": [2, 2], "ceil_mode": 1},
                                       {"auto_pad": "SAME_UPPER", "strides": [2, 2]}]):
                cases.one(f"QLinearAveragePool_{name}_{last}_{i}", "QLinearAveragePool",
                          [x, *params(rng, dtype), *params(rng, dtype)], kernel_shape=[3, 2], channels_last=last,
                          **extra)
            weights, bias = codes(rng, np.int8, 4, 5, 3, 3), rng.integers(-500, 500, 4).astype(np.int32)
            for i, extra in enumerate([{}, {"pads": [1, 1, 0, 1], "strides": [2, 1]}, {"dilations": [2, 1]}]):
                values = [x, *params(rng, dtype), const(weights), *params(rng, np.int8, 0.002, 0.01),
                          *params(rng, dtype, 0.3, 0.6), const(bias)]
                values[5] = const(np.int8(0))
                cases.one(f"QLinearConv_{name}_{last}_{i}", "QLinearConv", values, channels_last=last, **extra)
        x = codes(rng, dtype, 2, 6, 7, 3)
        for i, extra in enumerate([{}, {"pads": [1, 1, 1, 0], "strides": [2, 1]}, {"dilations": [2, 2]},
                                   {"strides": [2, 2], "ceil_mode": 1}]):
            cases.one(f"NhwcMaxPool_{name}_{i}", "NhwcMaxPool", [x], kernel_shape=[2, 3], **extra)


def products(cases):
    for name, dtype in CODES.items():
        rng = cases.rng(f"products_{name}")
        for i, (ta, tb, alpha, column, biased, quantized) in enumerate(
                [(0, 0, None, 0, 0, 1), (0, 1, 0.5, 0, 1, 1), (1, 0, 2.0, 1, 1, 1), (1, 1, None, 1, 0, 0), (0, 1, 1.5, 0, 1, 0)]):
            a, b = codes(rng, dtype, *((6, 3) if ta else (3, 6))), codes(rng, np.int8, *((4, 6) if tb else (6, 4)))
            weights = params(rng, np.int8, 0.002, 0.02, 4 if column else None)
            if column:
                weights[1] = const(np.zeros(4, np.int8))
            values = [a, *params(rng, dtype), const(b), *weights,
                      const(rng.integers(-900, 900, 4).astype(np.int32)) if biased else None]
            values += params(rng, dtype, 0.1, 0.2) if quantized else []
            cases.one(f"QGemm_{name}_{i}", "QGemm", values, transA=ta, transB=tb, alpha=alpha)
        for wname, wtype in CODES.items():
            for column in (0, 1):
                size = 5 if column else None
                a, b = codes(rng, dtype, 2, 3, 6), codes(rng, wtype, 6, 5)
                (a_scale, a_zero), (b_scale, b_zero) = params(rng, dtype), params(rng, wtype, size=size)
                for i, (zeros, bias) in enumerate([((None, None), None), ((a_zero, b_zero), const(floats(rng, 5)))]):
                    if name == "s8" and wname == "u8":
                        continue
                    cases.one(f"MatMulIntegerToFloat_{name}_{wname}_{column}_{i}", "MatMulIntegerToFloat",
                              [a, const(b), a_scale, b_scale, *zeros, bias], dynamic=[(0, 1)])
    for wname, wtype in CODES.items():
        for column in (0, 1):
            rng = cases.rng(f"dynamic_{wname}_{column}")
            b_scale, b_zero = params(rng, wtype, size=5 if column else None)
            for i, (zero, bias) in enumerate([(None, None), (b_zero, const(floats(rng, 5)))]):
                cases.one(f"DynamicQuantizeMatMul_{wname}_{column}_{i}", "DynamicQuantizeMatMul",
                          [floats(rng, 2, 4, 6), const(codes(rng, wtype, 6, 5)), b_scale, zero, bias])


def few_bits(cases):
    for bits, rows, depth, block in ((4, 5, 32, 16), (4, 3, 40, 16), (4, 4, 64, 32), (8, 5, 48, 16), (8, 3, 20, 16)):
        rng = cases.rng(f"few_bits_{bits}_{depth}")
        blocks = -(-depth // block)
        weights = rng.integers(0, 256, (rows, blocks, block * bits // 8), dtype=np.uint8)
        scales = rng.uniform(0.01, 0.1, (rows, blocks)).astype(np.float32)
        packed = rng.integers(0, 256, (rows, -(-blocks * bits // 8)), dtype=np.uint8)
        real = rng.uniform(0, 15, (rows, blocks)).astype(np.float32)
        for name, zero in (("none", None), ("packed", const(packed)), ("float", const(real))):
            if name == "float" and bits == 8:
                continue
            for bias in (None, const(floats(rng, rows))):
                cases.one(f"MatMulNBits_{bits}_{depth}_{name}_{bias is not None}", "MatMulNBits",
                          [floats(rng, 2, 3, depth), const(weights), const(scales), zero, None, bias],
                          N=rows, K=depth, bits=bits, block_size=block)


def both_domains(cases):
    """Quantization with 16 bits and per axis, and a chain as the quantizer writes it."""
    rng = cases.rng("both")
    for name, dtype in {**CODES, "u16": np.uint16, "s16": np.int16}.items():
        scale, zero = const(np.asarray([0.01, 0.3], np.float32)), const(np.asarray([3, 7], dtype))
        x = floats(rng, 3, 2, 4, low=-30, high=30)
        cases.one(f"QuantizeLinear_{name}", "QuantizeLinear", [x, scale, zero], axis=1)
        cases.one(f"DequantizeLinear_{name}", "DequantizeLinear", [codes(rng, dtype, 3, 2, 4), scale, zero], axis=1)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], domain=MS),
             helper.make_node("QLinearAdd", ["q", "s", "z", "q", "s", "z", "t", "z"], ["a"], domain=MS),
             helper.make_node("QLinearSigmoid", ["a", "t", "z", "u", "w"], ["b"], domain=MS),
             helper.make_node("DequantizeLinear", ["b", "u", "w"], ["y"], domain=MS)]
    values = {"s": const(np.float32(0.0213)), "z": const(np.uint8(121)), "t": const(np.float32(0.0431)),
              "u": const(np.float32(1 / 256)), "w": const(np.uint8(0)), "x": floats(rng, 4, 5)}
    cases.graph("chain", nodes, values, ["y", "a"])


def make(cases):
    elementwise(cases)
    joined(cases)
    images(cases)
    products(cases)
    few_bits(cases)
    both_domains(cases)
