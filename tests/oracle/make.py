#!/usr/bin/env python3
"""Writes random one-operator models with ONNX Runtime's answers: `make.py OUT_FOLDER [--count N] [--seed S] [--ops A,B]`.

Each case is a folder as in ONNX's backend test suite (model.onnx, test_data_set_0/input_0.pb, output_0.pb), named by
operator, seed and number. Shapes, element types, attributes and optional inputs are drawn at random; `operators.py` has
one generator for each operator. A case that ONNX Runtime has no kernel for is dropped and counted.
"""
import argparse
import collections
import os
import pathlib
import pickle
import zlib

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import operators

OPSET = 21


def model_of(case):
    """The model of a case: data as inputs, what must be constant as initializers."""
    node_inputs, inputs, constants = [], [], []
    for i, (value, constant) in enumerate(case.inputs):
        if value is None:
            node_inputs.append("")
            continue
        name = f"x{i}"
        node_inputs.append(name)
        dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
        if constant:
            constants.append(numpy_helper.from_array(value, name))
        else:
            inputs.append((helper.make_tensor_value_info(name, dtype, value.shape), value))
    while node_inputs and not node_inputs[-1]:
        node_inputs.pop()
    outputs = [f"y{i}" if keep else "" for i, keep in enumerate(case.outputs)]
    node = helper.make_node(case.op, node_inputs, outputs, **case.attributes)
    results = [helper.make_empty_tensor_value_info(o) for o in outputs if o]
    graph = helper.make_graph([node], case.op, [i for i, _ in inputs], results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset or OPSET)], ir_version=10)
    return model, [v for _, v in inputs]


def answer(model, values):
    """ONNX Runtime's outputs. Some models end its process (a division by zero in OneHot), so that each has one of its own."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = run(model, values)
        except Exception as e:  # ONNX Runtime has many classes of errors; all mean that it gives no answer.
            result = str(e)
        with os.fdopen(send, "wb") as to:
            pickle.dump(result, to)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as sent:
        data = sent.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(f"ended by signal {os.WTERMSIG(status)}")
    result = pickle.loads(data)
    if isinstance(result, str):
        raise RuntimeError(result)
    return result


def run(model, values):
    """ONNX Runtime's outputs by name, its graph optimizer off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {i.name: v for i, v in zip(session.get_inputs(), values)}
    return [o.name for o in session.get_outputs()], session.run(None, feeds)


def about(case):
    """The case in a line: attributes, then type and shape of each input, with its elements where they are few integers;
    then the note."""
    def one(value):
        if value is None:
            return "-"
        few = value.dtype.kind in "iu" and value.size <= 8
        empty = " empty" if value.size == 0 else ""
        return f"{value.dtype}{list(value.shape)}{empty}" + (f" = {value.tolist()}" if few else "")
    note = f"; {case.note}" if case.note else ""
    return f"{case.op} {case.attributes}; " + "; ".join(one(v) for v, _ in case.inputs) + note


def write(folder, model, values, names, results):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    for info, value in zip(model.graph.output, results):
        dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, dtype, value.shape))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for i, (info, v) in enumerate(zip(model.graph.input, values)):
        (data / f"input_{i}.pb").write_bytes(numpy_helper.from_array(v, info.name).SerializeToString())
    for i, (name, v) in enumerate(zip(names, results)):
        (data / f"output_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(v), name).SerializeToString())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=4, help="cases for each operator")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ops", help="only these operators, separated by commas")
    parser.add_argument("--verbose", action="store_true", help="print why cases are dropped")
    args = parser.parse_args()
    wanted = args.ops.split(",") if args.ops else sorted(operators.GENERATORS)
    written, dropped = 0, collections.Counter()
    for op in wanted:
        rng = np.random.default_rng([args.seed, zlib.crc32(op.encode())])
        for n in range(args.count):
            case = operators.GENERATORS[op](operators.Draw(rng))
            model, values = model_of(case)
            try:
                names, results = answer(model, values)
            except RuntimeError as e:
                dropped[op] += 1
                if args.verbose:
                    print(f"{op} {case.attributes}: {str(e)[:300]}")
                continue
            folder = args.folder / f"{op}_{args.seed}_{n:04}"
            write(folder, model, values, names, results)
            (folder / "about.txt").write_text(about(case))
            written += 1
    print(f"{written} cases; dropped: {dict(dropped) or 'none'}")


if __name__ == "__main__":
    main()
