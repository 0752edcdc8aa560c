"""What stands in the place of a detector where a model watches no scores: it numbers samples, and raises nothing."""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models.bank import SlotArrays, SlotBank, fingerprint_of
from kstream_worker.numerics.jit import jit
from kstream_worker.records import FloatMatrix, IntColumn, Scores, Transition

_SEQ = 1


class Tally(SlotBank):
    """The number of each sample within its key; evidence 0, never an alarm."""

    def __init__(self) -> None:
        super().__init__(SlotArrays("tally", fingerprint_of({}), 0, floats=0, ints=2))

    def retune(self, arl: float) -> None:
        """Nothing to do: there are no alarms."""

    def follow(self, slots: IntColumn, scores: FloatMatrix, times: IntColumn) -> Scores:  # noqa: ARG002
        """Number the samples; as of `RankBank.follow`, of no scores (float64[n, 0])."""
        n = len(slots)
        seq = np.zeros(n, dtype=np.int64)
        _number(slots, self._slots.ints, seq)
        nothing = np.full(n, np.nan)
        return Scores(np.zeros(n, dtype=np.int8), seq, nothing, nothing.copy(), np.zeros(n), np.full(n, math.inf), [])

    def forget(self, slot: int) -> Transition | None:  # noqa: ARG002
        """None: no alarm is ever up."""
        return None

    def raised(self, slot: int) -> bool:  # noqa: ARG002
        """False: no alarm is ever up."""
        return False

    def seq(self, slot: int) -> int:
        """Samples of the key so far."""
        return int(self._slots.ints[slot, _SEQ])


@jit
def _number(slots: np.ndarray, ints: np.ndarray, seq: np.ndarray) -> None:
    for i in range(len(slots)):
        ints[slots[i], _SEQ] += 1
        seq[i] = ints[slots[i], _SEQ]
