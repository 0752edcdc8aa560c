"""A worker that scenarios drive by hand: fixed records, starts, kills, refusals, and what came out."""

from __future__ import annotations

import itertools
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.chaos import client
from benchmarks.chaos.arena import Arena
from benchmarks.chaos.client import Record
from benchmarks.chaos.compare import Tally, compare_outputs, compare_state, outputs_of, state_of
from benchmarks.chaos.oracle import Oracle
from benchmarks.chaos.traffic import Sent
from benchmarks.chaos.watch import Watch
from benchmarks.chaos.workers import last_words, start_worker
from kstream_worker.state.format import Header


@dataclass
class Verdict:
    """What a scenario found.

    Attributes:
        name: of the scenario.
        good: whether all of it is as it must be; None where it could not be shown on this machine.
        said: what it found, line by line.
    """

    name: str
    good: bool | None = True
    said: list[str] = field(default_factory=list)

    def check(self, holds: bool, text: str) -> None:
        """Note a finding; one that does not hold spoils the verdict."""
        self.good = bool(self.good) and holds
        self.said.append(text if holds else f"NOT: {text}")

    def summary(self) -> dict[str, object]:
        return {"scenario": self.name, "good": self.good, "said": self.said}


@dataclass
class Stage:
    """One static worker and its topics.

    Attributes:
        arena: the cluster and the application.
    """

    arena: Arena
    process: subprocess.Popen[bytes] | None = None
    records: dict[int, dict[int, Record]] = field(default_factory=dict)
    _ticks: Iterator[list[Sent]] = field(init=False)
    _watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.arena.create_topics()
        self._ticks = self.arena.shape.ticks()
        self._watch = Watch(self.arena.bootstrap, self.arena.app_id, self.arena.topic, self.arena.partitions)
        self._watch.start()

    @property
    def log(self) -> Path:
        return self.arena.folder / f"{self.arena.app_id}.log"

    def close(self) -> None:
        self._watch.stop()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def produce(self, ticks: int, patience_s: float = 60.0) -> int:
        """Append the records of the next instants, and remember them with their offsets; how many.

        Raises:
            RuntimeError: not all of them were taken in time.
        """
        producer = Producer({"bootstrap.servers": self.arena.bootstrap, "linger.ms": 20, "log_level": 0})
        count = 0
        for batch in itertools.islice(self._ticks, ticks):
            for sent in batch:
                producer.produce(self.arena.topic, sent.value, sent.key, sent.partition, timestamp=sent.timestamp)
            producer.poll(0)
            count += len(batch)
        if producer.flush(patience_s):
            raise RuntimeError(f"records could not be produced within {patience_s:.0f} s")
        for p in range(self.arena.partitions):
            kept = self.records.setdefault(p, {})
            kept.update((r.offset, r) for r in client.read_partition(self.arena.bootstrap, self.arena.topic, p))
        return count

    def start(self, *flags: str) -> None:
        self.process = start_worker(self.arena.config_file, self.log, *self.arena.static(0), *flags)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self, timeout_s: float = 60.0) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def refusal(self, timeout_s: float = 60.0) -> tuple[int | None, str]:
        """How the worker ended by itself: code and last words; None when it did not in time."""
        assert self.process is not None
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return None, "nothing: it did not end by itself"
        return code, last_words(self.log)

    def caught_up(self, timeout_s: float = 150.0) -> bool:
        """Whether all records are committed in time; False too when the worker ends before that."""
        last = {p: max(kept) for p, kept in self.records.items() if kept}
        began = time.monotonic()
        while self._watch.passed(last, began) is None:
            if time.monotonic() - began > timeout_s or self.process is None or self.process.poll() is not None:
                return False
            time.sleep(0.2)
        return True

    def headers(self) -> dict[int, Header]:
        """The last header of each partition of the state topic."""
        found: dict[int, Header] = {}
        for p in range(self.arena.partitions):
            rows = client.read_partition(self.arena.bootstrap, self.arena.state_topic, p)
            header = state_of((r.key, r.value) for r in rows).header
            if header is not None:
                found[p] = header
        return found

    def compare(self, kinds: tuple[str, ...], *, state: bool, lost: Mapping[int, range] | None = None) -> Tally:
        """Outputs, and state if asked for, held against the oracle's over all records that were ever produced.

        Args:
            kinds: of the outputs.
            state: whether models must be equal too.
            lost: offsets by partition that were deleted before anybody read them.
        """
        tally = Tally()
        for p, kept in self.records.items():
            oracle = Oracle(self.arena.config(), p, self.arena.partitions)
            gone = (lost or {}).get(p, range(0))
            left = [record for offset, record in sorted(kept.items()) if offset not in gone]
            oracle.feed(left, max(kept) + 1)
            expected = oracle.run()
            for kind in kinds:
                rows = client.read_partition(self.arena.bootstrap, self.arena.output(kind), p)
                found = outputs_of(kind, ((r.key, r.value, r.headers) for r in rows))
                tally.add(compare_outputs(found, expected.outputs[kind], f"{kind}[{p}]"))
            if state:  # complete only after an orderly end that nothing hurried
                rows = client.read_partition(self.arena.bootstrap, self.arena.state_topic, p)
                tally.add(compare_state(state_of((r.key, r.value) for r in rows), expected.state, f"state[{p}]"))
        return tally


def once_each(tally: Tally) -> bool:
    """Every output once and in order, whatever it says."""
    return tally.outputs > 0 and not (tally.lost or tally.doubled or tally.strange or tally.out_of_order)
