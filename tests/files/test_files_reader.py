"""The reader of input files: what a worker would read, without a lock, beside one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kstream_worker.bus.files import files_bus
from kstream_worker.errors import ConfigError, Fatal
from kstream_worker.ports import Bus, Reader
from kstream_worker.records import Batch, End, TopicPartition

FIRST, SECOND = TopicPartition("input", 0), TopicPartition("input", 1)


def read(bus: Bus, reader: Reader, partitions: list[TopicPartition]) -> list[Batch]:
    with closing(bus.cluster()) as cluster:
        ends = cluster.end(partitions, End.STABLE)
        reader.assign(cluster.earliest(partitions))
    batches: list[Batch] = []
    while any(reader.position(one) < end for one, end in ends.items()):
        batches += reader.poll(0.01)
    assert reader.poll(0.0) == []
    return batches


def from_source(bus: Bus) -> list[Batch]:
    source = bus.source()
    source.start()
    for change in source.poll(0).changes:
        for partition in change.partitions:
            source.seek(partition, 0)
        source.resume(change.partitions)
    batches: list[Batch] = []
    while not (poll := source.poll(0)).finished:
        batches += poll.batches
    source.close(leave=True, timeout_s=1)
    return batches


def column_of(batches: list[Batch], partition: TopicPartition, name: str) -> list[object]:
    return [value for batch in batches if batch.partition == partition for value in getattr(batch, name)]


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_it_reads_what_a_worker_reads(tmp_path: Path, format: str) -> None:
    lines = (
        [f'{{"v":{i}}}' for i in range(9000)] if format == "jsonl" else ["v,w", *(f'{i},"a\nb"' for i in range(9000))]
    )
    (tmp_path / f"a.{format}").write_text("\n".join(lines) + "\n\n")
    (tmp_path / f"b.{format}").write_text("\n".join(lines[:3]))
    files = sorted(tmp_path.glob(f"*.{format}"))
    bus = files_bus(files, tmp_path / "out", format="csv" if format == "csv" else "jsonl")
    with closing(bus.reader()) as reader:
        found = read(bus, reader, [FIRST, SECOND])
    expected = from_source(bus)
    for partition in (FIRST, SECOND):
        for column in ("offsets", "timestamps", "keys", "values", "headers"):
            one, other = (
                [v for b in some if b.partition == partition for v in getattr(b, column)] for some in (found, expected)
            )
            assert one == other
    assert sum(len(batch) for batch in found if batch.partition == FIRST) == 9000


def test_it_takes_no_lock_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"v":1}\n{"v":2}\n')
    bus, other = (files_bus([tmp_path / "a.jsonl"], tmp_path / "out") for _ in range(2))
    with closing(other.reader()) as reader:
        assert [batch.values for batch in read(other, reader, [FIRST])] == [[b'{"v":1}', b'{"v":2}']]
    assert not (tmp_path / "out").exists()
    source = bus.source()
    source.start()
    with closing(other.reader()) as reader:
        assert [batch.offsets for batch in read(other, reader, [FIRST])] == [[0, 8]]
    source.close(leave=True, timeout_s=1)


def test_it_begins_where_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"v":1}\n{"v":2}\n{"v":3}\n')
    with closing(files_bus([tmp_path / "a.jsonl"]).reader()) as reader:
        reader.assign({FIRST: 8})
        (batch,) = reader.poll(0)
        assert (batch.offsets, batch.next_offset) == ([8, 16], 24)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    reader = files_bus([tmp_path / "a.jsonl"]).reader()
    with pytest.raises(Fatal, match=r"input\[1\] has no input file"):
        reader.assign({SECOND: 0})
    with pytest.raises(Fatal, match="reads the state, 'state', and the input, 'input'"):
        reader.assign({TopicPartition("elsewhere", 0): 0})
    with pytest.raises(ConfigError, match="standard input can be read only once"):
        files_bus("-").reader().assign({FIRST: 0})
