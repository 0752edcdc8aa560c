"""One key: what its latest snapshot says, and what the configured models make of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kstream_worker.ports import Bank
from kstream_worker.records import STATE_NAMES, Batch
from kstream_worker.state.format import HEADER_KEY, CorruptState, Header, decode_header, decode_snapshot, state_key
from kstream_worker.state_tools.reading import StateReader


@dataclass(frozen=True, slots=True)
class Found:
    """A key's latest record in one partition, as of the partition's last header.

    Attributes:
        partition: its number.
        header: of the partition; None for none that can be read.
        offset: of the record in the state topic.
        value: of the record.
    """

    partition: int
    header: Header | None
    offset: int
    value: bytes


@dataclass(slots=True)
class _Trace:
    """What was read so far about a key: what is behind the last header does not count yet."""

    record_key: bytes
    header: bytes = b""
    settled: tuple[int, bytes | None] = (-1, None)
    latest: tuple[int, bytes | None] = (-1, None)

    def take(self, batch: Batch) -> None:
        for offset, record_key, value in zip(batch.offsets, batch.keys, batch.values, strict=True):
            if record_key == HEADER_KEY:
                self.header, self.settled = value or b"", self.latest
            elif record_key == self.record_key:
                self.latest = (offset, value)


def find(reader: StateReader, key: bytes, numbers: Iterable[int]) -> Iterator[Found]:
    """The key in each of these partitions that has it: in one, unless its records came to several."""
    for number in numbers:
        trace = _Trace(state_key(key))
        for batch in reader.records(number, reader.end(number)):
            trace.take(batch)
        offset, value = trace.settled
        if value is not None:
            yield Found(number, _header(trace.header), offset, value)


def describe(found: Found, bank: Bank, dims: int, x_dims: int | None) -> dict[str, object]:
    """What a record says, by name; `problem` says what cannot be told.

    Args:
        found: the record.
        bank: of the configuration.
        dims: features of a sample, or of the live side of a pair.
        x_dims: features of its other side; None where samples are single.
    """
    said: dict[str, object] = {"partition": found.partition, "state_offset": found.offset, "bytes": len(found.value)}
    try:
        snapshot = decode_snapshot(found.value)
    except CorruptState as error:
        return {**said, "problem": str(error)}
    said |= {
        "position": snapshot.position,
        "seen_ms": snapshot.seen_ms,
        "generation": snapshot.generation,
        "model_bytes": len(snapshot.model),
    }
    header = found.header
    if header is None:
        said["problem"] = "the partition has no header that can be read: the worker does not use this snapshot"
    elif header.generation != snapshot.generation:
        said["problem"] = f"left over from discarded models: the partition is at generation {header.generation}"
    try:
        said |= _look_inside(bank, snapshot.model, dims, x_dims)
    except ValueError as error:
        said["problem"] = f"the model cannot be opened with this configuration: {error}"
    if snapshot.alarm:
        said["alarm"] = dict(snapshot.alarm)
    return said


def _look_inside(bank: Bank, model: bytes, dims: int, x_dims: int | None) -> Mapping[str, object]:
    """State and number of samples. What a bank answers is about the time before a sample, so a copy is given one."""
    slot = bank.allocate(b"")
    try:
        bank.restore(slot, model)
        raised, guarantee = bank.raised(slot), bank.guarantee(slot)
        x = None if x_dims is None else np.zeros((1, x_dims))
        at = np.array([slot], dtype=np.int64)
        scores = bank.update(at, x, np.zeros((1, dims)), np.zeros(1, dtype=np.int64))
    finally:
        bank.free(slot)
    divergence = float(scores.divergence[0])
    said: dict[str, object] = {
        "state": STATE_NAMES[int(scores.state[0])],
        "seq": int(scores.seq[0]) - 1,
        "divergence": divergence if np.isfinite(divergence) else None,
        "raised": raised,
    }
    if guarantee is not None and said["state"] != "warming":
        said |= {"guarantee": guarantee[0], "guarantee_reason": guarantee[1]}
    return said


def _header(value: bytes) -> Header | None:
    try:
        return decode_header(value) if value else None
    except CorruptState:
        return None
