"""Traps of kafka-python, each met on a real broker and each with its guard; docstrings say what the client does."""

from __future__ import annotations

import threading
import time

import pytest
from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove, NewPartitions
from kafka.consumer.fetcher import ExceptionMetadata
from kafka.structs import ConsumerGroupMetadata
from kafka_member import (
    Member,
    at_phase,
    client_partition,
    column,
    commit_at_last,
    fill,
    freeze,
    members,
    outputs,
    until,
)

from kstream_worker.bus.common.writer import Phase
from kstream_worker.bus.kafka_python.membership import KafkaMembership
from kstream_worker.errors import Fatal, Rejoin, Retry
from kstream_worker.records import ChangeKind, Outcome, Progress, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def test_an_error_that_waits_for_the_next_poll_outlives_a_pause(kafka, make_topic):
    """What failed behind records is raised by the next poll, but not if its partition was paused by then; resumed, its
    records in line have no end, and a poll asks them for ever.
    """
    topic = make_topic()
    partition = TopicPartition(topic, 0)
    with members(Member(kafka, topic)) as member:
        member.join(1)
        held = ExceptionMetadata(client_partition(topic), 0, Member.PASSING)
        member.source._consumer._fetcher._next_in_line_exception_metadata = held
        member.source.pause([partition])
        with pytest.raises(Retry):
            member.poll(resume=False)


def test_an_expired_batch_is_not_committed(client, kafka_process, make_own_topic):
    """A batch expires, its future fails, and `commit_transaction` returns normally: records lost, offset committed."""
    topic, output = make_own_topic(), make_own_topic()
    quick = {**client.SHORT_LIVED, client.TRANSACTION_TIMEOUT: 30_000}
    with members(client(kafka_process.bootstrap_servers, topic, producer=quick)) as member:
        member.join(1)
        assert member.commit([column(output, [b"in time"])], token="known") is Outcome.COMMITTED
        freeze(kafka_process)
        threading.Timer(2.0, kafka_process.thaw).start()
        messages, reached = [column(output, [b"late"])], {TopicPartition(topic, 0): Progress(2)}
        assert commit_at_last(member, messages, reached, "t") is Outcome.ABORTED
        assert member.committed() == (1, "known")
        assert commit_at_last(member, messages, reached, "t") is Outcome.COMMITTED
        assert outputs(member, output) == [b"in time", b"late"]


@pytest.mark.parametrize("phase", [Phase.SENDING, Phase.OFFSETS, Phase.ENDING])
def test_a_transaction_timed_out_by_the_coordinator_is_aborted_not_fatal(
    client, kafka_process, make_own_topic, monkeypatch, phase
):
    """The client reports the time-out as a fenced producer, or (met by a batch) not at all."""
    topic, output = make_own_topic(), make_own_topic(partitions=2)
    with members(client(kafka_process.bootstrap_servers, topic, producer=client.SHORT_LIVED)) as member:
        member.join(1)
        at_phase(monkeypatch, phase, lambda: time.sleep(2.5))
        messages = [column(output, [b"slow"])]
        if phase is Phase.SENDING:  # nothing was sent before the pause: the transaction had not begun on the broker
            assert commit_at_last(member, messages, token="t") is Outcome.COMMITTED
        else:
            assert commit_at_last(member, messages, token="t") is Outcome.ABORTED
            assert member.committed() is None
            assert commit_at_last(member, messages, token="t") is Outcome.COMMITTED
        assert outputs(member, output) == [b"slow"]


def test_offsets_of_a_failed_transaction_are_not_committed_by_the_next(kafka, make_topic):
    """After a failed `send_offsets_to_transaction` the next transaction of the producer commits the old offsets too."""
    topic = make_topic(partitions=2)
    with members(Member(kafka, topic)) as member:
        good = member.join(2)
        stale = KafkaMembership(good.metadata._replace(generation_id=good.generation + 7), good.partitions)
        with pytest.raises(Rejoin):
            member.commit(progress={TopicPartition(topic, 0): Progress(100)}, token="bad", membership=stale)
        assert member.commit(progress={TopicPartition(topic, 1): Progress(1)}, token="good") is Outcome.COMMITTED
        assert [member.committed(0), member.committed(1)] == [None, (1, "good")]


def test_a_membership_that_proves_nothing_is_refused(kafka, make_topic):
    """An evicted member shows generation -1 and no id, which the broker does not fence."""
    topic = make_topic()
    with members(Member(kafka, topic)) as member:
        good = member.join(1)
        nothing = KafkaMembership(ConsumerGroupMetadata(group_id=member.group), good.partitions)
        with pytest.raises(Rejoin, match="no member"):
            member.commit(membership=nothing)
        assert member.committed() is None


def test_an_evicted_member_cannot_commit_learns_it_and_comes_back(kafka, make_topic):
    """A member that stalls beyond its poll interval is put out; back again it claims what others own now."""
    topic = make_topic(partitions=4)
    first = Member(kafka, topic, name="a", consumer=Member.EVICTED_SOON)
    second = Member(kafka, topic, name="b", consumer=Member.EVICTED_SOON)
    with members(first):
        old = first.join(4)
        second.start()
        until(lambda: second.poll() and len(second.owned) == 4 and second.source.membership())  # first stalls
        assert second.commit(token="owner") is Outcome.COMMITTED
        with pytest.raises(Rejoin):
            first.commit(progress={TopicPartition(topic, 0): Progress(99)}, token="zombie", membership=old)
        assert second.committed() == (1, "owner")
        first.poll()
        until(lambda: first.poll() and second.poll() and (len(first.owned), len(second.owned)) == (2, 2))
        assert first.changes[4:8] == [(ChangeKind.LOST, TopicPartition(topic, n)) for n in range(4)]
        assert not first.owned & second.owned
        second.close()


def test_a_member_put_out_while_it_joins_loses_what_it_had(kafka, make_topic):
    """Put out in the middle of a join, the client joins again without a callback and goes on with its partitions."""
    topic = make_topic(partitions=2)
    first, second, third = (Member(kafka, topic, name=name) for name in "abc")
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    with members(first), members(second):
        until(lambda: first.poll() and second.poll() and (len(first.owned), len(second.owned)) == (1, 1))
        until(
            lambda: first.poll(0.05) and second.poll(0.05) and first.source.membership() and second.source.membership()
        )
        old_id, (mine,) = first.membership().metadata.member_id, first.owned
        first.changes.clear()
        third.start()
        until(
            lambda: third.poll(0.05) and first.poll(0.05) and first.source.membership() is None
        )  # second does not join
        admin.remove_group_members(first.group, [MemberToRemove(member_id=old_id)])
        admin.close()
        everyone = (first, second, third)
        until(lambda: [one.poll(0.05) for one in everyone] and all(one.source.membership() for one in everyone))
        until(lambda: [one.poll(0.05) for one in everyone] and sum(len(one.owned) for one in everyone) == 2)
        assert first.changes[0] == (ChangeKind.LOST, mine)
        assert len(first.owned | second.owned | third.owned) == 2
        third.close()


def test_a_second_process_of_one_instance_id_ends_the_first(kafka, make_topic):
    """The first polls on without an error, its heartbeats switched off, and learns it at its next commit."""
    topic = make_topic()
    with members(Member(kafka, topic, name="same", static=True)) as first:
        old = first.join(1)
        twin = Member(kafka, topic, name="same", group=first.group, static=True)
        twin.source.start()
        twin.join(1)
        with pytest.raises(Fatal, match="instance"):
            first.commit(membership=old)
        with pytest.raises(Fatal, match="instance id"):
            until(lambda: first.poll() and False)
        twin.source.close(leave=True, timeout_s=5)


def test_a_join_that_ends_between_two_polls_is_kept(kafka, make_topic):
    """The client throws it away and starts another: with work between polls a group needs many generations."""
    topic = make_topic(partitions=2)
    first, second = Member(kafka, topic, name="a"), Member(kafka, topic, name="b")
    with members(first):
        first.join(2)
        second.start()

        def turn():
            for member in (first, second):
                member.poll(0.02)
                time.sleep(0.3)
            return (len(first.owned), len(second.owned)) == (1, 1) and first.source.membership()

        until(turn)
        assert first.membership().generation <= 5
        second.close()


def test_a_join_caused_by_new_partitions_is_not_forgotten(kafka, make_topic):
    """When a poll ends before such a join does, the client forgets that it is under way and stays out for good."""
    topic = make_topic()
    with members(Member(kafka, topic, consumer={"heartbeat_interval_ms": 200, "metadata_max_age_ms": 300})) as member:
        until(lambda: member.poll(0.01) and len(member.owned) == 1)
        admin = KafkaAdminClient(bootstrap_servers=kafka)
        admin.create_partitions({topic: NewPartitions(3)})
        admin.close()
        until(lambda: member.poll(0.01) and len(member.owned) == 3 and member.source.membership())
        assert member.owned == {TopicPartition(topic, number) for number in range(3)}


def test_a_held_partition_stays_silent_across_rebalances(kafka, make_topic):
    """A partition that leaves and returns is unpaused, and the poll that assigns it may return its records."""
    topic = make_topic(partitions=2)
    for partition in range(2):
        fill(kafka, topic, [b"x"], partition)
    first, second = Member(kafka, topic, name="a"), Member(kafka, topic, name="b")
    with members(first):
        first.join(2, resume=False)
        second.start()
        silent = []
        until(
            lambda: (
                silent.extend(first.poll(resume=False).batches + second.poll(resume=False).batches)
                or (len(first.owned), len(second.owned)) == (1, 1)
            )
        )
        second.close()
        until(lambda: silent.extend(first.poll(resume=False).batches) or len(first.owned) == 2)
        silent.extend(batch for _ in range(3) for batch in first.poll(resume=False).batches)
        assert silent == []
