"""Searches layers to keep wide by a loop over builds, as accuracy tools do: constraints, resets, network walks with layer specific classes."""

import sys
import os

import numpy as np
import tensorrt as trt

DATA, WORK = sys.argv[1:3]
L = trt.Logger(trt.Logger.ERROR)


def build(wide):
    b = trt.Builder(L)
    n = b.create_network()
    p = trt.OnnxParser(n, L)
    assert p.parse_from_file(os.path.join(DATA, "lenet_a.onnx"))
    n.get_input(0).shape = (4, 1, 28, 28)
    c = b.create_builder_config()
    c.set_flag(trt.BuilderFlag.FP16)
    c.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    for layer in n:
        assert isinstance(layer, trt.ILayer)
        kind = layer.type
        if kind in (trt.LayerType.SHAPE, trt.LayerType.CONSTANT, trt.LayerType.CONCATENATION, trt.LayerType.SHUFFLE):
            continue
        if layer.name in wide or any(w in layer.name for w in wide):
            layer.precision = trt.float32
            for i in range(layer.num_outputs):
                if layer.get_output_type(i) in (trt.float32, trt.float16):
                    layer.set_output_type(i, trt.float32)
            assert layer.precision_is_set
        elif kind == trt.LayerType.ACTIVATION:
            layer.reset_precision()
            assert not layer.precision_is_set
    e = b.build_engine_with_config(n, c)
    x = np.ascontiguousarray(np.load(os.path.join(DATA, "digits_test.npz"))["images"][:4])
    y = np.zeros((4, 10), np.float32)
    assert e.create_execution_context().execute_v2([x.ctypes.data, y.ctypes.data])
    return y


names = []
b = trt.Builder(L)
n = b.create_network()
p = trt.OnnxParser(n, L)
p.parse_from_file(os.path.join(DATA, "lenet_a.onnx"))
names = [n.get_layer(i).name for i in range(n.num_layers)]
exact = build(names)
half = build([])
one = build([x for x in names if "fc" in x.lower()])
assert np.abs(half - exact).max() < 0.1 and np.abs(one - exact).max() <= np.abs(half - exact).max() + 2e-2
print("OK")
