"""`kstream-worker calibrate` on a real broker: it reads the topic, and nothing else happens there."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka_support import MakeTopic
from test_calibrate import START_MS, lines, report

from kstream_worker.__main__ import main

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_history_in_a_topic(
    client: str, kafka: str, kafka_admin: KafkaAdminClient, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    producer = KafkaProducer(bootstrap_servers=kafka)
    for value in lines(2, 300):
        record = json.loads(value)
        number = int(record["device"][1:])
        producer.send(topic, key=record["device"].encode(), value=value, partition=number, timestamp_ms=record["ts"])
    producer.flush()
    producer.close()
    groups = {group["group_id"] for group in kafka_admin.list_groups()}
    flags = [
        *("--bootstrap-servers", kafka, "--input-topic", topic),
        *("--set", f"app.id={topic}", "--set", 'input.y=["v.a","v.b"]', "--set", f"bus.client={client}"),
        *("--set", "bus.kafka.group_instance_id=the-name-of-a-worker"),
    ]
    since = START_MS + 60_000 * 90  # more than the hour by which a clock may be ahead
    moment = datetime.fromtimestamp(since / 1000, UTC).isoformat()
    assert main(["calibrate", *flags, "--from", moment, "--output", str(tmp_path)]) == 0
    found = report(tmp_path)
    assert [(key["key"], key["samples"]) for key in found["keys"]] == [("d0", 210), ("d1", 210)]
    assert found["input"]["records"] == 2 * 270  # those of the first half hour are not read at all
    assert {group["group_id"] for group in kafka_admin.list_groups()} == groups
    assert 'client = "confluent"' in (tmp_path / "proposed.toml").read_text() or client == "kafka-python"
