"""Options of builds, each with an effect, and callbacks of builds."""

import json
from dataclasses import fields

import numpy as np
import pytest

import kiln
from conftest import DIGITS

MODEL = DIGITS / "lenet_a.onnx"


def build(**options):
    return kiln.build(MODEL, **{"backend": "cpu", "estimates": True, **options})


def names(plan):
    return [layer["Name"] for layer in json.loads(kiln.Engine.open(plan).layers_json())["Layers"]]


def test_shapes_and_profiles():
    assert build().report.assumed == [("input", (1, 1, 28, 28))]
    built = build(shapes={"input": (4, 1, 28, 28)})
    assert built.header.profiles[0].shapes["input"].min == (4, 1, 28, 28) and built.report.assumed == []
    ranged = build(shapes={"input": ((1, 1, 28, 28), None, (6, 1, 28, 28))}, profiles=[kiln.Profile({"input": (9, 1, 28, 28)})])
    assert [p.shapes["input"].max[0] for p in ranged.header.profiles] == [6, 9]
    with pytest.raises(TypeError, match="2 shapes"):
        build(shapes={"input": ((1, 1, 28, 28), (2, 1, 28, 28))})
    with pytest.raises(kiln.InvalidArgument, match="no such input"):
        build(shapes={"none": (1,)})


def test_element_types_are_told_by_operator():
    types = kiln.element_types("cpu")
    assert types["conv"]["f32"] == "fast" and set(types["matmul_codes"].values()) <= {"fast", "emulated", "none"}
    assert kiln.element_types("reference")["conv"]["f32"] == "emulated"
    with pytest.raises(kiln.InvalidArgument, match="no device 7: it has 1"):
        kiln.element_types("cpu", device=7)
    with pytest.raises(kiln.Error, match="none"):
        kiln.element_types("none")


def test_values_of_shape_inputs():
    with pytest.raises(kiln.InvalidArgument, match="values are for shape inputs"):
        build(values={"input": ([1], [2], [3])})


def test_types_ranges_and_calibration(images):
    assert build(types=["f16"], narrowing="everywhere", verbosity="detailed").report.steps[1].tactic
    half = build(types=[np.float16], narrowing="everywhere", verbosity="detailed")
    text = kiln.Engine.open(half.plan).layers_json()
    assert "FP16" in text or "Half" in text or "f16" in text
    batches = [{"input": images[i : i + 1]} for i in range(8)]
    table = kiln.calibrate(MODEL, batches, "minmax", backend="cpu")
    assert table.startswith("TRT-") and "MinMax" in table.splitlines()[0]
    ranges = kiln.read_calibration(table)
    assert ranges["input"][1] == pytest.approx(float(max(b["input"].max() for b in batches)), rel=1e-3)
    quantized = [
        build(types=["i8"], narrowing="everywhere", calibration=table),
        build(types=["i8"], narrowing="everywhere", ranges=ranges),
        build(types=["i8"], narrowing="everywhere", calibration=batches, calibration_algorithm="minmax"),
    ]
    plain = [s.tactic for s in build().report.steps]
    for q in quantized:
        assert [s.tactic for s in q.report.steps] != plain
        got = kiln.Engine.open(q.plan).run({"input": images[:1]})["logits"].numpy()
        assert got.argmax() == kiln.Engine.open(build().plan).run({"input": images[:1]})["logits"].numpy().argmax()
    with pytest.raises(kiln.InvalidArgument, match="calibration"):
        build(calibration="nonsense")
    with pytest.raises(kiln.InvalidArgument, match="calibration_algorithm"):
        build(calibration=batches, calibration_algorithm="none")

    def broken():
        yield {"input": images[:1]}
        raise OSError("no more images")

    with pytest.raises(OSError, match="no more images"):
        build(calibration=broken())


def tactics(built):
    return [(s.name, s.tactic) for s in built.report.steps]


def test_types_of_layers_and_constraints():
    typed = [kiln.LayerTypes("*", precision="f16", outputs=["f16"])]
    plain, wished, obeyed = build(), build(layer_types=typed), build(layer_types=typed, constraints="obey")
    assert tactics(wished) == tactics(plain) and wished.report.notes
    assert tactics(obeyed) != tactics(plain)
    with pytest.raises(kiln.Error):
        build(layer_types=typed, strong_types=True)
    with pytest.raises(kiln.InvalidArgument, match="constraints"):
        build(constraints="always")
    with pytest.raises(kiln.InvalidArgument, match="narrowing"):
        build(narrowing="never")
    half = dict(types=["f16"], io_type="f32")
    assert tactics(build(**half, narrowing="everywhere")) != tactics(build(**half, narrowing="faster"))


def test_inputs_and_outputs_in_other_types_and_formats():
    io = {"input": kiln.IoSpec(dtype="f16", formats=["hwc8"])}
    t = build(io=io).header.io[0]
    assert (t.dtype, t.format, t.components_per_element, t.bytes_per_component, t.vectorized_dim) == ("f16", "hwc8", 8, 2, 1)
    assert build(io_type="f16").header.io[0].dtype == "f16"
    with pytest.raises(kiln.Error):
        build(io=io, direct_io=True)


def timed(**options):
    return kiln.build(MODEL, backend="cpu", **{"samples": 1, **options})


def test_effort_of_the_search():
    assert kiln.build(MODEL, backend="cpu", optimization_level=0).report.timed == 0
    usual = timed()
    assert kiln.build(MODEL, backend="cpu", optimization_level=1).report.timed == 0
    assert 0 < timed(optimization_level=2, samples=None).report.timed <= usual.report.timed
    assert timed(search=False).report.timed < usual.report.timed
    assert timed(estimates=True).report.timed == 0 < usual.report.timed
    assert timed(max_tactics=1, search=False).report.timed == 0
    assert timed(estimate_limit=1.0).report.timed <= usual.report.timed
    for option in ("max_tactics", "samples", "estimate_limit"):
        with pytest.raises(kiln.InvalidArgument, match=option):
            timed(**{option: 0})
    assert timed(timing_cache=usual.times).report.timed == 0
    assert timed(timing_cache=usual.times, share_times=False).report.timed > 0
    # Samples of each tactic, by problem; after two samples those that are far slower than the best are left.
    ones, threes = (
        [[len(c["samples"]) for c in json.loads(line)["candidates"].values()] for line in built.times.splitlines()[1:]]
        for built in (usual, timed(samples=3))
    )
    assert {n for counts in ones for n in counts} == {1}
    assert {max(counts) for counts in threes} == {3} and {n for counts in threes for n in counts} <= {2, 3}
    assert len(build(fuse=False).report.steps) > len(build().report.steps)


def test_folding_is_limited():
    steps = [
        len(kiln.build(MODEL.parents[1] / "folding" / "einsum.onnx", backend="cpu", estimates=True, **o).report.steps)
        for o in ({}, {"fold": False}, {"fold_budget": 0})
    ]
    assert steps[0] == 0 < min(steps[1:])
    large = [
        len(kiln.build(MODEL.parents[1] / "folding" / "large.onnx", backend="cpu", estimates=True, **o).report.steps)
        for o in ({}, {"fold_limit": 0})
    ]
    assert large[0] < large[1]


def test_tactics_are_ruled():
    for wrong in ({"excluded_tactics": ["fast"]}, {"tactic_rules": ["*=!fast"]}):
        with pytest.raises(kiln.UnsupportedState, match="excluded"):
            build(**wrong)
    with pytest.raises(kiln.InvalidArgument, match="tactic_rules"):
        build(tactic_rules=["fast"])
    assert all(s.deterministic for s in build(deterministic=True).report.steps)
    with pytest.raises(kiln.Error, match="none"):
        build(tactic_sources=["none"])
    with pytest.raises(kiln.UnsupportedState, match="tactic-dram"):
        build(pools={"tactic-dram": 1})
    with pytest.raises(kiln.InvalidArgument, match="pool"):
        build(pools={"none": 1})


def test_timing_caches_records_and_locks(tmp_path):
    first = kiln.build(MODEL, backend="cpu", samples=1, timing_cache=b"")
    assert first.report.timed > 0
    warm = kiln.build(MODEL, backend="cpu", samples=1, timing_cache=first.times)
    assert warm.report.timed == 0
    locked = kiln.build(MODEL, backend="cpu", samples=1, timing_cache=first.times, locked=True)
    assert locked.plan == warm.plan
    with pytest.raises(kiln.Error):
        kiln.build(MODEL, backend="cpu", samples=1, locked=True)
    path = tmp_path / "times"
    assert kiln.build(MODEL, backend="cpu", samples=1, timing_cache=path).report.timed > 0 and path.exists()
    assert kiln.build(MODEL, backend="cpu", samples=1, timing_cache=path).report.timed == 0
    replayed = kiln.build(MODEL, backend="cpu", samples=1, replay=first.record)
    assert replayed.report.timed == 0 and replayed.plan == first.plan
    with pytest.raises(kiln.InvalidArgument, match="replay"):
        build(replay="nonsense")
    with pytest.raises(kiln.InvalidArgument, match="timing_cache"):
        build(timing_cache=b"nonsense")
    other = kiln.build(MODEL, backend="reference", samples=1).times
    assert timed(timing_cache=other).report.timed > 0
    with pytest.raises(kiln.InvalidArgument, match="oracle"):
        timed(timing_cache=other, strict_times=True)


def test_kinds_of_plans(images):
    assert build(refit="all").header.refittable and not build().header.refittable
    assert build(refit="identical").header.identical
    only = kiln.Refitter.of_plan(build(refit=["fc1.weight"]).plan)
    assert only.get_all() == ["fc1.weight"]
    assert build(strip_weights=True).header.absent
    assert build(version_compatible=True).header.version_compatible
    with pytest.raises(kiln.Error, match="sm_80"):
        build(hardware_compatibility="ampere_plus")
    with pytest.raises(kiln.Error, match="memory=1000"):
        build(limit={"memory": 1000})
    assert any("no multiprocessors" in note for note in build(limit={"sms": 4}).report.notes)
    with pytest.raises(kiln.Error, match=r"\[1, 3, 5, 9\]"):
        build(shape_buckets=2)
    assert build(verbosity="none").header.verbosity == "none"
    portable = build(portable=True).plan
    assert kiln.build(portable, backend="reference", estimates=True).report.backend == "reference"
    with pytest.raises(kiln.Error, match="portable"):
        kiln.build(build().plan, backend="reference")
    assert build(debug_tensors=["logits"]).load().debug_tensors == ["logits"]
    with pytest.raises(kiln.Error):
        build(replace_by_plugins=["acme::None"])
    assert any("pruned" in note for note in build(sparsity="force").report.notes)
    assert not any("pruned" in note for note in build(sparsity="disable").report.notes)
    with pytest.raises(kiln.Error, match="batch"):
        build(max_batch=4)
    assert build(target=kiln.backends()[0].targets[0], backend=None).report.backend == "cpu"
    assert build(device=0).report.backend == "cpu"
    with pytest.raises(kiln.InvalidArgument, match="device"):
        build(device=7)
    for option in ({"fuse": False}, {"types": ["f16"]}, {"optimization_level": 1}, {"tf32": False}):
        with pytest.raises(kiln.InvalidConfig, match=next(iter(option))):
            kiln.Engine.open(build().plan, **option)
    with pytest.raises(kiln.InvalidConfig, match="backend"):
        kiln.Engine.open(build().plan, backend="reference")


def test_strict_builds_refuse_layers_that_wait_for_the_host():
    model = MODEL.parents[1] / "control_flow" / "while_collatz.onnx"
    assert kiln.build(model, backend="wgpu", estimates=True).report.host_layers
    with pytest.raises(kiln.Error, match="host"):
        kiln.build(model, backend="wgpu", estimates=True, strict=True)


def test_weights_come_with_the_load(images):
    stripped = build(strip_weights=True).plan
    filled = kiln.Engine.open(stripped, external_weights=[MODEL])
    expected = build().load().run({"input": images[:1]})["logits"].numpy()
    np.testing.assert_array_equal(filled.run({"input": images[:1]})["logits"].numpy(), expected)
    with pytest.raises(kiln.Error, match="budget"):
        kiln.Engine.open(build().plan, weight_budget=1 << 20)


def test_support_is_asked_without_a_build():
    assert kiln.refused_layers(MODEL, backend="cpu") == []
    with pytest.raises(kiln.InvalidArgument, match="no backend"):
        kiln.refused_layers(MODEL, backend="none")


def test_engines_are_compared_with_another_backend():
    text = b'graph "f" { input %x: f32[1024] %a = neg(%x) %b = exp(%a) %c = abs(%b) output %c }'
    inputs = {"x": np.linspace(-6, 6, 1024, dtype=np.float32)}
    found = kiln.compare(text, inputs, backend="cpu", estimates=True)
    assert found["agrees"] and found["wanted"] == "reference" and found["found"] == "cpu"
    assert found["first_layer_that_differs"] is None and found["at_fault"] is None
    # Bit for bit exp is the first that differs, and its neighbours are exact.
    exact = kiln.compare(text, inputs, backend="cpu", estimates=True, rtol=0, atol=0)
    assert not exact["agrees"] and exact["at_fault"]["layers"] == ["b"]
    assert kiln.compare(text, inputs, backend="cpu", estimates=True, rtol=0, atol=0, bisect=False)["at_fault"] is None
    assert kiln.compare(text, inputs, "cpu", backend="cpu", estimates=True, rtol=0, atol=0)["agrees"]
    with pytest.raises(kiln.InvalidArgument, match="no backend"):
        kiln.compare(text, inputs, "none", backend="cpu")
    with pytest.raises(kiln.Error, match='"x"'):
        kiln.compare(text, {}, backend="cpu")


def test_plugins_are_searched_by_policy():
    for policy in ("off", "manifest"):
        with pytest.raises(kiln.InvalidArgument, match='no backend "wgpu"'):
            build(backend="wgpu", plugin_policy=policy)
    with pytest.raises(kiln.InvalidArgument, match="policy"):
        build(plugin_policy="none")
    refused = kiln.backends(plugins=[MODEL])
    assert any(b.error for b in refused if b.path == str(MODEL))


def test_a_fallback_takes_over():
    model = DIGITS / "lenet_a.onnx"
    built = kiln.build(model, backend="cuda", fallback="cpu", estimates=True)
    assert built.report.backend in ("cpu", "cuda")
    if built.report.backend == "cpu":
        assert built.report.fell_back[0] == "cuda"


def test_progress_is_followed_and_cancels(capsys):
    seen = []
    build(progress=lambda phase, done, steps: seen.append((phase, done, steps)))
    assert len({phase for phase, _, _ in seen}) > 1 and all(done <= steps for _, done, steps in seen)
    with pytest.raises(kiln.Cancelled):
        build(progress=lambda *_: False)

    def raising(*_):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        build(progress=raising)
    build(progress=True)
    shown = capsys.readouterr().err
    assert "\r[" in shown and "#" in shown and shown.endswith("\n")


class Monitor:
    def __init__(self, stop=None):
        self.open, self.seen, self.stop = [], [], stop

    def phase_start(self, phase, parent, steps):
        assert parent is None or parent in self.open
        self.open.append(phase)
        self.seen.append(phase)
        if self.stop == "start":
            raise KeyError(phase)

    def step_complete(self, phase, step):
        assert phase in self.open
        if self.stop == "raise":
            raise ValueError(phase)
        return self.stop != "cancel"

    def phase_finish(self, phase):
        self.open.remove(phase)


def test_monitors_see_phases_and_cancel():
    monitor = Monitor()
    build(monitor=monitor)
    assert monitor.seen and not monitor.open
    for stop, error in (("cancel", kiln.Cancelled), ("raise", ValueError), ("start", KeyError)):
        with pytest.raises(error):
            build(monitor=Monitor(stop))


class Selector:
    def __init__(self, choose):
        self.choose, self.layers, self.reported = choose, [], None

    def select(self, layer, choices):
        self.layers.append((layer, choices))
        return self.choose(choices)

    def report(self, layers):
        self.reported = layers


def test_selectors_choose():
    last = Selector(lambda choices: [len(choices) - 1])
    built = build(selector=last)
    layer, choices = last.layers[0]
    assert {"layer", "operators", "inputs", "outputs", "key"} <= set(layer)
    assert {"tactic", "implementation", "workspace", "deterministic", "time_ns", "estimate_ns"} <= set(choices[0])
    assert [s.name for s in last.reported] == [s.name for s in built.report.steps]
    with pytest.raises(kiln.Error, match="algorithm"):
        build(selector=Selector(lambda choices: []), reject_empty=True)
    with pytest.raises(ZeroDivisionError):
        build(selector=Selector(lambda choices: 1 // 0))


def test_every_option_is_known():
    known = {f.name for f in fields(kiln.BuildOptions)}
    assert known == set(__import__("kiln._options")._options.OptionNames.__annotations__)
    options = kiln.BuildOptions(backend="cpu", estimates=True)
    assert kiln.build(MODEL, options, verbosity="none").header.verbosity == "none"
    assert options.verbosity == "names"
