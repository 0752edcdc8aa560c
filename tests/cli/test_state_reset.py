"""`kstream-worker state reset`: one key begins anew, all others go on as if nothing was."""

from __future__ import annotations

from typing import Any

import pytest
from state_jobs import (
    Job,
    Jobs,
    Shown,
    records,
    state,
    worked,
)

from kstream_worker.bus.fake import FakeBroker


def fresh(job: Job, key: str, last: int) -> list[dict[str, Any]]:
    """Estimates of a job's key from its second life on."""
    rows = job.estimates()[key]
    begin = [index for index, row in enumerate(rows) if row["seq"] == 1]
    assert len(begin) == 2
    assert len(rows) - begin[1] == last
    return rows[begin[1] :]


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_reset_key_begins_anew_although_its_records_are_read_again(jobs: Jobs, shown: Shown, snapshots: bool) -> None:
    """Its records in [replay_from, offset) must not come back into a model; all others go on as if nothing was."""
    job, calm, newborn = jobs(), jobs("calm", "calm-input"), jobs("newborn", "newborn-input")
    worked(job)
    calm.feed(records(0, 200))
    calm.run()
    newborn.feed(records(120, 200))
    newborn.run()
    if snapshots:
        job.run()
    else:
        assert job.state()[0][0].replay_from < job.state()[0][0].offset
    assert state(job, "reset", "pump-0") == 0
    assert shown()[0] == "pump-0 of partition 0 starts afresh\n"
    assert state(job, "verify") == 0
    job.feed(records(120, 200))
    job.run()
    assert fresh(job, "pump-0", 80) == newborn.estimates()["pump-0"]
    for key in ("pump-1", "pump-2", "pump-3"):
        assert job.estimates()[key] == calm.estimates()[key]
    assert job.models()[b"pump-0"] == newborn.models()[b"pump-0"]


def test_the_alarm_of_a_reset_key_is_cleared_once(jobs: Jobs, shown: Shown) -> None:
    job = jobs()
    job.feed(records(0, 100, change_at=70))
    job.run(snapshots=False)
    assert [alarm["transition"] for alarm in job.alarms()] == ["raised"]
    assert state(job, "reset", "pump-0") == 0
    assert "its alarm is cleared" in shown()[0]
    cleared = job.alarms()[-1]
    assert (cleared["key"], cleared["transition"], cleared["reason"]) == ("pump-0", "cleared", "forgotten")
    assert state(job, "reset", "pump-0") == 0
    job.run()
    assert len(job.alarms()) == 2
    ids = [alarm["id"] for alarm in job.published(job.config.output.alarms)]
    assert len(set(ids)) == 2


def test_a_key_without_a_snapshot_is_reset_in_a_named_partition(jobs: Jobs, shown: Shown) -> None:
    job = jobs()
    job.feed(records(0, 30))
    job.run(snapshots=False)
    assert job.state()[1] == {}
    assert state(job, "reset", "pump-0") == 1
    assert "name its partition with --partition" in shown()[1]
    assert state(job, "reset", "pump-0", "--partition", "0") == 0
    job.feed(records(30, 60))
    job.run()
    assert [row["seq"] for row in job.estimates()["pump-0"]] == [*range(1, 31), *range(1, 31)]
    assert [row["seq"] for row in job.estimates()["pump-2"]] == list(range(1, 61))


def test_a_key_in_two_partitions_must_be_told_apart(fake_jobs: Jobs, shown: Shown) -> None:
    job = fake_jobs()
    one = records(0, 1)[0]
    job.feed([one, one._replace(partition=1)])
    job.run()
    assert state(job, "reset", "pump-0") == 1
    assert "the key is in partitions 0, 1: name one" in shown()[1]
    assert state(job, "reset", "pump-0", "--partition", "1") == 0


def test_a_reset_does_not_hide_what_does_not_fit(fake_jobs: Jobs, shown: Shown) -> None:
    job = worked(fake_jobs())
    job.write(0, [], 7, "by-hand")
    before = job.state()
    assert state(job, "reset", "pump-0") == 1
    assert "the group's committed offset is 7" in shown()[1]
    assert state(job, "reset", "pump-0", "--partition", "0", "--set", "detector.warmup=70") in (1, 78)
    assert job.state() == before


def test_a_reset_keeps_the_leader_epoch_of_the_position(fake_jobs: Jobs, shown: Shown, broker: FakeBroker) -> None:
    """Else records that were lost by then would be missed by nobody."""
    job = worked(fake_jobs())
    topic, group = job.config.input.topic, job.name
    before = broker.committed(group, topic, 0)
    assert state(job, "reset", "pump-0", "--partition", "0") == 0
    after = broker.committed(group, topic, 0)
    assert before is not None
    assert after is not None
    assert (after.offset, after.leader_epoch) == (before.offset, before.leader_epoch)
    assert after.leader_epoch == 0
