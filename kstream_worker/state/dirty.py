"""Which keys have records beyond their last committed snapshot, oldest first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.records import IntColumn


class Mark(NamedTuple):
    """Since when a key is dirty.

    Attributes:
        offset: input offset of the first record that no committed snapshot covers.
        ordinal: records of the partition that this process had read before the batch of that record.
        since_s: monotonic seconds when it was read.
    """

    offset: int
    ordinal: int
    since_s: float


class DirtyKeys:
    """Slots of dirty keys in the order of their first uncovered record, which is the order in which they became dirty.

    A snapshot that is on its way to the bus is *in flight* until its commit is settled: records that come meanwhile
    make the key dirty anew.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, Mark] = OrderedDict()
        self._flight: dict[int, Mark] = {}
        self._flags: NDArray[np.bool_] = np.zeros(64, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, slot: int) -> bool:
        return slot in self._waiting

    def touch(self, slots: IntColumn, offsets: IntColumn, ordinal: int, now_s: float) -> None:
        """Records of these slots (int64[n]) at these ascending input offsets (int64[n]) went into the models."""
        if len(slots) and int(slots.max()) >= len(self._flags):
            grown = np.zeros(2 * int(slots.max()) + 2, dtype=np.bool_)
            grown[: len(self._flags)] = self._flags
            self._flags = grown
        rows = np.flatnonzero(~self._flags[slots])
        if not len(rows):
            return
        for slot, offset in zip(slots[rows].tolist(), offsets[rows].tolist(), strict=True):
            if slot not in self._waiting:
                self._waiting[slot] = Mark(offset, ordinal, now_s)
        self._flags[slots[rows]] = True

    def in_order(self, slots: Iterable[int]) -> list[int]:
        """Those of the slots that are dirty, oldest first."""
        marks = {slot: self._waiting[slot] for slot in slots if slot in self._waiting}
        return sorted(marks, key=marks.__getitem__)

    def oldest(self) -> tuple[int, Mark] | None:
        """The slot that is dirty for longest."""
        return next(iter(self._waiting.items())) if self._waiting else None

    def first_offset(self) -> int | None:
        """Offset of the first record that no snapshot covers, counting those in flight as covered."""
        return next(iter(self._waiting.values())).offset if self._waiting else None

    def take(self, slot: int) -> None:
        """The key of this slot is snapshotted; the snapshot is in flight. Not for a key that is not dirty."""
        self._flight[slot] = self._waiting.pop(slot)
        self._flags[slot] = False

    def forget(self, slot: int) -> None:
        """The key of this slot is gone."""
        self._flight.pop(slot, None)
        if self._waiting.pop(slot, None) is not None:
            self._flags[slot] = False

    def settle(self, *, committed: bool) -> None:
        """What was in flight is committed, or was not and is dirty as before."""
        back, self._flight = self._flight, {}
        if committed or not back:
            return
        self._flags[list(back)] = True
        self._waiting = OrderedDict(_by_offset([*self._waiting.items(), *back.items()]))


def _by_offset(items: Iterable[tuple[int, Mark]]) -> list[tuple[int, Mark]]:
    """Ascending; of a slot that is there twice, dict() keeps the place of the first and the value of the last."""
    earliest: dict[int, Mark] = {}
    for slot, mark in items:
        earliest[slot] = min(mark, earliest.get(slot, mark))
    return sorted(earliest.items(), key=lambda item: item[1])
