"""What a partition's state is beside the models: its keys, its clock, what is dirty, where a replay would begin."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np

from kstream_worker.records import IntColumn
from kstream_worker.state.admission import Admission
from kstream_worker.state.clock import EventClock
from kstream_worker.state.dirty import DirtyKeys
from kstream_worker.state.format import Header
from kstream_worker.state.keys import KeyTable
from kstream_worker.state.silence import SilentKeys

MOST_DEATHS = 3  # of processes inside one record, after which it is given up
MOST_TRIERS = 16  # processes that may have announced it and be alive; of more, each is taken for dead


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """What shapes the life of keys.

    Attributes:
        ttl_ms: a silent key is forgotten after so much event time; 0 for never.
        max_keys: most keys of a partition.
        max_skew_ms: see `EventClock`.
        silence_ms: a key is in alarm after so much event time without a record; 0 for never.
    """

    ttl_ms: int = 0
    max_keys: int = 100_000
    max_skew_ms: int = 3_600_000
    silence_ms: int = 0


class Checkpoint(NamedTuple):
    """A place where a replay can begin: an input position, the clock there, records read until then."""

    position: int
    clock_ms: int
    ordinal: int


class Ledger:
    """The books of one partition. Pure: it knows neither the models nor the bus.

    A record below `live_from` is *replayed*: it brings models up to date, and publishes nothing.

    Attributes:
        keys: the live keys.
        clock: event time.
        silent: keys that have stopped sending.
        dirty: keys with records that no snapshot covers.
        gone: keys that went and whose snapshots are still to be deleted: input offset at which they went.
        alarms: what the raised alarms said, by key.
        header: as restored or begun; what does not change from commit to commit is taken from it.
        reached: all records below this input position are processed.
        ordinal: records read by this process.
        rejected: offsets of records that are given up.
        trial: offset of the record that is about to be tried alone; -1 for none.
        deaths: how often that was tried before.
        triers: static names of those who announced the trial.
    """

    def __init__(self, settings: LedgerSettings) -> None:
        self.keys = KeyTable()
        self.clock = EventClock(settings.ttl_ms, settings.max_skew_ms)
        self.silent = SilentKeys(self.keys, settings.silence_ms)
        self.admission = Admission(settings.max_keys)
        self.dirty = DirtyKeys()
        self.gone: dict[bytes, int] = {}
        self._gone_in_flight: dict[bytes, int] = {}
        self._first_in_flight: set[int] = set()  # slots whose first snapshot that is
        self.alarms: dict[bytes, Mapping[str, object]] = {}
        self.header = Header("", "", "", 0, 0)
        self._uncounted = 0
        self.reached = 0
        self.ordinal = 0
        self.rejected: set[int] = set()
        self.trial = -1
        self.deaths = 0
        self.triers: tuple[str, ...] = ()
        self._checkpoints: list[Checkpoint] = []

    def open(self, header: Header, uncounted: int | None = None) -> None:
        """Begin, or go on from what was restored: nothing below `header.replay_from` will come again.

        Args:
            header: as it shall be once new records are read.
            uncounted: starts without progress before this one, which counts from the end of its replay on: who lost the
                partition in a replay has not met the records that are counted for; None for those of the header.
        """
        self.header = header
        self._uncounted = header.attempts if uncounted is None else uncounted
        self.clock.now_ms = header.clock_ms
        self.admission.restore(header.closed)
        self.rejected = set(header.rejected)
        self.trial, self.deaths, self.triers = header.trial, header.deaths, header.triers
        self.reached = header.replay_from
        self._checkpoints = [Checkpoint(header.replay_from, header.clock_ms, 0)]

    @property
    def live_from(self) -> int:
        """Records from this input offset on are published."""
        return self.header.offset

    @property
    def replaying(self) -> bool:
        """Whether there are records to be read again."""
        return self.reached < self.header.offset

    def advance(self, position: int, records: int) -> None:
        """All records below this position are processed, `records` more than before."""
        self.reached = position
        self.ordinal += records
        self._checkpoints.append(Checkpoint(position, self.clock.now_ms, self.ordinal))

    def touch(self, slots: IntColumn, offsets: IntColumn, clocks: IntColumn, now_s: float) -> None:
        """Records of these slots went into the models, at these values of the clock; all int64[n]."""
        self.keys.seen[slots] = clocks  # of a slot that is there twice the last one counts
        self.dirty.touch(slots, offsets, self.ordinal, now_s)

    def rewrite(self) -> None:
        """Snapshots were lost: all keys are to be written again, and at once."""
        slots = self.keys.live_slots()
        self.dirty.touch(slots, np.full(len(slots), self.reached, dtype=np.int64), self.ordinal, -inf)

    def ticks_matter(self, clocks: IntColumn) -> bool:
        """Whether a tick among the next samples, at these values of the clock (int64[n]), can change anything.

        It can expire a key, or let new ones in.
        Keys that these samples bring are seen at `clocks[0]` or later, so the look is safe before they are processed.
        """
        oldest = min(self.keys.oldest_seen(), int(clocks[0]))
        expires = oldest < self.clock.oldest_alive_ms(int(clocks[-1]))
        return expires or not self.admission.is_open(len(self.keys) + len(clocks))

    def try_alone(self, offset: int, who: str) -> None:
        """The record at this offset is about to be tried alone; -1 for none.

        A process that finds its own name there died of it. Another's is no sign: the partition may have moved on while
        it lives. Those who have no name that outlives them are taken for dead.

        Args:
            offset: of the record.
            who: static name of this process; empty for none.
        """
        if self.trial != offset:
            self.trial, self.deaths, self.triers = offset, 0, (who,) if who else ()
        elif who and who not in self.triers and len(self.triers) < MOST_TRIERS:
            self.triers = (*self.triers, who)
        else:
            self.deaths += 1
            if self.deaths >= MOST_DEATHS:
                self.rejected.add(offset)

    def spare(self, who: str) -> None:
        """What this process announced it has not tried, and it lives."""
        if who:
            self.triers = tuple(name for name in self.triers if name != who)
        else:
            self.deaths -= 1

    def forget(self, key: bytes, offset: int) -> int:
        """A key has gone at this input offset; the slot that it had."""
        slot = self.keys.slot_of(key)
        if self.keys.stored[slot]:
            self.gone.setdefault(key, offset)
        self.keys.remove(key)
        self._first_in_flight.discard(slot)
        self.dirty.forget(slot)
        self.alarms.pop(key, None)
        self.silent.since.pop(key, None)
        return slot

    def replay_from(self) -> Checkpoint:
        """Where a replay would begin if all that is in flight were committed; earlier places are given up."""
        needed = self.reached
        first = self.dirty.first_offset()
        if first is not None:
            needed = min(needed, first)
        if self.gone:
            needed = min(needed, next(iter(self.gone.values())))
        index = max(bisect_right(self._checkpoints, (needed, float("inf"), 0)) - 1, 0)
        return self._checkpoints[index]

    def span(self) -> int:
        """Records that would be read again."""
        return self.ordinal - self.replay_from().ordinal

    def take_gone(self, most: int) -> list[tuple[bytes, int]]:
        """Keys whose snapshots are to be deleted now, at most so many, with the offsets at which they went."""
        taken = list(self.gone.items())[:most]
        for key, offset in taken:
            del self.gone[key]
            self._gone_in_flight[key] = offset
        return taken

    def take_dirty(self, slot: int) -> None:
        """The key of this slot is snapshotted now: that is in flight, and replaces what was to be deleted."""
        self.dirty.take(slot)
        if not self.keys.stored[slot]:
            self.keys.stored[slot] = True
            self._first_in_flight.add(slot)
        key = self.keys.name(slot)
        if key in self.gone:
            self._gone_in_flight[key] = self.gone.pop(key)

    def settle(self, *, committed: bool) -> None:
        """What is in flight is committed, or was not and has to go again."""
        self.dirty.settle(committed=committed)
        back, self._gone_in_flight = self._gone_in_flight, {}
        first, self._first_in_flight = self._first_in_flight, set()
        if committed:
            start = self.replay_from()
            self._checkpoints = [at for at in self._checkpoints if at.position >= start.position]
            self.admission.prune(start.position)
        else:
            self.keys.stored[list(first)] = False
            self.gone = dict(sorted((back | self.gone).items(), key=lambda item: item[1]))

    def header_at(self, offset: int, token: str) -> Header:
        """The header of a commit of this position, in which everything in flight is contained."""
        start = self.replay_from()
        attempts = self._uncounted if self.replaying else self.header.attempts
        arls = self.header.arls
        holding = [pair for pair in arls if pair[0] <= start.position][-1:]
        return replace(
            self.header,
            token=token,
            offset=offset,
            replay_from=start.position,
            clock_ms=start.clock_ms,
            closed=self.admission.closed_from(start.position),
            arls=(*holding, *(pair for pair in arls if pair[0] > start.position)),
            rejected=tuple(sorted(o for o in self.rejected if o >= start.position)),
            attempts=0 if offset > self.header.offset else attempts,
            trial=self.trial,
            deaths=self.deaths,
            triers=self.triers,
            snapshots=self.keys.count_stored(),
        )

    def arl_at(self, offset: int) -> float:
        """The average run length that holds for a record at this offset."""
        return [arl for first, arl in self.header.arls if first <= offset or first == self.header.arls[0][0]][-1]

    def boundaries(self) -> Iterable[int]:
        """Input offsets at which the way of treating records changes, in a replay."""
        return sorted({self.live_from, *(offset for offset, _ in self.header.arls)})
