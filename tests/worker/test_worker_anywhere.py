"""The real worker through any schedule of trouble: each record still gives its estimate once, in order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kstream_worker.bus.fake import CommitFault, SimulatedCrash
from kstream_worker.errors import Retry
from kstream_worker.ports import Bank
from kstream_worker.records import ChangeKind, Scores
from kstream_worker.worker.loop import Worker

MakeJob = Callable[..., Any]
IDENTITIES = ("app-0", "app-1")
POINTS = ("poll", "committed", "start", "commit", "commit.sent", "commit.done", "writer.start")


class FailingNow:
    """A bank whose next update fails when the world says so."""

    def __init__(self, bank: Bank, world: World) -> None:
        self._bank = bank
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bank, name)

    def update(self, *columns: Any) -> Scores:
        if self._world.break_model:
            self._world.break_model = False
            raise ZeroDivisionError("a model failed")
        return self._bank.update(*columns)


class World:
    """A job, two processes that come and go, and what happens to them."""

    def __init__(self, job: Any, seed: int) -> None:
        self.job = job
        self.draw = random.Random(seed)
        self.break_model = False
        self.workers: dict[str, Worker] = {}
        self.foreign: list[Any] = []
        self.seed = seed
        job.broker.poll_cost_s = 0.05

    def step(self) -> None:
        identity = self.draw.choice(IDENTITIES)
        self.draw.choice((self.turn,) * 12 + (self.fault, self.error, self.rebalance, self.crash) * 2 + self._rare())(
            identity
        )

    def turn(self, identity: str) -> None:
        try:
            worker = self.workers.get(identity) or self._begin(identity)
            worker._guarded_step()
        except SimulatedCrash:
            self.workers.pop(identity, None)

    def fault(self, _: str) -> None:
        self.job.broker.faults.on_commit(self.draw.choice(list(CommitFault)))

    def error(self, identity: str) -> None:
        self._plan(identity, self.draw.choice(("committed", "start", "poll")), Retry("no answer in time"))

    def crash(self, identity: str) -> None:
        self._plan(identity, self.draw.choice(POINTS), SimulatedCrash())

    def rebalance(self, identity: str) -> None:
        kind = self.draw.choice((ChangeKind.REVOKED, ChangeKind.LOST))
        faults = self.job.broker.faults
        faults.rebalance(faults.calls("poll", identity) + 1, kind, identity=identity, unsettled_polls=2)

    def evict(self, identity: str) -> None:
        self.job.broker.evict("drift", identity)

    def model(self, _: str) -> None:
        self.break_model = True

    def stop(self, identity: str) -> None:
        worker = self.workers.pop(identity, None)
        if worker is not None:
            worker.request_stop()
            try:
                worker._drain()
                worker._close("test")
            except SimulatedCrash:
                pass

    def more(self, _: str) -> None:
        self.job.fill(pairs=3, keys=4, change_at=1000, seed=self.draw.randrange(1000))

    def open(self, _: str) -> None:
        transaction = self.job.broker.transaction()
        transaction.append("readings", self.draw.randrange(2), b"pump-0", b"{}")
        self.foreign.append(transaction)

    def settle(self) -> None:
        for transaction in self.foreign:
            transaction.abort()
        for _ in range(3000):
            for identity in IDENTITIES:
                self.turn(identity)
            if self.job.done():
                break
        for identity in IDENTITIES:
            self.stop(identity)

    def _rare(self) -> tuple[Callable[[str], None], ...]:
        return self.evict, self.model, self.stop, self.more, self.open

    def _plan(self, identity: str, point: Any, error: BaseException) -> None:
        faults = self.job.broker.faults
        faults.raise_at(point, faults.calls(point, identity) + 1, error, identity=identity)

    def _begin(self, identity: str) -> Worker:
        worker: Worker = self.job.worker(identity, poll_sizes=(7, 3))
        make = worker._opener._make_task

        def make_task(partition: Any) -> Any:
            task = make(partition)
            task._bank = FailingNow(task._bank, self)  # type: ignore[assignment]
            return task

        worker._opener._make_task = make_task
        worker._start()
        self.workers[identity] = worker
        return worker


@pytest.mark.parametrize("seed", range(8))
def test_each_record_gives_its_estimate_once_and_in_order(make_job: MakeJob, seed: int) -> None:
    job = make_job(commit={"interval": 0.2, "timeout": 1.0})
    job.fill(pairs=25, keys=4, change_at=1000)
    world = World(job, seed)
    for _ in range(150):
        world.step()
    world.settle()
    job.assert_exactly_once()
