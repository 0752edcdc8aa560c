"""What may reach a model: sizes, keys, event times and finite values; and when so much is refused that work must stop.

Reasons of this stage: `too_large`, `null_key`, `not_finite`, `all_missing`, `out_of_range`, `bad_timestamp`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import cast

import numpy as np

from kstream_worker.errors import Fatal
from kstream_worker.records import (
    Batch,
    Fields,
    FloatColumn,
    FloatMatrix,
    IntColumn,
    Rejects,
    TopicPartition,
)

# Squares of larger magnitudes overflow a 64-bit float, and with them distances, variances and kernels.
MAX_MAGNITUDE = 1e150

# A key travels twice in every output (record key and payload) and once in the state of its model.
MAX_KEY_BYTES = 4096

# Event times outside are those of clocks that were never set, or of other units than milliseconds.
OLDEST_MS = 946_684_800_000  # 2000-01-01
NEWEST_MS = 4_102_444_800_000  # 2100-01-01

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Gate:
    """Checks a batch before and after decoding. Its decisions depend on the record alone.

    Args:
        max_value_bytes: larger values are refused unread.
        null_key_slots: records without any key go to one of so many entities, by offset modulo this number; None
            refuses them.
        missing: values of y may be missing: NaN and infinities become NaN and are let through, unless there is nothing
            else.

    A record's event time is that of the bound field, else the bus's record time. Only where no field is bound and the
    bus has no times (files, standard input) is it unknown, -1.

    Attributes:
        warnings: records accepted in spite of something, by what: `timestamp_missing`, `timestamp_absurd` (both took
            the bus's record time instead), `key_differs` (the bound key is not the record's key), `missing_values` (so
            many values, not records).
    """

    def __init__(
        self, *, max_value_bytes: int = 1_048_576, null_key_slots: int | None = None, missing: bool = False
    ) -> None:
        self._max_value_bytes = max_value_bytes
        self._null_key_slots = null_key_slots
        self._missing = missing
        self.warnings: Counter[str] = Counter()

    def screen(self, batch: Batch, rejects: Rejects) -> tuple[Sequence[int], list[int]]:
        """Rows to decode, and rows that forget their key (a null value under a key)."""
        limit = self._max_value_bytes
        if None not in batch.values and _longest(batch.values) <= limit:
            return range(len(batch)), []
        rows: list[int] = []
        forget: list[int] = []
        for row, value in enumerate(batch.values):
            if value is None:
                self._screen_tombstone(batch, row, forget, rejects)
            elif len(value) > limit:
                rejects.add(row, "too_large", f"the value has {len(value)} bytes, the limit is {limit}")
            else:
                rows.append(row)
        return rows, forget

    def admit(self, batch: Batch, fields: Fields, rejects: Rejects) -> tuple[Fields, list[bytes], IntColumn]:
        """The rows that may reach a model, with their keys and event times (milliseconds since the epoch)."""
        keys = self._keys(batch, fields)
        times = self._times(batch, fields)
        timed = fields.times is None or bool((times >= 0).all())
        y_usable = self._usable_or_missing(fields.y) if self._missing else _all_usable(fields.y)
        if timed and _all_usable(fields.x) and y_usable and _keys_fit(keys):
            self._count_missing(fields.y)
            return fields, cast("list[bytes]", keys), times
        kept = [i for i in range(len(fields)) if self._admit_row(fields, i, keys[i], int(times[i]), rejects)]
        self._count_missing(fields.y[kept])
        return _take(fields, kept), [cast("bytes", keys[i]) for i in kept], times[kept]

    def _usable_or_missing(self, y: FloatMatrix) -> bool:
        """Mark what is missing in one way; whether each row has something, and nothing is too large."""
        y[np.isinf(y)] = np.nan
        there = np.abs(y) <= MAX_MAGNITUDE
        return bool((there | np.isnan(y)).all() and there.any(axis=1).all())

    def _count_missing(self, y: FloatMatrix) -> None:
        if self._missing:
            self.warnings["missing_values"] += int(np.isnan(y).sum())

    def _screen_tombstone(self, batch: Batch, row: int, forget: list[int], rejects: Rejects) -> None:
        key = batch.keys[row]
        if key is None:
            rejects.add(row, "null_key", "neither key nor value: nothing to forget")
        elif len(key) > MAX_KEY_BYTES:
            rejects.add(row, "too_large", f"the key has {len(key)} bytes, the limit is {MAX_KEY_BYTES}")
        else:
            forget.append(row)

    def _keys(self, batch: Batch, fields: Fields) -> list[bytes | None]:
        """Entity keys: the bound field's, else the record's, else by offset, else None."""
        own = batch.keys if len(fields) == len(batch) else [batch.keys[row] for row in fields.positions]
        keys = own
        if fields.keys is not None:
            bound = [None if key is None else str(key).encode() for key in fields.keys]
            keys = [record if key is None else key for key, record in zip(bound, own, strict=True)]
            if keys != own:
                pairs = zip(keys, own, strict=True)
                self.warnings["key_differs"] += sum(key != record for key, record in pairs if record is not None)
        n = self._null_key_slots
        if n is not None and None in keys:
            rows = zip(keys, fields.positions, strict=True)
            keys = [b"offset-%d" % (batch.offsets[row] % n) if key is None else key for key, row in rows]
        return keys

    def _times(self, batch: Batch, fields: Fields) -> IntColumn:
        """Event times; -1 where they are unknown."""
        if fields.times is None:
            stamps = [batch.timestamps[row] for row in fields.positions]
            return np.maximum(np.array(stamps, dtype=np.int64), -1)
        times = _plain_times(fields.times)
        return times if times is not None else self._mixed_times(batch, fields, fields.times)

    def _mixed_times(self, batch: Batch, fields: Fields, found: list[object]) -> IntColumn:
        times = np.empty(len(fields), dtype=np.int64)
        for i, value in enumerate(found):
            time_ms = epoch_ms(value)
            if time_ms is None:
                self.warnings["timestamp_missing" if value is None else "timestamp_absurd"] += 1
                time_ms = max(batch.timestamps[fields.positions[i]], -1)
            times[i] = time_ms
        return times

    def _admit_row(self, fields: Fields, i: int, key: bytes | None, time_ms: int, rejects: Rejects) -> bool:
        problem = next(_problems(fields, i, key, time_ms, missing=self._missing), None)
        if problem is not None:
            rejects.add(fields.positions[i], *problem)
        return problem is None


def epoch_ms(value: object) -> int | None:
    """An event time as milliseconds since the epoch; None where there is none or it is not between 2000 and 2100.

    Args:
        value: a number of milliseconds (a fraction is cut off), ISO 8601 text (UTC where it names no offset) or a
            datetime.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        value = (aware - _EPOCH) // _MILLISECOND
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not (isinstance(value, int) or isfinite(value)):
        return None
    return int(value) if OLDEST_MS <= value < NEWEST_MS else None


def _plain_times(found: list[object]) -> IntColumn | None:
    """The column when all of it is whole milliseconds in range, which is the common case."""
    if set(map(type, found)) - {int}:
        return None
    try:
        times = np.array(found, dtype=np.int64)
    except OverflowError:
        return None
    return times if bool(((times >= OLDEST_MS) & (times < NEWEST_MS)).all()) else None


def _all_usable(matrix: FloatMatrix | None) -> bool:
    """Whether all values are finite and not too large (a comparison with NaN is False)."""
    return matrix is None or bool((np.abs(matrix) <= MAX_MAGNITUDE).all())


def _keys_fit(keys: list[bytes | None]) -> bool:
    return None not in keys and _longest(keys) <= MAX_KEY_BYTES


def _longest(texts: list[bytes | None]) -> int:
    """Length of the longest of texts that are all there (checked by the caller: `in` is faster than a filter)."""
    return max(map(len, cast("list[bytes]", texts)), default=0)


def _problems(fields: Fields, i: int, key: bytes | None, time_ms: int, *, missing: bool) -> Iterator[tuple[str, str]]:
    """Reasons and messages of what is wrong with row i, in a fixed order."""
    if key is None:
        yield "null_key", "no key: give records a key, bind input.key, or set input.null_key to by_offset"
    elif len(key) > MAX_KEY_BYTES:
        yield "too_large", f"the key has {len(key)} bytes, the limit is {MAX_KEY_BYTES}"
    if fields.x is not None:
        yield from _value_problems(fields.labels[0], fields.x[i])
    y = fields.y[i]
    if missing and np.isnan(y).all():
        yield "all_missing", "each of the bound values is missing, null or not finite: there is nothing to learn from"
    yield from _value_problems(fields.labels[1], np.nan_to_num(y) if missing else y)
    if time_ms < 0 and fields.times is not None:
        yield "bad_timestamp", f"no usable event time ({str(fields.times[i])[:40]!a}), and the bus gives no record time"


def _value_problems(labels: tuple[str, ...], values: FloatColumn) -> Iterator[tuple[str, str]]:
    for label, value in zip(labels, values.tolist(), strict=True):
        if not isfinite(value):
            yield "not_finite", f"{label}: expected a finite number, found {value}"
        elif abs(value) > MAX_MAGNITUDE:
            yield "out_of_range", f"{label}: {value!r} is beyond the largest magnitude, {MAX_MAGNITUDE}"


def _take(fields: Fields, kept: list[int]) -> Fields:
    return Fields(
        positions=[fields.positions[i] for i in kept],
        x=None if fields.x is None else np.ascontiguousarray(fields.x[kept]),
        y=np.ascontiguousarray(fields.y[kept]),
    )


class RejectPolicy:
    """Stops the process when too much of a partition is refused: a schema change upstream must not be swallowed.

    Counts the records of each partition in the order of their offsets; how polls cut them, and other partitions, make
    no difference.

    Args:
        max_reject_ratio: share of the last `window_records` records that may be refused; 1 switches this off.
        window_records: length of that window; before it is full the ratio is not judged.
        max_consecutive_rejects: so many refused in a row are one too many.
    """

    def __init__(self, *, max_reject_ratio: float, window_records: int, max_consecutive_rejects: int) -> None:
        self._max_ratio = max_reject_ratio
        self._window = window_records
        self._max_consecutive = max_consecutive_rejects
        self._partitions: dict[TopicPartition, _RecentRejects] = {}

    def observe(self, batch: Batch, rejects: Rejects) -> None:
        """Count a decoded batch, whose rejects are in the order of its rows.

        Raises:
            Fatal: the share or the run of refused records is at its limit; the message names the most frequent reason.
        """
        recent = self._partitions.setdefault(batch.partition, _RecentRejects())
        for row, reason, message in zip(rejects.positions, rejects.reasons, rejects.messages, strict=True):
            recent.add(recent.records + row, reason, f"offset {batch.offsets[row]}: {message}", self._window)
            self._judge(batch.partition, recent, recent.records + row)
        recent.records += len(batch)

    def _judge(self, partition: TopicPartition, recent: _RecentRejects, number: int) -> None:
        if recent.consecutive >= self._max_consecutive:
            what = f"{recent.consecutive} records in a row were refused"
            raise _too_many(partition, recent, what, "gate.max_consecutive_rejects")
        count = len(recent.window)
        if number + 1 >= self._window and count > self._max_ratio * self._window:
            what = f"{count} of the last {self._window} records were refused"
            raise _too_many(partition, recent, what, "gate.max_reject_ratio")


@dataclass(slots=True)
class _RecentRejects:
    """What was refused of one partition.

    Attributes:
        records: records of the partition seen before the present batch.
        consecutive: length of the run of rejects that ends with the last one.
        last: number of the last reject; -1 before the first.
        window: (number, reason) of the rejects among the last records.
        examples: the newest message of each reason.
    """

    records: int = 0
    consecutive: int = 0
    last: int = -1
    window: deque[tuple[int, str]] = field(default_factory=deque)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, number: int, reason: str, message: str, window: int) -> None:
        """Count one refused record and forget those that left the window."""
        self.consecutive = self.consecutive + 1 if number == self.last + 1 else 1
        self.last = number
        self.examples[reason] = message
        self.window.append((number, reason))
        while self.window[0][0] <= number - window:
            self.window.popleft()


def _too_many(partition: TopicPartition, recent: _RecentRejects, what: str, option: str) -> Fatal:
    counts = Counter(reason for _, reason in recent.window)
    reason, n = min(counts.items(), key=lambda item: (-item[1], item[0]))
    return Fatal(
        f"{partition}: {what}, most often as {reason} ({n}), last at {recent.examples[reason]}. Mend the producer or "
        f"the binding (input.*); if this is expected, raise {option}"
    )
