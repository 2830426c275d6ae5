#!/usr/bin/env python3
"""Writes a ResNet-50 with random weights as ONNX: `resnet50.py OUT.onnx [--batch N]` (default: dynamic batch).

Convolutions are followed by BatchNormalization, as trainers export them. Needs the Python packages onnx and numpy.
"""
import argparse

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Writer:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def weight(self, name, array):
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def node(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x, name, cin, cout, size, stride=1):
        w = self.rng.normal(0, np.sqrt(2 / (cin * size * size)), (cout, cin, size, size))
        y = self.node("Conv", [x, self.weight(name + ".weight", w)], name,
                      strides=[stride] * 2, pads=[size // 2] * 4, kernel_shape=[size] * 2)
        bn = [self.weight(f"{name}.bn.{k}", v) for k, v in {
            "scale": self.rng.uniform(0.5, 1, cout), "bias": self.rng.normal(0, 0.1, cout),
            "mean": self.rng.normal(0, 0.1, cout), "var": self.rng.uniform(0.5, 1.5, cout)}.items()]
        return self.node("BatchNormalization", [y, *bn], name + ".bn", epsilon=1e-5)

    def block(self, x, name, cin, width, stride):
        y = self.node("Relu", [self.conv(x, name + ".conv1", cin, width, 1)], name + ".relu1")
        y = self.node("Relu", [self.conv(y, name + ".conv2", width, width, 3, stride)], name + ".relu2")
        y = self.conv(y, name + ".conv3", width, 4 * width, 1)
        if cin != 4 * width or stride != 1:
            x = self.conv(x, name + ".down", cin, 4 * width, 1, stride)
        return self.node("Relu", [self.node("Add", [y, x], name + ".add")], name)


def resnet50(batch):
    w = Writer(0)
    x = w.node("Relu", [w.conv("input", "stem", 3, 64, 7, 2)], "stem.relu")
    x = w.node("MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for b in range(blocks):
            x = w.block(x, f"layer{stage + 1}.{b}", channels, width, 2 if b == 0 and stage > 0 else 1)
            channels = 4 * width
    x = w.node("GlobalAveragePool", [x], "pool")
    x = w.node("Flatten", [x], "flatten")
    fc = [w.weight("fc.weight", w.rng.normal(0, 0.02, (1000, channels))), w.weight("fc.bias", np.zeros(1000))]
    w.node("Gemm", [x, *fc], "logits", transB=1)
    io = [helper.make_tensor_value_info("input", TensorProto.FLOAT, [batch, 3, 224, 224]),
          helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 1000])]
    graph = helper.make_graph(w.nodes, "resnet50", io[:1], io[1:], w.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--batch", type=int)
    args = parser.parse_args()
    model = resnet50(args.batch or "batch")
    onnx.checker.check_model(model)
    onnx.save(model, args.out)
