"""A leader is elected that did not have the newest records: who read them is told, running or started later."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping

import pytest
from confluent_kafka import KafkaException, Producer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka_member import Member, RdMember, until

from benchmarks.chaos.arena import three_brokers
from benchmarks.chaos.client import ends, in_sync
from kstream_worker.bus.broker import LocalKafka
from kstream_worker.errors import Fatal, Rejoin, Retry
from kstream_worker.records import Batch, Outcome, Progress, TopicPartition

CLIENTS = {"kafka-python": Member, "confluent": RdMember}
KEPT, READ, AFTER = 10, 20, 25  # records that both replicas have, that were read, and that the new leader has at last
LOST = r"lost records that were read already.*unclean"


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    """Three brokers; a topic for each client, kept by the first two of them."""
    with three_brokers() as cluster:
        create(cluster, CLIENTS)
        yield cluster


def create(kafka: LocalKafka, topics: Iterable[str]) -> None:
    config, two = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}, {0: [1, 2]}
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers.split(","))) as admin:
        admin.create_topics([NewTopic(name, replica_assignments=two, topic_configs=config) for name in topics])


def all_end_at(kafka: LocalKafka, offset: int) -> bool:
    """Whether all topics have a leader and end there."""
    try:
        return all(ends(kafka.bootstrap_servers, topic, 1) == {0: offset} for topic in CLIENTS)
    except (KafkaException, RuntimeError):
        return False


def put(kafka: LocalKafka, count: int, topics: Iterable[str] = CLIENTS) -> None:
    """Append records to each topic."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "1", "log_level": 0})
    for topic in topics:
        for _ in range(count):
            producer.produce(topic, b"value", b"key", partition=0)
    assert producer.flush(60) == 0


@contextlib.contextmanager
def started(kafka: LocalKafka, topics: Mapping[str, type[Member]] = CLIENTS) -> Iterator[list[Member]]:
    """A member of each client, each on its own topic."""
    both = [make(kafka.bootstrap_servers, topic) for topic, make in topics.items()]
    with contextlib.ExitStack() as stack:
        for member in both:
            stack.callback(member.close)
            until(lambda member=member: has_started(member))
        yield both


def has_started(member: Member) -> bool:
    """A broker that has just gone or come takes its time."""
    try:
        member.start()
    except Retry:
        return False
    return True


def poll(member: Member) -> list[Batch]:
    """Records; none while brokers are away."""
    try:
        return list(member.poll().batches)
    except Retry:
        return []


def read_and_commit(member: Member, count: int, markers: int = 0) -> None:
    """Read so many records, pass the markers behind them, and commit the position as a worker does."""
    at = TopicPartition(member.topic, 0)
    batches: list[Batch] = []
    until(lambda: batches.extend(poll(member)) or sum(map(len, batches)) >= count)
    until(lambda: poll(member) or member.source.position(at) == count + markers)
    progress = {at: Progress(count + markers, member.source.leader_epoch(at))}

    def committed() -> bool:
        poll(member)  # the coordinator of the group may have been on the broker that is gone
        try:
            found = member.source.membership()
            return found is not None and member.commit(progress=progress, timeout_s=5) is Outcome.COMMITTED
        except (Retry, Rejoin):
            return False

    until(committed)


def is_refused(member: Member) -> bool:
    with pytest.raises(Fatal, match=LOST):
        until(lambda: poll(member))
    return True


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_a_marker_of_the_next_leader_is_no_loss(kafka: LocalKafka) -> None:
    """The position passes it, and what the leader of the last record wrote ends before the position."""
    topics = {f"{name}-clean": make for name, make in CLIENTS.items()}
    create(kafka, topics)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "upstream", "log_level": 0}
    producer = Producer({**settings, "transaction.timeout.ms": 60_000})
    producer.init_transactions(60)
    producer.begin_transaction()
    for topic in topics:
        producer.produce(topic, b"value", b"key", partition=0)
    assert producer.flush(60) == 0
    kafka.kill(0)
    kafka.restart(0)  # by then the other replica leads
    producer.commit_transaction(60)
    with started(kafka, topics) as first:
        for member in first:
            read_and_commit(member, 1, markers=1)
            assert member.source.leader_epoch(TopicPartition(member.topic, 0)) > 0
    with started(kafka, topics) as second:
        put(kafka, 1, topics)
        for member in second:
            until(lambda member=member: poll(member))


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_records_that_a_new_leader_never_had_are_missed(kafka: LocalKafka) -> None:
    until(lambda: in_sync(kafka.bootstrap_servers))
    put(kafka, KEPT)
    until(lambda: all_end_at(kafka, KEPT))
    with started(kafka) as running:
        for member in running:
            member.join(1)
        kafka.kill(1)
        put(kafka, READ - KEPT)
        for member in running:
            read_and_commit(member, READ)
        kafka.kill(0)
        kafka.restart(1)
        until(lambda: all_end_at(kafka, KEPT))
        put(kafka, AFTER - KEPT)
        assert all(map(is_refused, running))
    with started(kafka) as later:
        for member in later:
            assert is_refused(member)
            member.source.seek(TopicPartition(member.topic, 0), READ)  # the same without the epoch
            assert sum(map(len, member.read(AFTER - READ))) == AFTER - READ
