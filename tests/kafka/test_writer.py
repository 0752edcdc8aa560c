"""The transactional writer on a real broker: one commit, all or nothing, and every doubt resolved."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from kafka_member import Member, at_phase, column, commit_at_last, fill, freeze, members, outputs, until

from kstream_worker.bus.common.writer import Phase
from kstream_worker.errors import ConfigError, Fatal, Rejoin, Retry
from kstream_worker.records import Outcome, Progress, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def test_outputs_and_positions_in_one_commit(kafka, make_topic):
    topic, output = make_topic(partitions=2), make_topic(partitions=2)
    with members(Member(kafka, topic)) as member:
        member.join(2)
        first = {TopicPartition(topic, 0): Progress(0)}
        assert member.commit(progress=first, token="initial") is Outcome.COMMITTED
        assert member.committed() == (0, "initial")
        reached = {TopicPartition(topic, 0): Progress(7, 0), TopicPartition(topic, 1): Progress(9, 0)}
        messages = [column(output, [b"a", None, b"c"], 1), column(output, [b"d"], 0)]
        assert member.commit(messages, reached, "second") is Outcome.COMMITTED
        assert outputs(member, output, 1) == [b"a", None, b"c"]
        assert outputs(member, output, 0) == [b"d"]
        assert [member.committed(0), member.committed(1)] == [(7, "second"), (9, "second")]
        with pytest.raises(ValueError, match="100 bytes"):
            member.commit(token="x" * 101)  # an offset's metadata above 4096 bytes is fatal to the client


def test_what_can_never_be_sent_is_refused_and_leaves_no_trace(kafka, make_topic):
    topic, output = make_topic(), make_topic(configs={"max.message.bytes": "20000"})
    with members(Member(kafka, topic, producer={"max_request_size": 100_000})) as member:
        member.join(1)
        with pytest.raises(ConfigError, match="max_request_size"):
            member.commit([column(output, [b"x" * 100_000])], token="a")
        with pytest.raises(ConfigError, match=r"max\.message\.bytes"):
            member.commit([column(output, [b"ok", b"x" * 50_000])], token="b")
        with pytest.raises(ConfigError, match=r"\[5\] does not exist"):
            member.commit([column(output, [b"x"], 5)], token="c")
        assert member.committed() is None
        assert member.commit([column(output, [b"fits"])], token="d") is Outcome.COMMITTED
        assert outputs(member, output) == [b"fits"]


def test_a_time_that_the_topic_refuses_is_told(client, kafka, make_topic):
    """Times far ahead are refused by default; as a passing fault they would be sent again until patience ends."""
    topic, output = make_topic(), make_topic(configs={"message.timestamp.after.max.ms": "3600000"})
    message = column(output, [b"tomorrow"])
    message.timestamps[0] = int(time.time() * 1000) + 86_400_000
    with members(client(kafka, topic)) as member:
        member.join(1)
        with pytest.raises(ConfigError, match="LogAppendTime"):
            member.commit([message], token="a")
        assert member.committed() is None
        assert member.commit([column(output, [b"now"])], token="b") is Outcome.COMMITTED


def test_partitions_that_a_topic_was_given_are_written_to_at_once(client, kafka, make_topic, kafka_admin):
    """A producer looks at its topics every five minutes; until then it does not know such a partition."""
    topic, output = make_topic(), make_topic()
    with members(client(kafka, topic)) as member:
        member.join(1)
        assert member.commit([column(output, [b"a"])], token="a") is Outcome.COMMITTED
        kafka_admin.create_partitions({output: 2})
        with contextlib.closing(member.bus.cluster()) as cluster:
            until(lambda: cluster.partition_count(output) == 2)
        messages = [column(output, [b"b"], 1)]
        assert member.commit(messages, token="b") is Outcome.ABORTED
        assert member.commit(messages, token="c") is Outcome.COMMITTED
        assert outputs(member, output, 1) == [b"b"]
        with pytest.raises(ConfigError, match=r"\[2\] does not exist"):
            until(lambda: member.commit([column(output, [b"x"], 2)], token="d") and False)


def test_an_attempt_that_found_no_producer_is_aborted_not_made_later(client, kafka_process, make_own_topic):
    """Meanwhile its partitions may have been dropped and read again."""
    topic, output = make_own_topic(), make_own_topic()
    with members(client(kafka_process.bootstrap_servers, topic)) as member:
        member.join(1)
        member.writer._throw_away()
        freeze(kafka_process)
        with pytest.raises(Retry, match="no transactional producer"):
            member.commit([column(output, [b"old"])], token="old", timeout_s=0.5)
        kafka_process.thaw()
        assert member.commit([column(output, [b"old"])], token="old") is Outcome.ABORTED
        assert commit_at_last(member, [column(output, [b"new"])], token="new") is Outcome.COMMITTED
        assert outputs(member, output) == [b"new"]


def test_a_batch_larger_than_the_topic_allows_is_split(kafka, make_topic):
    topic, output = make_topic(), make_topic(configs={"max.message.bytes": "20000"})
    values = [b"%05d" % n + b"x" * 200 for n in range(400)]
    with members(Member(kafka, topic)) as member:
        member.join(1)
        assert member.commit([column(output, values)]) is Outcome.COMMITTED
        assert outputs(member, output) == values


@pytest.mark.parametrize(("phase", "written"), [(Phase.ENDING, True), (Phase.OFFSETS, False)])
def test_a_doubt_is_resolved_by_the_token(client, kafka_process, make_own_topic, monkeypatch, phase, written):
    """Frozen with the end of the transaction asked for, and before: committed and aborted; no call waits for it."""
    topic, output = make_own_topic(), make_own_topic()
    with members(client(kafka_process.bootstrap_servers, topic)) as member:
        member.join(1)
        assert member.commit([column(output, [b"before"])], token="before") is Outcome.COMMITTED
        messages, reached = [column(output, [b"one", b"two"])], {TopicPartition(topic, 0): Progress(5)}
        at_phase(monkeypatch, phase, lambda: freeze(kafka_process))
        for _ in range(2):
            with pytest.raises(Retry):
                member.commit(messages, reached, "doubt", timeout_s=0.7)
        kafka_process.thaw()
        outcome = commit_at_last(member, messages, reached, "doubt")
        assert outcome is (Outcome.COMMITTED if written else Outcome.ABORTED)
        assert member.committed() == ((5, "doubt") if written else (1, "before"))
        assert outputs(member, output) == ([b"before", b"one", b"two"] if written else [b"before"])
        if not written:
            assert commit_at_last(member, messages, reached, "doubt") is Outcome.COMMITTED
        assert (
            commit_at_last(member, token="after", progress={TopicPartition(topic, 0): Progress(9)}) is Outcome.COMMITTED
        )
        assert outputs(member, output) == [b"before", b"one", b"two"]


def test_a_killed_broker_loses_and_doubles_nothing(client, kafka_process, make_own_topic, monkeypatch):
    topic, output = make_own_topic(), make_own_topic()
    with members(client(kafka_process.bootstrap_servers, topic)) as member:
        member.join(1)
        at_phase(monkeypatch, Phase.ENDING, kafka_process.kill)
        messages = [column(output, [b"once"])]
        with pytest.raises(Retry):
            member.commit(messages, token="killed", timeout_s=1.0)
        kafka_process.restart()
        outcome = commit_at_last(member, messages, token="killed", timeout_s=5.0)
        if outcome is Outcome.ABORTED:
            assert commit_at_last(member, messages, token="killed") is Outcome.COMMITTED
        assert outputs(member, output) == [b"once"]


def test_two_processes_of_one_transactional_id_end_the_first(client, kafka, make_topic):
    topic = make_topic()
    with members(client(kafka, topic)) as member:
        member.join(1)
        assert member.commit() is Outcome.COMMITTED
        other = client(kafka, topic)
        other.writer.start(30)
        for _ in range(2):  # it does not come back and fence the other
            with pytest.raises(Fatal, match="another process uses the transactional id"):
                member.commit(token="late")
        membership, progress = member.membership(), {TopicPartition(topic, 0): Progress(2)}
        assert other.writer.commit([], progress, membership, "other", 30) is Outcome.COMMITTED
        other.writer.close(5)


def test_work_of_partitions_that_are_not_owned_is_refused(kafka, make_topic):
    topic = make_topic()
    with members(Member(kafka, topic)) as member:
        member.join(1)
        with pytest.raises(Rejoin, match="does not own"):
            member.commit(progress={TopicPartition(topic, 1): Progress(1)})


def test_missing_rights_are_told(secure_kafka):
    topic, output = secure_kafka.make_topic(), secure_kafka.make_topic()
    member = Member(secure_kafka.bootstrap_servers, topic, common=secure_kafka.login())
    with pytest.raises(ConfigError, match="transactional id"):
        member.writer.start(30)
    secure_kafka.grant("WRITE", "TRANSACTIONAL_ID", member.group, prefixed=True)
    secure_kafka.grant("READ", "TOPIC", topic)
    secure_kafka.grant("READ", "GROUP", member.group)
    with members(member):
        member.join(1)
        with pytest.raises(ConfigError, match="topic"):
            member.commit([column(output, [b"x"])])
        assert member.commit(token="alone") is Outcome.COMMITTED


def test_nothing_is_left_behind(client, kafka_process, make_own_topic, monkeypatch):
    """Threads of producers that were thrown away, with callers that waited in them, all end."""
    topic, output = make_own_topic(), make_own_topic()
    fill(kafka_process.bootstrap_servers, topic, [b"x"])
    others = set(threading.enumerate())  # of tests before this one
    member = client(kafka_process.bootstrap_servers, topic).start()
    member.join(1)
    at_phase(monkeypatch, Phase.ENDING, lambda: freeze(kafka_process))
    with pytest.raises(Retry):
        member.commit([column(output, [b"x"])], timeout_s=0.5)
    kafka_process.thaw()
    commit_at_last(member, [column(output, [b"x"])])
    member.close()
    until(lambda: not [t for t in set(threading.enumerate()) - others if "kafka-" in t.name and _ours(t.name)])


def _ours(name: str) -> bool:
    return name.startswith(("kafka-commit", "kafka-producer", "kafka-read-back", "kafka-describe", "kafka-consumer"))
