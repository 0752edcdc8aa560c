"""Committed positions over time: when did each partition get beyond a mark?"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException

from benchmarks.chaos.client import committed, consumer

_EVERY_S = 0.25
_ANEW_S = 3.0  # a reader that fails for so long may hold on to a coordinator that is gone


class Watch:
    """Samples the committed positions of a group in a thread.

    Args:
        bootstrap: the brokers.
        group: whose positions.
        topic: of which topic.
        partitions: how many it has.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self._bootstrap, self._group, self._topic, self._partitions = bootstrap, group, topic, partitions
        self._history: deque[tuple[float, dict[int, int]]] = deque(maxlen=4000)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="chaos-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30.0)

    def now(self) -> dict[int, int]:
        """The latest positions."""
        with self._lock:
            return dict(self._history[-1][1]) if self._history else {}

    def passed(self, marks: Mapping[int, int], since: float) -> float | None:
        """When all partitions had committed beyond these offsets, at `since` or later (monotonic); None: not yet."""
        with self._lock:
            history = list(self._history)
        for at, positions in history:
            if at >= since and all(positions.get(p, -1) > mark for p, mark in marks.items()):
                return at
        return None

    def wait(self, marks: Mapping[int, int], since: float, timeout_s: float) -> float | None:
        """Seconds from `since` until all had passed; None after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not self._stop.is_set():
            at = self.passed(marks, since)
            if at is not None:
                return at - since
            if time.monotonic() > deadline:
                return None
            time.sleep(0.1)
        return None

    def behind(self, marks: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """(committed, mark) of the partitions that are not beyond their marks."""
        now = self.now()
        return {p: (now.get(p, -1), mark) for p, mark in marks.items() if now.get(p, -1) <= mark}

    def _watch(self) -> None:
        reader: Consumer | None = None
        good = time.monotonic()
        while not self._stop.wait(_EVERY_S):
            try:
                reader = reader or consumer(
                    self._bootstrap,
                    self._group,
                    **{"isolation.level": "read_uncommitted", "reconnect.backoff.max.ms": 500},
                )
                found = committed(reader, self._topic, self._partitions)
            except KafkaException:
                if reader is not None and time.monotonic() - good > _ANEW_S:
                    reader.close()
                    reader, good = None, time.monotonic()
                continue
            good = time.monotonic()
            with self._lock:
                self._history.append((good, found))
        if reader is not None:
            reader.close()
