"""A bank as small as can be: its state depends on each bit of a key's samples and on their order; it alarms often."""

from __future__ import annotations

import zlib

import numpy as np

from kstream_worker.records import FloatMatrix, IntColumn, Scores, Transition

WARMUP = 2
_MASK = 2**63 - 1
_FACTOR, _STEP = 6_364_136_223_846_793_005, 1_442_695_040_888_963_407
_ROW = np.dtype([("seq", "<i8"), ("word", "<i8"), ("raised", "<i8")])


class TinyBank:
    """The `ports.Bank` of a linear congruential generator per key, into which each sample is mixed.

    An alarm is raised where the mixed word is a multiple of the average run length, and cleared at a quarter of the
    samples after that.

    Args:
        arl: average run length, a whole number.
    """

    bytes_per_key = _ROW.itemsize
    fingerprint = "tiny:1"

    def __init__(self, arl: float) -> None:
        self._arl = int(arl)
        self._rows: list[list[int]] = []
        self._free: list[int] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.bytes_per_key * len(self._rows)

    def retune(self, arl: float) -> None:
        """Go on with another average run length."""
        self._arl = int(arl)

    def allocate(self, key: bytes) -> int:
        """A fresh row."""
        slot = self._free.pop() if self._free else len(self._rows)
        if slot == len(self._rows):
            self._rows.append([])
        self._rows[slot] = [0, zlib.crc32(key), 0]
        return slot

    def free(self, slot: int) -> None:
        """Give the row back."""
        if not self._rows[slot]:
            raise ValueError(f"slot {slot} is not allocated")
        self._rows[slot] = []
        self._free.append(slot)

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Scores:
        """Mix in n samples."""
        n = len(slots)
        states, seqs, words = [0] * n, [0] * n, [0] * n
        transitions: list[Transition] = []
        numbers = zip(slots.tolist(), y[:, 0].tolist(), times.tolist(), strict=True)
        for i, (slot, value, time_ms) in enumerate(numbers):
            row = self._rows[slot]
            states[i] = 0 if row[0] < WARMUP else 1 + row[2]
            row[0] += 1
            row[1] = (row[1] * _FACTOR + round(value * 1000) * _STEP + time_ms) & _MASK
            seqs[i], words[i] = row[0], row[1] >> 40
            if row[2] and words[i] % 4 == 0:
                row[2] = 0
                transitions.append(self._transition(i, slot, "cleared", "rearmed", time_ms))
            elif not row[2] and row[0] > WARMUP and words[i] % self._arl == 0:
                row[2] = 1
                transitions.append(self._transition(i, slot, "raised", "learned", time_ms))
        evidence = np.array(words, dtype=np.float64)
        return Scores(
            np.array(states, dtype=np.int8),
            np.array(seqs, dtype=np.int64),
            -evidence,
            evidence / 3.0,
            evidence,
            np.full(n, 2.0 * self._arl),
            transitions,
        )

    def forget(self, slot: int) -> Transition | None:
        """The transition owed when the key goes."""
        return self._transition(-1, slot, "cleared", "forgotten", 0) if self.raised(slot) else None

    def raised(self, slot: int) -> bool:
        """Whether the alarm is up."""
        return bool(self._rows[slot][2])

    def guarantee(self, slot: int) -> tuple[str, str] | None:
        """None: nothing is stated."""
        return None

    def seq(self, slot: int) -> int:
        """Samples so far."""
        return self._rows[slot][0]

    def snapshot(self, slot: int) -> bytes:
        """The row and its checksum."""
        row = np.array(tuple(self._rows[slot]), dtype=_ROW).tobytes()
        return row + zlib.crc32(row).to_bytes(4, "little")

    def restore(self, slot: int, snapshot: bytes) -> None:
        """Put a row back.

        Raises:
            ValueError: damaged.
        """
        row = snapshot[:-4]
        if len(row) != _ROW.itemsize or zlib.crc32(row) != int.from_bytes(snapshot[-4:], "little"):
            raise ValueError("snapshot of tiny: damaged")
        self._rows[slot] = list(np.frombuffer(row, dtype=_ROW)[0].tolist())

    def _transition(self, row: int, slot: int, kind: str, reason: str, time_ms: int) -> Transition:
        seq, word, _ = self._rows[slot]
        evidence = float(word >> 40)
        weights = (("y[0]", 1.0),)
        return Transition(
            row,
            slot,
            kind,
            reason,
            seq,
            evidence,
            2.0 * self._arl,
            seq,
            time_ms,
            "up",
            weights,
            "none",
            "a test's bank",
            float(self._arl),
        )
