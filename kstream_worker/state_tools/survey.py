"""What one partition of the state topic holds: its header, and a few words about each key, without the models.

Each commit writes its header last. What lies behind the last header belongs to a commit whose end was not read: a
worker is at work. It does not count here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kstream_worker.ports import Bank
from kstream_worker.records import Batch
from kstream_worker.state.format import CorruptState, Header, Snapshot, decode_header, decode_snapshot, input_key
from kstream_worker.state_tools.reading import StateReader

Inspect = Callable[[Snapshot], bool | None]  # whether the alarm is up, None for unknown; ValueError: damaged


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a key's latest snapshot.

    Attributes:
        offset: in the state topic.
        position: see `Snapshot`.
        seen_ms: see `Snapshot`.
        generation: see `Snapshot`.
        size_bytes: of the record's value.
        raised: whether the key's alarm is up; None where nobody looked.
        problem: why it cannot be read; empty for none.
    """

    offset: int
    size_bytes: int
    position: int = -1
    seen_ms: int = -1
    generation: int = -1
    raised: bool | None = None
    problem: str = ""


@dataclass(slots=True)
class Survey:
    """One partition, as of its last header.

    Attributes:
        number: of the partition.
        end: offset in the state topic up to which it was read.
        header: None for none, or a damaged one.
        header_value: as it was read.
        header_problem: why it cannot be read; empty for none.
        keys: latest snapshots.
        unfinished: records behind the last header, by key; None for a deletion.
        strangers: records that are none of ours.
    """

    number: int
    end: int
    header: Header | None = None
    header_value: bytes = b""
    header_problem: str = ""
    keys: dict[bytes, Entry] = field(default_factory=dict)
    unfinished: dict[bytes, Entry | None] = field(default_factory=dict)
    strangers: int = 0

    @property
    def empty(self) -> bool:
        """Whether nothing is there."""
        return not (self.header_value or self.keys or any(self.unfinished.values()))

    def live(self) -> dict[bytes, Entry]:
        """Keys that the header knows of, and those of which nothing can be read; a start deletes the others."""
        generation = -1 if self.header is None else self.header.generation
        return {key: entry for key, entry in self.keys.items() if entry.generation in (generation, -1)}

    @property
    def generation(self) -> int:
        """The highest number of any header or snapshot; -1 for none."""
        entries = [*self.keys.values(), *(entry for entry in self.unfinished.values() if entry is not None)]
        headers = [] if self.header is None else [self.header.generation]
        return max([*headers, *(entry.generation for entry in entries)], default=-1)

    def take(self, batch: Batch, inspect: Inspect | None) -> None:
        """Records of the partition, in order."""
        for offset, record_key, value in zip(batch.offsets, batch.keys, batch.values, strict=True):
            try:
                key = input_key(record_key)
            except CorruptState:
                self.strangers += 1
                continue
            if key is not None:
                self.unfinished[key] = None if value is None else _entry(offset, value, inspect)
            else:
                self._take_header(value or b"")

    def _take_header(self, value: bytes) -> None:
        self.header, self.header_value, self.header_problem = None, value, ""
        if value:
            try:
                self.header = decode_header(value)
            except CorruptState as error:
                self.header_problem = str(error)
        for key, entry in self.unfinished.items():
            if entry is None:
                self.keys.pop(key, None)
            else:
                self.keys[key] = entry
        self.unfinished.clear()


def survey(reader: StateReader, number: int, inspect: Inspect | None = None) -> Survey:
    """Read a partition to its end.

    Args:
        reader: of the state topic.
        number: of the partition.
        inspect: looks into each model.
    """
    found = Survey(number, reader.end(number))
    for batch in reader.records(number, found.end):
        found.take(batch, inspect)
    return found


def surveys(reader: StateReader, numbers: Iterable[int], inspect: Inspect | None = None) -> Iterator[Survey]:
    """The same of several partitions, one after the other: only one is in memory."""
    return (survey(reader, number, inspect) for number in numbers)


def inspector(bank: Bank) -> Inspect:
    """Looks into models through a bank of the configuration, with one slot for all of them."""
    slot = bank.allocate(b"")

    def inspect(snapshot: Snapshot) -> bool:
        bank.restore(slot, snapshot.model)
        return bank.raised(slot)

    return inspect


def _entry(offset: int, value: bytes, inspect: Inspect | None) -> Entry:
    try:
        snapshot = decode_snapshot(value)
    except ValueError as error:
        return Entry(offset, len(value), problem=str(error))
    raised, problem = None, ""
    try:
        raised = None if inspect is None else inspect(snapshot)
    except ValueError as error:
        problem = str(error)
    return Entry(offset, len(value), snapshot.position, snapshot.seen_ms, snapshot.generation, raised, problem)
