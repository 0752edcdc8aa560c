"""Real worker processes under a supervisor that starts again what died, as Kubernetes would."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kstream_worker.bus.broker.process import start_child

_LOOK_S = 0.05
_SHORT_LIFE_S = 10.0
_AFTERMATH_S = 60.0  # after a second process of an identity, its survivor may still be put out by what the other did
PUT_OUT = "give each process its own"
# librdkafka repeats its request to join when a coordinator is lost, and is put out as a static member by itself.
PUT_OUT_ALONE = "while this one joined"


@dataclass(frozen=True)
class Exit:
    """The end of a process that nobody asked for."""

    worker: str
    code: int
    why: str


@dataclass
class Slot:
    """One identity; at most one supervised process at a time, and for a while a twin of it."""

    name: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    twin: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    starts: int = 0
    quick_deaths: int = 0
    due: float = 0.0  # not started before
    asked: bool = False  # the end of the present process was asked for
    wanted: bool = True
    mark: int = 0  # size of the log when the present process began
    twinned: float = -1e9  # when a second process was last settled
    codes: Counter[int] = field(default_factory=Counter)

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


def start_worker(config: Path, log: Path, *flags: str) -> subprocess.Popen[bytes]:
    """One `kstream-worker run`, which dies with this process."""
    return start_child([sys.executable, "-m", "kstream_worker", "run", "--config", str(config), *flags], log)


class Supervisor:
    """Keeps one process per slot alive.

    Args:
        config: of all workers.
        folder: for their logs.
        count: how many.
        flags: of a worker, by its number.
    """

    def __init__(self, config: Path, folder: Path, count: int, flags: Callable[[int], list[str]]) -> None:
        base = [sys.executable, "-m", "kstream_worker", "run", "--config", str(config)]
        self.slots = [Slot(f"w{i}", base + flags(i), folder / f"w{i}.log") for i in range(count)]
        self.unexpected: list[Exit] = []
        self.put_out: list[Exit] = []  # survivors of a second process that ended as well
        self.put_out_alone: list[Exit] = []  # by the group, without a second process
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="chaos-supervisor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Kill all that still runs."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(10.0)
        for slot in self.slots:
            for process in (slot.process, slot.twin):
                if process is not None and process.poll() is None:
                    process.kill()
                    process.wait()

    def signal(self, i: int, number: int) -> None:
        """Send a signal; one that ends the process is remembered as asked for."""
        with self._lock:
            slot = self.slots[i]
            if slot.process is not None and slot.process.poll() is None:
                slot.asked = slot.asked or number in (signal.SIGKILL, signal.SIGTERM)
                slot.process.send_signal(number)

    def hold(self, i: int, *, down: bool) -> None:
        """Leave the slot without a process once it is down; or start it again."""
        with self._lock:
            self.slots[i].wanted = not down
            self.slots[i].due = 0.0

    def begin_twin(self, i: int) -> subprocess.Popen[bytes]:
        """A second process of the same identity; the slot is not restarted until `settle_twin`."""
        with self._lock:
            slot = self.slots[i]
            slot.wanted = False
            slot.twin = start_child(slot.command, slot.log)
            return slot.twin

    def settle_twin(self, i: int) -> tuple[list[int | None], str]:
        """Which of (first, second) ended with what; the survivor is supervised from now on."""
        with self._lock:
            slot = self.slots[i]
            assert slot.process is not None
            assert slot.twin is not None
            codes = [slot.process.poll(), slot.twin.poll()]
            why = last_words(slot.log)
            slot.twinned = time.monotonic()
            if codes[1] is None and codes[0] is None:
                slot.twin.kill()
                slot.twin.wait()
            elif codes[1] is None:
                slot.codes[codes[0] or 0] += 1
                slot.process, slot.started, slot.asked = slot.twin, time.monotonic(), False
            elif codes[0] is None:
                slot.codes[codes[1]] += 1
            slot.twin = None
            slot.wanted = True
            return codes, why

    def wait_started(self, i: int, timeout_s: float = 60.0) -> bool:
        """Wait until the slot's process runs."""
        return self._wait(self.slots[i].running, timeout_s)

    def wait_serving(self, i: int, timeout_s: float = 30.0) -> bool:
        """Wait until the present process of the slot reads partitions."""
        return self._wait(lambda: self.slots[i].running() and reads(self.slots[i].log, self.slots[i].mark), timeout_s)

    def wait_reading(self, timeout_s: float) -> bool:
        """Wait until every process has read from partitions of its own."""
        return self._wait(lambda: all(reads(slot.log) for slot in self.slots), timeout_s)

    def stop_all(self, timeout_s: float = 60.0) -> list[int]:
        """SIGTERM to all, and no more restarts; exit codes. Those that do not end in time are killed (-9)."""
        self._stop.set()
        with self._lock:
            for i, slot in enumerate(self.slots):
                slot.wanted = False
                self.signal(i, signal.SIGCONT)
                self.signal(i, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        codes = []
        for slot in self.slots:
            if slot.process is None:
                continue
            try:
                codes.append(slot.process.wait(max(0.1, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                slot.process.kill()
                codes.append(slot.process.wait())
        return codes

    def codes(self) -> dict[str, int]:
        """Exit codes so far, and how often."""
        total: Counter[int] = Counter()
        for slot in self.slots:
            total.update(slot.codes)
        return {str(code): n for code, n in sorted(total.items())}

    def starts(self) -> int:
        return sum(slot.starts for slot in self.slots)

    def _wait(self, met: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not met():
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def _look(self) -> None:
        while not self._stop.wait(_LOOK_S):
            with self._lock:
                for slot in self.slots:
                    self._tend(slot)

    def _tend(self, slot: Slot) -> None:
        if slot.twin is not None or slot.running():
            return
        now = time.monotonic()
        if slot.process is not None:
            self._bury(slot, slot.process, now)
        if slot.wanted and now >= slot.due:
            slot.mark = slot.log.stat().st_size if slot.log.exists() else 0
            slot.process = start_child(slot.command, slot.log)
            slot.started, slot.asked = now, False
            slot.starts += 1

    def _bury(self, slot: Slot, process: subprocess.Popen[bytes], now: float) -> None:
        code = process.wait()
        slot.codes[code] += 1
        if not slot.asked or code not in (0, -signal.SIGKILL, 128 + signal.SIGTERM, -signal.SIGTERM):
            end = Exit(slot.name, code, last_words(slot.log))
            if now - slot.twinned < _AFTERMATH_S and PUT_OUT in end.why:
                self.put_out.append(end)
            else:
                (self.put_out_alone if PUT_OUT_ALONE in end.why else self.unexpected).append(end)
        quick = now - slot.started < _SHORT_LIFE_S and not slot.asked
        slot.quick_deaths = slot.quick_deaths + 1 if quick else 0
        slot.due = now + min(2.0**slot.quick_deaths - 1.0, 15.0)
        slot.process = None


def events(log: Path, start: int = 0) -> Iterator[dict[str, object]]:
    """The log's lines from byte `start` on that are JSON objects."""
    if not log.exists():
        return
    with log.open("rb") as file:
        file.seek(start)
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


def reads(log: Path, start: int = 0) -> bool:
    """Whether a worker said, from byte `start` of its log on, that it reads partitions."""
    return any(event.get("event") == "reading" for event in events(log, start))


def last_words(log: Path) -> str:
    """Why the process of this log ended, as far as it said so."""
    said = [event for event in events(log) if event.get("event") == "ended"]
    if said:
        return str(said[-1].get("why"))
    tail = log.read_text(errors="replace")[-1500:] if log.exists() else ""
    return f"no last line; the log ends with: {tail}"
