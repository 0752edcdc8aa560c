"""The worker of the command line on the fake broker: exactly once through every way in which a commit or a group
can fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kstream_worker.bus.fake import CommitFault, SimulatedCrash
from kstream_worker.errors import Fatal
from kstream_worker.records import ChangeKind
from kstream_worker.worker.loop import Worker

MakeJob = Callable[..., Any]


def test_each_record_gives_one_estimate_and_the_changed_key_one_alarm(make_job: MakeJob) -> None:
    job = make_job()
    job.fill()
    job.run(job.worker())
    job.assert_exactly_once()
    raised = [alarm for alarm in job.alarms() if alarm["transition"] == "raised"]
    assert [alarm["key"] for alarm in raised] == ["pump-0"]
    assert raised[0]["features"][0]["name"] == "y[0]"
    assert raised[0]["direction"] == "up"
    assert job.published("drift-dead-letters") == []


def test_estimates_are_warming_then_armed_and_carry_the_input_position(make_job: MakeJob) -> None:
    job = make_job()
    job.fill(pairs=100, keys=1, change_at=1000)
    job.run(job.worker())
    estimates = job.estimates()
    assert [e["seq"] for e in estimates] == list(range(1, 101))
    assert [e["state"] for e in estimates] == ["warming"] * 60 + ["armed"] * 40
    assert all(e["log_ratio"] is None for e in estimates[:60])
    assert all(np.isfinite(e["log_ratio"]) for e in estimates[60:])
    assert len({e["id"] for e in estimates}) == 100


@pytest.mark.parametrize("poll_sizes", [(1,), (7, 1, 64), (1000,)])
def test_results_do_not_depend_on_how_polls_cut_the_stream(make_job: MakeJob, poll_sizes: tuple[int, ...]) -> None:
    reference, job = make_job(), make_job()
    for each in (reference, job):
        each.fill(pairs=150, keys=3, change_at=90)
    reference.run(reference.worker())
    job.run(job.worker(poll_sizes=poll_sizes))
    assert sorted(job.estimates(), key=position) == sorted(reference.estimates(), key=position)
    assert job.alarms() == reference.alarms()


def position(output: dict[str, Any]) -> tuple[int, int]:
    return output["partition"], output["offset"]


def test_stream_mode_takes_one_sided_records(make_job: MakeJob) -> None:
    job = make_job(input={"x": ""}, detector={"warmup": 60, "arl": 10_000, "dependence": "none"})
    job.fill(pairs=300, keys=2, change_at=200, shift=5.0)
    job.run(job.worker())
    job.assert_exactly_once()
    assert [a["key"] for a in job.alarms() if a["transition"] == "raised"] == ["pump-0"]


@pytest.mark.parametrize("fault", list(CommitFault))
@pytest.mark.parametrize("first", [1, 2, 3])
def test_every_fault_of_a_commit_leaves_exactly_once(make_job: MakeJob, fault: CommitFault, first: int) -> None:
    job = make_job(commit={"interval": 0.2, "timeout": 5.0})
    job.fill(pairs=80, keys=4, change_at=1000)
    job.broker.faults.on_commit(*[None] * first, fault, None, fault, fault)
    job.run(job.worker(poll_sizes=(40,)))
    job.assert_exactly_once()


@pytest.mark.parametrize("kind", [ChangeKind.REVOKED, ChangeKind.LOST])
@pytest.mark.parametrize("at", [2, 3, 5])
def test_work_of_a_partition_that_went_away_is_not_committed(make_job: MakeJob, kind: ChangeKind, at: int) -> None:
    job = make_job(commit={"interval": 60.0, "timeout": 5.0})
    job.fill(pairs=80, keys=4, change_at=1000)
    job.broker.faults.rebalance(at, kind, unsettled_polls=2)
    job.run(job.worker(poll_sizes=(30,)))
    job.assert_exactly_once()


@pytest.mark.parametrize("fault", [CommitFault.UNKNOWN_COMMITTED, CommitFault.UNKNOWN_ABORTED])
@pytest.mark.parametrize("kind", [ChangeKind.REVOKED, ChangeKind.LOST])
def test_a_rebalance_while_a_commit_is_in_doubt(make_job: MakeJob, fault: CommitFault, kind: ChangeKind) -> None:
    for poll in range(2, 12):
        job = make_job(commit={"interval": 0.2, "timeout": 5.0})
        job.fill(pairs=60, keys=4, change_at=1000)
        job.broker.faults.on_commit(None, fault, fault)
        job.broker.faults.rebalance(poll, kind)
        job.run(job.worker(poll_sizes=(20,)))
        job.assert_exactly_once()


@pytest.mark.parametrize(
    "point", ["start", "poll", "committed", "writer.start", "commit", "commit.sent", "commit.done"]
)
def test_a_crash_anywhere_loses_and_doubles_nothing(make_job: MakeJob, point: Any) -> None:
    for call in (1, 2, 3):
        job = make_job(commit={"interval": 0.2})
        job.fill(pairs=60, keys=4, change_at=1000)
        job.broker.faults.crash_at(point, call)
        try:
            job.run(job.worker(poll_sizes=(20,)))
        except SimulatedCrash:
            job.run(job.worker(poll_sizes=(20,)))
        job.assert_exactly_once()


def test_two_workers_share_the_partitions(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=80, keys=4, change_at=1000)
    workers = [job.worker(f"app-{i}", poll_sizes=(25,)) for i in range(2)]
    for worker in workers:
        worker._start()
    for _ in range(200):
        for worker in workers:
            worker._guarded_step()
        if job.done():
            break
    for worker in workers:
        worker.request_stop()
        worker._drain()
        worker._close("test")
    job.assert_exactly_once()


def test_a_second_process_of_the_same_identity_is_fatal_for_the_first(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=60, keys=2)
    first: Worker = job.worker()
    first._start()
    for _ in range(3):
        first.step()
    job.worker()._start()

    def work_on() -> None:
        for _ in range(50):
            first.step()

    with pytest.raises(Fatal, match="another process"):
        work_on()


def test_dead_letters_keep_the_original_and_name_the_place(make_job: MakeJob) -> None:
    job = make_job()
    job.fill(pairs=70, keys=2, change_at=1000)
    bad = [b"{", b'{"y": [1, 2]}', b'{"x": [1, 2], "y": [1, "a"]}', b'{"x": [1, 2], "y": [1]}', b"\xff\x00"]
    offsets = [job.append(0, value) for value in bad]
    job.fill(pairs=5, keys=2, change_at=1000, seed=9)
    job.run(job.worker())
    letters = job.broker.records("drift-dead-letters")
    assert [letter.value for letter in letters] == bad
    found = [dict(letter.headers) for letter in letters]
    assert [int(h["__connect.errors.offset"]) for h in found] == offsets
    assert {h["__connect.errors.topic"] for h in found} == {b"readings"}
    accepted = {(e["partition"], e["offset"]) for e in job.estimates()}
    assert not accepted & {(0, offset) for offset in offsets}
    assert len(accepted) == 2 * 75


def test_a_schema_change_upstream_is_fatal_and_loses_nothing(make_job: MakeJob) -> None:
    job = make_job(gate={"max_consecutive_rejects": 20})
    job.fill(pairs=30, keys=2, change_at=1000)
    for _ in range(40):
        job.append(0, b'{"x": 1}')
    with pytest.raises(Fatal, match="refused"):
        job.run(job.worker(poll_sizes=(10,)))
    committed = job.broker.committed("drift", "readings", 0)
    assert committed is None or committed.offset <= 30 + 40


def test_a_null_value_forgets_the_key_and_clears_its_alarm(make_job: MakeJob) -> None:
    job = make_job(detector={"on_alarm": "hold", "dead_time": "1d"})
    job.fill(pairs=140, keys=1, change_at=90, shift=6.0)
    offset = job.append(0, None)
    job.fill(pairs=3, keys=1, seed=5, change_at=1000)
    job.run(job.worker())
    alarms = job.alarms()
    assert [(a["transition"], a["reason"]) for a in alarms][-1] == ("cleared", "forgotten")
    assert alarms[-1]["offset"] == offset
    last = job.estimates()[-3:]
    assert [e["seq"] for e in last] == [1, 2, 3]
    assert {e["state"] for e in last} == {"warming"}


def test_a_restarted_worker_goes_on_bit_for_bit(make_job: MakeJob) -> None:
    published = []
    for restarts in (False, True):
        job = make_job()
        job.fill(pairs=70, keys=2, change_at=1000)
        if restarts:
            job.run(job.worker())
        job.fill(pairs=60, keys=2, change_at=20, seed=8)
        job.run(job.worker())
        job.assert_exactly_once()
        published.append((job.estimates(), job.alarms()))
    assert published[0] == published[1]
    assert published[0][1]


def test_a_full_outbox_pauses_the_input_until_commits_succeed(make_job: MakeJob) -> None:
    job = make_job(
        commit={"interval": 0.2, "timeout": 1.0, "max_bytes": 65_536}, output={"max_dead_letter_bytes": 2048}
    )
    job.fill(pairs=400, keys=4, change_at=1000)
    job.broker.faults.on_commit(None, *[CommitFault.UNAVAILABLE] * 12)
    worker: Worker = job.worker(poll_sizes=(50,))
    largest = 0
    step = worker.step

    def watching() -> bool:
        nonlocal largest
        alive = step()
        largest = max(largest, worker._committer.size_bytes)
        return alive

    worker.step = watching  # type: ignore[method-assign]
    job.run(worker)
    job.assert_exactly_once()
    assert largest < 65_536 + 2 * 50 * 600  # the cap, and what one poll of each partition adds


def test_commits_that_never_succeed_end_in_a_clear_exit(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2, "timeout": 5.0, "give_up": "60s"})
    job.fill(pairs=40, keys=2)
    job.broker.faults.on_commit(*[CommitFault.UNAVAILABLE] * 1000)
    with pytest.raises(Fatal, match="commits fail"):
        job.run(job.worker())


def test_a_position_that_retention_deleted_is_found_at_the_start(make_job: MakeJob) -> None:
    job = make_job()
    job.fill(pairs=20, keys=2, change_at=1000)
    job.run(job.worker())
    job.fill(pairs=20, keys=2, change_at=1000, seed=4)
    job.broker.truncate("readings", 0, 30)
    with pytest.raises(Fatal, match="retention deleted 10 offsets"):
        job.run(job.worker())


def test_a_new_partition_of_a_known_group_starts_at_its_earliest_record(make_job: MakeJob) -> None:
    job = make_job(input={"start": "latest"})
    job.fill(pairs=10, keys=2, change_at=1000)
    job.run(job.worker())
    assert job.estimates() == []  # a new group, from the latest record on
    job.fill(pairs=10, keys=2, change_at=1000, seed=4)
    for topic in ("readings", "drift-estimates", "drift-alarms", "drift-dead-letters", "drift-state"):
        job.broker.create_topic(topic, partitions=3)
    for t in range(5):
        job.broker.append("readings", 2, b"new", b'{"x": [0, 0], "y": [%d, 0]}' % t, timestamp=1_760_000_000_000)
    job.run(job.worker())
    partitions = [e["partition"] for e in job.estimates()]
    assert (partitions.count(0), partitions.count(1), partitions.count(2)) == (10, 10, 5)
