"""A restore made slow on purpose, longer than the poll interval: the member must stay in its group.

A process with this module's `run` is a worker whose reader of state finds nothing for a given time. The group is
watched from inside: a membership that was lost shows as a change of the assignment or as another generation.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from kstream_worker import app
from kstream_worker.config import load
from kstream_worker.http import Status
from kstream_worker.ports import Bus, Membership, Reader, Source
from kstream_worker.records import Batch, ChangeKind, Poll, TopicPartition


class SlowReader:
    """A reader that finds nothing until a while after its first poll, and takes its time for it."""

    def __init__(self, reader: Reader, seconds: float) -> None:
        self._reader = reader
        self._seconds = seconds
        self._until_s: float | None = None

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._reader.assign(positions)

    def poll(self, timeout_s: float) -> list[Batch]:
        now = time.monotonic()
        self._until_s = now + self._seconds if self._until_s is None else self._until_s
        if now < self._until_s:
            time.sleep(timeout_s)
            return []
        return self._reader.poll(timeout_s)

    def position(self, partition: TopicPartition) -> int:
        return self._reader.position(partition)

    def close(self) -> None:
        self._reader.close()


@dataclass
class Seen:
    """What happened to the membership.

    Attributes:
        assigned: times that partitions came.
        taken: times that partitions went.
        generations: of the group since then, each once, in order; joining may take two.
        ready_s: from the first assignment until all partitions are read; None for never.
    """

    assigned: int = 0
    taken: int = 0
    generations: list[int] = field(default_factory=list)
    ready_s: float | None = None


class WatchedSource:
    """A source that notes what its polls say of the membership."""

    def __init__(self, source: Source, seen: Seen) -> None:
        self._source = source
        self._seen = seen

    def __getattr__(self, name: str) -> Callable[..., object]:
        call: Callable[..., object] = getattr(self._source, name)
        return call

    def poll(self, timeout_s: float) -> Poll:
        poll = self._source.poll(timeout_s)
        for change in poll.changes:
            if change.kind is ChangeKind.ASSIGNED:
                self._seen.assigned += 1
            else:
                self._seen.taken += 1
        membership = self.membership()
        if self._seen.assigned and membership is not None and membership.generation not in self._seen.generations:
            self._seen.generations.append(membership.generation)
        return poll

    def membership(self) -> Membership | None:
        return self._source.membership()


def slowed(bus: Bus, seconds: float, seen: Seen) -> Bus:
    """The same bus, its readers slow, its sources watched."""
    return dataclasses.replace(
        bus,
        reader=lambda: SlowReader(bus.reader(), seconds),
        source=lambda: cast("Source", WatchedSource(bus.source(), seen)),
    )


def run(config_path: Path, seconds: float) -> Seen:
    """Run a worker until it reads all its partitions, and then for a little while."""
    config = load(config_path)
    app.warm_up_kernels(config)
    seen, board = Seen(), Status()
    worker = app.build_worker(config, bus=slowed(app.build_bus(config), seconds, seen), board=board)
    step, first = worker.step, 0.0
    deadline = time.monotonic() + seconds + 120.0

    def stepping() -> bool:
        nonlocal first
        alive = step()
        now = time.monotonic()
        first = first or (now if seen.assigned else 0.0)
        if board.is_ready() and seen.ready_s is None:
            seen.ready_s = now - first
        if now > deadline or (seen.ready_s is not None and now - first > seen.ready_s + 1.0):
            worker.request_stop()
        return alive

    worker.step = stepping  # type: ignore[method-assign]
    worker.run()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("seconds", type=float, help="that the restore takes at least")
    args = parser.parse_args()
    print(json.dumps(dataclasses.asdict(run(args.config, args.seconds))))


if __name__ == "__main__":
    main()
