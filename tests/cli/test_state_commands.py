"""`kstream-worker state` on state that the real worker wrote: on the fake broker, on files, on a real broker."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from kafka_support import MakeTopic, SecureKafka
from state_jobs import FakeJob, FilesJob, Job, KafkaJob, Record, records

from kstream_worker import app
from kstream_worker.__main__ import main
from kstream_worker.bus.fake import FakeBroker, SimulatedCrash
from kstream_worker.config import Config
from kstream_worker.errors import ConfigError, Fatal
from kstream_worker.ports import Bus
from kstream_worker.state.format import HEADER_KEY, encode_header, encode_snapshot, state_key

Shown = Callable[[], tuple[str, str]]


class Jobs:
    """Makes applications on one bus."""

    def __init__(self, kind: str, folder: Path, broker: FakeBroker) -> None:
        self.kind, self.folder, self.broker = kind, folder, broker
        self.made: dict[str, Job] = {}

    def __call__(self, name: str = "pumps", inputs: str = "input", **sections: Any) -> Job:
        job: Job
        if self.kind == "files":
            job = FilesJob(self.folder, name, inputs, **sections)
        else:
            job = FakeJob(name, self.broker, inputs, **sections)
        self.made[name] = job
        return job


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    """Where the command line finds brokers, too."""
    broker, build_bus = FakeBroker(), app.build_bus

    def build(config: Config) -> Bus:
        if config.bus.kind == "files":
            return build_bus(config)
        return broker.bus(topic=config.input.topic, group=config.app.id, identity="tool")

    monkeypatch.setattr(app, "build_bus", build)
    return broker


@pytest.fixture(params=["fake", "files"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path, broker: FakeBroker) -> Jobs:
    return Jobs(request.param, tmp_path, broker)


@pytest.fixture
def fake_jobs(tmp_path: Path, broker: FakeBroker) -> Jobs:
    return Jobs("fake", tmp_path, broker)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    """Standard output and error since the last call; lines of error are joined again."""

    def take() -> tuple[str, str]:
        out, err = capsys.readouterr()
        return out, " ".join(err.split())

    return take


def state(job: Job, *words: str) -> int:
    return main(["state", *words, *job.flags])


def worked(job: Job, *, change_at: int = 10**9) -> Job:
    """A job with snapshots of 80 pairs a key, and 40 more pairs that no snapshot covers."""
    job.feed(records(0, 80, change_at))
    job.run()
    job.feed(records(80, 120, change_at))
    job.run(snapshots=False)
    return job


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
    assert said["alarm"]["direction"] == "up"
    assert said["model_bytes"] == len(snapshot.model)
    assert state(job, "show", base64.b64encode(b"pump-1").decode(), "--base64") == 0
    lines = dict(line.split(None, 1) for line in shown()[0].splitlines())
    assert (lines["key"], lines["partition"], lines["state"], lines["seq"]) == ("pump-1", "1", "armed", "100")


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


# export and import


def uninterrupted(jobs: Jobs, last: int, **sections: Any) -> Job:
    job = jobs("calm", "calm-input", **sections)
    job.feed(records(0, last, change_at=100))
    job.run()
    return job


def continued(first: Job, second: Job, calm: Job) -> None:
    """What both published together is what one without a stop published, and so are the models."""
    assert {key: first.estimates().get(key, []) + rows for key, rows in second.estimates().items()} == calm.estimates()
    assert first.alarms() + second.alarms() == calm.alarms()
    assert len(calm.alarms()) > 0
    assert second.models() == calm.models()


def test_state_moves_to_the_same_log_and_goes_on_bit_identically(jobs: Jobs, tmp_path: Path, shown: Shown) -> None:
    calm = uninterrupted(jobs, 160)
    first = worked(jobs(), change_at=100)
    assert first.state()[0][0].replay_from < first.state()[0][0].offset
    assert state(first, "export", str(tmp_path / "state")) == 0
    assert "complete only with the input from offset" in shown()[1]
    second = jobs("pumps2")
    flags = [] if jobs.kind == "fake" else ["--same-offsets"]  # the same topic is recognised
    assert state(second, "import", str(tmp_path / "state"), *flags) == 0
    assert "4 keys of 2 partitions imported" in shown()[0]
    assert state(second, "verify") == 0
    second.feed(records(120, 160, change_at=100))
    second.run()
    continued(first, second, calm)


def test_state_moves_to_another_log_and_goes_on_bit_identically(jobs: Jobs, tmp_path: Path, shown: Shown) -> None:
    calm = uninterrupted(jobs, 160)
    first = jobs()
    first.feed(records(0, 120, change_at=100))
    first.run()
    assert state(first, "export", str(tmp_path / "state")) == 0
    assert "complete only" not in shown()[1]
    second = jobs("elsewhere", "other-input", state={"format": 2})
    assert state(second, "import", str(tmp_path / "state"), "--new-offsets") == 0
    headers, keys = second.state()
    assert {(header.offset, header.replay_from) for header in headers.values()} == {(0, 0)}
    assert {snapshot.position for snapshot in keys.values()} == {0}
    second.feed(records(120, 160, change_at=100))
    second.run()
    continued(first, second, calm)


def test_a_second_start_after_a_move_replays_rightly(jobs: Jobs, tmp_path: Path) -> None:
    """Positions of the former log are beyond the end of the new one: none of its records may count as read for that."""
    calm = uninterrupted(jobs, 160)
    first = jobs()
    first.feed(records(0, 120, change_at=100))
    first.run()
    assert state(first, "export", str(tmp_path / "state")) == 0
    second = jobs("elsewhere", "other-input")
    assert state(second, "import", str(tmp_path / "state"), "--new-offsets") == 0
    second.feed(records(120, 140, change_at=100))
    second.run(snapshots=False)
    second.feed(records(140, 160, change_at=100))
    second.run()
    continued(first, second, calm)


def test_models_go_on_at_the_offset_of_the_group(fake_jobs: Jobs, tmp_path: Path) -> None:
    first = fake_jobs()
    first.feed(records(0, 60))
    first.run()
    assert state(first, "export", str(tmp_path / "state")) == 0
    second = fake_jobs("elsewhere", "other-input")
    second.feed(records(50, 70))
    for number in (0, 1):
        second.write(number, [], 20, "mirror")  # as a mirror's tool sets offsets: pairs 50 to 59 are read
    assert state(second, "import", str(tmp_path / "state"), "--new-offsets") == 0
    assert {header.offset for header in second.state()[0].values()} == {20}
    second.run()
    assert [row["seq"] for row in second.estimates()["pump-0"]] == list(range(61, 71))


def test_models_that_lack_records_are_not_moved_to_another_log(jobs: Jobs, tmp_path: Path, shown: Shown) -> None:
    first = worked(jobs())
    assert state(first, "export", str(tmp_path / "state")) == 0
    second = jobs("elsewhere", "other-input")
    assert state(second, "import", str(tmp_path / "state"), "--new-offsets") == 1
    assert "Run the worker there once with --drain and export again" in shown()[1]
    assert second.state() == ({}, {})
    assert state(second, "import", str(tmp_path / "state"), "--new-offsets", "--force") == 0


def test_an_import_must_be_told_how_offsets_relate(jobs: Jobs, tmp_path: Path, shown: Shown) -> None:
    first = worked(jobs())
    assert state(first, "export", str(tmp_path / "state")) == 0
    second = jobs("elsewhere", "other-input")
    assert state(second, "import", str(tmp_path / "state")) == 1
    err = shown()[1]
    assert "--same-offsets" in err
    assert "--new-offsets" in err


def test_offsets_that_are_not_there_are_refused(fake_jobs: Jobs, tmp_path: Path, shown: Shown) -> None:
    first = worked(fake_jobs())
    assert state(first, "export", str(tmp_path / "state")) == 0
    second = fake_jobs("elsewhere", "other-input")
    second.feed(records(0, 10))
    assert state(second, "import", str(tmp_path / "state"), "--same-offsets") == 1
    assert "beyond the end of the input" in shown()[1]
    assert second.state() == ({}, {})


def test_state_that_is_there_is_replaced_only_by_force(jobs: Jobs, tmp_path: Path, shown: Shown) -> None:
    first = worked(jobs())
    assert state(first, "export", str(tmp_path / "state")) == 0
    first.feed([Record(0, b"late", records(0, 1)[0].value.replace(b"pump-0", b"late"), 0)])
    first.run()
    assert b"late" in first.state()[1]
    assert state(first, "import", str(tmp_path / "state"), "--same-offsets") == 1
    assert "is not empty: it has a header and 3 snapshots" in shown()[1]
    assert state(first, "import", str(tmp_path / "state"), "--same-offsets", "--force") == 0
    shown()
    assert state(first, "list", "--json") == 0
    assert [json.loads(line)["left_over"] for line in shown()[0].splitlines()] == [1, 0]
    first.run(snapshots=False)
    headers, keys = first.state()
    assert headers[0].generation == keys[b"pump-0"].generation == 1
    assert b"late" not in keys


def test_an_older_export_does_not_make_outputs_come_again(
    fake_jobs: Jobs, broker: FakeBroker, tmp_path: Path, shown: Shown
) -> None:
    job = fake_jobs()
    job.feed(records(0, 70))
    job.run()
    assert state(job, "export", str(tmp_path / "state")) == 0
    job.feed(records(70, 80))
    job.run()
    broker.truncate(job.config.state.topic, 0, 10**6)  # the state topic was lost
    broker.truncate(job.config.state.topic, 1, 10**6)
    assert state(job, "import", str(tmp_path / "state")) == 1
    assert "outputs of 20 offsets would be published again" in shown()[1]
    assert state(job, "import", str(tmp_path / "state"), "--new-offsets") == 0
    job.feed(records(80, 90))
    job.run()
    assert [row["seq"] for row in job.estimates()["pump-0"]] == [*range(1, 81), *range(71, 81)]


def test_an_import_that_was_cut_short_keeps_workers_from_starting(
    fake_jobs: Jobs, broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kstream_worker.state_tools.importing._CHUNK_BYTES", 1)
    calm = uninterrupted(fake_jobs, 140)
    first = worked(fake_jobs(), change_at=100)
    assert state(first, "export", str(tmp_path / "state")) == 0
    second = fake_jobs("pumps2")
    for call in (1, 3, 4, 6):  # offsets, two keys and a header of one partition, two keys and a header of the other
        faults = broker.faults
        faults.crash_at("commit.done", faults.calls("commit.done", "tool") + call, identity="tool")
        with pytest.raises(SimulatedCrash):
            state(second, "import", str(tmp_path / "state"), "--force")
        with pytest.raises(Fatal, match=r"no header in the state topic|the group's committed offset"):
            second.run()
    assert state(second, "import", str(tmp_path / "state"), "--force") == 0
    second.feed(records(120, 140, change_at=100))
    second.run()
    continued(first, second, calm)


def test_partitions_and_models_must_fit(fake_jobs: Jobs, broker: FakeBroker, tmp_path: Path, shown: Shown) -> None:
    first = worked(fake_jobs())
    assert state(first, "export", str(tmp_path / "state")) == 0
    other = fake_jobs("other", "other-input", detector={"arl": 10_000, "warmup": 70})
    assert state(other, "import", str(tmp_path / "state"), "--new-offsets", "--force") == 78
    assert "models of another configuration" in shown()[1]
    wide = fake_jobs("wide", "wide-input")
    broker.create_topic("wide-input", 3)
    assert state(wide, "import", str(tmp_path / "state"), "--new-offsets", "--force") == 78
    assert "all must be equal" in shown()[1]


@contextmanager
def member(broker: FakeBroker, group: str) -> Iterator[None]:
    broker.group(group).join("worker-7")
    yield
    broker.evict(group, "worker-7")


def test_nothing_is_changed_while_workers_run(
    fake_jobs: Jobs, broker: FakeBroker, tmp_path: Path, shown: Shown
) -> None:
    job = worked(fake_jobs())
    path = str(tmp_path / "state")
    with member(broker, "pumps"):
        before = job.state()
        assert state(job, "export", path) == 0
        assert "the group has 1 members" in shown()[1]
        for words in (["import", path, "--force"], ["reset", "pump-0"]):
            assert state(job, *words) == 1
            assert "the group has 1 member (worker-7). Stop all workers" in shown()[1]
        assert state(job, "verify") == 0
        assert job.state() == before


def test_nothing_is_changed_while_the_folder_is_taken(tmp_path: Path, shown: Shown) -> None:
    job = worked(FilesJob(tmp_path))
    path = str(tmp_path / "state")
    assert state(job, "export", path) == 0
    source = job.bus().source()
    source.start()
    try:
        for words in (["import", path, "--same-offsets", "--force"], ["reset", "pump-0"]):
            assert state(job, *words) == 78
            assert "is in use by process" in shown()[1]
        assert state(job, "list") == state(job, "verify") == 0
    finally:
        source.close(leave=True, timeout_s=1.0)


def test_a_worker_that_comes_in_between_ends_the_command(
    fake_jobs: Jobs, broker: FakeBroker, tmp_path: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = worked(fake_jobs())
    assert state(first, "export", str(tmp_path / "state")) == 0
    second = fake_jobs("pumps2")
    monkeypatch.setattr("kstream_worker.state_tools.importing._CHUNK_BYTES", 1)
    commits = 0
    begin = FakeBroker.begin

    def joining(broker: FakeBroker, producer: str) -> Any:
        nonlocal commits
        commits += 1
        if commits == 3:
            broker.group("pumps2").join("worker-7")
        return begin(broker, producer)

    monkeypatch.setattr(FakeBroker, "begin", joining)
    assert state(second, "import", str(tmp_path / "state")) == 1
    assert "a worker joined the group in between" in shown()[1]


def test_an_export_is_never_written_over(jobs: Jobs, tmp_path: Path, shown: Shown) -> None:
    job = worked(jobs())
    path = tmp_path / "state"
    path.write_text("precious")
    assert state(job, "export", str(path)) == 1
    assert "is there already" in shown()[1]
    assert path.read_text() == "precious"
    assert state(job, "export", str(tmp_path / "no-folder" / "state")) == 1
    assert "cannot be written" in shown()[1]


def test_an_export_is_json_lines_with_the_records_as_they_are(jobs: Jobs, tmp_path: Path) -> None:
    job = worked(jobs())
    assert state(job, "export", str(tmp_path / "state")) == 0
    about, *lines, end = map(json.loads, (tmp_path / "state").read_text().splitlines())
    assert (about["type"], about["format"], about["app_id"], about["partitions"]) == ("state", 1, "pumps", 2)
    assert (end["type"], end["partitions"], end["snapshots"]) == ("end", 2, 4)
    headers, keys = job.state()
    for line in lines:
        if line["type"] == "partition":
            header = replace(headers[line["partition"]])
            assert base64.b64decode(line["header"]) == encode_header(header, 1)
            assert (line["offset"], line["replay_from"]) == (header.offset, header.replay_from)
        else:
            snapshot = keys[base64.b64decode(line["key"])]
            assert base64.b64decode(line["value"]) == encode_snapshot(snapshot, 1)
    assert [line["type"] for line in lines] == ["partition", "snapshot", "snapshot"] * 2
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda lines: lines[:-1], "is cut: its last line is missing"),
        (lambda lines: [*lines[:2], lines[2].replace(b'"value":"', b'"value":"AAAA'), *lines[3:]], "is damaged"),
        (lambda lines: [*lines[:2], *lines[3:]], "is damaged"),
        (lambda lines: [*lines, b"{}\n"], "is damaged"),
        (lambda lines: [lines[0], lines[2], *lines[3:]], "line 2 is out of place"),
        (lambda lines: [*lines[:2], lines[2][:40] + b"\n", *lines[3:]], "is damaged in line 3"),
        (lambda lines: [lines[0].replace(b'"format":1', b'"format":2'), *lines[1:]], "run a newer one"),
        (lambda lines: lines[1:], "is no export of state"),
        (lambda lines: [b"\xff\xfe\n"], "is no export of state"),
        (lambda lines: [], "is no export of state"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_before_anything_is_written(
    fake_jobs: Jobs, tmp_path: Path, shown: Shown, spoil: Callable[[list[bytes]], list[bytes]], message: str
) -> None:
    path = tmp_path / "state"
    first = fake_jobs()
    first.feed(records(0, 3))
    first.run()
    assert state(first, "export", str(path)) == 0
    path.write_bytes(b"".join(spoil(path.read_bytes().splitlines(keepends=True))))
    second = fake_jobs("pumps2")
    assert state(second, "import", str(path)) == 1
    assert message in shown()[1]
    assert second.state() == ({}, {})


def test_a_file_that_is_not_there(fake_jobs: Jobs, tmp_path: Path, shown: Shown) -> None:
    assert state(fake_jobs(), "import", str(tmp_path / "none")) == 1
    assert "cannot be read: No such file" in shown()[1]


# reset


def fresh(job: Job, key: str, last: int) -> list[dict[str, Any]]:
    """Estimates of a job's key from its second life on."""
    rows = job.estimates()[key]
    begin = [index for index, row in enumerate(rows) if row["seq"] == 1]
    assert len(begin) == 2
    assert len(rows) - begin[1] == last
    return rows[begin[1] :]


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_reset_key_begins_anew_although_its_records_are_read_again(jobs: Jobs, shown: Shown, snapshots: bool) -> None:
    """Its records in [replay_from, offset) must not come back into a model; all others go on as if nothing was."""
    job, calm, newborn = jobs(), jobs("calm", "calm-input"), jobs("newborn", "newborn-input")
    worked(job)
    calm.feed(records(0, 200))
    calm.run()
    newborn.feed(records(120, 200))
    newborn.run()
    if snapshots:
        job.run()
    else:
        assert job.state()[0][0].replay_from < job.state()[0][0].offset
    assert state(job, "reset", "pump-0") == 0
    assert shown()[0] == "pump-0 of partition 0 starts afresh\n"
    assert state(job, "verify") == 0
    job.feed(records(120, 200))
    job.run()
    assert fresh(job, "pump-0", 80) == newborn.estimates()["pump-0"]
    for key in ("pump-1", "pump-2", "pump-3"):
        assert job.estimates()[key] == calm.estimates()[key]
    assert job.models()[b"pump-0"] == newborn.models()[b"pump-0"]


def test_the_alarm_of_a_reset_key_is_cleared_once(jobs: Jobs, shown: Shown) -> None:
    job = jobs()
    job.feed(records(0, 100, change_at=70))
    job.run(snapshots=False)
    assert [alarm["transition"] for alarm in job.alarms()] == ["raised"]
    assert state(job, "reset", "pump-0") == 0
    assert "its alarm is cleared" in shown()[0]
    cleared = job.alarms()[-1]
    assert (cleared["key"], cleared["transition"], cleared["reason"]) == ("pump-0", "cleared", "forgotten")
    assert state(job, "reset", "pump-0") == 0
    job.run()
    assert len(job.alarms()) == 2
    ids = [alarm["id"] for alarm in job.published(job.config.output.alarms)]
    assert len(set(ids)) == 2


def test_a_key_without_a_snapshot_is_reset_in_a_named_partition(jobs: Jobs, shown: Shown) -> None:
    job = jobs()
    job.feed(records(0, 30))
    job.run(snapshots=False)
    assert job.state()[1] == {}
    assert state(job, "reset", "pump-0") == 1
    assert "name its partition with --partition" in shown()[1]
    assert state(job, "reset", "pump-0", "--partition", "0") == 0
    job.feed(records(30, 60))
    job.run()
    assert [row["seq"] for row in job.estimates()["pump-0"]] == [*range(1, 31), *range(1, 31)]
    assert [row["seq"] for row in job.estimates()["pump-2"]] == list(range(1, 61))


def test_a_key_in_two_partitions_must_be_told_apart(fake_jobs: Jobs, shown: Shown) -> None:
    job = fake_jobs()
    one = records(0, 1)[0]
    job.feed([one, one._replace(partition=1)])
    job.run()
    assert state(job, "reset", "pump-0") == 1
    assert "the key is in partitions 0, 1: name one" in shown()[1]
    assert state(job, "reset", "pump-0", "--partition", "1") == 0


def test_a_reset_does_not_hide_what_does_not_fit(fake_jobs: Jobs, shown: Shown) -> None:
    job = worked(fake_jobs())
    job.write(0, [], 7, "by-hand")
    before = job.state()
    assert state(job, "reset", "pump-0") == 1
    assert "the group's committed offset is 7" in shown()[1]
    assert state(job, "reset", "pump-0", "--partition", "0", "--set", "detector.warmup=70") in (1, 78)
    assert job.state() == before


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
    assert "is not compacted" in verified(job, shown)
    broker.configs[topic] = {"cleanup.policy": "compact,delete"}
    assert "deletes old records" in verified(job, shown)
    broker.configs[topic] = {"cleanup.policy": "compact", "max.message.bytes": "1000"}
    assert "takes records of 1000 bytes" in verified(job, shown)


def test_verify_finds_partitions_that_were_added(fake_jobs: Jobs, broker: FakeBroker, shown: Shown) -> None:
    job = worked(fake_jobs())
    broker.create_topic("input", 3)
    assert "has 2 partitions, input has 3" in verified(job, shown)


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


# a real broker


@pytest.fixture(params=["kafka-python", "confluent"])
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.kafka
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


@pytest.mark.kafka
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


@pytest.mark.kafka
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
