"""Sessions of ONNX Runtime on Kiln: whole models, control flow, dynamic shapes, options, stored plans, threads."""

import threading

import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from provider import ROOT, session

DIGITS = ROOT / "tests/data/digits"
LENET = DIGITS / "lenet_a.onnx"


def images(count):
    return numpy.load(DIGITS / "digits_test.npz")["images"][:count]


def predictions():
    return numpy.load(DIGITS / "logits_lenet_a.npz")["pred"]


def model(nodes, inputs, outputs, constants=(), opset=17):
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.mark.parametrize("backend", ["cpu", "reference", "wgpu"])
def test_digits_are_classified(backend):
    """LeNet runs whole on Kiln, at batches of several sizes."""
    made = session(LENET, backend, whole=True)
    count = 3 if backend == "reference" else 20
    for n in [1, count, 2]:
        logits = made.run(None, {"input": images(n)})[0]
        assert (logits.argmax(axis=1) == predictions()[:n]).all()


def test_unsupported_nodes_stay_with_others():
    """Nodes on texts run on the CPU provider between parts of Kiln."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("Cast", ["a"], ["t"], to=TensorProto.STRING),
        helper.make_node("Cast", ["t"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["b", "a"], ["y"]),
    ]
    made = model(nodes, [value("x", [3])], [value("y", [3])])
    x = numpy.array([1.0, 2.0, 3.0], numpy.float32)
    assert (session(made).run(None, {"x": x})[0] == 4 * x * x).all()
    with pytest.raises(Exception):
        session(made, whole=True)


def test_conditionals_and_loops_run_whole():
    """If and Loop are claimed with their bodies, captures included."""
    then = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["t"])], "then", [], [value("t", [2])])
    other = helper.make_graph([helper.make_node("Sub", ["x", "w"], ["e"])], "else", [], [value("e", [2])])
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "z"], ["n"]),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("v", [2])],
        [value("d", [], TensorProto.BOOL), value("n", [2])],
    )
    nodes = [
        helper.make_node("If", ["p"], ["z"], then_branch=then, else_branch=other),
        helper.make_node("Loop", ["m", "", "x"], ["y"], body=body),
    ]
    w = onnx.numpy_helper.from_array(numpy.array([2.0, 3.0], numpy.float32), "w")
    inputs = [value("p", [], TensorProto.BOOL), value("x", [2]), value("m", [], TensorProto.INT64)]
    made = session(model(nodes, inputs, [value("y", [2])], [w]), whole=True)
    x = numpy.array([1.0, 5.0], numpy.float32)
    for p in [True, False]:
        for m in [0, 3]:
            z = x * [2, 3] if p else x - [2, 3]
            found = made.run(None, {"p": numpy.array(p), "x": x, "m": numpy.array(m)})[0]
            assert numpy.allclose(found, x + m * z), (p, m)


def test_shapes_by_inputs():
    """An input that says a shape works for several shapes."""
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Neg", ["r"], ["y"])]
    made = session(model(nodes, [value("x", ["n"]), value("s", [2], TensorProto.INT64)], [value("y", ["a", "b"])]))
    x = numpy.arange(12, dtype=numpy.float32)
    for shape in [[3, 4], [4, 3], [2, 6]]:
        assert (made.run(None, {"x": x, "s": numpy.array(shape)})[0] == -x.reshape(shape)).all()


def test_options_are_read_and_others_refused(tmp_path):
    """Options decide what happens; a wrong one names those that there are."""
    with pytest.raises(Exception, match="no option"):
        session(LENET, trt_dla_enable=1)
    with pytest.raises(Exception, match="not a switch"):
        session(LENET, trt_fp16_enable="maybe")
    with pytest.raises(Exception, match="no backend"):
        session(LENET, "none", trt_profile_opt_shapes="input:1x1x28x28")
    shapes = {f"trt_profile_{k}_shapes": f"input:{n}x1x28x28" for k, n in [("min", 1), ("opt", 2), ("max", 4)]}
    stored = {"trt_engine_cache_enable": 1, "trt_engine_cache_path": tmp_path, "trt_engine_cache_prefix": "lenet-"}
    timed = {"trt_timing_cache_enable": 1, "trt_timing_cache_path": tmp_path, "builder_optimization_level": 3}
    made = session(LENET, **shapes, **stored, **timed)
    assert (made.run(None, {"input": images(4)})[0].argmax(axis=1) == predictions()[:4]).all()
    plans = list(tmp_path.glob("lenet-*.kiln"))
    assert len(plans) == 1 and (tmp_path / "kiln.timing").exists()
    del made
    before = plans[0].stat().st_mtime_ns
    again = session(LENET, **shapes, **stored, **timed)
    assert (again.run(None, {"input": images(1)})[0].argmax(axis=1) == predictions()[:1]).all()
    assert plans[0].stat().st_mtime_ns == before
    with pytest.raises(Exception):
        session(LENET, whole=True, trt_min_subgraph_size=1000)


@pytest.mark.parametrize("embed", [0, 1])
def test_compiled_models_hold_plans(tmp_path, embed):
    """A session writes a model with an EPContext node, which another one runs."""
    path = tmp_path / "compiled.onnx"
    config = {"ep.context_enable": 1, "ep.context_file_path": path, "ep.context_embed_mode": embed}
    shapes = {f"trt_profile_{k}_shapes": f"input:{n}x1x28x28" for k, n in [("min", 1), ("opt", 2), ("max", 4)]}
    session(LENET, config=config, **shapes)
    ops = [n.op_type for n in onnx.load(str(path)).graph.node]
    assert ops == ["EPContext"]
    assert len(list(tmp_path.glob("*.kiln"))) == 1 - embed
    made = session(path, whole=True)
    assert (made.run(None, {"input": images(3)})[0].argmax(axis=1) == predictions()[:3]).all()
    with pytest.raises(Exception, match="compile it again"):
        made.run(None, {"input": images(5)})


def test_sessions_run_in_threads():
    """Two sessions, each run by several threads at once."""
    sessions = [session(LENET), session(LENET, trt_fp16_enable=0)]
    data, wrong = images(8), []

    def work(which, n):
        for i in range(10):
            logits = sessions[which].run(None, {"input": data[: 1 + (n + i) % 8]})[0]
            if not (logits.argmax(axis=1) == predictions()[: len(logits)]).all():
                wrong.append((which, n, i))

    threads = [threading.Thread(target=work, args=(n % 2, n)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_errors_of_runs_are_exceptions():
    """What goes wrong in a run is an exception with a text of Kiln's."""
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    made = session(model(nodes, [value("x", [3]), value("i", [1], TensorProto.INT64)], [value("y", [1])]), whole=True)
    x = numpy.arange(3, dtype=numpy.float32)
    assert made.run(None, {"x": x, "i": numpy.array([2])})[0] == [2]
    with pytest.raises(Exception, match="(?i)element|index|range"):
        made.run(None, {"x": x, "i": numpy.array([7])})
    assert made.run(None, {"x": x, "i": numpy.array([1])})[0] == [1]
