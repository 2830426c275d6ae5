"""Sequences and optional values in the static forms that exporters write."""
import numpy as np
from onnx import TensorProto, helper

from cases import const, floats

node = helper.make_node


def make(cases):
    rng = cases.rng("sequences")
    x, a, b, c = floats(rng, 6, 5), floats(rng, 2, 3), floats(rng, 2, 3), floats(rng, 2, 3)
    at = lambda i: const(np.asarray(i))
    pick = lambda i, out: node("SequenceAt", ["s", i], [out])
    for name, extra, split in (("ones", {}, None), ("flat", {"keepdims": 0}, None), ("two", {}, np.asarray(2)),
                               ("four", {"axis": 1}, np.asarray(4)), ("list", {}, np.asarray([1, 3, 2])),
                               ("flat_last", {"keepdims": 0, "axis": -1}, None), ("list_of_one", {}, np.asarray([6]))):
        inputs = ["x"] if split is None else ["x", "parts"]
        nodes = [node("SplitToSequence", inputs, ["s"], **extra), pick("first", "y"), pick("last", "z"),
                 node("SequenceLength", ["s"], ["n"])]
        values = {"x": x, "first": at(0), "last": at(-1)}
        if split is not None:
            values["parts"] = const(split)
        cases.graph(f"split_{name}", nodes, values, ["y", "z", "n"], dynamic=[("x", 1)] if name == "list" else ())
    start = [node("SequenceConstruct", ["a", "b"], ["p"])]
    abc = {"a": a, "b": b, "c": c}
    for name, place in (("end", None), ("front", 0), ("middle", 1), ("before_last", -1), ("first", -2)):
        inputs = ["p", "c"] if place is None else ["p", "c", "i"]
        for new in (0, 1):
            nodes = [*start, node("SequenceInsert", inputs, ["s"]),
                     node("ConcatFromSequence", ["s"], ["y"], axis=-1, new_axis=new)]
            values = {**abc, **({} if place is None else {"i": at(place)})}
            cases.graph(f"insert_{name}_{new}", nodes, values, ["y"])
    for name, place in (("end", None), ("front", 0), ("second", -2)):
        inputs = ["q"] if place is None else ["q", "i"]
        nodes = [*start, node("SequenceInsert", ["p", "c"], ["q"]), node("SequenceErase", inputs, ["s"]),
                 node("ConcatFromSequence", ["s"], ["y"], axis=0)]
        cases.graph(f"erase_{name}", nodes, {**abc, **({} if place is None else {"i": at(place)})}, ["y"])
    # As unrolled loops have it: an empty sequence that grows.
    nodes = [node("SequenceEmpty", [], ["e0"], dtype=TensorProto.FLOAT)]
    for i, name in enumerate("abc"):
        nodes += [node("Relu", [name], [f"r{i}"]), node("SequenceInsert", [f"e{i}", f"r{i}"], [f"e{i + 1}"])]
    nodes += [node("Identity", ["e3"], ["s"]), node("SequenceLength", ["s"], ["n"]),
              node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1)]
    cases.graph("grown", nodes, abc, ["y", "n"])
    nodes = [node("Optional", ["a"], ["o"]), node("OptionalHasElement", ["o"], ["h"]),
             node("OptionalGetElement", ["o"], ["g"]), node("Relu", ["g"], ["y"])]
    cases.graph("optional", nodes, {"a": a}, ["y", "h"])
    nodes = [node("OptionalHasElement", [""], ["h"]), node("Relu", ["a"], ["y"])]
    cases.graph("optional_absent", nodes, {"a": a}, ["y", "h"])
