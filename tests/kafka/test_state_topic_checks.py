"""The checks of the state topic on a real broker, with its defaults and without the right to see settings."""

from __future__ import annotations

from contextlib import closing

import pytest
from kafka_member import Member, column, members
from kafka_support import MakeTopic, SecureKafka

from kstream_worker.bus.kafka_python.cluster import KafkaCluster
from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.cli.topics import topic_settings
from kstream_worker.config import from_dict
from kstream_worker.records import Outcome
from kstream_worker.state.checks import StateTopicFindings, check_state_topic
from kstream_worker.state.format import HEADER_KEY

pytestmark = pytest.mark.kafka


def findings(cluster: KafkaCluster, inputs: str, state: str, largest: int = 100_000) -> StateTopicFindings:
    return check_state_topic(cluster, input_topic=inputs, state_topic=state, largest_snapshot_bytes=largest)


def test_the_state_topic_of_a_real_broker(kafka: str, make_topic: MakeTopic) -> None:
    settings = KafkaSettings([kafka])
    with closing(KafkaCluster(settings, group_id="app", transactional_prefix="app.")) as cluster:
        inputs = make_topic(2)
        good = {"cleanup.policy": "compact", "segment.bytes": "67108864"}
        assert findings(cluster, inputs, make_topic(2, good)) == ([], [])
        (problem,), (warning,) = findings(cluster, inputs, make_topic(2))
        assert "cleanup.policy is delete" in problem
        assert "segment.bytes is 1073741824" in warning
        both = make_topic(2, good | {"cleanup.policy": "compact,delete"})
        (problem,) = findings(cluster, inputs, both).problems
        assert "Set cleanup.policy=compact" in problem
        (problem,) = findings(cluster, inputs, make_topic(3, good)).problems
        assert "has 3 partitions" in problem
        (problem,) = findings(cluster, inputs, make_topic(2, good), 2_000_000).problems
        assert "max.message.bytes is 1048588" in problem
        (problem,) = findings(cluster, inputs, f"{inputs}-none").problems
        assert "does not exist: create it with 2 partitions" in problem


def test_a_state_topic_as_it_is_made_takes_the_times_of_a_host_whose_clock_is_wrong(
    client: type[Member], kafka: str, make_topic: MakeTopic
) -> None:
    """Its records are stamped by the wall clock of the host; brokers refuse stamps an hour ahead by default."""
    config = from_dict(
        {"app": {"id": "a"}, "bus": {"kafka": {"bootstrap_servers": [kafka]}}, "input": {"topic": "i", "y": "y"}}
    )
    inputs, state = make_topic(), make_topic(configs=topic_settings(config)[config.state.topic])
    message = column(state, [b"header"])
    message.keys[0] = HEADER_KEY
    message.timestamps[0] += 86_400_000
    with members(client(kafka, inputs)) as member:
        member.join(1)
        assert member.commit([message]) is Outcome.COMMITTED


def test_settings_that_may_not_be_seen(secure_kafka: SecureKafka) -> None:
    inputs, state = secure_kafka.make_topic(2), secure_kafka.make_topic(2)
    for topic in (inputs, state):
        secure_kafka.grant("READ", "TOPIC", topic)
    settings = KafkaSettings([secure_kafka.bootstrap_servers], common=secure_kafka.login())
    with closing(KafkaCluster(settings, group_id="app", transactional_prefix="app.")) as cluster:
        problems, (warning,) = findings(cluster, inputs, state)
        assert problems == []
        assert "needs the right DESCRIBE_CONFIGS" in warning
        secure_kafka.grant("DESCRIBE_CONFIGS", "TOPIC", state)
        (problem,) = findings(cluster, inputs, state).problems
        assert "cleanup.policy is delete" in problem
