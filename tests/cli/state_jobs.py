"""A small application on each kind of bus, run by the real worker, for the tests of the state commands."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as ClientPartition

from kstream_worker import app
from kstream_worker.__main__ import main
from kstream_worker.bus.fake import FakeBroker
from kstream_worker.bus.files import read_output
from kstream_worker.config import Config, from_dict
from kstream_worker.ports import Bus
from kstream_worker.records import End, Messages, Progress, TopicPartition
from kstream_worker.state.format import Header, Snapshot, decode_header, decode_snapshot, input_key
from kstream_worker.worker.loop import Worker

Shown = Callable[[], tuple[str, str]]  # standard output and error since the last call

PARTITIONS = 2
KEYS = 4
START_MS = 1_760_000_000_000
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "input": {"x": "x", "y": "y", "dims": 2, "timestamp": "ts"},
    "detector": {"arl": 10_000, "warmup": 60},
    "commit": {"interval": 0.2},
}


class Record(NamedTuple):
    """An input record."""

    partition: int
    key: bytes
    value: bytes
    time_ms: int


def records(first: int, last: int, change_at: int = 10**9) -> list[Record]:
    """Pairs number `first` to `last` of all keys; from pair `change_at` on the first key has drifted."""
    made = []
    for t in range(first, last):
        rng = np.random.default_rng(t)
        for k in range(KEYS):
            y = rng.standard_normal(2)
            y[0] += 5.0 * (k == 0 and t >= change_at)
            pair = {
                "ts": START_MS + 1000 * t,
                "key": f"pump-{k}",
                "x": rng.standard_normal(2).tolist(),
                "y": y.tolist(),
            }
            made.append(Record(k % PARTITIONS, f"pump-{k}".encode(), json.dumps(pair).encode(), pair["ts"]))
    return made


class Job(ABC):
    """One application; another one on the same bus has its own state, outputs and group.

    Attributes:
        name: of the application.
        config: its configuration.
        flags: the same for the command line.
        drop: what would differ between two applications with the same models.
    """

    drop = ("id", "incident", "offset", "input_topic", "app_id", "lag_s", "partition")

    def __init__(self, name: str, **sections: Mapping[str, Any]) -> None:
        self.name = name
        merged: dict[str, dict[str, Any]] = {"app": {"id": name}}
        for section, values in [*SETTINGS.items(), *sections.items()]:
            merged[section] = {**merged.get(section, {}), **values}
        self.config: Config = from_dict(merged)
        self.flags = [
            word
            for section, values in merged.items()
            for key, value in _leaves(values)
            for word in ("--set", f"{section}.{key}={_text(value)}")
        ]

    @abstractmethod
    def bus(self) -> Bus:
        """The adapters of one process."""

    @abstractmethod
    def feed(self, given: Iterable[Record]) -> None:
        """Append to the input."""

    @abstractmethod
    def published(self, topic: str) -> list[dict[str, Any]]:
        """Committed outputs."""

    def worker(self, bus: Bus, *, drain: bool = False) -> Worker:
        return app.build_worker(self.config, bus=bus, drain=drain, leave=True)

    def run(self, *, snapshots: bool = True) -> None:
        """Work to the end of the input; then stop as at SIGTERM, or as if killed: what is dirty stays so."""
        bus = self.bus()
        worker = self.worker(bus)
        step = worker.step
        deadline = time.monotonic() + 60.0
        with closing(bus.cluster()) as cluster, closing(bus.group()) as group:

            def stepping() -> bool:
                alive = step()
                tps = self.partitions()
                committed, ends = group.committed(tps, 5.0), cluster.end(tps, End.STABLE)
                reached = [at is not None and at.offset >= ends[tp] for tp, at in committed.items()]
                if all(reached) or time.monotonic() > deadline:
                    worker.request_stop()
                return alive

            worker.step = stepping  # type: ignore[method-assign]
            if not snapshots:
                worker._drain = lambda: None  # type: ignore[method-assign]
            worker.run()
        assert time.monotonic() < deadline

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.config.input.topic, number) for number in range(PARTITIONS)]

    def estimates(self) -> dict[str, list[dict[str, Any]]]:
        """By key, in order, without what two applications would not share."""
        by_key: dict[str, list[dict[str, Any]]] = {}
        for one in self.published(self.config.output.estimates):
            by_key.setdefault(one["key"], []).append({k: v for k, v in one.items() if k not in self.drop})
        return by_key

    def alarms(self) -> list[dict[str, Any]]:
        found = self.published(self.config.output.alarms)
        return [{k: v for k, v in one.items() if k not in self.drop} for one in found]

    def state(self) -> tuple[dict[int, Header], dict[bytes, Snapshot]]:
        """Headers and snapshots as a start would find them."""
        bus = self.bus()
        headers: dict[int, Header] = {}
        keys: dict[bytes, Snapshot] = {}
        states = [TopicPartition(self.config.state.topic, number) for number in range(PARTITIONS)]
        with closing(bus.cluster()) as cluster, closing(bus.reader()) as reader:
            ends = cluster.end(states, End.HIGH)
            reader.assign(cluster.earliest(states))
            while any(reader.position(tp) < ends[tp] for tp in states):
                for batch in reader.poll(0.1):
                    for record_key, value in zip(batch.keys, batch.values, strict=True):
                        key = input_key(record_key)
                        if key is None and value is not None:
                            headers[batch.partition.partition] = decode_header(value)
                        elif key is not None and value is None:
                            keys.pop(key, None)
                        elif key is not None and value is not None:
                            keys[key] = decode_snapshot(value)
        return headers, keys

    def models(self) -> dict[bytes, bytes]:
        """The model of each key, after a stop with snapshots."""
        return {key: snapshot.model for key, snapshot in self.state()[1].items()}

    def write(self, number: int, rows: Iterable[tuple[bytes, bytes | None]], offset: int, token: str) -> None:
        """Write into the state topic what no worker would, with a commit of the group."""
        bus = self.bus()
        source, writer = bus.source(), bus.writer()
        writer.start(10.0)
        source.start()
        tp = self.partitions()[number]
        while (membership := source.membership()) is None:
            source.poll(0.2)
        column = Messages(TopicPartition(self.config.state.topic, number))
        for key, value in rows:
            column.extend((key,), (value,), (START_MS,), ((),))
        writer.commit([column], {tp: Progress(offset)}, membership, token, 10.0)
        source.close(leave=True, timeout_s=5.0)
        writer.close(5.0)


class FakeJob(Job):
    """On the fake broker."""

    def __init__(self, name: str = "pumps", broker: FakeBroker | None = None, topic: str = "readings", **sections: Any):
        super().__init__(
            name, bus={"kafka": {"bootstrap_servers": ["fake:9092"]}}, **_with(sections, "input", topic=topic)
        )
        self.broker = broker or FakeBroker()
        self.broker.create_topic(topic, PARTITIONS)
        for output in app.output_topics(self.config):
            self.broker.create_topic(output, PARTITIONS)
        self.broker.create_topic(self.config.state.topic, PARTITIONS, {"cleanup.policy": "compact"})

    def bus(self) -> Bus:
        return self.broker.bus(topic=self.config.input.topic, group=self.name, identity=self.name, poll_sizes=(37,))

    def worker(self, bus: Bus, *, drain: bool = False) -> Worker:
        clock = self.broker.clock
        return app.build_worker(
            self.config, bus=bus, drain=drain, leave=True, clock=clock, sleep=clock.sleep, now_ms=lambda: START_MS
        )

    def feed(self, given: Iterable[Record]) -> None:
        for one in given:
            self.broker.append(self.config.input.topic, one.partition, one.key, one.value, timestamp=one.time_ms)

    def published(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(one.value or b"null") for one in self.broker.records(topic)]


class FilesJob(Job):
    """On files in a folder; another application may read the same ones."""

    def __init__(self, folder: Path, name: str = "pumps", inputs: str = "input", **sections: Any) -> None:
        self.folder = folder
        self.paths = [folder / inputs / f"part-{number}.jsonl" for number in range(PARTITIONS)]
        for path in self.paths:
            path.parent.mkdir(exist_ok=True)
            path.touch()
        files = {"inputs": [str(folder / inputs)], "output_dir": str(folder / name)}
        super().__init__(name, bus={"kind": "files", "files": files}, **_with(sections, "input", key="key"))

    def bus(self) -> Bus:
        return app.build_bus(self.config)

    def feed(self, given: Iterable[Record]) -> None:
        for one in given:
            with self.paths[one.partition].open("ab") as lines:
                lines.write(one.value + b"\n")

    def published(self, topic: str) -> list[dict[str, Any]]:
        path = self.folder / self.name / f"{topic}.jsonl"
        return [json.loads(one.value or b"null") for one in read_output(path)] if path.exists() else []


class KafkaJob(Job):
    """On a real broker."""

    def __init__(
        self,
        servers: str,
        make_topic: Callable[..., str],
        topic: str = "",
        client: str = "kafka-python",
        common: Mapping[str, Any] | None = None,
        **sections: Any,
    ) -> None:
        self.servers = servers
        self._common = dict(common or {})
        kept = {"retention.ms": "-1"}  # the record times are long past
        topic = topic or make_topic(PARTITIONS, kept, name="input")
        name = make_topic(PARTITIONS, name="app")  # a topic of that name only makes the name unique
        outputs = {kind: make_topic(PARTITIONS, kept, name=kind) for kind in ("estimates", "alarms", "dead_letters")}
        state = make_topic(PARTITIONS, {"cleanup.policy": "compact", "max.message.bytes": "2000000"}, name="state")
        super().__init__(
            name,
            bus={"client": client, "kafka": {"bootstrap_servers": [servers], "common": self._common}},
            output=outputs,
            state={"topic": state},
            **_with(sections, "input", topic=topic),
        )

    def bus(self) -> Bus:
        return app.build_bus(self.config)

    def feed(self, given: Iterable[Record]) -> None:
        with closing(KafkaProducer(bootstrap_servers=self.servers, **self._common)) as producer:
            for one in given:
                producer.send(
                    self.config.input.topic, one.value, key=one.key, partition=one.partition, timestamp_ms=one.time_ms
                )
            producer.flush()

    def published(self, topic: str) -> list[dict[str, Any]]:
        tps = [ClientPartition(topic, number) for number in range(PARTITIONS)]
        found = []
        with closing(
            KafkaConsumer(
                bootstrap_servers=self.servers, isolation_level="read_committed", auto_offset_reset="earliest"
            )
        ) as consumer:
            consumer.assign(tps)
            ends = consumer.end_offsets(tps)
            while any((consumer.position(tp) or 0) < ends[tp] for tp in tps):
                for rows in consumer.poll(timeout_ms=200).values():
                    found += [json.loads(row.value) for row in rows]
        return found


class Jobs:
    """Makes applications on one bus."""

    def __init__(self, kind: str, folder: Path, broker: FakeBroker) -> None:
        self.kind, self.folder, self.broker = kind, folder, broker
        self.made: dict[str, Job] = {}

    def __call__(self, name: str = "pumps", inputs: str = "input", **sections: Any) -> Job:
        job: Job
        if self.kind == "files":
            job = FilesJob(self.folder, name, inputs, **sections)
        else:
            job = FakeJob(name, self.broker, inputs, **sections)
        self.made[name] = job
        return job


def state(job: Job, *words: str) -> int:
    return main(["state", *words, *job.flags])


def worked(job: Job, *, change_at: int = 10**9) -> Job:
    """A job with snapshots of 80 pairs a key, and 40 more pairs that no snapshot covers."""
    job.feed(records(0, 80, change_at))
    job.run()
    job.feed(records(80, 120, change_at))
    job.run(snapshots=False)
    return job


def uninterrupted(jobs: Jobs, last: int, **sections: Any) -> Job:
    job = jobs("calm", "calm-input", **sections)
    job.feed(records(0, last, change_at=100))
    job.run()
    return job


def continued(first: Job, second: Job, calm: Job) -> None:
    """What both published together is what one without a stop published, and so are the models."""
    assert {key: first.estimates().get(key, []) + rows for key, rows in second.estimates().items()} == calm.estimates()
    assert first.alarms() + second.alarms() == calm.alarms()
    assert len(calm.alarms()) > 0
    assert second.models() == calm.models()


def _with(sections: dict[str, Any], section: str, **values: Any) -> dict[str, Any]:
    return {**sections, section: {**SETTINGS.get(section, {}), **values, **sections.get(section, {})}}


def _leaves(values: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
