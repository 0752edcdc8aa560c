"""The file that state is exported to: JSON Lines, readable with the tools of the trade, checked as a whole.

    {"type": "state", "format": 1, ...}        one: what is exported, from where
    {"type": "partition", "partition": 0, ...} per partition: its header, and what it says, for people
    {"type": "snapshot", "partition": 0, ...}  per key: key and value of its record; they follow their partition
    {"type": "end", "snapshots": 7, "sha256": "..."}   one: counts, and the SHA-256 of all bytes before this line

Keys, headers and values are the bytes of the state topic (`state.format`), in base64. A file without its last line was
cut.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec

from kstream_worker.errors import Fatal
from kstream_worker.state.format import CorruptState, Header, decode_header

FORMAT = 1
_MAX_LINE_BYTES = 128 * 2**20


class About(msgspec.Struct, tag_field="type", tag="state", frozen=True, kw_only=True):
    """What is exported.

    Attributes:
        format: of the file.
        release: of the program.
        app_id: `app.id`.
        topic: the input.
        state_topic: of the state.
        cluster_id: of the bus.
        topic_id: of the input topic; empty when unknown.
        partitions: of the state topic.
    """

    format: int
    release: str
    app_id: str
    topic: str
    state_topic: str
    cluster_id: str
    topic_id: str
    partitions: int


class PartitionLine(msgspec.Struct, tag_field="type", tag="partition", frozen=True, kw_only=True):
    """A partition; `header` is what counts, the rest is what it says.

    Attributes:
        partition: its number.
        header: value of the header's record.
        offset: committed input offset.
        replay_from: input offset from which records are to be read again.
        keys: number of snapshots that follow.
    """

    partition: int
    header: bytes
    offset: int
    replay_from: int
    keys: int


class SnapshotLine(msgspec.Struct, tag_field="type", tag="snapshot", frozen=True, kw_only=True):
    """A key: of the input, and the value of its snapshot's record."""

    partition: int
    key: bytes
    value: bytes


class EndLine(msgspec.Struct, tag_field="type", tag="end", frozen=True, kw_only=True):
    """The last line."""

    partitions: int
    snapshots: int
    sha256: str


Line = About | PartitionLine | SnapshotLine | EndLine

_decoder = msgspec.json.Decoder(Line)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds, checked as a whole.

    Attributes:
        path: of the file.
        about: its first line.
        headers: by partition.
        keys: number of snapshots, by partition.
    """

    path: Path
    about: About
    headers: dict[int, Header] = field(default_factory=dict)
    keys: dict[int, int] = field(default_factory=dict)


class ArchiveWriter:
    """Writes lines, and keeps count of them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.partitions = 0
        self.snapshots = 0

    def write(self, line: About | PartitionLine | SnapshotLine) -> None:
        """One line."""
        self.partitions += isinstance(line, PartitionLine)
        self.snapshots += isinstance(line, SnapshotLine)
        text = msgspec.json.encode(line) + b"\n"
        self._hash.update(text)
        self._file.write(text)

    def finish(self) -> None:
        """The last line."""
        end = EndLine(partitions=self.partitions, snapshots=self.snapshots, sha256=self._hash.hexdigest())
        self._file.write(msgspec.json.encode(end) + b"\n")


@contextmanager
def writing(path: Path) -> Iterator[ArchiveWriter]:
    """Write a file that has its name only once it is whole.

    Raises:
        Fatal: it is there already, or cannot be written.
    """
    if path.exists():
        raise Fatal(f"{path} is there already: name another file, or move it away")
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            writer = ArchiveWriter(file)
            yield writer
            writer.finish()
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        raise Fatal(f"{path} cannot be written: {error.strerror or error}. Free space, or name another file") from error
    finally:
        part.unlink(missing_ok=True)


def check(path: Path) -> Contents:
    """Read a file to its end, and see that it is whole.

    Raises:
        Fatal: it cannot be read, is no export, of a later format, cut, damaged, or holds no partition.
    """
    lines = _lines(path)
    number, text = next(lines, (1, b""))
    contents = Contents(path, _about(path, text))
    hashed = hashlib.sha256(text)
    for number, text in lines:
        line = _parse(path, number, text)
        if isinstance(line, EndLine):
            _check_end(contents, line, hashed.hexdigest(), more=next(lines, None) is not None)
            if not contents.headers:
                raise Fatal(f"{path} holds no partition: nothing had been committed where it was made")
            return contents
        hashed.update(text)
        _count(contents, number, line)
    raise Fatal(f"{path} is cut: its last line is missing. Export again")


def snapshots(path: Path) -> Iterator[SnapshotLine]:
    """The snapshots of a file that was checked, in its order."""
    for number, text in _lines(path):
        line = _parse(path, number, text)
        if isinstance(line, SnapshotLine):
            yield line


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            number = 0
            while text := file.readline(_MAX_LINE_BYTES):
                number += 1
                yield number, text
    except OSError as error:
        raise Fatal(f"{path} cannot be read: {error.strerror or error}") from error


def _about(path: Path, text: bytes) -> About:
    try:
        found = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = {}
    if found.get("type") != "state":
        raise Fatal(f"{path} is no export of state: it does not begin with a line of type `state`")
    if found.get("format") != FORMAT:
        raise Fatal(f"{path} has format {found.get('format')!r}, this release reads {FORMAT}: run a newer one")
    line = _parse(path, 1, text)
    if not isinstance(line, About):
        raise Fatal(f"{path} is no export of state")
    return line


def _parse(path: Path, number: int, text: bytes) -> Line:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise Fatal(f"{path} is damaged in line {number}: {error}. Export again") from error


def _count(contents: Contents, number: int, line: Line) -> None:
    if isinstance(line, PartitionLine):
        try:
            contents.headers[line.partition] = decode_header(line.header)
        except CorruptState as error:
            raise Fatal(f"{contents.path}: the header in line {number} cannot be used: {error}") from error
        contents.keys[line.partition] = 0
    elif isinstance(line, SnapshotLine) and line.partition in contents.keys:
        contents.keys[line.partition] += 1
    else:
        raise Fatal(f"{contents.path} is damaged: line {number} is out of place. Export again")


def _check_end(contents: Contents, line: EndLine, sha256: str, *, more: bool) -> None:
    counted = (len(contents.headers), sum(contents.keys.values()))
    if more or (line.partitions, line.snapshots) != counted or line.sha256 != sha256:
        raise Fatal(f"{contents.path} is damaged: its lines are not those that its last line was made of. Export again")
