"""Estimates, alarms and dead letters as JSON messages for the partitions of the output topics.

The payloads are described by the schemas in `schemas/`. An output goes to the input's partition number where both
topics have equally many partitions, else where Kafka's Java client would put its key. The record's key is the raw
entity key, its time that of the input record; a dead letter keeps its own key and time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from kstream_worker.codec.dead_letters import dead_letter
from kstream_worker.codec.explanations import explanation_of
from kstream_worker.codec.identity import ORDINALS, RANKS, Identity, incident_id
from kstream_worker.codec.partitions import output_partition
from kstream_worker.codec.payloads import Alarm, Estimate, Feature, ModelEstimate, encode_all, key_text, key_texts
from kstream_worker.models.contract import Column
from kstream_worker.records import (
    STATE_NAMES,
    Batch,
    FloatColumn,
    FloatMatrix,
    Headers,
    IntColumn,
    Messages,
    Rejects,
    Samples,
    Scores,
    TopicPartition,
    Transition,
)

Rows = slice | IntColumn
_NO_HEADERS: Headers = ()
_LARGEST = sys.float_info.max
_ORDINAL = {"raised": 0, "cleared": 1, "notice": 2}
EXPIRED = "expired"  # the reason of a transition that is always brought about by the record of another key


@dataclass(frozen=True, slots=True)
class Topic:
    """An output topic and the number of its partitions."""

    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """What an encoder needs to know.

    Attributes:
        app_id: the application, in every output.
        model_epoch: number of the generation of models, in every output.
        input_partitions: partitions of the input topic.
        estimates: topic of the estimates.
        alarms: topic of the alarms.
        dead_letters: topic of the refused records.
        model: kind of the models; None for likelihood ratios, whose estimates have fields of their own.
        columns: what models of a kind say of each sample.
        estimate_every: publish the first and then every n-th estimate of a key.
        max_dead_letter_bytes: size of key, value and headers at which a dead letter is cut.
    """

    app_id: str
    model_epoch: int
    input_partitions: int
    estimates: Topic
    alarms: Topic
    dead_letters: Topic
    model: str | None = None
    columns: tuple[Column, ...] = ()
    estimate_every: int = 1
    max_dead_letter_bytes: int = 900_000


class OutputEncoder:
    """Columns in, encoded output records out; pure but for what it remembers of partitions.

    Args:
        settings: topics, identity and thinning.
    """

    def __init__(self, settings: OutputSettings) -> None:
        self._settings = settings
        self._json = msgspec.json.Encoder()
        self._identities: dict[tuple[TopicPartition, str], Identity] = {}

    def estimates(
        self, partition: TopicPartition, samples: Samples, scores: Scores, rows: Rows | None = None
    ) -> list[Messages]:
        """One estimate per sample, or per every n-th of its key, in the order of the samples.

        Args:
            partition: the input partition.
            samples: n accepted records.
            scores: what the bank answered for them.
            rows: those of the n to be published; None for all.
        """
        chosen = self._thin(scores, rows)
        keys = samples.keys if isinstance(chosen, slice) and chosen == slice(None) else _take(samples.keys, chosen)
        if not keys:
            return []
        times = (samples.times if samples.stamps is None else samples.stamps)[chosen].tolist()
        values = self._estimate_values(partition, samples, scores, chosen, keys)
        return self._place(partition, self._settings.estimates, keys, values, times, repeat(_NO_HEADERS, len(keys)))

    def alarm(
        self,
        partition: TopicPartition,
        key: bytes,
        offset: int,
        event_time: int,
        stamp: int,
        transition: Transition,
        now_ms: int,
        ordinal: int = 0,
    ) -> Messages:
        """One transition of an alarm.

        Args:
            partition: the input partition.
            key: the entity.
            offset: of the input record that caused the transition.
            event_time: of that record, milliseconds since the epoch; -1 where unknown.
            stamp: the bus's own time of that record, which the output is stamped with.
            transition: what the detector found.
            now_ms: the wall clock, for `lag_s` alone.
            ordinal: tells apart the keys whose alarms begin or end at this record though it is not theirs (they fell
                silent, expired, or were reset by hand); 0 for the record's own key.
        """
        settings = self._settings
        text, binary = key_text(key)
        payload = Alarm(
            app_id=settings.app_id,
            model_epoch=settings.model_epoch,
            id=self._alarm_id(partition, offset, transition, ordinal),
            key=text,
            key_b64=binary,
            seq=transition.seq,
            input_topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            event_time=event_time,
            transition=transition.kind,
            reason=transition.reason,
            evidence=min(transition.evidence, _LARGEST),
            threshold=transition.threshold,
            arl=_known(transition.arl),
            change_time=transition.change_time,
            change_seq=transition.change_seq,
            direction=transition.direction,
            features=[Feature(name, weight) for name, weight in transition.features],
            guarantee=transition.guarantee,
            guarantee_reason=transition.guarantee_reason,
            lag_s=None if event_time < 0 else (now_ms - event_time) / 1000.0,
            escalation=transition.escalation,
            false_alarms_per_day=_known(transition.false_alarms_per_day),
            explanation=explanation_of(transition),
            incident=self._incident(partition, key, transition),
            repeat=0 if transition.incident is None else transition.incident.repeat,
        )
        target = self._target(key, partition, settings.alarms)
        return Messages(target, [key], [self._json.encode(payload)], [stamp], [_NO_HEADERS])

    def dead_letters(self, batch: Batch, rejects: Rejects) -> list[Messages]:
        """The refused records of a batch, in its order, with their original bytes and the reason in headers."""
        if not rejects.positions:
            return []
        limit = self._settings.max_dead_letter_bytes
        letters = [
            dead_letter(batch, row, reason, message, limit)
            for row, reason, message in zip(rejects.positions, rejects.reasons, rejects.messages, strict=True)
        ]
        keys, values, headers = map(list, zip(*letters, strict=True))
        times = [batch.timestamps[row] for row in rejects.positions]
        return self._place(batch.partition, self._settings.dead_letters, keys, values, times, iter(headers))

    def _thin(self, scores: Scores, rows: Rows | None) -> Rows:
        chosen: Rows = slice(None) if rows is None else rows
        every = self._settings.estimate_every
        if every == 1:
            return chosen
        due = (scores.seq % every == 0) | (scores.seq == 1)
        candidates: IntColumn = np.arange(len(scores.seq))[chosen]
        kept: IntColumn = candidates[due[candidates]]
        return kept

    def _estimate_values(
        self, partition: TopicPartition, samples: Samples, scores: Scores, rows: Rows, keys: list[bytes]
    ) -> list[bytes]:
        texts, binaries = key_texts(keys)
        settings = self._settings
        columns: tuple[Iterable[Any], ...] = (
            repeat(settings.app_id),
            repeat(settings.model_epoch),
            self._identity(partition, "estimate").ids(samples.offsets[rows]),
            texts,
            binaries,
            scores.seq[rows].tolist(),
            repeat(partition.topic),
            repeat(partition.partition),
            samples.offsets[rows].tolist(),
            samples.times[rows].tolist(),
            map(STATE_NAMES.__getitem__, scores.state[rows].tolist()),
            _or_none(scores.log_ratio[rows]),
            _or_none(scores.divergence[rows]),
            _finite(scores.evidence[rows]),
            _or_none(scores.threshold[rows]),
        )
        if settings.model is None:
            return encode_all(self._json, map(Estimate, *columns))
        if scores.estimates is None:
            raise ValueError(f"a bank of {settings.model} gives estimates with its scores")
        values = named(settings.columns, scores.estimates[rows])
        return encode_all(self._json, map(ModelEstimate, *columns, repeat(settings.model), values))

    def _alarm_id(self, partition: TopicPartition, offset: int, transition: Transition, ordinal: int) -> str:
        """The record's own key raises and clears at most once there; any number of other keys may clear at it.

        Alarms of silence are told apart from all others, since a key may have both.
        """
        own = ordinal == 0 and (transition.kind != "cleared" or transition.reason != EXPIRED)
        if own and not transition.of_silence:
            return self._identity(partition, "alarm").ids(np.array([offset]), _ORDINAL[transition.kind])[0]
        block, rank = divmod(ordinal, RANKS)
        name = f"silence-{transition.reason}" if transition.of_silence else transition.reason
        return self._identity(partition, f"{name}-{block}", RANKS).ids(np.array([offset]), rank)[0]

    def _incident(self, partition: TopicPartition, key: bytes, transition: Transition) -> str | None:
        began = transition.incident
        if transition.of_silence:
            seq, time_ms = transition.change_seq, transition.change_time
            return incident_id(self._settings.app_id, "silence", partition.topic, key, seq, time_ms)
        if began is None:
            return None
        return incident_id(self._settings.app_id, "change", partition.topic, key, began.seq, began.time_ms)

    def _identity(self, partition: TopicPartition, kind: str, ordinals: int = ORDINALS) -> Identity:
        identity = self._identities.get((partition, kind))
        if identity is None:
            identity = Identity(self._settings.app_id, self._settings.model_epoch, kind, partition, ordinals)
            self._identities[partition, kind] = identity
        return identity

    def _target(self, key: bytes | None, partition: TopicPartition, topic: Topic) -> TopicPartition:
        number = output_partition(key, partition.partition, self._settings.input_partitions, topic.partitions)
        return TopicPartition(topic.name, number)

    def _place(
        self,
        partition: TopicPartition,
        topic: Topic,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        times: Sequence[int],
        headers: Iterator[Headers],
    ) -> list[Messages]:
        """Columns per output partition, each in the given order; the partitions in the order of their first record."""
        if topic.partitions == self._settings.input_partitions:
            target = TopicPartition(topic.name, partition.partition)
            return [Messages(target, list(keys), list(values), list(times), list(headers))]
        placed: dict[TopicPartition, Messages] = {}
        for key, value, time, header in zip(keys, values, times, headers, strict=True):
            target = self._target(key, partition, topic)
            messages = placed.setdefault(target, Messages(target))
            messages.extend((key,), (value,), (time,), (header,))
        return list(placed.values())


def named(columns: Sequence[Column], estimates: FloatMatrix) -> Iterator[dict[str, float | str | None]]:
    """Rows of estimates by name: null where not known, texts in the place of their numbers.

    Args:
        columns: m of them.
        estimates: float64[n, m].
    """
    names = [column.name for column in columns]
    entries: list[list[Any]] = []
    for column, values in zip(columns, estimates.T, strict=True):
        numbers = _or_none(values)
        texts: dict[float | None, str] = dict(enumerate(column.texts))
        entries.append(list(map(texts.get, numbers)) if texts else numbers)
    rows = zip(*entries, strict=True) if entries else repeat((), len(estimates))
    return (dict(zip(names, row, strict=True)) for row in rows)


def _take(keys: list[bytes], rows: Rows) -> list[bytes]:
    return keys[rows] if isinstance(rows, slice) else [keys[row] for row in rows.tolist()]


def _or_none(values: FloatColumn) -> list[float | None]:
    """JSON has no NaN: what is not known is null."""
    numbers: list[float | None] = values.tolist()
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        numbers[row] = None
    return numbers


def _known(value: float) -> float | None:
    return value if isfinite(value) else None


def _finite(values: FloatColumn) -> list[float]:
    numbers: list[float] = np.minimum(values, _LARGEST).tolist()
    return numbers
