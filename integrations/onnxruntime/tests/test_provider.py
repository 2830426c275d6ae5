"""Sessions of ONNX Runtime on Kiln: whole models, control flow, dynamic shapes, options, stored plans, threads."""

import threading

import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from provider import ROOT, device, session

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
        session(LENET, trt_no_such_option=1)
    with pytest.raises(Exception, match="trt_dla_enable.* is refused: Kiln has no DLA"):
        session(LENET, trt_dla_enable=1)
    with pytest.raises(Exception, match="CUDNN"):
        session(LENET, trt_tactic_sources="+NOTHING")
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


def test_options_choose_nodes_files_and_notes(tmp_path, capfd):
    """Operators stay with others, parts are written, and options without effect say so."""
    stored = {"trt_engine_cache_path": tmp_path, "trt_engine_cache_prefix": "part-", "trt_dump_subgraphs": 1}
    made = session(LENET, severity=2, trt_op_types_to_exclude="MaxPool", trt_cuda_graph_enable=1, trt_dla_enable=0, **stored)
    assert (made.run(None, {"input": images(2)})[0].argmax(axis=1) == predictions()[:2]).all()
    parts = [onnx.load(str(p)) for p in sorted(tmp_path.glob("part-*.onnx"))]
    operators = [n.op_type for p in parts for n in p.graph.node]
    assert len(parts) == 3 and "MaxPool" not in operators and operators.count("Conv") == 2, operators
    said = capfd.readouterr().err
    assert 'option "trt_cuda_graph_enable" has no effect: runs on CUDA' in said and "trt_dla_enable" not in said, said
    with pytest.raises(Exception):
        session(LENET, whole=True, trt_op_types_to_exclude="MaxPool")


def test_calibration_tables_are_read(tmp_path):
    """A table in TensorRT's form gives ranges; another file is an error that says what is wanted."""
    table = tmp_path / "table.txt"
    names = ["input", "/conv1/Conv_output_0", "/conv2/Conv_output_0", "/fc1/Gemm_output_0", "logits"]
    words = [f"{n}: {numpy.float32(0.1).view(numpy.uint32):08x}" for n in names]
    table.write_text("\n".join(["TRT-101600-EntropyCalibration2", *words]))
    made = session(LENET, trt_int8_enable=1, trt_int8_calibration_table_name=table)
    assert (made.run(None, {"input": images(4)})[0].argmax(axis=1) == predictions()[:4]).mean() > 0.7
    table.write_bytes(b"\x08\x00\x00\x00flatbuffers")
    with pytest.raises(Exception, match="as TensorRT writes it"):
        session(LENET, trt_int8_enable=1, trt_int8_calibration_table_name=table)


@pytest.mark.parametrize("backend", ["cpu", "wgpu"])
def test_bound_tensors_are_used_where_they_are(backend):
    """IOBinding with tensors in host memory, by value, by address and by name; results go where the caller wants them."""
    made = session(LENET, backend, whole=True)
    binding = made.io_binding()
    x, y = numpy.ascontiguousarray(images(4)), numpy.zeros((4, 10), numpy.float32)
    binding.bind_cpu_input("input", x)
    binding.bind_output("logits", "cpu", 0, numpy.float32, y.shape, y.ctypes.data)
    for i in range(3):
        x[:] = images(4 + i)[i:]
        made.run_with_iobinding(binding)
        assert (y.argmax(axis=1) == predictions()[i : 4 + i]).all(), i
    values = made.io_binding()
    given = images(4)
    values.bind_ortvalue_input("input", onnxruntime.OrtValue.ortvalue_from_numpy(given))
    wanted = onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros((4, 10), numpy.float32))
    values.bind_ortvalue_output("logits", wanted)
    made.run_with_iobinding(values)
    assert (wanted.numpy() == made.run(None, {"input": given})[0]).all()
    free = made.io_binding()
    free.bind_cpu_input("input", images(2))
    free.bind_output("logits")
    made.run_with_iobinding(free)
    assert free.copy_outputs_to_cpu()[0].shape == (2, 10)
    short = made.io_binding()
    short.bind_cpu_input("input", images(3))
    short.bind_output("logits", "cpu", 0, numpy.float32, y.shape, y.ctypes.data)
    with pytest.raises(Exception):
        made.run_with_iobinding(short)


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
    known = {p.key: p.value for p in onnx.load(str(path)).metadata_props}
    info = next(v for k, v in known.items() if k.startswith("ep_compatibility_info"))
    assert info.startswith("kiln ") and info.endswith(";cpu"), info
    if not hasattr(onnxruntime, "get_model_compatibility_for_ep_devices"):
        return
    judge = onnxruntime.get_model_compatibility_for_ep_devices
    kinds = onnxruntime.OrtCompiledModelCompatibility
    assert judge([device()], info) == kinds.EP_SUPPORTED_OPTIMAL
    assert judge([device()], info.replace("cpu", "none")) == kinds.EP_UNSUPPORTED
    assert judge([device()], "kiln 0.0.1;x;cpu") == kinds.EP_UNSUPPORTED


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
