"""Runs programs that import `tensorrt`, unmodified, in processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kiln
import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DIGITS = ROOT / "tests" / "data" / "digits"
SCRIPTS = sorted((HERE / "scripts").glob("*.py"))
# These say something about backends: the oracle runs them, too.
ON_REFERENCE = ("refit", "loops", "debug_tensors", "outputs_of_unknown_size", "profiles_and_shapes", "plugin_v3_network")
CASES = [("cpu", s) for s in SCRIPTS] + [("reference", s) for s in SCRIPTS if s.stem in ON_REFERENCE]


@pytest.fixture(scope="session")
def layers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library with a layer, compiled from the example in C."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("layers")
    # Libraries are trusted only where nobody else can put code.
    own = Path.home() / ".cache" / f"kiln-test-{os.getpid()}"
    own.mkdir(parents=True, mode=0o700)
    library = own / "libkiln_layers_swish.so"
    source = ROOT / "plugins" / "examples" / "swish" / "swish.c"
    flags = ["-std=c11", "-shared", "-fPIC", "-fvisibility=hidden", "-I", ROOT / "plugins" / "include"]
    subprocess.run([compiler, *flags, "-o", library, source, "-lm"], check=True, cwd=folder)
    yield str(library)
    shutil.rmtree(own)


def environment(**more: str) -> dict[str, str]:
    """That of this process, in which `kiln` is found from any folder."""
    path = [str(Path(kiln.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in path if p), **more}


def options(script: Path) -> list[str]:
    first = script.read_text().splitlines()[0]
    return first.removeprefix("# options:").split() if first.startswith("# options:") else []


def run(script: Path, work: Path, backend: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kiln.tensorrt", *options(script), str(script), str(DIGITS), str(work)]
    return subprocess.run(command, env=environment(KILN_BACKEND=backend, **more), capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(("backend", "script"), CASES, ids=[f"{s.stem}-{b}" for b, s in CASES])
def test_scripts_run_unmodified(
    backend: str, script: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    more = {"KILN_TEST_LAYERS": request.getfixturevalue("layers")} if script.stem == "plugins" else {}
    done = run(script, tmp_path, backend, **more)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.splitlines()[-1].startswith("OK"), done.stdout


def test_there_are_enough_scripts() -> None:
    assert len(SCRIPTS) >= 60


def command_line(*args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kiln.tensorrt", *map(str, args)]
    return subprocess.run(command, env=environment(), cwd=cwd, capture_output=True, text=True)


def test_the_command_line(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys, tensorrt\nprint(sys.argv[1:], __name__, tensorrt.__version__)\nsys.exit(3)\n")
    done = command_line(program, "--v8", "x")
    assert done.returncode == 3 and done.stdout.startswith("['--v8', 'x'] __main__ 10.16"), done
    assert command_line("--v8", program).stdout.startswith("[] __main__ 8.")
    module = command_line("-m", "program", cwd=tmp_path)
    assert module.returncode == 3 and "__main__ 10.16" in module.stdout, module
    assert command_line(tmp_path / "none.py").returncode == 2
    assert command_line().returncode == 2
    assert command_line("--help").returncode == 0


def test_nothing_of_cuda_is_there_unless_asked_for(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import tensorrt\nimport pycuda.driver as d\nprint(d.mem_alloc(8).size)\n")
    assert command_line(program).returncode == 1
    assert command_line("--host-cuda", program).stdout == "8\n"
