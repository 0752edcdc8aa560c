"""How each kind of fault is done. A fault has ended when everybody runs again; recovery is measured elsewhere."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.chaos.arena import Arena
from benchmarks.chaos.faults import Fault
from benchmarks.chaos.watch import Watch
from benchmarks.chaos.workers import Supervisor

_TWIN_S = 60.0  # time for one of two processes of the same identity to end
_SERVES_S = 60.0  # time for a restarted worker to serve before the next one of a rolling restart


@dataclass
class Hit:
    """When a fault struck first (monotonic seconds), and what had been acknowledged when it struck last."""

    at: float
    marks: dict[int, int]


class Unhealed(RuntimeError):
    """The cluster or a worker did not come back: what follows would prove nothing."""


@dataclass
class Injector:
    """Strikes.

    Attributes:
        arena: the cluster and the application.
        supervisor: of the workers.
        watch: of the committed positions.
        marks: the last acknowledged offsets.
        twins: what came of second processes: (code of the first, of the second, message).
    """

    arena: Arena
    supervisor: Supervisor
    watch: Watch
    marks: Callable[[], dict[int, int]]
    _hits: dict[int, Hit] = field(default_factory=dict)
    twins: list[tuple[int | None, int | None, str]] = field(default_factory=list)

    def strike(self, fault: Fault) -> Hit:
        """Do it, and undo what can be undone."""
        done: dict[str, Callable[[Fault], None]] = {
            "worker SIGKILL": self._kill,
            "worker SIGKILL, again while it starts or restores": self._kill_again,
            "all workers SIGKILL": self._kill_all,
            "worker SIGSTOP beyond its session": self._stop,
            "worker SIGSTOP for a moment": self._stop,
            "worker SIGTERM": self._bounce,
            "rolling restart of the workers": self._roll,
            "second process of the same instance id": self._twin,
            "broker SIGKILL": self._kill_broker,
            "broker SIGSTOP": self._stop_broker,
            "broker restart": self._restart_broker,
            "rolling restart of the brokers": self._roll_brokers,
        }
        done[fault.kind](fault)
        return self._hits.pop(fault.number)

    def _hit(self, fault: Fault) -> None:
        """It struck just now."""
        former = self._hits.get(fault.number)
        now = time.monotonic()
        self._hits[fault.number] = Hit(now if former is None else former.at, self.marks())

    # -- workers --

    def _kill(self, fault: Fault) -> None:
        self.supervisor.wait_started(fault.victim)  # what does not run cannot be killed
        self.supervisor.signal(fault.victim, signal.SIGKILL)
        self._hit(fault)

    def _kill_again(self, fault: Fault) -> None:
        self._kill(fault)
        time.sleep(fault.hold_s)
        self._kill(fault)

    def _kill_all(self, fault: Fault) -> None:
        for i in range(len(self.supervisor.slots)):
            self.supervisor.signal(i, signal.SIGKILL)
        self._hit(fault)

    def _stop(self, fault: Fault) -> None:
        self.supervisor.wait_serving(fault.victim)
        self.supervisor.signal(fault.victim, signal.SIGSTOP)
        self._hit(fault)
        time.sleep(fault.hold_s)
        self.supervisor.signal(fault.victim, signal.SIGCONT)

    def _bounce(self, fault: Fault) -> None:
        self.supervisor.wait_started(fault.victim)
        starts = self.supervisor.slots[fault.victim].starts
        self.supervisor.signal(fault.victim, signal.SIGTERM)
        self._hit(fault)
        deadline = time.monotonic() + 40.0
        while self.supervisor.slots[fault.victim].starts == starts:
            if time.monotonic() > deadline:
                raise Unhealed(f"worker {fault.victim} did not end within 40 s of SIGTERM")
            time.sleep(0.1)

    def _roll(self, fault: Fault) -> None:
        for i in range(len(self.supervisor.slots)):
            self._bounce(Fault(fault.number, fault.lane, fault.kind, i, 0.0, 0.0))
            self.watch.wait(self.marks(), time.monotonic(), _SERVES_S)

    def _twin(self, fault: Fault) -> None:
        slot = self.supervisor.slots[fault.victim]
        self.supervisor.wait_serving(fault.victim)
        twin = self.supervisor.begin_twin(fault.victim)
        self._hit(fault)
        deadline = time.monotonic() + _TWIN_S
        while slot.running() and twin.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        (first, second), why = self.supervisor.settle_twin(fault.victim)
        self.twins.append((first, second, why))

    # -- brokers --

    def _kill_broker(self, fault: Fault) -> None:
        self.arena.kafka.kill(fault.victim)
        self._hit(fault)
        time.sleep(fault.hold_s)
        self.arena.kafka.restart(fault.victim)
        self._heal()

    def _stop_broker(self, fault: Fault) -> None:
        self.arena.kafka.freeze(fault.victim)
        self._hit(fault)
        time.sleep(fault.hold_s)
        self.arena.kafka.thaw(fault.victim)
        self._heal()

    def _restart_broker(self, fault: Fault) -> None:
        self._hit(fault)
        self.arena.kafka.restart(fault.victim)
        self._heal()

    def _roll_brokers(self, fault: Fault) -> None:
        for i in range(self.arena.kafka.brokers):
            self._restart_broker(Fault(fault.number, fault.lane, fault.kind, i, 0.0, 0.0))

    def _heal(self) -> None:
        if not self.arena.wait_in_sync():
            raise Unhealed("replicas did not get in sync again within 90 s")
