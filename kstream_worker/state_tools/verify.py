"""Everything that must hold of the state, read and checked; what does not comes back in words, with the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kstream_worker.errors import KstreamError
from kstream_worker.ports import Bank, Group
from kstream_worker.records import Committed, TopicPartition
from kstream_worker.state.checks import check_state_topic, largest_snapshot_bytes
from kstream_worker.state.opening import StateIdentity, decide
from kstream_worker.state_tools.names import key_name
from kstream_worker.state_tools.place import ANSWER_S, Place
from kstream_worker.state_tools.reading import StateReader
from kstream_worker.state_tools.survey import Entry, Survey, inspector, survey


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found.

    Attributes:
        problems: each with its remedy; empty when all is well.
        notes: what is no problem, but worth knowing.
        keys: snapshots that were read and are in use.
    """

    problems: list[str]
    notes: list[str]
    keys: int


def verify(place: Place, reader: StateReader, group: Group, bank: Bank, ours: StateIdentity) -> Verdict:
    """Read all partitions and check them.

    Args:
        place: where the state is.
        reader: of it.
        group: whose offsets must agree with it.
        bank: empty, of the configuration: opens each model.
        ours: what the configuration writes state by.
    """
    inputs = place.persist(lambda: place.cluster.partition_count(place.topic)) or 0
    topic = place.persist(
        lambda: check_state_topic(
            place.cluster,
            input_topic=place.topic,
            state_topic=place.state_topic,
            largest_snapshot_bytes=largest_snapshot_bytes(bank.bytes_per_key),
        )
    )
    problems, notes = [*topic.problems], [*topic.warnings]
    if not inputs:
        problems.append(f"the input topic {place.topic} does not exist: correct input.topic, or make it")
    keys = 0
    inspect = inspector(bank)
    for number in place.partitions()[:inputs]:
        tp = place.input_of(number)
        before = _committed(place, group, tp)
        found = survey(reader, number, inspect)
        after = _committed(place, group, tp)
        keys += len(found.live())
        problems += _opening(place, found, _settled(found, before, after), ours)
        problems += _snapshots(place, found, moving=before != after)
        notes += _notes(place, found)
    return Verdict(problems, notes, keys)


def _committed(place: Place, group: Group, tp: TopicPartition) -> Committed | None:
    return place.persist(lambda: group.committed([tp], ANSWER_S)[tp])


def _settled(found: Survey, before: Committed | None, after: Committed | None) -> Committed | None:
    """The group's position that belongs to the header: a worker may have committed while the state was read."""
    header = found.header
    if header is None or before is None or after is None or before == after:
        return after
    if before.offset <= header.offset <= after.offset:
        return Committed(header.offset, header.token)
    return after


def _opening(place: Place, found: Survey, committed: Committed | None, ours: StateIdentity) -> Iterator[str]:
    """What a worker that starts now would say."""
    tp, header = place.input_of(found.number), found.header
    if found.header_problem:
        yield f"{place.state_of(found.number)}: the header is damaged ({found.header_problem}); it counts as none"
    if header is not None and header.replay_from > header.offset:
        yield f"{tp}: the header would read again from {header.replay_from}, beyond its own offset {header.offset}"
    if found.empty and committed is None:
        return
    state = place.found(tp, committed, header, len(found.keys) + len(found.unfinished), found.generation)
    try:
        decide(state, ours, "fail", discard=False)
    except KstreamError as error:
        yield str(error)


def _snapshots(place: Place, found: Survey, *, moving: bool) -> Iterator[str]:
    state, header = place.state_of(found.number), found.header
    if found.strangers:
        yield (
            f"{state} holds {found.strangers} records that are none of ours: something else writes to it. Find it, and "
            "take its right away"
        )
    for what, keys in _by_problem(found.live()).items():
        yield f"{state}: {_some(keys)}: {what}. The worker sets damaged snapshots aside; those keys start afresh"
    if header is None:
        return
    beyond = [key for key, entry in found.live().items() if entry.position > header.offset]
    if beyond:
        yield (
            f"{state}: {_some(beyond)}: the snapshot is ahead of the committed offset {header.offset}, so records to "
            "come may count as read. Reset each key, or write the state anew: kstream-worker state export, then import "
            "--new-offsets --force"
        )
    if found.unfinished and not moving:
        yield f"{state}: {_some(list(found.unfinished))}: written behind the last header, by no commit of a worker"


def _by_problem(entries: Mapping[bytes, Entry]) -> dict[str, list[bytes]]:
    problems: dict[str, list[bytes]] = {}
    for key, entry in entries.items():
        if entry.problem:
            problems.setdefault(entry.problem, []).append(key)
    return problems


def _some(keys: list[bytes]) -> str:
    """The first key, and how many more there are."""
    more = len(keys) - 1
    return f"key {key_name(keys[0])}" + (f" and {more} more" if more else "")


def _notes(place: Place, found: Survey) -> Iterator[str]:
    state, header = place.state_of(found.number), found.header
    left = len(found.keys) - len(found.live())
    if header is not None and left:
        yield f"{state}: {left} left-over snapshots of discarded models; the next start deletes them"
    if header is not None and header.attempts > 1:
        yield f"{state}: {header.attempts} starts at offset {header.offset} led no further: see the worker's log"
