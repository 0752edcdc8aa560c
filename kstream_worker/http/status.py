"""What the worker's loop says about itself, for other threads to read. Never asks the bus: a broker that is away is
no reason to restart a worker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from kstream_worker.records import TopicPartition
from kstream_worker.standstill import Standstill

Answer = tuple[bool, dict[str, Any]]


class Status:
    """The board that the loop writes and the endpoints read. All calls are short and safe from any thread.

    Args:
        limit_s: the loop is stalled when it has not turned for so long, or a partition with lag or a restore has not
            moved.
        max_alarms: most keys in alarm that are listed.
        clock: monotonic seconds.
    """

    def __init__(
        self, limit_s: float = 120.0, max_alarms: int = 1000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_s = limit_s
        self._max_alarms = max_alarms
        self._clock = clock
        self._lock = threading.Lock()
        self._heartbeat_s: float | None = None  # None until the loop turns: compiling and fencing take their time
        self._assigned = 0
        self._ready = 0
        self._standstills: dict[TopicPartition, Standstill] = {}
        self._restores: dict[TopicPartition, tuple[int, int]] = {}
        self._alarms: dict[str, dict[str, object]] = {}
        self._unlisted = 0
        self._dropped = 0

    # -- written by the loop --

    def heartbeat(self) -> None:
        """The loop turns."""
        self._heartbeat_s = self._clock()

    def set_assignment(self, assigned: int, ready: int) -> None:
        """How many partitions are ours, and how many of them are being read."""
        with self._lock:
            self._assigned, self._ready = assigned, ready

    def restoring(self, partition: TopicPartition, done: int, total: int) -> None:
        """Progress of a restore, in offsets of the state topic; shown until both are equal."""
        with self._lock:
            self._standstill(partition).at_restore(done, self._clock())
            if done < total:
                self._restores[partition] = (done, total)
            else:
                self._restores.pop(partition, None)

    def progress(self, partition: TopicPartition, position: int, lag: int | None) -> None:
        """Where a partition stands; with nothing to read (lag 0) it cannot be stalled, see `Standstill`."""
        with self._lock:
            self._standstill(partition).at_position(position, lag, self._clock())

    def forget_partition(self, partition: TopicPartition) -> None:
        """The partition is no longer ours. One that is only started again is not to be forgotten: see `Standstill`."""
        with self._lock:
            self._standstills.pop(partition, None)
            self._restores.pop(partition, None)

    def _standstill(self, partition: TopicPartition) -> Standstill:
        return self._standstills.setdefault(partition, Standstill(self._clock()))

    def raise_alarm(self, key: str, details: dict[str, object]) -> None:
        """List a key in alarm; beyond the bound it is only counted."""
        with self._lock:
            if key in self._alarms or len(self._alarms) < self._max_alarms:
                self._alarms[key] = dict(details)
            else:
                self._unlisted += 1
                self._dropped += 1

    def clear_alarm(self, key: str) -> None:
        """Take a key off the list."""
        with self._lock:
            if self._alarms.pop(key, None) is None:
                self._unlisted = max(self._unlisted - 1, 0)

    # -- read by the endpoints --

    def assigned(self) -> int:
        """Partitions of this process."""
        return self._assigned

    def is_ready(self) -> bool:
        """Whether there are partitions and all of them are being read."""
        with self._lock:
            return 0 < self._assigned == self._ready

    def heartbeat_age_s(self) -> float:
        """Seconds since the loop last turned; 0 before its first turn."""
        since = self._heartbeat_s
        return 0.0 if since is None else max(self._clock() - since, 0.0)

    def health(self) -> Answer:
        """Whether the process does its work; a restart is the remedy where it does not."""
        age_s = self.heartbeat_age_s()
        now = self._clock()
        with self._lock:
            stalled = [str(tp) for tp, still in sorted(self._standstills.items()) if still.idle_s(now) > self._limit_s]
        healthy = age_s <= self._limit_s and not stalled
        word = "starting" if self._heartbeat_s is None else "ok" if healthy else "stalled"
        return healthy, {"status": word, "heartbeat_age_seconds": round(age_s, 3), "stalled_partitions": stalled}

    def readiness(self) -> Answer:
        """Whether partitions are assigned and all of them are being read."""
        ready = self.is_ready()
        with self._lock:
            return ready, {
                "status": "ready" if ready else "not ready",
                "assigned_partitions": self._assigned,
                "ready_partitions": self._ready,
                "restoring": {
                    str(tp): {"done": done, "total": total} for tp, (done, total) in sorted(self._restores.items())
                },
            }

    def alarms(self) -> dict[str, Any]:
        """The keys in alarm, in the order in which they were raised."""
        with self._lock:
            listed = [{"key": key, **details} for key, details in self._alarms.items()]
            return {
                "alarms": listed,
                "in_alarm": len(listed) + self._unlisted,
                "limit": self._max_alarms,
                "dropped_total": self._dropped,
            }
