"""One key starts afresh.

To delete its snapshot is not enough: records from `replay_from` on are read again at the next start, and would bring
back a model of a part of them. So the key gets the snapshot of a model that has seen nothing, which *covers* all
records below the committed offset: a replay skips them, and the first record from that offset on is the key's first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b

from kstream_worker.errors import ConfigError, Fatal
from kstream_worker.ports import Bank
from kstream_worker.records import Committed, Messages, Progress, TopicPartition, Transition
from kstream_worker.state.format import HEADER_KEY, Header, Snapshot, decode_snapshot, encode_header, encode_snapshot
from kstream_worker.state.format import state_key as record_key_of
from kstream_worker.state.opening import StateIdentity, decide
from kstream_worker.state_tools import show
from kstream_worker.state_tools.place import Place
from kstream_worker.state_tools.reading import StateReader
from kstream_worker.state_tools.seat import Seat
from kstream_worker.state_tools.survey import survey
from kstream_worker.worker.assignment import StartPositions
from kstream_worker.worker.stages import Encoder

_RANKS = 2**40  # of the alarms that resets clear at one offset, so that keys do not share an id


@dataclass(frozen=True, slots=True)
class ResetSettings:
    """How to reset.

    Attributes:
        identity: what the configuration writes state by.
        format: of the records to be written.
        bank: empty, of the configuration.
        encoder: of alarms.
        now_ms: the wall clock.
    """

    identity: StateIdentity
    format: int
    bank: Bank
    encoder: Encoder
    now_ms: Callable[[], int]


def locate(reader: StateReader, place: Place, key: bytes, number: int | None) -> int:
    """The partition that has the key.

    Raises:
        Fatal: none has it, or several have; says what to do.
    """
    if number is not None:
        return place.chosen(number)[0]
    found = [one.partition for one in show.find(reader, key, place.partitions())]
    if len(found) == 1:
        return found[0]
    if found:
        raise Fatal(f"the key is in partitions {', '.join(map(str, found))}: name one with --partition")
    raise Fatal(
        "no partition has a snapshot of this key. If it is new, its records may still be waiting to be read again: "
        "name its partition with --partition, or run the worker once with --drain"
    )


def reset_key(place: Place, seat: Seat, reader: StateReader, key: bytes, number: int, settings: ResetSettings) -> bool:
    """Let a key start afresh at the committed offset; whether an alarm of it was up, which is cleared then.

    Raises:
        Fatal: the state does not fit the group's offset, so that a worker would not go on from it.
        ConfigError: the state is of another configuration.
    """
    tp = place.input_of(number)
    found = survey(reader, number)
    header, committed = found.header, seat.committed([tp])[tp]
    _check(place, tp, header, committed, len(found.keys), settings.identity)
    if header is None or committed is None:
        raise Fatal(f"{tp}: nothing was committed yet, so there is nothing to reset")
    latest = next(show.find(reader, key, [number]), None) if key in found.live() else None
    former = None if latest is None else decode_snapshot(latest.value)
    cleared = None if former is None else _owed(settings.bank, former)
    seen_ms = header.clock_ms if former is None else former.seen_ms
    fresh = Snapshot(header.offset, seen_ms, header.generation, _fresh(settings.bank, key))
    alarm = [] if cleared is None else [_alarm(tp, key, header.offset, seen_ms, cleared, settings)]

    def make(token: str) -> list[Messages]:
        now_ms = settings.now_ms()
        state = Messages(place.state_of(number))
        state.extend(
            (record_key_of(key), HEADER_KEY),
            (
                encode_snapshot(fresh, settings.format),
                encode_header(replace(header, token=token), settings.format),
            ),
            (now_ms, now_ms),
            ((), ()),
        )
        return [*alarm, state]

    starts = StartPositions(tp.topic, "earliest", settings.now_ms)
    starts.learn([committed])
    seat.birth = starts.birth
    seat.commit(make, {tp: Progress(header.offset, committed.leader_epoch)})
    return cleared is not None


def _check(
    place: Place, tp: TopicPartition, header: Header | None, committed: Committed | None, keys: int, ours: StateIdentity
) -> None:
    """See that a worker would go on from this state: what does not fit is not to be hidden by a new token."""
    found = place.found(tp, committed, header, keys, -1 if header is None else header.generation)
    try:
        decide(found, ours, "fail", discard=False)
    except ConfigError:
        raise
    except Fatal as error:
        raise Fatal(f"{error} Do so with a start of the worker first, then reset the key") from error


def _owed(bank: Bank, former: Snapshot) -> Transition | None:
    """The end of an alarm that is up."""
    slot = bank.allocate(b"")
    try:
        bank.restore(slot, former.model)
        return bank.forget(slot)
    except ValueError:  # damaged: the worker would set it aside
        return None
    finally:
        bank.free(slot)


def _fresh(bank: Bank, key: bytes) -> bytes:
    slot = bank.allocate(key)
    try:
        return bank.snapshot(slot)
    finally:
        bank.free(slot)


def _alarm(
    tp: TopicPartition, key: bytes, offset: int, seen_ms: int, cleared: Transition, settings: ResetSettings
) -> Messages:
    now_ms = settings.now_ms()
    rank = 1 + int.from_bytes(blake2b(key, digest_size=5).digest(), "big") % (_RANKS - 1)
    return settings.encoder.alarm(tp, key, offset, seen_ms, now_ms, cleared, now_ms, rank)
