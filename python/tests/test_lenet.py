"""Digits from model to class, on each backend."""

import numpy as np
import pytest

import kiln
from conftest import DIGITS


@pytest.mark.parametrize("backend", ["cpu", "reference", "wgpu"])
def test_ten_lines_classify_digits(backend, tmp_path):
    data = np.load(DIGITS / "digits_test.npz")
    images, labels = data["images"][:100], data["labels"][:100]

    shapes = {"input": ((1, 1, 28, 28), (100, 1, 28, 28), (100, 1, 28, 28))}
    built = kiln.build(DIGITS / "lenet_a.onnx", backend=backend, shapes=shapes, estimates=True)
    built.save(tmp_path / "lenet.kiln")

    engine = kiln.Engine.open(tmp_path / "lenet.kiln")
    logits = engine.run({"input": images})["logits"].numpy()
    assert (logits.argmax(axis=1) == labels).mean() >= 0.97

    expected = np.load(DIGITS / "logits_lenet_a.npz")["logits"]
    count = min(len(expected), 100)
    np.testing.assert_allclose(logits[:count], expected[:count], rtol=1e-3, atol=1e-3)


def test_models_come_from_files_bytes_plans_and_networks(lenet_path, images):
    x = images[:1]
    by_path = kiln.Engine.open(str(lenet_path), backend="cpu", estimates=True)
    expected = by_path.run({"input": x})["logits"].numpy()
    sources = [
        lenet_path.read_bytes(),
        bytearray(lenet_path.read_bytes()),
        kiln.Model.open(lenet_path),
        kiln.Model.from_bytes(lenet_path.read_bytes(), lenet_path.parent),
    ]
    for source in sources:
        engine = kiln.Engine.open(source, backend="cpu", estimates=True)
        np.testing.assert_array_equal(engine.run({"input": x})["logits"].numpy(), expected)
    plan = kiln.build(lenet_path, backend="cpu", estimates=True).plan
    np.testing.assert_array_equal(kiln.Engine.open(plan).run({"input": x})["logits"].numpy(), expected)
    assert kiln.Model.from_bytes(plan).header.name == by_path.name


def test_engines_describe_themselves(lenet):
    assert [(t.name, t.mode, t.dtype, t.shape, t.format) for t in lenet.io] == [
        ("input", "input", "f32", (-1, 1, 28, 28), "linear"),
        ("logits", "output", "f32", (-1, 10), "linear"),
    ]
    t = lenet.io_tensor("input")
    assert t.dims == ("batch", 1, 28, 28) and t.is_input and not t.is_shape_input
    assert t.nbytes((2, 1, 28, 28)) == 2 * 28 * 28 * 4 and t.strides((2, 1, 28, 28)) == (784, 784, 28, 1)
    assert t.vectorized_dim is None and t.components_per_element is None and t.bytes_per_component is None
    assert "FP32" in t.format_description
    profile = lenet.profiles[0]
    assert profile.shapes["input"] == kiln.Range((1, 1, 28, 28), (8, 1, 28, 28), (500, 1, 28, 28))
    assert lenet.backend == "cpu" == lenet.target.backend
    assert lenet.context_memory > 0 and lenet.weight_memory > 100_000
    assert not lenet.refittable and not lenet.takes_device_addresses and lenet.debug_tensors == []
    assert "conv1" in lenet.layers_text() or "Conv" in lenet.layers_json()
    assert lenet.report.backend == "cpu" and lenet.report.timed == 0 and lenet.report.spent["total"] > 0
    with pytest.raises(kiln.InvalidArgument, match="no tensor"):
        lenet.io_tensor("none")


def test_objects_have_names_and_tables(lenet, lenet_path):
    built = kiln.build(lenet_path, backend="cpu", estimates=True)
    step = built.report.steps[0]
    weight = kiln.Refitter.of_plan(kiln.build(lenet_path, backend="cpu", estimates=True, refit="all").plan).weights()[0]
    things = [lenet, lenet.create_context(), lenet.io[0], lenet.target, lenet.header, built, built.report, step, weight]
    things += [kiln.Model.open(lenet_path), kiln.backends()[0], kiln.Tensor.zeros("f32", (2, 3))]
    for thing in things:
        assert repr(thing).startswith("kiln."), repr(thing)
    network = kiln.Network("net")
    assert repr(network) == 'kiln.Network("net", 0 layers)'
    assert "net: 0 layers" in network._repr_html_()
    for thing in (lenet, built, built.report):
        html = thing._repr_html_()
        assert html.count("<tr>") >= 2 and "cpu" in html
    assert "&lt;" in __import__("kiln._html")._html.table("<b>", ["<i>"], [["<p>"]])


def test_headers_are_read_without_loading(lenet_path, tmp_path):
    built = kiln.build(lenet_path, backend="cpu", estimates=True, refit="all", verbosity="detailed")
    built.save(tmp_path / "a.kiln")
    for header in (kiln.PlanHeader.peek(tmp_path / "a.kiln"), kiln.PlanHeader.of(built.plan), built.header):
        assert header.refittable and not header.identical and header.verbosity == "detailed"
        assert header.target == kiln.backends()[0].targets[0] and header.absent == [] and header.plugins == []
        assert [t.name for t in header.io] == ["input", "logits"] and not header.version_compatible
        assert header.context_memory > 0 and len(header.profiles) == 1
    stripped = kiln.PlanHeader.of(kiln.strip_plan(built.plan))
    assert "fc1.weight" in stripped.absent
    with pytest.raises(kiln.Error):
        kiln.PlanHeader.of(b"KILN nothing")
    with pytest.raises(kiln.Error):
        kiln.PlanHeader.peek(tmp_path / "none.kiln")


def test_outputs_are_written_where_the_caller_wants(lenet, images):
    expected = lenet.run({"input": images[:4]})["logits"].numpy()
    out = np.zeros((4, 10), np.float32)
    result = lenet.run({"input": images[:4]}, out={"logits": out})
    assert result["logits"] is out
    np.testing.assert_array_equal(out, expected)
    # Into every other column, turned around.
    wide = np.zeros((20, 4), np.float32)
    lenet.run({"input": images[:4]}, out={"logits": wide[::2].T})
    np.testing.assert_array_equal(wide[::2].T, expected)
    assert not wide[1::2].any()
    for wrong in (np.zeros((4, 9), np.float32), np.zeros((4, 10), np.float16), np.zeros((5, 10), np.float32)):
        with pytest.raises(kiln.InvalidArgument, match="logits"):
            lenet.run({"input": images[:4]}, out={"logits": wrong})
    readonly = np.zeros((4, 10), np.float32)
    readonly.flags.writeable = False
    with pytest.raises(kiln.InvalidArgument, match="read-only"):
        lenet.run({"input": images[:4]}, out={"logits": readonly})
    with pytest.raises(kiln.InvalidArgument, match="no output"):
        lenet.run({"input": images[:4]}, out={"none": out})


def test_errors_name_what_is_wrong(lenet, images, tmp_path):
    with pytest.raises(kiln.InvalidArgument, match='"inp"') as e:
        lenet.run({"inp": images[:1]})
    assert e.value.code == 3
    with pytest.raises(kiln.InvalidState, match="missing"):
        lenet.run({})
    with pytest.raises(kiln.InvalidArgument, match="float64"):
        lenet.run({"input": images[:1].astype(np.float64)})
    with pytest.raises(kiln.InvalidArgument, match="i32"):
        lenet.run({"input": images[:1].astype(np.int32)})
    with pytest.raises(TypeError, match="elements in memory"):
        lenet.run({"input": object()})
    with pytest.raises(kiln.InvalidArgument, match="profile"):
        lenet.run({"input": np.zeros((501, 1, 28, 28), np.float32)})
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x07nothing")
    with pytest.raises(kiln.Error) as e:
        kiln.Engine.open(tmp_path / "bad.onnx")
    assert isinstance(e.value.__cause__, kiln.Error), "errors have their causes"
    with pytest.raises(kiln.Error):
        kiln.Engine.open(tmp_path / "none.onnx")
    with pytest.raises(TypeError, match="bakend"):
        kiln.Engine.open(tmp_path / "none.onnx", bakend="cpu")
    with pytest.raises(kiln.InvalidArgument, match="no backend"):
        kiln.build(DIGITS / "lenet_a.onnx", backend="none")


def test_backends_are_found_with_the_package():
    names = {b.name: b for b in kiln.backends()}
    assert {"cpu", "reference", "wgpu"} <= set(names)
    assert names["cpu"].path is None and names["wgpu"].path.endswith("libkiln_backend_wgpu.so")
    target = names["cpu"].targets[0]
    assert target.arch and target.version and isinstance(target.numbers, dict) and isinstance(target.features, list)
    assert names["cpu"].error is None and isinstance(target.uuid, str) and isinstance(target.traits, dict)
