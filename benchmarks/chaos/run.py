"""The whole of it: traffic, faults in two lanes, recovery of each, and the verdict against the oracle."""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.chaos import client
from benchmarks.chaos.arena import KINDS, Arena
from benchmarks.chaos.compare import Tally, compare_outputs, compare_state, outputs_of, state_of
from benchmarks.chaos.faults import Fault, Lane
from benchmarks.chaos.inject import Injector, Unhealed
from benchmarks.chaos.oracle import Oracle
from benchmarks.chaos.traffic import Traffic
from benchmarks.chaos.watch import Watch
from benchmarks.chaos.workers import Supervisor

_HOPELESS = 6  # unexpected ends before the workers ever served
_FIRST_S = 240.0  # until the workers serve at first: kernels may have to be compiled
_RECOVERS_S = 240.0
_DRAIN_S = 240.0
_PER_PUT_OUT = 20  # faults, at least, for each time that librdkafka may be put out as a static member by itself


@dataclass
class Struck:
    """A fault that was done, and when all partitions committed beyond it."""

    fault: Fault
    at_s: float
    lasted_s: float
    recovered_s: float | None
    behind: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass
class Report:
    """Everything that is reported of one run."""

    client: str
    mode: str
    seed: int
    planned: int
    struck: list[Struck] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    records: int = 0
    acknowledged: int = 0
    gaps: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    starts: int = 0
    exit_codes: dict[str, int] = field(default_factory=dict)
    last_exits: list[int] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    put_out: int = 0
    put_out_alone: int = 0
    twins: list[tuple[int | None, int | None, str]] = field(default_factory=list)
    reached_end: bool = False
    trouble: list[str] = field(default_factory=list)
    replication: dict[str, tuple[int, int]] = field(default_factory=dict)

    def recoveries(self) -> dict[str, list[float | None]]:
        """Recovery times in seconds by kind of fault; None where it did not recover in time."""
        times: dict[str, list[float | None]] = defaultdict(list)
        for each in self.struck:
            times[each.fault.kind].append(each.recovered_s)
        return dict(times)

    @property
    def unrecovered(self) -> int:
        return sum(each.recovered_s is None for each in self.struck)

    @property
    def good(self) -> bool:
        return (
            self.tally.clean
            and self.tally.outputs > 0
            and self.tally.state_keys_compared > 0
            and self.reached_end
            and not self.unrecovered
            and not self.unexpected
            and self.put_out_alone <= len(self.struck) / _PER_PUT_OUT
            and not self.trouble
            and all(code == 0 for code in self.last_exits)
            and all(first is not None or second is not None for first, second, _ in self.twins)
        )

    def summary(self) -> dict[str, object]:
        """Plain values, for one JSON line."""
        times = [t for row in self.recoveries().values() for t in row if t is not None]
        by_kind = {kind: len(row) for kind, row in sorted(self.recoveries().items())}
        tally = {name: value for name, value in vars(self.tally).items() if name != "examples"}
        return {
            "client": self.client,
            "mode": self.mode,
            "seed": self.seed,
            "faults": len(self.struck),
            "planned": self.planned,
            "faults_by_kind": by_kind,
            "recovery_median_s": round(statistics.median(times), 2) if times else None,
            "recovery_max_s": round(max(times), 2) if times else None,
            "unrecovered": self.unrecovered,
            "records": self.records,
            **tally,
            "starts": self.starts,
            "exit_codes": self.exit_codes,
            "unexpected_exits": len(self.unexpected),
            "put_out_alone": self.put_out_alone,
            "seconds": round(self.seconds, 1),
            "good": self.good,
        }


class Chaos:
    """One run of one client in one mode.

    Args:
        arena: the cluster and the application.
        lanes: the faults of each lane, in order.
        seed: what they were drawn from.
        workers: how many processes.
        rate: records a second.
        budget_s: faults that have not begun by then are left out.
    """

    def __init__(
        self,
        arena: Arena,
        lanes: Mapping[Lane, Sequence[Fault]],
        *,
        seed: int,
        workers: int,
        rate: int,
        budget_s: float,
    ) -> None:
        self._arena = arena
        self._plan = lanes
        self._budget_s = budget_s
        self._report = Report(arena.client, arena.shape.mode, seed, sum(map(len, lanes.values())))
        self._supervisor = Supervisor(arena.config_file, arena.folder, workers, arena.static)
        self._traffic = Traffic(arena.bootstrap, arena.topic, arena.shape, rate)
        self._watch = Watch(arena.bootstrap, arena.app_id, arena.topic, arena.partitions)
        self._injector = Injector(arena, self._supervisor, self._watch, self._traffic.marks)
        self._lock = threading.Lock()
        self._enough = threading.Event()
        self._began = time.monotonic()

    def enough(self, *_: object) -> None:
        """No further faults: come to rest and compare. A signal handler."""
        self._enough.set()

    def run(self) -> Report:
        """Chaos, then quiet, then the comparison."""
        report = self._report
        clock = time.monotonic()

        def phase(name: str) -> None:
            nonlocal clock
            report.phases[name], clock = round(time.monotonic() - clock, 1), time.monotonic()

        self._arena.create_topics()
        try:
            self._supervisor.start()
            self._traffic.start()
            self._watch.start()
            self._wait_for_first()
            phase("until all serve")
            report.replication = self._arena.require_replication()
            self._strike_all()
            phase("faults")
            self._come_to_rest()
            phase("to the end and drained")
        finally:
            self._traffic.stop()
            self._watch.stop()
            self._supervisor.close()
        report.seconds = report.phases["faults"]
        self._collect()
        self._compare()
        phase("comparison")
        return report

    def _wait_for_first(self) -> None:
        """Until every worker has partitions of its own and all partitions commit."""
        marks = dict.fromkeys(range(self._arena.partitions), 0)
        deadline = self._began + _FIRST_S
        while self._watch.passed(marks, self._began) is None or not self._supervisor.wait_reading(0.0):
            time.sleep(0.2)
            if time.monotonic() > deadline or len(self._supervisor.unexpected) >= _HOPELESS:
                said = "\n".join(slot.log.read_text(errors="replace")[-1500:] for slot in self._supervisor.slots)
                raise RuntimeError(f"the workers did not begin to serve:\n{said}")
        self._began = time.monotonic()

    def _strike_all(self) -> None:
        lanes = [
            threading.Thread(target=self._strike_lane, args=(lane,), name=f"chaos-{lane}", daemon=True)
            for lane in self._plan
        ]
        for thread in lanes:
            thread.start()
        for thread in lanes:
            thread.join()

    def _strike_lane(self, lane: Lane) -> None:
        for fault in self._plan[lane]:
            over = self._enough.wait(fault.pause_s) or time.monotonic() - self._began > self._budget_s
            if over or self._report.trouble:
                return
            try:
                self._strike(fault)
            except Exception as error:  # a lane that dies in silence would look like a lane without faults
                with self._lock:
                    self._report.trouble.append(f"fault {fault}: {type(error).__name__}: {error}")
                if not isinstance(error, Unhealed):
                    raise
                return

    def _strike(self, fault: Fault) -> None:
        hit = self._injector.strike(fault)
        lasted = time.monotonic() - hit.at
        recovered = self._watch.wait(hit.marks, hit.at, _RECOVERS_S)
        struck = Struck(fault, hit.at - self._began, lasted, recovered)
        if recovered is None:
            struck.behind = self._watch.behind(hit.marks)
        with self._lock:
            self._report.struck.append(struck)
        took = "did not recover" if recovered is None else f"recovered in {recovered:5.1f} s"
        print(f"{struck.at_s:7.1f} s  #{fault.number:<3} {fault.kind} [{fault.victim}]: {took}", flush=True)

    def _come_to_rest(self) -> None:
        """No more records; all of them committed; an orderly end, which snapshots what it can; and the rest."""
        self._traffic.stop()
        self._arena.wait_in_sync()
        report, at = self._report, time.monotonic()
        last = {p: offset for p, offset in self._traffic.marks().items() if offset >= 0}
        report.reached_end = self._watch.wait(last, at, _DRAIN_S) is not None
        if not report.reached_end:
            report.trouble.append(f"not committed to the end (committed, last): {self._watch.behind(last)}")
        if not all(self._supervisor.wait_serving(i) for i in range(len(self._supervisor.slots))):
            report.trouble.append("not every worker serves at the end")
        report.last_exits = self._supervisor.stop_all()
        drained = self._arena.command("run", "--drain", *self._arena.static(0), timeout_s=_DRAIN_S)
        if drained.returncode != 0:
            report.trouble.append(f"--drain ended with {drained.returncode}: {drained.stderr[-2000:]}")

    def _collect(self) -> None:
        report, supervisor = self._report, self._supervisor
        report.struck.sort(key=lambda each: each.at_s)
        report.starts = supervisor.starts()
        report.exit_codes = supervisor.codes()
        report.unexpected = [f"{each.worker} ended with {each.code}: {each.why}" for each in supervisor.unexpected]
        report.twins = self._injector.twins
        report.put_out = len(supervisor.put_out)
        report.put_out_alone = len(supervisor.put_out_alone)
        report.acknowledged = self._traffic.acknowledged

    def _compare(self) -> None:
        arena, config = self._arena, self._arena.config()
        reader = client.consumer(arena.bootstrap, arena.app_id)
        reached = client.committed(reader, arena.topic, arena.partitions, 30.0)
        reader.close()
        for p in range(arena.partitions):
            oracle = Oracle(config, p, arena.partitions)
            end = reached.get(p, 0)
            self._report.records += oracle.feed(client.read_partition(arena.bootstrap, arena.topic, p), end)
            expected = oracle.run()
            for kind in KINDS:
                rows = client.read_partition(arena.bootstrap, arena.output(kind), p)
                found = outputs_of(kind, ((r.key, r.value, r.headers) for r in rows))
                self._report.tally.add(compare_outputs(found, expected.outputs[kind], f"{kind}[{p}]"))
            state = state_of((r.key, r.value) for r in client.read_partition(arena.bootstrap, arena.state_topic, p))
            self._report.tally.add(compare_state(state, expected.state, f"state[{p}]"))
