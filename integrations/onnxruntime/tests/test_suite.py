"""Node cases of the ONNX suite through the provider: each runs, in whole or in part, and yields the suite's results.

A sample by seed; KILN_ORT_CASES=all runs all of them. Other seeds: KILN_ORT_SEED. Backends: KILN_ORT_BACKENDS=cpu,wgpu.
"""

import os
import random

import onnx
import onnxruntime
import pytest
from provider import ROOT, SUITE, close, session, tensors

BACKENDS = os.environ.get("KILN_ORT_BACKENDS", "cpu,reference,wgpu").split(",")
SAMPLE = 120


def cases():
    """Names of the cases to run."""
    names = sorted(p.name for p in (SUITE / "node").iterdir() if (p / "model.onnx").exists())
    if os.environ.get("KILN_ORT_CASES") == "all":
        return names
    return random.Random(int(os.environ.get("KILN_ORT_SEED", "1"))).sample(names, SAMPLE)


def expected_failures(backend):
    """Cases that Kiln itself fails, each with a reason there."""
    lines = (ROOT / "tests/onnx/expected-failures" / f"{backend}.txt").read_text().splitlines()
    start = "1.19.1/node/"
    return {line.split(":")[0].removeprefix(start) for line in lines if line.startswith(start)}


def outcome(name, backend):
    """How a case ends: "ok", "other" if ONNX Runtime itself does not run it, or what is wrong."""
    folder = SUITE / "node" / name
    model = onnx.load(str(folder / "model.onnx"))
    data = folder / "test_data_set_0"
    initializers = {i.name for i in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in initializers]
    inputs = tensors(data, "input", len(names))
    outputs = tensors(data, "output", len(model.graph.output))
    if inputs is None or outputs is None:
        return "other"
    feeds = dict(zip(names, inputs))
    try:
        plain = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
        expected = plain.run(None, feeds)
    except Exception:
        expected = None
    try:
        found = session(folder / "model.onnx", backend).run(None, feeds)
    except Exception as error:
        text = str(error)
        # What neither claims, or what ONNX Runtime refuses before it asks anybody.
        if expected is None and "Kiln" not in text and "kiln" not in text:
            return "other"
        return f"{name}: {text[:300]}"
    if name.startswith("test_bernoulli"):
        # Random numbers, of which the suite leaves the values open.
        same = all(f.shape == w.shape and f.dtype == w.dtype for f, w in zip(found, outputs))
        return "ok" if same else f"{name}: other types or shapes"
    wrong = [o.name for o, f, w in zip(model.graph.output, found, outputs) if not close(f, w)]
    if wrong and expected is not None and all(close(f, e) for f, e in zip(found, expected)):
        return "ok"
    return f"{name}: {wrong} differ" if wrong else "ok"


@pytest.mark.parametrize("backend", BACKENDS)
def test_node_cases_give_the_results_of_the_suite(backend):
    """Every case of the sample that ONNX Runtime can load agrees with the suite, or with ONNX Runtime."""
    found = [outcome(name, backend) for name in cases()]
    wrong = [f for f in found if f not in ("ok", "other")]
    print(f"{backend}: {found.count('ok')} ok, {found.count('other')} not for ONNX Runtime, {len(wrong)} wrong")
    expected = expected_failures(backend)
    listed = [w for w in wrong if w.split(":")[0] not in expected]
    if os.environ.get("KILN_ORT_SHOW"): print("\n".join(wrong))
    assert not listed, "\n".join(listed)
    assert found.count("ok") > len(found) * 0.7
