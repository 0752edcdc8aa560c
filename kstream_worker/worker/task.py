"""A task is one input partition: its keys, its bank of models, and the way of a batch through them."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import numpy as np

from kstream_worker.ports import Bank, Decoder, Telemetry
from kstream_worker.records import (
    Batch,
    IntColumn,
    Messages,
    Rejects,
    Samples,
    Scores,
    TopicPartition,
    Transition,
)
from kstream_worker.worker.board import AlarmBoard


class Encoder(Protocol):
    """Columns in, encoded output records out."""

    def estimates(self, partition: TopicPartition, samples: Samples, scores: Scores) -> list[Messages]:
        """One estimate per sample (or every n-th of its key)."""
        ...

    def alarm(
        self,
        partition: TopicPartition,
        key: bytes,
        offset: int,
        event_time: int,
        stamp: int,
        transition: Transition,
        now_ms: int,
    ) -> Messages:
        """One transition of an alarm."""
        ...

    def dead_letters(self, batch: Batch, rejects: Rejects) -> list[Messages]:
        """The refused records of a batch, with their original bytes."""
        ...


class RejectLimit(Protocol):
    """Says when too many records of the partition are refused."""

    def observe(self, batch: Batch, rejects: Rejects) -> None:
        """Count a batch; raises Fatal beyond the limit."""
        ...


class Task:
    """Models and keys of one input partition; made when it is assigned, dropped when it goes."""

    def __init__(
        self,
        partition: TopicPartition,
        decoder: Decoder,
        bank: Bank,
        encoder: Encoder,
        limit: RejectLimit,
        board: AlarmBoard,
        telemetry: Telemetry,
        clock: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self.partition = partition
        self._decoder = decoder
        self._bank = bank
        self._encoder = encoder
        self._limit = limit
        self._board = board
        self._telemetry = telemetry
        self._clock = clock
        self._now_ms = now_ms
        self._slots: dict[bytes, int] = {}
        self._in_alarm: set[bytes] = set()
        self._fallbacks = 0
        self.reached = 0  # all records below this offset are processed

    @property
    def live_keys(self) -> int:
        """Keys with a model."""
        return len(self._slots)

    @property
    def keys_in_alarm(self) -> int:
        """Keys whose alarm is up."""
        return len(self._in_alarm)

    @property
    def bank_bytes(self) -> int:
        """Bytes of the bank's arrays."""
        return self._bank.nbytes

    def process(self, batch: Batch) -> list[Messages]:
        """Decode, score and encode a batch; the outputs in the order of their records.

        Raises:
            Fatal: too many records were refused.
        """
        self._telemetry.records(self.partition, len(batch))
        started = self._clock()
        samples, rejects = self._decoder.decode(batch)
        self._telemetry.stage_seconds("decode", self._clock() - started)
        self._count_fallbacks()
        outputs: list[Messages] = []
        first = 0
        for position, key, offset, time_ms in samples.forget:
            outputs += self._score(samples, first, position)
            outputs += self._forget(key, offset, time_ms)
            first = position
        outputs += self._score(samples, first, len(samples))
        outputs += self._encoder.dead_letters(batch, rejects)
        for reason, count in Counter(rejects.reasons).items():
            self._telemetry.rejects(reason, count)
        self._limit.observe(batch, rejects)
        self.reached = batch.next_offset
        return outputs

    def close(self) -> None:
        """Take this partition's keys off the board; the state itself goes with the object."""
        for key in self._in_alarm:
            self._board.clear_alarm(_text(key))
        self._in_alarm.clear()

    def _score(self, samples: Samples, first: int, last: int) -> list[Messages]:
        if first == last:
            return []
        rows = samples if last - first == len(samples) else _rows(samples, first, last)
        started = self._clock()
        scores = self._bank.update(self._lookup(rows.keys), rows.x, rows.y, rows.times)
        scored = self._clock()
        self._telemetry.stage_seconds("update", scored - started)
        self._telemetry.scored(len(rows))
        self._telemetry.clipped(scores.clipped)
        self._telemetry.log_ratios(scores.log_ratio)
        self._telemetry.evidence(scores.evidence, self._bank.threshold)
        outputs = self._encoder.estimates(self.partition, rows, scores)
        for transition in scores.transitions:
            row = transition.row
            stamp = int((rows.times if rows.stamps is None else rows.stamps)[row])
            place = (rows.keys[row], int(rows.offsets[row]), int(rows.times[row]), stamp)
            outputs.append(self._transition(*place, transition))
        self._telemetry.stage_seconds("encode", self._clock() - scored)
        return outputs

    def _count_fallbacks(self) -> None:
        so_far = sum(n for what, n in self._decoder.warnings.items() if what.startswith("timestamp_"))
        if so_far != self._fallbacks:
            self._telemetry.fallback_timestamps(so_far - self._fallbacks)
            self._fallbacks = so_far

    def _lookup(self, keys: list[bytes]) -> IntColumn:
        slots = self._slots
        for key in keys:
            if key not in slots:
                slots[key] = self._bank.allocate(key)
        return np.fromiter(map(slots.__getitem__, keys), dtype=np.int64, count=len(keys))

    def _forget(self, key: bytes, offset: int, time_ms: int) -> list[Messages]:
        slot = self._slots.pop(key, None)
        if slot is None:
            return []
        transition = self._bank.forget(slot)
        self._bank.free(slot)
        return [] if transition is None else [self._transition(key, offset, time_ms, time_ms, transition)]

    def _transition(self, key: bytes, offset: int, time_ms: int, stamp: int, transition: Transition) -> Messages:
        self._telemetry.transition(transition.kind)
        name = _text(key)
        if transition.kind == "raised":
            self._in_alarm.add(key)
            self._board.raise_alarm(
                name,
                {
                    "partition": self.partition.partition,
                    "offset": offset,
                    "event_time": time_ms,
                    "change_time": transition.change_time,
                    "evidence": transition.evidence,
                    "threshold": transition.threshold,
                    "direction": transition.direction,
                    "features": [name for name, _ in transition.features[:5]],
                    "guarantee": transition.guarantee,
                },
            )
        else:
            self._in_alarm.discard(key)
            self._board.clear_alarm(name)
        return self._encoder.alarm(self.partition, key, offset, time_ms, stamp, transition, self._now_ms())


def _rows(samples: Samples, first: int, last: int) -> Samples:
    part = slice(first, last)
    return Samples(
        samples.offsets[part],
        samples.times[part],
        samples.keys[part],
        None if samples.x is None else samples.x[part],
        samples.y[part],
        stamps=None if samples.stamps is None else samples.stamps[part],
    )


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(key).decode()
