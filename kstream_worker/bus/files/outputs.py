"""Where lines go: files that are cut back to what is committed, or standard output."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from kstream_worker.bus.files.envelope import name_output
from kstream_worker.bus.files.store import Store
from kstream_worker.errors import ConfigError, Fatal

SUFFIX = ".jsonl"
_topic_name = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Outputs(Protocol):
    """Takes the lines of a commit; they count only once the store has recorded the lengths that `append` returns."""

    def start(self) -> None:
        """Bring the outputs to what is committed."""
        ...

    def append(self, lines: Mapping[str, list[bytes]], timeout_s: float) -> dict[str, int]:
        """Write lines by topic and make them durable; the new lengths by topic."""
        ...

    def accept(self, lengths: Mapping[str, int]) -> None:
        """These lengths are committed now."""
        ...

    def cut_back(self) -> None:
        """Remove what was appended and not accepted."""
        ...

    def close(self) -> None:
        """Stop."""
        ...


class OutputFiles:
    """One JSON Lines file per topic in the store's folder."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._files: dict[str, int] = {}
        self._lengths: dict[str, int] = {}

    def start(self) -> None:
        """Cut every file back to its committed length.

        Raises:
            Fatal: a file is shorter than what was committed, or cannot be written.
        """
        self._lengths = self._store.lengths()
        for topic, length in self._lengths.items():
            self._recover(topic, length)

    def append(self, lines: Mapping[str, list[bytes]], timeout_s: float) -> dict[str, int]:
        """Write behind the committed lengths, sync, and return the lengths that may be committed.

        Raises:
            Retry: another process holds the database for longer than `timeout_s`.
            Fatal: a disk is full or a file cannot be written; it is cut back, nothing committed is lost.
            ConfigError: a topic is no file name, or its file is somebody else's.
        """
        for topic in lines:
            self._ensure(topic, timeout_s)
        try:
            self._cut_back()
            for topic, content in lines.items():
                _write_at(self._files[topic], b"\n".join((*content, b"")), self._lengths[topic])
            for topic in lines:
                os.fsync(self._files[topic])
        except OSError as error:
            self.cut_back()
            raise Fatal(
                f"output folder '{self._folder}' cannot be written: {error.strerror}. Nothing is lost: free space or "
                "repair it and start again, work continues after the last commit"
            ) from error
        return {topic: self._lengths[topic] + sum(map(len, content)) + len(content) for topic, content in lines.items()}

    def accept(self, lengths: Mapping[str, int]) -> None:
        """These lengths are committed now."""
        self._lengths.update(lengths)

    def cut_back(self) -> None:
        """Remove what was appended and not accepted; where that fails, the next call of `append` or start does it."""
        with suppress(OSError):
            self._cut_back()

    def close(self) -> None:
        """Close; what was not committed is cut off at the next start."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _path(self, topic: str) -> Path:
        return self._folder / f"{topic}{SUFFIX}"

    def _recover(self, topic: str, length: int) -> None:
        path = self._path(topic)
        size = path.stat().st_size if path.exists() else 0
        if size < length:
            raise Fatal(
                f"output file '{path}' has {size} bytes, but {length} were committed: it was cut or removed. "
                f"Restore it, or {self._store.remedy}"
            )
        file = self._open(topic)
        os.ftruncate(file, length)
        os.fsync(file)

    def _ensure(self, topic: str, timeout_s: float) -> None:
        if topic in self._files:
            return
        path = self._path(topic)
        if not _topic_name.fullmatch(topic):
            raise ConfigError(f"topic '{topic}' cannot name an output file: use letters, digits, '.', '_' and '-'")
        if any(one.path == str(path.resolve()) for one in self._store.inputs.values()):
            raise ConfigError(f"'{path}' is an input and the output of topic '{topic}': choose another output folder")
        if path.exists() and path.stat().st_size > 0:
            raise ConfigError(f"'{path}' is not from this worker: move it away, or choose another output folder")
        self._store.add_output(topic, timeout_s)
        self._lengths[topic] = 0
        self._open(topic)
        _sync_folder(self._folder)

    def _open(self, topic: str) -> int:
        try:
            self._files[topic] = os.open(self._path(topic), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise Fatal(
                f"output file '{self._path(topic)}' cannot be written: {error.strerror}; "
                "correct its rights and start again, nothing is lost"
            ) from error
        return self._files[topic]

    def _cut_back(self) -> None:
        """Remove what an earlier call has appended and nobody has committed."""
        for topic, file in self._files.items():
            if os.fstat(file).st_size > self._lengths[topic]:
                os.ftruncate(file, self._lengths[topic])


class StandardOutput:
    """All topics on one stream, each line with its topic in the first field `output`; at-least-once."""

    def start(self) -> None:
        """Nothing can be brought back."""

    def append(self, lines: Mapping[str, list[bytes]], timeout_s: float) -> dict[str, int]:
        """Write and flush; a reader that is slow is waited for, whatever the timeout.

        Raises:
            Fatal: the stream is closed or full.
        """
        del timeout_s  # a part of a line must never be left behind
        content = b"".join(name_output(line, topic) + b"\n" for topic, found in lines.items() for line in found)
        try:
            sys.stdout.flush()
            _write(sys.stdout.fileno(), content)
        except OSError as error:
            raise Fatal(
                f"standard output cannot be written: {error.strerror}; keep its reader running until the end"
            ) from error
        return {}

    def accept(self, lengths: Mapping[str, int]) -> None:
        """Streams have no committed length."""

    def cut_back(self) -> None:
        """What is written stays written."""

    def close(self) -> None:
        """The stream is not ours to close."""


def _write(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


def _write_at(file: int, content: bytes, position: int) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(file, rest, position)
        rest, position = rest[written:], position + written


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
