"""Records that were polled but are not processed yet: no committed position may pass them, and to wait for them is no
standstill.

The position of the source is beyond such records, so it says nothing about what was processed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstream_worker import app
from kstream_worker.measures import Telemetry
from kstream_worker.records import TopicPartition
from kstream_worker.worker.loop import Worker

MakeJob = Callable[..., Any]


class Healings(Telemetry):
    """Counts partitions that were started again."""

    def __init__(self) -> None:
        self.count = 0

    def healed(self, partition: TopicPartition) -> None:
        del partition
        self.count += 1


def worker_of(job: Any, *, drain: bool = False, telemetry: Telemetry | None = None) -> Worker:
    """Each turn of its loop takes eleven seconds, so that lag is looked at in every one."""
    bus = job.broker.bus(topic="readings", group="drift", identity="app-0", poll_sizes=(30,) if drain else (40,))
    clock = job.broker.clock
    worker = app.build_worker(
        job.config,
        bus=bus,
        telemetry=telemetry,
        clock=clock,
        sleep=clock.sleep,
        now_ms=lambda: 1_760_000_000_000,
        drain=drain,
    )
    step = worker.step

    def slowly() -> bool:
        clock.sleep(11.0)
        return step()

    worker.step = slowly  # type: ignore[method-assign]
    return worker


def killed_after(worker: Worker, steps: int) -> None:
    """Start, take some turns, and vanish."""
    worker._start()
    for _ in range(steps):
        worker._guarded_step()


def test_records_that_go_one_by_one_are_not_passed_by_the_position(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 60.0})
    job.fill(pairs=60, keys=4, change_at=1000)
    for _ in range(4):
        killed_after(worker_of(job), 3)  # nothing but the first commit of each start
    healings = Healings()
    job.run(worker_of(job, telemetry=healings))
    job.assert_exactly_once()
    assert healings.count == 0


def test_records_that_a_drain_leaves_are_not_passed_by_the_position(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2}, state={"interval": 3600.0})
    job.fill(pairs=60, keys=4, change_at=1000)
    killed_after(worker_of(job), 4)
    before = len(job.estimates())
    healings = Healings()
    worker_of(job, drain=True, telemetry=healings).run()
    assert 0 < before == len(job.estimates()) < 240
    assert healings.count == 0
    job.run(worker_of(job))
    job.assert_exactly_once()


def test_a_drain_that_waits_for_partitions_of_others_heals_nothing(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=60, keys=4, change_at=1000)
    other = job.worker("app-1", poll_sizes=(40,))
    healings = Healings()
    worker = worker_of(job, drain=True, telemetry=healings)
    for each in (other, worker):
        each._start()
    for _ in range(60):
        other._guarded_step()
        worker._guarded_step()
        assert not worker._drained()
    assert healings.count == 0
    assert {e["partition"] for e in job.estimates()} == {0} or {e["partition"] for e in job.estimates()} == {1}
