"""Prints every error of the parser, as exporters do, for models that are damaged or not supported."""

import os
import sys

import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.ERROR)


def parse(data):
    with trt.Builder(TRT_LOGGER) as builder, builder.create_network(0) as network, trt.OnnxParser(
        network, TRT_LOGGER
    ) as parser:
        success = parser.parse(data)
        errors = []
        for idx in range(parser.num_errors):
            error = parser.get_error(idx)
            print(error)
            errors.append((error.code(), error.node(), error.desc()))
        parser.clear_errors()
        assert parser.num_errors == 0
        return success, errors, network.num_layers


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def model(op):
    """A model of one node in the encoding of ONNX, without the library."""
    dim = field(1, varint(1 << 3) + varint(4))
    kind = field(1, varint(1 << 3) + varint(1) + field(2, dim))
    node = field(1, b"x") + field(2, b"y") + field(3, b"the_node") + field(4, op)
    graph = field(1, node) + field(2, b"g") + field(11, field(1, b"x") + field(2, kind))
    graph += field(12, field(1, b"y") + field(2, kind))
    opset = field(8, varint(2 << 3) + varint(17))
    return varint(1 << 3) + varint(8) + field(7, graph) + opset


good, errors, layers = parse(model(b"Relu"))
assert good and not errors and layers == 1, errors
bad, errors, layers = parse(model(b"NoSuchOperator"))
assert not bad and len(errors) == 1 and "NoSuchOperator" in errors[0][2], errors
assert errors[0][0] == trt.ErrorCode.UNSUPPORTED_NODE and errors[0][1] == 0
for damaged in (b"", b"not a model", open(os.path.join(sys.argv[1], "lenet_a.onnx"), "rb").read()[:1000]):
    bad, errors, _ = parse(damaged)
    assert not bad and errors, damaged[:20]

network = trt.Builder(TRT_LOGGER).create_network(0)
parser = trt.OnnxParser(network, TRT_LOGGER)
assert not parser.parse_from_file("/no/such/file.onnx") and parser.num_errors == 1
assert parser.get_error(0).code() == trt.ErrorCode.MODEL_DESERIALIZE_FAILED
supported, parts = parser.supports_model(model(b"NoSuchOperator"))
assert not supported and parts == [([0], False)], parts
assert parser.supports_model(model(b"Relu")) == (True, [([0], True)])
assert parser.supports_operator("Conv") and not parser.supports_operator("NoSuchOperator")
print("OK")
