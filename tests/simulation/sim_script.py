"""What stands in the input of one simulation: records, gaps and transactions, in the order of their offsets.

A script is fixed before anything runs, and so are its offsets; a schedule only decides when each line of it appears.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kstream_worker.bus.fake import FakeBroker, ForeignTransaction

TOPIC = "readings"
START_MS = 1_760_000_000_000
POISON = 666.0

LineKind = Literal["record", "gap", "begin", "inside", "commit", "abort"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a record (of a transaction if `inside`), `count` offsets left out, or an end of a transaction."""

    kind: LineKind
    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = START_MS
    count: int = 0


@dataclass(frozen=True)
class ScriptSettings:
    """What a script is drawn from.

    Attributes:
        seed: of all draws.
        partitions: of the input.
        records: lines of each partition, about.
        keys: of each partition.
        ttl_ms: of silent keys, which decides how long they are silent.
        poison: records that end a process.
        changes: whether values move away half way, for a real detector.
    """

    seed: int
    partitions: int
    records: int
    keys: int
    ttl_ms: int
    poison: int = 0
    changes: bool = False


@dataclass(frozen=True)
class Script:
    """The lines of each partition."""

    lines: tuple[tuple[Line, ...], ...]

    @property
    def poison(self) -> set[tuple[int, int]]:
        """(partition, offset) of records that end a process."""
        found = set()
        for partition, lines in enumerate(self.lines):
            for offset, line in _offsets(lines):
                if line.value == poisonous(line.timestamp):
                    found.add((partition, offset))
        return found


def poisonous(time_ms: int) -> bytes:
    """A record's value that ends a process."""
    return sample(POISON, time_ms)


def sample(value: float, time_ms: object) -> bytes:
    """A record's value."""
    return json.dumps({"ts": time_ms, "y": [value]}).encode()


def _offsets(lines: tuple[Line, ...]) -> Iterator[tuple[int, Line]]:
    offset, touched = 0, False
    for line in lines:
        if line.kind == "gap":
            offset += line.count
        elif line.kind == "begin":
            touched = False
        elif line.kind in ("record", "inside"):
            yield offset, line
            offset += 1
            touched |= line.kind == "inside"
        elif touched:  # the marker of a transaction that wrote here
            offset += 1


class Playback:
    """A script as far as it has appeared in a broker."""

    def __init__(self, script: Script, broker: FakeBroker) -> None:
        self._script = script
        self._broker = broker
        self._next = [0] * len(script.lines)
        self._open: dict[int, ForeignTransaction] = {}
        self.last_offset = [-1] * len(script.lines)

    def feed(self, partition: int, count: int) -> None:
        """Let the next lines of a partition appear."""
        lines = self._script.lines[partition]
        first = self._next[partition]
        self._next[partition] = min(first + count, len(lines))
        for line in lines[first : self._next[partition]]:
            self._play(partition, line)

    def feed_all(self) -> None:
        """Let everything appear."""
        for partition, lines in enumerate(self._script.lines):
            self.feed(partition, len(lines))

    def _play(self, partition: int, line: Line) -> None:
        if line.kind == "gap":
            self._broker.gap(TOPIC, partition, line.count)
        elif line.kind == "begin":
            self._open[partition] = opened = self._broker.transaction()
            opened._transaction.started_s = float("inf")  # ends where the script says, not by its time-out
        elif line.kind == "inside":
            self._open[partition].append(TOPIC, partition, line.key, line.value, timestamp=line.timestamp)
        elif line.kind == "record":
            self._broker.append(TOPIC, partition, line.key, line.value, timestamp=line.timestamp)
        else:
            transaction = self._open.pop(partition)
            (transaction.commit if line.kind == "commit" else transaction.abort)()


def write(settings: ScriptSettings) -> Script:
    """The script of these settings."""
    draw = random.Random(f"script {settings.seed}")
    return Script(tuple(tuple(_Author(draw, settings, p).write()) for p in range(settings.partitions)))


class _Author:
    """Writes the lines of one partition."""

    def __init__(self, draw: random.Random, settings: ScriptSettings, partition: int) -> None:
        self._draw = draw
        self._settings = settings
        self._names = [f"{'abcdefghijkl'[k]}{partition}".encode() for k in range(settings.keys)]
        self._active = draw.sample(self._names, min(len(self._names), 3))
        self._now_ms = START_MS
        self._inside = False
        count = settings.poison if partition == 0 else 0
        self._poison = {draw.randrange(settings.records // 4, settings.records) for _ in range(count)}
        self._written = 0

    def write(self) -> Iterator[Line]:
        for number in range(self._settings.records):
            self._written = number
            if not self._settings.changes:
                self._turn()
            yield from self._punctuation()
            yield self._record(number)
        if self._inside:
            yield Line("commit")

    def _turn(self) -> None:
        """Time goes on, and sometimes other keys speak."""
        draw, ttl_ms = self._draw, self._settings.ttl_ms
        self._now_ms += draw.choice((0, 1, 7, 20, ttl_ms // 16, ttl_ms // 16, ttl_ms // 4))
        if draw.random() < 0.02:
            self._now_ms += 2 * ttl_ms
        if draw.random() < 0.15:
            self._active = draw.sample(self._names, draw.randint(1, min(4, len(self._names))))

    def _punctuation(self) -> Iterator[Line]:
        draw = self._draw
        if self._inside and draw.random() < 0.3:
            self._inside = False
            yield Line(draw.choice(("commit", "abort")))
        elif not self._inside and draw.random() < 0.03:
            self._inside = True
            yield Line("begin")
        elif draw.random() < 0.03:
            yield Line("gap", count=draw.randint(1, 3))

    def _record(self, number: int) -> Line:
        kind: LineKind = "inside" if self._inside and self._draw.random() < 0.7 else "record"
        if self._settings.changes:
            self._now_ms += 10
        if number in self._poison:
            return Line("record", self._draw.choice(self._active), poisonous(self._now_ms), self._now_ms)
        key, value = self._content(number)
        return Line(kind, key, value, self._now_ms)

    def _content(self, number: int) -> tuple[bytes | None, bytes | None]:
        draw = self._draw
        key = draw.choice(self._active)
        level = 5.0 if self._settings.changes and number > self._settings.records * 2 // 3 else 0.0
        value = round(draw.gauss(level, 1.0), 3)
        luck = draw.random()
        if luck < 0.07:
            return key, None
        if luck < 0.1:
            return draw.choice(((key, b"{"), (key, b'{"y": ["a"]}'), (None, sample(value, self._now_ms)), (None, None)))
        if luck < 0.13:
            ahead = self._now_ms + draw.choice((50, 10**9))
            return key, sample(value, draw.choice((ahead, None, "soon", self._now_ms - self._settings.ttl_ms)))
        return key, sample(value, self._now_ms)
