"""Faults that come together: a bus that does not answer, models that fail, memberships that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kstream_worker.bus.fake import CommitFault
from kstream_worker.errors import Fatal, Rejoin, Retry
from kstream_worker.ports import Bank
from kstream_worker.records import Batch, ChangeKind, Scores, TopicPartition
from kstream_worker.worker.loop import Worker
from kstream_worker.worker.patience import Patience

MakeJob = Callable[..., Any]
OUTPUTS = ("drift-state", "drift-estimates", "drift-alarms", "drift-dead-letters")


def fail_committed(job: Any, calls: range) -> None:
    for call in calls:
        job.broker.faults.raise_at("committed", call, Retry("the committed offsets could not be read in time"))


def add_partition(job: Any, outputs: tuple[str, ...] = OUTPUTS) -> None:
    for topic in ("readings", *outputs):
        job.broker.create_topic(topic, partitions=3)
    value = json.dumps({"ts": 1_760_000_000_000, "x": [0, 0], "y": [0, 0]}).encode()
    for _ in range(5):
        job.broker.append("readings", 2, b"new", value, timestamp=1_760_000_000_000)


def assert_each_record_once(job: Any) -> None:
    wanted = sorted((r.partition, r.offset) for r in job.broker.records("readings"))
    assert sorted((e["partition"], e["offset"]) for e in job.estimates()) == wanted


def test_records_of_other_partitions_survive_a_new_one_that_cannot_be_opened(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=100, keys=4, change_at=1000)
    worker: Worker = job.worker(poll_sizes=(20,))
    worker._start()
    for _ in range(3):
        worker._guarded_step()
    add_partition(job)
    fail_committed(job, range(2, 8))
    job.run(worker_from(job, worker))
    assert_each_record_once(job)


def worker_from(job: Any, worker: Worker) -> Worker:
    """A started worker that `run` does not start again."""
    worker._start = lambda: None  # type: ignore[method-assign]
    return worker


def test_commits_go_on_while_a_new_partition_cannot_be_opened(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=100, keys=4, change_at=1000)
    worker: Worker = job.worker(poll_sizes=(20,))
    worker._start()
    for _ in range(3):
        worker._guarded_step()
    add_partition(job)
    fail_committed(job, range(2, 60))
    for _ in range(40):
        worker._guarded_step()
    assert len(job.estimates()) == 400
    worker._close("test")


def test_a_bus_that_is_away_when_the_group_is_joined_is_waited_for(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=60, keys=4, change_at=1000)
    job.broker.faults.raise_at("start", 1, Retry("no broker can be reached"))
    job.broker.faults.raise_at("poll", 4, Rejoin("the group has gone on without this member"))
    for call in (3, 4):
        job.broker.faults.raise_at("start", call, Retry("no broker can be reached"))
    job.run(job.worker(poll_sizes=(20,)))
    assert job.broker.faults.calls("start", "app-0") == 5
    job.assert_exactly_once()


class Failing:
    """A bank that fails at the n-th and following calls of `update` that are planned."""

    def __init__(self, bank: Bank, plan: Callable[[Any], bool]) -> None:
        self._bank = bank
        self._plan = plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bank, name)

    def update(self, *columns: Any) -> Scores:
        if self._plan(columns[3]):
            raise ZeroDivisionError("a model failed")
        return self._bank.update(*columns)


def break_models(worker: Worker, plan: Callable[[Any], bool]) -> None:
    make = worker._opener._make_task

    def make_broken(partition: Any) -> Any:
        task = make(partition)
        task._bank = Failing(task._bank, plan)  # type: ignore[assignment]
        return task

    worker._opener._make_task = make_broken


@pytest.mark.parametrize("fault", list(CommitFault))
def test_a_model_that_fails_while_a_commit_is_not_settled(make_job: MakeJob, fault: CommitFault) -> None:
    for failing in range(3, 13):
        job = make_job(commit={"interval": 0.2, "timeout": 1.0})
        job.broker.poll_cost_s = 0.04  # a commit every five polls
        job.fill(pairs=40, keys=2, change_at=1000)
        job.broker.faults.on_commit(None, fault, fault)
        worker = job.worker(poll_sizes=(5,))
        calls = iter(range(1, 1000))
        break_models(worker, lambda _, calls=calls, failing=failing: next(calls) == failing)
        job.run(worker)
        job.assert_exactly_once()


def test_a_record_that_a_model_never_survives_is_found_and_becomes_a_dead_letter(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 60.0})
    job.fill(pairs=100, keys=2, change_at=1000)
    worker = job.worker(poll_sizes=(10,))
    poison = 1_760_000_000_000 + 1000 * 70
    break_models(worker, lambda times: poison in times)
    job.run(worker, steps=3000)
    assert [record.partition for record in job.broker.records("drift-dead-letters")] == [0, 1]
    assert len(job.estimates()) == 198


def step_often(worker: Worker, steps: int) -> None:
    for _ in range(steps):
        worker._guarded_step()


def test_models_that_fail_in_a_replay_end_the_process(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=100, keys=2, change_at=1000)
    worker = job.worker(poll_sizes=(10,))
    worker._start()
    for _ in range(60):
        worker._guarded_step()
    assert len(job.estimates()) == 200  # and the process dies before a snapshot is due
    successor = job.worker(poll_sizes=(10,))
    break_models(successor, lambda _: True)
    successor._start()
    with pytest.raises(Fatal, match=r"models failed.*were read again.*ZeroDivisionError.*--discard-state"):
        step_often(successor, 300)


def test_time_in_which_nothing_was_tried_is_no_time_of_faults() -> None:
    now = [0.0]
    patience = Patience(lambda: now[0], 300.0, 0.1, "Do something.")
    patience.failed("first", 0.0)
    now[0] = 3600.0
    assert patience.failed("an hour of idleness later", 3599.0) == 0.1
    for later in range(3630, 3900, 30):
        now[0] = float(later)
        patience.failed("again", later - 29.0)
    now[0] = 3930.0
    with pytest.raises(Fatal, match=r"no success for 330 s: still\. Do something"):
        patience.failed("still", 3901.0)


def test_refused_records_are_not_counted_twice_when_they_are_read_again(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 60.0}, gate={"max_consecutive_rejects": 30})
    job.fill(pairs=10, keys=2, change_at=1000)
    for _ in range(20):
        job.append(0, b"{")
    job.fill(pairs=10, keys=2, change_at=1000, seed=5)
    for poll in (4, 8, 12):
        job.broker.faults.rebalance(poll, ChangeKind.REVOKED)
    job.run(job.worker(poll_sizes=(15,)))
    assert len(job.broker.records("drift-dead-letters")) == 20


def test_a_membership_refused_for_good_is_joined_anew_and_commits_again(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2, "timeout": 1.0, "give_up": "600s"})
    job.fill(pairs=40, keys=2, change_at=1000)
    job.broker.faults.on_commit(None, CommitFault.REJOIN)
    worker = job.worker(poll_sizes=(10,))
    job.run(worker, steps=5000)
    job.assert_exactly_once()


def test_an_input_that_grows_beyond_its_outputs_is_spread_by_key(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=20, keys=2, change_at=1000)
    worker = job.worker(poll_sizes=(10,))
    worker._start()
    for _ in range(3):
        worker._guarded_step()
    add_partition(job, outputs=("drift-state",))
    job.run(worker_from(job, worker))
    assert_each_record_once(job)


def test_the_time_to_stop_counts_from_the_request(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2, "timeout": 20.0}, worker={"shutdown_grace": "25s"})
    job.fill(pairs=40, keys=2, change_at=1000)
    job.broker.faults.on_commit(*[CommitFault.UNAVAILABLE] * 9)
    worker = job.worker(poll_sizes=(10,))
    worker._start()
    for _ in range(3):
        worker._guarded_step()
    job.broker.clock.sleep(1.0)
    worker.request_stop()  # the signal comes in the step whose commit hangs
    asked_s = job.broker.clock()
    worker._guarded_step()
    worker._drain()
    assert 25.0 <= job.broker.clock() - asked_s < 26.0


def test_positions_pass_the_markers_at_the_end_of_an_idle_partition(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=20, keys=2, change_at=1000)
    for partition in range(2):
        aborted = job.broker.transaction()
        aborted.append("readings", partition, b"pump", b"{}")
        aborted.abort()
    job.run(job.worker(), steps=600)
    ends = [job.broker.log(tp).end for tp in job.broker.partitions("readings")]
    assert [job.broker.committed("drift", "readings", p).offset for p in range(2)] == ends
    for partition, end in enumerate(ends):
        job.broker.truncate("readings", partition, end)  # retention, of what was read long ago
    job.fill(pairs=5, keys=2, change_at=1000, seed=9)
    job.run(job.worker())
    assert len(job.estimates()) == 2 * 25


@pytest.mark.parametrize("point", ["cluster", "reader", "reader.poll", "committed"])
def test_no_partition_is_lost_where_the_bus_does_not_answer_while_it_is_opened(make_job: MakeJob, point: Any) -> None:
    for call in range(1, 18):
        job = make_job(commit={"interval": 0.2})
        job.fill(pairs=20, keys=4, change_at=1000)
        job.broker.faults.raise_at(point, call, Retry("no answer in time"))
        job.run(job.worker(poll_sizes=(20,)), steps=300)
        job.assert_exactly_once()


def test_a_restore_that_gets_no_answer_holds_up_no_other(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=20, keys=4, change_at=1000)
    job.run(job.worker())
    worker: Worker = job.worker()
    connect = worker._opener._bus.reader

    def mute() -> Any:
        worker._opener._bus = replace(worker._opener._bus, reader=connect)
        reader = connect()
        reader.poll = no_answer  # type: ignore[method-assign]
        return reader

    worker._opener._bus = replace(worker._opener._bus, reader=mute)
    worker._start()
    for _ in range(3):
        worker._guarded_step()
    add_partition(job)
    for _ in range(5):
        worker._guarded_step()
    assert worker._tasks.keys() == {TopicPartition("readings", 2)}
    worker._close("test")


def no_answer(timeout_s: float) -> list[Batch]:
    raise Retry(f"no answer within {timeout_s} s")


def test_a_partition_waits_for_a_place_for_its_state_and_holds_up_no_other(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=20, keys=4, change_at=1000)
    worker: Worker = job.worker(poll_sizes=(20,))
    add_partition(job, outputs=OUTPUTS[1:])
    worker._start()
    for _ in range(40):
        worker._guarded_step()
    assert len(job.estimates()) == 80
    job.broker.create_topic("drift-state", partitions=3)
    job.run(worker_from(job, worker))
    assert_each_record_once(job)


def test_a_partition_without_a_place_for_its_state_ends_the_worker_with_the_remedy(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2, "give_up": 60.0})
    worker: Worker = job.worker()
    add_partition(job, outputs=OUTPUTS[1:])
    with pytest.raises(
        Fatal, match=r"state topic 'drift-state' has 2 partitions\. Add partitions to it until it has as"
    ):
        job.run(worker)


def test_a_full_outbox_that_cannot_be_committed_does_not_keep_the_worker_from_polling(make_job: MakeJob) -> None:
    job = make_job(
        commit={"interval": 0.2, "timeout": 1.0, "max_bytes": 65_536}, output={"max_dead_letter_bytes": 2048}
    )
    for topic in ("readings", *OUTPUTS):
        job.broker.create_topic(topic, partitions=12)
    worker: Worker = job.worker(poll_sizes=(600,))
    break_models(worker, lambda times: job.broker.clock.sleep(0.5))  # a batch takes its time
    worker._start()
    for _ in range(5):
        worker._guarded_step()
    value = json.dumps({"ts": 1_760_000_000_000, "x": [0, 0], "y": [0, 0]}).encode()
    for number in range(600):
        job.broker.append("readings", number % 12, b"new", value, timestamp=1_760_000_000_000)
    job.broker.faults.on_commit(*[CommitFault.UNAVAILABLE] * 40)
    before_s = job.broker.clock()
    worker._guarded_step()
    assert job.broker.clock() - before_s < 12 * 0.5 + 3.0
    worker._close("test")
