"""The checks of the state topic on a real broker, with its defaults and without the right to see settings."""

from __future__ import annotations

from contextlib import closing

import pytest
from kafka_support import MakeTopic, SecureKafka

from kstream_worker.bus.kafka_python.cluster import KafkaCluster
from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.state.checks import StateTopicFindings, check_state_topic

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
