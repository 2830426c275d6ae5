"""Plug-ins by decorators: descriptions, implementations, types that are taken, attributes, aliases."""

from typing import List, Tuple

import numpy as np
import tensorrt as trt
import tensorrt.plugin as trtp


@trtp.register("sample::elemwise_add_plugin")
def add_plugin_desc(inp0: trtp.TensorDesc, block_size: int, scale: float = 1.0) -> trtp.TensorDesc:
    return inp0.like()


@trtp.autotune("sample::elemwise_add_plugin")
def add_plugin_autotune(inp0: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]) -> List[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR", [3])]


@trtp.impl("sample::elemwise_add_plugin")
def add_plugin_impl(inp0: trtp.Tensor, block_size: int, scale: float, outputs: Tuple[trtp.Tensor], stream: int, tactic: int) -> None:
    assert tactic == 3 and block_size == 256 and inp0.numel() == np.asarray(inp0).size and isinstance(stream, int)
    np.asarray(outputs[0])[...] = np.asarray(inp0) + scale


@trtp.register("sample::circ_pad_plugin")
def circ_pad_desc(inp0: trtp.TensorDesc, pads: np.ndarray, mode: str) -> trtp.TensorDesc:
    ndim = inp0.ndim
    out_desc = inp0.like()
    for i in range(np.size(pads) // 2):
        out_desc.shape_expr[ndim - i - 1] += int(pads[i * 2] + pads[i * 2 + 1])
    return out_desc


@trtp.impl("sample::circ_pad_plugin")
def circ_pad_impl(inp0: trtp.Tensor, pads: np.ndarray, mode: str, outputs: Tuple[trtp.Tensor], stream: int) -> None:
    x = np.from_dlpack(inp0)
    width = [(0, 0)] * x.ndim
    for i in range(np.size(pads) // 2):
        width[x.ndim - i - 1] = (int(pads[i * 2]), int(pads[i * 2 + 1]))
    np.asarray(outputs[0])[...] = np.pad(x, width, mode)


@trtp.register("sample::in_place_add")
def in_place_desc(inp0: trtp.TensorDesc, delta: int) -> Tuple[trtp.TensorDesc]:
    return (inp0.aliased(),)


@trtp.impl("sample::in_place_add")
def in_place_impl(inp0: trtp.Tensor, delta: int, outputs: Tuple[trtp.Tensor], stream: int) -> None:
    assert inp0.data_ptr == outputs[0].data_ptr
    np.asarray(inp0)[...] += delta


logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
builder = trt.Builder(logger)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
x = network.add_input("x", trt.float32, (-1, 3, 4))
layer = network.add_plugin(trtp.op.sample.elemwise_add_plugin(x, block_size=256, scale=0.5))
assert layer is not None and layer.type == trt.LayerType.PLUGIN_V3, trt.last_error()
pads = np.array([1, 2, 0, 1], dtype=np.int32)
padded = network.add_plugin(trtp.op.sample.circ_pad_plugin(layer.get_output(0), pads=pads, mode="wrap")).get_output(0)
assert padded.shape == (-1, 4, 7), padded.shape
y = network.add_plugin(trtp.op.sample.in_place_add(padded, delta=4)).get_output(0)
y.name = "y"
network.mark_output(y)
config = builder.create_builder_config()
profile = builder.create_optimization_profile()
profile.set_shape("x", (1, 3, 4), (2, 3, 4), (5, 3, 4))
config.add_optimization_profile(profile)
plan = builder.build_serialized_network(network, config)
assert plan is not None, trt.last_error()
engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
context = engine.create_execution_context()
for n in (1, 4):
    a = np.random.default_rng(n).standard_normal((n, 3, 4)).astype(np.float32)
    assert context.set_input_shape("x", a.shape)
    found = np.empty(tuple(context.get_tensor_shape("y")), np.float32)
    assert context.execute_v2([a.ctypes.data, found.ctypes.data]), trt.last_error()
    assert np.allclose(found, np.pad(a + 0.5, [(0, 0), (0, 1), (1, 2)], "wrap") + 4)
for wrong, text in (
    (lambda: trtp.op.sample.no_such(x), "no_such"),
    (lambda: trtp.register("sample::in_place_add")(in_place_desc), "already"),
    (lambda: trtp.register("in_place_add"), "namespace"),
    (lambda: trtp.impl("sample::none"), None),
    (lambda: trtp.impl("sample::none")(in_place_impl), "register"),
    (lambda: trtp.aot_impl("sample::in_place_add")(in_place_impl), "compiled kernels"),
):
    try:
        wrong()
        assert text is None
    except (AttributeError, ValueError, NotImplementedError) as e:
        assert text in str(e), e
print("OK")
