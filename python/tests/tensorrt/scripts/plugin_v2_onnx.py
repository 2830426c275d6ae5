"""A plug-in of the second interface in Python that pads in a circle, for a node of an ONNX model."""

import ctypes
import json
import sys

import numpy as np
import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.ERROR)
work = sys.argv[2]


def volume(d):
    return np.prod(d)


def as_array(address, dims, dtype):
    count = int(volume(dims))
    raw = (ctypes.c_byte * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(raw, dtype=dtype).reshape(tuple(dims))


class CircPadPlugin(trt.IPluginV2DynamicExt):
    enqueued = 0

    def __init__(self, fc=None):
        trt.IPluginV2DynamicExt.__init__(self)
        self.pads = []
        self.X_shape = []
        self.num_outputs = 1
        self.plugin_namespace = ""
        self.plugin_type = "CircPadPlugin"
        self.plugin_version = "1"
        if fc is not None:
            assert set([f.name for f in fc]) == set(["pads"]), "Found invalid plugin fields"
            for f in fc:
                if f.name == "pads":
                    self.pads = f.data

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, exprBuilder):
        output_dims = trt.DimsExprs(inputs[0])
        for i in range(np.size(self.pads) // 2):
            output_dims[len(output_dims) - i - 1] = exprBuilder.operation(
                trt.DimensionOperation.SUM,
                inputs[0][len(output_dims) - i - 1],
                exprBuilder.constant(self.pads[i * 2] + self.pads[i * 2 + 1]),
            )
        return output_dims

    def serialize(self):
        return json.dumps({"pads": [int(p) for p in self.pads], "X_shape": [int(x) for x in self.X_shape]})

    def configure_plugin(self, inp, out):
        X_dims = inp[0].desc.dims
        assert isinstance(inp[0], trt.DynamicPluginTensorDesc) and out[0].desc.type == inp[0].desc.type
        self.X_shape = np.zeros((len(X_dims),))
        for i in range(len(X_dims)):
            self.X_shape[i] = X_dims[i]

    def supports_format_combination(self, pos, in_out, num_inputs):
        assert num_inputs == 1
        assert pos < len(in_out)
        desc = in_out[pos]
        if desc.format != trt.TensorFormat.LINEAR:
            return False
        if pos == 0:
            return desc.type == trt.DataType.FLOAT or desc.type == trt.DataType.HALF
        if pos == 1:
            return in_out[0].type == desc.type
        assert False

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        CircPadPlugin.enqueued += 1
        inp_dtype = trt.nptype(input_desc[0].type)
        a = as_array(inputs[0], input_desc[0].dims, inp_dtype)
        c = as_array(outputs[0], output_desc[0].dims, inp_dtype)
        width = [(0, 0)] * (a.ndim - len(self.pads) // 2)
        width += [(int(self.pads[i * 2]), int(self.pads[i * 2 + 1])) for i in range(len(self.pads) // 2)][::-1]
        np.copyto(c, np.pad(a, width, "wrap"))
        return 0

    def clone(self):
        cloned_plugin = CircPadPlugin()
        cloned_plugin.__dict__.update(self.__dict__)
        return cloned_plugin


class CircPadPluginCreator(trt.IPluginCreator):
    deserialized = 0

    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name = "CircPadPlugin"
        self.plugin_namespace = ""
        self.plugin_version = "1"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)]
        )

    def create_plugin(self, name, fc):
        return CircPadPlugin(fc)

    def deserialize_plugin(self, name, data):
        CircPadPluginCreator.deserialized += 1
        j = dict(json.loads(bytes(data).decode("utf-8")))
        deserialized = CircPadPlugin()
        deserialized.__dict__.update(j)
        return deserialized


# A model with the node, written by hand: field numbers of ModelProto and its parts.
def number(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(place, value):
    if isinstance(value, int):
        return number(place << 3) + number(value)
    value = value.encode() if isinstance(value, str) else value
    return number(place << 3 | 2) + number(len(value)) + value


def tensor_info(name, dims):
    sizes = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, sizes)))


def model(pads, dims):
    attribute = field(1, "pads") + b"".join(field(8, p) for p in pads) + field(20, 7)
    unknown = field(1, "not_declared") + field(3, 5) + field(20, 2)
    node = field(1, "X") + field(2, "P") + field(3, "pad") + field(4, "CircPadPlugin") + field(5, attribute) + field(5, unknown)
    relu = field(1, "P") + field(2, "Y") + field(3, "relu") + field(4, "Relu")
    graph = field(1, node) + field(1, relu) + field(2, "g") + field(11, tensor_info("X", dims))
    graph += field(12, tensor_info("Y", ["n", "c", "h2", "w2"]))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17))


def build(pads, dims):
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, TRT_LOGGER)
    if not parser.parse(model(pads, dims)):
        for i in range(parser.num_errors):
            print(parser.get_error(i))
        raise SystemExit("the model was not parsed")
    assert network.get_layer(0).type in (trt.LayerType.PLUGIN_V2, trt.LayerType.PLUGIN_V3)
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("X", (1, 2, 3, 3), (1, 2, 3, 5), (2, 2, 6, 6))
    config.add_optimization_profile(profile)
    return builder.build_serialized_network(network, config)


registry = trt.get_plugin_registry()
creator = CircPadPluginCreator()
assert not trt.OnnxParser(trt.Builder(TRT_LOGGER).create_network(0), TRT_LOGGER).parse(model([1, 1], [1, 2, 3, 3]))
assert registry.register_creator(creator, "")
assert not registry.register_creator(CircPadPluginCreator(), "")
assert "CircPadPlugin" in [c.name for c in registry.plugin_creator_list]
assert registry.get_plugin_creator("CircPadPlugin", "1", "") is creator
pads = (1, 2, 3, 0)
plan = build(pads, ["n", 2, "h", "w"])
assert plan is not None, trt.last_error()
open(f"{work}/circ_pad.plan", "wb").write(plan)
runtime = trt.Runtime(TRT_LOGGER)
engine = runtime.deserialize_cuda_engine(open(f"{work}/circ_pad.plan", "rb").read())
context = engine.create_execution_context()
for size in ((1, 2, 3, 5), (2, 2, 6, 4)):
    X = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    context.set_input_shape("X", size)
    Y = np.empty(tuple(context.get_tensor_shape("Y")), np.float32)
    assert context.execute_v2([X.ctypes.data, Y.ctypes.data])
    assert np.array_equal(Y, np.maximum(np.pad(X, [(0, 0), (0, 0), (3, 0), (1, 2)], "wrap"), 0)), (X, Y)
assert CircPadPluginCreator.deserialized >= 1 and CircPadPlugin.enqueued >= 2
assert registry.deregister_creator(creator)
assert not context.execute_v2([X.ctypes.data, Y.ctypes.data]) or CircPadPlugin.enqueued
print("OK")
