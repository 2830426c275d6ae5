"""Changes a parsed network: names, types of layers, further outputs, layers behind the outputs, other inputs, sizes."""

import sys

import numpy as np
import tensorrt as trt

data = sys.argv[1]
logger = trt.Logger(trt.Logger.WARNING)


class Loggers(trt.ILogger):
    """Passes messages on to Python's logging."""

    def __init__(self):
        trt.ILogger.__init__(self)
        self.lines = []

    def log(self, severity, msg):
        names = {trt.ILogger.INTERNAL_ERROR: "critical", trt.ILogger.ERROR: "error", trt.ILogger.WARNING: "warning",
                 trt.ILogger.INFO: "info", trt.ILogger.VERBOSE: "debug"}
        self.lines.append((names[severity], msg))


own = Loggers()
builder = trt.Builder(own)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
network.name = "surgery"
parser = trt.OnnxParser(network, own)
assert parser.parse_from_file(data + "/lenet_a.onnx"), [str(parser.get_error(i)) for i in range(parser.num_errors)]
before = [(network.get_layer(i).name, network.get_layer(i).type) for i in range(network.num_layers)]
assert any(t == trt.LayerType.CONVOLUTION for _, t in before)
config = builder.create_builder_config()
config.set_flag(trt.BuilderFlag.FP16)
config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
config.flags |= 1 << int(trt.BuilderFlag.REFIT)
assert config.get_flag(trt.BuilderFlag.REFIT) and config.flags >> int(trt.BuilderFlag.FP16) & 1
config.flags &= ~(1 << int(trt.BuilderFlag.REFIT))
assert not config.get_flag(trt.BuilderFlag.REFIT)
marked = None
for layer in network:
    if layer.type in (trt.LayerType.SHUFFLE, trt.LayerType.CONSTANT, trt.LayerType.CONCATENATION, trt.LayerType.SHAPE,
                      trt.LayerType.GATHER, trt.LayerType.SLICE):
        continue
    if any(layer.get_input(i) is not None and layer.get_input(i).dtype == trt.int32 for i in range(layer.num_inputs)):
        continue
    if layer.type == trt.LayerType.CONVOLUTION and marked is None:
        layer.precision = trt.float32
        layer.set_output_type(0, trt.float32)
        marked = layer.get_output(0)
        layer.name = "first_conv"
        layer.metadata = "kept in float32"
assert marked is not None
network.mark_output(marked)
marked.name = "conv_out"
logits = network.get_output(0)
assert logits.is_network_output and not logits.is_network_input and logits.name == "logits"
network.unmark_output(logits)
soft = network.add_softmax(logits)
soft.axes = 1 << 1
top = network.add_topk(soft.get_output(0), trt.TopKOperation.MAX, 2, 1 << 1)
top.name = "best"
one = network.add_constant((1, 1), np.array([[255]], np.float32))
scaled = network.add_elementwise(top.get_output(0), one.get_output(0), trt.ElementWiseOperation.PROD)
as_int = network.add_cast(scaled.get_output(0), trt.int32)
for tensor, name in ((as_int.get_output(0), "percent"), (top.get_output(1), "digits")):
    tensor.name = name
    network.mark_output(tensor)
assert {network.get_output(i).name for i in range(network.num_outputs)} == {"conv_out", "percent", "digits"}
# Bytes instead of floats as input: the first layers read what the new ones make.
raw = network.add_input("raw", trt.uint8, (-1, 28, 28, 1))
cast = network.add_cast(raw, trt.float32)
turn = network.add_shuffle(cast.get_output(0))
turn.first_transpose = (0, 3, 1, 2)
factor = network.add_constant((1, 1, 1, 1), np.array([1 / 255], np.float32)).get_output(0)
image = network.add_elementwise(turn.get_output(0), factor, trt.ElementWiseOperation.PROD).get_output(0)
old = network.get_input(0)
for i in range(len(before)):
    layer = network.get_layer(i)
    for j in range(layer.num_inputs):
        if layer.get_input(j) == old:
            layer.set_input(j, image)
network.remove_tensor(old)
assert [network.get_input(i).name for i in range(network.num_inputs)] == ["raw"], [network.get_input(i).name for i in range(network.num_inputs)]
profile = builder.create_optimization_profile()
profile.set_shape("raw", (1, 28, 28, 1), (8, 28, 28, 1), (32, 28, 28, 1))
assert config.add_optimization_profile(profile) == 0
plan = builder.build_serialized_network(network, config)
assert plan is not None, trt.last_error()
assert any(kind == "info" and "Engine generation completed in" in text for kind, text in own.lines), own.lines
assert any(kind == "debug" and "first_conv" in text for kind, text in own.lines), own.lines
engine = trt.Runtime(own).deserialize_cuda_engine(plan)
context = engine.create_execution_context()
images, labels = (np.load(f"{data}/digits_test.npz")[n] for n in ("images", "labels"))
scale = 255 / images.max()
given = np.ascontiguousarray(np.rint(np.clip(images[:32], 0, None) * scale).astype(np.uint8).transpose(0, 2, 3, 1))
context.set_input_shape("raw", given.shape)
found = {}
for name in engine:
    if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT:
        found[name] = np.zeros(tuple(context.get_tensor_shape(name)), trt.nptype(engine.get_tensor_dtype(name)))
        context.set_tensor_address(name, found[name].ctypes.data)
context.set_tensor_address("raw", given.ctypes.data)
assert context.execute_async_v3(0)
assert (found["digits"][:, 0] == labels[:32]).mean() > 0.85, (found["digits"][:, 0], labels[:32])
assert found["percent"].dtype == np.int32 and (found["percent"] <= 255).all() and found["percent"][:, 0].mean() > 128
assert found["conv_out"].any() and found["conv_out"].dtype == np.float32
print("OK")
