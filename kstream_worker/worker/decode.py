"""The way of a batch from bytes to samples: gate, codec, gate, pairing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from kstream_worker.records import Batch, Fields, FloatMatrix, IntColumn, Rejects, Samples


class Codec(Protocol):
    """Values of one payload format in, columns of bound fields out."""

    def decode(self, values: Sequence[bytes | None], positions: Sequence[int], rejects: Rejects) -> Fields:
        """Decode the values at these positions; what is refused is added to `rejects`."""
        ...


class Gate(Protocol):
    """Checks a batch before and after decoding."""

    @property
    def warnings(self) -> Mapping[str, int]:
        """Records accepted in spite of something, by what."""
        ...

    def screen(self, batch: Batch, rejects: Rejects) -> tuple[Sequence[int], list[int]]:
        """Rows to decode, and rows that forget their key."""
        ...

    def admit(self, batch: Batch, fields: Fields, rejects: Rejects) -> tuple[Fields, list[bytes], IntColumn]:
        """The rows that may reach a model, with their keys and event times."""
        ...


class Pairing(Protocol):
    """Columns of accepted records in, samples for the bank out."""

    def pair(
        self, offsets: IntColumn, times: IntColumn, keys: list[bytes], x: FloatMatrix | None, y: FloatMatrix
    ) -> Samples:
        """The samples of these records."""
        ...


class RecordDecoder:
    """The `ports.Decoder` made of a codec, a gate and a pairing.

    Args:
        codec: of the input's payload format.
        gate: what may reach a model.
        pairing: what a model sees of a record.
    """

    def __init__(self, codec: Codec, gate: Gate, pairing: Pairing) -> None:
        self._codec = codec
        self._gate = gate
        self._pairing = pairing

    @property
    def warnings(self) -> Mapping[str, int]:
        """Records accepted in spite of something since the start, by what; `timestamp_...` took the bus's time."""
        return self._gate.warnings

    def decode(self, batch: Batch) -> tuple[Samples, Rejects]:
        """Decode record by record; a broken record never touches its neighbours. Rejects are in batch order."""
        rejects = Rejects()
        rows, tombstones = self._gate.screen(batch, rejects)
        fields = self._codec.decode(batch.values, rows, rejects)
        fields, keys, times = self._gate.admit(batch, fields, rejects)
        samples = self._pairing.pair(_offsets(batch, fields.positions), times, keys, fields.x, fields.y)
        samples.stamps = _stamps(batch, fields.positions)
        samples.forget = [_forget(batch, row, fields.positions) for row in tombstones]
        return samples, in_order(rejects)


def in_order(rejects: Rejects) -> Rejects:
    """The same rejects, ascending by row."""
    order = sorted(range(len(rejects)), key=rejects.positions.__getitem__)
    return Rejects(
        [rejects.positions[i] for i in order],
        [rejects.reasons[i] for i in order],
        [rejects.messages[i] for i in order],
    )


def _offsets(batch: Batch, positions: Sequence[int]) -> IntColumn:
    offsets = np.array(batch.offsets, dtype=np.int64)
    return offsets if len(positions) == len(offsets) else offsets[positions]


def _stamps(batch: Batch, positions: Sequence[int]) -> IntColumn:
    stamps = np.array(batch.timestamps, dtype=np.int64)
    return stamps if len(positions) == len(stamps) else stamps[positions]


def _forget(batch: Batch, row: int, positions: Sequence[int]) -> tuple[int, bytes, int, int]:
    key = batch.keys[row]
    if key is None:
        raise ValueError(f"row {row} of {batch.partition} forgets a key but has none")
    return bisect_left(positions, row), key, batch.offsets[row], batch.timestamps[row]
