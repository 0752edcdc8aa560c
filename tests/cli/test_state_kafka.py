"""`kstream-worker state` on a real broker, with both clients and with rights."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from kafka_support import MakeTopic, SecureKafka
from state_jobs import (
    FakeJob,
    KafkaJob,
    Shown,
    continued,
    records,
    state,
    worked,
)

from kstream_worker.__main__ import main

pytestmark = pytest.mark.kafka


@pytest.fixture(params=["kafka-python", "confluent"])
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_state_moves_on_a_real_broker(
    kafka: str, make_topic: MakeTopic, client: str, tmp_path: Path, shown: Shown
) -> None:
    """To another group on the same topic with records to be read again, then to another topic; a key is reset there."""
    calm = FakeJob("calm")
    calm.feed(records(0, 160, change_at=100))
    calm.run()
    first = KafkaJob(kafka, make_topic, client=client)
    worked(first, change_at=100)
    assert first.state()[0][0].replay_from < first.state()[0][0].offset
    assert state(first, "verify") == 0, shown()
    assert state(first, "export", str(tmp_path / "first")) == 0
    second = KafkaJob(kafka, make_topic, first.config.input.topic, client)
    assert state(second, "import", str(tmp_path / "first")) == 0
    assert state(second, "verify") == 0, shown()
    second.feed(records(120, 160, change_at=100))
    second.run()
    continued(first, second, calm)
    if client != "kafka-python":
        return  # the rest is the same through the port
    assert state(second, "export", str(tmp_path / "second")) == 0
    third = KafkaJob(kafka, make_topic, client=client)
    third.feed(records(160, 180, change_at=100))
    assert state(third, "import", str(tmp_path / "second"), "--new-offsets") == 0
    assert state(third, "reset", "pump-1") == 0
    shown()
    assert state(third, "list", "--keys", "--json") == 0
    rows = [json.loads(line) for line in shown()[0].splitlines()]
    assert [row.get("offset") for row in rows if "key" not in row] == [0, 0]
    third.run()
    assert [row["seq"] for row in third.estimates()["pump-1"]] == list(range(1, 21))
    assert [row["seq"] for row in third.estimates()["pump-2"]] == list(range(161, 181))
    assert state(third, "verify") == 0, shown()


def test_a_running_group_is_left_alone(kafka: str, make_topic: MakeTopic, client: str, shown: Shown) -> None:
    job = KafkaJob(kafka, make_topic, client=client)
    assert state(job, "reset", "pump-0", "--partition", "0") == 1  # of a group that never was
    assert "nothing was committed yet" in shown()[1]
    source = job.bus().source()
    source.start()
    try:
        deadline = time.monotonic() + 20.0
        while source.membership() is None:
            source.poll(0.2)
            assert time.monotonic() < deadline
        before = source.membership()
        assert state(job, "reset", "pump-0", "--partition", "0") == 1
        assert "the group has 1 member (" in shown()[1]
        source.poll(0.5)
        assert source.membership() == before
    finally:
        source.close(leave=True, timeout_s=5.0)


def test_reading_takes_no_more_than_rights_to_read(secure_kafka: SecureKafka, tmp_path: Path, shown: Shown) -> None:
    owner = KafkaJob(secure_kafka.bootstrap_servers, secure_kafka.make_topic, common=secure_kafka.login("admin"))
    owner.feed(records(0, 20))
    owner.run()
    config = owner.config
    reader = [*owner.flags, *guest(secure_kafka)]
    rights = [
        ("READ", "TOPIC", config.state.topic),
        ("DESCRIBE_CONFIGS", "TOPIC", config.state.topic),
        ("DESCRIBE", "TOPIC", config.input.topic),
        ("DESCRIBE", "GROUP", config.bus.kafka.group_id),
    ]
    for right in rights:
        secure_kafka.grant(*right)
    assert main(["state", "verify", *reader]) == 0, shown()
    for words in (["list", "--keys"], ["show", "pump-0"], ["export", str(tmp_path / "state")]):
        assert main(["state", *words, *reader]) == 0, shown()
    assert main(["state", "import", str(tmp_path / "state"), *reader]) == 78
    assert main(["state", "reset", "pump-0", *reader]) == 78
    out, err = shown()
    assert "right" in err
    assert "workersecret" not in out + err


def guest(broker: SecureKafka) -> list[str]:
    return [word for name, value in broker.login().items() for word in ("--set", f"bus.kafka.common.{name}={value}")]
