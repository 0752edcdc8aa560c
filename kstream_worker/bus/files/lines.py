"""Lines of a file or stream with the byte offsets at which they start, in bounded memory."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import NamedTuple, Protocol

CHUNK_BYTES = 1 << 18
CHUNKS_PER_READ = 64  # while the end of an over-long line is looked for: 16 MiB a call, so that a poll stays short

TRUNCATED_BYTES = "kstream.truncated.bytes"
TRUNCATED_SHA256 = "kstream.truncated.sha256"


class Chunks(Protocol):
    """Bytes in order: from a file at a position, or from a stream."""

    def read(self, position: int, size: int) -> bytes | None:
        """At most `size` bytes; empty at the end, None when there are none yet."""
        ...


class Line(NamedTuple):
    """A line without its end.

    Attributes:
        offset: of its first byte.
        end: of the first byte after its line end.
        content: the bytes, cut to one more than the limit when the line is longer than that.
        cut: for a cut line the length and SHA-256 of the whole.
    """

    offset: int
    end: int
    content: bytes
    cut: tuple[int, str] | None = None


class _LongLine:
    """A line over the limit, of which only the head is kept."""

    def __init__(self, offset: int, keep: int) -> None:
        self.offset = offset
        self._keep = keep
        self._head = b""
        self._length = 0
        self._digest = hashlib.sha256()

    def add(self, part: bytes) -> None:
        self._head += part[: self._keep - len(self._head)]
        self._length += len(part)
        self._digest.update(part)

    def line(self, end: int) -> Line:
        return Line(self.offset, end, self._head, (self._length, self._digest.hexdigest()))


class LineReader:
    """Reads on from a position; a position inside a line is moved to the start of the next one.

    Args:
        chunks: where bytes come from.
        position: byte offset to start from.
        max_line_bytes: longer lines are cut to one byte more than this.
        aligned: `position` is known to be the start of a line.
    """

    def __init__(self, chunks: Chunks, position: int, max_line_bytes: int, *, aligned: bool) -> None:
        self._chunks = chunks
        self._max = max_line_bytes
        self._start = position if aligned else position - 1  # the byte before tells whether a line starts here
        self._align = not aligned
        self._tail = b""
        self._long: _LongLine | None = None
        self._lines: deque[Line] = deque()
        self.at_end = False

    @property
    def position(self) -> int:
        """Where the first line that was not taken yet starts."""
        if self._lines:
            return self._lines[0].offset
        return self._long.offset if self._long else self._start

    @property
    def is_empty(self) -> bool:
        """Whether all lines read so far were taken."""
        return not self._lines and self._long is None and not self._tail

    def take(self, limit: int) -> list[Line]:
        """At most `limit` lines; fewer, or none, when that is all there is now."""
        for _ in range(CHUNKS_PER_READ):
            if self._lines or not self._fill():
                break
        return [self._lines.popleft() for _ in range(min(limit, len(self._lines)))]

    def _read_position(self) -> int:
        return self._start + len(self._tail)

    def _fill(self) -> bool:
        """Read one chunk and split it; False when nothing more comes now."""
        chunk = self._chunks.read(self._read_position(), CHUNK_BYTES)
        self.at_end = chunk == b""
        if chunk is None:
            return False
        if not chunk:
            self._finish()
            return False
        parts = (self._tail + chunk).split(b"\n")
        self._tail = parts.pop()
        for part in parts:
            self._end_line(part, self._start + len(part) + 1)
        self._bound_tail()
        return True

    def _end_line(self, part: bytes, end: int) -> None:
        offset, self._start = self._start, end
        if self._align:
            self._align = False
        elif self._long is not None:
            self._long.add(part)
            self._lines.append(self._long.line(end))
            self._long = None
        elif len(part) > self._max + 1:  # one more for a carriage return
            self._lines.append(_cut(offset, end, part, self._max + 1))
        else:
            self._lines.append(Line(offset, end, part.removesuffix(b"\r")))

    def _bound_tail(self) -> None:
        """Move an unfinished line that is over the limit out of memory."""
        if len(self._tail) <= self._max + 1:
            return
        if not self._align:
            self._long = self._long or _LongLine(self._start, self._max + 1)
            self._long.add(self._tail)
        self._start += len(self._tail)
        self._tail = b""

    def _finish(self) -> None:
        """At the end of the input an unfinished line counts as a whole one."""
        if self._tail or self._long is not None:
            tail, self._tail = self._tail, b""
            self._end_line(tail, self._start + len(tail))


def _cut(offset: int, end: int, content: bytes, keep: int) -> Line:
    long = _LongLine(offset, keep)
    long.add(content)
    return long.line(end)
