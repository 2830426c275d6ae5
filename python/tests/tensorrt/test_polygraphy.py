"""Polygraphy's commands over Kiln, unmodified. `scripts/setup.sh` puts it into `.cache/polygraphy`."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import kiln
import pytest

HERE = Path(__file__).resolve().parent
ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "tests" / "data" / "digits" / "lenet_a.onnx"
FOLDERS = [ROOT / ".cache" / "polygraphy", ROOT / ".cache" / "peer"]
SHAPES = [f"--trt-{kind}-shapes=input:[{n},1,28,28]" for kind, n in (("min", 1), ("opt", 4), ("max", 8))]
INPUT = "--input-shapes=input:[4,1,28,28]"
PROGRAM = "import sys\nfrom polygraphy.tools._main import main\nsys.exit(main())\n"

if not FOLDERS[0].exists() and importlib.util.find_spec("polygraphy") is None:
    pytest.skip("Polygraphy is not installed; scripts/setup.sh does that", allow_module_level=True)


class Polygraphy:
    """Commands in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "polygraphy_main.py").write_text(PROGRAM)

    def __call__(self, *args: object) -> str:
        return self.program("polygraphy_main.py", *args)

    def program(self, program: object, *args: object) -> str:
        """Output of a program that may import Polygraphy."""
        path = [str(Path(kiln.__file__).parents[1]), *(str(f) for f in FOLDERS if f.exists())]
        given = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "KILN_BACKEND": "cpu",
            "PYTHONPATH": os.pathsep.join(path + ([given] if given else [])),
        }
        command = [sys.executable, "-m", "kiln.tensorrt", "--host-cuda", str(program), *map(str, args)]
        done = subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture
def polygraphy(tmp_path: Path) -> Polygraphy:
    return Polygraphy(tmp_path)


def test_run_compares_every_tensor_with_onnx_runtime(polygraphy: Polygraphy) -> None:
    text = polygraphy(
        "run", MODEL, "--trt", "--onnxrt", "--trt-outputs", "mark", "all", "--onnx-outputs", "mark", "all",
        "--atol=1e-3", "--rtol=1e-3", *SHAPES, INPUT,
    )
    assert "Pass Rate: 100.00%" in text and "/conv1/Conv_output_0" in text


def test_convert_inspect_and_run_an_engine(polygraphy: Polygraphy) -> None:
    polygraphy("convert", MODEL, "-o", "lenet.engine", "--fp16", *SHAPES, "--save-timing-cache=times.bin")
    assert (polygraphy.folder / "times.bin").stat().st_size > 0
    text = polygraphy("inspect", "model", "lenet.engine", "--model-type=engine", "--show", "layers", "attrs")
    assert "min=(1, 1, 28, 28), opt=(4, 1, 28, 28), max=(8, 1, 28, 28)" in text and "conv1" in text
    polygraphy("run", "lenet.engine", "--trt", "--model-type=engine", INPUT, "--save-outputs=out.json")
    assert "logits" in polygraphy("inspect", "data", "out.json")


def test_inspect_models_and_networks(polygraphy: Polygraphy) -> None:
    assert "/fc1/Gemm" in polygraphy("inspect", "model", MODEL, "--show", "layers")
    network = polygraphy("inspect", "model", MODEL, "--display-as=trt", "--show", "layers", "attrs", "weights")
    assert "LayerType.CONVOLUTION" in network or "CONVOLUTION" in network
    assert "fully supported" in polygraphy("inspect", "capability", MODEL)


def test_int8_with_a_calibration_cache(polygraphy: Polygraphy) -> None:
    command = ["run", MODEL, "--trt", "--int8", "--calibration-cache=calib.cache", *SHAPES, INPUT]
    polygraphy(*command)
    cache = polygraphy.folder / "calib.cache"
    written = cache.read_bytes()
    assert written.startswith(b"TRT-")
    polygraphy(*command)
    assert cache.read_bytes() == written


def test_debug_tools_and_templates(polygraphy: Polygraphy) -> None:
    check = [sys.executable, "-c", "pass"]
    polygraphy("debug", "build", MODEL, "--until=2", "--artifacts=polygraphy_debug.engine", *SHAPES, "--check", *check)
    polygraphy("debug", "precision", MODEL, "--fp16", *SHAPES, "--check", *check)
    polygraphy("template", "trt-network", MODEL, "-o", "network.py")
    polygraphy("run", "network.py", "--trt", "--model-type=trt-network-script", *SHAPES, INPUT)


def test_tactics_are_recorded_and_replayed(polygraphy: Polygraphy) -> None:
    polygraphy("run", MODEL, "--trt", *SHAPES, INPUT, "--save-tactics=tactics.json")
    assert "Layer: /conv1/Conv" in polygraphy("inspect", "tactics", "tactics.json")
    polygraphy("run", MODEL, "--trt", *SHAPES, INPUT, "--load-tactics=tactics.json")


def test_its_python_interface(polygraphy: Polygraphy) -> None:
    text = polygraphy.program(HERE / "polygraphy_program.py", MODEL.parent, polygraphy.folder)
    assert "OK" in text.splitlines()


def test_surgeon_data_and_lint(polygraphy: Polygraphy) -> None:
    polygraphy("surgeon", "extract", MODEL, "-o", "part.onnx", "--outputs", "/conv1/Conv_output_0:auto")
    polygraphy("surgeon", "sanitize", "part.onnx", "-o", "folded.onnx", "--fold-constants")
    polygraphy("run", "folded.onnx", "--trt", "--onnxrt", "--atol=1e-3", "--rtol=1e-3", INPUT, *SHAPES)
    polygraphy("run", MODEL, "--trt", *SHAPES, INPUT, "--save-inputs=in.json", "--save-results=first.json", "--validate")
    polygraphy("run", MODEL, "--trt", *SHAPES, "--load-inputs=in.json", "--load-outputs=first.json")
    assert "input" in polygraphy("inspect", "data", "in.json", "--show-values")
    polygraphy("check", "lint", MODEL, "-o", "lint.json", "--input-shapes=input:[1,1,28,28]")
    polygraphy("run", MODEL, "--trt", *SHAPES, INPUT, "--gen-script=generated.py")
    assert "logits" in polygraphy.program("generated.py")


def test_debug_finds_a_part_that_fails(polygraphy: Polygraphy) -> None:
    check = [sys.executable, "-c", "import sys; sys.exit(b'Gemm' in open('polygraphy_debug.onnx', 'rb').read())"]
    text = polygraphy("debug", "reduce", MODEL, "-o", "least.onnx", "--model-input-shapes=input:[1,1,28,28]", "--check", *check)
    assert "Minimum bad model" in text or (polygraphy.folder / "least.onnx").stat().st_size
    assert b"Gemm" in (polygraphy.folder / "least.onnx").read_bytes()
    polygraphy("debug", "repeat", "--until=2", "--check", sys.executable, "-c", "pass")


def test_an_engine_with_other_weights_and_settings(polygraphy: Polygraphy) -> None:
    settings = ["--refittable", "--builder-optimization-level=1", "--profiling-verbosity=detailed", "--pool-limit", "workspace:64M"]
    polygraphy("convert", MODEL, "-o", "lenet.engine", *SHAPES, *settings, "--tactic-sources", "--tf32")
    polygraphy("convert", MODEL, "--convert-to=trt", "-o", "other.engine", *SHAPES, "--bf16", "--sparse-weights", "--version-compatible")
    polygraphy("run", "lenet.engine", "--trt", INPUT, "--sequential-runners", "--warm-up=2", "--iterations=3", "--save-results=a.json")
    polygraphy("run", "other.engine", "--trt", INPUT, "--load-outputs=a.json", "--atol=0.5", "--rtol=0.1")
    polygraphy("template", "trt-config", *SHAPES, "--fp16", "-o", "config.py")
    polygraphy("convert", MODEL, "-o", "third.engine", "--trt-config-script=config.py")
