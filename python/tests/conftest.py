"""Models and data that tests share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kiln

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "tests" / "data" / "digits"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs PyTorch, or a GPU beside it, where that is not."""
    try:
        import torch

        gpu = torch.cuda.is_available()
    except ImportError:
        torch, gpu = None, False
    for item in items:
        if torch is None and (item.get_closest_marker("torch") or item.get_closest_marker("gpu")):
            item.add_marker(pytest.mark.skip(reason="PyTorch is not installed"))
        elif not gpu and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="there is no GPU"))


@pytest.fixture(scope="session")
def lenet_path() -> Path:
    return DIGITS / "lenet_a.onnx"


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    return np.load(DIGITS / "digits_test.npz")["images"]


@pytest.fixture(scope="session")
def labels() -> np.ndarray:
    return np.load(DIGITS / "digits_test.npz")["labels"]


@pytest.fixture(scope="session")
def lenet(lenet_path: Path) -> kiln.Engine:
    """LeNet on the CPU for batches of 1 to 500."""
    shapes = {"input": ((1, 1, 28, 28), (8, 1, 28, 28), (500, 1, 28, 28))}
    return kiln.Engine.open(lenet_path, backend="cpu", shapes=shapes, estimates=True)


@pytest.fixture(scope="session")
def slow(lenet_path: Path) -> kiln.Engine:
    """LeNet on the oracle, which takes long for many digits."""
    shapes = {"input": ((1, 1, 28, 28), (8, 1, 28, 28), (500, 1, 28, 28))}
    return kiln.Engine.open(lenet_path, backend="reference", shapes=shapes, estimates=True)
