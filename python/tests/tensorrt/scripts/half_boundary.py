"""Layers kept wide in a half-precision build by a walk over types and names; obey and prefer; outputs' types; formats of inputs."""

import os
import re
import sys

import numpy as np
import tensorrt as trt

DATA, WORK = sys.argv[1:3]
L = trt.Logger(trt.Logger.ERROR)


def build(obey=True, io_half=False):
    b = trt.Builder(L)
    n = b.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    p = trt.OnnxParser(n, L)
    assert p.parse_from_file(os.path.join(DATA, "lenet_a_bn.onnx"))
    c = b.create_builder_config()
    c.set_flag(trt.BuilderFlag.FP16)
    c.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS if obey else trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
    kept = 0
    for i in range(n.num_layers):
        l = n.get_layer(i)
        if l.type in (trt.LayerType.SHAPE, trt.LayerType.CONSTANT, trt.LayerType.CONCATENATION, trt.LayerType.GATHER):
            continue
        if l.num_outputs and l.get_output(0).dtype in (trt.int32, trt.int64, trt.bool):
            continue
        if re.search("fc|Gemm", l.name) or l.type == trt.LayerType.SOFTMAX:
            l.precision = trt.float32
            for j in range(l.num_outputs):
                l.set_output_type(j, trt.float32)
            kept += 1
            assert (
                l.precision_is_set
                and l.precision == trt.float32
                and l.output_type_is_set(0)
                and l.get_output_type(0) == trt.float32
            )
        else:
            l.precision = trt.DataType.HALF
    assert kept
    l.reset_precision()
    l.reset_output_type(0)
    assert not l.precision_is_set and not l.output_type_is_set(0)
    if io_half:
        n.get_input(0).dtype = trt.float16
        n.get_output(0).dtype = trt.float16
        n.get_input(0).allowed_formats = 1 << int(trt.TensorFormat.LINEAR)
        c.set_flag(trt.BuilderFlag.DIRECT_IO)
    pr = b.create_optimization_profile()
    pr.set_shape("input", (1, 1, 28, 28), (8, 1, 28, 28), (8, 1, 28, 28))
    c.add_optimization_profile(pr)
    plan = b.build_serialized_network(n, c)
    assert plan is not None, trt.last_error()
    return trt.Runtime(L).deserialize_cuda_engine(plan)


z = np.load(os.path.join(DATA, "digits_test.npz"))
for obey, half in ((True, False), (False, False), (True, True)):
    e = build(obey, half)
    dt = trt.nptype(e.get_tensor_dtype("input"))
    assert dt == (np.float16 if half else np.float32)
    assert e.get_tensor_format("input") == trt.TensorFormat.LINEAR and e.get_tensor_format_desc("input")
    a = z["images"][:8].astype(dt)
    o = np.empty((8, 10), trt.nptype(e.get_tensor_dtype("logits")))
    c = e.create_execution_context()
    c.set_input_shape("input", a.shape)
    assert c.execute_v2([a.ctypes.data, o.ctypes.data]) and (o.argmax(1) == z["labels"][:8]).all()
print("OK")
