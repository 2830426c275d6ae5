"""Writes a small detector by hand as weight-file ports do: CSP blocks, SPP, upsampling, decoding, NMS."""

import struct
import sys

import numpy as np
import tensorrt as trt

work = sys.argv[2]
G = trt.Logger(trt.Logger.WARNING)
rng = np.random.default_rng(11)


def write_wts(path, weight_map):
    with open(path, "w") as f:
        f.write(f"{len(weight_map)}\n")
        for k, v in weight_map.items():
            f.write(f"{k} {v.size}")
            for value in v.reshape(-1):
                f.write(" " + struct.pack(">f", float(value)).hex())
            f.write("\n")


def load_weights(file):
    weight_map = {}
    with open(file) as f:
        lines = [line.strip() for line in f]
    count = int(lines[0])
    assert count == len(lines) - 1
    for i in range(1, count + 1):
        splits = lines[i].split(" ")
        cur_count = int(splits[1])
        assert cur_count + 2 == len(splits)
        values = [struct.unpack(">f", bytes.fromhex(splits[j]))[0] for j in range(2, len(splits))]
        weight_map[splits[0]] = np.array(values, dtype=np.float32)
    return weight_map


def add_batch_norm_2d(weight_map, network, input, layer_name, eps):
    gamma, beta = weight_map[layer_name + ".weight"], weight_map[layer_name + ".bias"]
    mean, var = weight_map[layer_name + ".running_mean"], weight_map[layer_name + ".running_var"]
    var = np.sqrt(var + eps)
    scale = gamma / var
    shift = -mean / var * gamma + beta
    return network.add_scale(input=input, mode=trt.ScaleMode.CHANNEL, shift=shift, scale=scale)


def conv_block(network, m, input, outch, k, s, g, name):
    conv = network.add_convolution_nd(input, outch, trt.DimsHW(k, k), m[name + ".conv.weight"], trt.Weights())
    assert conv
    conv.stride_nd = trt.DimsHW(s, s)
    conv.padding_nd = trt.DimsHW(k // 2, k // 2)
    conv.num_groups = g
    conv.name = name
    bn = add_batch_norm_2d(m, network, conv.get_output(0), name + ".bn", 1e-3)
    sig = network.add_activation(bn.get_output(0), trt.ActivationType.SIGMOID)
    return network.add_elementwise(bn.get_output(0), sig.get_output(0), trt.ElementWiseOperation.PROD)


def c3(network, m, input, c, name):
    a = conv_block(network, m, input, c // 2, 1, 1, 1, name + ".cv1")
    b = conv_block(network, m, input, c // 2, 1, 1, 1, name + ".cv2")
    y = conv_block(network, m, a.get_output(0), c // 2, 3, 1, 1, name + ".m")
    y = network.add_elementwise(a.get_output(0), y.get_output(0), trt.ElementWiseOperation.SUM)
    cat = network.add_concatenation([y.get_output(0), b.get_output(0)])
    return conv_block(network, m, cat.get_output(0), c, 1, 1, 1, name + ".cv3")


def sppf(network, m, input, c, name):
    x = conv_block(network, m, input, c // 2, 1, 1, 1, name + ".cv1").get_output(0)
    parts = [x]
    for _ in range(3):
        pool = network.add_pooling_nd(parts[-1], trt.PoolingType.MAX, trt.DimsHW(5, 5))
        pool.padding_nd, pool.stride_nd = trt.DimsHW(2, 2), trt.DimsHW(1, 1)
        parts.append(pool.get_output(0))
    return conv_block(network, m, network.add_concatenation(parts).get_output(0), c, 1, 1, 1, name + ".cv2")


weight_map = {}


def conv_weights(name, o, i, k, g=1):
    weight_map[name + ".conv.weight"] = (rng.standard_normal((o, i // g, k, k)) * (2 / (i * k * k)) ** 0.5).astype(np.float32)
    for part in ("weight", "bias", "running_mean", "running_var"):
        value = rng.standard_normal(o) * 0.1 + (1 if part in ("weight", "running_var") else 0)
        weight_map[f"{name}.bn.{part}"] = np.abs(value).astype(np.float32)


def c3_weights(name, i, c):
    conv_weights(name + ".cv1", c // 2, i, 1)
    conv_weights(name + ".cv2", c // 2, i, 1)
    conv_weights(name + ".m", c // 2, c // 2, 3)
    conv_weights(name + ".cv3", c, c, 1)


conv_weights("stem", 8, 3, 3)
conv_weights("down", 16, 8, 3)
c3_weights("c1", 16, 16)
conv_weights("spp.cv1", 8, 16, 1)
conv_weights("spp.cv2", 16, 32, 1)
conv_weights("dw", 24, 24, 3, 24)
c3_weights("c2", 24, 16)
weight_map["head.weight"] = (rng.standard_normal((3 * 7, 16, 1, 1)) * 0.3).astype(np.float32)
weight_map["head.bias"] = (rng.standard_normal(21) * 0.3).astype(np.float32)
weight_map["deconv"] = np.ones((16, 1, 2, 2), np.float32)
write_wts(work + "/tiny.wts", weight_map)
m = load_weights(work + "/tiny.wts")

builder = trt.Builder(G)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
data = network.add_input("data", trt.float32, (1, 3, 16, 16))
s1 = conv_block(network, m, data, 8, 3, 2, 1, "stem").get_output(0)
s2 = conv_block(network, m, s1, 16, 3, 2, 1, "down").get_output(0)
s2 = c3(network, m, s2, 16, "c1").get_output(0)
s2 = sppf(network, m, s2, 16, "spp").get_output(0)
up1 = network.add_resize(s2)
up1.resize_mode = trt.ResizeMode.NEAREST if hasattr(trt, "ResizeMode") else trt.InterpolationMode.NEAREST
up1.shape = (1, 16, 8, 8)
up2 = network.add_deconvolution_nd(s2, 16, (2, 2), m["deconv"], trt.Weights())
up2.stride_nd, up2.num_groups = (2, 2), 16
total = network.add_elementwise(up1.get_output(0), up2.get_output(0), trt.ElementWiseOperation.MAX)
cat = network.add_concatenation(inputs=[total.get_output(0), s1])
assert cat.axis == 1
y = conv_block(network, m, cat.get_output(0), 24, 3, 1, 24, "dw").get_output(0)
y = c3(network, m, y, 16, "c2").get_output(0)
head = network.add_convolution_nd(y, 21, (1, 1), m["head.weight"], m["head.bias"])
flat = network.add_shuffle(head.get_output(0))
flat.reshape_dims = (1, 3, 7, 64)
flat.second_transpose = (0, 1, 3, 2)
rows = network.add_shuffle(flat.get_output(0))
rows.reshape_dims = trt.Dims([1, 192, 7])
sig = network.add_activation(rows.get_output(0), trt.ActivationType.SIGMOID).get_output(0)
xy = network.add_slice(sig, trt.Dims3(0, 0, 0), trt.Dims3(1, 192, 2), trt.Dims3(1, 1, 1)).get_output(0)
wh = network.add_slice(sig, (0, 0, 2), (1, 192, 2), (1, 1, 1)).get_output(0)
obj = network.add_slice(sig, (0, 0, 4), (1, 192, 1), (1, 1, 1)).get_output(0)
cls = network.add_slice(sig, (0, 0, 5), (1, 192, 2), (1, 1, 1)).get_output(0)
four = network.add_constant((1, 1, 1), np.array([0.25], np.float32)).get_output(0)
wh = network.add_elementwise(wh, four, trt.ElementWiseOperation.PROD).get_output(0)
boxes = network.add_concatenation([xy, wh])
boxes.axis = 2
scores = network.add_elementwise(obj, cls, trt.ElementWiseOperation.PROD).get_output(0)
most = network.add_constant((), np.array([6], np.int32)).get_output(0)
nms = network.add_nms(boxes.get_output(0), scores, most)
nms.bounding_box_format = trt.BoundingBoxFormat.CENTER_SIZES
nms.topk_box_limit = 100
nms.set_input(3, network.add_constant((), np.array([0.5], np.float32)).get_output(0))
nms.set_input(4, network.add_constant((), np.array([0.2], np.float32)).get_output(0))
for tensor, name in ((boxes.get_output(0), "boxes"), (scores, "scores"), (nms.get_output(0), "selected"), (nms.get_output(1), "count")):
    tensor.name = name
    network.mark_output(tensor)
config = builder.create_builder_config()
config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 20)
config.set_flag(trt.BuilderFlag.FP16)
for i in range(network.num_layers):
    layer = network[i]
    if layer.type in (trt.LayerType.SCALE, trt.LayerType.NMS):
        layer.precision = trt.float32
        for j in range(layer.num_outputs):
            if layer.get_output(j).dtype == trt.float32:
                layer.set_output_type(j, trt.float32)
config.set_flag(trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
plan = builder.build_serialized_network(network, config)
assert plan, trt.last_error()
engine = trt.Runtime(G).deserialize_cuda_engine(plan)
context = engine.create_execution_context()
image = rng.random((1, 3, 16, 16), dtype=np.float32)


class Allocator(trt.IOutputAllocator):
    def __init__(self):
        trt.IOutputAllocator.__init__(self)
        self.buffers, self.shapes = {}, {}

    def reallocate_output(self, tensor_name, memory, size, alignment):
        self.buffers[tensor_name] = np.empty(max(size, 1) + alignment, np.uint8)
        start = self.buffers[tensor_name].ctypes.data
        return start + (-start) % alignment

    def notify_shape(self, tensor_name, shape):
        self.shapes[tensor_name] = tuple(shape)


allocator = Allocator()
context.set_input_shape("data", image.shape)
context.set_tensor_address("data", image.ctypes.data)
outputs = {}
for i in range(engine.num_io_tensors):
    name = engine.get_tensor_name(i)
    if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT:
        if -1 in engine.get_tensor_shape(name):
            context.set_output_allocator(name, allocator)
        else:
            outputs[name] = np.empty(tuple(engine.get_tensor_shape(name)), trt.nptype(engine.get_tensor_dtype(name)))
            context.set_tensor_address(name, outputs[name].ctypes.data)
assert context.execute_async_v3(0), trt.last_error()
count = int(outputs["count"].reshape(-1)[0])
assert allocator.shapes["selected"] == (count, 3) and 0 < count <= 12
address = context.get_tensor_address("selected")
start = allocator.buffers["selected"].ctypes.data
raw = allocator.buffers["selected"][(-start) % 256 :] if not address else allocator.buffers["selected"]


def greedy(boxes, scores):
    kept = []
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    for c in range(scores.shape[1]):
        picked = []
        for i in np.argsort(-scores[:, c], kind="stable")[:100]:
            if scores[i, c] <= 0.2 or len(picked) == 6:
                break
            for j in picked:
                low, high = np.maximum(corners[i, :2], corners[j, :2]), np.minimum(corners[i, 2:], corners[j, 2:])
                inter = np.prod(np.maximum(high - low, 0))
                union = np.prod(boxes[i, 2:]) + np.prod(boxes[j, 2:]) - inter
                if inter / union > 0.5:
                    break
            else:
                picked.append(i)
        kept += [(0, c, i) for i in picked]
    return kept


assert count == len(greedy(outputs["boxes"][0], outputs["scores"][0]))
print("OK")
