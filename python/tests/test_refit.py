"""Refit: by name, by layer and role, from files; of engines and of plans."""

import numpy as np
import pytest

import kiln
from conftest import DIGITS


@pytest.fixture()
def refittable(lenet_path):
    return kiln.Engine.open(lenet_path, backend="cpu", estimates=True, refit="all")


@pytest.fixture(scope="session")
def weights():
    return dict(np.load(DIGITS / "lenet_b_weights.npz"))


@pytest.fixture(scope="session")
def expected(images):
    e = kiln.Engine.open(DIGITS / "lenet_b.onnx", backend="cpu", estimates=True)
    return e.run({"input": images[:1]})["logits"].numpy()


def logits(engine, images):
    return engine.run({"input": images[:1]})["logits"].numpy()


def test_dynamic_ranges_are_replaced(lenet_path, images):
    batches = [{"input": images[i : i + 1]} for i in range(8)]
    options = {"backend": "cpu", "estimates": True, "refit": "all", "types": ["i8"], "narrowing": "everywhere"}
    engine = kiln.Engine.open(lenet_path, calibration=batches, calibration_algorithm="minmax", **options)
    before = logits(engine, images)
    refitter = engine.refitter()
    tensors = refitter.tensors_with_dynamic_range()
    assert tensors and refitter.dynamic_range("nothing") is None
    least, greatest = refitter.dynamic_range(tensors[0])
    assert least < greatest
    refitter.set_dynamic_range(tensors[0], least / 4, greatest / 4)
    assert refitter.dynamic_range(tensors[0]) == (least / 4, greatest / 4)
    refitter.refit()
    assert not np.array_equal(logits(engine, images), before)
    assert engine.refitter().dynamic_range(tensors[0]) == (least / 4, greatest / 4)
    with pytest.raises(kiln.Error, match="nothing"):
        engine.refitter().set_dynamic_range("nothing", 0, 1)


def test_weights_are_replaced_by_name(refittable, weights, images, expected):
    context = refittable.create_context()
    before = context.run({"input": images[:1]})["logits"].numpy()
    report = kiln.refit(refittable, weights)
    assert report.replaced == 8 and report.derived >= 0 and report.warnings == []
    np.testing.assert_allclose(logits(refittable, images), expected, rtol=1e-4, atol=1e-5)
    after = context.run({"input": images[:1]})["logits"].numpy()
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(before, after)
    # The plan has the new weights.
    again = kiln.Engine.open(refittable.plan())
    np.testing.assert_array_equal(logits(again, images), logits(refittable, images))


def test_phases_of_a_refit_are_timed(refittable, weights):
    r = refittable.refitter()
    assert r.times() == {"read": 0, "derived": 0, "checked": 0, "loaded": 0}
    for name, data in weights.items():
        r.set(name, data)
    r.refit_async().wait()
    times = r.times()
    assert all(0 < times[phase] < 60 for phase in ("read", "checked", "loaded")), times


def test_weights_are_replaced_by_layer_and_role(refittable, weights, images, expected):
    r = refittable.refitter()
    roles = r.get_all_roles()
    assert len(roles) == 8
    for layer, role in roles:
        name = r.prototype_of(layer, role).name
        r.set_weights(layer, role, weights[name])
        assert r.get(name).shape == weights[name].shape
    assert r.get_missing() == [] == r.get_missing_roles()
    assert r.unset_weights(*roles[0]) and not r.unset_weights(*roles[0])
    layer, role = roles[0]
    r.set_weights(layer, role, weights[r.prototype_of(layer, role).name])
    r.refit()
    np.testing.assert_allclose(logits(refittable, images), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(kiln.InvalidArgument, match="role"):
        r.set_weights(layer, "none", weights["fc1.weight"])


def test_plans_are_refitted_without_a_device(lenet_path, weights, images, expected):
    plan = kiln.build(lenet_path, backend="cpu", estimates=True, refit="all").plan
    r = kiln.Refitter.of_plan(kiln.strip_plan(plan))
    assert sorted(r.get_missing()) == sorted(weights) and len(r.get_missing_roles()) == 8
    assert r.set_from_file(DIGITS / "lenet_b_weights.npz") == []
    r.refit()
    np.testing.assert_allclose(logits(kiln.Engine.open(r.plan()), images), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(kiln.InvalidArgument, match="handed out"):
        r.get_all()


def test_wrong_weights_are_refused(refittable, weights, lenet):
    r = refittable.refitter()
    w = r.prototype("fc1.weight")
    assert (w.dtype, w.shape, w.fixed) == ("f32", (128, 800), None) and w.uses
    assert "fc1.weight" in r.get_all() and len(r.weights()) == 8
    with pytest.raises(kiln.InvalidArgument, match="fc1.weight"):
        r.set("fc1.weight", np.zeros((3, 3), np.float32))
    with pytest.raises(kiln.InvalidArgument, match="no weight"):
        r.set("none", weights["fc1.weight"])
    r.set("fc1.weight", weights["fc1.weight"])
    assert r.unset("fc1.weight") and r.get("fc1.weight") is None
    r.set_validation(False)
    with pytest.raises(kiln.InvalidArgument, match="refit"):
        lenet.refitter()
    # The engine keeps elements of its own.
    own = weights["fc1.weight"].copy()
    r.set("fc1.weight", own)
    own[:] = 0
    np.testing.assert_array_equal(r.get("fc1.weight").numpy(), weights["fc1.weight"])


def test_identical_weights_fill_stripped_plans(lenet_path, images):
    built = kiln.build(lenet_path, backend="cpu", estimates=True, strip_weights=True)
    engine = built.load()
    assert engine.report is not None
    with pytest.raises(kiln.InvalidState, match="stripped"):
        logits(engine, images)
    r = engine.refitter()
    with pytest.raises(kiln.InvalidArgument, match="identical"):
        r.set_from_file(DIGITS / "lenet_b_weights.npz")
    r = engine.refitter()
    r.set_from_file(lenet_path)
    r.refit()
    whole = kiln.Engine.open(lenet_path, backend="cpu", estimates=True)
    np.testing.assert_array_equal(logits(engine, images), logits(whole, images))
