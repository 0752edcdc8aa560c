"""Histories with known content."""

from __future__ import annotations

import numpy as np

from kstream_worker.calibration.history import KeyHistory
from kstream_worker.records import FloatMatrix, Samples

START_MS = 1_760_000_000_000
MINUTE_MS = 60_000


def history(
    y: FloatMatrix, *, x: FloatMatrix | None = None, key: bytes = b"k", starts: tuple[int, ...] = (0,)
) -> KeyHistory:
    times = START_MS + MINUTE_MS * np.arange(len(y), dtype=np.int64)
    return KeyHistory(key, 0, times, x, np.ascontiguousarray(y), starts)


def normal(n: int, d: int = 1, seed: int = 0) -> FloatMatrix:
    return np.random.default_rng(seed).standard_normal((n, d))


def samples(keys: list[bytes], first: int = 0, *, d: int = 1, time_ms: int = START_MS) -> Samples:
    """One sample a minute; the values are the numbers of the samples."""
    n = len(keys)
    numbers = np.arange(first, first + n, dtype=np.int64)
    y = np.repeat(numbers[:, None].astype(np.float64), d, axis=1)
    return Samples(numbers, time_ms + MINUTE_MS * numbers, keys, None, y)
