"""The commit protocol of files: what survives a kill, a full disk, and hands that touch the files in between."""

from __future__ import annotations

import errno
import json
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstream_worker.bus.files import files_bus, read_output
from kstream_worker.bus.files.store import DATABASE
from kstream_worker.errors import ConfigError, Fatal
from kstream_worker.ports import Bus, Source, Writer
from kstream_worker.records import Batch, Messages, Outcome, Progress, TopicPartition

pytestmark = pytest.mark.timeout(120)
HERE = Path(__file__).parent


class Copier:
    """Copies an input to the topic `copy`."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.writer: Writer = bus.writer()
        self.source: Source = bus.source()

    def start(self) -> None:
        self.writer.start(1.0)
        self.source.start()
        (assigned,) = self.source.poll(0.01).changes
        cluster = self.bus.cluster()
        earliest = cluster.earliest(assigned.partitions)
        for partition, committed in self.source.committed(assigned.partitions, 1.0).items():
            self.source.seek(partition, committed.offset if committed else earliest[partition])
        self.source.resume(assigned.partitions)

    def read_all(self) -> list[Batch]:
        batches: list[Batch] = []
        while not (poll := self.source.poll(0.01)).finished:
            batches += poll.batches
        return batches

    def commit(self, batches: list[Batch], topic: str = "copy") -> Outcome:
        messages = []
        for batch in batches:
            messages.append(Messages(TopicPartition(topic, batch.partition.partition)))
            messages[-1].extend(batch.keys, batch.values, batch.timestamps, batch.headers)
        membership = self.source.membership()
        assert membership is not None
        progress = {batch.partition: Progress(batch.next_offset) for batch in batches}
        return self.writer.commit(messages, progress, membership, "token", 1.0)

    def close(self) -> None:
        self.source.close(leave=False, timeout_s=1.0)
        self.writer.close(1.0)

    def __enter__(self) -> Copier:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"".join(b'{"n":%d}\n' % n for n in range(10)))
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def values(path: Path) -> list[bytes | None]:
    return [one.value for one in read_output(path)]


def copy_all(bus: Bus) -> int:
    with Copier(bus) as copier:
        batches = copier.read_all()
        if batches:
            copier.commit(batches)
        return sum(map(len, batches))


# Kills


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_instant_each_record_is_written_once(tmp_path: Path, out: Path, seed: int) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    for partition in range(3):
        lines = [f'{{"partition":{partition},"n":{n}}}\n' for n in range(1000)]
        (inputs / f"{partition}.jsonl").write_text("".join(lines))
    driver = [sys.executable, str(HERE / "kill_loop.py"), str(inputs), str(out), str(seed)]
    done = subprocess.run(driver, check=True, capture_output=True, timeout=100)
    kills, status = map(int, done.stdout.split())
    assert status == 0, done.stderr.decode()
    assert kills >= 3
    found = [json.loads(line or b"") for topic in ("even", "odd") for line in values(out / f"{topic}.jsonl")]
    for partition in range(3):
        assert [one["n"] for one in found if one["partition"] == partition] == list(range(1000))


def test_a_torn_tail_is_cut_off(data: Path, out: Path) -> None:
    assert copy_all(files_bus([data], out)) == 10
    before = (out / "copy.jsonl").read_bytes()
    with (out / "copy.jsonl").open("ab") as file:
        file.write(b'{"n":10}\n{"torn')
    with data.open("ab") as file:
        file.write(b'{"n":10}\n')
    assert copy_all(files_bus([data], out)) == 1
    assert (out / "copy.jsonl").read_bytes() == before + b'{"n":10}\n'


@pytest.mark.parametrize("keep", [None, 0, 20])
def test_an_output_shorter_than_committed_is_refused(data: Path, out: Path, keep: int | None) -> None:
    copy_all(files_bus([data], out))
    path = out / "copy.jsonl"
    content = path.read_bytes()
    path.unlink() if keep is None else os.truncate(path, keep)
    writer = files_bus([data], out).writer()
    with pytest.raises(Fatal, match=rf"copy\.jsonl' has {keep or 0} bytes, but 80 were committed.*Restore it"):
        writer.start(1.0)
    path.write_bytes(content)
    writer.close(1.0)
    assert copy_all(files_bus([data], out)) == 0


def test_a_second_process_is_told_who_holds_the_folder(data: Path, out: Path) -> None:
    with Copier(files_bus([data], out)):
        writer = files_bus([data], out).writer()
        with pytest.raises(ConfigError, match=rf"in use by process {os.getpid()} on \S+; stop it"):
            writer.start(1.0)
        assert files_bus([data], out).cluster().partition_count("input") == 1
    assert copy_all(files_bus([data], out)) == 10


# Disks


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file may grow beyond 100,000 bytes."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def test_a_full_disk_loses_nothing(tmp_path: Path, out: Path, request: pytest.FixtureRequest) -> None:
    data = tmp_path / "data.jsonl"
    data.write_bytes(b"".join(b'{"n":%d}\n' % n for n in range(3000)))
    with Copier(files_bus([data], out)) as copier:
        first = copier.source.poll(0.01).batches
        copier.commit(first)
        with data.open("ab") as file:
            file.writelines(b'{"n":%d}\n' % n for n in range(3000, 12_000))
        rest = copier.read_all()
        request.getfixturevalue("small_disk")
        with pytest.raises(Fatal, match=r"output folder .*/out' cannot be written: File too large. Nothing is lost"):
            copier.commit(rest)
    expected = [b'{"n":%d}' % n for n in range(3000)]
    assert values(out / "copy.jsonl") == expected
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert copy_all(files_bus([data], out)) == 9000
    assert values(out / "copy.jsonl") == [b'{"n":%d}' % n for n in range(12_000)]


def test_no_space_in_the_middle_of_a_line_is_cut_back(data: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = os.pwrite

    def full(file: int, content: bytes, position: int) -> int:
        if position >= 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written(file, content[:20], position)

    with Copier(files_bus([data], out)) as copier:
        batches = copier.read_all()
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(Fatal, match="No space left on device"):
            copier.commit(batches)
        assert (out / "copy.jsonl").read_bytes() == b""
        monkeypatch.undo()
    assert copy_all(files_bus([data], out)) == 10
    assert len(values(out / "copy.jsonl")) == 10


def test_a_database_that_cannot_be_written_loses_nothing(data: Path, out: Path) -> None:
    with Copier(files_bus([data], out)) as copier:
        batches = copier.read_all()
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
        try:
            with pytest.raises(Fatal, match=r"cannot write .*positions\.sqlite: .*nothing committed is lost"):
                copier.commit(batches)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert copy_all(files_bus([data], out)) == 10
    assert len(values(out / "copy.jsonl")) == 10


def test_a_folder_that_cannot_be_written_is_a_matter_of_configuration(data: Path, tmp_path: Path) -> None:
    bus = files_bus([data], data / "below-a-file")
    with pytest.raises(ConfigError, match=r"below-a-file' cannot be written: Not a directory; choose another"):
        bus.writer().start(1.0)
    (problem,) = bus.cluster().check_rights(inputs=["input"], outputs=["copy"])
    assert "below-a-file" in problem
    good = files_bus([data], tmp_path / "new" / "out").cluster()
    assert good.check_rights(inputs=["input"], outputs=["copy"]) == []


@pytest.mark.parametrize("damage", [b"no database at all" * 500, None])
def test_a_damaged_or_foreign_database_is_refused(data: Path, out: Path, damage: bytes | None) -> None:
    copy_all(files_bus([data], out))
    if damage is not None:
        (out / DATABASE).write_bytes(damage)
    else:
        database = sqlite3.connect(out / DATABASE)
        database.execute("PRAGMA user_version = 99")
        database.close()
    with pytest.raises(Fatal, match=r"positions\.sqlite"):
        files_bus([data], out).writer().start(1.0)


# Inputs


def test_inputs_that_are_not_there(tmp_path: Path, data: Path) -> None:
    (tmp_path / "empty").mkdir()
    for inputs, message in [
        ([tmp_path / "no.jsonl"], "does not exist"),
        ([tmp_path / "no" / "*.jsonl"], "does not exist"),
        ([data / "below"], "cannot be read: Not a directory"),
        ([tmp_path / "empty"], r"holds no \.jsonl or \.ndjson file"),
        ([], "no input"),
    ]:
        with pytest.raises(ConfigError, match=message):
            files_bus(inputs, tmp_path / "out")


def test_options_that_contradict(data: Path) -> None:
    with pytest.raises(ConfigError, match="key_column is for CSV"):
        files_bus([data], key_column="n")
    with pytest.raises(ConfigError, match="'xml' is unknown"):
        files_bus([data], format="xml")  # type: ignore[arg-type]


def test_an_input_that_vanishes_before_the_start(data: Path, out: Path) -> None:
    bus = files_bus([data], out)
    data.unlink()
    (problem,) = bus.cluster().check_rights(inputs=["input"], outputs=[])
    assert "data.jsonl cannot be read" in problem
    with pytest.raises(ConfigError, match=r"data\.jsonl cannot be read: No such file"):
        bus.source().start()
    data.write_text('{"n":0}\n')
    assert copy_all(files_bus([data], out)) == 1  # nothing is held by the start that failed


def test_folders_and_patterns_are_partitions_in_sorted_order(tmp_path: Path, out: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.ndjson", "other.txt"):
        (tmp_path / name).write_text(f'{{"file":"{name}"}}\n')
    for inputs, expected in [([tmp_path], "abc"), ([tmp_path / "?.jsonl"], "ab"), ([tmp_path / "c.ndjson"], "c")]:
        with Copier(files_bus(inputs, out / expected)) as copier:
            batches = copier.read_all()
        assert [one.partition.partition for one in batches] == list(range(len(expected)))
        names = [json.loads(value or b"")["file"][0] for one in batches for value in one.values]
        assert "".join(names) == expected


def test_a_file_keeps_its_number_when_others_come_and_go(tmp_path: Path, out: Path) -> None:
    for name in ("b", "d"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"in":"{name}"}}\n')
    assert copy_all(files_bus([tmp_path], out)) == 2
    (tmp_path / "a.jsonl").write_text('{"in":"a"}\n')
    (tmp_path / "b.jsonl").unlink()
    bus = files_bus([tmp_path], out)
    assert bus.cluster().partition_count("input") == 3
    with Copier(bus) as copier:
        (batch,) = copier.read_all()
        assert batch.partition == TopicPartition("input", 2)
        copier.commit([batch])
    assert values(out / "copy.jsonl") == [b'{"in":"b"}', b'{"in":"d"}', b'{"in":"a"}']


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"n":0}\n', "has 8 bytes, but 80 were read"),
        (b'{"m":0}\n' * 20, "is not the file that was read before"),
    ],
)
def test_an_input_that_was_cut_or_replaced_is_refused(data: Path, out: Path, content: bytes, message: str) -> None:
    copy_all(files_bus([data], out))
    data.write_bytes(content)
    copier = Copier(files_bus([data], out))
    with pytest.raises(Fatal, match=rf"data\.jsonl {message}.*Restore it"):
        copier.start()
    copier.close()


def test_a_line_that_grew_after_it_was_read_is_refused(data: Path, out: Path) -> None:
    with data.open("ab") as file:
        file.write(b'{"n":1')
    copy_all(files_bus([data], out))
    with data.open("ab") as file:
        file.write(b"0}\n")
    copier = Copier(files_bus([data], out))
    with pytest.raises(Fatal, match="was read before it was complete"):
        copier.start()
    copier.close()


def test_an_input_that_is_cut_while_it_is_read(data: Path, out: Path) -> None:
    with Copier(files_bus([data], out)) as copier:
        copier.read_all()
        os.truncate(data, 8)
        with pytest.raises(Fatal, match="became shorter while it was read"):
            copier.source.poll(0.01)


def test_an_input_may_grow(data: Path, out: Path) -> None:
    data.write_bytes(data.read_bytes().removesuffix(b"\n"))
    assert copy_all(files_bus([data], out)) == 10
    with data.open("ab") as file:
        file.write(b'\n{"n":10}\n')
    assert copy_all(files_bus([data], out)) == 1
    assert values(out / "copy.jsonl") == [b'{"n":%d}' % n for n in range(11)]


def test_files_have_no_record_times(data: Path, out: Path) -> None:
    with pytest.raises(ConfigError, match="start from earliest"):
        files_bus([data], out).cluster().at_time([TopicPartition("input", 0)], 0)


# Outputs


def test_a_file_that_is_not_ours_is_never_written(data: Path, out: Path) -> None:
    out.mkdir()
    (out / "copy.jsonl").write_text("precious\n")
    with Copier(files_bus([data], out)) as copier:
        batches = copier.read_all()
        with pytest.raises(ConfigError, match="is not from this worker: move it away"):
            copier.commit(batches)
        with pytest.raises(ConfigError, match="cannot name an output file"):
            copier.commit(batches, "../copy")
    assert (out / "copy.jsonl").read_text() == "precious\n"


def test_an_input_is_never_an_output(data: Path, tmp_path: Path) -> None:
    with Copier(files_bus([data], tmp_path)) as copier:
        batches = copier.read_all()
        with pytest.raises(ConfigError, match=r"is an input and the output of topic 'data'"):
            copier.commit(batches, "data")
    assert len(data.read_bytes()) == 80


def test_what_an_interrupted_commit_left_never_shows(data: Path, out: Path) -> None:
    with Copier(files_bus([data], out)) as copier:
        batches = copier.read_all()
        copier.commit(batches)
        with (out / "copy.jsonl").open("ab") as file:
            file.write(b'{"left by":"an interrupted commit, longer than the next one"}\n')
        with data.open("ab") as file:
            file.write(b"{}\n")
        copier.commit(copier.read_all())
        assert values(out / "copy.jsonl")[-2:] == [b'{"n":9}', b"{}"]


# Standard streams

STREAMS = """
import sys
sys.path.insert(0, sys.argv[1])
from test_files_bus import Copier
from kstream_worker.bus.files import files_bus
bus = files_bus("-", None if sys.argv[2] == "-" else sys.argv[2])
print(*bus.notes, sep="\\n", file=sys.stderr)
with Copier(bus) as copier:
    batches = []
    while not (poll := copier.source.poll(0.05)).finished:
        if poll.batches:
            print(*[offset for one in poll.batches for offset in one.offsets], file=sys.stderr)
            copier.commit(poll.batches)
"""


def stream(target: Path | str, content: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", STREAMS, str(HERE), str(target)]
    return subprocess.run(command, input=content, capture_output=True, check=True, timeout=60)


def test_from_standard_input_to_standard_output() -> None:
    done = stream("-", b'{"a":1}\n\n{}\nnot json')
    first, second, third = done.stdout.splitlines()
    assert first == b'{"output":"copy","a":1}'
    assert second == b'{"output":"copy"}'
    assert json.loads(third)["output"] == "copy"
    assert json.loads(third)["record"]["value"] == "not json"
    assert b"standard input cannot be replayed" in done.stderr
    assert b"standard output (a pipe or terminal) is at-least-once" in done.stderr


def test_standard_input_counts_on_after_a_restart(out: Path) -> None:
    assert b"\n0 4\n" in stream(out, b"{1}\n{2}\n").stderr
    assert b"\n8 12\n" in stream(out, b"{1}\n{2}\n").stderr
    assert values(out / "copy.jsonl") == [b"{1}", b"{2}"] * 2


def test_a_stream_is_waited_for_and_never_read_twice(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as stdin, os.fdopen(write_end, "wb", buffering=0) as feed:
        monkeypatch.setattr(sys, "stdin", stdin)
        with Copier(files_bus("-", out)) as copier:
            assert not copier.source.poll(0.01).finished
            feed.write(b"{1}\n{2}\n{3")
            (batch,) = copier.source.poll(10.0).batches
            assert (batch.offsets, batch.next_offset) == ([0, 4], 8)
            assert copier.source.poll(0.01).batches == []
            with pytest.raises(Fatal, match="standard input cannot be read again from 4"):
                copier.source.seek(batch.partition, 4)
            copier.source.seek(batch.partition, 9)
            feed.write(b"}\n{4}\n")
            feed.close()
            (batch,) = copier.read_all()
            assert batch.offsets == [12]


def test_a_closed_standard_output_is_said(data: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_files_bus import *\n"
        "with Copier(files_bus([sys.argv[2]])) as copier:\n"
        "    batches = copier.read_all()\n"
        "    try:\n        copier.commit(batches)\n"
        "    except Fatal as error:\n        print(error, file=sys.stderr)\n"
    )
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        command = [sys.executable, "-c", code, str(HERE), str(data)]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, check=True, timeout=60)
    assert b"standard output cannot be written: Broken pipe" in done.stderr
