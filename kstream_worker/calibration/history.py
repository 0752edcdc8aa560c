"""The history of some keys, as a worker sees it: per key, in the order of offsets, in bounded memory.

A worker holds one model per key *and* partition, and forgets a key at a tombstone or after `state.ttl` of silence;
here, too, a key of two partitions is two, and a key's history has places at which it starts afresh.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kstream_worker.errors import ConfigError
from kstream_worker.records import BoolColumn, FloatMatrix, IntColumn, Samples

MOST_SAMPLES = 100_000  # of one key
MOST_VALUES_BYTES = 512 * 2**20  # of all keys together
_MOST_COUNTED_KEYS = 1_000_000  # some 60 MB of numbers
_FIRST_ROWS = 1024
_DAY_MS = 86_400_000
_FEWEST_DAYS = 3


@dataclass(frozen=True, slots=True)
class KeyHistory:
    """The samples of one key.

    Attributes:
        key: of the records.
        partition: of the input.
        times: int64[n], event times in milliseconds; -1 where unknown.
        x: float64[n, d], the reference side; None for one-sided samples.
        y: float64[n, d], the live side.
        starts: rows at which the key starts afresh, ascending; the first is 0.
        left_out: older samples for which there was no room.
    """

    key: bytes
    partition: int
    times: IntColumn
    x: FloatMatrix | None
    y: FloatMatrix
    starts: tuple[int, ...]
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.times)

    def lives(self) -> list[tuple[int, int]]:
        """First rows and ends of the stretches between starts."""
        return list(zip(self.starts, (*self.starts[1:], len(self)), strict=True))

    def part(self, first: int, last: int) -> tuple[FloatMatrix | None, FloatMatrix, IntColumn]:
        """Rows `first` to `last`, the latter not included: x, y and times, as a bank takes them."""
        return None if self.x is None else self.x[first:last], self.y[first:last], self.times[first:last]

    def samples_per_day(self) -> float | None:
        """Mean rate over the whole history; None where times are unknown or all the same."""
        return rate_per_day(len(self), int(self.times.min()), int(self.times.max())) if len(self) else None


def rate_per_day(samples: int, first_ms: int, last_ms: int) -> float | None:
    """Samples per day of so many in this span; None where the span is unknown or empty."""
    if first_ms < 0 or last_ms <= first_ms:
        return None
    return (samples - 1) * _DAY_MS / (last_ms - first_ms)


class Days:
    """Samples by day (UTC) of event time: a number per day, so at most some 36,000."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.first_ms = -1
        self.last_ms = -1

    def add(self, times: IntColumn) -> None:
        """Count samples: int64[n], n >= 1, milliseconds; negative ones are unknown and count for nothing."""
        known = times[times >= 0]
        if not len(known):
            return
        low, high = int(known.min()), int(known.max())
        self.first_ms = low if self.first_ms < 0 else min(self.first_ms, low)
        self.last_ms = max(self.last_ms, high)
        days, counts = np.unique(known // _DAY_MS, return_counts=True)
        for day, count in zip(days.tolist(), counts.tolist(), strict=True):
            self._counts[day] += count

    def mean(self) -> float | None:
        """Mean of the days that have any samples, the first and the last left out, as they are not whole.

        Where fewer than three days are left: the mean rate over the whole span. None where that is unknown or empty.
        """
        whole = [count for day, count in sorted(self._counts.items())][1:-1]
        if len(whole) >= _FEWEST_DAYS:
            return sum(whole) / len(whole)
        return rate_per_day(self._counts.total(), self.first_ms, self.last_ms)


@dataclass(frozen=True, slots=True)
class Limits:
    """What of the history is looked at.

    Attributes:
        keys: most keys; of more a sample is taken that every key has the same chance to be in.
        samples: most samples of a key, the newest.
        from_ms: only samples with an event time at or after this.
        until_ms: only samples with an event time before this.
        ttl_ms: a key starts afresh after so long a gap; 0 for never.
    """

    keys: int
    samples: int
    from_ms: int | None = None
    until_ms: int | None = None
    ttl_ms: int = 0

    @classmethod
    def within(
        cls, keys: int, dims: int, *, two_sided: bool, from_ms: int | None, until_ms: int | None, ttl_ms: int
    ) -> Limits:
        """As many samples of each key as there is room for: at most 100,000, and 512 MiB in all."""
        row_bytes = 8 * (1 + dims * (2 if two_sided else 1))
        samples = min(MOST_SAMPLES, MOST_VALUES_BYTES // (keys * row_bytes))
        return cls(keys, samples, from_ms, until_ms, ttl_ms)


class Collector:
    """Takes the samples of all partitions and keeps those of some keys.

    Which keys is decided by a hash of each, so every key has the same chance however many samples it has, and the same
    input gives the same keys.

    Attributes:
        taken: samples within the limits of time, of all keys.
        days: when they are.

    Args:
        limits: what is kept.
        dims: features of one side.
        two_sided: whether samples are pairs.
        seed: of the choice of keys.
    """

    def __init__(self, limits: Limits, dims: int, *, two_sided: bool, seed: int) -> None:
        self.taken = 0
        self.days = Days()
        self._limits = limits
        self._columns = 1 + dims * (2 if two_sided else 1)
        self._dims = dims
        self._two_sided = two_sided
        self._seed = seed
        self._kept: dict[tuple[int, bytes], _Buffer] = {}
        self._order: list[tuple[int, tuple[int, bytes]]] = []  # a heap: the key to go first is at its top
        self._seen: set[int] = set()

    @property
    def keys(self) -> int:
        """Different keys, as far as they were counted."""
        return len(self._seen)

    @property
    def keys_are_exact(self) -> bool:
        """Whether all were counted."""
        return len(self._seen) < _MOST_COUNTED_KEYS

    def take(self, partition: int, samples: Samples) -> None:
        """Samples of one partition, in order.

        Raises:
            ConfigError: limits of time are set, but event times are unknown.
        """
        wanted = self._wanted(samples.times)
        first = 0
        for row, key, _, _ in samples.forget:
            self._take_rows(partition, samples, first, row, wanted)
            first = row
            if (partition, key) in self._kept:
                self._kept[partition, key].start_afresh()
        self._take_rows(partition, samples, first, len(samples), wanted)

    def histories(self) -> list[KeyHistory]:
        """The kept keys, by key and partition; once, as each gives up its room here."""
        split = self._dims if self._two_sided else 0
        names = sorted(self._kept, key=lambda name: (name[1], name[0]))
        return [self._kept.pop(name).history(name[1], name[0], self._limits.ttl_ms, split) for name in names]

    def _wanted(self, times: IntColumn) -> BoolColumn:
        limits = self._limits
        wanted = np.ones(len(times), dtype=np.bool_)
        if limits.from_ms is None and limits.until_ms is None:
            return wanted
        if len(times) and times.min() < 0:
            raise ConfigError("--from and --until need event times, which these records have not: bind input.timestamp")
        if limits.from_ms is not None:
            wanted &= times >= limits.from_ms
        if limits.until_ms is not None:
            wanted &= times < limits.until_ms
        return wanted

    def _take_rows(self, partition: int, samples: Samples, first: int, last: int, wanted: BoolColumn) -> None:
        rows = np.flatnonzero(wanted[first:last]) + first
        if not len(rows):
            return
        self.taken += len(rows)
        self.days.add(samples.times[rows])
        of_key: dict[bytes, list[int]] = {}
        for row in rows.tolist():
            of_key.setdefault(samples.keys[row], []).append(row)
        for key, mine in of_key.items():
            buffer = self._buffer(partition, key)
            if buffer is not None:
                sides = [] if samples.x is None else [samples.x[mine]]
                buffer.add(samples.times[mine], np.hstack([*sides, samples.y[mine]]))

    def _buffer(self, partition: int, key: bytes) -> _Buffer | None:
        """Where this key's samples go; None where it is not in the sample of keys."""
        name = (partition, key)
        buffer = self._kept.get(name)
        if buffer is not None:
            return buffer
        number = _number_of(self._seed, partition, key)
        if len(self._seen) < _MOST_COUNTED_KEYS:
            self._seen.add(number)
        if len(self._kept) == self._limits.keys:
            if -self._order[0][0] <= number:
                return None
            _, gone = heapq.heapreplace(self._order, (-number, name))
            del self._kept[gone]
        else:
            heapq.heappush(self._order, (-number, name))
        buffer = self._kept[name] = _Buffer(self._limits.samples, self._columns - 1)
        return buffer


def _number_of(seed: int, partition: int, key: bytes) -> int:
    person = b"history" + partition.to_bytes(4, "little")
    digest = hashlib.blake2b(key, digest_size=8, key=seed.to_bytes(8, "little"), person=person).digest()
    return int.from_bytes(digest, "little")


class _Buffer:
    """The newest samples of one key: arrays that grow up to a limit and are written in a circle then.

    Args:
        limit: most rows.
        width: values of a row.
    """

    def __init__(self, limit: int, width: int) -> None:
        self._limit = limit
        self._times = np.empty(min(_FIRST_ROWS, limit), dtype=np.int64)
        self._values = np.empty((len(self._times), width))
        self._count = 0
        self._starts: list[int] = [0]

    def start_afresh(self) -> None:
        """The next sample is the first of a new life."""
        self._starts.append(self._count)

    def add(self, times: IntColumn, values: FloatMatrix) -> None:
        """Append samples: int64[n] and float64[n, width]."""
        spare = max(0, len(times) - self._limit)
        self._count += spare
        times, values = times[spare:], values[spare:]
        self._grow(self._count + len(times))
        rows = np.arange(self._count, self._count + len(times)) % len(self._times)
        self._times[rows] = times
        self._values[rows] = values
        self._count += len(times)

    def history(self, key: bytes, partition: int, ttl_ms: int, split: int) -> KeyHistory:
        """What was kept; the first `split` values of a row are the reference side."""
        n = min(self._count, self._limit)
        left_out = self._count - n
        rows = np.arange(left_out, self._count) % len(self._times)
        times, values = self._times[rows], self._values[rows]
        starts = {0, *(start - left_out for start in self._starts if left_out < start < self._count)}
        starts |= set(_starts_after_silence(times, ttl_ms))
        y = np.ascontiguousarray(values[:, split:])
        x = np.ascontiguousarray(values[:, :split]) if split else None
        return KeyHistory(key, partition, times, x, y, tuple(sorted(starts)), left_out)

    def _grow(self, rows: int) -> None:
        size = len(self._times)
        if rows <= size or size == self._limit:
            return
        size = min(max(rows, 2 * size), self._limit)
        times, values = np.empty(size, dtype=np.int64), np.empty((size, self._values.shape[1]))
        held = min(self._count, len(self._times))
        times[:held], values[:held] = self._times[:held], self._values[:held]
        self._times, self._values = times, values


def _starts_after_silence(times: IntColumn, ttl_ms: int) -> list[int]:
    """Rows before which the key was silent for longer than its life: int64[n] times, milliseconds."""
    if not ttl_ms or len(times) < 2:
        return []
    latest: NDArray[np.int64] = np.maximum.accumulate(times)
    gaps = times[1:] - latest[:-1]
    return [int(row) for row in np.flatnonzero(gaps > ttl_ms) + 1]
