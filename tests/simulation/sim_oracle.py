"""What one process finds that nothing disturbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sim_parts import GROUP, OUTPUTS, broker_of, simulated_parts, worker_of
from sim_scenario import Scenario, scenario_of
from sim_script import TOPIC, Playback, write

from kstream_worker.bus.fake import FakeBroker
from kstream_worker.records import TopicPartition
from kstream_worker.state.opening import Opening
from kstream_worker.worker.loop import Worker
from kstream_worker.worker.task import Task

Arls = tuple[tuple[tuple[int, float], ...], ...]  # by partition: (offset, average run length)
Rejected = tuple[tuple[int, ...], ...]  # by partition: offsets of records that were given up
Published = dict[tuple[str, int], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class KeyState:
    """What is kept of a key: its model, byte for byte, and when it was seen."""

    model: bytes
    seen_ms: int


@dataclass(frozen=True)
class PartitionState:
    """What is kept of a partition."""

    keys: Mapping[bytes, KeyState]
    clock_ms: int
    closed: bool
    silent: Mapping[bytes, int]


@dataclass(frozen=True)
class Result:
    """What a run has led to."""

    published: Published
    states: Mapping[int, PartitionState]


def published(broker: FakeBroker) -> Published:
    """All outputs by topic and partition, in order, with all that a consumer sees of them."""
    found: Published = {}
    for topic in OUTPUTS:
        for record in broker.records(topic):
            line = (record.key, record.value, record.timestamp, tuple(record.headers))
            found.setdefault((topic, record.partition), []).append(line)
    return found


def state_of(task: Task) -> PartitionState:
    """The state of a partition that is open."""
    ledger = task.ledger
    keys = {}
    for key in sorted(ledger.keys):
        slot = ledger.keys.slot(key)
        assert slot is not None
        snapshot = task.snapshot(slot)
        keys[key] = KeyState(snapshot.model, snapshot.seen_ms)
    closed = ledger.admission.closed_from(ledger.reached)
    return PartitionState(keys, ledger.clock.now_ms, bool(closed), dict(ledger.silent.since))


@lru_cache(maxsize=16)
def undisturbed(seed: int, arls: Arls, rejected: Rejected) -> Result:
    """One process from beginning to end.

    Args:
        seed: of a scenario, any of those that share its script.
        arls: the average run lengths that were in force.
        rejected: records that were given up.
    """
    scenario = scenario_of(seed)
    broker = broker_of(scenario)
    Playback(write(scenario.script), broker).feed_all()
    changes = any(arl != scenario.arls[0] for pairs in arls for _, arl in pairs)
    with simulated_parts(scenario, None):
        worker = worker_of(scenario, broker, "oracle", scenario.arls[0], (1000,))
        _dictate(worker, scenario, arls, rejected, changes)
        worker._start()
        while not _done(worker, broker):
            worker._guarded_step()
        states = {tp.partition: state_of(task) for tp, task in worker._tasks.items()}
    return Result(published(broker), states)


def _dictate(worker: Worker, scenario: Scenario, arls: Arls, rejected: Rejected, changes: bool) -> None:
    """Tell a worker's tasks beforehand what is to come."""
    make_task = worker._opener._make_task

    def make(partition: TopicPartition) -> Task:
        task = make_task(partition)
        open_task = task.open

        def open_told(opening: Opening, doomed: Iterable[bytes]) -> None:
            open_task(opening, doomed)
            ledger = task.ledger
            ledger.header = replace(ledger.header, arls=arls[partition.partition] or ledger.header.arls)
            ledger.rejected |= set(rejected[partition.partition])

        task.open = open_told  # type: ignore[method-assign]
        if changes:
            process = task.process
            task.process = lambda batch: [out for part in task._parts(batch) for out in process(part)]  # type: ignore[method-assign]
        return task

    worker._opener._make_task = make


def _done(worker: Worker, broker: FakeBroker) -> bool:
    """Whether everything there is has been read and committed."""
    for tp in broker.partitions(TOPIC):
        task = worker._tasks.get(tp)
        committed = broker.committed(GROUP, *tp)
        if task is None or committed is None or worker._source.position(tp) != broker.log(tp).end:
            return False
        if worker._committer.holds(tp):
            return False
    return True
