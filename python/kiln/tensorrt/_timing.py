"""Timing caches in memory."""

from __future__ import annotations

import hashlib
from typing import Any

from kiln import _kiln

from ._log import Scoped, fail
from ._strict import Strict
from ._values import IHostMemory


class TimingCacheKey:
    """Name of an entry of a timing cache."""

    def __init__(self, text: str = "") -> None:
        self._text = text

    @staticmethod
    def parse(text: str) -> TimingCacheKey:
        return TimingCacheKey(text)

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimingCacheKey) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class TimingCacheValue:
    """The tactic of an entry and its time."""

    def __init__(self, tactic_hash: int = 0, timing_msec: float = 0.0) -> None:
        self.tacticHash, self.timingMSec = tactic_hash, timing_msec


def tactic_hash(tactic: str) -> int:
    """A number for the name of a tactic, the same in every process."""
    return int.from_bytes(hashlib.sha256(tactic.encode()).digest()[:8], "little")


class ITimingCache(Strict, Scoped):
    """Measured times of tactics."""

    def __init__(self, data: bytes = b"", owner: Any = None) -> None:
        if data:
            _kiln.timing_cache_entries(data)
        self._data, self._owner = data, owner

    def serialize(self) -> IHostMemory:
        return IHostMemory(self._data)

    def combine(self, input_cache: ITimingCache, ignore_mismatch: bool) -> bool:
        if not isinstance(input_cache, ITimingCache):
            raise TypeError(f"input_cache: wants an ITimingCache, found {type(input_cache).__name__}")
        try:
            self._data = _kiln.merge_timing_caches(self._data, input_cache._data)
        except Exception as e:
            return fail(self._owner, e, False)
        return True

    def reset(self) -> bool:
        self._data = b""
        return True

    def queryKeys(self) -> list[TimingCacheKey]:
        return [TimingCacheKey(key) for key, _ in self._entries()]

    def query(self, key: TimingCacheKey) -> TimingCacheValue:
        for name, candidates in self._entries():
            if name == str(key) and candidates:
                tactic, ns = min(candidates, key=lambda c: c[1])
                return TimingCacheValue(tactic_hash(tactic), ns / 1e6)
        return TimingCacheValue()

    def update(self, key: TimingCacheKey, value: TimingCacheValue) -> bool:
        """Lets builds take the tactic of this hash for the entry, whatever its time is."""
        tactics = [tactic for name, candidates in self._entries() if name == str(key) for tactic, _ in candidates]
        chosen = next((t for t in tactics if tactic_hash(t) == value.tacticHash), None)
        if chosen is None:
            known = ", ".join(f"{tactic_hash(t)} ({t})" for t in tactics) or "no entry of this key"
            return fail(self._owner, f"there is no tactic of hash {value.tacticHash}; there are {known}", False)
        self._data = _kiln.pin_tactic(self._data, str(key), chosen)
        return True

    def _entries(self) -> list[tuple[str, list[tuple[str, float]]]]:
        return _kiln.timing_cache_entries(self._data) if self._data else []
