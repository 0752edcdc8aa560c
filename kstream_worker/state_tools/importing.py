"""State out of a file into an empty place, so that workers start there as after any stop.

Two cases. Where the input is the same log (the same records at the same offsets: a byte-exact mirror, a restored
backup, the same files), everything is kept, and records from `replay_from` on are read again. Where it is another one,
no offset of the export means anything: models must be complete, and go on at an offset of the new log.

In both cases the group's offsets are committed in the transactions that write the state, so that both agree and no
policy is needed at the next start. Offsets come first and each partition's header last: a worker that finds an import
cut short refuses to start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from kstream_worker.errors import ConfigError, Fatal
from kstream_worker.records import Committed, End, Messages, Progress, TopicPartition
from kstream_worker.state.format import (
    HEADER_KEY,
    CorruptState,
    Header,
    decode_snapshot,
    encode_header,
    encode_snapshot,
    state_key,
)
from kstream_worker.state.opening import Found, StateIdentity, decide
from kstream_worker.state_tools.archive import Contents, SnapshotLine, snapshots
from kstream_worker.state_tools.place import Place
from kstream_worker.state_tools.reading import StateReader
from kstream_worker.state_tools.seat import Seat
from kstream_worker.state_tools.survey import survey
from kstream_worker.worker.assignment import StartPositions

_CHUNK_BYTES = 4 * 2**20

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """How to import.

    Attributes:
        identity: what the configuration writes state by.
        start: `input.start`: `earliest`, `latest` or a time in milliseconds.
        format: of the records to be written.
        same_offsets: whether the input is the same log; None to find out.
        force: write although state is there, records are missing in the models, or outputs would be published again.
        now_ms: the wall clock.
    """

    identity: StateIdentity
    start: str | int
    format: int
    same_offsets: bool | None
    force: bool
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Target:
    """Where the partitions go on.

    Attributes:
        headers: to be written, by partition; their tokens are still to come.
        same: whether the input is the same log, so that snapshots keep their positions.
    """

    headers: Mapping[int, Header]
    same: bool


def same_log(place: Place, contents: Contents, given: bool | None) -> bool:
    """Whether the input here has the records at the offsets that the export speaks of.

    Raises:
        Fatal: nobody says so, and names alone do not tell.
    """
    about = contents.about
    if given is not None:
        return given
    cluster_id = place.persist(place.cluster.cluster_id)
    topic_id = place.persist(lambda: place.cluster.topic_id(place.topic))
    if about.topic_id and (about.cluster_id, about.topic_id) == (cluster_id, topic_id):
        return True
    raise Fatal(
        f"the state was exported from {about.topic} of {about.cluster_id}, this is {place.topic} of {cluster_id}: say "
        "how their offsets relate. --same-offsets: the same records are at the same offsets here (a byte-exact mirror, "
        "a restored cluster, the same files). --new-offsets: they are not (another topic, a mirror that counts anew); "
        "the models then go on at the group's offset, or where input.start says"
    )


def check_fits(place: Place, contents: Contents, identity: StateIdentity) -> None:
    """See that partitions and models are those of this configuration.

    Raises:
        ConfigError: they are not.
    """
    about = contents.about
    here = place.persist(lambda: place.cluster.partition_count(place.topic))
    state = len(place.partitions())
    if not here == state == about.partitions:
        raise ConfigError(
            f"the export has {about.partitions} partitions, {place.topic} has {here or 'none'} and {place.state_topic} "
            f"has {state}: all must be equal, since keys belong to partitions. Make topics of {about.partitions}"
        )
    for number, header in contents.headers.items():
        if header.bank != identity.bank:
            raise ConfigError(
                f"partition {number} of the export holds models of another configuration (model, detector, or number "
                "of features): import with the configuration that they were written with"
            )


def plan(place: Place, seat: Seat, reader: StateReader, contents: Contents, settings: ImportSettings) -> Target:
    """Where each partition would go on, and that a worker would.

    Raises:
        Fatal: state is there already, or a worker would not go on; says what to do.
        ConfigError: the state is of another configuration.
    """
    same = same_log(place, contents, settings.same_offsets)
    partitions = {number: place.input_of(number) for number in contents.headers}
    committed = seat.committed(list(partitions.values()))
    starts = StartPositions(place.topic, settings.start, settings.now_ms)
    starts.learn(at for at in committed.values() if at is not None)
    headers = {}
    for number, header in contents.headers.items():
        tp = partitions[number]
        generation = _present(reader, place, number, force=settings.force)
        if same:
            starts.learn([Committed(header.offset, header.token)])
            _refuse_again(tp, header, committed[tp], force=settings.force)
            moved = header
        else:
            _refuse_incomplete(tp, header, force=settings.force)
            moved = _rebased(header, _start(place, seat, starts, tp, committed[tp]))
        headers[number] = _checked(
            place, moved, max(generation, header.generation), contents.keys[number], settings, tp
        )
    place.persist(lambda: starts.find(seat.source, place.cluster, []))
    seat.birth = starts.birth
    return Target(headers, same)


class Importer:
    """Writes what was planned, in transactions of a few megabytes.

    Args:
        place: where the state goes.
        seat: taken.
        target: where the partitions go on.
        settings: how to import.
        report: told how many keys are written.
        say: takes a line for people.
    """

    def __init__(
        self,
        place: Place,
        seat: Seat,
        target: Target,
        settings: ImportSettings,
        report: Callable[[int], None],
        say: Say,
    ) -> None:
        self._place = place
        self._seat = seat
        self._target = target
        self._settings = settings
        self._report = report
        self._say = say
        self._written = 0

    def write(self, path: Path) -> int:
        """Write all partitions of a file that was checked; the number of keys.

        Raises:
            Fatal: a worker came in between; the import is then to be run again with --force.
        """
        # First the offsets alone: until the last header is written, no partition fits, and no worker starts.
        headers = self._target.headers
        self._seat.commit(
            lambda _: [], {self._place.input_of(n): Progress(header.offset) for n, header in headers.items()}
        )
        left = set(headers)
        for number, lines in groupby(snapshots(path), lambda line: line.partition):
            left.discard(number)
            self._write_partition(number, lines)
        for number in sorted(left):
            self._write_partition(number, ())
        return self._written

    def _write_partition(self, number: int, lines: Iterable[SnapshotLine]) -> None:
        header, before = self._target.headers[number], self._written
        rows: list[tuple[bytes, bytes]] = []
        size = 0
        for key, value in self._rows(lines, header):
            rows.append((state_key(key), value))
            size += len(key) + len(value)
            if size >= _CHUNK_BYTES:
                self._commit(number, header, rows, last=False)
                rows, size = [], 0
        count = self._written - before + len(rows)  # without those that are damaged, which nobody is to miss
        self._commit(number, replace(header, snapshots=min(header.snapshots, count)), rows, last=True)
        self._say(
            f"{self._place.input_of(number)}: {self._written - before} keys; goes on at offset {header.offset}"
            + ("" if header.replay_from == header.offset else f", and reads again from {header.replay_from}")
        )

    def _commit(self, number: int, header: Header, rows: list[tuple[bytes, bytes]], *, last: bool) -> None:
        now_ms = self._settings.now_ms()

        def make(token: str) -> list[Messages]:
            head = [(HEADER_KEY, encode_header(replace(header, token=token), self._settings.format))] if last else []
            column = Messages(self._place.state_of(number))
            for key, value in [*rows, *head]:
                column.extend((key,), (value,), (now_ms,), ((),))
            return [column]

        self._seat.commit(make, {self._place.input_of(number): Progress(header.offset)})
        self._written += len(rows)
        self._report(self._written)

    def _rows(self, lines: Iterable[SnapshotLine], header: Header) -> Iterator[tuple[bytes, bytes]]:
        for line in lines:
            try:
                snapshot = decode_snapshot(line.value)
            except CorruptState as error:
                self._say(f"partition {line.partition}: a snapshot is damaged, its key starts afresh ({error})")
                continue
            position = snapshot.position if self._target.same else header.offset
            moved = replace(snapshot, position=position, generation=header.generation)
            yield line.key, encode_snapshot(moved, self._settings.format)


def _present(reader: StateReader, place: Place, number: int, *, force: bool) -> int:
    """A number above those of the snapshots that are there, so that none of them belongs to what is imported."""
    there = survey(reader, number)
    if there.empty:
        return 0
    if not force:
        count = len(there.keys) + len(there.unfinished)
        raise Fatal(
            f"{place.state_of(number)} is not empty: it has {'a' if there.header_value else 'no'} header and {count} "
            "snapshots. Import into a new topic (or folder), or give --force to replace them"
        )
    return there.generation + 1


def _refuse_again(tp: TopicPartition, header: Header, committed: Committed | None, *, force: bool) -> None:
    if committed is None or committed.offset == header.offset or force:
        return
    what = (
        f"outputs of {committed.offset - header.offset} offsets would be published again"
        if committed.offset > header.offset
        else f"{header.offset - committed.offset} offsets would be skipped"
    )
    raise Fatal(
        f"{tp}: the group has committed offset {committed.offset}, the export is at {header.offset}: {what}. Take "
        "--new-offsets to go on at the group's offset with the models as they are in the export, or --force"
    )


def _refuse_incomplete(tp: TopicPartition, header: Header, *, force: bool) -> None:
    missing = header.offset - header.replay_from
    if missing and not force:
        raise Fatal(
            f"{tp}: {missing} offsets of the former input are not in all models yet, and cannot be read again at other "
            "offsets. Run the worker there once with --drain and export again; with --force models lack those samples"
        )


def _start(place: Place, seat: Seat, starts: StartPositions, tp: TopicPartition, committed: Committed | None) -> int:
    """The offset at which the models go on in another log."""
    if committed is None:
        return place.persist(lambda: starts.find(seat.source, place.cluster, [tp])[tp])
    earliest = place.persist(lambda: place.cluster.earliest([tp])[tp])
    end = place.persist(lambda: place.cluster.end([tp], End.HIGH)[tp])
    if not earliest <= committed.offset <= end:
        raise Fatal(
            f"{tp}: the group has committed offset {committed.offset}, the topic has {earliest} to {end}. Set the "
            "group's offset to where the models are to go on (kafka-consumer-groups --reset-offsets), or delete it"
        )
    return committed.offset


def _rebased(header: Header, offset: int) -> Header:
    """The header at an offset of another log, nothing to be read again."""
    refusing = bool(header.closed) and header.closed[-1][1] < 0
    return replace(
        header,
        offset=offset,
        replay_from=offset,
        closed=((offset, -1),) if refusing else (),
        arls=tuple((offset, arl) for _, arl in header.arls[-1:]),
        rejected=(),
        attempts=0,
        trial=-1,
        deaths=0,
        triers=(),
    )


def _checked(
    place: Place, header: Header, generation: int, keys: int, settings: ImportSettings, tp: TopicPartition
) -> Header:
    """The header as it will be written, once a worker would go on from it."""
    header = replace(
        header,
        generation=generation,
        cluster_id=place.persist(place.cluster.cluster_id),
        topic_id=place.persist(lambda: place.cluster.topic_id(place.topic)),
    )
    found = Found(
        partition=tp,
        committed=Committed(header.offset, header.token),  # as they will agree, with a token yet to be drawn
        header=header,
        keys=keys,
        generation=generation,
        first=header.offset,
        earliest=place.persist(lambda: place.cluster.earliest([tp])[tp]),
        end=place.persist(lambda: place.cluster.end([tp], End.HIGH)[tp]),
        cluster_id=header.cluster_id,
        topic_id=header.topic_id,
    )
    try:
        decide(found, settings.identity, "fail", discard=False)
    except ConfigError:
        raise
    except Fatal as error:
        raise Fatal(
            f"a worker would not go on from this export here ({error}) If the input has other offsets here, take "
            "--new-offsets"
        ) from error
    return header
