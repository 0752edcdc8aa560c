"""The reader outside any group: of the state in the database, and of the input files for tools that only look.

It takes no lock and writes nothing, so it may read beside a worker of another process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from kstream_worker.bus.files.inputs import Input
from kstream_worker.bus.files.readers import ReadOptions, RecordReader
from kstream_worker.bus.files.source import MAX_POLL_RECORDS, to_batch
from kstream_worker.bus.files.state import POLL_BYTES
from kstream_worker.bus.files.store import Store
from kstream_worker.errors import ConfigError, Fatal
from kstream_worker.records import Batch, TopicPartition


class FileReader:
    """The `Reader` of the state topic and of input files. Streams are for the worker: they can be read only once.

    Args:
        store: the database and the inputs.
        topic: of the input.
        state_topic: of the state.
        options: how inputs are read.
    """

    def __init__(self, store: Store, topic: str, state_topic: str, options: ReadOptions) -> None:
        self._store = store
        self._topic = topic
        self._state_topic = state_topic
        self._options = options
        self._positions: dict[TopicPartition, int] = {}
        self._inputs: dict[TopicPartition, tuple[Input, RecordReader]] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others.

        Raises:
            ConfigError: an input is a stream, or cannot be read.
            Fatal: neither of the state topic nor of the input.
        """
        self.close()
        for partition, position in positions.items():
            if partition.topic == self._topic:
                self._inputs[partition] = self._open(partition, position)
            elif partition.topic != self._state_topic:
                known = f"the state, '{self._state_topic}', and the input, '{self._topic}'"
                raise Fatal(f"{partition} cannot be read: with files a reader reads {known}")
        self._positions = dict(positions)

    def poll(self, timeout_s: float) -> list[Batch]:
        """Records of the partitions in turn; waits only where all are read to their end.

        Raises:
            Retry: another process holds the database.
            Fatal: it, or an input, cannot be read.
        """
        before = dict(self._positions)
        batches = []
        left = POLL_BYTES
        for partition, position in before.items():
            batch = self._read(partition, position, left)
            del self._positions[partition]  # served now, last in the next call
            self._positions[partition] = batch.next_offset
            if batch.offsets:
                batches.append(batch)
            left -= batch.size_bytes()
            if left <= 0:
                break
        if self._positions == before:
            time.sleep(timeout_s)
        return batches

    def position(self, partition: TopicPartition) -> int:
        """The offset to be read next.

        Raises:
            Fatal: the partition is not assigned.
        """
        if partition not in self._positions:
            raise Fatal(f"the position of {partition} was asked for, but it is not assigned")
        return self._positions[partition]

    def close(self) -> None:
        """Stop."""
        for source, _ in self._inputs.values():
            source.close()
        self._inputs.clear()
        self._positions.clear()

    def _open(self, partition: TopicPartition, position: int) -> tuple[Input, RecordReader]:
        found = self._store.numbering().get(partition.partition)
        if found is None:
            raise Fatal(f"{partition} has no input file")
        if found.is_stream:
            raise ConfigError(f"{found.name} can be read only once, by a worker: name files in `bus.files.inputs`")
        source = Input(found.path)  # of its own: a source of this process may have the other one open
        source.open()
        return source, RecordReader(source, position, self._options)

    def _read(self, partition: TopicPartition, position: int, max_bytes: int) -> Batch:
        if partition.topic != self._topic:
            return self._store.read_state(partition, position, max_bytes)
        _, reader = self._inputs[partition]
        return to_batch(partition, reader.take(MAX_POLL_RECORDS), reader)
