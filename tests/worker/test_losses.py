"""What is lost when what is lost: the table of docs/state.md, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from kstream_worker.errors import Fatal
from kstream_worker.records import Batch, Committed, TopicPartition
from kstream_worker.worker.restore import Restored

MakeJob = Callable[..., Any]
STATE = "drift-state"
PARTITIONS = (0, 1)


def begin(job: Any, policy: str = "fail") -> Any:
    """A worker each turn of which takes longer than a commit interval."""
    state = msgspec.structs.replace(job.config.state, on_offset_mismatch=policy)
    job.config = msgspec.structs.replace(job.config, state=state)
    worker = job.worker(poll_sizes=(20,))
    step = worker.step

    def slowly() -> bool:
        job.broker.clock.sleep(0.3)
        alive: bool = step()
        return alive

    worker.step = slowly
    return worker


def half_done(make_job: MakeJob) -> Any:
    """A job whose worker was killed after 80 records of each partition, with snapshots of the first 40."""
    job = make_job(commit={"interval": 0.2}, state={"interval": 3600.0})
    job.fill(pairs=20, keys=4, change_at=1000)
    job.run(begin(job))
    job.fill(pairs=20, keys=4, change_at=1000, seed=4)
    worker = begin(job)
    worker._start()
    while not job.done():
        worker._guarded_step()
    job.fill(pairs=20, keys=4, change_at=1000, seed=5)
    return job


def positions(job: Any) -> list[int]:
    return [job.broker.committed("drift", "readings", number).offset for number in PARTITIONS]


def outcome(job: Any, before: int) -> tuple[int, int, set[int]]:
    """Records lost, records published again, and the first `seq` of each key that was published after the loss."""
    counts = Counter((e["partition"], e["offset"]) for e in job.estimates())
    wanted = {(record.partition, record.offset) for record in job.broker.records("readings")}
    published = job.estimates()
    seqs: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for estimate in published:
        seen[estimate["key"]] += 1
        if seen[estimate["key"]] > before:
            seqs.setdefault(estimate["key"], estimate["seq"])
    return len(wanted - counts.keys()), sum(counts[at] - 1 for at in counts), set(seqs.values())


def by_key(job: Any) -> list[dict[str, Any]]:
    """All estimates, in order for each key."""
    return sorted(job.estimates(), key=lambda estimate: estimate["key"])


def expire(job: Any) -> None:
    job.broker.expire_positions("drift")


def reset(job: Any) -> None:
    for number in PARTITIONS:
        job.broker.group("drift").positions[TopicPartition("readings", number)] = Committed(60)


def delete_state(job: Any) -> None:
    job.broker.delete_topic(STATE)
    job.broker.create_topic(STATE, len(PARTITIONS))


def cut_what_was_read(job: Any) -> None:
    for number in PARTITIONS:
        job.broker.truncate("readings", number, 60)


def delete_both(job: Any) -> None:
    expire(job)
    delete_state(job)


class Loss(NamedTuple):
    """What was lost, under which policy, and what comes of it.

    Attributes:
        first: what `seq` goes on with: 41 for the models as they were; 1 for models that start afresh; a number between
            where samples are missing.
    """

    damage: Callable[[Any], None]
    policy: str
    lost: int
    doubled: int
    first: int


AS_WAS, AFRESH = 41, 1
LOSSES = [
    Loss(lambda _: None, "fail", 0, 0, AS_WAS),
    Loss(expire, "trust_state", 0, 0, AS_WAS),
    Loss(expire, "discard_state", 0, 160, AFRESH),
    Loss(reset, "trust_state", 0, 0, AS_WAS),
    Loss(reset, "discard_state", 0, 40, AFRESH),
    Loss(delete_state, "discard_state", 0, 0, AFRESH),
    Loss(cut_what_was_read, "trust_state", 0, 0, 31),
    Loss(cut_what_was_read, "discard_state", 0, 0, AFRESH),
    Loss(delete_both, "fail", 0, 160, AFRESH),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.damage.__name__}-{loss.policy}")
def test_what_is_lost(make_job: MakeJob, loss: Loss) -> None:
    job = half_done(make_job)
    assert positions(job) == [80, 80]
    loss.damage(job)
    job.run(begin(job, loss.policy))
    lost, doubled, first = outcome(job, before=40)
    assert (lost, doubled, first) == (loss.lost, loss.doubled, {loss.first})
    if loss.first == AS_WAS:
        undisturbed = half_done(make_job)
        undisturbed.run(begin(undisturbed))
        assert by_key(job) == by_key(undisturbed)


@pytest.mark.parametrize(
    ("damage", "policy", "message"),
    [
        (expire, "fail", "the group has no committed offset"),
        (reset, "fail", "the group's committed offset is 60, the state is at 80"),
        (delete_state, "fail", "there is no header in the state topic"),
        (delete_state, "trust_state", "There is no state to trust"),
        (cut_what_was_read, "fail", r"retention deleted 20 offsets \(none of them is unread\)"),
    ],
)
def test_what_does_not_fit_is_said_and_nothing_is_changed(
    make_job: MakeJob, damage: Callable[[Any], None], policy: str, message: str
) -> None:
    job = half_done(make_job)
    damage(job)
    before = len(job.broker.records(STATE))
    with pytest.raises(Fatal, match=message):
        job.run(begin(job, policy))
    assert len(job.broker.records(STATE)) == before
    assert len(job.estimates()) == 160


def lose_newest(job: Any) -> None:
    """An unclean election: the last ten records that were read are gone, and forty others are there."""
    for number, position in zip(PARTITIONS, positions(job), strict=True):
        job.broker.lose_newest("readings", number, position - 10)
    job.fill(pairs=20, keys=4, change_at=1000, seed=7)


def all_done(make_job: MakeJob) -> Any:
    """A job whose worker has read everything and was stopped: nothing is to be read again."""
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=20, keys=4, change_at=1000)
    job.run(begin(job))
    return job


@pytest.mark.parametrize("make", [half_done, all_done])
def test_records_in_the_place_of_others_are_not_taken_for_them(
    make_job: MakeJob, make: Callable[[MakeJob], Any]
) -> None:
    job = make(make_job)
    lose_newest(job)
    before = positions(job), len(job.estimates())
    with pytest.raises(Fatal, match=r"lost records that were read already.*unclean"):
        job.run(begin(job))
    assert (positions(job), len(job.estimates())) == before


def test_a_marker_of_the_next_leader_is_no_loss(make_job: MakeJob) -> None:
    """The position passes what the last leader wrote: its end lies before the position."""
    job = all_done(make_job)
    worker = begin(job)
    worker._start()
    steps(worker, 5)
    for number in PARTITIONS:
        log = job.broker.log(TopicPartition("readings", number))
        log.lose_newest(log.end)  # an election that loses nothing
        log.skip(1)  # as a marker
    steps(worker, 100)
    assert positions(job) == [41, 41]
    job.fill(pairs=20, keys=4, change_at=1000, seed=7)
    job.run(begin(job))
    assert len(job.estimates()) == 160


def test_the_newest_records_are_gone_and_none_came_since(make_job: MakeJob) -> None:
    job = half_done(make_job)
    for number in PARTITIONS:
        job.broker.lose_newest("readings", number, 70)
    for policy in ("fail", "trust_state"):
        with pytest.raises(Fatal, match=r"beyond the end of the input \(70\), which has lost its newest records"):
            job.run(begin(job, policy))
    job.run(begin(job, "discard_state"))
    job.fill(pairs=10, keys=4, change_at=1000, seed=7)
    job.run(begin(job))
    counts = Counter((e["partition"], e["offset"]) for e in job.estimates())
    assert {offset for (_, offset), count in counts.items() if count > 1} == set(range(70, 80))  # of the new records
    assert len(counts) == 2 * 90


def test_a_change_of_leaders_that_loses_nothing_is_none(make_job: MakeJob) -> None:
    job = half_done(make_job)
    for number in PARTITIONS:
        job.broker.lose_newest("readings", number, 120)
    job.run(begin(job))
    assert outcome(job, before=40) == (0, 0, {AS_WAS})


@pytest.mark.parametrize(("policy", "read_anew"), [("trust_state", range(0)), ("discard_state", range(70, 80))])
def test_after_records_gave_way_to_others_one_goes_on_from_where_one_says(
    make_job: MakeJob, policy: str, read_anew: range
) -> None:
    job = half_done(make_job)
    lose_newest(job)
    for number in PARTITIONS:
        job.broker.group("drift").positions[TopicPartition("readings", number)] = Committed(70)
    job.run(begin(job, policy))
    counts = Counter((e["partition"], e["offset"]) for e in job.estimates())
    assert sorted(counts) == [(number, offset) for number in PARTITIONS for offset in range(110)]
    assert {offset for (_, offset), count in counts.items() if count > 1} == set(read_anew)
    job.run(begin(job))


def test_input_that_was_not_read_is_lost_and_no_more(make_job: MakeJob) -> None:
    job = half_done(make_job)
    for number in PARTITIONS:
        job.broker.truncate("readings", number, 90)
    with pytest.raises(Fatal, match="10 offsets were deleted before they were read"):
        job.run(begin(job))
    job.run(begin(job, "trust_state"))
    lost, doubled, first = outcome(job, before=40)
    assert (lost, doubled, first) == (0, 0, {21})  # of what is there; models as of their snapshots
    assert len(job.estimates()) == 2 * (80 + 30)


def test_an_input_topic_made_again_is_not_taken_for_the_former(make_job: MakeJob) -> None:
    job = half_done(make_job)
    job.broker.delete_topic("readings")
    job.broker.create_topic("readings", len(PARTITIONS))
    job.fill(pairs=10, keys=4, change_at=1000, seed=6)
    with pytest.raises(Fatal, match="the group has no committed offset"):
        job.run(begin(job))
    with pytest.raises(Fatal, match=r"mean nothing in this input.*state import --new-offsets"):
        job.run(begin(job, "trust_state"))
    job.run(begin(job, "discard_state"))
    assert len(job.estimates()) == 200


def test_snapshots_that_vanish_while_workers_go_on_are_missed(make_job: MakeJob) -> None:
    job = half_done(make_job)
    headers = {r.partition: r.value for r in job.broker.records(STATE) if r.key == b"\x00"}  # the last ones
    job.broker.delete_topic(STATE)
    job.broker.create_topic(STATE, len(PARTITIONS), {"cleanup.policy": "compact"})
    for partition, header in headers.items():  # the next commit would have written one
        job.broker.append(STATE, partition, b"\x00", header)
    with pytest.raises(Fatal, match=r"has 0 snapshots where the header counts 2: it was cut"):
        job.run(begin(job))
    job.run(begin(job, "discard_state"))
    assert len(job.estimates()) == 240


def running(job: Any) -> Any:
    """A worker that has read everything, and is idle."""
    worker = begin(job)
    worker._start()
    while not job.done():
        worker._guarded_step()
    return worker


def steps(worker: Any, count: int) -> None:
    for _ in range(count):
        worker._guarded_step()


def cut_state(job: Any) -> None:
    for number in PARTITIONS:
        job.broker.truncate(STATE, number, job.broker.log(TopicPartition(STATE, number)).end)


@pytest.mark.parametrize("damage", [delete_state, cut_state])
def test_state_that_vanishes_under_a_running_worker_is_written_anew(
    make_job: MakeJob, damage: Callable[[Any], None]
) -> None:
    jobs = [make_job(commit={"interval": 0.2}, state={"interval": 3600.0}) for _ in range(2)]
    for job in jobs:
        job.fill(pairs=20, keys=4, change_at=1000)
        worker = running(job)
        if job is jobs[0]:
            damage(job)
        steps(worker, 300)  # and then it is killed
        job.fill(pairs=20, keys=4, change_at=1000, seed=4)
        job.run(begin(job))
    assert by_key(jobs[0]) == by_key(jobs[1])
    assert {estimate["seq"] for estimate in jobs[0].estimates()} == set(range(1, 41))


def test_state_that_vanishes_between_two_looks_is_missed_at_the_next_start(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=20, keys=4, change_at=1000)
    job.run(running(job))
    worker = running(job)
    worker._guarded_step()
    delete_state(job)
    job.fill(pairs=1, keys=1, change_at=1000, seed=4)
    while not job.done():
        worker._guarded_step()
    with pytest.raises(Fatal, match=r"no header in the state topic|snapshots where the header counts"):
        job.run(begin(job))


def test_an_input_topic_made_again_under_a_running_worker_ends_it(make_job: MakeJob) -> None:
    job = make_job(commit={"interval": 0.2})
    job.fill(pairs=10, keys=4, change_at=1000)
    worker = running(job)
    job.broker.delete_topic("readings")
    job.broker.create_topic("readings", len(PARTITIONS))
    job.fill(pairs=40, keys=4, change_at=1000, seed=6)  # beyond where the worker stands: no position is out of range
    with pytest.raises(Fatal, match="'readings' was deleted and created again while it was read"):
        steps(worker, 300)
    before = Counter((e["partition"], e["offset"]) for e in job.estimates())
    again = begin(job, "discard_state")
    again._start()
    steps(again, 100)
    counts = Counter((e["partition"], e["offset"]) for e in job.estimates())
    assert counts - before == Counter((r.partition, r.offset) for r in job.broker.records("readings"))


def test_a_damaged_snapshot_costs_its_key_alone(make_job: MakeJob) -> None:
    job = half_done(make_job)
    (record, *_) = [r for r in job.broker.records(STATE) if r.partition == 0 and r.key != b"\x00" and r.value]
    job.broker.append(STATE, 0, record.key, (record.value or b"")[:-9] + b"\x00" * 9)
    job.run(begin(job))
    counts = Counter((e["partition"], e["offset"]) for e in job.estimates())
    assert len(counts) == 240
    assert set(counts.values()) == {1}
    _, _, first = outcome(job, before=40)
    assert first == {AS_WAS, 21}  # that of the damaged one counts what was read again
    (letter,) = job.broker.records("drift-dead-letters")
    assert dict(letter.headers)["__kstream.reason"] == b"corrupt_state"
    assert letter.key == record.key[1:]


def test_damaged_snapshots_are_kept_up_to_a_limit(make_job: MakeJob) -> None:
    task = make_job().worker()._opener._make_task(TopicPartition("readings", 0))
    part = Restored(task, 0, 40, 0.0)
    count, value = 40, b"x" * 2**20
    part.take(
        Batch(TopicPartition(STATE, 0), list(range(count)), [0] * count, keys(count), [value] * count, [()] * count, 40)
    )
    assert len(part.damaged) == count
    assert sum(len(one.value) for one in part.damaged.values()) == 16 * 2**20


def keys(count: int) -> list[bytes | None]:
    return [b"\x01%d" % number for number in range(count)]
