"""Faults of the state topic are found before the start, and each message says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstream_worker.bus.fake import FakeBroker
from kstream_worker.bus.files import files_bus
from kstream_worker.state.checks import StateTopicFindings, check_state_topic, largest_snapshot_bytes

GOOD = {"cleanup.policy": "compact", "max.message.bytes": "1048588", "delete.retention.ms": "86400000"}


def findings(broker: FakeBroker, largest: int = 100_000) -> StateTopicFindings:
    cluster = broker.bus(topic="readings").cluster()
    return check_state_topic(cluster, input_topic="readings", state_topic="app-state", largest_snapshot_bytes=largest)


def broker_with(settings: dict[str, str], *, inputs: int = 3, partitions: int = 3) -> FakeBroker:
    broker = FakeBroker()
    broker.create_topic("readings", inputs)
    broker.create_topic("app-state", partitions, settings)
    return broker


def test_a_good_topic_gives_nothing() -> None:
    assert findings(broker_with(GOOD)) == ([], [])
    assert findings(broker_with({"cleanup.policy": "compact"})) == ([], [])


def test_a_topic_that_is_missing() -> None:
    broker = FakeBroker()
    (problem,), _ = findings(broker)
    assert problem == (
        "state topic 'app-state' does not exist: create it with cleanup.policy=compact "
        "(`kstream-worker topics --create` does)"
    )
    for count, words in [(1, "with 1 partition and"), (4, "with 4 partitions and")]:
        broker.create_topic("readings", count)
        (problem,), warnings = findings(broker)
        assert words in problem
        assert warnings == []


@pytest.mark.parametrize(
    ("inputs", "partitions", "remedy"),
    [
        (5, 3, "add partitions to 'app-state' until it has 5"),
        (2, 3, "name another `state.topic` and create it with 2 partitions; the models start afresh then"),
    ],
)
def test_partitions_that_do_not_match(inputs: int, partitions: int, remedy: str) -> None:
    (problem,), warnings = findings(broker_with(GOOD, inputs=inputs, partitions=partitions))
    assert problem.startswith(f"state topic 'app-state' has 3 partitions, but 'readings' has {inputs}: ")
    assert problem.endswith(remedy)
    assert warnings == []


def test_an_input_that_is_missing_is_for_others_to_report() -> None:
    broker = broker_with(GOOD)
    broker.delete_topic("readings")
    assert findings(broker) == ([], [])


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete,compact"])
def test_what_retention_would_delete(policy: str) -> None:
    (problem,), _ = findings(broker_with(GOOD | {"cleanup.policy": policy}))
    assert problem == (
        f"state topic 'app-state': cleanup.policy is {policy}: retention would delete the models of quiet keys. "
        "Set cleanup.policy=compact"
    )


def test_a_snapshot_that_is_larger_than_the_topic_takes() -> None:
    broker = broker_with(GOOD)
    assert findings(broker, 1_048_588).problems == []
    (problem,) = findings(broker, 1_048_589).problems
    assert "max.message.bytes is 1048588, but a snapshot may have 1048589 bytes" in problem
    assert "Set max.message.bytes=1048589 or more" in problem


def test_tombstones_must_outlive_a_restore() -> None:
    (problem,) = findings(broker_with(GOOD | {"delete.retention.ms": "1000"})).problems
    assert "delete.retention.ms is 1000" in problem
    assert "Set delete.retention.ms=600000 or more" in problem


def test_all_that_is_wrong_is_told_at_once() -> None:
    broker = broker_with({"cleanup.policy": "delete", "max.message.bytes": "10"}, partitions=1)
    assert len(findings(broker).problems) == 3


def test_settings_that_cannot_be_read_are_a_warning() -> None:
    problems, (warning,) = findings(broker_with({}))
    assert problems == []
    assert "needs the right DESCRIBE_CONFIGS" in warning
    assert "max.message.bytes of at least 100000" in warning
    assert len(findings(broker_with({}, partitions=1)).problems) == 1


def test_large_segments_cost_time() -> None:
    problems, (warning,) = findings(broker_with(GOOD | {"segment.bytes": str(2**30)}))
    assert problems == []
    assert "segment.bytes is 1073741824" in warning
    assert findings(broker_with(GOOD | {"segment.bytes": "67108864"})).warnings == []


def test_state_of_files_has_no_limits(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    cluster = files_bus([tmp_path], tmp_path / "out").cluster()
    found = check_state_topic(cluster, input_topic="input", state_topic="state", largest_snapshot_bytes=2**40)
    assert found == ([], [])


def test_the_largest_snapshot_has_room_for_what_does_not_compress() -> None:
    import random

    import lz4.block

    for size in (0, 1, 1000, 300_000):
        packed = lz4.block.compress(random.Random(size).randbytes(size))
        assert len(packed) < largest_snapshot_bytes(size)
        assert len(packed) >= size
