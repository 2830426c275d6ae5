"""Calibration by a calibrator of the program: its batches run through Kiln's own calibration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kiln import _kiln
from kiln._options import BuildOptions

from ._cuda_driver import driver
from ._log import Severity, log
from ._values import volume
from .enums import CalibrationAlgoType, from_kiln

_ALGORITHMS = {
    CalibrationAlgoType.LEGACY_CALIBRATION: "percentile",
    CalibrationAlgoType.ENTROPY_CALIBRATION: "entropy",
    CalibrationAlgoType.ENTROPY_CALIBRATION_2: "entropy",
    CalibrationAlgoType.MINMAX_CALIBRATION: "minmax",
}


def takes_device_addresses(backend: str | None) -> bool:
    """Whether addresses of a program are those of a GPU: on CUDA, which is the best backend where it has a device."""
    if backend is not None:
        return backend == "cuda"
    return any(b.name == "cuda" and b.targets for b in _kiln.backends())


def calibrate(builder: Any, model: Any, config: Any, options: dict[str, Any]) -> str | None:
    """The calibration table of the calibrator's cache, or of its batches, which the calibrator may then keep."""
    calibrator = config._calibrator
    cache = calibrator.read_calibration_cache()
    if cache is not None and len(bytes(cache)):
        table = bytes(cache).decode("utf-8")
        _kiln.read_calibration(table)
        return table
    inputs = [t for t in model.io if t.is_input]
    shapes = {t.name: _shape(t, config, int(calibrator.get_batch_size())) for t in inputs}
    names = [t.name for t in inputs]
    device = takes_device_addresses(options["backend"])

    def batches() -> Iterator[dict[str, Any]]:
        count = 0
        while True:
            given = calibrator.get_batch(names)
            if given is None or len(given) == 0:
                break
            if len(given) != len(names):
                raise ValueError(f"get_batch returned {len(given)} addresses for the inputs {', '.join(names)}")
            yield {t.name: _tensor(int(a), t.dtype, shapes[t.name], device) for t, a in zip(inputs, given)}
            count += 1
        log(builder._logger, Severity.INFO, f"calibrated with {count} batches")

    algorithm = _ALGORITHMS[CalibrationAlgoType(calibrator.get_algorithm())]
    own = {k: v for k, v in options.items() if k in ("backend", "profiles")}
    table = _kiln.calibrate_native(model, batches(), algorithm, BuildOptions(**own))
    calibrator.write_calibration_cache(memoryview(table.encode("utf-8")))
    return table


def _tensor(address: int, dtype: str, shape: list[int], device: bool) -> Any:
    if device:
        size = int(volume(shape) * from_kiln(dtype).itemsize)
        return _kiln.Tensor.from_bytes(driver().to_host(address, size), dtype, shape)
    return _kiln.Tensor.from_address(address, dtype, shape)


def _shape(t: Any, config: Any, batch: int) -> list[int]:
    """The shape of a batch: the usual one of the calibration profile, with the calibrator's batch size where it is open."""
    shape = list(t.shape)
    if -1 not in shape:
        return shape
    profile = config._calibration_profile or (config._profiles[0] if config._profiles else None)
    known = profile._shapes.get(t.name) if profile is not None else None
    if known is None:
        raise ValueError(f"calibration: no profile has the shape of input {t.name!r} {t.shape}")
    low, usual, high = known
    result = list(usual)
    if shape[0] == -1 and low[0] <= batch <= high[0]:
        result[0] = batch
    return result
