"""Records of one input from a position on: JSON Lines as they are, CSV rows as JSON objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kstream_worker.bus.files.inputs import Input
from kstream_worker.bus.files.lines import TRUNCATED_BYTES, TRUNCATED_SHA256, Line, LineReader
from kstream_worker.bus.files.rows import CSV_ERROR, Row, RowParser
from kstream_worker.errors import ConfigError
from kstream_worker.records import Headers

Format = Literal["jsonl", "csv"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How inputs are read."""

    format: Format
    key_column: str | None
    max_record_bytes: int


@dataclass(slots=True)
class Records:
    """Columns of equal length."""

    offsets: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)

    def add(self, offset: int, key: bytes | None, value: bytes, headers: Headers = ()) -> None:
        """Append one record."""
        self.offsets.append(offset)
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)


class RecordReader:
    """Reads one input. Blank lines are skipped and counted in `blank`.

    Args:
        source: the open input.
        position: the first record returned starts at this byte or after it.
        options: how to read.

    Raises:
        ConfigError: the first row of a CSV file is no usable header.
    """

    def __init__(self, source: Input, position: int, options: ReadOptions) -> None:
        self._source = source
        self._options = options
        self._from = position
        start = source.base if source.is_stream else position
        aligned = source.is_stream or position == 0
        self._lines = LineReader(source, start, options.max_record_bytes, aligned=aligned)
        self._rest: list[Line] = []
        self._parser: RowParser | None = None
        self.blank = 0
        if options.format == "csv" and not source.is_stream:
            self._find_header(LineReader(source, 0, options.max_record_bytes, aligned=True))

    @property
    def position(self) -> int:
        """Where to read on after the records taken."""
        return max(self._from, self._rest[0].offset if self._rest else self._lines.position)

    @property
    def finished(self) -> bool:
        """Whether the input has ended and all of it was taken."""
        return self._lines.at_end and not self._rest and self._lines.is_empty

    def seek(self, position: int) -> bool:
        """Skip forward on a stream; False when that is behind what was read."""
        if position < self.position:
            return False
        self._from = position
        return True

    def take(self, limit: int) -> Records:
        """At most `limit` lines as records; fewer, or none, when that is all there is now."""
        if self._options.format == "jsonl":
            return self._from_lines(self._lines.take(limit))
        if self._parser is None and not self._find_header(self._lines):
            return Records()
        return self._from_rows(self._lines.take(limit))

    def _from_lines(self, lines: list[Line]) -> Records:
        found = Records()
        for line in lines:
            content = line.content if line.offset else line.content.removeprefix(_BYTE_ORDER_MARK)
            if not content or content.isspace():
                self.blank += 1
            elif line.offset >= self._from:
                found.add(line.offset, None, content, _cut_headers(line))
        return found

    def _from_rows(self, lines: list[Line]) -> Records:
        if self._parser is None:
            return Records()
        pending = self._rest + [line for line in lines if line.offset >= self._parser.begins_at]
        parsed = self._parser.parse(pending, at_end=self._lines.at_end and self._lines.is_empty)
        self._rest = parsed.rest
        self.blank += parsed.blank
        cut = {line.offset: _cut_headers(line) for line in pending if line.cut is not None}
        found = Records()
        for row in parsed.rows:
            if row.offset >= self._from:
                found.add(row.offset, row.key, row.value, _row_headers(row, cut.get(row.offset, ())))
        return found

    def _find_header(self, lines: LineReader) -> bool:
        """Read the first line that is not blank; False while there is none."""
        while self._parser is None and (found := lines.take(1)):
            self._parser = self._header(found[0])
        return self._parser is not None

    def _header(self, line: Line) -> RowParser | None:
        content = line.content.removeprefix(_BYTE_ORDER_MARK)
        if line.cut is not None:
            raise ConfigError(
                f"{self._source.name}: the first row has {line.cut[0]} bytes, over the limit of "
                f"{self._options.max_record_bytes}; is this a CSV file?"
            )
        if not content.strip():
            return None
        options = self._options
        return RowParser(content, self._source.name, options.key_column, options.max_record_bytes, line.end)


def _cut_headers(line: Line) -> Headers:
    if line.cut is None:
        return ()
    length, digest = line.cut
    return ((TRUNCATED_BYTES, str(length).encode()), (TRUNCATED_SHA256, digest.encode()))


def _row_headers(row: Row, cut: Headers) -> Headers:
    return cut if row.error is None else (*cut, (CSV_ERROR, row.error.encode()))
