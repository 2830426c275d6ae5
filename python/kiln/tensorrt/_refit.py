"""New weights for an engine."""

from __future__ import annotations

from typing import Any

from kiln import _kiln

from ._log import Scoped, Severity, check_logger, fail, log
from ._members import Ignored, Recorder
from ._strict import Strict
from ._values import Weights, volume
from ._values import weights as _weights
from .enums import TensorLocation, WeightsRole, from_kiln


class Refitter(Strict, Scoped):
    """Replaces weights of an engine, by layer and role or by name."""

    def __init__(self, engine: Any, logger: Any) -> None:
        self._logger = check_logger(logger, "Refitter")
        self._engine, self._recorder, self._validation = engine, None, True
        try:
            self._native = engine._native.refitter()
        except Exception as e:
            fail(self, e, None)
            raise TypeError(f"Refitter: {e}") from e

    @property
    def logger(self) -> Any:
        return self._logger

    def _tensor(self, value: Any, prototype: Any) -> Any:
        given = _weights(value)
        if given is None:
            raise ValueError(f"weights {prototype.name!r}: wants {volume(prototype.shape)} elements, found none")
        if len(given) != volume(prototype.shape):
            raise ValueError(
                f"weights {prototype.name!r}: wants {volume(prototype.shape)} elements {tuple(prototype.shape)}, "
                f"found {len(given)}"
            )
        dtype, _, data = given._value()
        return _kiln.Tensor.from_bytes(data, dtype, prototype.shape)

    def set_weights(self, layer_name: str, role: WeightsRole, weights: Any) -> bool:
        name = WeightsRole(role).name.lower()
        try:
            prototype = self._native.prototype_of(layer_name, name)
            self._native.set_weights(layer_name, name, self._tensor(weights, prototype))
        except TypeError:
            raise
        except Exception as e:
            return fail(self, e, False)
        return True

    def set_named_weights(self, name: str, weights: Any, location: TensorLocation = TensorLocation.HOST) -> bool:
        try:
            self._native.set(name, self._tensor(weights, self._native.prototype(name)))
        except TypeError:
            raise
        except Exception as e:
            return fail(self, e, False)
        return True

    def get_named_weights(self, weights_name: str) -> Weights:
        found = self._native.get(weights_name)
        if found is None:
            return Weights(self.get_weights_prototype(weights_name).dtype)
        return Weights._of((found.dtype, list(found.shape), found.tobytes()))

    def get_weights_location(self, weights_name: str) -> TensorLocation:
        return TensorLocation.HOST

    def unset_named_weights(self, weights_name: str) -> bool:
        return bool(self._native.unset(weights_name))

    def get_weights_prototype(self, weights_name: str) -> Weights:
        try:
            found = self._native.prototype(weights_name)
        except Exception as e:
            return fail(self, e, Weights())
        made = Weights(from_kiln(found.dtype))
        made._count = volume(found.shape)
        return made

    def refit_cuda_engine(self) -> bool:
        try:
            self._native.set_validation(self._validation)
            report = self._native.refit()
        except Exception as e:
            return fail(self, e, False)
        for text in report.warnings:
            log(self._logger, Severity.WARNING, text)
        return True

    def refit_cuda_engine_async(self, stream_handle: int) -> bool:
        return self.refit_cuda_engine()

    def get_missing(self) -> tuple[list[str], list[WeightsRole]]:
        return _split(self._native.get_missing_roles())

    def get_missing_weights(self) -> list[str]:
        return list(self._native.get_missing())

    def get_all(self) -> tuple[list[str], list[WeightsRole]]:
        return _split(self._native.get_all_roles())

    def get_all_weights(self) -> list[str]:
        return list(self._native.get_all())

    @property
    def weights_validation(self) -> bool:
        return self._validation

    @weights_validation.setter
    def weights_validation(self, on: bool) -> None:
        self._validation = bool(on)

    max_threads = Ignored(1, "the backend decides on its threads", int)

    error_recorder = Recorder()

    def set_dynamic_range(self, tensor_name: str, range: Any) -> bool:
        try:
            least, greatest = range
            self._native.set_dynamic_range(tensor_name, float(least), float(greatest))
        except TypeError:
            raise
        except Exception as e:
            return fail(self, e, False)
        return True

    def get_dynamic_range(self, tensor_name: str) -> tuple[float, float]:
        found = self._native.dynamic_range(tensor_name)
        if found is None:
            known = ", ".join(self.get_tensors_with_dynamic_range()) or "none"
            return fail(self, f"get_dynamic_range: {tensor_name!r} has no range that can be set; there are {known}", (0.0, 0.0))
        return found

    def get_tensors_with_dynamic_range(self) -> list[str]:
        return list(self._native.tensors_with_dynamic_range())


def _split(pairs: list[tuple[str, str]]) -> tuple[list[str], list[WeightsRole]]:
    known = [(layer, WeightsRole[role.upper()]) for layer, role in pairs if role.upper() in WeightsRole.__members__]
    return [layer for layer, _ in known], [role for _, role in known]
