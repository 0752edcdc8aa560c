"""The worker's core, broken on purpose, one way at a time: what a simulation that is worth its time must find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from kstream_worker.bus.fake.writer import FakeWriter
from kstream_worker.records import End, Messages, Progress, TopicPartition
from kstream_worker.state.admission import Admission
from kstream_worker.state.dirty import DirtyKeys
from kstream_worker.state.format import HEADER_KEY, Header
from kstream_worker.state.keys import KeyTable
from kstream_worker.state.ledger import Checkpoint, Ledger
from kstream_worker.state.opening import Opening
from kstream_worker.state.silence import SilentKeys
from kstream_worker.worker import journal, opener
from kstream_worker.worker.task import Task
from kstream_worker.worker.unowned import UnownedWatch

Break = Callable[[pytest.MonkeyPatch], None]


def snapshots_that_are_not_skipped(patch: pytest.MonkeyPatch) -> None:
    add = KeyTable.add
    patch.setattr(KeyTable, "add", lambda self, key, slot, **more: add(self, key, slot, **(more | {"covered": 0})))


def a_header_from_before_the_batch(patch: pytest.MonkeyPatch) -> None:
    header_at = Ledger.header_at

    def late(self: Ledger, offset: int, token: str) -> Header:
        return replace(header_at(self, offset, token), offset=self.header.offset)

    patch.setattr(Ledger, "header_at", late)


def tombstones_that_are_not_written(patch: pytest.MonkeyPatch) -> None:
    take_gone = Ledger.take_gone

    def take_and_drop(self: Ledger, most: int) -> list[tuple[bytes, int]]:
        take_gone(self, most)
        return []

    patch.setattr(Ledger, "take_gone", take_and_drop)


def snapshots_outside_of_the_transaction(patch: pytest.MonkeyPatch) -> None:
    write = FakeWriter._write

    def write_at_once(
        self: FakeWriter, messages: Sequence[Messages], progress: Mapping[TopicPartition, Progress], token: str
    ) -> None:
        for column in messages:
            for key, value in zip(column.keys, column.values, strict=True):
                if column.partition.topic.endswith("-state") and key != HEADER_KEY:
                    self._broker.append(*column.partition, key, value)
        write(self, messages, progress, token)

    patch.setattr(FakeWriter, "_write", write_at_once)


def a_replay_that_begins_too_late(patch: pytest.MonkeyPatch) -> None:
    def last(self: Ledger) -> Checkpoint:
        return self._checkpoints[-1]

    patch.setattr(Ledger, "replay_from", last)


def a_restore_to_the_last_stable_offset_only(patch: pytest.MonkeyPatch) -> None:
    class OnlyStable:
        HIGH = End.STABLE

    patch.setattr(opener, "End", OnlyStable)


def a_clock_that_is_not_restored(patch: pytest.MonkeyPatch) -> None:
    open_ledger = Ledger.open
    patch.setattr(Ledger, "open", lambda self, header: open_ledger(self, replace(header, clock_ms=-1)))


def refusals_that_are_not_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Admission, "restore", lambda self, closed: None)


def replayed_records_that_are_published(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "live_from", property(lambda self: self.header.replay_from))


def published_changes_without_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    def nothing(task: Task) -> Iterable[int]:
        return []

    patch.setattr(journal, "_changed", nothing)


def a_former_run_length_that_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "arl_at", lambda self, offset: self.header.arls[-1][1])


def snapshots_taken_for_committed_that_were_not(patch: pytest.MonkeyPatch) -> None:
    settle = DirtyKeys.settle
    patch.setattr(DirtyKeys, "settle", lambda self, *, committed: settle(self, committed=True))


def deletions_taken_for_committed_that_were_not(patch: pytest.MonkeyPatch) -> None:
    settle = Ledger.settle

    def settle_gone(self: Ledger, *, committed: bool) -> None:
        self._gone_in_flight = {}
        settle(self, committed=committed)

    patch.setattr(Ledger, "settle", settle_gone)


def keys_whose_last_sight_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    load = Task.load
    patch.setattr(Task, "load", lambda self, key, snapshot: load(self, key, replace(snapshot, seen_ms=10**15)))


def expired_keys_that_stay(patch: pytest.MonkeyPatch) -> None:
    silent = KeyTable.silent_since

    def restored_ones_stay(self: KeyTable, seen_ms: int, offset: int) -> list[bytes]:
        return [key for key in silent(self, seen_ms, offset) if not self.stored[self._slots[key]]]

    patch.setattr(KeyTable, "silent_since", restored_ones_stay)


def silences_that_the_next_process_does_not_know(patch: pytest.MonkeyPatch) -> None:
    def begin(self: SilentKeys, clock_ms: int) -> bool:
        self._begun = True
        return False

    patch.setattr(SilentKeys, "begin", begin)


def silences_that_are_known_before_the_end_of_a_replay(patch: pytest.MonkeyPatch) -> None:
    open_task = Task.open

    def open_and_begin(self: Task, opening: Opening, doomed: Iterable[bytes]) -> None:
        open_task(self, opening, doomed)
        self.go_live()

    patch.setattr(Task, "open", open_and_begin)


def replays_without_a_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal, "_LATE", float("inf"))
    patch.setattr(journal, "_TOO_LATE", float("inf"))


def partitions_that_nobody_claims(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnownedWatch, "to_mend", lambda self: [])


MUTANTS: tuple[Break, ...] = (
    snapshots_that_are_not_skipped,
    a_header_from_before_the_batch,
    tombstones_that_are_not_written,
    snapshots_outside_of_the_transaction,
    a_replay_that_begins_too_late,
    a_restore_to_the_last_stable_offset_only,
    a_clock_that_is_not_restored,
    refusals_that_are_not_remembered,
    replayed_records_that_are_published,
    published_changes_without_a_snapshot,
    a_former_run_length_that_is_forgotten,
    snapshots_taken_for_committed_that_were_not,
    deletions_taken_for_committed_that_were_not,
    keys_whose_last_sight_is_forgotten,
    expired_keys_that_stay,
    silences_that_the_next_process_does_not_know,
    silences_that_are_known_before_the_end_of_a_replay,
    replays_without_a_bound,
    partitions_that_nobody_claims,
)
