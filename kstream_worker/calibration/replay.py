"""The configured detector on one key's history: what it said, and its state at chosen samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kstream_worker.calibration.history import KeyHistory
from kstream_worker.ports import Bank
from kstream_worker.records import FloatMatrix, IntColumn, Transition

WARMING, ARMED, RAISED = 0, 1, 2  # of `Scores.state`


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm in history: the row at which it was raised, and what it said."""

    row: int
    time_ms: int
    said: Transition


@dataclass(slots=True)
class Replay:
    """What the detector answered.

    Attributes:
        states: int8[n], of each sample: 0 warming, 1 armed, 2 raised.
        alarms: raised, in order.
        notices: reasons of transitions that are neither raised nor cleared, and how often each.
    """

    states: NDArray[np.int8]
    alarms: list[Alarm] = field(default_factory=list)
    notices: Counter[str] = field(default_factory=Counter)

    def count(self, state: int) -> int:
        """Samples in this state."""
        return int((self.states == state).sum())


def replay(bank: Bank, history: KeyHistory) -> Replay:
    """Walk a key's history, starting afresh where the key does. The bank is as before."""
    found = Replay(np.zeros(len(history), dtype=np.int8))
    for first, last in history.lives():
        slot = bank.allocate(history.key)
        x, y, times = history.part(first, last)
        scores = bank.update(np.full(last - first, slot, dtype=np.int64), x, y, times)
        bank.free(slot)
        found.states[first:last] = scores.state
        for said in scores.transitions:
            if said.kind == "raised":
                found.alarms.append(Alarm(first + said.row, int(times[said.row]), said))
            elif said.kind != "cleared":
                found.notices[said.reason] += 1
    return found


def snapshots(bank: Bank, history: KeyHistory, rows: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """The detector's state just before each of these rows (ascending, none twice)."""
    wanted = sorted(rows)
    for first, last in history.lives():
        cuts = [first, *(row for row in wanted if first <= row < last)]
        slot = bank.allocate(history.key)
        for at, row in pairwise(cuts):
            walk(bank, slot, *history.part(at, row))
            yield row, bank.snapshot(slot)
        bank.free(slot)


def walk(bank: Bank, slot: int, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> list[Transition]:
    """Let samples of one key pass; what was raised and cleared."""
    if not len(times):
        return []
    return bank.update(np.full(len(times), slot, dtype=np.int64), x, y, times).transitions


def first_alarm(
    bank: Bank, slot: int, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn, slice_rows: int = 250
) -> Transition | None:
    """The first alarm that these samples raise, its row counted from their first; None for none."""
    for at in range(0, len(times), slice_rows):
        part = slice(at, at + slice_rows)
        for said in walk(bank, slot, None if x is None else x[part], y[part], times[part]):
            if said.kind == "raised":
                return replace(said, row=at + said.row)
    return None
