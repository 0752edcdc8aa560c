"""State of the files bus: rows in the database beside the positions, migration of a former one, and who may read."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kstream_worker.bus.files import files_bus
from kstream_worker.bus.files import reader as reader_module
from kstream_worker.bus.files.database import FORMAT
from kstream_worker.bus.files.store import DATABASE
from kstream_worker.errors import Fatal, Retry
from kstream_worker.ports import Bus, Source, Writer
from kstream_worker.records import Batch, Committed, End, Headers, Messages, Outcome, Progress, TopicPartition

STATE = TopicPartition("state", 0)
INPUT = TopicPartition("input", 0)
LINES = b"".join(b'{"n":%d}\n' % n for n in range(10))
Row = tuple[bytes | None, bytes | None]


class Process:
    """A writer and a source that commit rows of state at will."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.writer: Writer = bus.writer()
        self.source: Source = bus.source()
        self.writer.start(1.0)
        self.source.start()
        self.source.poll(0.0)

    def commit(
        self, *rows: Row, offset: int = 8, named: str = "token", headers: Headers = (), timeout_s: float = 1.0
    ) -> Outcome:
        column = Messages(STATE)
        keys, values = [key for key, _ in rows], [value for _, value in rows]
        column.extend(keys, values, [1] * len(rows), [headers] * len(rows))
        out = Messages(TopicPartition("out", 0), [None], [b"{}"], [0], [()])
        membership = self.source.membership()
        assert membership is not None
        return self.writer.commit([out, column], {INPUT: Progress(offset)}, membership, named, timeout_s)

    def close(self) -> None:
        self.source.close(leave=False, timeout_s=1.0)
        self.writer.close(1.0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    path.write_bytes(LINES)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def process(data: Path, out: Path) -> Iterator[Process]:
    with closing(Process(files_bus([data], out))) as process:
        yield process


def end_of(bus: Bus) -> int:
    return bus.cluster().end([STATE], End.HIGH)[STATE]


def read(bus: Bus, position: int = 0) -> list[Batch]:
    assert bus.reader is not None
    reader = bus.reader()
    reader.assign({STATE: position})
    batches = []
    while reader.position(STATE) < end_of(bus):
        batches += reader.poll(0.0)
    return batches


def rows_of(bus: Bus) -> list[Row]:
    return [row for batch in read(bus) for row in zip(batch.keys, batch.values, strict=True)]


def test_rows_of_one_commit_are_written_in_their_order(process: Process) -> None:
    process.commit((b"a", b"1"), (b"b", b"1"), (b"a", None), (b"c", None), (b"b", b"2"), (b"c", b"3"), (b"", b""))
    assert rows_of(process.bus) == [(b"b", b"2"), (b"c", b"3"), (b"", b"")]


def test_offsets_grow_and_are_never_given_twice(process: Process) -> None:
    process.commit((b"a", b"1"), (b"b", b"1"))
    (first,) = read(process.bus)
    process.commit((b"b", None))
    assert end_of(process.bus) == first.next_offset
    process.commit((b"c", b"1"))
    (batch,) = read(process.bus)
    assert batch.keys == [b"a", b"c"]
    assert batch.offsets[0] == first.offsets[0]
    assert batch.offsets[1] >= first.next_offset
    assert read(process.bus, batch.next_offset) == []


def test_a_poll_is_bounded_and_serves_partitions_in_turn(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    other = TopicPartition("state", 1)
    column = Messages(other, [b"k"], [b"v"], [0], [()])
    membership = process.source.membership()
    assert membership is not None
    process.commit(*((b"%d" % n, b"x" * 100) for n in range(10)))
    process.writer.commit([column], {INPUT: Progress(16)}, membership, "other", 1.0)
    monkeypatch.setattr(reader_module, "POLL_BYTES", 350)
    assert process.bus.reader is not None
    reader = process.bus.reader()
    reader.assign({STATE: 0, other: 0})
    assert [(one.partition, len(one)) for one in reader.poll(0.0)] == [(STATE, 4)]
    assert [(one.partition, len(one)) for one in reader.poll(0.0)] == [(other, 1), (STATE, 4)]
    assert [(one.partition, len(one)) for one in reader.poll(0.0)] == [(STATE, 2)]
    assert reader.position(STATE) == reader.position(other) == end_of(process.bus)


def test_state_is_in_the_database_alone_and_byte_by_byte(process: Process, out: Path) -> None:
    every_byte = bytes(range(256))
    headers: Headers = (("h", b"\xff\x00"), ("h", b""), ("n\u00e4me", every_byte))
    process.commit((every_byte, every_byte), headers=headers)
    (batch,) = read(process.bus)
    assert (batch.keys, batch.values, batch.timestamps) == ([every_byte], [every_byte], [1])
    assert batch.headers == [headers]
    assert {one.name for one in out.glob("*.jsonl")} == {"out.jsonl"}


def test_what_cannot_be_kept_by_key_is_refused_with_nothing_written(process: Process) -> None:
    with pytest.raises(ValueError, match=r"state\[0\] has no key"):
        process.commit((b"a", b"1"), (None, b"1"))
    membership = process.source.membership()
    assert membership is not None
    uneven = Messages(STATE, [b"a"], [b"1", b"2"], [0], [()])
    with pytest.raises(ValueError, match="differ in length"):
        process.writer.commit([uneven], {INPUT: Progress(8)}, membership, "t", 1.0)
    assert process.source.committed([INPUT], 1.0) == {INPUT: None}
    assert end_of(process.bus) == 0


def test_a_commit_in_doubt_is_resolved_without_writing(process: Process, out: Path) -> None:
    process.commit((b"a", b"1"), named="first")
    with closing(sqlite3.connect(out / DATABASE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with pytest.raises(Retry, match="held by another process"):
                process.commit((b"a", b"2"), offset=16, named="doubtful", timeout_s=0.0)
            other.execute("ROLLBACK")
            assert process.commit((b"a", b"2"), offset=16, named="doubtful") is Outcome.ABORTED
            assert rows_of(process.bus) == [(b"a", b"1")]
            assert process.source.committed([INPUT], 1.0) == {INPUT: Committed(8, "first")}
            assert (out / "out.jsonl").read_bytes().count(b"\n") == 1
            other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    assert process.commit((b"a", b"2"), offset=16, named="again") is Outcome.COMMITTED
    assert rows_of(process.bus) == [(b"a", b"2")]


def test_others_read_while_a_process_is_at_work_and_after_it(process: Process, data: Path, out: Path) -> None:
    process.commit((b"a", b"1"))
    other = files_bus([data], out)
    assert rows_of(other) == [(b"a", b"1")]
    process.commit((b"a", b"2"), (b"b", b"1"))
    assert rows_of(other) == [(b"a", b"2"), (b"b", b"1")]
    identity = process.bus.cluster().cluster_id()
    process.close()
    assert rows_of(other) == [(b"a", b"2"), (b"b", b"1")]
    assert other.cluster().cluster_id() == identity


def test_without_an_output_folder_state_lives_as_long_as_the_process(data: Path) -> None:
    bus = files_bus([data])
    assert rows_of(bus) == []
    with closing(Process(bus)) as process:
        membership = process.source.membership()
        assert membership is not None
        column = Messages(STATE, [b"a"], [b"1"], [0], [()])
        assert process.writer.commit([column], {INPUT: Progress(8)}, membership, "t", 1.0) is Outcome.COMMITTED
        assert rows_of(bus) == [(b"a", b"1")]
    assert rows_of(bus) == []


def test_a_reader_reads_state_alone(process: Process) -> None:
    assert process.bus.reader is not None
    reader = process.bus.reader()
    with pytest.raises(Fatal, match=r"out\[0\] cannot be read"):
        reader.assign({STATE: 0, TopicPartition("out", 0): 0})
    with pytest.raises(Fatal, match="not assigned"):
        reader.position(STATE)


def test_the_identity_of_the_folder_stays_while_inputs_come(data: Path, out: Path) -> None:
    bus = files_bus([data.parent], out)
    identity = bus.cluster().cluster_id()  # before there is a database
    Process(bus).close()
    (data.parent / "more.jsonl").write_bytes(LINES)
    later = files_bus([data.parent], out)
    assert later.cluster().cluster_id() == bus.cluster().cluster_id() == identity
    assert files_bus([data.parent], out / "other").cluster().cluster_id() != identity


# Former formats


@pytest.fixture
def former(data: Path, out: Path) -> Path:
    """A folder as a release without state has left it: all ten lines are copied and committed."""
    out.mkdir()
    path = out / DATABASE
    shutil.copy(Path(__file__).parent / "golden" / "positions-v1.sqlite", path)
    (out / "copy.jsonl").write_bytes(LINES)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
        database.execute("UPDATE inputs SET path = ?", (str(data.resolve()),))
    return path


def test_a_database_of_the_former_format_is_migrated_in_place(former: Path, data: Path, out: Path) -> None:
    bus = files_bus([data], out)
    identity = bus.cluster().cluster_id()
    assert (rows_of(bus), end_of(bus)) == ([], 0)  # a look does not change it
    with closing(Process(bus)) as process:
        assert process.source.committed([INPUT], 1.0) == {INPUT: Committed(80, "token")}
        assert process.commit((b"a", b"1"), offset=80) is Outcome.COMMITTED
        assert rows_of(bus) == [(b"a", b"1")]
    with closing(sqlite3.connect(former)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (FORMAT,)
        assert database.execute("SELECT topic, length FROM outputs").fetchall() == [("copy", 80), ("out", 3)]
    assert files_bus([data], out).cluster().cluster_id() == identity
    Process(files_bus([data], out)).close()


def test_a_migration_that_is_cut_short_leaves_the_former_format(former: Path, data: Path, out: Path) -> None:
    with closing(sqlite3.connect(former, isolation_level=None)) as database:
        database.execute("CREATE TABLE state (strange INTEGER)")
    with pytest.raises(Fatal, match=r"cannot write .*positions\.sqlite: table state already exists"):
        Process(files_bus([data], out))
    with closing(sqlite3.connect(former, isolation_level=None)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        assert tables == {"inputs", "outputs", "state"}
        database.execute("DROP TABLE state")
    Process(files_bus([data], out)).close()
