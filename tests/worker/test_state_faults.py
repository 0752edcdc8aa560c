"""Faults that bit stream processors in production and that concern state; each test is named after one.

Sources, with issue numbers at the tests: quixio/quix-streams, faust-streaming/faust, bytewax/bytewax, apache/kafka,
apache/flink-connector-kafka, redpanda-data/connect, confluentinc/ksql, turbolytics/sql-flow, Waikato/moa,
elastic/ml-cpp.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
import pytest

from kstream_worker.bus.fake import CommitFault, FakeBroker, Faults, SimulatedCrash
from kstream_worker.bus.fake.faults import Point
from kstream_worker.errors import Fatal
from kstream_worker.records import ChangeKind, TopicPartition
from kstream_worker.state.format import HEADER_KEY, decode_header, decode_snapshot, state_key
from kstream_worker.worker.loop import Worker

MakeJob = Callable[..., Any]
START_MS = 1_760_000_000_000
STATE = "drift-state"
SMALL = {"detector": {"warmup": 20, "arl": 500}}


def begin(job: Any, identity: str = "app-0", polls: int = 20) -> Worker:
    worker: Worker = job.worker(identity, poll_sizes=(polls,))
    worker._start()
    return worker


def work(worker: Worker, until: Callable[[], bool], steps: int = 2000) -> None:
    for _ in range(steps):
        worker._guarded_step()
        if until():
            return
    raise AssertionError("it does not come to pass")


def finish(worker: Worker) -> None:
    worker.request_stop()
    worker._drain()
    worker._close("test")


def is_open(job: Any, worker: Worker) -> Callable[[], bool]:
    """Whether the worker has all partitions, restored and replayed."""
    return lambda: (
        len(worker._tasks) == 2
        and not worker._marks
        and not any(task.ledger.replaying for task in worker._tasks.values())
    )


def models(workers: Iterable[Worker]) -> dict[bytes, bytes]:
    return {
        key: task.snapshot(task.ledger.keys.slot(key) or 0).model
        for worker in workers
        for task in worker._tasks.values()
        for key in task.ledger.keys
    }


def undisturbed(make_job: MakeJob, fill: Callable[[Any], None], **sections: Any) -> tuple[Any, dict[bytes, bytes]]:
    """A job that one process did, and the models that it had at the end."""
    job = make_job(**sections)
    fill(job)
    worker = begin(job)
    work(worker, job.done)
    found = models([worker])
    finish(worker)
    return job, found


def fill_with_a_change(job: Any) -> None:
    job.fill(pairs=90, keys=4, change_at=50)


def assert_same(job: Any, reference: Any) -> None:
    for topic in ("drift-estimates", "drift-alarms", "drift-dead-letters"):
        found, wanted = (sorted(map(tuple_of, each.broker.records(topic))) for each in (job, reference))
        assert found == wanted


def tuple_of(record: Any) -> tuple[Any, ...]:
    return record.partition, record.key, record.value, record.headers


# -- quix-streams#1124: one partition stops, the process stays "healthy" --


def test_one_partition_that_stops_is_started_again_with_its_models(make_job: MakeJob) -> None:
    sections = {**SMALL, "worker": {"progress_timeout": "60s"}}
    reference, wanted = undisturbed(make_job, fill_with_a_change, **sections)
    job = make_job(**sections)
    fill_with_a_change(job)
    worker = begin(job)
    work(worker, lambda: any(task.ledger.reached > 60 for task in worker._tasks.values()))
    stuck = TopicPartition("readings", 0)
    worker._source.pause([stuck])  # a client that forgets to fetch it
    work(worker, job.done)
    assert models([worker]) == wanted
    finish(worker)
    assert_same(job, reference)


def test_one_partition_that_cannot_go_on_fails_liveness(make_job: MakeJob) -> None:
    job = make_job(worker={"progress_timeout": "60s"})
    job.fill(pairs=20, keys=2, change_at=1000)
    worker = begin(job)
    status = worker._board
    status._clock = job.broker.clock  # type: ignore[attr-defined]
    job.broker.faults.deny("read", "readings")
    work(worker, lambda: not status.health()[0])  # type: ignore[attr-defined]
    healthy, details = status.health()  # type: ignore[attr-defined]
    assert not healthy
    assert "readings[0]" in details["stalled_partitions"]
    worker._close("test")


# -- quix-streams#1131, #1017: a hand-over longer than the poll interval, and a rebalance livelock --


def test_a_restore_longer_than_the_poll_interval_does_not_leave_the_group(make_job: MakeJob) -> None:
    job = make_job(**SMALL)
    job.broker = FakeBroker(session_timeout_s=1.0)
    for topic in ("readings", "drift-estimates", "drift-alarms", "drift-dead-letters", STATE):
        job.broker.create_topic(topic, partitions=2)
    job.fill(pairs=30, keys=4, change_at=1000)
    first = begin(job)
    work(first, job.done)
    finish(first)
    (stored,) = [one for one in job.broker.records(STATE) if one.key == state_key(b"pump-0")]
    for _ in range(20_000):  # rewritten many times, and not yet compacted
        job.broker.append(STATE, 0, stored.key, stored.value)
    worker = begin(job)
    generations = set()
    began_s = job.broker.clock()

    def opened() -> bool:
        membership = worker._source.membership()
        if membership is not None:
            generations.add(membership.generation)
        return is_open(job, worker)()

    job.broker.poll_cost_s = 0.15  # of 500 records
    work(worker, opened)
    assert job.broker.clock() - began_s > 4.0
    assert len(generations) == 1
    finish(worker)


# -- quix-streams#1017, librdkafka#2539: recovery waits for an offset that was a transaction marker --


def test_a_restore_does_not_wait_for_a_marker(make_job: MakeJob) -> None:
    job = make_job(**SMALL)
    job.fill(pairs=30, keys=4, change_at=1000)
    job.run(job.worker())
    for partition in range(2):
        aborted = job.broker.transaction()
        aborted.append(STATE, partition, state_key(b"pump-0"), b"never")
        aborted.abort()
    began_s = job.broker.clock()
    worker = begin(job)
    work(worker, is_open(job, worker))
    assert job.broker.clock() - began_s < 1.0
    finish(worker)


# -- quix-streams#1114: the committed offset fell below retention, alive but idle --


def test_an_offset_below_retention_is_found_at_assignment(make_job: MakeJob) -> None:
    job = make_job(**SMALL)
    job.fill(pairs=30, keys=4, change_at=1000)
    job.run(job.worker())
    job.fill(pairs=30, keys=4, change_at=1000, seed=4)
    job.broker.truncate("readings", 1, 70)
    worker = begin(job)
    with pytest.raises(Fatal, match=r"readings\[1\].*10 offsets were deleted before they were read.*trust_state"):
        work(worker, lambda: False)


# -- quix-streams PR#1137: a limit multiplied per partition and store --


def test_the_limit_of_snapshots_is_one_for_all_partitions(make_job: MakeJob) -> None:
    limit = 65_536
    job = make_job(
        commit={"interval": 0.2, "max_bytes": limit},
        output={"max_dead_letter_bytes": 2048},
        state={"interval": 0.2, "replay_records": 10},
        **SMALL,
    )
    job.fill(pairs=40, keys=40, change_at=1000)
    job.run(job.worker())
    pages: Counter[str] = Counter()
    largest = page = 0
    for record in job.broker.records(STATE):
        assert record.value is not None
        if record.key == HEADER_KEY:
            pages[decode_header(record.value).token] += page
            page = 0
        else:
            page += len(record.value)
            largest = max(largest, len(record.value))
    assert max(pages.values()) > limit / 2
    assert max(pages.values()) <= limit + largest


# -- faust#323, #47, #216: crash, duplicates or hang on rebalance under exactly-once --

POINTS: tuple[Point, ...] = ("poll", "committed", "reader.poll", "commit", "commit.sent", "commit.done")


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_changes_no_bit(make_job: MakeJob, point: Point) -> None:
    sections = {**SMALL, "commit": {"interval": 0.2}, "state": {"interval": 0.2}}
    reference, wanted = undisturbed(make_job, fill_with_a_change, **sections)
    job = make_job(**sections)
    job.broker.poll_cost_s = 0.05
    fill_with_a_change(job)
    worker = begin(job)
    for call in (2, 4, 7, 11):
        job.broker.faults.crash_at(point, call)
    job.broker.faults.crash_at("commit.done", 3)
    job.broker.faults.crash_at("commit.done", 6)
    deaths = 0
    for _ in range(2000):
        try:
            worker._guarded_step()
        except SimulatedCrash:
            worker, deaths = begin(job), deaths + 1
        if job.done() and is_open(job, worker)():
            break
    assert deaths > 2
    assert models([worker]) == wanted
    job.broker.faults = Faults()
    finish(worker)
    assert_same(job, reference)


@pytest.mark.parametrize("kind", [ChangeKind.REVOKED, ChangeKind.LOST])
def test_a_rebalance_changes_no_bit(make_job: MakeJob, kind: ChangeKind) -> None:
    sections = {**SMALL, "commit": {"interval": 0.2}, "state": {"interval": 0.2}}
    reference, wanted = undisturbed(make_job, fill_with_a_change, **sections)
    job = make_job(**sections)
    job.broker.poll_cost_s = 0.05
    fill_with_a_change(job)
    worker = begin(job)
    for poll in (3, 6, 10, 15, 30):
        job.broker.faults.rebalance(poll, kind, unsettled_polls=1)
    work(worker, lambda: job.done() and is_open(job, worker)())
    assert models([worker]) == wanted
    finish(worker)
    assert_same(job, reference)


# -- faust#385, bytewax#577: expiry lost after recovery, memory grows with keys --


def test_keys_expire_after_a_recovery_as_before_and_leave_nothing(make_job: MakeJob) -> None:
    job = make_job(state={"ttl": "60s"}, **SMALL)
    for k in range(50):
        sample(job, b"one-shot-%d" % k, START_MS + k)
    job.run(job.worker())
    sample(job, b"talker", START_MS + 1000)
    job.run(job.worker())
    worker = begin(job)
    work(worker, is_open(job, worker))
    assert worker._tasks[TopicPartition("readings", 0)].live_keys == 51
    sample(job, b"talker", START_MS + 70_000)
    work(worker, job.done)
    assert worker._tasks[TopicPartition("readings", 0)].live_keys == 1
    finish(worker)
    job.broker.compact(STATE)
    kept = [record.key for record in job.broker.records(STATE) if record.partition == 0]
    assert sorted(kept) == [HEADER_KEY, state_key(b"talker")]


def sample(job: Any, key: bytes, time_ms: int, stamp_ms: int | None = None) -> None:
    value = json.dumps({"ts": time_ms, "x": [0.5, 0.25], "y": [1.0, 0.0]}).encode()
    job.broker.append("readings", 0, key, value, timestamp=time_ms if stamp_ms is None else stamp_ms)


# -- apache/kafka PR#22548, PR#23390: aborted writes survive, corruption crash-loops --


@pytest.mark.parametrize("fault", [CommitFault.ABORT, CommitFault.UNKNOWN_ABORTED])
def test_aborted_snapshots_are_never_restored(make_job: MakeJob, fault: CommitFault) -> None:
    sections = {**SMALL, "commit": {"interval": 0.2, "timeout": 1.0}, "state": {"interval": 0.2}}
    reference, wanted = undisturbed(make_job, fill_with_a_change, **sections)
    job = make_job(**sections)
    job.broker.poll_cost_s = 0.1
    fill_with_a_change(job)
    worker = begin(job)
    work(worker, lambda: all(task.ledger.reached > 40 for task in worker._tasks.values()) and bool(worker._tasks))
    before = len(job.broker.records(STATE))
    job.broker.faults.on_commit(*[fault] * 3)
    calls = job.broker.faults.calls("commit", "app-0")
    work(worker, lambda: job.broker.faults.calls("commit", "app-0") >= calls + 1)
    assert len(job.broker.records(STATE)) == before
    assert len(job.broker.records(STATE, read_committed=False)) > before  # it was written, and aborted
    worker = begin(job)  # the former one is dead
    work(worker, lambda: job.done() and is_open(job, worker)())
    assert models([worker]) == wanted
    finish(worker)
    assert_same(job, reference)


def test_corrupted_state_is_quarantined_once_and_does_not_loop(make_job: MakeJob) -> None:
    job = make_job(**SMALL)
    job.fill(pairs=30, keys=4, change_at=1000)
    job.run(job.worker())
    job.broker.append(STATE, 0, state_key(b"pump-0"), b"garbage")
    for _ in range(3):
        job.run(job.worker())
    letters = job.broker.records("drift-dead-letters")
    assert [(letter.key, letter.value) for letter in letters] == [(b"pump-0", b"garbage")]
    assert dict(letters[0].headers)["__kstream.reason"] == b"corrupt_state"
    job.fill(pairs=1, keys=4, change_at=1000, seed=4)
    job.run(job.worker())
    seqs = {estimate["key"]: estimate["seq"] for estimate in job.estimates()}
    assert seqs == {"pump-0": 1, "pump-1": 31, "pump-2": 31, "pump-3": 31}


def test_alarms_in_a_replay_do_not_stop_the_input(make_job: MakeJob) -> None:
    """Nothing of a replay is committed: what is to be written of it must not wait for room in a commit."""
    job = make_job(**SMALL, commit={"max_bytes": "80KiB"}, output={"max_dead_letter_bytes": "64KiB"})
    alarmed = [state_key(b"pump-%d" % k) for k in range(4)]
    fill_with_shifts(job, pairs=120, change_at=60, quiet=2)
    worker = begin(job)
    work(worker, job.done)  # then killed; the quiet keys are read again from their first record on
    for partition, key in enumerate(alarmed):
        job.broker.append(STATE, partition % 2, key, b"damaged")
    fill_with_shifts(job, pairs=10, change_at=0, quiet=2)
    worker = begin(job)
    work(worker, job.done)
    assert sum(len(task.ledger.keys) for task in worker._tasks.values()) == 6
    finish(worker)


def fill_with_shifts(job: Any, pairs: int, change_at: int, quiet: int) -> None:
    """Pairs of six keys, of which all but the last few change."""
    rng = np.random.default_rng(3)
    for t in range(pairs):
        for k in range(6):
            y = rng.standard_normal(2) + (6.0 if t >= change_at and k < 6 - quiet else 0.0)
            value = {"ts": START_MS + 1000 * t, "x": rng.standard_normal(2).tolist(), "y": y.tolist()}
            job.append(k, json.dumps(value).encode(), START_MS + 1000 * t)


# -- flink-connector-kafka PR#238: lingering transactions freeze read_committed readers --


def test_a_lingering_transaction_on_the_input_is_told_once(
    make_job: MakeJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no lag: readers have read all that they may."""
    job = make_job(**SMALL)
    job.broker._transaction_timeout_s = 3600.0
    job.fill(pairs=10)
    worker = begin(job)
    work(worker, job.done)
    lingering = job.broker.transaction()
    lingering.append("readings", 0, b"pump-0", b"{}")
    job.fill(pairs=10, seed=4)
    told = "stays open on the input"

    def turn(seconds: int) -> int:
        for _ in range(seconds):
            job.broker.clock.sleep(1.0)
            worker._guarded_step()
        return capsys.readouterr().out.count(told)

    assert turn(50) == 0
    assert turn(400) == 1
    lingering.commit()
    assert turn(400) == 0
    assert job.done()
    finish(worker)


@pytest.mark.parametrize("longest_s", [30.0, 200.0])
def test_a_restore_waits_for_what_a_lingering_transaction_hides(make_job: MakeJob, longest_s: float) -> None:
    """By default, and where `transaction_timeout_ms` is set longer: who gives up sooner takes the whole group along."""
    job = make_job(**SMALL)
    job.broker._transaction_timeout_s = longest_s
    job.run(job.worker(), steps=20)
    worker = begin(job)
    work(worker, is_open(job, worker))
    lingering = job.broker.transaction()
    lingering.append(STATE, 0, state_key(b"pump-0"), b"never")
    job.fill(pairs=30, keys=2, change_at=1000)
    work(worker, job.done)
    finish(worker)  # all of its snapshots lie behind that
    worker = begin(job)
    for _ in range(20):
        worker._guarded_step()
    assert list(worker._tasks) == [TopicPartition("readings", 1)]
    work(worker, is_open(job, worker))  # the coordinator ends it after its time-out
    assert worker._tasks[TopicPartition("readings", 0)].ledger.keys.slot(b"pump-0") is not None
    job.fill(pairs=1, keys=2, change_at=1000, seed=4)
    work(worker, job.done)
    assert {estimate["key"]: estimate["seq"] for estimate in job.estimates()} == {"pump-0": 31, "pump-1": 31}
    finish(worker)


def test_a_transaction_that_never_ends_is_named_with_the_remedy(make_job: MakeJob) -> None:
    job = make_job(**SMALL)
    job.fill(pairs=30, keys=2, change_at=1000)
    job.broker.transaction().append(STATE, 0, state_key(b"pump-0"), b"never")
    worker = begin(job)
    job.broker._transaction_timeout_s = 1e9  # that producer's; the worker's own is as it was
    with pytest.raises(Fatal, match=r"drift-state\[0\] at 0 of 1.*find-hanging"):
        work(worker, lambda: False)


# -- redpanda-data/connect PR#4009: scale-up lost 10,433 messages --


def test_scale_up_loses_nothing_and_moves_the_models(make_job: MakeJob) -> None:
    sections = {**SMALL, "commit": {"interval": 0.5}}
    reference, wanted = undisturbed(make_job, fill_with_a_change, **sections)
    job = make_job(**sections)
    job.broker.poll_cost_s = 0.02
    fill_with_a_change(job)
    workers = [begin(job)]
    work(workers[0], lambda: bool(job.estimates()))
    workers[0]._guarded_step()  # something is not committed yet
    workers.append(begin(job, "app-1"))
    for _ in range(2000):
        for worker in workers:
            worker._guarded_step()
        moved = [task for tp, task in workers[1]._tasks.items() if tp not in workers[1]._marks]
        if job.done() and moved and not moved[0].ledger.replaying:
            break
    assert [len(worker._tasks) for worker in workers] == [1, 1]
    assert models(workers) == wanted
    for worker in workers:
        finish(worker)
    assert_same(job, reference)


# -- ksql#1100: tombstone crashes --


def test_a_tombstone_resets_a_key_for_every_later_process(make_job: MakeJob) -> None:
    job = make_job(**SMALL)
    job.fill(pairs=30, keys=2, change_at=1000)
    job.run(job.worker())
    job.append(0, None)
    job.append(0, None)  # of a key that is not there
    job.run(job.worker())
    job.fill(pairs=2, keys=2, change_at=1000, seed=4)
    job.run(job.worker())
    seqs = {estimate["key"]: estimate["seq"] for estimate in job.estimates()}
    assert seqs == {"pump-0": 2, "pump-1": 32}


# -- sql-flow#358: one fast clock makes the fleet late --


def test_one_fast_clock_expires_nobody(make_job: MakeJob) -> None:
    job = make_job(state={"ttl": "60s", "max_future_skew": "1s"}, **SMALL)
    for number in range(10):
        sample(job, b"pump-%d" % number, START_MS + number)
    sample(job, b"fast", START_MS + 10**10, stamp_ms=START_MS + 20)
    sample(job, b"pump-0", START_MS + 30)
    job.run(job.worker())
    worker = begin(job)
    work(worker, is_open(job, worker))
    task = worker._tasks[TopicPartition("readings", 0)]
    assert task.live_keys == 11
    assert task.ledger.clock.now_ms == START_MS + 20 + 1000
    finish(worker)


# -- MLServer PR#1108: a batch of n differs from n singles --


@pytest.mark.parametrize("polls", [1, 7])
def test_models_do_not_depend_on_how_polls_cut_before_and_after_a_recovery(make_job: MakeJob, polls: int) -> None:
    reference, wanted = undisturbed(make_job, fill_with_a_change, **SMALL)
    job = make_job(**SMALL)
    fill_with_a_change(job)
    worker = begin(job, polls=polls)
    work(worker, lambda: any(task.ledger.reached > 100 for task in worker._tasks.values()))
    worker = begin(job, polls=2 * polls + 1)
    work(worker, lambda: job.done() and is_open(job, worker)())
    assert models([worker]) == wanted
    finish(worker)
    assert_same(job, reference)


# -- Waikato/moa PR#251, elastic/ml-cpp#1178: spurious alarms after a restore --


def test_a_restore_raises_no_alarm_and_forgets_none(make_job: MakeJob) -> None:
    sections = {"detector": {"warmup": 20, "arl": 500, "on_alarm": "hold", "dead_time": "1d"}}
    job = make_job(**sections)
    fill_with_a_change(job)
    job.run(job.worker())
    raised = [alarm for alarm in job.alarms() if alarm["transition"] == "raised"]
    assert raised
    for _ in range(3):
        job.run(job.worker())
    worker = begin(job)
    work(worker, is_open(job, worker))
    shown = {alarm["key"] for alarm in worker._board.alarms()["alarms"]}  # type: ignore[attr-defined]
    assert shown == {alarm["key"] for alarm in raised}
    assert job.alarms() == raised
    finish(worker)


def test_an_alarm_is_snapshotted_with_its_publication(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2}, state={"interval": 3600}, **SMALL)
    fill_with_a_change(job)
    worker = begin(job)
    work(worker, lambda: bool(job.alarms()))
    offset = job.alarms()[0]["offset"]
    stored = [record for record in job.broker.records(STATE) if record.key == state_key(b"pump-0")]
    assert decode_snapshot(stored[-1].value or b"").position > offset
    worker._close("test")


# -- a record that ends each process that reads it --


class Deadly:
    """A bank in which one value ends the process."""

    def __init__(self, bank: Any) -> None:
        self._bank = bank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bank, name)

    def update(self, slots: Any, x: Any, y: Any, times: Any) -> Any:
        if (y == 666.0).any():
            raise SimulatedCrash("no process survives this")
        return self._bank.update(slots, x, y, times)


def begin_mortal(job: Any) -> Worker:
    worker: Worker = job.worker(poll_sizes=(40,))
    make_task = worker._opener._make_task

    def make(partition: TopicPartition) -> Any:
        task = make_task(partition)
        task._bank = Deadly(task._bank)
        return task

    worker._opener._make_task = make
    worker._start()
    return worker


def test_a_poisonous_record_is_given_up_in_its_place_and_no_other_with_it(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2}, **SMALL)
    job.fill(pairs=5, keys=4, change_at=1000)
    before = job.append(0, b"{")
    poison = job.append(0, json.dumps({"ts": START_MS, "x": [0.0, 0.0], "y": [666.0, 0.0]}).encode())
    after = job.append(0, b"}")
    job.fill(pairs=5, keys=4, change_at=1000, seed=4)
    worker, deaths = begin_mortal(job), 0
    for _ in range(3000):
        try:
            worker._guarded_step()
        except SimulatedCrash:
            worker, deaths = begin_mortal(job), deaths + 1
        if job.done():
            break
    letters = [dict(letter.headers) for letter in job.broker.records("drift-dead-letters")]
    found = [(int(one["__connect.errors.offset"]), one["__kstream.reason"]) for one in letters]
    assert found == [(before, b"not_decodable"), (poison, b"poison"), (after, b"not_decodable")]
    assert deaths == 4 + 3  # the beginning and three starts without progress, then three at its trial
    assert len(job.estimates()) == 4 * 10
    finish(worker)


def test_a_partition_that_moves_on_while_it_is_replayed_is_not_blamed(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2}, state={"interval": 1000.0}, **SMALL)
    job.fill(pairs=30, keys=2, change_at=1000)
    job.broker.poll_cost_s = 0.05
    work(begin(job), job.done)  # killed with all keys unwritten
    job.fill(pairs=1, keys=2, change_at=1000)  # something waits, so a start without progress is a sign
    for _ in range(6):
        worker = begin(job)
        while not any(task.ledger.replaying for task in worker._tasks.values()):
            worker._guarded_step()
    headers = [decode_header(r.value) for r in job.broker.records(STATE) if r.key == HEADER_KEY and r.value]
    assert max(header.attempts for header in headers) <= 1
    work(worker, job.done)
    finish(worker)
    assert len(job.estimates()) == 2 * 31


def test_stops_in_good_order_are_no_deaths(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2}, **SMALL)
    job.fill(pairs=3, keys=2, change_at=1000)
    start_in_vain(job)
    for _ in range(6):
        worker = begin(job)
        while all(task.ledger.trial < 0 for task in worker._tasks.values()):
            worker._guarded_step()
        finish(worker)
    job.run(job.worker())
    assert job.broker.records("drift-dead-letters") == []
    assert len(job.estimates()) == 2 * 3


def test_a_note_that_moves_between_living_processes_is_no_death(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2}, **SMALL)
    job.fill(pairs=3, keys=2, change_at=1000)
    start_in_vain(job)
    job.broker.evict("drift", "app-0")
    workers = {name: begin(named(job, name), name) for name in ("pod-0", "pod-1")}
    for name in workers:
        job.broker.evict("drift", name)
    for name in ["pod-0", "pod-1"] * 4:
        worker = workers[name]
        while not is_noted(worker):
            worker._guarded_step()
        job.broker.evict("drift", name)
    for _ in range(300):
        for worker in workers.values():
            worker._guarded_step()
    assert job.done()
    assert job.broker.records("drift-dead-letters") == []
    assert len(job.estimates()) == 2 * 3


def test_partitions_that_go_together_leave_no_note_behind(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2}, **SMALL)
    job.fill(pairs=3, keys=2, change_at=1000)
    start_in_vain(job)
    worker = begin(job)
    while not is_noted(worker):
        worker._guarded_step()
    assert len(worker._trials._queues) == 2
    job.broker.evict("drift", "app-0")
    while worker._tasks:
        worker._guarded_step()
    assert worker._committer.empty
    work(worker, job.done)
    finish(worker)


def named(job: Any, name: str) -> Any:
    """The same job for a static member."""
    kafka = msgspec.structs.replace(job.config.bus.kafka, group_instance_id=name)
    job.config = msgspec.structs.replace(job.config, bus=msgspec.structs.replace(job.config.bus, kafka=kafka))
    return job


def start_in_vain(job: Any) -> None:
    """Starts that led to nothing, so many that records go one by one after them."""
    for _ in range(4):
        worker = begin(job)
        while not worker._tasks or worker._marks:
            worker._guarded_step()


def is_noted(worker: Worker) -> bool:
    """Whether the next step tries a record alone."""
    noted = worker._trials._noted
    return noted is not None and not worker._committer.holds(noted)
