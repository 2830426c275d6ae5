"""Faults of models as exporters report them: missing file, garbage, an unknown operator, a second parse, the capability of parts."""

import sys

import tensorrt as trt

DATA, WORK = sys.argv[1:3]


class MyLogger(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
        self.lines = []

    def log(self, severity, msg):
        self.lines.append((severity, msg))


G_LOGGER = MyLogger()
EXPLICIT_BATCH = 1 << (int)(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)


def varint(n):
    out = b""
    while True:
        if n < 128:
            return out + bytes([n])
        out += bytes([n & 127 | 128])
        n >>= 7


def field(n, data):
    return varint(n << 3 | 2) + varint(len(data)) + data


def num(n, v):
    return varint(n << 3) + varint(v)


def vinfo(name):
    shape = field(1, num(1, 2)) + field(1, num(1, 3))
    return field(1, name) + field(2, field(1, num(1, 1) + field(2, shape)))


def model(*ops):
    nodes = b""
    prev = b"x"
    for i, (op, dom) in enumerate(ops):
        nodes += field(
            1,
            field(1, prev)
            + field(2, b"t%d" % i)
            + field(3, b"node_%d" % i)
            + field(4, op)
            + (field(7, dom) if dom else b""),
        )
        prev = b"t%d" % i
    graph = nodes + field(2, b"g") + field(11, vinfo(b"x")) + field(12, vinfo(prev))
    return num(1, 8) + field(7, graph) + field(8, num(2, 17)) + field(8, field(1, b"my.domain") + num(2, 1))


def parse(data):
    builder = trt.Builder(G_LOGGER)
    network = builder.create_network(EXPLICIT_BATCH)
    parser = trt.OnnxParser(network, G_LOGGER)
    ok = parser.parse(data)
    errs = [parser.get_error(i) for i in range(parser.num_errors)]
    return ok, errs, network, parser, builder


ok, errs, *_ = parse(model((b"Relu", b""), (b"Magic", b"my.domain")))
assert not ok and len(errs) >= 1
for e in errs:
    print("In node %s with name: %s and operator: %s" % (e.node(), e.node_name(), e.node_operator()))
    print(f"{e.file()}:{e.line()} {e.func()} code {e.code()} {e.desc()}")
    assert e.node_operator() == "Magic" and e.node_name() == "node_1" and e.node() == 1
    assert e.local_function_stack_size() == 0 and e.local_function_stack() == []
    assert isinstance(str(e), str) and "Magic" in repr(e)
assert any(s == trt.ILogger.ERROR for s, _ in G_LOGGER.lines)
ok, errs, *_ = parse(b"\x00\x01garbage")
assert not ok and errs[0].code() == trt.ErrorCode.MODEL_DESERIALIZE_FAILED
b = trt.Builder(G_LOGGER)
n = b.create_network(EXPLICIT_BATCH)
p = trt.OnnxParser(n, G_LOGGER)
assert not p.parse_from_file("/nonexistent/model.onnx") and p.num_errors == 1
p.clear_errors()
assert p.num_errors == 0
supported, parts = p.supports_model(model((b"Relu", b""), (b"Magic", b"my.domain"), (b"Abs", b"")))
assert (
    not supported and [list(x[0]) for x in parts] == [[0], [1], [2]] and [x[1] for x in parts] == [True, False, True]
), parts
assert not p.supports_model_v2(model((b"Magic", b"my.domain")))
assert (
    p.supports_model_v2(model((b"Relu", b"")))
    and p.num_subgraphs == 1
    and p.is_subgraph_supported(0)
    and p.get_subgraph_nodes(0) == [0]
)
assert p.supports_operator("Conv") and not p.supports_operator("NoSuchOp")
p.set_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
assert p.get_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
p.flags = 1 << int(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
ok, errs, net, parser, builder = parse(model((b"Relu", b""), (b"Sigmoid", b"")))
assert ok and net.num_layers == 2 and net.num_inputs == 1 and net.get_output(0).name == "t1"
assert parser.get_layer_output_tensor("node_0", 0).name == "t0"
print("OK")
