"""What a run that nothing disturbs makes of the same records: the worker's core, alone, on the fake bus."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.chaos.client import Record
from benchmarks.chaos.compare import Output, State, outputs_of, state_of
from benchmarks.job import EPOCH_MS
from kstream_worker import app
from kstream_worker.bus.fake import FakeBroker
from kstream_worker.config import Config
from kstream_worker.measures import Telemetry
from kstream_worker.worker.loop import Worker

_POLL_RECORDS = 2000


@dataclass
class Expected:
    """The oracle's outputs by kind, and its state."""

    outputs: dict[str, list[Output]]
    state: State


class _UntilDone(Telemetry):
    """Asks the worker to stop, as SIGTERM does, when a commit has reached the end of the input."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def commit(self, outcome: str, seconds: float) -> None:
        if self._oracle.done():
            self._oracle.worker.request_stop()


class Oracle:
    """One undisturbed worker over one partition's records.

    Args:
        config: of the workers that were disturbed.
        partition: the partition's number.
        partitions: how many the topics have.
    """

    worker: Worker

    def __init__(self, config: Config, partition: int, partitions: int) -> None:
        self._config = config
        self._partition = partition
        self._broker = FakeBroker(poll_cost_s=0.02)
        self._broker.create_topic(config.input.topic, partitions)
        for topic in app.output_topics(config):
            self._broker.create_topic(topic, partitions)
        self._broker.create_topic(config.state.topic, partitions, {"cleanup.policy": "compact"})

    def feed(self, records: Iterable[Record], end: int) -> int:
        """Append records at their offsets, and what lies between them as gaps; how many there were.

        Args:
            records: in the order of their offsets.
            end: records from this offset on are left out.
        """
        topic, p = self._config.input.topic, self._partition
        count, reached = 0, 0
        for record in records:
            if record.offset >= end:
                break
            if record.offset > reached:
                self._broker.gap(topic, p, record.offset - reached)
            self._broker.append(topic, p, record.key, record.value, timestamp=record.timestamp, headers=record.headers)
            reached = record.offset + 1
            count += 1
        return count

    def run(self) -> Expected:
        """Work through all of it, then stop in an orderly way."""
        bus = self._broker.bus(
            topic=self._config.input.topic,
            group=self._config.bus.kafka.group_id,
            identity="oracle",
            poll_sizes=(_POLL_RECORDS,),
        )
        clock = self._broker.clock
        self.worker = app.build_worker(
            self._config,
            bus=bus,
            telemetry=_UntilDone(self),
            clock=clock,
            sleep=clock.sleep,
            now_ms=lambda: EPOCH_MS,
        )
        self.worker.run()
        return Expected({kind: self._outputs(kind) for kind in ("estimates", "alarms", "dead-letters")}, self._state())

    def done(self) -> bool:
        """Whether all records are committed."""
        topic, group = self._config.input.topic, self._config.bus.kafka.group_id
        committed = self._broker.committed(group, topic, self._partition)
        end = next(self._broker.log(tp).end for tp in self._broker.partitions(topic) if tp.partition == self._partition)
        return committed is not None and committed.offset >= end

    def _outputs(self, kind: str) -> list[Output]:
        topics = dict(zip(("estimates", "alarms", "dead-letters"), app.output_topics(self._config), strict=True))
        rows = (r for r in self._broker.records(topics[kind]) if r.partition == self._partition)
        return outputs_of(kind, ((r.key, r.value, r.headers) for r in rows))

    def _state(self) -> State:
        rows = (r for r in self._broker.records(self._config.state.topic) if r.partition == self._partition)
        return state_of((r.key, r.value) for r in rows)
