"""Static members: a bounce of one moves nothing, the loss of one moves its partitions alone; others hardly pause."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import defaultdict

from confluent_kafka import TopicPartition

from benchmarks.chaos import client
from benchmarks.chaos.arena import Arena
from benchmarks.chaos.stage import Verdict
from benchmarks.chaos.traffic import Traffic
from benchmarks.chaos.watch import Watch
from benchmarks.chaos.workers import Supervisor, events

_WORKERS = 3
_CALM_S = 8.0
_LOST_S = 60.0  # session time-out, and what comes after it
_PAUSE_S = 2.0
_BUSY_S = 1.2  # a pause that long with nothing the matter: the machine has no time for the workers


class Arrivals:
    """When estimates of each partition arrive at a read_committed consumer."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._times: dict[int, list[float]] = defaultdict(list)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="chaos-arrivals", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30.0)

    def longest_pause(self, partitions: set[int], since: float, until: float) -> float:
        """Longest time in seconds within (since, until) without an estimate of one of these partitions."""
        longest = 0.0
        for p in partitions:
            times = [t for t in self._times[p] if since <= t <= until]
            edges = [since, *times, until]
            longest = max(longest, *(b - a for a, b in itertools.pairwise(edges)))
        return longest

    def _listen(self) -> None:
        topic = self._arena.output("estimates")
        reader = client.consumer(self._arena.bootstrap, **{"auto.offset.reset": "earliest"})
        reader.assign([TopicPartition(topic, p, 0) for p in range(self._arena.partitions)])
        while not self._stop.is_set():
            for message in reader.consume(500, 0.05):
                if message.error() is None:
                    self._note(message.partition() or 0)
        reader.close()

    def _note(self, partition: int) -> None:
        now, times = time.monotonic(), self._times[partition]
        if not times or now > times[-1] + 0.01:
            times.append(now)


def bounce_and_loss(arena: Arena, rate: int = 600) -> Verdict:
    """Three static workers; one is bounced, then one is lost, then it comes back."""
    verdict = Verdict(f"{arena.client}: a bounce moves nothing, a loss only what was lost")
    arena.create_topics()
    supervisor = Supervisor(arena.config_file, arena.folder, _WORKERS, arena.static)
    traffic = Traffic(arena.bootstrap, arena.topic, arena.shape, rate)
    watch = Watch(arena.bootstrap, arena.app_id, arena.topic, arena.partitions)
    arrivals = Arrivals(arena)
    try:
        supervisor.start()
        traffic.start()
        watch.start()
        verdict.check(supervisor.wait_reading(240.0), "three workers serve")
        watch.wait(traffic.marks(), time.monotonic(), 60.0)
        time.sleep(_CALM_S)
        trial = _Trial(arena, supervisor, traffic, watch, arrivals, verdict)
        trial.calm()
        trial.bounce(1)
        time.sleep(_CALM_S)
        trial.lose(2)
        verdict.check(not supervisor.unexpected, f"nobody ended by itself: {supervisor.unexpected}")
    finally:
        traffic.stop()
        watch.stop()
        arrivals.stop()
        supervisor.close()
    return verdict


class _Trial:
    """The two trials, on workers that serve."""

    def __init__(
        self,
        arena: Arena,
        supervisor: Supervisor,
        traffic: Traffic,
        watch: Watch,
        arrivals: Arrivals,
        verdict: Verdict,
    ) -> None:
        self._arena = arena
        self._supervisor = supervisor
        self._traffic = traffic
        self._watch = watch
        self._arrivals = arrivals
        self._verdict = verdict
        self._calm_s = 0.0

    def calm(self) -> None:
        """What is usual on this machine."""
        since = time.monotonic()
        time.sleep(_CALM_S)
        longest = self._arrivals.longest_pause(set(range(self._arena.partitions)), since, time.monotonic())
        self._calm_s = longest
        self._verdict.said.append(f"calm: estimates pause for {longest:.2f} s at most")

    def bounce(self, victim: int) -> None:
        """SIGTERM, and the supervisor starts it again."""
        before, marks = self._owned(), self._sizes()
        starts, since = self._supervisor.slots[victim].starts, time.monotonic()
        self._supervisor.signal(victim, signal.SIGTERM)
        while self._supervisor.slots[victim].starts == starts and time.monotonic() < since + 60.0:
            time.sleep(0.05)
        again = time.monotonic() - since
        back = self._watch.wait(self._traffic.marks(), since, 90.0)
        time.sleep(3.0)
        moved = self._changes(marks, victim)
        self._verdict.check(
            back is not None, f"bounce: started again after {again:.1f} s, commits after {back or 0.0:.1f} s"
        )
        self._verdict.check(not moved, f"bounce: the others hear of no change {moved or ''}")
        self._verdict.check(self._owned() == before, f"bounce: same partitions as before {self._owned()}")
        self._pause(before, victim, since, "bounce")

    def lose(self, victim: int) -> None:
        """SIGKILL, and nobody starts it again until its session is over."""
        before, marks, since = self._owned(), self._sizes(), time.monotonic()
        self._supervisor.hold(victim, down=True)
        self._supervisor.signal(victim, signal.SIGKILL)
        back = self._watch.wait(self._traffic.marks(), since, _LOST_S + 60.0)
        time.sleep(3.0)
        moved = self._changes(marks, victim)
        lost = before[victim]
        gained = {p for kind, p in moved if kind == "assigned"}
        taken = {p for kind, p in moved if kind != "assigned"}
        self._verdict.check(back is not None, f"loss: its partitions commit again after {back or 0.0:.1f} s")
        self._verdict.check(gained == lost, f"loss: the others gain {sorted(gained)}, it had {sorted(lost)}")
        self._verdict.check(not taken, f"loss: nobody else gives anything up {sorted(taken) or ''}")
        self._pause(before, victim, since, "loss")
        self._supervisor.hold(victim, down=False)

    def _pause(self, before: dict[int, set[int]], victim: int, since: float, what: str) -> None:
        others = set().union(*(owned for i, owned in before.items() if i != victim))
        longest = self._arrivals.longest_pause(others, since, time.monotonic())
        text = f"{what}: estimates of the others pause for {longest:.2f} s at most"
        if self._calm_s > _BUSY_S:
            self._verdict.said.append(f"{text}; not judged: on this busy machine they pause anyway")
        else:
            self._verdict.check(longest < _PAUSE_S, text)

    def _sizes(self) -> dict[int, int]:
        return {i: slot.log.stat().st_size for i, slot in enumerate(self._supervisor.slots)}

    def _changes(self, sizes: dict[int, int], victim: int) -> list[tuple[str, int]]:
        """(kind of change, partition) in the logs of the others since then."""
        return [
            (str(event["change"]), p)
            for i, slot in enumerate(self._supervisor.slots)
            if i != victim
            for event in events(slot.log, sizes[i])
            if event.get("event") == "assignment"
            for p in _numbers(event)
        ]

    def _owned(self) -> dict[int, set[int]]:
        """Partitions by worker, as their logs tell it."""
        return {i: self._owned_by(i) for i in range(_WORKERS)}

    def _owned_by(self, i: int) -> set[int]:
        owned: set[int] = set()
        for event in events(self._supervisor.slots[i].log):
            if event.get("event") == "started":
                owned = set()
            elif event.get("event") == "assignment":
                numbers = _numbers(event)
                owned = owned | numbers if event["change"] == "assigned" else owned - numbers
        return owned


def _numbers(event: dict[str, object]) -> set[int]:
    """Numbers of the partitions of an event: they are written as topic[number]."""
    named = event["partitions"]
    assert isinstance(named, list)
    return {int(str(name).rsplit("[", 1)[1].rstrip("]")) for name in named}
