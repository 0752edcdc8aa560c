"""A worker as the command line builds it, on the fake broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kstream_worker import app
from kstream_worker.bus.fake import FakeBroker
from kstream_worker.config import Config, from_dict
from kstream_worker.worker.loop import Worker

PARTITIONS = 2
START_MS = 1_760_000_000_000


def make_config(**sections: dict[str, Any]) -> Config:
    base: dict[str, Any] = {
        "app": {"id": "drift"},
        "bus": {"kafka": {"bootstrap_servers": ["fake:9092"]}},
        "input": {"topic": "readings", "x": "x", "y": "y", "dims": 2, "timestamp": "ts"},
        "detector": {"arl": 10_000, "warmup": 60},
        "commit": {"interval": 1.0},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    return from_dict(base)


class Job:
    """A broker with topics and records, workers on it, and what they published."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.broker = FakeBroker()
        for topic in ("readings", *app.output_topics(config), config.state.topic):
            self.broker.create_topic(topic, partitions=PARTITIONS)

    def fill(self, pairs: int = 200, keys: int = 6, change_at: int = 120, shift: float = 4.0, seed: int = 3) -> None:
        """Pairs in time order; the first key changes."""
        rng = np.random.default_rng(seed)
        two_sided = bool(self.config.input.x)
        for t in range(pairs):
            for k in range(keys):
                y = rng.standard_normal(2)
                if k == 0 and t >= change_at:
                    y[0] += shift
                value: dict[str, Any] = {"ts": START_MS + 1000 * t, "y": y.tolist()}
                if two_sided:
                    value["x"] = rng.standard_normal(2).tolist()
                self.append(k, json.dumps(value).encode(), START_MS + 1000 * t)

    def append(self, k: int, value: bytes | None, timestamp: int = START_MS) -> int:
        return self.broker.append("readings", k % PARTITIONS, f"pump-{k}".encode(), value, timestamp=timestamp)

    def worker(self, identity: str = "app-0", poll_sizes: tuple[int, ...] = (100,)) -> Worker:
        bus = self.broker.bus(topic="readings", group="drift", identity=identity, poll_sizes=poll_sizes)
        return app.build_worker(
            self.config, bus=bus, clock=self.broker.clock, sleep=self.broker.clock.sleep, now_ms=lambda: START_MS
        )

    def run(self, worker: Worker, steps: int = 10_000) -> None:
        """Run to the end of the input, then stop as at SIGTERM."""
        step = worker.step
        left = iter(range(steps))

        def stepping() -> bool:
            alive = step()
            if self.done() or next(left, None) is None:
                worker.request_stop()
            return alive

        worker.step = stepping  # type: ignore[method-assign]
        worker.run()

    def done(self) -> bool:
        return all(
            (position := self.broker.committed("drift", "readings", tp.partition)) is not None
            and position.offset >= self.broker.log(tp).end
            for tp in self.broker.partitions("readings")
        )

    def published(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(record.value or b"null") for record in self.broker.records(topic)]

    def estimates(self) -> list[dict[str, Any]]:
        return self.published("drift-estimates")

    def alarms(self) -> list[dict[str, Any]]:
        return self.published("drift-alarms")

    def assert_exactly_once(self) -> None:
        """One estimate per record, in order per key."""
        wanted = [
            (tp.partition, o) for tp in self.broker.partitions("readings") for o in self._sample_offsets(tp.partition)
        ]
        got = [(e["partition"], e["offset"]) for e in self.estimates()]
        assert sorted(got) == sorted(wanted)
        for partition in range(PARTITIONS):
            offsets = [o for p, o in got if p == partition]
            assert offsets == sorted(offsets)

    def _sample_offsets(self, partition: int) -> list[int]:
        return [r.offset for r in self.broker.records("readings") if r.partition == partition and r.value is not None]


@pytest.fixture
def make_job() -> Callable[..., Job]:
    def make(**sections: dict[str, Any]) -> Job:
        return Job(make_config(**sections))

    return make
