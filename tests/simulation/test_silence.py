"""Keys that stop sending: one alarm when they do, one when it is over, whatever happens to the process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_bank import TinyBank

from kstream_worker import app
from kstream_worker.bus.fake import FakeBroker
from kstream_worker.config import Config, from_dict
from kstream_worker.records import TopicPartition
from kstream_worker.worker.loop import Worker
from kstream_worker.worker.task import Task

START_MS = 1_760_000_000_000
READINGS = TopicPartition("readings", 0)
LIMIT_S = 8  # so that ticks are seconds
TTL_S = 32  # ticks of half a second
NEVER = 10**9  # an average run length
Told = tuple[str, str, str, int]  # key, transition, reason, offset


@pytest.fixture(autouse=True)
def banks(monkeypatch: pytest.MonkeyPatch) -> None:
    """They need no kernels."""
    monkeypatch.setattr(app, "build_bank", lambda config: TinyBank(config.detector.arl))


def config_of(silence_s: float = LIMIT_S, arl: float = NEVER, **state: Any) -> Config:
    return from_dict(
        {
            "app": {"id": "drift"},
            "bus": {"kafka": {"bootstrap_servers": ["fake:9092"]}},
            "input": {"topic": "readings", "y": "y", "dims": 1, "timestamp": "ts"},
            "detector": {"silence": f"{silence_s}s", "arl": arl},
            "gate": {"max_reject_ratio": 1.0},
            "commit": {"interval": 0.2, "timeout": 1.0},
            "state": {"ttl": f"{TTL_S}s", **state},
        }
    )


class Job:
    """One partition, and workers that come and go."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or config_of()
        self.broker = FakeBroker(poll_cost_s=0.05)
        for topic in ("readings", *app.output_topics(self.config), self.config.state.topic):
            self.broker.create_topic(topic, partitions=1)

    def sample(self, key: str, seconds: float) -> int:
        time_ms = START_MS + round(1000 * seconds)
        value = json.dumps({"ts": time_ms, "y": [seconds]}).encode()
        return self.broker.append("readings", 0, key.encode(), value, timestamp=time_ms)

    def tombstone(self, key: str) -> int:
        return self.broker.append("readings", 0, key.encode(), None, timestamp=START_MS)

    def worker(self, poll_sizes: tuple[int, ...] = (100,)) -> Worker:
        bus = self.broker.bus(topic="readings", group="drift", identity="app-0", poll_sizes=poll_sizes)
        clock = self.broker.clock
        worker = app.build_worker(self.config, bus=bus, clock=clock, sleep=clock.sleep, now_ms=lambda: START_MS)
        worker._start()
        return worker

    def work(self, worker: Worker, until: Callable[[], bool] | None = None) -> None:
        for _ in range(2000):
            worker._guarded_step()
            if self.done(worker) and (until is None or until()):
                return
        raise AssertionError("it does not come to pass")

    def done(self, worker: Worker) -> bool:
        committed = self.broker.committed("drift", "readings", 0)
        return (
            committed is not None
            and committed.offset == self.broker.log(READINGS).end
            and READINGS in worker._tasks
            and not worker._marks
        )

    def run(self, poll_sizes: tuple[int, ...] = (100,)) -> None:
        worker = self.worker(poll_sizes)
        self.work(worker)
        worker.request_stop()
        worker._drain()
        worker._close("test")

    def alarms(self) -> list[dict[str, Any]]:
        return [json.loads(record.value or b"") for record in self.broker.records("drift-alarms")]

    def told(self) -> list[Told]:
        return [told(alarm) for alarm in self.alarms()]


def told(alarm: dict[str, Any]) -> Told:
    return alarm["key"], alarm["transition"], alarm["reason"], alarm["offset"]


def task_of(worker: Worker) -> Task:
    return worker._tasks[READINGS]


def shown(worker: Worker) -> dict[str, dict[str, Any]]:
    found = worker._board.alarms()  # type: ignore[attr-defined]
    assert found["in_alarm"] == len(found["alarms"])
    return {alarm.pop("key"): alarm for alarm in found["alarms"]}


def test_a_key_that_stops_sending_is_in_alarm_until_its_next_record() -> None:
    job = Job()
    for second in range(4):
        job.sample("pump", second)
        job.sample("other", second)
    for second in range(4, 20):
        job.sample("other", second)
    back = job.sample("pump", 20.5)
    job.sample("other", 21)
    job.run()
    raised, cleared = job.alarms()
    # Last seen at 3 s: at the tick of 12 s that is longer ago than 8 s.
    assert told(raised) == ("pump", "raised", "silent", 8 + (12 - 4))
    assert raised["event_time"] == START_MS + 12_000
    assert (raised["seq"], raised["change_seq"], raised["change_time"]) == (4, 4, START_MS + 3000)
    assert (raised["evidence"], raised["threshold"]) == (9.0, 8.0)
    assert (raised["guarantee"], raised["arl"], raised["features"]) == ("none", None, [])
    assert told(cleared) == ("pump", "cleared", "returned", back)
    assert (cleared["seq"], cleared["change_seq"], cleared["change_time"]) == (5, 4, START_MS + 3000)
    assert cleared["evidence"] == 17.5
    assert [alarm["explanation"]["kind"] for alarm in (raised, cleared)] == ["silent", "silent"]


def test_the_record_that_moves_the_clock_does_not_tell_of_its_own_key() -> None:
    job = Job()
    job.sample("pump", 0)
    job.sample("other", 0)
    at = job.sample("pump", 20)
    job.sample("pump", 30)
    job.run()
    assert job.told() == [("other", "raised", "silent", at)]


def test_where_nothing_is_asked_for_nothing_is_told() -> None:
    job = Job(config_of(silence_s=0))
    for second in range(30):
        job.sample("other", second)
        if not second:
            job.sample("pump", second)
    worker = job.worker()
    job.work(worker)
    assert job.alarms() == []
    assert task_of(worker).silent_keys is None


def test_a_silent_key_that_expires_is_cleared_there() -> None:
    job = Job()
    job.sample("pump", 0)
    job.sample("fan", 0.1)
    job.sample("other", 0)
    silent = job.sample("other", 10)
    gone = job.sample("other", 40)
    job.sample("pump", 41)
    job.run()
    assert job.told() == [
        ("fan", "raised", "silent", silent),
        ("pump", "raised", "silent", silent),
        ("fan", "cleared", "expired", gone),
        ("pump", "cleared", "expired", gone),
    ]
    assert [alarm["evidence"] for alarm in job.alarms()[2:]] == [39.9, 40.0]


def test_a_key_that_expires_at_once_was_never_silent() -> None:
    job = Job()
    job.sample("pump", 0)
    job.sample("other", 0)
    job.sample("other", 100)
    job.run()
    assert job.told() == []


@pytest.mark.parametrize("polls", [1, 100])
def test_a_tombstone_ends_a_silence(polls: int) -> None:
    job = Job()
    job.sample("pump", 0)
    job.sample("other", 0)
    silent = job.sample("other", 10)
    forgotten = job.tombstone("pump")
    job.sample("other", 12)
    job.sample("pump", 12)
    job.run((polls,))
    assert job.told() == [("pump", "raised", "silent", silent), ("pump", "cleared", "forgotten", forgotten)]
    assert job.alarms()[1]["evidence"] == 10.0  # the clock there, not that of the records behind


def test_several_keys_of_one_record_have_ids_of_their_own() -> None:
    job = Job()
    for number in range(10):
        job.sample(f"pump-{number}", 0)
    job.sample("other", 10)
    for number in range(10):
        job.sample(f"pump-{number}", 11)
    job.run()
    assert [alarm["reason"] for alarm in job.alarms()] == ["silent"] * 10 + ["returned"] * 10
    assert len({alarm["id"] for alarm in job.alarms()}) == 20


def test_the_next_process_lists_silent_keys_before_any_new_record() -> None:
    job = Job()
    job.sample("pump", 0)
    job.sample("other", 0)
    job.sample("other", 10)
    worker = job.worker()
    job.work(worker)
    assert shown(worker) == {"pump": {"partition": 0, "silent_since": START_MS}}
    assert task_of(worker).silent_keys == 1
    worker = job.worker()  # the former one is dead
    job.work(worker)
    assert shown(worker) == {"pump": {"partition": 0, "silent_since": START_MS}}
    back = job.sample("pump", 11)
    job.work(worker)
    assert job.told()[1:] == [("pump", "cleared", "returned", back)]
    assert shown(worker) == {}


def test_the_end_of_a_silence_leaves_the_keys_other_alarm_up() -> None:
    job = Job(config_of(arl=1.5))  # raised at the first armed sample
    for second in range(3):
        job.sample("pump", second)
    worker = job.worker()
    job.work(worker)
    change = shown(worker)["pump"]
    assert "silent_since" not in change
    job.sample("other", 12)
    job.work(worker)
    assert shown(worker)["pump"] == change | {"silent_since": START_MS + 2000}
    job.sample("pump", 12.5)
    job.work(worker)
    reasons = [alarm["reason"] for alarm in job.alarms() if alarm["key"] == "pump"]
    assert reasons[:3] == ["learned", "silent", "returned"]
    assert ("pump" in shown(worker)) == (b"pump" in task_of(worker).ledger.alarms) == (reasons[3:] != ["rearmed"])


def test_a_change_of_the_limit_takes_keys_for_told_that_are_silent_by_it() -> None:
    job = Job()
    job.sample("pump", 0)
    job.sample("fan", 6)
    job.sample("other", 0)
    silent = job.sample("other", 10)
    job.run()
    job.config = config_of(silence_s=2)
    late = job.sample("other", 20)
    back = job.sample("pump", 20.1)
    job.sample("fan", 20.1)
    job.run()
    assert job.told()[:2] == [("pump", "raised", "silent", silent), ("pump", "cleared", "returned", back)]
    assert late not in [alarm["offset"] for alarm in job.alarms()]  # `fan` was silent by the new limit before
    job.config = config_of(silence_s=0)
    job.sample("other", 40)
    job.run()
    assert len(job.alarms()) == 3


# -- any records, cut anywhere, through any crash: as a model says that is too simple to be wrong --

KEYS = ("pump", "fan", "other", "belt")
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(KEYS), st.sampled_from([0.0, 0.1, 0.7, 1.0, 3.0, 9.0, 20.0, 40.0, -5.0])),
        st.tuples(st.sampled_from(KEYS), st.none()),
    ),
    max_size=40,
)


def fill(job: Job, records: list[tuple[str, float | None]]) -> None:
    now_s = 100.0
    for key, step_s in records:
        if step_s is None:
            job.tombstone(key)
        else:
            now_s += max(step_s, 0.0)
            job.sample(key, now_s + min(step_s, 0.0))


def expected(records: list[tuple[str, float | None]]) -> list[Told]:
    """Record by record; times in milliseconds."""
    found: list[Told] = []
    seen: dict[str, int] = {}
    silent: set[str] = set()
    now_ms, clock = START_MS + 100_000, -1

    def end(key: str, reason: str, offset: int) -> None:
        if key in silent:
            silent.discard(key)
            found.append((key, "cleared", reason, offset))

    for offset, (key, step_s) in enumerate(records):
        if step_s is None:
            seen.pop(key, None)
            end(key, "forgotten", offset)
            continue
        now_ms += round(1000 * max(step_s, 0.0))
        before, clock = clock, max(clock, now_ms + round(1000 * min(step_s, 0.0)))
        if before >= 0 and clock // 500 > before // 500:
            for other in sorted(seen):
                if seen[other] < clock // 500 * 500 - 1000 * TTL_S:
                    del seen[other]
                    end(other, "expired", offset)
        if before >= 0 and clock // 1000 > before // 1000:
            late = {k for k, at in seen.items() if at < clock // 1000 * 1000 - 1000 * LIMIT_S}
            new = sorted(late - silent - {key})
            silent |= set(new)
            found += [(other, "raised", "silent", offset) for other in new]
        end(key, "returned", offset)
        seen[key] = clock
    return found


@settings(max_examples=100, deadline=None)
@given(steps, st.data())
def test_what_is_told_depends_on_the_records_alone(
    records: list[tuple[str, float | None]], data: st.DataObject
) -> None:
    whole = Job()
    fill(whole, records)
    whole.run()
    assert whole.told() == expected(records)
    replay = data.draw(st.sampled_from([1, 10**6]), label="replay_records")
    job = Job(config_of(interval=data.draw(st.sampled_from(["200ms", "1d"])), replay_records=replay))
    fill(job, records)
    for _ in range(data.draw(st.integers(0, 3), label="processes that are killed")):
        worker = job.worker((data.draw(st.integers(1, 9), label="poll"),))
        for _ in range(data.draw(st.integers(1, 12), label="steps")):
            worker._guarded_step()
    job.run((data.draw(st.integers(1, 9), label="last poll"),))
    assert job.alarms() == whole.alarms()
    worker = job.worker()
    job.work(worker)
    last = {key: transition for key, transition, *_ in expected(records)}
    assert set(shown(worker)) == {key for key, transition in last.items() if transition == "raised"}
