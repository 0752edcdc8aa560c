"""CSV (RFC 4180) to JSON objects, a row at a time; columns never shift silently.

The first row names the columns. A cell that is written as a number stays that number, digit for digit, quoted or not;
an empty cell is null; everything else is text, also numbers with leading zeros (identifiers), `nan` and `inf`. A row is
refused, as the raw line with the reason in a header, when it has another number of cells than the first row, when its
quotes do not balance or do not enclose whole cells, or when it is not UTF-8. Reading goes on with the next line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from kstream_worker.bus.files.lines import Line
from kstream_worker.errors import ConfigError

CSV_ERROR = "kstream.csv.error"

_encode_text = msgspec.json.Encoder().encode
_number = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?([eE][+-]?\d+)?")


class Row(NamedTuple):
    """A row as a JSON object, or (with an error) the line as it is.

    Attributes:
        offset: of the row's first byte.
        end: of the first byte after its line end.
        key: bytes of the key column, None without one or when the cell is empty.
        value: the JSON object, or the raw line.
        error: why the row was refused, None otherwise.
    """

    offset: int
    end: int
    key: bytes | None
    value: bytes
    error: str | None = None


class Rows(NamedTuple):
    """Rows found in some lines, the lines that belong to a row that is not complete yet, and how many were blank."""

    rows: list[Row]
    rest: list[Line]
    blank: int


class _Cells(NamedTuple):
    cells: list[str]
    lines: int
    error: str | None = None


class RowParser:
    """Turns lines into rows of one CSV file.

    Args:
        header: the line with the names of the columns.
        source: the file, for messages.
        key_column: name of the column that gives the record key; None for null keys.
        max_record_bytes: longest row; a row that is longer is refused.
        begins_at: offset of the first byte after the header.

    Raises:
        ConfigError: the first row is no usable header, or has no such column.
    """

    def __init__(
        self, header: bytes, source: str, key_column: str | None, max_record_bytes: int, begins_at: int
    ) -> None:
        self.begins_at = begins_at
        self._max_bytes = max_record_bytes
        self.columns = _header(header, source)
        self._names = [_encode_text(name) + b":" for name in self.columns]
        if key_column is not None and key_column not in self.columns:
            raise ConfigError(
                f"{source}: no column '{key_column}' for the key; the first row has {', '.join(self.columns)}"
            )
        self._key = None if key_column is None else self.columns.index(key_column)

    def parse(self, lines: Sequence[Line], *, at_end: bool) -> Rows:
        """All rows that are complete; at the end of the input every line belongs to one."""
        rows: list[Row] = []
        blank = index = 0
        while index < len(lines):
            line = lines[index]
            if not line.content.strip():
                blank, index = blank + 1, index + 1
                continue
            found = self._cells(lines, index, at_end=at_end)
            if found is None:
                return Rows(rows, list(lines[index:]), blank)
            rows.append(self._row(found, line, lines[index + found.lines - 1].end))
            index += found.lines
        return Rows(rows, [], blank)

    def _cells(self, lines: Sequence[Line], index: int, *, at_end: bool) -> _Cells | None:
        """The cells of the row that starts at a line; None when its end is not here yet."""
        line = lines[index]
        if line.cut is not None:
            return _Cells([], 1, f"line longer than {self._max_bytes} bytes")
        try:
            found = _split(lines, index, self._max_bytes)
        except (UnicodeDecodeError, csv.Error) as error:
            return _Cells([], 1, "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error))
        if found is None:
            return _Cells([], 1, "a quote is not closed before the end of the file") if at_end else None
        if found.error is None and len(found.cells) != len(self.columns):
            return _Cells([], 1, f"{len(found.cells)} cells, but the first row has {len(self.columns)}")
        return found

    def _row(self, found: _Cells, line: Line, end: int) -> Row:
        if found.error is not None:
            return Row(line.offset, end, None, _never_an_object(line.content), found.error)
        pairs = (name + _cell(cell) for name, cell in zip(self._names, found.cells, strict=True))
        key = found.cells[self._key].encode() if self._key is not None else b""
        return Row(line.offset, end, key or None, b"{" + b",".join(pairs) + b"}")


def _split(lines: Sequence[Line], index: int, max_bytes: int) -> _Cells | None:
    content = lines[index].content
    if b'"' not in content and b"\r" not in content:
        return _Cells(content.decode().split(","), 1)
    feed = _Feed(lines, index, max_bytes)
    reader = csv.reader(feed, strict=True)
    try:
        cells = next(reader)
    except csv.Error:
        if feed.exhausted:
            return None
        if feed.too_long:
            return _Cells([], 1, f"a quote is not closed within {max_bytes} bytes")
        raise
    return _Cells(cells, reader.line_num)


class _Feed(Iterator[str]):
    """Hands lines to the csv module, which takes as many as the quotes of one row ask for."""

    def __init__(self, lines: Sequence[Line], index: int, max_bytes: int) -> None:
        self._lines = lines
        self._first = self._next = index
        self._left = max_bytes
        self.exhausted = False
        self.too_long = False

    def __next__(self) -> str:
        if self._next == len(self._lines):
            self.exhausted = True
            raise StopIteration
        line = self._lines[self._next]
        self._left -= line.end - line.offset
        if line.cut is not None or (self._left < 0 and self._next > self._first):
            self.too_long = True
            raise StopIteration
        self._next += 1
        return line.content.decode() + "\n"


def _header(content: bytes, source: str) -> list[str]:
    try:
        columns = next(csv.reader([content.decode()], strict=True))
    except (UnicodeDecodeError, csv.Error, StopIteration) as error:
        raise ConfigError(f"{source}: the first row must name the columns ({error})") from error
    columns = [name.strip() for name in columns]
    if "" in columns or len(set(columns)) < len(columns):
        raise ConfigError(f"{source}: the names in the first row must be present and differ: {', '.join(columns)}")
    return columns


def _cell(cell: str) -> bytes:
    if not cell:
        return b"null"
    text = cell.strip()
    if text and (text[0].isdigit() or text[0] in "+-.") and text.isascii():
        number = _json_number(text)
        if number is not None:
            return number
    return _encode_text(cell)


def _json_number(text: str) -> bytes | None:
    """The number as JSON writes it (`+.5` is `0.5`), None when the text is none or has leading zeros."""
    match = _number.fullmatch(text)
    if match is None:
        return None
    sign, whole, fraction, exponent = match.groups()
    if not (whole or fraction) or (len(whole) > 1 and whole[0] == "0"):
        return None
    decimals = f".{fraction or '0'}" if fraction is not None else ""
    return f"{'-' if sign == '-' else ''}{whole or '0'}{decimals}{exponent or ''}".encode()


def _never_an_object(content: bytes) -> bytes:
    """A refused line that happens to be a JSON object must not be taken for a record."""
    try:
        msgspec.json.decode(content, type=dict)
    except ValueError:
        return content
    return _encode_text(content.decode())
