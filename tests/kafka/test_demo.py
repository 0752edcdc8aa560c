"""The demonstration: the same alarms from files and through Kafka, and both changes that were put in are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstream_worker.demo import picture, replay, report
from kstream_worker.demo.data import load_tracks, records
from kstream_worker.demo.kafka import Job


@pytest.mark.kafka
def test_files_and_kafka_show_the_same_alarms(kafka: str, tmp_path: Path) -> None:
    tracks = load_tracks()
    folder = replay.prepare_folder(tmp_path / "files")
    estimates, alarms = replay.replay_files(tracks, folder)
    assert len(estimates) == sum(len(track.times) for track in tracks)
    shown: list[str] = []
    config = replay.demo_config({"kafka": {"bootstrap_servers": kafka}}, telemetry={"port": None})
    with Job(config, tmp_path) as job:
        total = job.produce(records(tracks))
        _, through_kafka = job.follow(total, lambda alarm: shown.append(alarm["transition"]))
    rows = report.alarm_rows(alarms)
    assert report.alarm_rows(through_kafka) == rows
    assert len(shown) == len(alarms)
    for track in tracks:
        raised = [a["event_time"] for a in alarms if a["key"] == track.entity.name and a["transition"] == "raised"]
        if track.injected_at is not None:
            hours = [(t - track.injected_at) / 3_600_000 for t in raised]
            assert len(raised) == 1
            assert 0.0 <= hours[0] <= 3.0
    picture.draw(tmp_path / "drift.png", tracks, estimates, alarms)
    assert (tmp_path / "drift.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(replay.ConfigError, match="not empty"):
        replay.prepare_folder(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"
