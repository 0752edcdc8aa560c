"""The keys of one partition: their slots, up to where their models are, when they were last seen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kstream_worker.records import IntColumn


class KeyTable:
    """Keys and slots, with columns by slot that grow as the bank does.

    Attributes:
        covered: int64[capacity], input position up to which a restored model holds the key's records.
        seen: int64[capacity], the partition's event-time clock at the key's last record, milliseconds.
        stored: bool[capacity], whether the state topic may hold a snapshot of the key.
    """

    def __init__(self) -> None:
        self._slots: dict[bytes, int] = {}
        self._names: list[bytes] = []
        self.covered: IntColumn = np.zeros(64, dtype=np.int64)
        self.seen: IntColumn = np.zeros(64, dtype=np.int64)
        self.stored: NDArray[np.bool_] = np.zeros(64, dtype=np.bool_)
        self._live: NDArray[np.bool_] = np.zeros(64, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: bytes) -> bool:
        return key in self._slots

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._slots)

    def slot(self, key: bytes) -> int | None:
        """The slot of a key; None when it has none."""
        return self._slots.get(key)

    def slot_of(self, key: bytes) -> int:
        """The slot of a key that has one.

        Raises:
            KeyError: it has none.
        """
        return self._slots[key]

    def name(self, slot: int) -> bytes:
        """The key of a slot that is in use."""
        return self._names[slot]

    def live_slots(self) -> IntColumn:
        """int64[n], the slots that are in use."""
        return np.flatnonzero(self._live).astype(np.int64)

    def lookup(self, keys: list[bytes]) -> IntColumn | None:
        """int64[n], the slots of n keys; None when one of them has none."""
        try:
            return np.fromiter(map(self._slots.__getitem__, keys), dtype=np.int64, count=len(keys))
        except KeyError:
            return None

    def add(self, key: bytes, slot: int, *, covered: int = 0, seen_ms: int = -1, stored: bool = False) -> None:
        """A key has come, with a slot of its own."""
        if slot >= len(self._live):
            self._grow(slot + 1)
        while len(self._names) <= slot:
            self._names.append(b"")
        self._slots[key] = slot
        self._names[slot] = key
        self.covered[slot] = covered
        self.seen[slot] = seen_ms
        self.stored[slot] = stored
        self._live[slot] = True

    def see(self, slots: IntColumn, clocks: IntColumn) -> None:
        """Keys sent records that their models hold already: of a key reset by hand the snapshot does not say when.

        Args:
            slots: int64[n]; -1 for keys that have none.
            clocks: int64[n], the partition's clock at each record.
        """
        known = slots >= 0
        np.maximum.at(self.seen, slots[known], clocks[known])

    def remove(self, key: bytes) -> int:
        """A key has gone; the slot that it had."""
        slot = self._slots.pop(key)
        self._names[slot] = b""
        self._live[slot] = False
        return slot

    def count_stored(self) -> int:
        """Live keys of which the state topic holds a snapshot, as far as is known here."""
        return int(np.count_nonzero(self.stored & self._live))

    def oldest_seen(self, since_ms: int = -1) -> int:
        """When the key was last seen that is silent for longest, of those seen since then; beyond any time for none."""
        return int(self.seen[self._live & (self.seen >= since_ms)].min(initial=np.iinfo(np.int64).max))

    def silent_since(self, seen_ms: int, offset: int) -> list[bytes]:
        """Keys last seen before that time, in byte order; not those whose models are beyond this input offset."""
        silent = self._live & (self.seen < seen_ms) & (self.covered <= offset)
        return sorted(self._names[slot] for slot in np.flatnonzero(silent).tolist())

    def seen_between(self, first_ms: int, end_ms: int) -> dict[bytes, int]:
        """Keys last seen from `first_ms` on and before `end_ms`, with that time; in byte order."""
        found = np.flatnonzero(self._live & (self.seen >= first_ms) & (self.seen < end_ms)).tolist()
        return dict(sorted((self._names[slot], int(self.seen[slot])) for slot in found))

    def _grow(self, least: int) -> None:
        capacity = max(least, 2 * len(self._live))
        for name in ("covered", "seen", "stored", "_live"):
            old = getattr(self, name)
            new = np.zeros(capacity, dtype=old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
