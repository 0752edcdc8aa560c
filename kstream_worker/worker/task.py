"""A task is one input partition: its keys, its bank of models, and the way of a batch through them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np

from kstream_worker.measures import Telemetry
from kstream_worker.ports import Bank, Decoder
from kstream_worker.records import (
    Batch,
    IntColumn,
    Messages,
    Progress,
    Rejects,
    Samples,
    Scores,
    TopicPartition,
    Transition,
)
from kstream_worker.state.format import Snapshot
from kstream_worker.state.ledger import Ledger
from kstream_worker.state.opening import Opening
from kstream_worker.worker.alarms import Alarms, Place, place_of
from kstream_worker.worker.board import AlarmBoard
from kstream_worker.worker.columns import merged, moved, part_of, rows_of, without
from kstream_worker.worker.silence import Silence
from kstream_worker.worker.stages import Encoder, RejectLimit

_FORGET, _EXPIRE, _FALL_SILENT = range(3)  # what happens to keys before a row, in this order


class Task:
    """Models and keys of one input partition; made when it is assigned, dropped when it goes.

    Attributes:
        partition: of the input.
        ledger: the books: keys, clock, what is dirty.
        leader_epoch: of what lies before `progress`; -1 where unknown.
        changed: slots whose published state changed since their last snapshot; they go with the next commit.
    """

    def __init__(
        self,
        partition: TopicPartition,
        decoder: Decoder,
        bank: Bank,
        encoder: Encoder,
        limit: RejectLimit,
        ledger: Ledger,
        board: AlarmBoard,
        telemetry: Telemetry,
        clock: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self.partition = partition
        self.ledger = ledger
        self.changed: set[int] = set()
        self.leader_epoch = -1
        self._changed_in_flight: set[int] = set()
        self._decoder = decoder
        self._bank = bank
        self._encoder = encoder
        self._limit = limit
        self._alarms = Alarms(partition, ledger, encoder, board, telemetry, now_ms)
        self._telemetry = telemetry
        self._clock = clock
        self._told: Counter[str] = Counter()  # warnings of the decoder, as of the last batch
        self._arl: float | None = None

    @property
    def progress(self) -> Progress:
        """The position to commit."""
        return Progress(max(self.ledger.reached, self.ledger.live_from), self.leader_epoch)

    @property
    def live_keys(self) -> int:
        """Keys with a model."""
        return len(self.ledger.keys)

    @property
    def keys_in_alarm(self) -> int:
        """Keys whose alarm is up, that of silence apart."""
        return len(self.ledger.alarms)

    @property
    def silent_keys(self) -> int | None:
        """Keys that have stopped sending; None where nobody asks for them."""
        return len(self.ledger.silent.since) if self.ledger.silent.limit_ms else None

    @property
    def bank_bytes(self) -> int:
        """Bytes of the bank's arrays."""
        return self._bank.nbytes

    @property
    def bytes_per_key(self) -> int:
        """Bytes of one model."""
        return self._bank.bytes_per_key

    # -- state: in, at the beginning, and out, at each commit --

    def load(self, key: bytes, snapshot: Snapshot) -> None:
        """Take over a restored key; a later snapshot of it replaces an earlier one.

        Raises:
            ValueError: the model is damaged or of another configuration; the key is as before.
        """
        keys = self.ledger.keys
        known = keys.slot(key)
        slot = self._bank.allocate(key) if known is None else known
        try:
            self._bank.restore(slot, snapshot.model)
        except ValueError:
            if known is None:
                self._bank.free(slot)
            raise
        keys.add(key, slot, covered=snapshot.position, seen_ms=snapshot.seen_ms, stored=True)
        if self._bank.raised(slot):
            self.ledger.alarms[key] = snapshot.alarm
        else:
            self.ledger.alarms.pop(key, None)

    def unload(self, key: bytes) -> None:
        """Drop a restored key, if it is there."""
        if key in self.ledger.keys:
            self._bank.free(self.ledger.keys.remove(key))
            self.ledger.alarms.pop(key, None)

    def open(self, opening: Opening, doomed: Iterable[bytes]) -> None:
        """Everything is loaded: go on.

        Args:
            opening: from where.
            doomed: keys whose snapshots are to be deleted from the state topic.
        """
        ledger = self.ledger
        if not opening.keep:
            doomed = [*doomed, *ledger.keys]
            for key in list(ledger.keys):
                self.unload(key)
        ledger.open(opening.header, opening.attempts)
        ledger.gone |= dict.fromkeys(doomed, opening.header.replay_from)
        for key in ledger.alarms:
            self._alarms.show(key)

    def go_live(self) -> None:
        """Everything that was processed before is so again: find out which keys are silent. Done once."""
        silent = self.ledger.silent
        if silent.begin(self.ledger.clock.now_ms):
            for key in silent.since:
                self._alarms.show(key)

    def letters(self, batch: Batch, rejects: Rejects) -> list[Messages]:
        """Dead letters of records that are no input."""
        return self._encoder.dead_letters(batch, rejects)

    def snapshot(self, slot: int) -> Snapshot:
        """The state of the key in this slot."""
        ledger = self.ledger
        return Snapshot(
            position=ledger.reached,
            seen_ms=int(ledger.keys.seen[slot]),
            generation=ledger.header.generation,
            model=self._bank.snapshot(slot),
            alarm=ledger.alarms.get(ledger.keys.name(slot), {}),
        )

    def take(self, slot: int) -> None:
        """The snapshot of this slot is in flight."""
        self.ledger.take_dirty(slot)
        if slot in self.changed:
            self.changed.discard(slot)
            self._changed_in_flight.add(slot)

    def settle(self, *, committed: bool) -> None:
        """What is in flight is committed, or was not and has to go again, with what it belongs to."""
        self.ledger.settle(committed=committed)
        if not committed:
            self.changed |= self._changed_in_flight
        self._changed_in_flight = set()

    def close(self) -> None:
        """Take this partition's keys off the board; the state itself goes with the object."""
        self._alarms.close()

    # -- records --

    def process(self, batch: Batch) -> list[Messages]:
        """Decode, score and encode a batch; the outputs in the order of their records.

        Records that are replayed give no outputs.

        Raises:
            Fatal: too many records were refused.
        """
        outputs: list[Messages] = []
        if not self.ledger.replaying:
            self.leader_epoch = batch.leader_epoch
        for part in self._parts(batch) if self.ledger.replaying else (batch,):
            live = part.offsets[0] >= self.ledger.live_from
            if live:
                self._telemetry.records(self.partition, len(part))
            else:
                self._telemetry.replayed(len(part))
            made = self._process(part, live=live)
            if live:
                outputs += made
            self.ledger.advance(part.next_offset, len(part))
        return outputs

    def _parts(self, batch: Batch) -> list[Batch]:
        """The batch, cut where records begin to be treated otherwise."""
        rows = [bisect_left(batch.offsets, offset) for offset in self.ledger.boundaries()]
        cuts = sorted({0, len(batch), *rows})
        return [part_of(batch, first, last) for first, last in pairwise(cuts)]

    def _process(self, batch: Batch, *, live: bool) -> list[Messages]:
        if not len(batch):
            return []
        if live:
            self.go_live()
        arl = self.ledger.arl_at(batch.offsets[0])
        if arl != self._arl:
            self._bank.retune(arl)
            self._arl = arl
        poison = self._poison(batch) if self.ledger.rejected else Rejects()
        usable = without(batch, set(poison.positions)) if poison.positions else batch
        started = self._clock()
        samples, rejects = self._decoder.decode(usable)
        self._telemetry.stage_seconds("decode", self._clock() - started)
        refused = Rejects()
        outputs = self._walk(usable, samples, refused, live=live)
        self._count_warnings(tell=live)
        if live:
            if poison.positions:
                rejects, refused = (moved(some, usable, batch) for some in (rejects, refused))
                rejects = merged(rejects, poison)
            self._limit.observe(batch, rejects)
            outputs += self._encoder.dead_letters(batch, merged(rejects, refused))
            for reason, count in Counter(rejects.reasons + refused.reasons).items():
                self._telemetry.rejects(reason, count)
        return outputs

    def _poison(self, batch: Batch) -> Rejects:
        """Records that ended the process time and again, and are given up."""
        rows = [row for row, offset in enumerate(batch.offsets) if offset in self.ledger.rejected]
        what = "processing this record ended the worker three times"
        return Rejects(rows, ["poison"] * len(rows), [what] * len(rows))

    def _walk(self, batch: Batch, samples: Samples, refused: Rejects, *, live: bool) -> list[Messages]:
        """All samples, and between them what happens to keys: tombstones, and ticks of event time."""
        before_ms = self.ledger.clock.now_ms
        clocks, ticks = self.ledger.clock.advance(samples.times, samples.stamps)
        if ticks and not self.ledger.ticks_matter(clocks):
            ticks = []  # to cut the batch there would cost, and change nothing
        events = [(f[0], _FORGET) for f in samples.forget] + [(row, _EXPIRE) for row in ticks]
        if live:
            events += [(row, _FALL_SILENT) for row in self.ledger.silent.ticks(before_ms, clocks)]
        outputs: list[Messages] = []
        first = 0
        for row, event in sorted(events):
            outputs += self._score(batch, samples, clocks, slice(first, row), refused, live=live)
            first = row
            if event == _FORGET:
                outputs += self._forget(*samples.forget.pop(0)[1:], int(clocks[row - 1]) if row else before_ms)
            elif event == _EXPIRE:
                outputs += self._tick(samples, int(clocks[row]), row, live=live)
            else:
                outputs += self._fall_silent(samples, int(clocks[row]), row)
        return outputs + self._score(batch, samples, clocks, slice(first, len(samples)), refused, live=live)

    def _score(
        self, batch: Batch, samples: Samples, clocks: IntColumn, part: slice, refused: Rejects, *, live: bool
    ) -> list[Messages]:
        if part.start == part.stop:
            return []
        rows = samples if part == slice(0, len(samples)) else rows_of(samples, part)
        clocks = clocks[part]
        slots = self.ledger.keys.lookup(rows.keys)
        if slots is None:
            slots = self._admit(batch, rows, refused, live=live)
        wanted = slots >= 0 if live else (slots >= 0) & (self.ledger.keys.covered[slots] <= rows.offsets)
        if not wanted.all():
            self.ledger.keys.see(slots[~wanted], clocks[~wanted])
            kept = np.flatnonzero(wanted)
            rows, clocks, slots = rows_of(rows, kept), clocks[kept], slots[kept]
        if not len(rows):
            return []
        heard = self.ledger.silent.heard(rows.keys) if live else []
        back = [(row, self._silence(rows.keys[row], since)) for row, since in heard]
        started = self._clock()
        # What is read again was due long ago, whoever owned the partition then.
        self.ledger.touch(slots, rows.offsets, clocks, started if live else -inf)
        scores = self._bank.update(slots, rows.x, rows.y, rows.times)
        scored = self._clock()
        self._telemetry.stage_seconds("update", scored - started)
        if live:
            self._measure(scores)
        outputs = self._encoder.estimates(self.partition, rows, scores) if live else []
        self.changed |= {int(slots[transition.row]) for transition in scores.transitions}
        returned = [silence.returned(row, int(clocks[row])) for row, silence in back]
        for transition in sorted(returned + scores.transitions, key=lambda transition: transition.row):
            row = transition.row
            outputs.append(self._alarms.publish(rows.keys[row], place_of(rows, row), transition))
        self._telemetry.stage_seconds("encode", self._clock() - scored)
        return outputs

    def _admit(self, batch: Batch, rows: Samples, refused: Rejects, *, live: bool) -> IntColumn:
        """int64[n], slots of the samples' keys, new ones allocated; -1 where a new key is refused."""
        ledger = self.ledger
        keys = ledger.keys
        slots = np.empty(len(rows), dtype=np.int64)
        before = len(refused)
        for i, key in enumerate(rows.keys):
            slot = keys.slot(key)
            if slot is None:
                offset = int(rows.offsets[i])
                if ledger.admission.admits(offset, len(keys), replaying=not live):
                    slot = self._bank.allocate(key)
                    keys.add(key, slot)
                else:
                    slot = -1
                    what = "the partition holds state.max_keys keys already, and this one is new"
                    refused.add(bisect_left(batch.offsets, offset), "too_many_keys", what)
            slots[i] = slot
        if live and len(refused) > before:
            self._telemetry.refused_keys(len(refused) - before)
        return slots

    def _measure(self, scores: Scores) -> None:
        self._telemetry.scored(len(scores.seq))
        self._telemetry.clipped(scores.clipped)
        self._telemetry.log_ratios(scores.log_ratio)
        self._telemetry.evidence(scores.evidence, scores.threshold)

    def _count_warnings(self, *, tell: bool) -> None:
        so_far = Counter(self._decoder.warnings)
        if so_far == self._told:
            return
        new = so_far - self._told
        self._told = so_far
        if tell:
            self._telemetry.fallback_timestamps(new["timestamp_missing"] + new["timestamp_absurd"])
            self._telemetry.missing_values(new["missing_values"])

    # -- the life of keys --

    def _tick(self, samples: Samples, clock_ms: int, row: int, *, live: bool) -> list[Messages]:
        """A tick of event time begins at this row: forget keys that were silent for too long."""
        ledger = self.ledger
        place = place_of(samples, row)
        gone = ledger.keys.silent_since(ledger.clock.oldest_alive_ms(clock_ms), place.offset)
        owed = [(key, end) for key in gone for end in self._drop(key, place.offset, "expired", clock_ms)]
        if live:
            ledger.admission.tick(place.offset, len(ledger.keys))
            if gone:
                self._telemetry.forgotten_keys("expired", len(gone))
        return self._alarms.publish_others(place, owed)

    def _fall_silent(self, samples: Samples, clock_ms: int, row: int) -> list[Messages]:
        """A tick of event time begins at this row: tell which keys were silent for longer than they may."""
        silent = self.ledger.silent
        keys = silent.tick(clock_ms, samples.keys[row])
        raised = [(key, self._silence(key, silent.since[key]).raised(clock_ms)) for key in keys]
        return self._alarms.publish_others(place_of(samples, row), raised)

    def _forget(self, key: bytes, offset: int, time_ms: int, clock_ms: int) -> list[Messages]:
        """A tombstone."""
        slot = self.ledger.keys.slot(key)
        if slot is None or self.ledger.keys.covered[slot] > offset:  # it ended a former life of the restored key
            return []
        owed = self._drop(key, offset, "forgotten", clock_ms)
        if offset >= self.ledger.live_from:
            self._telemetry.forgotten_keys("forgotten", 1)
        return [self._alarms.publish(key, Place(offset, time_ms, time_ms), transition) for transition in owed]

    def _drop(self, key: bytes, offset: int, reason: str, clock_ms: int) -> list[Transition]:
        """A key goes; the ends of its alarms."""
        slot, since = self.ledger.keys.slot_of(key), self.ledger.silent.since.get(key)
        transition = self._bank.forget(slot)
        owed = [] if transition is None else [replace(transition, reason=reason)]
        if since is not None:
            owed.append(self._silence(key, since).dropped(reason, clock_ms))
        self.changed.discard(slot)
        self._changed_in_flight.discard(slot)
        self.ledger.forget(key, offset)
        self._alarms.show(key)
        self._bank.free(slot)
        return owed

    def _silence(self, key: bytes, since_ms: int) -> Silence:
        slot = self.ledger.keys.slot_of(key)
        return Silence(slot, self._bank.seq(slot), since_ms, self.ledger.silent.limit_ms)
