"""Input files and streams: which there are, how they are read, whether a file is still the one read before."""

from __future__ import annotations

import glob
import hashlib
import os
import select
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from kstream_worker.errors import ConfigError, Fatal

STDIN = "-"
SUFFIXES = {"jsonl": (".jsonl", ".ndjson"), "csv": (".csv",)}
FINGERPRINT_BYTES = 4096


class Input:
    """One file or stream. A stream (pipe, terminal) cannot be read twice: its offsets count on from `base`.

    Args:
        path: the resolved path, `-` for standard input.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.base = 0
        self._fd = -1
        self._stream = path == STDIN

    @property
    def name(self) -> str:
        """For messages."""
        return "standard input" if self.path == STDIN else self.path

    @property
    def is_stream(self) -> bool:
        """Whether it can be read only once."""
        path = Path(self.path)
        return self._stream or (path.exists() and not path.is_file())

    def open(self) -> None:
        """Open it for reading; once.

        Raises:
            ConfigError: it cannot be read.
        """
        if self._fd >= 0:
            return
        self._stream = self.is_stream
        try:
            self._fd = os.dup(sys.stdin.fileno()) if self.path == STDIN else os.open(self.path, os.O_RDONLY)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.name} cannot be read: {_reason(error)}") from error

    def close(self) -> None:
        """Close it."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def size(self) -> int:
        """Bytes of a file now."""
        return os.fstat(self._fd).st_size if self._fd >= 0 else Path(self.path).stat().st_size

    def read(self, position: int, size: int) -> bytes | None:
        """At most `size` bytes at a position; empty at the end, None when a stream has none yet.

        Raises:
            Fatal: the file is shorter than `position`, or reading failed.
        """
        try:
            if self._stream:
                return os.read(self._fd, size) if wait_for([self], 0) else None
            content = os.pread(self._fd, size, position)
        except OSError as error:
            raise Fatal(f"{self.name} cannot be read any more: {_reason(error)}; repair it and start again") from error
        if not content and position > self.size():
            raise Fatal(f"{self.name} became shorter while it was read; restore it and start again")
        return content

    def fileno(self) -> int:
        """The open file."""
        return self._fd

    def fingerprint(self, position: int) -> str:
        """What tells the part of a file before `position` from another: a hash of its first and last bytes."""
        if self._stream:
            return ""
        head = os.pread(self._fd, min(position, FINGERPRINT_BYTES), 0)
        tail_start = max(0, position - FINGERPRINT_BYTES)
        tail = os.pread(self._fd, position - tail_start, tail_start)
        return hashlib.sha256(head + tail).hexdigest()

    def check_read_before(self, position: int, fingerprint: str, remedy: str) -> None:
        """Make sure that the file still begins with what was read of it.

        Raises:
            Fatal: it is shorter, has other content, or its last line was read before it was complete.
        """
        if self._stream or position == 0:
            return
        if self.size() < position:
            raise Fatal(
                f"{self.name} has {self.size()} bytes, but {position} were read of it before: it was cut or "
                f"replaced. Restore it, or {remedy}"
            )
        if self.fingerprint(position) != fingerprint:
            raise Fatal(
                f"{self.name} is not the file that was read before: its first {position} bytes differ. "
                f"Restore it, or give the new file another name, or {remedy}"
            )
        edge = os.pread(self._fd, 2, position - 1)
        if len(edge) == 2 and b"\n" not in edge and b"\r" not in edge:
            raise Fatal(
                f"{self.name}: the line that ends at byte {position} was read before it was complete. "
                f"Append whole lines only; undo the change, or {remedy}"
            )


def expand_inputs(inputs: Sequence[str | Path] | str, file_format: str) -> list[Input]:
    """The inputs that paths, folders and patterns stand for, in sorted order.

    Args:
        inputs: `-` for standard input, else files, folders (their files with the suffix of the format), or patterns.
        file_format: `jsonl` or `csv`.

    Raises:
        ConfigError: there is no such file, or none at all.
    """
    given = [inputs] if isinstance(inputs, str) else [str(path) for path in inputs]
    paths = {path for one in given for path in ([STDIN] if one == STDIN else _matches(one, file_format))}
    if not paths:
        raise ConfigError("no input: name a file, a folder, a pattern, or '-' for standard input")
    return [Input(path) for path in sorted(paths)]


def wait_for(streams: Sequence[Input], timeout_s: float) -> bool:
    """Wait until one of the streams has something or has ended; whether one has."""
    waiting = select.poll()
    for one in streams:
        waiting.register(one.fileno(), select.POLLIN)
    return bool(waiting.poll(timeout_s * 1000))


def number_inputs(inputs: Sequence[Input], known: dict[str, int]) -> dict[int, Input]:
    """Partition numbers: a file keeps the one it has, new ones get the next."""
    numbers = dict(known)
    for one in inputs:
        numbers.setdefault(one.path, max(numbers.values(), default=-1) + 1)
    return {numbers[one.path]: one for one in sorted(inputs, key=lambda one: numbers[one.path])}


def _matches(given: str, file_format: str) -> list[str]:
    path = Path(given)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        found = [one for one in glob.glob(given, recursive=True) if Path(one).is_file()]  # noqa: PTH207 - any root
        if found:
            return [str(Path(one).resolve()) for one in found]
        raise ConfigError(f"input '{given}' does not exist: correct the path, or create it") from error
    except OSError as error:
        raise ConfigError(f"input '{given}' cannot be read: {_reason(error)}") from error
    if not stat.S_ISDIR(mode):
        return [str(path.resolve())]
    return _folder(path, file_format)


def _folder(path: Path, file_format: str) -> list[str]:
    try:
        found = [one for one in path.iterdir() if one.suffix in SUFFIXES[file_format] and one.is_file()]
    except OSError as error:
        raise ConfigError(f"input folder '{path}' cannot be read: {_reason(error)}") from error
    if not found:
        raise ConfigError(f"input folder '{path}' holds no {' or '.join(SUFFIXES[file_format])} file")
    return [str(one.resolve()) for one in found]


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
