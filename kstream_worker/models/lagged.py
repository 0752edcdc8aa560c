"""Pairs out of one stream: a model of pairs sees (z[t-k], z[t]), the sample k before and the sample.

A pair spans no gap: where two samples that follow one another lie further apart than is allowed, or time goes
backwards, the samples before are forgotten, and the next k of the key have no predecessor.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models.bank import SlotArrays, SlotMap, fingerprint_of, seal, unseal
from kstream_worker.models.contract import Column, Estimates, Features, Model
from kstream_worker.numerics.jit import jit
from kstream_worker.records import FloatMatrix, IntColumn

KIND = "lagged"
_COUNT, _HEAD, _LAST, _INTS = 1, 2, 3, 4  # samples in a row without a gap, at most k; the oldest; time of the newest
_NO_LIMIT = np.iinfo(np.int64).max


class Lagged:
    """A model of single samples (`contract.Model`) around one of pairs.

    A sample without a predecessor does not reach the inner model; its values and scores are NaN. A sample with missing
    values is no predecessor.

    Args:
        model: empty, of pairs with as many features on either side.
        dims: features of a sample.
        lag: k, in samples, at least 1.
        max_gap_ms: most milliseconds between two samples that follow one another; None for no limit.
        missing: whether samples may hold NaN.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, model: Model, dims: int, *, lag: int = 1, max_gap_ms: int | None = None, missing: bool = False
    ) -> None:
        if lag < 1:
            raise ValueError(f"lag is {lag}; it must be at least 1")
        if max_gap_ms is not None and max_gap_ms < 1:
            raise ValueError(f"max_gap_ms is {max_gap_ms}; it must be at least 1")
        self._model = model
        self._dims, self._lag, self._missing = dims, lag, missing
        self._max_gap = _NO_LIMIT if max_gap_ms is None else max_gap_ms
        settings = {"dims": dims, "lag": lag, "max_gap_ms": max_gap_ms, "model": model.fingerprint}
        self._slots = SlotArrays(KIND, fingerprint_of(settings), 0, floats=lag * dims, ints=_INTS)
        self._inner = SlotMap()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the inner model."""
        return self._model.columns

    @property
    def watched(self) -> tuple[str, ...]:
        """Those of the inner model."""
        return self._model.watched

    @property
    def bytes_per_key(self) -> int:
        """Bytes that one slot takes, the inner model's included."""
        return self._slots.bytes_per_key + self._model.bytes_per_key

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, free slots included."""
        return self._slots.nbytes + self._model.nbytes

    @property
    def fingerprint(self) -> str:
        """Of lag, gap and inner model."""
        return f"{KIND}:{self._slots.fingerprint}"

    def allocate(self, key: bytes) -> int:
        """A fresh slot for this key."""
        slot = self._slots.allocate(key)
        self._inner.put(slot, self._model.allocate(key))
        return slot

    def free(self, slot: int) -> None:
        """Give the slot back.

        Raises:
            ValueError: the slot is not allocated.
        """
        self._slots.free(slot)
        self._model.free(self._inner.one(slot))

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        """Pair each sample with the one k before it; see `contract.Model.update`.

        Args:
            slots: int64[n].
            x: None: there is one side.
            y: float64[n, dims].
            times: int64[n], event times in milliseconds.

        Raises:
            ValueError: a shape does not fit, a slot is not allocated, or a value is not finite; nothing has changed.
                Whatever else the inner model raises: no sample of the batch is held.
        """
        if x is not None:
            raise ValueError("x must be None: pairs are made of the key's own samples y")
        slots, y, times = self._slots.check_samples(slots, y, times, self._dims, missing=self._missing)
        floats, ints = self._slots.floats, self._slots.ints
        before, former = np.empty_like(y), np.empty((len(slots), _INTS), dtype=np.int64)
        paired = np.zeros(len(slots), dtype=np.bool_)
        pair_up(slots, y, times, floats, ints, self._dims, self._lag, self._max_gap, before, former, paired)
        try:
            return self._ask(slots, before, y, times, paired)
        except BaseException:
            take_back(slots, before, former, floats, ints, self._dims)
            raise

    def _ask(
        self, slots: IntColumn, before: FloatMatrix, y: FloatMatrix, times: IntColumn, paired: NDArray[np.bool_]
    ) -> Estimates:
        """The inner model's answers for samples that have a predecessor, NaN for the others."""
        inner = self._inner.all(slots)
        if paired.all():
            return self._model.update(inner, before.copy(), y, times)  # a model may write into what it is given
        answer = Estimates(
            np.full((len(slots), len(self.columns)), math.nan), np.full((len(slots), len(self.watched)), math.nan)
        )
        if paired.any():
            said = self._model.update(inner[paired], before[paired], y[paired], times[paired])
            answer.values[paired], answer.scores[paired] = said.values, said.scores
        return answer

    def drivers(self, slot: int) -> Features:
        """Those of the inner model."""
        return self._model.drivers(self._inner.one(slot))

    def snapshot(self, slot: int) -> bytes:
        """State of the samples held and of the inner model.

        Raises:
            ValueError: the slot is not allocated.
        """
        held = self._slots.snapshot(slot)
        return seal(KIND, self._slots.fingerprint, held=held, model=self._model.snapshot(self._inner.one(slot)))

    def restore(self, slot: int, snapshot: bytes) -> None:
        """Put a snapshot of a model of the same settings into an allocated slot.

        Raises:
            ValueError: damaged, of another format or of other settings; nothing has changed.
        """
        before = self._slots.snapshot(slot)
        parts = unseal(KIND, self._slots.fingerprint, snapshot)
        self._slots.restore(slot, parts.get("held", b""))
        try:
            self._model.restore(self._inner.one(slot), parts.get("model", b""))
        except ValueError:
            self._slots.restore(slot, before)
            raise


@jit
def pair_up(
    slots: np.ndarray,
    y: np.ndarray,
    times: np.ndarray,
    floats: np.ndarray,
    ints: np.ndarray,
    dims: int,
    lag: int,
    max_gap: int,
    before: np.ndarray,
    former: np.ndarray,
    paired: np.ndarray,
) -> None:
    """Walk samples: give each its predecessor, and hold it for the one k after it.

    A sample takes the place of the one k before it, so that `before` and `former` are all that is needed to undo it.

    Args:
        slots: int64[n].
        y: float64[n, dims].
        times: int64[n].
        floats: float64[capacity, lag * dims], the samples held, a ring; changed.
        ints: int64[capacity, 4], state; changed.
        dims: features of a sample.
        lag: k.
        max_gap: milliseconds.
        before: float64[n, dims], result: what the sample took the place of; its predecessor where there is one.
        former: int64[n, 4], result: the state before the sample.
        paired: bool[n], False; result: whether there is a predecessor.
    """
    for i in range(len(slots)):
        row = floats[slots[i]]
        state = ints[slots[i]]
        for j in range(_INTS):
            former[i, j] = state[j]
        if state[_COUNT] > 0:
            step = times[i] - state[_LAST]
            if step < 0 or step > max_gap:
                state[_COUNT] = 0
        at = state[_HEAD] * dims
        paired[i] = state[_COUNT] == lag
        for j in range(dims):
            before[i, j] = row[at + j]
            if math.isnan(row[at + j]):
                paired[i] = False
            row[at + j] = y[i, j]
        state[_HEAD] = (state[_HEAD] + 1) % lag
        state[_COUNT] = min(state[_COUNT] + 1, lag)
        state[_LAST] = times[i]


@jit
def take_back(
    slots: np.ndarray, before: np.ndarray, former: np.ndarray, floats: np.ndarray, ints: np.ndarray, dims: int
) -> None:
    """Undo `pair_up`, the latest sample first; arguments as there."""
    for back in range(len(slots)):
        i = len(slots) - 1 - back
        row = floats[slots[i]]
        state = ints[slots[i]]
        for j in range(_INTS):
            state[j] = former[i, j]
        at = state[_HEAD] * dims
        for j in range(dims):
            row[at + j] = before[i, j]
