"""One face for every bus under test: filling its input, reading its outputs back, and a process that uses it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as ClientPartition

from kstream_worker.bus.confluent import ConfluentSettings, confluent_bus
from kstream_worker.bus.fake import CommitFault, FakeBroker
from kstream_worker.bus.files import files_bus, read_output
from kstream_worker.bus.kafka_python import KafkaSettings, kafka_bus
from kstream_worker.errors import Retry
from kstream_worker.ports import Bus, Source, Writer
from kstream_worker.records import (
    Batch,
    Change,
    ChangeKind,
    Headers,
    Messages,
    Outcome,
    Poll,
    Progress,
    TopicPartition,
)

PARTITIONS = 2
TIMEOUT_S = 10.0
OUTPUT = "output"
STATE = "state"


class Out(NamedTuple):
    """An output record as a reader sees it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Harness(ABC):
    """One bus with an input topic of two partitions, an output topic and a compacted state topic.

    Attributes:
        topic: the input.
        output: the output topic.
        state: the state topic.
        is_broker: has topics, record times, readers, and takes any bytes as records.
    """

    topic = "input"
    output = OUTPUT
    state = STATE
    is_broker = False
    poll_timeout_s = 0.05
    doubtful_timeout_s = 0.2

    @abstractmethod
    def append(self, partition: int, *numbers: int) -> None:
        """Add numbered records to the input."""

    @abstractmethod
    def bus(self, identity: str = "app-0") -> Bus:
        """The bus of one process; the same identity is the same process started again."""

    @abstractmethod
    def outputs(self) -> list[Out]:
        """Committed output records, by partition and offset."""

    def disturb(self) -> Callable[[], None]:
        """Make the next commit fail or be in doubt; the call that ends the disturbance."""
        return lambda: None

    def append_raw(
        self, partition: int, key: bytes | None, value: bytes | None, headers: Headers = (), timestamp: int = 1
    ) -> None:
        """Add any bytes."""
        raise NotImplementedError

    def open_transaction(self, partition: TopicPartition, key: bytes, value: bytes) -> Callable[[bool], None]:
        """Let another producer open a transaction with one record; the call that commits (True) or aborts it."""
        raise NotImplementedError

    def poll_all(self, processes: Sequence[Process]) -> None:
        """Poll several processes."""
        for one in processes:
            one.poll()

    def value(self, number: int) -> bytes:
        """The value of a numbered record as the source gives it."""
        return json.dumps({"n": number}, separators=(",", ":")).encode()

    def partition(self, number: int) -> TopicPartition:
        """A partition of the input."""
        return TopicPartition(self.topic, number)


class FakeHarness(Harness):
    """The fake; one of its commit faults at a disturbance."""

    is_broker = True

    def __init__(self, fault: CommitFault = CommitFault.UNKNOWN_COMMITTED) -> None:
        self.broker = FakeBroker()
        self.broker.create_topic(self.topic, PARTITIONS)
        self.broker.create_topic(self.output, PARTITIONS)
        self.broker.create_topic(self.state, PARTITIONS, {"cleanup.policy": "compact"})
        self._fault = fault

    def append(self, partition: int, *numbers: int) -> None:
        for number in numbers:
            self.append_raw(partition, b"key", self.value(number))

    def append_raw(
        self, partition: int, key: bytes | None, value: bytes | None, headers: Headers = (), timestamp: int = 1
    ) -> None:
        self.broker.append(self.topic, partition, key, value, headers=headers, timestamp=timestamp)

    def bus(self, identity: str = "app-0") -> Bus:
        return self.broker.bus(topic=self.topic, group="app", identity=identity)

    def open_transaction(self, partition: TopicPartition, key: bytes, value: bytes) -> Callable[[bool], None]:
        transaction = self.broker.transaction()
        transaction.append(*partition, key, value)
        return lambda commit: transaction.commit() if commit else transaction.abort()

    def outputs(self) -> list[Out]:
        return [Out(one.key, one.value, tuple(one.headers)) for one in self.broker.records(self.output)]

    def disturb(self) -> Callable[[], None]:
        self.broker.faults.on_commit(self._fault)
        return lambda: None


class FilesHarness(Harness):
    """Files of one format in a folder; a disturbance is another program that holds the database."""

    def __init__(self, folder: Path, file_format: str) -> None:
        self._folder = folder
        self._format = file_format
        for partition in range(PARTITIONS):
            self._path(partition).write_text("n\n" if file_format == "csv" else "")

    def append(self, partition: int, *numbers: int) -> None:
        with self._path(partition).open("ab") as lines:
            for number in numbers:
                lines.write((str(number).encode() if self._format == "csv" else self.value(number)) + b"\n")

    def bus(self, identity: str = "app-0") -> Bus:
        paths = [self._path(partition) for partition in range(PARTITIONS)]
        return files_bus(paths, self._folder / "out", format="csv" if self._format == "csv" else "jsonl")

    def outputs(self) -> list[Out]:
        path = self._folder / "out" / f"{self.output}.jsonl"
        if not path.exists():
            return []
        return [Out(one.key, one.value, tuple(one.headers)) for one in read_output(path)]

    def disturb(self) -> Callable[[], None]:
        import sqlite3

        other = sqlite3.connect(self._folder / "out" / "positions.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        return other.close

    def _path(self, partition: int) -> Path:
        return self._folder / f"part-{partition}.{self._format}"


class KafkaHarness(Harness):
    """A real broker; at a disturbance the deadline of a commit passes while it is under way."""

    is_broker = True
    poll_timeout_s = 0.2
    doubtful_timeout_s = 0.0

    def __init__(self, bootstrap_servers: str, make_topic: Callable[[int], str], producer: KafkaProducer) -> None:
        self._servers = bootstrap_servers
        self._producer = producer
        self.topic, self.output = make_topic(PARTITIONS), make_topic(PARTITIONS)
        self.state = make_topic(PARTITIONS, {"cleanup.policy": "compact"})

    def append(self, partition: int, *numbers: int) -> None:
        for number in numbers:
            self._producer.send(self.topic, self.value(number), key=b"key", partition=partition)
        self._producer.flush()

    def append_raw(
        self, partition: int, key: bytes | None, value: bytes | None, headers: Headers = (), timestamp: int = 1
    ) -> None:
        self._producer.send(
            self.topic, value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp
        )
        self._producer.flush()

    def bus(self, identity: str = "app-0") -> Bus:
        unique = f"{self.topic}.{identity}"
        return kafka_bus(
            KafkaSettings([self._servers]),
            topic=self.topic,
            group_id=f"group-{self.topic}",
            transactional_id=unique,
            instance_id=unique,
        )

    def open_transaction(self, partition: TopicPartition, key: bytes, value: bytes) -> Callable[[bool], None]:
        producer = KafkaProducer(bootstrap_servers=self._servers, transactional_id=f"foreign-{partition.topic}")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(partition.topic, value, key=key, partition=partition.partition)
        producer.flush()

        def end(commit: bool) -> None:
            with closing(producer):
                (producer.commit_transaction if commit else producer.abort_transaction)()

        return end

    def poll_all(self, processes: Sequence[Process]) -> None:
        with ThreadPoolExecutor() as pool:  # a join needs all members at once
            for done in [pool.submit(one.poll) for one in processes]:
                done.result()

    def outputs(self) -> list[Out]:
        partitions = [ClientPartition(self.output, number) for number in range(PARTITIONS)]
        consumer = KafkaConsumer(bootstrap_servers=self._servers, isolation_level="read_committed", group_id=None)
        with closing(consumer):
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(partitions)
            found: dict[ClientPartition, list[Out]] = {one: [] for one in partitions}
            while any((consumer.position(one) or 0) < ends[one] for one in partitions):
                for one, records in consumer.poll(timeout_ms=200).items():
                    found[one] += [Out(record.key, record.value, tuple(record.headers)) for record in records]
        return [record for one in partitions for record in found[one]]


class ConfluentHarness(KafkaHarness):
    """The same broker through librdkafka."""

    def bus(self, identity: str = "app-0") -> Bus:
        unique = f"{self.topic}.{identity}"
        return confluent_bus(
            ConfluentSettings([self._servers]),
            topic=self.topic,
            group_id=f"group-{self.topic}",
            transactional_id=unique,
            instance_id=unique,
        )


@dataclass
class Process:
    """A process on a bus: a started writer and a source; partitions are sought and resumed as they are assigned."""

    bus: Bus
    writer: Writer
    source: Source
    harness: Harness
    assigned: set[TopicPartition]
    commits: int = 0

    @classmethod
    def start(cls, harness: Harness, identity: str = "app-0") -> Process:
        """Start without waiting for an assignment."""
        bus = harness.bus(identity)
        writer, source = bus.writer(), bus.source()
        writer.start(TIMEOUT_S)
        source.start()
        return cls(bus, writer, source, harness, set())

    @classmethod
    def running(cls, harness: Harness, identity: str = "app-0", partitions: int = PARTITIONS) -> Process:
        """Start, and go on until so many partitions are being read."""
        process = cls.start(harness, identity)
        while len(process.assigned) < partitions:
            process.poll()
        return process

    def poll(self) -> Poll:
        """One poll; changes are handled as a worker does."""
        found = self.source.poll(self.harness.poll_timeout_s)
        for change in found.changes:
            self.handle(change)
        return found

    def handle(self, change: Change) -> None:
        """Read assigned partitions on from what is committed, or from their beginning."""
        if change.kind is not ChangeKind.ASSIGNED:
            self.assigned -= set(change.partitions)
            return
        committed = self.source.committed(change.partitions, TIMEOUT_S)
        cluster = self.bus.cluster()
        earliest = cluster.earliest(change.partitions)
        cluster.close()
        for partition in change.partitions:
            position = committed[partition]
            self.source.seek(partition, earliest[partition] if position is None else position.offset)
        self.source.resume(change.partitions)
        self.assigned |= set(change.partitions)

    def read(self, count: int) -> list[Batch]:
        """Poll until `count` records have come."""
        batches: list[Batch] = []
        while sum(map(len, batches)) < count:
            batches += self.poll().batches
        return batches

    def read_values(self, count: int) -> list[bytes | None]:
        """Values of the next `count` records."""
        return [value for batch in self.read(count) for value in batch.values]

    def commit(self, batches: Sequence[Batch], token: str | None = None, timeout_s: float = TIMEOUT_S) -> Outcome:
        """Pass batches on to the output and commit."""
        self.commits += 1
        membership = self.source.membership()
        assert membership is not None
        token = token or f"token-{self.commits}"
        return self.writer.commit(copies(batches, self.harness.output), reached(batches), membership, token, timeout_s)

    def commit_at_last(self, batches: Sequence[Batch], token: str | None = None) -> None:
        """Commit; in doubt or aborted, the same again."""
        fixed = token or f"at-last-{self.commits}"
        for _ in range(20):
            try:
                if self.commit(batches, fixed) is Outcome.COMMITTED:
                    return
            except Retry:
                self.poll()
        raise AssertionError("not committed after 20 calls")

    def stop(self, *, leave: bool = True) -> None:
        """An orderly end."""
        self.source.close(leave=leave, timeout_s=TIMEOUT_S)
        self.writer.close(TIMEOUT_S)


def copies(batches: Iterable[Batch], topic: str) -> list[Messages]:
    """Messages that pass records on as they are, to the same partition number."""
    messages: dict[TopicPartition, Messages] = {}
    for batch in batches:
        target = TopicPartition(topic, batch.partition.partition)
        column = messages.setdefault(target, Messages(target))
        column.extend(batch.keys, batch.values, [max(0, time) for time in batch.timestamps], batch.headers)
    return list(messages.values())


def reached(batches: Iterable[Batch]) -> dict[TopicPartition, Progress]:
    """Positions after batches."""
    return {batch.partition: Progress(batch.next_offset, batch.leader_epoch) for batch in batches}
