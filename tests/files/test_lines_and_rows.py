"""Lines, CSV rows and output lines: pure functions of bytes."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstream_worker.bus.files import files_bus
from kstream_worker.bus.files.envelope import decode_line, encode_line, name_output
from kstream_worker.bus.files.lines import Line, LineReader
from kstream_worker.bus.files.rows import RowParser
from kstream_worker.errors import ConfigError
from kstream_worker.records import Batch, TopicPartition


class Chopped:
    """Gives bytes in chunks of the sizes of a cycle; size 0 means nothing yet."""

    def __init__(self, content: bytes, sizes: list[int]) -> None:
        self._content = content
        self._sizes = sizes
        self._calls = 0

    def read(self, position: int, size: int) -> bytes | None:
        self._calls += 1
        chunk = min(size, self._sizes[self._calls % len(self._sizes)])
        if chunk == 0:
            return None
        return self._content[position : position + chunk]


def all_lines(reader: LineReader, limit: int = 3) -> list[Line]:
    lines: list[Line] = []
    while not (reader.at_end and reader.is_empty):
        lines += reader.take(limit)
    return lines


def plain_lines(content: bytes, position: int, limit: int) -> list[Line]:
    """The same by the book: split everything, then cut."""
    lines, offset = [], 0
    for part in content.splitlines(keepends=True) if b"\r" not in content else content.split(b"\n"):
        body = part.removesuffix(b"\n")
        end = min(len(content), offset + len(body) + 1)
        cut = (len(body), hashlib.sha256(body).hexdigest()) if len(body) > limit + 1 else None
        if offset >= position and offset < len(content):
            lines.append(Line(offset, end, body[: limit + 1] if cut else body.removesuffix(b"\r"), cut))
        offset = end
    return lines


contents = st.lists(st.sampled_from([b"\n", b"\r\n", b"a", b"bcd", b"x" * 9, b"\x00", b"\xff"]), max_size=30).map(
    b"".join
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(contents, st.lists(st.integers(0, 7), min_size=1, max_size=4).filter(any), st.integers(0, 40), st.integers(1, 8))
def test_lines_do_not_depend_on_how_bytes_come(content: bytes, sizes: list[int], start: int, limit: int) -> None:
    position = min(start, len(content))
    reader = LineReader(Chopped(content, sizes), position, limit, aligned=position == 0)
    assert all_lines(reader) == plain_lines(content, position, limit)
    assert reader.position == len(content)


def test_memory_is_bounded_by_the_limit_not_by_the_line(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        for _ in range(24):
            file.write(b"x" * (1 << 20))
        file.write(b'\n{"n":1}\n')
    tracemalloc.start()
    (batch,) = records(path, max_record_bytes=1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    assert batch.values == [b"x" * 1001, b'{"n":1}']
    assert dict(batch.headers[0])["kstream.truncated.bytes"] == str(24 << 20).encode()
    assert dict(batch.headers[0])["kstream.truncated.sha256"] == hashlib.sha256(b"x" * (24 << 20)).hexdigest().encode()
    assert batch.headers[1] == ()


def records(path: Path, position: int = 0, **options: Any) -> list[Batch]:
    """All records of one file, joined into one batch if there are any."""
    source = files_bus([path], path.parent / f"out-{path.stem}", **options).source()
    source.start()
    partition = TopicPartition("input", 0)
    source.poll(0.01)
    source.seek(partition, position)
    source.resume([partition])
    joined: Batch | None = None
    while not (poll := source.poll(0.01)).finished:
        for batch in poll.batches:
            if joined is None:
                joined = batch
                continue
            for column in ("offsets", "timestamps", "keys", "values", "headers"):
                getattr(joined, column).extend(getattr(batch, column))
            joined.next_offset = batch.next_offset
    source.close(leave=False, timeout_s=1.0)
    return [joined] if joined else []


@pytest.mark.parametrize(
    ("content", "values", "offsets"),
    [
        (b"", [], []),
        (b"\n\n \n", [], []),
        (b"{1}", [b"{1}"], [0]),
        (b"{1}\n\n  \n{2}\r\n{3}", [b"{1}", b"{2}", b"{3}"], [0, 8, 13]),
        (b"\xef\xbb\xbf{1}\n{2}\n", [b"{1}", b"{2}"], [0, 7]),
        (b"\xff\xfe\n\x00\n", [b"\xff\xfe", b"\x00"], [0, 3]),
    ],
)
def test_json_lines(tmp_path: Path, content: bytes, values: list[bytes], offsets: list[int]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    found = records(path)
    assert [value for one in found for value in one.values] == values
    assert [offset for one in found for offset in one.offsets] == offsets
    assert [one.next_offset for one in found] == [len(content)] * len(found)


def test_a_seek_into_a_line_goes_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{1}\n{2}\n{3}\n")
    for position, first in [(0, 0), (1, 4), (3, 4), (4, 4), (5, 8), (8, 8), (9, None), (12, None)]:
        found = records(path, position)
        assert (found[0].offsets[0] if found else None) == first


# CSV

BAD = "kstream.csv.error"


def csv_records(path: Path, content: str | bytes, **options: Any) -> list[tuple[bytes | None, object, str | None]]:
    """(key, decoded value or raw bytes, error) of each row."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    found = []
    for batch in records(path, format="csv", **options):
        for key, value, headers in zip(batch.keys, batch.values, batch.headers, strict=True):
            error = dict(headers).get(BAD)
            assert value is not None
            found.append((key, value if error else json.loads(value), error.decode() if error else None))
    return found


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1", "1"),
        ("-1.50", "-1.50"),
        ("1e5", "1e5"),
        ("1.E-3", "1.0E-3"),
        ("+.5", "0.5"),
        ("-5.", "-5.0"),
        (" 7 ", "7"),
        ('"8"', "8"),
        ("0", "0"),
        ("0.0", "0.0"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("", "null"),
        ('""', "null"),
        ("007", '"007"'),
        ("nan", '"nan"'),
        ("inf", '"inf"'),
        ("-", '"-"'),
        (".", '"."'),
        ("1_000", '"1_000"'),
        ("1 2", '"1 2"'),
        ("0x10", '"0x10"'),
        ("٣", '"٣"'),
        ("true", '"true"'),
        (" text ", '" text "'),
        ('"a,""b"""', '"a,\\"b\\""'),
        ('"two\nlines"', '"two\\nlines"'),
    ],
)
def test_cells(tmp_path: Path, cell: str, value: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"x,y\n{cell},1\n")
    (batch,) = records(path, format="csv")
    assert batch.values == [f'{{"x":{value},"y":1}}'.encode()]


def test_the_key_column_gives_the_record_key(tmp_path: Path) -> None:
    found = csv_records(tmp_path / "a.csv", "\ufeffdevice,x\n017,1\n,2\nü,3\n", key_column="device")
    assert found == [
        (b"017", {"device": "017", "x": 1}, None),
        (None, {"device": None, "x": 2}, None),
        ("ü".encode(), {"device": "ü", "x": 3}, None),
    ]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (b"1", "1 cells, but the first row has 2"),
        (b"1,2,3", "3 cells, but the first row has 2"),
        (b'"a"b,2', "',' expected after '\"'"),
        (b'1,"open', "',' expected after '\"'"),
        (b"\xff,2", "not UTF-8"),
        (b"1\r2,3", "new-line character seen in unquoted field"),
        (b'{"x":1}', "1 cells, but the first row has 2"),
        (b"9" * 60 + b",1", "line longer than 50 bytes"),
    ],
)
def test_a_bad_row_is_refused_alone(tmp_path: Path, bad: bytes, error: str) -> None:
    content = b"x,y\n1,2\n" + bad + b'\n3,4\n"5",6\n'
    found = csv_records(tmp_path / "a.csv", content, max_record_bytes=50)
    assert [value for _, value, reason in found if reason is None] == [
        {"x": 1, "y": 2},
        {"x": 3, "y": 4},
        {"x": 5, "y": 6},
    ]
    ((_, raw, reason),) = [one for one in found if one[2] is not None]
    assert reason is not None
    assert error in reason
    assert raw == {b'{"x":1}': b'"{\\"x\\":1}"'}.get(bad, bad[:51])


def test_a_quote_that_is_never_closed_costs_one_line(tmp_path: Path) -> None:
    found = csv_records(tmp_path / "a.csv", 'x,y\n1,2\n3,"4\n5,6\n7,8\n')
    assert found[1] == (None, b'3,"4', "a quote is not closed before the end of the file")
    assert [one[1] for one in found[2:]] == [{"x": 5, "y": 6}, {"x": 7, "y": 8}]
    many = "x,y\n" + '3,"4\n' + "5,6\n" * 100
    found = csv_records(tmp_path / "b.csv", many, max_record_bytes=50)
    assert found[0] == (None, b'3,"4', "a quote is not closed within 50 bytes")
    assert [one[1] for one in found[1:]] == [{"x": 5, "y": 6}] * 100


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("x,x", "must be present and differ"),
        ("x,", "must be present and differ"),
        ('"x', "must name the columns"),
        ("x" * 100, "the first row has 100 bytes, over the limit of 50"),
        ("x,y", "no column 'device' for the key; the first row has x, y"),
    ],
)
def test_headers_that_are_none(tmp_path: Path, header: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n1,2\n")
    bus = files_bus([path], tmp_path / "out", format="csv", key_column="device", max_record_bytes=50)
    source = bus.source()
    with pytest.raises(ConfigError, match=rf"a\.csv: .*{message}"):
        source.start()
    source.close(leave=False, timeout_s=1.0)


cells = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers().map(str),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00"), max_size=8),
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(cells, cells, cells), max_size=8), st.integers(1, 30), st.booleans())
def test_what_the_csv_module_writes_comes_back(rows: list[tuple[str, str, str]], cut: int, quote: bool) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL if quote else csv.QUOTE_MINIMAL, lineterminator="\n")
    writer.writerows(rows)
    content = buffer.getvalue().encode()
    reader = LineReader(Chopped(content, [cut]), 0, 1 << 20, aligned=True)
    parser = RowParser(b"a,b,c", "test", None, 1 << 20, 0)
    pending: list[Line] = []
    found = []
    while not (reader.at_end and reader.is_empty and not pending):
        pending += reader.take(2)
        parsed = parser.parse(pending, at_end=reader.at_end and reader.is_empty)
        found += parsed.rows
        pending = parsed.rest
    assert [one.error for one in found] == [None] * len(rows)
    for row, expected in zip(found, rows, strict=True):
        for value, cell in zip(json.loads(row.value).values(), expected, strict=True):
            assert value == (cell or None) if isinstance(value, str | None) else float(value) == float(cell)


# Output lines

some_bytes = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=10).map(str.encode))
some_json = st.dictionaries(
    st.sampled_from(["key", "key_b64", "record", "n"]), st.one_of(st.text(max_size=5), st.integers())
)
some_values = st.one_of(some_bytes, some_json.map(lambda one: json.dumps(one, ensure_ascii=False).encode()))
some_headers = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=2).map(tuple)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(some_bytes, some_values, st.integers(-1, 1 << 40), some_headers)
def test_every_record_comes_back_from_its_line(
    key: bytes | None, value: bytes | None, timestamp: int, headers: tuple[tuple[str, bytes], ...]
) -> None:
    line = encode_line(key, value, timestamp, headers)
    assert b"\n" not in line
    assert isinstance(json.loads(line), dict)
    found = decode_line(line)
    assert found[:2] == (key, value)
    assert found.headers == headers
    assert found.timestamp in (timestamp, None)
    named = json.loads(name_output(line, 'a "topic"'))
    assert named == {"output": 'a "topic"', **json.loads(line)}


def test_payloads_that_name_their_key_stay_as_they_are() -> None:
    for key, value in [(b"k", b'{"key":"k","n":1}'), (b"\xff", b'{"key_b64":"/w=="}'), (None, b'{"n":1}')]:
        assert encode_line(key, value, 7, ()) == value
    assert json.loads(encode_line(b"k", b"\xff", 7, (("why", b"broken"),))) == {
        "record": {"key": "k", "value_b64": "/w==", "timestamp": 7, "headers": [{"name": "why", "value": "broken"}]}
    }
