"""The source: every input file or stream is a partition, assigned at the first poll and never taken away."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kstream_worker.bus.files.inputs import Input, wait_for
from kstream_worker.bus.files.readers import ReadOptions, RecordReader, Records
from kstream_worker.bus.files.store import Store
from kstream_worker.errors import Fatal
from kstream_worker.records import Batch, Change, ChangeKind, Committed, Poll, TopicPartition

MAX_POLL_RECORDS = 4000


@dataclass(frozen=True, slots=True)
class FileMembership:
    """The lock on the output folder is the membership; it does not change while the process lives."""

    generation: int = 1


@dataclass(slots=True)
class _Assigned:
    source: Input
    reader: RecordReader | None = None  # none before the first seek
    paused: bool = True

    @property
    def is_ready(self) -> bool:
        return self.reader is not None and not self.paused

    @property
    def is_finished(self) -> bool:
        if self.reader is None:
            return False
        return self.reader.finished or (not self.source.is_stream and self.reader.position >= self.source.size())


class FileSource:
    """The `Source` of files. A poll without records and without changes waits; at the end of all inputs it does not."""

    def __init__(self, store: Store, topic: str, options: ReadOptions) -> None:
        self._store = store
        self._topic = topic
        self._options = options
        self._partitions: dict[TopicPartition, _Assigned] = {}
        self._membership: FileMembership | None = None
        self._started = False
        self._blank = 0

    @property
    def blank_lines(self) -> int:
        """Blank lines skipped since the start."""
        readers = (one.reader for one in self._partitions.values())
        return self._blank + sum(reader.blank for reader in readers if reader is not None)

    def start(self) -> None:
        """Open all inputs and make sure that they are those read before.

        Raises:
            ConfigError: an input cannot be read, or the first row of a CSV file is no header.
            Fatal: an input was cut or replaced since the last commit.
        """
        self._store.open("source")
        try:
            self._open_inputs()
        except BaseException:
            self.close(leave=True, timeout_s=0.0)
            raise
        self._started = True

    def poll(self, timeout_s: float) -> Poll:
        """At the first call the assignment, then records: whole lines, byte offsets, at most 4000 a call.

        Raises:
            Fatal: an input cannot be read any more.
        """
        if not self._started:
            raise Fatal("this source is not started, or closed")
        if self._membership is None:
            return Poll(changes=[self._assign()])
        batches = self._batches()
        if not batches and self._wait(timeout_s):
            batches = self._batches()
        finished = not batches and all(one.is_finished for one in self._partitions.values())
        return Poll(batches=batches, finished=finished)

    def membership(self) -> FileMembership | None:
        """Always the same after the first poll."""
        return self._membership

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop returning records of these partitions."""
        self._set_paused(partitions, paused=True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records again."""
        self._set_paused(partitions, paused=False)

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Read on from the first line that starts at `offset` or after it; fingerprints stand for epochs.

        Raises:
            Fatal: a stream would have to be read again.
        """
        del leader_epoch
        one = self._partitions.get(partition)
        if one is None:
            return
        if one.reader is not None and one.source.is_stream:
            if not one.reader.seek(offset):
                raise Fatal(f"{one.source.name} cannot be read again from {offset}; use a file instead")
            return
        if one.reader is not None:
            self._blank += one.reader.blank
        one.reader = RecordReader(one.source, offset, self._options)

    def position(self, partition: TopicPartition) -> int | None:
        """The byte to be read next; None before the first seek."""
        one = self._partitions.get(partition)
        return one.reader.position if one is not None and one.reader is not None else None

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Files have none."""
        del partition
        return -1

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Committed | None]:
        """Committed positions from the database."""
        del timeout_s  # the database is ours
        found = self._store.positions()
        return {one: found[one.partition].committed if one.partition in found else None for one in partitions}

    def close(self, *, leave: bool, timeout_s: float) -> None:
        """Close all inputs."""
        del leave, timeout_s  # there is no group, and nothing waits
        self._started = False
        self._membership = None
        for source in self._store.inputs.values():
            source.close()
        self._partitions.clear()
        self._store.close("source")

    def _open_inputs(self) -> None:
        positions = self._store.positions()
        for number, source in self._store.inputs.items():
            source.open()
            if number in positions:
                (offset, _, _), fingerprint = positions[number]
                source.check_read_before(offset, fingerprint, self._store.remedy)
            RecordReader(source, 0, self._options)

    def _assign(self) -> Change:
        self._partitions = {
            TopicPartition(self._topic, number): _Assigned(source) for number, source in self._store.inputs.items()
        }
        self._membership = FileMembership()
        return Change(ChangeKind.ASSIGNED, tuple(self._partitions))

    def _set_paused(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        for partition in partitions:
            if partition in self._partitions:
                self._partitions[partition].paused = paused

    def _batches(self) -> list[Batch]:
        """Records of the partitions in turn: those served now are served last by the next call."""
        batches: list[Batch] = []
        left = MAX_POLL_RECORDS
        for partition, one in list(self._partitions.items()):
            if left <= 0:
                break
            if one.reader is None or one.paused:
                continue
            self._partitions[partition] = self._partitions.pop(partition)
            records = one.reader.take(left)
            left -= len(records.offsets)
            if records.offsets:
                batches.append(to_batch(partition, records, one.reader))
        return batches

    def _wait(self, timeout_s: float) -> bool:
        """Wait where something may come; whether something has."""
        ready = [one for one in self._partitions.values() if one.is_ready and not one.is_finished]
        streams = [one.source for one in ready if one.source.is_stream]
        if len(ready) > len(streams):
            return True  # a file has more: only blank lines or part of a long one were found so far
        if streams:
            return wait_for(streams, timeout_s)
        if not all(one.is_finished for one in self._partitions.values()):
            time.sleep(timeout_s)
        return False


def to_batch(partition: TopicPartition, records: Records, reader: RecordReader) -> Batch:
    """What a reader just took, as a batch; lines have no record time."""
    return Batch(
        partition=partition,
        offsets=records.offsets,
        timestamps=[-1] * len(records.offsets),
        keys=records.keys,
        values=records.values,
        headers=records.headers,
        next_offset=reader.position,
    )
