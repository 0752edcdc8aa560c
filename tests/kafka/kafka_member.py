"""One process on a real broker, and what its tests need around it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from kafka import KafkaProducer
from kafka.errors import KafkaConnectionError
from kafka.structs import TopicPartition as ClientPartition

from kstream_worker.bus.common.writer import Attempt, Phase
from kstream_worker.bus.confluent import ConfluentSettings, confluent_bus
from kstream_worker.bus.confluent import source as confluent_source
from kstream_worker.bus.kafka_python import KafkaSettings, kafka_bus
from kstream_worker.errors import Retry
from kstream_worker.ports import Bus, Membership
from kstream_worker.records import Batch, ChangeKind, Messages, Outcome, Poll, Progress, TopicPartition

PATIENCE_S = 60.0


class Member:
    """A source and a writer of one group, as a worker uses them; on kafka-python."""

    QUICK: Mapping[str, Any] = {"heartbeat_interval_ms": 200}
    EVICTED_SOON: Mapping[str, Any] = {**QUICK, "session_timeout_ms": 1_500, "max_poll_interval_ms": 1_500}
    SHORT_LIVED: Mapping[str, Any] = {
        "request_timeout_ms": 400,
        "delivery_timeout_ms": 800,
        "transaction_timeout_ms": 1_200,
    }
    TRANSACTION_TIMEOUT = "transaction_timeout_ms"
    PASSING: Exception = KafkaConnectionError("a fault of the network")

    def taking(self) -> tuple[Any, str]:
        """Where the source takes records from its client: an object and the name of its method."""
        return self.source._consumer, "poll"

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        name: str = "m0",
        group: str | None = None,
        static: bool = False,
        consumer: Mapping[str, Any] | None = None,
        producer: Mapping[str, Any] | None = None,
        common: Mapping[str, Any] | None = None,
    ) -> None:
        self.topic = topic
        self.group = group or f"g-{topic}"
        self.bus = self.make_bus(
            servers,
            {"common": common or {}, "consumer": consumer or self.QUICK, "producer": producer or {}},
            topic=topic,
            group_id=self.group,
            transactional_id=f"{self.group}.{name}",
            instance_id=name if static else None,
        )
        self.source: Any = self.bus.source()
        self.writer: Any = self.bus.writer()
        self.owned: set[TopicPartition] = set()
        self.changes: list[tuple[ChangeKind, TopicPartition]] = []

    def make_bus(self, servers: str, tables: dict[str, Any], **names: Any) -> Bus:
        return kafka_bus(KafkaSettings(servers.split(","), **tables), **names)

    def start(self) -> Member:
        self.writer.start(PATIENCE_S)
        self.source.start()
        return self

    def poll(self, timeout_s: float = 0.2, *, resume: bool = True) -> Poll:
        """One poll; new partitions are read on from the committed offset, or from 0."""
        found = self.source.poll(timeout_s)
        for change in found.changes:
            self.changes += [(change.kind, partition) for partition in change.partitions]
            if change.kind is not ChangeKind.ASSIGNED:
                self.owned -= set(change.partitions)
                continue
            self.owned |= set(change.partitions)
            if resume:
                self.resume(change.partitions)
        return found

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        for partition, found in self.source.committed(partitions, PATIENCE_S).items():
            self.source.seek(partition, *((0, -1) if found is None else (found.offset, found.leader_epoch)))
        self.source.resume(partitions)

    def join(self, count: int, *, resume: bool = True) -> Membership:
        """Poll until so many partitions are owned and the group is settled."""
        until(lambda: self.poll(resume=resume) and len(self.owned) == count and self.source.membership() is not None)
        return self.membership()

    def membership(self) -> Membership:
        found = self.source.membership()
        assert found is not None
        return found

    def read(self, count: int) -> list[Batch]:
        batches: list[Batch] = []
        until(lambda: batches.extend(self.poll().batches) or sum(map(len, batches)) >= count)
        return batches

    def commit(
        self,
        messages: Sequence[Messages] = (),
        progress: Mapping[TopicPartition, Progress] | None = None,
        token: str = "t",  # noqa: S107  (no password)
        timeout_s: float = PATIENCE_S,
        membership: Membership | None = None,
    ) -> Outcome:
        reached = progress or {TopicPartition(self.topic, 0): Progress(1)}
        return self.writer.commit(messages, reached, membership or self.membership(), token, timeout_s)

    def committed(self, partition: int = 0) -> tuple[int, str] | None:
        (found,) = self.source.committed([TopicPartition(self.topic, partition)], PATIENCE_S).values()
        return None if found is None else (found.offset, found.metadata)

    def close(self, *, leave: bool = True) -> None:
        self.source.close(leave=leave, timeout_s=5)
        self.writer.close(5)


class RdMember(Member):
    """The same on librdkafka."""

    QUICK: Mapping[str, Any] = {"heartbeat.interval.ms": 200}
    EVICTED_SOON: Mapping[str, Any] = {**QUICK, "session.timeout.ms": 1_500, "max.poll.interval.ms": 1_500}
    SHORT_LIVED: Mapping[str, Any] = {
        "socket.timeout.ms": 400,
        "request.timeout.ms": 400,
        "message.timeout.ms": 800,
        "transaction.timeout.ms": 1_200,
    }
    TRANSACTION_TIMEOUT = "transaction.timeout.ms"
    PASSING: Exception = KafkaException(KafkaError(KafkaError._TRANSPORT))

    def taking(self) -> tuple[Any, str]:
        return confluent_source, "take"

    def make_bus(self, servers: str, tables: dict[str, Any], **names: Any) -> Bus:
        return confluent_bus(ConfluentSettings(servers.split(","), **tables), **names)


@contextlib.contextmanager
def members(*several: Member) -> Iterator[Any]:
    """Started members, closed at the end."""
    with contextlib.ExitStack() as stack:
        for member in several:
            stack.callback(member.close)
            member.start()
        yield several[0] if len(several) == 1 else several


def until(done: Callable[[], Any]) -> None:
    """Call again until true; far too long is a failure."""
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end, "never came true"


def commit_at_last(member: Member, *args: Any, **options: Any) -> Outcome:
    """The same call again until it is not in doubt."""
    found: list[Outcome] = []

    def attempt() -> bool:
        try:
            found.append(member.commit(*args, **options))
        except Retry:
            return False
        return True

    until(attempt)
    return found[0]


def column(topic: str, values: Sequence[bytes | None], partition: int = 0) -> Messages:
    count = len(values)
    now_ms = int(time.time() * 1000)  # records of the distant past may be deleted at any moment
    return Messages(TopicPartition(topic, partition), [None] * count, list(values), [now_ms] * count, [()] * count)


def fill(servers: str, topic: str, values: Sequence[bytes], partition: int = 0, **settings: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, metrics_enabled=False, **settings)
    for value in values:
        producer.send(topic, value, b"key", None, partition, 1000)
    producer.flush(PATIENCE_S)
    producer.close(5)


def outputs(member: Member, topic: str, partition: int = 0) -> list[bytes | None]:
    """Committed values of an output partition, up to its high watermark."""
    from kstream_worker.records import End

    assert member.bus.reader is not None
    target = TopicPartition(topic, partition)
    with contextlib.closing(member.bus.cluster()) as cluster, contextlib.closing(member.bus.reader()) as reader:
        (end,) = cluster.end([target], End.HIGH).values()
        reader.assign({target: 0})
        values: list[bytes | None] = []
        while reader.position(target) < end:
            values += [value for batch in reader.poll(0.2) for value in batch.values]
    return values


def at_phase(monkeypatch: Any, phase: Phase, action: Callable[[], object]) -> None:
    """Do something when the next transaction enters a phase, once."""
    original, once = Attempt._enter, threading.Event()

    def enter(self: Attempt, entered: Phase) -> None:
        original(self, entered)
        if entered is phase and not once.is_set():
            once.set()
            action()

    monkeypatch.setattr(Attempt, "_enter", enter)


def freeze(broker: Any) -> None:
    """SIGSTOP, and the moment that it takes to reach every thread of the broker."""
    broker.freeze()
    time.sleep(0.2)


def client_partition(topic: str, partition: int = 0) -> ClientPartition:
    return ClientPartition(topic, partition)
