"""A restore that takes longer than the poll interval does not cost the membership."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from benchmarks.job import OUTPUTS, JobData, create_topics, produce, write_config
from benchmarks.restore_slow import run

pytestmark = pytest.mark.kafka

PARTITIONS = 2
POLL_INTERVAL = (
    "max_poll_interval_ms = 6000\nsession_timeout_ms = 6000\nheartbeat_interval_ms = 1500\n",
    '"max.poll.interval.ms" = 6000\n"session.timeout.ms" = 6000\n"heartbeat.interval.ms" = 1500\n',
)


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_a_slow_restore_does_not_leave_the_group(kafka: str, tmp_path: Path, client: str) -> None:
    app_id = f"slow-{secrets.token_hex(4)}"
    topic = f"{app_id}-input"
    create_topics(kafka, [topic, *(f"{app_id}-{kind}" for kind in OUTPUTS)], PARTITIONS)
    data = JobData(keys=4, pairs=20, changed=0, mode="stream")
    produce(kafka, topic, PARTITIONS, data)
    consumer = f"[bus.kafka.consumer]\n{POLL_INTERVAL[client == 'confluent']}"
    config = write_config(tmp_path / "worker.toml", app_id, kafka, topic, data, consumer, client)
    run(config, 0.0)  # leaves state behind
    seen = run(config, 9.0)
    assert seen.ready_s is not None
    assert seen.ready_s > 6.0
    assert (seen.assigned, seen.taken, len(seen.generations)) == (1, 0, 1)
