"""The process around the package: memory, the end of the interpreter, the command line, messages."""

import gc
import json
import logging
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import kiln
import kiln.tensorrt as trt
from conftest import DIGITS

RUNS = int(os.environ.get("KILN_PYTHON_RUNS", "10000"))


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_memory_stays_flat(images):
    """10,000 runs, or KILN_PYTHON_RUNS, in all ways of passing tensors."""
    n = kiln.Engine.open(DIGITS / "lenet_a.onnx", backend="cpu", estimates=True)
    x, out = np.array(images[:1]), np.zeros((1, 10), np.float32)
    wide = np.zeros((1, 1, 28, 56), np.float32)[..., ::2]
    context = n.create_context()

    def runs(count):
        for i in range(count):
            match i % 4:
                case 0:
                    context.run({"input": x})
                case 1:
                    context.run({"input": wide}, out={"logits": out})
                case 2:
                    np.from_dlpack(n.run({"input": x})["logits"])
                case 3:
                    n.run({"input": kiln.Tensor(x)})["logits"].numpy()

    runs(RUNS // 10)
    gc.collect()
    before = resident()
    runs(RUNS)
    gc.collect()
    grown = resident() - before
    assert grown < (4 << 20), f"{grown} bytes more after {RUNS} runs"


EXIT = """
import sys, threading
import numpy as np
import kiln

engine = kiln.Engine.open(sys.argv[1], backend=sys.argv[2], estimates=True)
context = engine.create_context()
x = np.zeros((1, 1, 28, 28), np.float32)
context.set_debug_listener(lambda *_: None)
context.set_error_recorder(print)
context.set_input("input", x)
context.enqueue()
output = engine.run({"input": x})["logits"]
tensor = kiln.Tensor(x)
capsules = [tensor.__dlpack__(), output.__dlpack__(max_version=(1, 0))]
views = [memoryview(output), np.from_dlpack(output), tensor.numpy(), output.raw()]
refitter = kiln.Engine.open(sys.argv[1], backend="cpu", estimates=True, refit="all").refitter()
sys.kept = [engine, context, output, tensor, capsules, views, refitter]
kiln.set_log(print)
cycle = [context]
cycle.append(cycle)

class AtExit:
    def __del__(self):
        self.logits = engine.run({"input": x})

last = AtExit()
threading.Thread(target=lambda: [engine.run({"input": x}) for _ in range(50)], daemon=sys.argv[3] == "daemon").start()
print("done")
"""


@pytest.mark.parametrize("backend", ["cpu", "reference", "wgpu"])
@pytest.mark.parametrize("thread", ["daemon", "waited"])
def test_the_interpreter_ends_with_everything_alive(backend, thread):
    arguments = [sys.executable, "-c", EXIT, str(DIGITS / "lenet_a.onnx"), backend, thread]
    for _ in range(2):
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0] == "done" and "Traceback" not in done.stderr, done.stderr


def command(*arguments):
    script = Path(sysconfig.get_path("scripts")) / "kiln"
    head = [str(script)] if script.exists() else [sys.executable, "-m", "kiln"]
    return subprocess.run([*head, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def test_the_command_line_is_kilns(tmp_path):
    plan = tmp_path / "lenet.kiln"
    built = command("build", DIGITS / "lenet_a.onnx", "-o", plan, "--backend", "cpu")
    assert built.returncode == 0 and "WARN" not in built.stderr, built.stderr
    assert kiln.PlanHeader.peek(plan).target.backend == "cpu"
    listed = command("backends", "--json")
    assert listed.returncode == 0 and "wgpu" in json.dumps(json.loads(listed.stdout))
    assert command("--version").stdout.split() == ["kiln", kiln.__version__]
    assert command("build", "--nonsense").returncode == 2
    assert command("run", tmp_path / "none.kiln").returncode == 1


def test_messages_are_passed_on():
    heard = []
    kiln.set_log(lambda level, text: heard.append((level, text)))
    try:
        kiln.Engine.open(DIGITS / "lenet_a.onnx", backend="cpu", timing_cache="/nonexistent/times", samples=1)
    finally:
        kiln.set_log(None)
    assert any(level == 2 and text for level, text in heard), heard
    count = len(heard)
    kiln.Engine.open(DIGITS / "lenet_a.onnx", backend="cpu", timing_cache="/nonexistent/times", samples=1)
    assert len(heard) == count


def test_messages_reach_the_loggers_of_the_standard_library(caplog):
    arguments = {"backend": "cpu", "timing_cache": "/nonexistent/times", "samples": 1}
    own = logging.getLogger("test.of.kiln")
    with caplog.at_level(logging.DEBUG):
        for target, name in ((None, ""), ("kiln", "kiln"), (own, "test.of.kiln")):
            caplog.clear()
            kiln.log_to(target)
            kiln.Engine.open(DIGITS / "lenet_a.onnx", **arguments)
            heard = {(r.name, r.levelno) for r in caplog.records}
            assert ((name, logging.WARNING) in heard) == bool(name), (name, heard)
            assert {n for n, _ in heard} <= {name}
    kiln.log_to(None)
    for kind, severity in ((trt.Logger, trt.Logger.WARNING), (Heard, None)):
        logger = kind() if severity is None else kind(severity)
        builder = trt.Builder(logger)
        network = builder.create_network(0)
        assert trt.OnnxParser(network, logger).parse_from_file(str(DIGITS / "lenet_a.onnx"))
        network.get_input(0).shape = (1, 1, 28, 28)
        assert builder.build_serialized_network(network, builder.create_builder_config())
    assert any(severity >= trt.Logger.INFO and text for severity, text in logger.all), logger.all
    count, kept = len(logger.all), logger.all
    del logger, builder, network
    gc.collect()
    kiln.Engine.open(DIGITS / "lenet_a.onnx", **arguments)
    assert len(kept) == count, "a logger that is gone hears nothing"
    kiln.set_log(None)


class Heard(trt.ILogger):
    """Keeps what it is told."""

    def __init__(self):
        super().__init__()
        self.all = []

    def log(self, severity, msg):
        self.all.append((severity, msg))


def test_the_compiler_of_kernels_is_found_among_packages(tmp_path):
    library = tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"
    library.parent.mkdir(parents=True)
    library.touch()
    code = "import os, kiln; print(os.environ.get('KILN_NVRTC'))"
    for given, wanted in ((None, str(library)), ("/own", "/own")):
        variables = {k: v for k, v in os.environ.items() if k != "KILN_NVRTC"} | ({"KILN_NVRTC": given} if given else {})
        path = os.pathsep.join([str(tmp_path), str(Path(kiln.__file__).parents[1])])
        done = subprocess.run([sys.executable, "-c", code], env={**variables, "PYTHONPATH": path}, capture_output=True, text=True)
        assert done.stdout.strip() == wanted, done


def test_the_limit_of_memory_is_set():
    before = kiln.memory_limit()
    assert kiln.memory_limit(before) == before > 0
    code = "import kiln; kiln.memory_limit(1 << 20); kiln.Tensor.zeros('f32', (1 << 22,))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0 and "kiln." in done.stderr, done.stderr


def test_plugin_layers_are_registered(tmp_path):
    from kiln import _libraries

    target = _libraries.Path(__file__).resolve().parents[2] / "target" / "debug" / "libkiln_layers_row_norm.so"
    if not target.exists():
        pytest.skip("the example of a plug-in is not built")
    layers = kiln.load_plugin(target)
    assert layers and layers[0].name and layers[0].library.endswith(".so") and isinstance(layers[0].fields, list)
    assert {(p.namespace, p.name, p.version) for p in layers} <= {
        (p.namespace, p.name, p.version) for p in kiln.plugin_layers([target])
    }
    with pytest.raises(kiln.FailedInitialization):
        kiln.load_plugin(tmp_path / "none.so")
    with pytest.raises(kiln.InvalidArgument, match="policy"):
        kiln.load_plugin(target, policy="none")


EMBEDDED = """
import sys
import numpy as np
import kiln

library, folder, step = sys.argv[1], sys.argv[2], sys.argv[3]
if step == "build":
    network = kiln.Network("net")
    kiln.load_plugin(library)
    x, scale = network.add_input("x", "f32", [2, 4]), network.add_weights(np.ones(4, np.float32), "scale")
    layer = network.add_plugin([x, scale], "RowNorm", namespace="example")
    network.mark_output(layer.output(0), "y")
    for name, embed in (("with", True), ("without", False)):
        built = kiln.build(network, backend="cpu", estimates=True, embed_plugins=embed)
        assert (built.header.plugins[0]["embedded"] > 0) == embed and built.header.plugins[0]["called"]
        built.save(f"{folder}/{name}.kiln")
else:
    options = {"embedded": {"load_embedded": True}, "named": {"plugins": [library]}, "neither": {}}[step]
    engine = kiln.Engine.open(f"{folder}/{'with' if step == 'embedded' else 'without'}.kiln", **options)
    assert abs(engine.run({"x": np.ones((2, 4), np.float32)})["y"].numpy() - 1).max() < 1e-3
"""


def test_plans_hold_libraries_and_load_them_by_permission(tmp_path):
    library = Path(__file__).resolve().parents[2] / "target" / "debug" / "libkiln_layers_row_norm.so"
    if not library.exists():
        pytest.skip("the example of a plug-in is not built")
    outcomes = {}
    for step in ("build", "embedded", "named", "neither"):
        arguments = [sys.executable, "-c", EMBEDDED, str(library), str(tmp_path), step]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
        outcomes[step] = done.returncode == 0 or done.stderr
    assert [outcomes[s] for s in ("build", "embedded", "named")] == [True, True, True], outcomes
    assert "plug-in layer" in outcomes["neither"]
