"""`kstream-worker state export` and `import`: what was moved goes on as if it had never stopped."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from state_jobs import (
    FilesJob,
    Jobs,
    Record,
    Shown,
    continued,
    records,
    state,
    uninterrupted,
    worked,
)

from kstream_worker.bus.fake import CommitFault, FakeBroker, SimulatedCrash
from kstream_worker.errors import Fatal
from kstream_worker.state.format import HEADER_KEY, encode_header, encode_snapshot, state_key


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


def test_models_go_on_in_place_when_the_input_is_another_topic(fake_jobs: Jobs, tmp_path: Path, shown: Shown) -> None:
    """Made anew, or renamed: the worker refuses to mix the offsets of two logs."""
    calm = uninterrupted(fake_jobs, 160)
    first = fake_jobs()
    first.feed(records(0, 120, change_at=100))
    first.run()
    second = fake_jobs(inputs="input-2")
    second.feed(records(120, 160, change_at=100))
    with pytest.raises(Fatal, match=r"the group has no committed offset|created again"):
        second.run()
    assert state(first, "export", str(tmp_path / "state")) == 0
    assert state(second, "import", str(tmp_path / "state"), "--new-offsets", "--force") == 0
    assert state(second, "verify") == 0, shown()
    second.run()
    assert second.estimates() == calm.estimates()
    assert second.models() == calm.models()


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


def test_an_export_of_nothing_is_not_imported(fake_jobs: Jobs, tmp_path: Path, shown: Shown) -> None:
    job = fake_jobs()
    assert state(job, "export", str(tmp_path / "state")) == 0
    assert shown()[1].count("nothing was ever committed for it") == 2
    assert state(job, "import", str(tmp_path / "state"), "--same-offsets") == 1
    assert "holds no partition" in shown()[1]


def test_a_file_that_is_not_there(fake_jobs: Jobs, tmp_path: Path, shown: Shown) -> None:
    assert state(fake_jobs(), "import", str(tmp_path / "none")) == 1
    assert "cannot be read: No such file" in shown()[1]


@pytest.mark.parametrize("fault", list(CommitFault)[:4])
def test_an_import_gets_through_commits_that_fail(
    fake_jobs: Jobs, broker: FakeBroker, tmp_path: Path, shown: Shown, fault: CommitFault
) -> None:
    calm = uninterrupted(fake_jobs, 160)
    first = worked(fake_jobs(), change_at=100)
    assert state(first, "export", str(tmp_path / "state")) == 0
    second = fake_jobs("pumps2")
    broker.faults.on_commit(fault, None, fault, fault)
    assert state(second, "import", str(tmp_path / "state")) == 0
    assert state(second, "verify") == 0, shown()
    second.feed(records(120, 160, change_at=100))
    second.run()
    continued(first, second, calm)


def test_a_damaged_snapshot_that_an_import_leaves_out_is_not_missed(
    fake_jobs: Jobs, tmp_path: Path, shown: Shown
) -> None:
    first = fake_jobs()
    first.feed(records(0, 60))
    first.run()
    header = replace(first.state()[0][0], token="t1")
    first.write(0, [(state_key(b"pump-0"), b"cut"), (HEADER_KEY, encode_header(header, 1))], header.offset, "t1")
    assert state(first, "export", str(tmp_path / "state")) == 0
    assert "1 of them damaged" in "".join(shown())
    second = fake_jobs("elsewhere", "other-input")
    assert state(second, "import", str(tmp_path / "state"), "--new-offsets") == 0
    assert "a snapshot is damaged, its key starts afresh" in "".join(shown())
    second.feed(records(60, 70))
    second.run()
    seqs = {key: [row["seq"] for row in rows] for key, rows in second.estimates().items()}
    assert seqs.pop("pump-0") == list(range(1, 11))
    assert set(map(tuple, seqs.values())) == {tuple(range(61, 71))}
