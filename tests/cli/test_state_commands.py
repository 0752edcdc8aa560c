"""`kstream-worker state list`, `show` and `verify` on state that the real worker wrote."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from state_jobs import (
    FakeJob,
    FilesJob,
    Job,
    Jobs,
    Shown,
    records,
    state,
    worked,
)

from kstream_worker import app
from kstream_worker.__main__ import main
from kstream_worker.bus.fake import FakeBroker
from kstream_worker.config import Config
from kstream_worker.errors import ConfigError
from kstream_worker.ports import Bus
from kstream_worker.state.format import HEADER_KEY, encode_header, encode_snapshot, state_key

# list and show


def test_list_shows_partitions_and_keys(jobs: Jobs, shown: Shown) -> None:
    job = jobs()
    job.feed(records(0, 100, change_at=70))
    job.run()
    headers, keys = job.state()
    assert state(job, "list") == 0
    heading, *lines = shown()[0].splitlines()
    assert heading.split()[:4] == ["partition", "offset", "to", "replay"]
    assert [line.split()[:4] for line in lines] == [[str(n), str(headers[n].offset), "0", "2"] for n in (0, 1)]
    assert all("2025-10-09T08:54:59Z" in line for line in lines)
    assert state(job, "list", "--keys") == 0
    rows = {line.split()[1]: line.split() for line in shown()[0].splitlines() if "pump-" in line}
    assert {key: (int(row[0]), int(row[2])) for key, row in rows.items()} == {
        key.decode(): (int(key[-1:]) % 2, snapshot.position) for key, snapshot in keys.items()
    }
    assert {key: row[-1] for key, row in rows.items()} == {
        "pump-0": "raised",
        "pump-1": "-",
        "pump-2": "-",
        "pump-3": "-",
    }


def test_list_as_json(jobs: Jobs, shown: Shown) -> None:
    job = worked(jobs())
    headers, keys = job.state()
    assert state(job, "list", "--keys", "--json", "--partition", "1") == 0
    partition, *rows = map(json.loads, shown()[0].splitlines())
    header = headers[1]
    assert partition["partition"] == 1
    assert partition["offset"] == header.offset
    assert partition["replay_from"] == header.replay_from < header.offset
    assert partition["release"] == header.release
    assert {row["key"] for row in rows} == {"pump-1", "pump-3"}
    for row in rows:
        snapshot = keys[row["key"].encode()]
        assert (row["position"], row["seen_ms"]) == (snapshot.position, snapshot.seen_ms)
        assert row["raised"] is False


def test_list_where_nothing_was_committed(jobs: Jobs, shown: Shown) -> None:
    job = jobs()
    assert state(job, "list") == 0
    assert shown()[0].count("nothing committed yet") == 2


def test_show_tells_what_is_kept_of_a_key(jobs: Jobs, shown: Shown) -> None:
    job = jobs(state={"format": 2})
    job.feed(records(0, 100, change_at=70))
    job.run()
    snapshot = job.state()[1][b"pump-0"]
    assert state(job, "show", "pump-0", "--json") == 0
    said = json.loads(shown()[0])
    assert (said["partition"], said["position"], said["seq"]) == (0, snapshot.position, 100)
    assert said["raised"] is True
    assert "guarantee" not in said  # it warms up again
    assert said["alarm"]["direction"] == "up"
    assert said["model_bytes"] == len(snapshot.model)
    assert state(job, "show", base64.b64encode(b"pump-1").decode(), "--base64") == 0
    lines = dict(line.split(None, 1) for line in shown()[0].splitlines())
    assert (lines["key"], lines["partition"], lines["state"], lines["seq"]) == ("pump-1", "1", "armed", "100")
    assert lines["guarantee"] == "exact_if_iid"
    assert "at least 10000" in lines["guarantee_reason"]


def test_show_of_a_key_that_is_not_there_is_1(jobs: Jobs, shown: Shown) -> None:
    job = worked(jobs())
    assert state(job, "show", "pump-9") == 1
    assert "there is no snapshot of pump-9" in shown()[1]
    assert state(job, "show", "pump-0", "--partition", "1") == 1
    assert state(job, "show", "pump-0", "--partition", "7") == 78
    assert "partitions are 0 to 1" in shown()[1]


def test_show_says_when_the_configuration_differs(jobs: Jobs, shown: Shown) -> None:
    worked(jobs())
    other = jobs(detector={"arl": 10_000, "warmup": 70})
    assert state(other, "show", "pump-0") == 0
    out = shown()[0]
    assert "position" in out
    assert "cannot be opened with this configuration" in out


def test_a_key_that_is_no_base64_is_wrong_usage(fake_jobs: Jobs, shown: Shown) -> None:
    with pytest.raises(SystemExit) as caught:
        state(fake_jobs(), "show", "a?b", "--base64")
    assert caught.value.code == 2
    assert "KEY is no base64" in shown()[1]


@pytest.mark.parametrize(
    "words", [[], ["fly"], ["show"], ["export"], ["import", "f", "--same-offsets", "--new-offsets"]]
)
def test_wrong_usage_is_2(words: list[str], shown: Shown) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["state", *words])
    assert caught.value.code == 2
    assert "usage: kstream-worker state" in shown()[1]


def test_there_is_no_state_with_standard_output(tmp_path: Path, shown: Shown) -> None:
    job = FilesJob(tmp_path)
    assert main(["state", "list", *job.flags, "--set", "bus.files.output_dir=-"]) == 78
    assert "no state is kept" in shown()[1]


def test_a_state_topic_that_does_not_exist_is_78(fake_jobs: Jobs, shown: Shown) -> None:
    job = fake_jobs()
    for action in (["list"], ["show", "k"], ["verify"]):
        assert main(["state", *action, *job.flags, "--set", "state.topic=elsewhere"]) == 78
        assert "the state topic elsewhere does not exist" in shown()[1]


# verify


def test_verify_says_ok_of_what_the_worker_wrote(jobs: Jobs, shown: Shown) -> None:
    job = worked(jobs(), change_at=70)
    assert state(job, "verify") == 0
    assert shown()[0] == "ok: 4 keys\n"


def verified(job: Job, shown: Shown) -> str:
    """The only problem, as one line."""
    assert state(job, "verify") == 1
    out, err = shown()
    assert "1 problem found" in err, out
    assert out.startswith("- ")
    return " ".join(out.split())


def test_verify_finds_a_damaged_snapshot(jobs: Jobs, shown: Shown) -> None:
    job = worked(jobs())
    headers, keys = job.state()
    model = bytearray(keys[b"pump-0"].model)
    model[100] ^= 1
    damaged = encode_snapshot(replace(keys[b"pump-0"], model=bytes(model)), 1)
    header = replace(headers[0], token="t1")
    job.write(0, [(state_key(b"pump-0"), damaged), (HEADER_KEY, encode_header(header, 1))], header.offset, "t1")
    found = verified(job, shown)
    assert "key pump-0: snapshot of" in found
    assert "its checksum does not fit" in found
    assert state(job, "list", "--keys") == 0
    assert "cannot be read: snapshot of" in shown()[0]
    assert state(job, "show", "pump-0") == 0
    assert "its checksum does not fit" in shown()[0]


def test_verify_finds_a_damaged_header(jobs: Jobs, shown: Shown) -> None:
    job = worked(jobs())
    header = job.state()[0][1]
    value = encode_header(replace(header, token="t1"), 1)
    job.write(1, [(HEADER_KEY, value[:10] + b"\x00" + value[11:])], header.offset, "t1")
    assert state(job, "verify") == 1
    out, err = shown()
    assert "2 problems found" in err
    assert "the header is damaged" in out
    assert "there is no header in the state topic" in out


def test_verify_finds_offsets_that_were_reset(jobs: Jobs, shown: Shown) -> None:
    job = worked(jobs())
    offset = job.state()[0][0].offset
    job.write(0, [], 0, "by-hand")
    assert f"committed offset is 0, the state is at {offset}" in verified(job, shown)


def test_verify_finds_records_that_retention_took(fake_jobs: Jobs, broker: FakeBroker, shown: Shown) -> None:
    job = worked(fake_jobs())
    header = job.state()[0][0]
    broker.truncate("input", 0, header.replay_from + 5)
    assert "retention deleted 5 offsets" in verified(job, shown)


def test_verify_finds_a_snapshot_ahead_of_the_offset(jobs: Jobs, shown: Shown) -> None:
    job = worked(jobs())
    headers, keys = job.state()
    header = replace(headers[0], token="t1")
    ahead = encode_snapshot(replace(keys[b"pump-0"], position=header.offset + 1), 1)
    job.write(0, [(state_key(b"pump-0"), ahead), (HEADER_KEY, encode_header(header, 1))], header.offset, "t1")
    assert "key pump-0: the snapshot is ahead of the committed offset" in verified(job, shown)


def test_verify_finds_what_others_wrote(fake_jobs: Jobs, broker: FakeBroker, shown: Shown) -> None:
    job = worked(fake_jobs())
    snapshot = encode_snapshot(job.state()[1][b"pump-1"], 1)
    broker.append(job.config.state.topic, 0, b"strange", b"x")
    assert "holds 1 records that are none of ours" in verified(job, shown)
    broker.append(job.config.state.topic, 1, state_key(b"pump-1"), snapshot)
    assert state(job, "verify") == 1
    assert "key pump-1: written behind the last header" in shown()[0]


def test_verify_finds_settings_of_the_state_topic(fake_jobs: Jobs, broker: FakeBroker, shown: Shown) -> None:
    job = worked(fake_jobs())
    topic = job.config.state.topic
    broker.configs[topic] = {"cleanup.policy": "delete"}
    assert "cleanup.policy is delete" in verified(job, shown)
    broker.configs[topic] = {"cleanup.policy": "compact,delete"}
    assert "cleanup.policy is compact,delete" in verified(job, shown)
    broker.configs[topic] = {"cleanup.policy": "compact", "max.message.bytes": "1000"}
    assert "max.message.bytes is 1000" in verified(job, shown)


def test_verify_finds_partitions_that_were_added(fake_jobs: Jobs, broker: FakeBroker, shown: Shown) -> None:
    job = worked(fake_jobs())
    broker.create_topic("input", 3)
    assert "has 2 partitions, but 'input' has 3" in verified(job, shown)


def test_verify_finds_another_configuration(jobs: Jobs, shown: Shown) -> None:
    worked(jobs())
    other = jobs(input={"x": "x", "y": "y", "dims": 2, "timestamp": "ts", "null_key": "by_offset"})
    assert state(other, "verify") == 1
    assert shown()[0].count("Run once with --drain in the former configuration") == 2


def test_verify_of_a_worker_at_work_is_no_problem(
    fake_jobs: Jobs, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker commits between each two questions of the command."""
    job = fake_jobs()
    bus = job.bus()
    worker = job.worker(bus)
    worker._start()
    for t in range(3):
        job.feed(records(t, t + 1))
        for _ in range(6):
            worker.step()
    group = type(app.build_bus(job.config).group())
    look_up = group.committed
    times = iter(range(3, 1000))

    def working(self: Any, *arguments: Any) -> Any:
        found = look_up(self, *arguments)
        t = next(times)
        job.feed(records(t, t + 1))
        for _ in range(6):
            worker.step()
        return found

    monkeypatch.setattr(group, "committed", working)
    assert state(job, "verify") == 0
    out, err = shown()
    assert (out.startswith("ok: "), err) == (True, "")
    worker.request_stop()
    worker._drain()
    worker._close("test")


def test_the_tool_never_takes_a_static_name(monkeypatch: pytest.MonkeyPatch, shown: Shown) -> None:
    asked: list[Config] = []

    def build(config: Config) -> Bus:
        asked.append(config)
        raise ConfigError("enough")

    monkeypatch.setattr(app, "build_bus", build)
    flags = FakeJob().flags
    assert main(["state", "reset", "k", *flags, "--set", "bus.kafka.group_instance_id=pod-1"]) == 78
    assert [config.bus.kafka.group_instance_id for config in asked] == [None]
    assert shown()[1].endswith("enough")
